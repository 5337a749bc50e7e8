// Package store stores bytes under keys with revisions, on disk or in memory.
//
// # The promise
//
// A confirmed write is never lost. CompareAndSwap is the only write, so a process that has not read
// the newest revision cannot overwrite it. This fence prevents two processes from both being the
// host of a counter (docs/protocol.md §9).
//
// # Concurrency
//
// A Store may be used by many goroutines at once. Its methods block.
//
// # The files
//
// From the top down: doc is a typed record that many processes edit. nats keeps records, and log keeps
// entries in order, on a JetStream stream; copies are their second copies, and revive fills a lost
// stream from them. worker does both through a store node, where proxy answers. answers says which
// errors pass by themselves, diagnose which need a person; inspect says where records are. bus carries
// messages between processes, keys has the names, and store the interface.
//
// # Limits
//
// The package does not know what the bytes mean: encoding is up to the caller.
package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// The errors of a Store. Use errors.Is to distinguish them.
var (
	ErrNotFound = errors.New("key not found")
	ErrConflict = errors.New("revision is not the newest")
)

// ErrDamaged reports that the key had a value, and that neither the engine nor a whole second copy
// has it any more.
var ErrDamaged = errors.New("lost: neither the engine nor a whole second copy has it")

// ErrTooLarge reports that a value is larger than one megabyte.
var ErrTooLarge = errors.New("value is larger than 1 MB")

// ErrFull reports that the log has no room for the entry.
var ErrFull = errors.New("the log is full")

// ErrDenied reports that a worker requested something that only store nodes may do.
var ErrDenied = errors.New("a worker may not do this: do it at a store node")

// errAgain reports that a store node has no answer now; retry.
var errAgain = errors.New("the store node has no answer now")

// A Store stores records. It does not keep the slices that it receives, and callers own the slices
// that it returns.
type Store interface {
	// Load returns the newest value and its revision, or ErrNotFound.
	Load(ctx context.Context, key string) (value []byte, revision uint64, err error)
	// CompareAndSwap writes value if revision is still the newest revision (0: the key must not
	// exist), and returns the new revision. Otherwise it returns ErrConflict. After any other error
	// the write may or may not have happened; use Load to find out.
	CompareAndSwap(ctx context.Context, key string, revision uint64, value []byte) (uint64, error)
}

// A Custom is a store that replaces NATS. The configuration of an engine embeds it under an unexported
// name, so that its documentation has no type that users cannot import.
type Custom struct{ Store Store }

// Memory is a Store in memory, which is lost when the process ends. The zero value is empty and
// ready to use.
type Memory struct {
	mu   sync.Mutex
	keys map[string]entry
}

type entry struct {
	value    []byte
	revision uint64
}

// Load implements Store.
func (m *Memory) Load(_ context.Context, key string) ([]byte, uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.keys[key]
	if !ok {
		return nil, 0, ErrNotFound
	}
	return slices.Clone(e.value), e.revision, nil
}

// CompareAndSwap implements Store.
func (m *Memory) CompareAndSwap(
	_ context.Context, key string, revision uint64, value []byte,
) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.keys[key]
	if e.revision != revision {
		return 0, ErrConflict
	}
	if m.keys == nil {
		m.keys = map[string]entry{}
	}
	m.keys[key] = entry{append(e.value[:0], value...), revision + 1}
	return revision + 1, nil
}

// An Entry is one entry of a Log.
type Entry struct {
	Seq  uint64
	At   time.Time // when the engine received it
	Data []byte
}

// LogSize is the size of a Log. First is the sequence number of the oldest entry, or Last + 1 if
// there is none.
type LogSize struct {
	First, Last, Count, Bytes uint64
}

// Placement is where the records are stored.
type Placement struct {
	Wanted int            // servers that should hold each record
	Leader string         // server that orders the writes, "": none now
	Behind map[string]int // other servers that are behind, by the number of writes
	Gone   []string       // other servers that are not running
}
