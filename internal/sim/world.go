package sim

import (
	"math"
	"math/rand/v2"
	"time"
)

// A Visitor is one who waits or is inside. It is 64 bytes, a line of a cache: most of
// the time of a run is spent fetching them.
type Visitor struct {
	Arrival
	N int64 // in order of arrival, from 0

	fair   time.Duration // who had been let in when it last asked: their latest arrival
	told   time.Duration // when it was first told to wait
	expect expectation   // and what
	state  state
	asked  bool // it has asked since it waits
}

// expectation is an Expect in milliseconds; low > high: nothing was told.
type expectation struct{ expect, low, high int32 }

func (e *WaitEstimate) short() expectation {
	if !e.Known {
		return expectation{low: 1}
	}
	ms := func(d time.Duration) int32 { return int32(min(max(0, d.Milliseconds()), math.MaxInt32)) }
	return expectation{ms(e.Expect), ms(e.Low), ms(max(e.Low, e.High))}
}

// A page holds visitors: a slice of all would be copied whenever it grows.
type page [1 << pageBits]Visitor

const pageBits = 10

type state uint8

const (
	asking state = iota
	waiting
	inside
	outside // was inside, its pass is over and is being asked about
	gone
)

// Expect is the wait that a visitor is told, and its honest range.
type WaitEstimate struct {
	Known             bool
	Expect, Low, High time.Duration
}

// The world's own events.
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
	spread   time.Duration // between admissions while anyone waits; 0 none
	ends     bool          // the model ends sessions
	stopped  bool

	visitors []*page // by ID
	known    int     // IDs that were ever used
	unused   []ID
	arrived  int64

	inside, waiting, reserved int64
	recent                    ring          // admissions of the last window and a little more
	away                      ring          // ends of sessions a moment ago
	last                      time.Duration // admission
	latest                    time.Duration // arrival of all who were admitted
	entries                   map[ID]entry  // what those who wait were told, and when they would come in
	judge                     judge
}

// Now is the virtual time since the start.
func (w *World) Now() time.Duration { return w.now }

// Rand is the seeded random source of this run.
func (w *World) Rand() *rand.Rand { return w.rand }

// Scenario is what is played.
func (w *World) Scenario() *Scenario { return w.scenario }

// At asks for a call of the model's Event at t.
func (w *World) At(t time.Duration, kind, a int32, b int64) { w.queue.put(max(t, w.now), kind, a, b) }

// After asks for a call of the model's Event d from now.
func (w *World) After(d time.Duration, kind, a int32, b int64) { w.At(w.now+max(0, d), kind, a, b) }

// Visitor gives the visitor of an ID, until its Left has returned.
func (w *World) Visitor(v ID) *Visitor { return &w.visitors[v>>pageBits][v&(1<<pageBits-1)] }

// Messages notes that n messages were sent between parts of the system.
func (w *World) Messages(n int) { w.judge.messages += int64(n) }

// Stop ends the run now: a hunt has seen all it wants to see.
func (w *World) Stop() { w.stopped = true }

// Served is how many were let in, of how many who have come.
func (w *World) Served() (admitted, arrived int64) { return w.judge.admitted, w.arrived }

// Reserve notes that n slots more are held for visitors who were called.
func (w *World) Reserve(n int64) { w.reserved += n }

// Called notes that somebody was called a moment ago: the spread is of calls.
func (w *World) Called() { w.last = w.now }

// Decided notes how long the first decision about a visitor took.
func (w *World) Decided(_ ID, took time.Duration) { w.judge.latency.add(took) }

// Admit lets a visitor in.
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

// Leave ends the session of a visitor who is inside, for a strategy with Ends: the
// visitor's pass would not be honoured any more.
func (w *World) Leave(v ID) {
	switch w.Visitor(v).state {
	case outside:
		w.inside++
		w.left(v)
	case inside:
		w.left(v)
	}
}

// Lapse notes that the pass of a visitor who is inside is not honoured now, Renew that
// it is again.
func (w *World) Lapse(v ID) {
	if x := w.Visitor(v); x.state == inside {
		x.state = outside
		w.inside--
	}
}

// Renew notes that a pass that had lapsed is honoured again.
func (w *World) Renew(v ID) {
	if x := w.Visitor(v); x.state == outside {
		x.state = inside
		w.inside++
		active, fresh := w.Inside()
		w.judge.counts(active, fresh, &w.scenario.Limits)
	}
}

// Wait tells a visitor to wait, for the first time or again.
func (w *World) Wait(v ID, e WaitEstimate) {
	x := w.Visitor(v)
	if x.state != asking {
		return
	}
	x.state, x.told, x.expect = waiting, w.now, e.short()
	w.judge.told(w, x)
	w.waiting++
}

// An entry is between which instants a visitor was told that it would come in.
type entry struct{ first, last time.Duration }

// Told notes what a visitor who waits was told, each time that it asks.
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

// Asked notes that a visitor who waits has asked whether it is its turn, and it was
// not. Who is called and does not ask overtakes nobody and is not overtaken: with
// Asked the order is judged by who was let in when the visitor last asked.
func (w *World) Asked(v ID) {
	x := w.Visitor(v)
	x.asked, x.fair = true, w.latest
}

// passed is the latest arrival of all who were let in before a visitor's turn.
func (w *World) passed(x *Visitor) time.Duration {
	if x.asked {
		return x.fair
	}
	return w.latest
}

// Inside is the truth: how many are inside, and how many came in within the last
// window. It is for the ideal counter and for tests; a strategy must not look.
func (w *World) Inside() (active, fresh int64) {
	w.recent.drop(w.now - w.grain(w.scenario.Limits.Window))
	fresh = int64(w.recent.n)
	for i := 0; i < w.recent.n && w.recent.get(i) <= w.now-w.scenario.Limits.Window; i++ {
		fresh--
	}
	return w.inside, fresh
}

// Idle reports whether somebody waits who is not called while a slot is free and due.
func (w *World) Idle() bool { return w.waiting > w.reserved && min(w.free(), w.due()) > 0 }

// grain is a time and the half of a percent by which a slot may come back later:
// ends are kept in buckets (docs/design.md §3).
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

// free is how many slots have surely come back, are used by nobody and are held for
// nobody, in truth.
func (w *World) free() int64 {
	l := &w.scenario.Limits
	active, _ := w.Inside()
	w.away.drop(w.now - l.Session/200)
	return min(l.Active-active-int64(w.away.n), l.New-int64(w.recent.n)) - w.reserved
}

// due is how many admissions are due by the spread, in truth: with nobody waiting
// any number, else one each step since the last.
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

// drop forgets what is not later than t.
func (r *ring) drop(t time.Duration) {
	for r.n > 0 && r.at[r.head] <= t {
		r.head = (r.head + 1) & (len(r.at) - 1)
		r.n--
	}
}
