// Package store keeps bytes under keys with revisions, durable or not.
//
// # The promise
//
// A write that was confirmed stays, and CompareAndSwap is the only write: who
// has not seen the newest revision cannot overwrite it. That is the fence that
// keeps two processes from both being a counter's host (docs/protocol.md §9).
//
// # Concurrency
//
// A Store may be used by many goroutines at once. Its methods block.
//
// # What it does not do
//
// It knows nothing of what the bytes mean: codecs stay with their owners.
package store

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// The errors of a Store. Callers tell them apart by errors.Is.
var (
	ErrNotFound = errors.New("key not found")
	ErrConflict = errors.New("revision is not the newest")
)

// A Store keeps records. It does not keep the slices it is given and gives
// away the slices it returns.
type Store interface {
	// Load returns the newest value and its revision, or ErrNotFound.
	Load(ctx context.Context, key string) (value []byte, revision uint64, err error)
	// CompareAndSwap writes value if the newest revision is still the given
	// one (0: the key must not exist), and returns the new revision or
	// ErrConflict. After any other error the write may or may not have
	// happened: Load tells.
	CompareAndSwap(ctx context.Context, key string, revision uint64, value []byte) (uint64, error)
}

// Memory is a Store that forgets when the process ends. The zero value is
// empty and ready.
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
