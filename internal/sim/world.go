package sim

import (
	"math"
	"math/rand/v2"
	"time"
)

// A Visitor is a visitor that waits or is inside. It has 64 bytes, the size of a cache line,
// because a run spends most of its time on fetching visitors.
type Visitor struct {
	Arrival
	N int64 // in order of arrival, from 0

	fair   time.Duration // latest arrival of those admitted before its last poll
	told   time.Duration // when it first had to wait
	expect expectation   // the estimate it received
	state  state
	asked  bool // has polled since it waits
}

// An expectation is a WaitEstimate in milliseconds; low > high means no estimate.
type expectation struct{ expect, low, high int32 }

func (e *WaitEstimate) short() expectation {
	if !e.Known {
		return expectation{low: 1}
	}
	ms := func(d time.Duration) int32 { return int32(min(max(0, d.Milliseconds()), math.MaxInt32)) }
	return expectation{ms(e.Expect), ms(e.Low), ms(max(e.Low, e.High))}
}

// A page holds visitors. A single slice would be copied whenever it grows.
type page [1 << pageBits]Visitor

const pageBits = 10

type state uint8

const (
	asking state = iota
	waiting
	inside
	outside // was inside; its pass has lapsed, and a new answer is pending
	gone
)

// A WaitEstimate is the expected wait that a visitor receives, and its range.
type WaitEstimate struct {
	Known             bool
	Expect, Low, High time.Duration
}

// These are the world's own events.
const (
	kindLeft int32 = math.MinInt32 + iota
	kindSample
)

// A World is virtual time, the visitors, and the judge of one run.
type World struct {
	scenario *Scenario
	rand     *rand.Rand
	queue    *queue
	now      time.Duration
	model    Model
	spread   time.Duration // between admissions while anyone waits; 0: none
	ends     bool          // the model ends sessions
	stopped  bool

	visitors []*page // by ID
	known    int     // number of IDs ever used
	unused   []ID
	arrived  int64

	inside, waiting, reserved int64
	recent                    ring          // admissions of slightly more than the last window
	away                      ring          // recent ends of sessions
	last                      time.Duration // last admission
	latest                    time.Duration // latest arrival of all admitted visitors
	entries                   map[ID]entry  // estimates of entry of waiting visitors
	judge                     judge
}

// Now returns the virtual time since the start.
func (w *World) Now() time.Duration { return w.now }

// Rand returns the seeded random source of this run.
func (w *World) Rand() *rand.Rand { return w.rand }

// At schedules a call of the model's Event at t.
func (w *World) At(t time.Duration, kind, a int32, b int64) { w.queue.put(max(t, w.now), kind, a, b) }

// After schedules a call of the model's Event d from now.
func (w *World) After(d time.Duration, kind, a int32, b int64) { w.At(w.now+max(0, d), kind, a, b) }

// Visitor returns the visitor with this ID. It is valid until the visitor's Left has returned.
func (w *World) Visitor(v ID) *Visitor { return &w.visitors[v>>pageBits][v&(1<<pageBits-1)] }

// Messages records that n messages were sent between parts of the system.
func (w *World) Messages(n int) { w.judge.messages += int64(n) }

// Stop ends the run now. A hunt uses it when it has seen enough.
func (w *World) Stop() { w.stopped = true }

// Served returns how many visitors were admitted, and how many have arrived.
func (w *World) Served() (admitted, arrived int64) { return w.judge.admitted, w.arrived }

// Reserve records that n more slots are held for called visitors.
func (w *World) Reserve(n int64) { w.reserved += n }

// Called records that a visitor was called now. The spread applies to calls.
func (w *World) Called() { w.last = w.now }

// Decided records how long the first decision about a visitor took.
func (w *World) Decided(_ ID, took time.Duration) { w.judge.latency.add(took) }

// Admit admits a visitor.
func (w *World) Admit(v ID) {
	x := w.Visitor(v)
	if x.state == inside || x.state == gone {
		panic("sim: admitted twice")
	}
	j := &w.judge
	if x.state == waiting {
		w.waiting--
		j.waits.add(w.now - x.Arrival.At)
		j.expected(x, w.now)
		j.steady(w.entries[v], w.now-x.told)
		delete(w.entries, v)
		j.order(x, w.passed(x))
	}
	x.state = inside
	w.inside++
	w.last, w.latest = w.now, max(w.latest, x.Arrival.At)
	w.recent.push(w.now)
	j.admitted++
	if w.now <= j.mark {
		j.by++
	}
	active, fresh := w.Inside()
	j.counts(active, fresh, &w.scenario.Limits)
	if !w.ends {
		w.queue.put(w.now+x.Dwell+w.scenario.Limits.Session, kindLeft, v, 0)
	}
}

// Leave ends the session of a visitor inside, for a strategy with Ends: the visitor's pass is no
// longer valid.
func (w *World) Leave(v ID) {
	switch w.Visitor(v).state {
	case outside:
		w.inside++
		w.left(v)
	case inside:
		w.left(v)
	}
}

// Lapse records that the pass of a visitor inside is not accepted now. Renew records that it is
// accepted again.
func (w *World) Lapse(v ID) {
	if x := w.Visitor(v); x.state == inside {
		x.state = outside
		w.inside--
	}
}

// Renew records that a lapsed pass is accepted again.
func (w *World) Renew(v ID) {
	if x := w.Visitor(v); x.state == outside {
		x.state = inside
		w.inside++
		active, fresh := w.Inside()
		w.judge.counts(active, fresh, &w.scenario.Limits)
	}
}

// Wait makes a visitor wait, for the first time or again.
func (w *World) Wait(v ID, e WaitEstimate) {
	x := w.Visitor(v)
	if x.state != asking {
		return
	}
	x.state, x.told, x.expect = waiting, w.now, e.short()
	w.judge.told(w, x)
	w.waiting++
}

// An entry holds the first and the last estimate of a visitor's time of entry.
type entry struct{ first, last time.Duration }

// Told records the estimate that a waiting visitor receives, at each poll.
func (w *World) Told(v ID, e WaitEstimate) {
	if !e.Known {
		return
	}
	at := w.now + e.Expect
	x, ok := w.entries[v]
	if !ok {
		x = entry{at, at}
	}
	w.entries[v] = entry{min(x.first, at), max(x.last, at)}
}

// Asked records that a waiting visitor polled and was not called. A called visitor that does not
// poll overtakes nobody and is not overtaken. With Asked, the order is judged by who was admitted
// before the visitor's last poll.
func (w *World) Asked(v ID) {
	x := w.Visitor(v)
	x.asked, x.fair = true, w.latest
}

// passed returns the latest arrival of all visitors admitted before this one.
func (w *World) passed(x *Visitor) time.Duration {
	if x.asked {
		return x.fair
	}
	return w.latest
}

// Inside returns the true number of visitors inside, and of those admitted within the last window.
// It is for the ideal counter and for tests; other strategies must not use it.
func (w *World) Inside() (active, fresh int64) {
	w.recent.drop(w.now - w.grain(w.scenario.Limits.Window))
	fresh = int64(w.recent.n)
	for i := 0; i < w.recent.n && w.recent.get(i) <= w.now-w.scenario.Limits.Window; i++ {
		fresh--
	}
	return w.inside, fresh
}

// Idle reports whether a visitor waits without a call while a slot is free and due.
func (w *World) Idle() bool { return w.waiting > w.reserved && min(w.free(), w.due()) > 0 }

// grain returns a duration plus the half percent by which a slot may come back later, because the
// ends of sessions are stored in buckets (docs/design.md §3).
func (w *World) grain(d time.Duration) time.Duration { return d + d/200 }

func (w *World) arrive(a Arrival) ID {
	var v ID
	if n := len(w.unused); n > 0 {
		v = w.unused[n-1]
		w.unused = w.unused[:n-1]
	} else {
		v = ID(w.known)
		if w.known++; int(v)>>pageBits == len(w.visitors) {
			w.visitors = append(w.visitors, new(page))
		}
	}
	*w.Visitor(v) = Visitor{Arrival: a, N: w.arrived}
	w.arrived++
	return v
}

func (w *World) left(v ID) {
	w.inside--
	w.away.push(w.now)
	w.model.Left(v)
	w.Visitor(v).state = gone
	w.unused = append(w.unused, v)
}

// free returns the true number of slots that have certainly come back and are neither used nor
// held.
func (w *World) free() int64 {
	l := &w.scenario.Limits
	active, _ := w.Inside()
	w.away.drop(w.now - l.Session/200)
	return min(l.Active-active-int64(w.away.n), l.New-int64(w.recent.n)) - w.reserved
}

// due returns the true number of admissions due by the spread: unlimited with nobody waiting, else
// one per step since the last one.
func (w *World) due() int64 {
	if w.spread == 0 || w.waiting == 0 {
		return math.MaxInt64
	}
	return int64((w.now - w.last) / w.spread)
}

// A ring is a queue of times.
type ring struct {
	at      []time.Duration // its length is a power of two
	head, n int
}

func (r *ring) push(t time.Duration) {
	if r.n == len(r.at) {
		at := make([]time.Duration, max(64, 2*len(r.at)))
		for i := range r.n {
			at[i] = r.get(i)
		}
		r.at, r.head = at, 0
	}
	r.at[(r.head+r.n)&(len(r.at)-1)] = t
	r.n++
}

func (r *ring) get(i int) time.Duration { return r.at[(r.head+i)&(len(r.at)-1)] }

// drop removes all times that are not later than t.
func (r *ring) drop(t time.Duration) {
	for r.n > 0 && r.at[r.head] <= t {
		r.head = (r.head + 1) & (len(r.at) - 1)
		r.n--
	}
}
