package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/headgate/headgate/internal/platform"
)

// This file is for those who look at a folder and leave it as it is, whether a
// headgate works in it or not.

// Format is the format of a folder, 0 for one without.
func Format(dir string) (int, error) { return readFormat(dir) }

// LookAtKeys reads the sealing keys, the newest first, and says of each file
// what is wrong with it.
func LookAtKeys(dir string) (keys []SealingKey, faults []error) {
	f := &Folder{dir: dir}
	if err := f.private("keys"); err != nil {
		return nil, []error{err}
	}
	entries, err := os.ReadDir(f.Path("keys"))
	if err != nil {
		return nil, []error{&Error{Dir: dir, Text: "cannot be read", Do: writeHint(err), Err: err}}
	}
	for _, e := range entries {
		id, ok := keyID(e.Name())
		if !ok {
			continue
		}
		k, err := f.readKey(filepath.Join("keys", e.Name()), id)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		keys = append(keys, k)
	}
	sortKeys(keys)
	return keys, faults
}

// ParseKey reads what is in a file of a sealing key; name is the file's.
func ParseKey(name string, b []byte) (SealingKey, error) {
	id, err := KeyID(name)
	if err != nil {
		return SealingKey{}, err
	}
	return parseKey(id, b)
}

// KeyID is the number of a key by the name of its file, as NNN.key.
func KeyID(name string) (byte, error) {
	id, ok := keyID(name)
	if !ok || name != keyName(id) {
		return 0, fmt.Errorf("%q does not name a sealing key", name)
	}
	return id, nil
}

// InUse reports whether a headgate works in the folder, and its process id, 0 if
// that cannot be known.
func InUse(dir string) (pid int, used bool, err error) {
	f, err := os.Open(filepath.Join(dir, lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, &Error{Dir: dir, Text: "its lock cannot be read", Do: writeHint(err), Err: err}
	}
	defer f.Close()
	if pid := platform.LockHolder(f); pid > 0 {
		return pid, true, nil
	}
	// The list of locks leaves out those of other containers. A shared lock for a
	// moment is refused if somebody has the other kind.
	return 0, platform.IsLocked(f), nil
}

// A Filling is a folder that is being filled from a backup. Until Done, headgate
// does not start in it.
type Filling struct{ f *Folder }

// restoring stands in the format file of a folder that is being filled.
const restoring = "headgate-data restoring\n"

// Fill takes a folder that is empty or not there. Close must follow.
func Fill(dir string) (*Filling, error) {
	f, err := Open(dir)
	if err != nil {
		return nil, err
	}
	if err := writeFile(f.Path(formatFile), []byte(restoring)); err != nil {
		f.Close()
		return nil, &Error{Dir: dir, Text: "cannot be written", Do: writeHint(err), Err: err}
	}
	return &Filling{f}, nil
}

// Put writes a file for its owner alone, and the folder above it.
func (w *Filling) Put(name string, b []byte) error {
	path := w.f.Path(name)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = writeFile(path, b)
	}
	if err != nil {
		return &Error{Dir: w.f.dir, Text: name + " cannot be written", Do: writeHint(err), Err: err}
	}
	return nil
}

// Fault wraps an error about writing into the folder.
func (w *Filling) Fault(text string, err error) error { return w.f.Fault(text, err) }

// Done makes it a data folder.
func (w *Filling) Done() error {
	return w.Put(formatFile, fmt.Appendf(nil, "%s%d\n", formatHead, Version))
}

// Close unlocks the folder.
func (w *Filling) Close() error { return w.f.Close() }
