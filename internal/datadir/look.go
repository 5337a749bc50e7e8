package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/headgate/headgate/internal/platform"
)

// This file is for code that examines a folder without changing it, whether a headgate uses it or
// not.

// Format returns the format of a folder, or 0 if it has none.
func Format(dir string) (int, error) { return readFormat(dir) }

// LookAtKeys reads the sealing keys, the newest first, and returns the faults of each file.
func LookAtKeys(dir string) (keys []SealingKey, faults []error) {
	f := &Folder{dir: dir}
	if err := f.private("keys"); err != nil {
		return nil, []error{err}
	}
	return f.readAllKeys(f.Path("keys"))
}

// ParseKey parses the content of a sealing key file; name is the file's name.
func ParseKey(name string, b []byte) (SealingKey, error) {
	id, err := KeyID(name)
	if err != nil {
		return SealingKey{}, err
	}
	return parseKey(id, b)
}

// KeyID returns the number of a key from its file name, NNN.key.
func KeyID(name string) (byte, error) {
	id, ok := keyID(name)
	if !ok || name != keyName(id) {
		return 0, fmt.Errorf("%q does not name a sealing key", name)
	}
	return id, nil
}

// InUse reports whether a headgate uses the folder, and its process id, or 0 if that is unknown.
func InUse(dir string) (pid int, used bool, err error) {
	f, err := os.Open(filepath.Join(dir, lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, wrong(err, dir, "its lock cannot be read", writeHint(err))
	}
	defer f.Close()
	if pid := platform.LockHolder(f); pid > 0 {
		return pid, true, nil
	}
	// The list of locks leaves out those of other containers. Trying a shared lock for a moment
	// detects an exclusive lock.
	return 0, platform.IsLocked(f), nil
}

// A Filling is a folder that is being restored from a backup. headgate does not start in it until
// Done.
type Filling struct{ f *Folder }

// Fill opens a folder that is empty or missing. The caller must call Close.
func Fill(dir string) (*Filling, error) {
	f, err := Open(dir)
	if err != nil {
		return nil, err
	}
	if err := writeFile(f.Path(formatFile), []byte(restoring)); err != nil {
		f.Close()
		return nil, wrong(err, dir, "cannot be written", writeHint(err))
	}
	return &Filling{f}, nil
}

// Put writes a file that only its owner can read, and creates its folder.
func (w *Filling) Put(name string, b []byte) error {
	path := w.f.Path(name)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = writeFile(path, b)
	}
	if err != nil {
		return wrong(err, w.f.dir, name+" cannot be written", writeHint(err))
	}
	return nil
}

// Fault wraps an error about writing into the folder.
func (w *Filling) Fault(text string, err error) error { return w.f.Fault(text, err) }

// Done turns the folder into a data folder.
func (w *Filling) Done() error {
	return w.Put(formatFile, fmt.Appendf(nil, "%s%d\n", formatHead, Version))
}

// Close unlocks the folder.
func (w *Filling) Close() error { return w.f.Close() }
