// Package signals measures what the origin of a room answers to the visitors inside: how long it
// takes, what fails, and how many requests are with it. The limit that finds itself is based on it.
//
// # The promise
//
// Each class of requests is measured by itself, because a report that always takes two seconds is no
// overload. A class is a method and the shape of a path: /product/7 and /product/8 are the same. At
// most 63 classes have measurements of their own; the rest share one. A class gets its own when more
// client networks use it than one of those that have it. Requests do not count for that, so a client
// that invents paths replaces nothing. Nor do more than some requests of one network count in what a
// class says. A report also says how many of them the groups of networks have made, so that the excess
// of one network over all others can be left out, over all nodes.
//
// # Concurrency and cost
//
// A Meter may be used by many goroutines at once. A request costs some atomic additions, without a
// lock, and an allocation only when its class is seen for the first time in an interval.
//
// # Limits of the package
//
// It sends nothing and decides nothing. It measures until the first byte of an answer: how fast a
// client reads the rest is not the origin's matter.
//
// # The files
//
//	meter     what requests call; the reading of an interval
//	class     classes of requests
//	collector reports of several nodes, as the host of a room collects them
//	report    one report: merged and encoded
//	sketch    how much of a report one network can have made
package signals

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// An Outcome is how the origin treated a request.
type Outcome uint8

const (
	Answered    Outcome = iota
	Failed              // 5xx
	Refused             // the origin says that it is full: 429 or 503 with Retry-After
	Lost                // no answer in time, or the connection broke
	Unreachable         // no connection
)

// A Meter measures the requests to one origin. Use NewMeter.
type Meter struct {
	base time.Time

	// flow has the requests under way in its lower bits, and above them the sum of the microseconds
	// at which requests ended, minus those at which they began. So one addition changes both, and the
	// time-weighted mean of the requests under way is exact. The sum wraps around; its differences
	// over one interval do not.
	flow atomic.Int64

	table atomic.Pointer[table]
	found [candidates]atomic.Pointer[candidate]

	networks amounts
	tally    tally
	all      bool // requests of a network count, however many there are

	mu sync.Mutex // guards the fields below
	at int64      // of the last reading, in microseconds
	in int64      // the integral of the requests under way then
}

// flowBits is how many bits of flow count the requests under way: a million, far more than there are
// ports to connect to an origin.
const flowBits = 20

// NewMeter returns a Meter that has measured nothing.
func NewMeter() *Meter {
	m := &Meter{base: time.Now()}
	m.table.Store(&table{rest: &class{name: Rest}})
	return m
}

// NewCallMeter returns a Meter of the calls that hold a slot of a limit. An API has few clients, and each
// makes many calls: all of them count.
func NewCallMeter() *Meter {
	m := NewMeter()
	m.all = true
	return m
}

// Enter notes that a call has taken a slot, and Leave that it has returned it. For a meter of calls these,
// and not the flights, are under way.
func (m *Meter) Enter() { m.flow.Add(1 - m.now()<<flowBits) }

// Leave notes that a call has returned its slot.
func (m *Meter) Leave() { m.flow.Add(m.now()<<flowBits - 1) }

type callsKey struct{}

// WithCalls returns a context for a request that holds a slot of limits, which these meters belong to.
func WithCalls(ctx context.Context, meters []*Meter) context.Context {
	return context.WithValue(ctx, callsKey{}, meters)
}

// CallsOf returns the meters of WithCalls.
func CallsOf(ctx context.Context) []*Meter {
	meters, _ := ctx.Value(callsKey{}).([]*Meter)
	return meters
}

func (m *Meter) now() int64 { return time.Since(m.base).Microseconds() }

// A Flight is one request on its way to the origin. The zero Flight is not measured.
type Flight struct {
	m       *Meter   // of the visitors' requests; nil: it is none
	calls   []*Meter // of the limits of which it holds a slot
	clock   *Meter   // one of them. It never changes: the transport's goroutine may still send the body
	network uint64
	began   int64
	sent    atomic.Int64 // when a part of the body was last read
	over    bool
}

// Begin starts to measure a request from a client network, for a visitor, for limits of calls, or both. It
// does nothing without a meter.
func (f *Flight) Begin(m *Meter, calls []*Meter, network uint64) {
	if f.clock = m; m == nil {
		if len(calls) == 0 {
			return
		}
		f.clock = calls[0]
	}
	f.m, f.calls, f.network, f.began = m, calls, network, f.clock.now()
	if m != nil {
		m.flow.Add(1 - f.began<<flowBits)
	}
}

// Sent notes that a part of the client's body was read. A slow client is no slow origin: the time
// runs from the last part on.
func (f *Flight) Sent() {
	if f.clock != nil {
		f.sent.Store(f.clock.now())
	}
}

// End notes what has become of the request. Further calls do nothing.
func (f *Flight) End(r *http.Request, o Outcome) {
	if took, ok := f.land(); ok {
		f.note(r, o, took)
	}
}

func (f *Flight) note(r *http.Request, o Outcome, took time.Duration) {
	if f.m != nil {
		f.m.Note(r.Method, r.URL.Path, f.network, o, took)
	}
	for _, m := range f.calls {
		m.Note(r.Method, r.URL.Path, f.network, o, took)
	}
}

// Note counts a request that has ended: now, or in a log.
func (m *Meter) Note(method, path string, network uint64, o Outcome, took time.Duration) {
	c, whole := m.class(method, path, network), m.all || m.networks.take(network)
	c.note(o, took, whole)
	if whole && !m.all {
		m.tally.add(network, o != Answered, o != Unreachable && c.isSlow(took))
	}
}

// leftLate is after how long a client that does not wait any more says something about the origin.
// Chosen: nobody leaves a page earlier because it is slow.
const leftLate = time.Second

// Gone notes that the client did not wait for the answer. If it waited for long, the origin would
// have taken at least that long.
func (f *Flight) Gone(r *http.Request) {
	if took, ok := f.land(); ok && took >= leftLate {
		f.note(r, Answered, took)
	}
}

// Cancel ends a request that says nothing about the origin.
func (f *Flight) Cancel() { f.land() }

// land takes the request out of those under way and returns how long it took, if it was under way.
func (f *Flight) land() (took time.Duration, ok bool) {
	if f.clock == nil || f.over {
		return 0, false
	}
	f.over = true
	now := f.clock.now()
	if f.m != nil {
		f.m.flow.Add(now<<flowBits - 1)
	}
	return time.Duration(now-max(f.began, f.sent.Load())) * time.Microsecond, true
}

// Add adds what others have measured of the origin in a time. It counts as the requests of visitors do.
func (x *Report) Add(o *Report) { x.add(o) }

// Read returns what was measured since the last Read, and begins the next interval.
func (m *Meter) Read() *Report {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, flow := m.now(), m.flow.Load()
	in := flow>>flowBits + flow&(1<<flowBits-1)*now
	x := &Report{Length: time.Duration(now-m.at) * time.Microsecond}
	if now > m.at { // shifted, because the sum wraps around
		x.InFlight = float64((in-m.in)<<flowBits>>flowBits) / float64(now-m.at)
	}
	m.at, m.in = now, in
	t := m.table.Load()
	for _, c := range t.all() {
		if r, some := c.read(); some {
			x.Routes = append(x.Routes, r)
		}
	}
	x.by = m.tally.read()
	m.networks.reset()
	m.promote(t)
	return x
}
