package sim

import (
	"math/bits"
	"time"
)

// An event is something that happens at a given time. Events of the same time happen in the order
// in which they were added.
type event struct {
	at   time.Duration
	seq  uint64
	b    int64
	kind int32
	a    int32
	next int32 // next in the list of its slot
}

// These are the sizes of the wheel: four rings of 256 slots. A slot of the first ring is 2^20 ns
// (about a millisecond), and each further ring is 256 times coarser: 143 years in all. Chosen.
const (
	tickBits  = 20
	ringBits  = 8
	ringSlots = 1 << ringBits
	rings     = 5
)

// A queue returns events in order of time. Adding and taking have constant cost for any number of
// events. It is a hashed hierarchical timing wheel (Varghese and Lauck, SOSP 1987), with the events
// of the current slot in a small heap.
type queue struct {
	slab  []event
	free  int32 // list of unused entries of slab
	seq   uint64
	n     int
	tick  int64 // current slot of the first ring: events up to its end are in heap
	heap  []int32
	slots [rings][ringSlots]int32
	used  [rings][ringSlots / 64]uint64
}

func newQueue() *queue {
	q := &queue{free: -1}
	for r := range q.slots {
		for i := range q.slots[r] {
			q.slots[r][i] = -1
		}
	}
	return q
}

// Events is the queue of events for models outside this package. Events of the same time come in the
// order in which they were put.
type Events struct{ q *queue }

// NewEvents returns an empty queue.
func NewEvents() Events { return Events{newQueue()} }

// Put adds an event.
func (e Events) Put(at time.Duration, kind, a int32, b int64) { e.q.put(at, kind, a, b) }

// Take removes the next event, and reports whether there was one.
func (e Events) Take() (at time.Duration, kind, a int32, b int64, ok bool) {
	if _, ok := e.q.peek(); !ok {
		return 0, 0, 0, 0, false
	}
	x := e.q.take()
	return x.at, x.kind, x.a, x.b, true
}

// put adds an event.
func (q *queue) put(at time.Duration, kind, a int32, b int64) {
	i := q.free
	if i >= 0 {
		q.free = q.slab[i].next
	} else {
		i = int32(len(q.slab))
		q.slab = append(q.slab, event{})
	}
	q.seq++
	q.slab[i] = event{at: at, seq: q.seq, b: b, kind: kind, a: a}
	q.n++
	q.place(i)
}

// place puts an event into the heap or the slot of its time.
func (q *queue) place(i int32) {
	tick := int64(q.slab[i].at) >> tickBits
	if tick <= q.tick {
		q.push(i)
		return
	}
	ring := (bits.Len64(uint64(tick^q.tick)) - 1) / ringBits
	slot := tick >> (ring * ringBits) & (ringSlots - 1)
	q.slab[i].next = q.slots[ring][slot]
	q.slots[ring][slot] = i
	q.used[ring][slot>>6] |= 1 << (slot & 63)
}

// peek returns the time of the next event.
func (q *queue) peek() (time.Duration, bool) {
	for len(q.heap) == 0 {
		if q.n == 0 {
			return 0, false
		}
		q.advance()
	}
	return q.slab[q.heap[0]].at, true
}

// take removes and returns the next event; peek must have found one.
func (q *queue) take() event {
	i := q.heap[0]
	last := len(q.heap) - 1
	q.heap[0] = q.heap[last]
	q.heap = q.heap[:last]
	q.down()
	e := q.slab[i]
	q.slab[i].next, q.free = q.free, i
	q.n--
	return e
}

// advance moves the wheel to the next slot that is not empty.
func (q *queue) advance() {
	for ring := range rings {
		shift := ring * ringBits
		now := q.tick >> shift & (ringSlots - 1)
		slot, ok := q.following(ring, now)
		if !ok {
			continue
		}
		q.tick = (q.tick>>(shift+ringBits)<<ringBits | slot) << shift
		q.used[ring][slot>>6] &^= 1 << (slot & 63)
		i := q.slots[ring][slot]
		q.slots[ring][slot] = -1
		for i >= 0 {
			next := q.slab[i].next
			q.place(i)
			i = next
		}
		return
	}
}

// following returns the next slot of a ring after now that is not empty.
func (q *queue) following(ring int, now int64) (int64, bool) {
	for at := now + 1; at < ringSlots; at = (at | 63) + 1 {
		if word := q.used[ring][at>>6] >> (at & 63); word != 0 {
			return at + int64(bits.TrailingZeros64(word)), true
		}
	}
	return 0, false
}

func (q *queue) before(i, k int32) bool {
	x, y := &q.slab[i], &q.slab[k]
	return x.at < y.at || x.at == y.at && x.seq < y.seq
}

func (q *queue) push(i int32) {
	q.heap = append(q.heap, i)
	for k := len(q.heap) - 1; k > 0; {
		up := (k - 1) / 2
		if !q.before(q.heap[k], q.heap[up]) {
			return
		}
		q.heap[k], q.heap[up] = q.heap[up], q.heap[k]
		k = up
	}
}

func (q *queue) down() {
	for k, n := 0, len(q.heap); ; {
		low := k
		for c := 2*k + 1; c <= 2*k+2 && c < n; c++ {
			if q.before(q.heap[c], q.heap[low]) {
				low = c
			}
		}
		if low == k {
			return
		}
		q.heap[k], q.heap[low] = q.heap[low], q.heap[k]
		k = low
	}
}
