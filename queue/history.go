package queue

import (
	"math"
	"math/bits"
	"time"
)

// Kinds of events.
const (
	eventDelivered = 'd'
	eventRetry     = 'r' // failed, and is tried again
	eventBusy      = 'b' // the target was overloaded: is tried again, and no attempt is used up
	eventDead      = 'x'
	eventCanceled  = 'c'
	eventRedriven  = 'a'
	eventChanged   = 'm' // its time or priority
)

// An event is something that has happened to a job: a try, a cancellation, a change.
type event struct {
	ref     ref
	at      int64  // milliseconds
	why     string // of a failure
	back    uint32 // the event before in its chain is so many events before this one; 0: there is none
	attempt int32
	code    uint16 // the HTTP status of the answer, 0: none
	kind    byte
}

// A history holds the newest events of a queue, bounded in number and age. An event takes 48 bytes, its
// chain 8 to 16 bytes more, and different reasons their length.
//
// The events of a job are in one chain, with those of few other jobs. A map of jobs took twice the time for
// each delivery: it must be told of each event that is forgotten.
type history struct {
	most   int
	age    time.Duration
	events []event // those before head are forgotten
	head   int
	first  uint64 // number of events[0]
	// chains has 1 more than the number of the newest event of each, 0: none; their number is a power of 2.
	chains []uint64
}

func newHistory(most int, age time.Duration) history { return history{most: most, age: age} }

// chain returns the chain of a job: the upper bits of a product are well mixed (Knuth).
func (y *history) chain(r ref) *uint64 {
	return &y.chains[uint64(r)*0x9E3779B97F4A7C15>>(64-bits.TrailingZeros(uint(len(y.chains))))]
}

// of returns the events of a job, the newest first.
func (y *history) of(r ref, now int64) func(yield func(*event) bool) {
	return func(yield func(*event) bool) {
		if y.len() == 0 {
			return
		}
		for next := *y.chain(r); next > y.first+uint64(y.head); {
			e := &y.events[next-1-y.first]
			if e.ref == r && (now-e.at > y.age.Milliseconds() || !yield(e)) || e.back == 0 {
				return
			}
			next -= uint64(e.back)
		}
	}
}

// add appends an event, and forgets the oldest one if there are too many.
func (y *history) add(e event) {
	if y.most <= 0 {
		return
	}
	y.events = append(y.events, e)
	if y.len() > len(y.chains) {
		y.chains = make([]uint64, max(1024, 2*len(y.chains)))
		for at := y.head; at < len(y.events)-1; at++ {
			y.link(at)
		}
	}
	y.link(len(y.events) - 1)
	for len(y.events)-y.head > y.most {
		y.drop()
	}
}

// link puts an event into its chain.
func (y *history) link(at int) {
	e, number := &y.events[at], y.first+uint64(at)
	newest := y.chain(e.ref)
	e.back = 0
	if before := *newest; before > 0 && number+1-before <= math.MaxUint32 {
		e.back = uint32(number + 1 - before)
	}
	*newest = number + 1
}

// has reports whether an event is known. It is for events that are read twice: a host may stop after it
// has restated them, and before it has deleted the earlier notes.
func (y *history) has(e *event) bool {
	looked := 0
	for k := range y.of(e.ref, e.at) {
		if k.at == e.at && k.kind == e.kind && k.attempt == e.attempt {
			return true
		}
		// A job may have been changed very often. Its events are in order, so an event before many others
		// is known: as the newest one it would hide how the job has ended.
		if looked++; looked > triesShown {
			return e.at < k.at && e.kind != eventDelivered && e.kind != eventCanceled
		}
	}
	return false
}

// drop forgets the oldest event.
func (y *history) drop() {
	y.events[y.head].why = ""
	if y.head++; y.head >= 1024 && y.head > len(y.events)/2 { // chosen: rare enough to cost nothing
		y.events = append(y.events[:0], y.events[y.head:]...)
		y.first += uint64(y.head)
		y.head = 0
	}
}

// prune forgets the events that are too old.
func (y *history) prune(now int64) {
	for y.head < len(y.events) && now-y.events[y.head].at > y.age.Milliseconds() {
		y.drop()
	}
}

// configure sets the bounds.
func (y *history) configure(most int, age time.Duration) {
	y.most, y.age = most, age
	for len(y.events)-y.head > max(0, most) {
		y.drop()
	}
}

// len returns the number of events.
func (y *history) len() int { return len(y.events) - y.head }
