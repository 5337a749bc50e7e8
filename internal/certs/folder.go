package certs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/headgate/headgate/internal/smallfile"
)

// A Vault stores account keys and certificates permanently. Names are host names with an optional
// suffix, never paths. Both methods block. Put returns when the value is durable, and does not keep
// value. Get of a missing name returns fs.ErrNotExist.
//
// Several machines may share a vault. Each checks whether another one has stored a newer
// certificate before it orders.
type Vault interface {
	Get(ctx context.Context, name string) ([]byte, error)
	Put(ctx context.Context, name string, value []byte) error
}

// A Folder is a Vault of files, mode 0600, in a folder of mode 0700.
type Folder struct{ path string }

// OpenFolder creates the folder if it does not exist.
func OpenFolder(path string) (*Folder, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of certificates: %w", err)
	}
	// The folder may have been created by hand, but it contains keys.
	if err := os.Chmod(path, 0o700); err != nil {
		return nil, fmt.Errorf("close the folder of certificates: %w", err)
	}
	return &Folder{path}, nil
}

// Get implements Vault.
func (f *Folder) Get(_ context.Context, name string) ([]byte, error) {
	b, err := smallfile.ReadPublic(filepath.Join(f.path, name))
	return b, err
}

// Put implements Vault. A crash leaves either the old value or the new one.
func (f *Folder) Put(_ context.Context, name string, value []byte) error {
	// Each name has one writer: the ACME that holds it.
	tmp := filepath.Join(f.path, ".new-"+name)
	if err := writeSafe(tmp, value); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	if err := os.Rename(tmp, filepath.Join(f.path, name)); err != nil {
		return err
	}
	dir, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

func writeSafe(name string, value []byte) error {
	w, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = w.Write(value)
	return errors.Join(err, w.Sync(), w.Close())
}
