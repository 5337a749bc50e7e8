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
	"slices"

	"github.com/headgate/headgate/internal/smallfile"
)

// Version is the format of join files, and of the plan beside the CA.
const Version = 1

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

// Read reads a join file. The error is an [*smallfile.Error].
func Read(file string) (*File, error) {
	b, err := smallfile.ReadSecret(file)
	if err != nil {
		return nil, err
	}
	f := &File{}
	if err := decode(file, b, f); err != nil {
		return nil, err
	}
	switch {
	case f.Version == 0:
		return nil, smallfile.Wrong(file, "is not a join file", notOne)
	case f.Version != Version:
		return nil, smallfile.Wrong(file, fmt.Sprintf("has the format %d, this headgate knows %d", f.Version, Version),
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
	problem := "is not a whole file of a cluster"
	switch typed, ok := errors.AsType[*json.UnmarshalTypeError](err); {
	case ok:
		problem = fmt.Sprintf("has a value of the wrong kind under %q", typed.Field)
	case len(b) > 0 && b[0] != '{':
		problem = "is not a join file"
	}
	return smallfile.From(err, file, problem, notOne)
}
