// Package datadir manages the data folder, which outlives the process.
//
// # The promise
//
// Only one process at a time uses a folder. A folder of a newer program is left unchanged. Only its
// owner can read the keys and tokens in it. Every error includes what to do.
//
// # Concurrency
//
// A Folder may be used by many goroutines at once; it changes nothing but the sealing keys.
//
// # What it does not do
//
// It does not interpret the engine and the records.
package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/platform"
)

// Version is the format of the folders that this program creates and accepts.
const Version = 1

const (
	formatFile = "format"
	formatHead = "headgate-data "
	lockFile   = "lock"
	ownerFile  = "node"
)

// restoring is the content of the format file during a restore.
const restoring = "headgate-data restoring\n"

// wrong returns an error about a data folder.
func wrong(err error, dir, text, do string) error {
	return hint.File(err, fmt.Sprintf("data folder %s: %s", dir, text), do)
}

// A Folder is an open data folder.
type Folder struct {
	dir  string
	lock *os.File
	keys sync.Mutex // two new keys must not get the same number
}

// Open creates the folder if it does not exist, checks it and locks it. Close unlocks it.
func Open(dir string) (*Folder, error) {
	fail := func(err error, text, do string) (*Folder, error) {
		return nil, wrong(err, dir, text, do)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err, "cannot be made",
			"name a folder that this user may write with --data, or make it: mkdir -m 700 DIR")
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fail(err, "cannot be written", writeHint(err))
	}
	f := &Folder{dir: dir, lock: lock}
	if err := platform.TryLock(lock); err != nil {
		f.Close()
		return fail(nil, "another headgate works in it",
			"stop that one, or give this one a folder of its own with --data")
	}
	if err := f.check(); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Claim records which node of a cluster uses the folder. It rejects the folder of another node.
// Otherwise one node would hold the replicated data twice, and the other node would lose it.
func (f *Folder) Claim(owner string) error {
	b, err := os.ReadFile(f.Path(ownerFile))
	switch was := strings.TrimSpace(string(b)); {
	case errors.Is(err, fs.ErrNotExist):
		if err := writeFile(f.Path(ownerFile), []byte(owner+"\n")); err != nil {
			return wrong(err, f.dir, "cannot be written", writeHint(err))
		}
	case err != nil:
		return wrong(err, f.dir, "cannot be read", "give this user the right to read "+f.Path(ownerFile))
	case was != owner:
		return wrong(nil, f.dir, fmt.Sprintf("is that of node %q, and this is %q", was, owner),
			"start with an empty folder: the node fetches what it needs from the others. "+
				"Was the node renamed, with all of the cluster stopped, remove "+f.Path(ownerFile))
	}
	return nil
}

// writeHint returns what to do about a folder that cannot be written.
func writeHint(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "the disk is full: make room, some megabytes are enough"
	case errors.Is(err, syscall.EROFS):
		return "the file system is read-only: see what the kernel says (dmesg), then remount it for writing"
	}
	return "give this user the right to write there, or name another folder with --data"
}

// check checks the format and the access rights.
func (f *Folder) check() error {
	v, err := readFormat(f.dir)
	switch {
	case err != nil:
		return err
	case v > Version:
		return wrong(nil, f.dir, fmt.Sprintf("is of a newer headgate (format %d, this one knows %d)", v, Version),
			"run the newer headgate, or give this one a folder of its own with --data")
	}
	if err := f.tryWrite(); err != nil { // fails now with a reason, not later with a timeout
		return wrong(err, f.dir, "cannot be written", writeHint(err))
	}
	if v == 0 {
		text := fmt.Sprintf("%s%d\n", formatHead, Version)
		if err := writeFile(f.Path(formatFile), []byte(text)); err != nil {
			return wrong(err, f.dir, "cannot be written", writeHint(err))
		}
	}
	return nil
}

// trial is the size of a test write that shows whether there is space for the engine. Its files
// grow by less in a minute. Chosen.
const trial = 256 << 10

func (f *Folder) tryWrite() error {
	t, err := os.CreateTemp(f.dir, ".try-")
	if err != nil {
		return err
	}
	defer os.Remove(t.Name())
	_, err = t.Write(make([]byte, trial))
	if err == nil {
		err = t.Sync()
	}
	return errors.Join(err, t.Close())
}

// readFormat returns the folder's format, or 0 if it has none yet.
func readFormat(dir string) (int, error) {
	b, err := os.ReadFile(filepath.Join(dir, formatFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, wrong(err, dir, "cannot be read",
			"give this user the right to read it, or name another folder with --data")
	}
	if string(b) == restoring {
		return 0, wrong(nil, dir, "a restore into it was broken off",
			"restore again: headgate restore --aside --data "+dir+" FILE")
	}
	v, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(string(b), formatHead)))
	if err != nil || v < 1 || !strings.HasPrefix(string(b), formatHead) {
		return 0, wrong(nil, dir, "its file format is damaged",
			fmt.Sprintf("if this is headgate's folder, write it anew: echo '%s%d' > %s",
				formatHead, Version, filepath.Join(dir, formatFile)))
	}
	return v, nil
}

// private rejects files that others may read: anyone with the sealing keys can create valid passes.
func (f *Folder) private(name string) error {
	info, err := os.Stat(f.Path(name))
	if err != nil {
		return wrong(err, f.dir, "cannot be read", writeHint(err))
	}
	if mode := info.Mode().Perm(); !platform.IsPrivate(mode) {
		return wrong(nil, f.dir, fmt.Sprintf("%s may be read by others (mode %04o)", f.Path(name), mode),
			fmt.Sprintf("chmod go-rwx %s", f.Path(name)))
	}
	return nil
}

// Path returns the path of a file or folder in the folder.
func (f *Folder) Path(name string) string { return filepath.Join(f.dir, name) }

// Engine returns the folder of the engine.
func (f *Folder) Engine() string { return f.Path("engine") }

// Records returns the folder of the second copies.
func (f *Folder) Records() string { return f.Path("records") }

// Fault wraps an error about the content of the folder.
func (f *Folder) Fault(text string, err error) error {
	do := writeHint(err)
	if e, ok := errors.AsType[*hint.Error](err); ok {
		return e
	}
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EROFS) &&
		!errors.Is(err, fs.ErrPermission) {
		do = "headgate doctor --data " + f.dir + " says what is damaged and what to do"
	}
	return wrong(err, f.dir, text, do)
}

// Write replaces a file of the folder atomically.
func (f *Folder) Write(name string, b []byte) error {
	if err := writeFile(f.Path(name), b); err != nil {
		return f.Fault(name+" cannot be written", err)
	}
	return nil
}

// Close unlocks the folder.
func (f *Folder) Close() error { return f.lock.Close() }

// writeFile replaces a file atomically: after a crash it is the old one or the new one. It is
// synced, and readable only by its owner.
func writeFile(path string, b []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(b)
	if err == nil {
		err = tmp.Sync()
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err == nil {
		err = platform.SyncDir(filepath.Dir(path))
	}
	return err
}
