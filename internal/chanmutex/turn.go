// Package chanmutex is a lock for work that waits for others: for a store, or another node.
//
// # The promise
//
// A Mutex excludes like sync.Mutex. The difference is for testing/synctest: goroutines that wait
// for a Mutex count as idle, those that wait for a sync.Mutex do not. With a sync.Mutex, time in a
// bubble would stand still while one goroutine waits for a store and another for the lock.
//
// # Cost
//
// A Lock with its Unlock costs two locks of a sync.Mutex. A Mutex is not fair.
package chanmutex

import "sync"

// A Mutex is held by one goroutine at a time. The zero Mutex is unlocked.
type Mutex struct {
	mu    sync.Mutex
	free  sync.Cond
	taken bool
}

// Lock waits until the mutex is unlocked, and locks it.
func (t *Mutex) Lock() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free.L = &t.mu
	for t.taken {
		t.free.Wait()
	}
	t.taken = true
}

// Unlock unlocks the mutex. It panics if the mutex is not locked.
func (t *Mutex) Unlock() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.taken {
		panic("chanmutex: unlock of an unlocked mutex")
	}
	t.taken = false
	t.free.L = &t.mu
	t.free.Signal()
}
