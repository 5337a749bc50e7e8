// Package smallfile reads the small files that an operator names: certificates, keys, join files.
// Its errors say which file is wrong, and what to do.
package smallfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/headgate/headgate/internal/platform"
)

// MaxSize is the largest file that is read. Chosen: a join file is about 2 KB, and a chain of ten
// certificates with large RSA keys about 30 KB.
const MaxSize = 1 << 20

// An Error names the file that is wrong, and what to do.
type Error struct {
	File    string
	Problem string
	Err     error // why it could not be read or written, or nil
	hint    string
}

// Wrong returns an error about a file.
func Wrong(file, problem, hint string) *Error {
	return &Error{File: file, Problem: problem, hint: hint}
}

// From returns an error about a file, with its cause.
func From(err error, file, problem, hint string) *Error {
	return &Error{File: file, Problem: problem, Err: err, hint: hint}
}

func (e *Error) Error() string { return e.File + ": " + e.Problem }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Hint returns what to do.
func (e *Error) Hint() string { return e.hint }

// Read reads a plain file of at most MaxSize bytes. The error is an [*Error].
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

// ReadPublic reads a plain file that is no secret. The error is an [*Error].
func ReadPublic(file string) ([]byte, error) {
	b, _, err := Read(file)
	return b, err
}

// ReadSecret reads a plain file that only its owner may read. The error is an [*Error].
func ReadSecret(file string) ([]byte, error) {
	b, mode, err := Read(file)
	if err == nil && !platform.IsPrivate(mode) {
		return nil, Wrong(file, fmt.Sprintf("may be read by others (mode %03o)", mode.Perm()),
			"chmod 600 "+file)
	}
	return b, err
}

func unreadable(file string, err error) *Error {
	e := From(err, file, "cannot be read: "+err.Error(), "name a plain file that headgate may read")
	p, ok := errors.AsType[*fs.PathError](err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Problem = "there is no such file"
		e.hint = "paths count from the folder headgate was started in"
	case errors.Is(err, fs.ErrPermission):
		e.Problem = "may not be read by this user"
		e.hint = "change its owner, or run headgate as a user who may read it"
	case ok:
		e.Problem = "cannot be read: " + p.Err.Error() // the path is in e.File already
	}
	return e
}
