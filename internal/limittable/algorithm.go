package limittable

import (
	"math/bits"
	"time"

	"github.com/headgate/headgate/limit"
)

// A law is one algorithm with its numbers, applied to the state of one key. now never goes back.
type law interface {
	// spare brings e forward to now and returns how much may be taken then. A negative amount is
	// owed.
	spare(e *entry, now Time) int64
	// book takes n at now, if need be more than is spare.
	book(e *entry, now Time, n int64)
	// back gives back n of what a hold has taken, or of the newest use if of is nil. It is called
	// after spare, and does not give back again what has already come back with time.
	back(e *entry, of *hold, n int64)
	// when returns the time from which n is allowed if there are no other calls, or Never. It is
	// called after spare.
	when(e *entry, now Time, n int64) Time
	// idle returns the time from which e is as good as new.
	idle(e *entry) Time
}

// owedMost is the maximum that a key may owe. Chosen: sums of it do not overflow.
const owedMost = 1 << 60

// An entry is what a key has used. The meaning of a, b and c depends on the law. The fields that a
// decision reads are next to each other.
type entry struct {
	hash    uint64 // 0: none
	a, b, c int64
	more    *more
	key     string
}

// A more holds what only few keys need.
type more struct {
	cells []int64 // SlidingWindow of several parts: ring by sub-window number
	log   []used  // SlidingLog: from head on, oldest first
	head  int
	holds []hold // reservations, and calls in progress, by their ends
	loans []loan // loans to borrowers
	lent  int64  // sum of what the borrowers hold
	turns []turn // of the waiting borrowers
	next  Time   // time of the next unit that is spread among them, one per step
	step  Time
}

type used struct {
	at Time
	n  int64
}

type hold struct {
	id      uint64
	at, end Time
	n       int64
	low     int64 // buckets: lowest level since
	call    bool  // of Concurrency
}

func (e *entry) extra() *more {
	if e.more == nil {
		e.more = &more{}
	}
	return e.more
}

// held returns its holds.
func (e *entry) held() []hold {
	if e.more == nil {
		return nil
	}
	return e.more.holds
}

// lawOf returns the law of a rule that has been checked.
func lawOf(r limit.Rule) law {
	r = r.WithDefaults()
	w := Time(r.Window)
	switch r.Algorithm {
	case limit.SlidingLog:
		l := &logLaw{amount: r.Amount, window: w, grid: 1}
		if r.Amount > logMost {
			l.grid = (w + logMost - 1) / logMost
		}
		return l
	case limit.SlidingWindow:
		parts := Time(r.Parts)
		return &slidingLaw{amount: r.Amount, parts: int64(parts), sub: (w + parts - 1) / parts}
	case limit.FixedWindow:
		return &fixedLaw{amount: r.Amount, window: w, align: r.Align, zone: r.Zone}
	case limit.TokenBucket, limit.LeakyBucket:
		return &bucketLaw{amount: r.Amount, burst: r.Burst, window: w}
	}
	return &concurrencyLaw{amount: r.Amount}
}

// A bucketLaw is a level that rises by what is taken and falls by amount in each window. The level
// is the number of missing tokens, or the content of the leaky bucket. a is the time to which it
// was brought forward, b is the level rounded up, and b − c/window is the exact level.
type bucketLaw struct {
	amount, burst int64
	window        Time
}

func (l *bucketLaw) spare(e *entry, now Time) int64 {
	past := int64(now) - e.a
	e.a = int64(now)
	if e.b > 0 && past > 0 {
		hi, lo := bits.Mul64(uint64(past), uint64(l.amount))
		lo, carry := bits.Add64(lo, uint64(e.c), 0)
		if hi += carry; hi >= uint64(l.window) {
			e.b, e.c = 0, 0
		} else if fell, rest := bits.Div64(hi, lo, uint64(l.window)); fell >= uint64(e.b) {
			e.b, e.c = 0, 0
		} else {
			e.b, e.c = e.b-int64(fell), int64(rest)
		}
	}
	for i := range e.held() {
		h := &e.more.holds[i]
		h.low = min(h.low, l.floor(e))
	}
	return l.burst - e.b
}

// floor returns the level rounded down.
func (l *bucketLaw) floor(e *entry) int64 {
	if e.c > 0 {
		return e.b - 1
	}
	return e.b
}

func (l *bucketLaw) book(e *entry, _ Time, n int64) { e.b = min(e.b+n, owedMost) }

// back, for a reservation, gives back only what has not yet come back with time: at most the lowest
// level since. Without the reservation, the level would have stayed at 0 where it fell below the
// reserved amount.
func (l *bucketLaw) back(e *entry, of *hold, n int64) {
	if of != nil {
		n = min(n, of.low)
		at, left := of.at, of.low-n
		for i := range e.more.holds {
			if h := &e.more.holds[i]; h.at >= at {
				h.low -= min(n, h.low)
			} else {
				h.low = min(h.low, left)
			}
		}
	}
	if e.b -= min(n, e.b); e.b == 0 {
		e.c = 0
	}
}

func (l *bucketLaw) when(e *entry, now Time, n int64) Time {
	switch {
	case n > l.burst:
		return Never
	case e.b+n <= l.burst:
		return now
	}
	return l.fallen(e, now, e.b+n-l.burst)
}

// fallen returns the time when the level will have fallen by n.
func (l *bucketLaw) fallen(e *entry, now Time, n int64) Time {
	hi, lo := bits.Mul64(uint64(n), uint64(l.window))
	lo, borrow := bits.Sub64(lo, uint64(e.c), 0)
	hi -= borrow
	lo, carry := bits.Add64(lo, uint64(max(1, l.amount)-1), 0)
	if hi += carry; hi >= uint64(l.amount) {
		return Never
	}
	past, _ := bits.Div64(hi, lo, uint64(l.amount))
	if past >= uint64(Never-now) {
		return Never
	}
	return now + Time(past)
}

func (l *bucketLaw) idle(e *entry) Time {
	if e.b == 0 {
		return 0
	}
	return l.fallen(e, Time(e.a), e.b)
}

// A fixedLaw counts in consecutive windows. a is the end of the window, b its count, c its
// beginning.
type fixedLaw struct {
	amount int64
	window Time
	align  limit.Align
	zone   *time.Location
}

func (l *fixedLaw) spare(e *entry, now Time) int64 {
	if int64(now) >= e.a {
		e.b, e.c = 0, int64(now)
		if l.align != limit.FirstHit {
			from, to := l.around(now)
			e.a, e.c = int64(to), int64(from)
		}
	}
	return l.amount - e.b
}

// around returns the window that contains a moment.
func (l *fixedLaw) around(now Time) (from, to Time) {
	if l.align == limit.Epoch {
		from = now - now%l.window
		return from, from + l.window
	}
	t := time.Unix(0, int64(now)).In(l.zone)
	y, m, d := t.Date()
	var a, b time.Time
	switch l.align {
	case limit.Minute: // zones are offset by whole minutes, some not by whole hours
		a = t.Add(-time.Duration(t.Second())*time.Second - time.Duration(t.Nanosecond()))
		a, b = within(t, a, a.Add(time.Minute))
	case limit.Hour:
		a = t.Add(-time.Duration(t.Minute())*time.Minute - time.Duration(t.Second())*time.Second -
			time.Duration(t.Nanosecond()))
		a, b = within(t, a, a.Add(time.Hour))
	case limit.Day:
		a, b = l.date(y, m, d), l.date(y, m, d+1)
	case limit.Week:
		d -= (int(t.Weekday()) + 6) % 7
		a, b = l.date(y, m, d), l.date(y, m, d+7)
	case limit.Month:
		a, b = l.date(y, m, 1), l.date(y, m+1, 1)
	default:
		a, b = l.date(y, 1, 1), l.date(y+1, 1, 1)
	}
	return Time(a.UnixNano()), Time(b.UnixNano())
}

// within cuts a window where the zone's clocks change.
func within(t, a, b time.Time) (from, to time.Time) {
	begin, end := t.ZoneBounds()
	if !begin.IsZero() && a.Before(begin) {
		a = begin
	}
	if !end.IsZero() && b.After(end) {
		b = end
	}
	return a, b
}

// date returns the beginning of a day. Where clocks change at midnight, midnight may not exist. The
// day then begins with the change, and time.Date returns an hour of the day before.
func (l *fixedLaw) date(y int, m time.Month, d int) time.Time {
	t := time.Date(y, m, d, 0, 0, 0, 0, l.zone)
	if t.Hour() >= 12 {
		_, t = t.ZoneBounds()
	}
	return t
}

func (l *fixedLaw) book(e *entry, now Time, n int64) {
	if n == 0 {
		return
	}
	if l.align == limit.FirstHit && int64(now) >= e.a {
		e.a, e.c = int64(now+l.window), int64(now)
	}
	e.b = min(e.b+n, owedMost)
}

func (l *fixedLaw) back(e *entry, of *hold, n int64) {
	if of == nil || int64(of.at) >= e.c {
		e.b -= min(n, e.b)
	}
}

func (l *fixedLaw) when(e *entry, now Time, n int64) Time {
	switch {
	case n > l.amount:
		return Never
	case e.b+n <= l.amount:
		return now
	}
	return Time(e.a)
}

func (l *fixedLaw) idle(e *entry) Time {
	if e.b == 0 {
		return 0
	}
	return Time(e.a)
}

// A concurrencyLaw counts the calls in progress: b is the sum of the holds.
type concurrencyLaw struct{ amount int64 }

func (l *concurrencyLaw) spare(e *entry, _ Time) int64 { return l.amount - e.b }

func (l *concurrencyLaw) book(e *entry, _ Time, n int64) { e.b += n }

func (l *concurrencyLaw) back(e *entry, _ *hold, n int64) { e.b -= min(n, e.b) }

func (l *concurrencyLaw) when(e *entry, now Time, n int64) Time {
	if n > l.amount {
		return Never
	}
	over := e.b + n - l.amount
	for _, h := range e.held() {
		if over <= 0 {
			break
		}
		over -= h.n
		now = max(now, h.end)
	}
	return now
}

func (l *concurrencyLaw) idle(e *entry) Time {
	if held := e.held(); len(held) > 0 {
		return held[len(held)-1].end
	}
	return 0
}
