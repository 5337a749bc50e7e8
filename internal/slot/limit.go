package slot

import (
	"errors"
	"fmt"
	"time"
)

// A Kind defines when a used slot comes back.
type Kind uint8

// The kinds of limit.
const (
	// AtOnce: a slot comes back when the session ends. At every instant at most N sessions are
	// inside.
	AtOnce Kind = iota + 1
	// PerWindow: a slot comes back one window after its use. Every window of length Per has at most
	// N uses. (The log slides; ends are rounded up to a bucket, which loses < 0.5 % at 400
	// buckets.)
	PerWindow
	// Bucket: a token bucket of N tokens with one new token each Per. Any Δ has at most N + Δ/Per
	// uses.
	Bucket
)

// A Limit describes one limit.
type Limit struct {
	Kind Kind          `json:"kind"`
	N    int64         `json:"n"`   // slots; for Bucket the burst b
	Per  time.Duration `json:"per"` // AtOnce: longest session S without renewal; PerWindow: w; Bucket: 1/r
}

// ErrLimit is wrapped by every error about an invalid limit.
var ErrLimit = errors.New("invalid limit")

// Check returns an error if the limit is invalid.
func (l Limit) Check() error {
	switch {
	case l.Kind < AtOnce || l.Kind > Bucket:
		return fmt.Errorf("%w: unknown kind %d", ErrLimit, l.Kind)
	case l.N < 0 || l.N > 1<<40:
		return fmt.Errorf("%w: %d slots, want 0 to 2^40", ErrLimit, l.N)
	case l.Per <= 0 || l.Per > 366*24*time.Hour:
		return fmt.Errorf("%w: per %v, want more than 0 and at most a year", ErrLimit, l.Per)
	}
	return nil
}

// Idle returns how long after its last request a visitor is likely to send another: a quarter of a
// session, at most five minutes. Most visitors that are silent for longer do not come back. Chosen.
func Idle(l Limit) time.Duration { return min(l.Per/4, 5*time.Minute) }

// MaxLimits is how many limits one pool holds. A room has two (active, new).
const MaxLimits = 2

// Grid returns the width of a bucket of ends in counter time.
func (p *Params) Grid(l Limit) Time { return Time(max(1, int64(l.Per)/int64(p.Buckets))) }

// CeilEnd rounds an end up to the limit's grid.
func (p *Params) CeilEnd(l Limit, t Time) Time {
	g := p.Grid(l)
	return (t + g - 1) / g * g
}

// FloorEnd rounds an end down to the limit's grid.
func (p *Params) FloorEnd(l Limit, t Time) Time {
	g := p.Grid(l)
	return t / g * g
}

// windowEnd returns when a slot used at use comes back: a window later by the slowest clock, rounded up.
func (p *Params) windowEnd(l Limit, use Time) Time {
	return p.CeilEnd(l, use.Add(p.Drift.Up(l.Per)))
}

// Params holds the parameters of the lending protocol (docs/protocol.md §12). WithDefaults replaces
// zero fields by their defaults.
type Params struct {
	Drift      Drift         // bound on clock drift
	Term       time.Duration // T: how long a lent slot may be used without an answer
	Sigma      time.Duration // σ: how long a borrowing counter's time may stand still
	Settle     time.Duration // how long an end waits for renewals on their way
	Buckets    int           // buckets per longest session
	Allotment  Allotment     // how much may be lent ahead of need
	RecallWait time.Duration // how long a need may wait for others to return slots
	Counters   bool          // borrowers are counters, which record their own sessions
	Datacenter string        // data center of a counter below Anywhere
	Alone      bool          // at a takeover all earlier borrowers are surely dead
}

// WithDefaults fills the zero fields with the defaults of docs/protocol.md §12.
func (p Params) WithDefaults() Params {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	if p.Drift == 0 {
		p.Drift = DefaultDrift
	}
	if p.Buckets == 0 {
		p.Buckets = 400
	}
	term, recall := 15*time.Second, 50*time.Millisecond
	if p.Counters {
		term, recall = 10*time.Minute, 275*time.Millisecond
	}
	def(&p.Term, term)
	def(&p.RecallWait, recall)
	def(&p.Sigma, time.Second)
	def(&p.Settle, 3*time.Second)
	return p
}

// An Allotment is the rule for how many slots a borrower may hold before it needs them.
type Allotment uint8

// The allotments. All are settings of the same pool. No slot is ever lent twice.
const (
	// Demand lends what is wanted, at most ⌈free ÷ (2 × borrowers)⌉. At low use each borrower
	// decides locally. Near the limit the pool acts as an exact counter, and no borrower holds more
	// than half of what is left. Demand is the default.
	Demand Allotment = iota
	// Counter lends nothing ahead: the borrower sends a request for every newcomer.
	Counter
)

// grant returns how many of the free slots one of n borrowers gets, given the slots that it needs
// and wants.
func (a Allotment) grant(free, need, want, n int64) int64 {
	need, n = min(need, free), max(1, n)
	if a == Counter {
		return need
	}
	return min(free, max(need, min(need+want, (free+2*n-1)/(2*n))))
}

// Split divides free slots among data centers in proportion to their traffic of the last minutes.
// Each part is rounded down. The rest, which no data center has earned, stays with Anywhere. total
// is the traffic that the parts are measured against and is at least the sum of traffic
// (Cloudflare, "How Waiting Room makes queueing decisions": 15 and 22 of 150, Anywhere 113).
func Split(free, total int64, traffic []int64) (parts []int64, anywhere int64) {
	parts, anywhere = make([]int64, len(traffic)), max(0, free)
	if free <= 0 || total <= 0 {
		return parts, anywhere
	}
	var sum int64
	for _, t := range traffic {
		sum += max(0, t)
	}
	total = max(total, sum)
	for i, t := range traffic {
		parts[i] = mulDiv(free, max(0, t), total)
		anywhere -= parts[i]
	}
	return parts, anywhere
}
