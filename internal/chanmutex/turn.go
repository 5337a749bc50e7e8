// Package chanmutex is a lock for work that waits for others: for a store, or another node.
//
// # The promise
//
// A Turn is a mutex. Goroutines that wait for one are idle to testing/synctest, which does not
// hold of sync.Mutex: in a bubble, time would stand still while one waits for a store and
// another for the lock.
//
// # What it costs
//
// A turn costs two locks of a sync.Mutex. It is not fair.
package chanmutex

import "sync"

// A Turn is held by one goroutine at a time. The zero Turn is free.
type Mutex struct {
	mu    sync.Mutex
	free  sync.Cond
	taken bool
}

// Lock waits until the turn is free, and takes it.
func (t *Mutex) Lock() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free.L = &t.mu
	for t.taken {
		t.free.Wait()
	}
	t.taken = true
}

// Unlock ends the turn.
func (t *Mutex) Unlock() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.taken {
		panic("turn: unlock of a turn that is free")
	}
	t.taken = false
	t.free.L = &t.mu
	t.free.Signal()
}
