// Package chanmutex is a lock for work that waits for others: for a store, or another node.
//
// # The promise
//
// A Mutex excludes like sync.Mutex. The difference is for testing/synctest: goroutines that wait
// for a Mutex count as idle, those that wait for a sync.Mutex do not. With a sync.Mutex, time in a
// bubble would stand still while one goroutine waits for a store and another for the lock.
//
// A Mutex is fair: those that wait get it in the order in which they came. The holders are loops
// that lock again at once, for as long as their store does not answer; without an order, a
// goroutine that waits among them might wait for ever.
//
// # Cost
//
// A Lock with its Unlock costs two locks of a sync.Mutex, and a channel if it has to wait.
package chanmutex

import "sync"

// A Mutex is held by one goroutine at a time. The zero Mutex is unlocked.
type Mutex struct {
	mu      sync.Mutex
	taken   bool
	waiting []chan struct{} // closed to hand the mutex over
}

// Lock waits until the mutex is unlocked, and locks it.
func (t *Mutex) Lock() {
	t.mu.Lock()
	if !t.taken {
		t.taken = true
		t.mu.Unlock()
		return
	}
	turn := make(chan struct{})
	t.waiting = append(t.waiting, turn)
	t.mu.Unlock()
	<-turn
}

// Unlock unlocks the mutex. It panics if the mutex is not locked.
func (t *Mutex) Unlock() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.taken {
		panic("chanmutex: unlock of an unlocked mutex")
	}
	if len(t.waiting) == 0 {
		t.taken = false
		return
	}
	close(t.waiting[0])
	t.waiting = t.waiting[1:]
}
