// Package join writes and reads the files with which a process joins a cluster: its identity, the
// addresses of the store nodes, and its certificate.
//
// # The promise
//
// Anyone who holds a join file of a cluster can act as that node, and nobody else can: both ends of
// each connection present a certificate signed by the cluster's own CA. The name in it defines the
// role of its holder. Certificates of store nodes carry the name store.DATACENTER.headgate. The
// certificate of a worker does not, so a worker cannot act as a store node. Addresses prove nothing
// and may change.
//
// [Read] only reads a file; [File.Faults] checks it.
//
// # Concurrency and cost
//
// The package has no state. Creating a certificate takes less than a millisecond.
//
// # What it does not do
//
// It opens no connection and copies no file to another machine. It does not handle revocation: the
// store nodes reject certificates by their serial numbers (headgate cluster revoke).
package join

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/headgate/headgate/internal/smallfile"
)

// Version is the format of join files, and of the plan stored with the CA.
const Version = 1

// A Plan holds what all nodes of a cluster have in common.
type Plan struct {
	Datacenter string            `json:"datacenter"` // 1 to 32 of a-z, 0-9 and -
	Peers      map[string]string `json:"peers"`      // host:port of each store node, by name
	Store      []string          `json:"store"`      // the names of the one or three store nodes
}

// A File is the content of a join file.
type File struct {
	Version int `json:"headgate_join"`
	Plan
	Node   string `json:"node"`   // this node; "": a worker that draws its name at start
	Listen string `json:"listen"` // where a store node listens for workers; "" for a worker
	CA     string `json:"ca"`     // PEM: the trusted CA
	Cert   string `json:"cert"`   // PEM: the certificate of this node
	Key    string `json:"key"`    // PEM: its private key
}

// IsStore reports whether the node stores the records, together with the others of Store.
func (f *File) IsStore() bool { return slices.Contains(f.Store, f.Node) }

// Read reads a join file. The error is an [*hint.Error].
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

// decode reads one JSON object. Errors never quote the input, which may contain a key.
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
