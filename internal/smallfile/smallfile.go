// Package smallfile reads the small files that an operator names: certificates, keys, join files.
// Its errors say which file is wrong, and what to do.
package smallfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/platform"
)

// MaxSize is the largest file that is read. Chosen: a join file is about 2 KB, and a chain of ten
// certificates with large RSA keys about 30 KB.
const MaxSize = 1 << 20

// Wrong returns an error about a file.
func Wrong(file, problem, do string) *hint.Error { return From(nil, file, problem, do) }

// From returns an error about a file, with its cause, which problem says in better words.
func From(err error, file, problem, do string) *hint.Error {
	return &hint.Error{Text: file + ": " + problem, Do: do, Err: err, Quiet: true}
}

// Read reads a plain file of at most MaxSize bytes. The error is a [*hint.Error].
func Read(file string) ([]byte, fs.FileMode, error) {
	const retry = "name a plain file of at most 1 MB"
	info, err := os.Stat(file)
	if err != nil {
		return nil, 0, unreadable(file, err)
	}
	if !info.Mode().IsRegular() { // opening a pipe would wait for its other end
		return nil, 0, Wrong(file, "is not a plain file", retry)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, 0, unreadable(file, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	switch {
	case err != nil:
		return nil, 0, unreadable(file, err)
	case len(b) > MaxSize:
		return nil, 0, Wrong(file, "is larger than 1 MB", retry)
	}
	return b, info.Mode(), nil
}

// ReadPublic reads a plain file that is no secret. The error is a [*hint.Error].
func ReadPublic(file string) ([]byte, error) {
	b, _, err := Read(file)
	return b, err
}

// ReadSecret reads a plain file that only its owner may read. The error is a [*hint.Error].
func ReadSecret(file string) ([]byte, error) {
	b, mode, err := Read(file)
	if err == nil && !platform.IsPrivate(mode) {
		return nil, Wrong(file, fmt.Sprintf("may be read by others (mode %03o)", mode.Perm()),
			"chmod 600 "+file)
	}
	return b, err
}

func unreadable(file string, err error) *hint.Error {
	p, ok := errors.AsType[*fs.PathError](err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return From(err, file, "there is no such file", "paths count from the folder headgate was started in")
	case errors.Is(err, fs.ErrPermission):
		return From(err, file, "may not be read by this user",
			"change its owner, or run headgate as a user who may read it")
	case ok:
		err = p.Err // the path is there already
	}
	return From(err, file, "cannot be read: "+err.Error(), "name a plain file that headgate may read")
}
