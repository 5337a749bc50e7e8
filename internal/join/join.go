// Package join makes and reads the files by which a process joins a cluster:
// who it is, where the store nodes are, and how it proves itself.
//
// # The promise
//
// Who holds a join file of a cluster is one of its nodes, and nobody else is:
// both ends of each connection show a certificate that the cluster's own CA has
// signed. The name in it says what its holder may be. A store node is known by
// the name store.DATACENTER.headgate; the certificate of a worker does not carry
// it, so that a worker cannot pose as a store node. Addresses prove nothing and
// may change.
//
// What [Read] returns has been read, and nothing more: [File.Faults] says what is
// wrong with it.
//
// # Concurrency and cost
//
// The package has no state. A certificate takes less than a millisecond to make.
//
// # What it does not do
//
// It opens no connection and copies no file to another machine. It knows no
// revocations: the store nodes refuse certificates by their serial numbers
// (headgate cluster revoke).
package join

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
)

// Version is the format of join files, and of the plan beside the CA.
const Version = 1

// maxFile is the largest file that is read. Chosen: a join file is about 2 KB.
const maxFile = 1 << 20

// A Plan is what all nodes of a cluster have in common.
type Plan struct {
	Datacenter string            `json:"datacenter"` // 1 to 32 of a-z, 0-9 and -
	Peers      map[string]string `json:"peers"`      // host:port of each store node, by name
	Store      []string          `json:"store"`      // the names of the one or three store nodes
}

// A File is the content of a join file.
type File struct {
	Version int `json:"headgate_join"`
	Plan
	Node   string `json:"node"`   // who this is; "" is a worker whose name is drawn at start
	Listen string `json:"listen"` // where a store node waits for workers; "" for a worker
	CA     string `json:"ca"`     // PEM: whom to trust
	Cert   string `json:"cert"`   // PEM: the certificate of this node
	Key    string `json:"key"`    // PEM: its private key
}

// IsStore tells whether the node keeps the records, together with the others of
// Store.
func (f *File) IsStore() bool { return slices.Contains(f.Store, f.Node) }

// An Error says which file is wrong, and what to do.
type Error struct {
	File    string
	Problem string
	Err     error // why it could not be read or written, or nil
	hint    string
}

func (e *Error) Error() string { return e.File + ": " + e.Problem }

// Unwrap gives the reason.
func (e *Error) Unwrap() error { return e.Err }

// Hint says what to do.
func (e *Error) Hint() string { return e.hint }

// Read reads a join file. The error is an [*Error].
func Read(file string) (*File, error) {
	b, err := ReadSecret(file)
	if err != nil {
		return nil, err
	}
	f := &File{}
	if err := decode(file, b, f); err != nil {
		return nil, err
	}
	switch {
	case f.Version == 0:
		return nil, wrong(file, "is not a join file", notOne)
	case f.Version != Version:
		return nil, wrong(file, fmt.Sprintf("has the format %d, this headgate knows %d", f.Version, Version),
			"run the headgate that made it, or a newer one")
	}
	return f, nil
}

const notOne = "name a file that headgate cluster init has made"

// decode reads one JSON object. Nothing of what is read stands in an error: it
// may be a key.
func decode(file string, b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil && len(bytes.TrimSpace(b[d.InputOffset():])) > 0 {
		err = errors.New("something follows its end")
	}
	if err == nil {
		return nil
	}
	e := wrong(file, "is not a whole file of a cluster", notOne)
	switch typed, ok := errors.AsType[*json.UnmarshalTypeError](err); {
	case ok:
		e.Problem = fmt.Sprintf("has a value of the wrong kind under %q", typed.Field)
	case len(b) > 0 && b[0] != '{':
		e.Problem = "is not a join file"
	}
	e.Err = err
	return e
}

// ReadSecret reads a plain file that only its owner may read. The error is an
// [*Error].
func ReadSecret(file string) ([]byte, error) {
	b, mode, err := readFile(file)
	// Windows has access lists instead, which a mode does not show.
	if err == nil && mode.Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, wrong(file, fmt.Sprintf("may be read by others (mode %03o)", mode.Perm()),
			"chmod 600 "+file)
	}
	return b, err
}

// ReadPublic reads a plain file that is no secret. The error is an [*Error].
func ReadPublic(file string) ([]byte, error) {
	b, _, err := readFile(file)
	return b, err
}

// readFile reads a plain file of at most maxFile bytes.
func readFile(name string) ([]byte, fs.FileMode, error) {
	const retry = "name a plain file of at most 1 MB"
	info, err := os.Stat(name)
	if err != nil {
		return nil, 0, unreadable(name, err)
	}
	if !info.Mode().IsRegular() { // opening a pipe would wait for its other end
		return nil, 0, wrong(name, "is not a plain file", retry)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, unreadable(name, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, 0, unreadable(name, err)
	case len(b) > maxFile:
		return nil, 0, wrong(name, "is larger than 1 MB", retry)
	}
	return b, info.Mode(), nil
}

func wrong(file, problem, hint string) *Error {
	return &Error{File: file, Problem: problem, hint: hint}
}

func unreadable(name string, err error) *Error {
	e := &Error{File: name, Err: err, Problem: "cannot be read: " + err.Error(),
		hint: "name a plain file that headgate may read"}
	p, ok := errors.AsType[*fs.PathError](err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Problem = "there is no such file"
	case errors.Is(err, fs.ErrPermission):
		e.Problem = "may not be read by this user"
		e.hint = "change its owner, or run headgate as a user who may read it"
	case ok:
		e.Problem = "cannot be read: " + p.Err.Error() // the path is in e.File already
	}
	return e
}
