package slot

import (
	"errors"
	"fmt"
	"time"
)

// Kind says when a used slot comes back.
type Kind uint8

// The kinds of limit.
const (
	// AtOnce: a slot comes back when the stay ends. At every instant at most
	// N stays are inside.
	AtOnce Kind = iota + 1
	// PerWindow: a slot comes back one window after its use. In every window
	// of length Per there are at most N uses (a sliding log; ends round up to
	// a bucket, so < 0.5 % under at 400 buckets).
	PerWindow
	// Bucket: a token bucket of N tokens, one new token each Per. In any Δ at
	// most N + Δ/Per uses.
	Bucket
)

// A Limit is the one description of a limit.
type Limit struct {
	Kind Kind          `json:"kind"`
	N    int64         `json:"n"`   // slots; for Bucket the burst b
	Per  time.Duration `json:"per"` // AtOnce: longest stay S without renewal; PerWindow: w; Bucket: 1/r
}

// ErrLimit is wrapped by every error about an impossible limit.
var ErrLimit = errors.New("impossible limit")

// Check reports what is wrong with the limit.
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

// Idle is how long after its last request a visitor may well ask for more: a quarter of a
// session, and five minutes at most. Who is silent for longer comes no more, by and large.
// Chosen.
func Idle(l Limit) time.Duration { return min(l.Per/4, 5*time.Minute) }

// MaxLimits is how many limits one pool holds: a room has two (active, new).
const MaxLimits = 2

// Grid is the width of a bucket of ends in counter time.
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

// windowEnd is when a use at hi comes back: a window later by the slowest
// clock, rounded up.
func (p *Params) windowEnd(l Limit, use Time) Time {
	return p.CeilEnd(l, use.Add(p.Rho.Up(l.Per)))
}

// Params are the parameters of the lending protocol (docs/protocol.md §12).
// The zero value of a field is its default, set by WithDefaults.
type Params struct {
	Rho        Drift         // bound on clock drift
	Term       time.Duration // T: how long a lent slot may be used unheard
	Sigma      time.Duration // σ: pauses of a borrowing counter's time the lender allows for
	Settle     time.Duration // courtesy to renewals under way before an end is freed
	Buckets    int           // buckets per longest stay
	Allotment  Allotment     // how much may be lent ahead of need
	RecallWait time.Duration // how long a want may wait for others to give back
	Counters   bool          // borrowers are counters: their stays are their own
	Site       string        // data centre of a counter below Anywhere
	Alone      bool          // at a takeover all borrowers of before are surely dead

	fault fault // tests only
}

// WithDefaults fills the zero fields with the defaults of docs/protocol.md §12.
func (p Params) WithDefaults() Params {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	if p.Rho == 0 {
		p.Rho = DefaultDrift
	}
	if p.Buckets == 0 {
		p.Buckets = 400
	}
	term, recall := 15*time.Second, 50*time.Millisecond
	if p.Counters {
		term, recall = 10*time.Minute, 250*time.Millisecond
	}
	def(&p.Term, term)
	def(&p.RecallWait, recall)
	def(&p.Sigma, time.Second)
	def(&p.Settle, 3*time.Second)
	return p
}

// fault breaks one rule, so that the tests of this package can see the walk
// catch it. Nothing outside the tests can set one.
type fault uint32

const (
	faultNoPresume      fault = 1 << iota // slots are back at once when taken back
	faultTermFromAnswer                   // a term runs from the answer, not from the last write
	faultFromReply                        // the borrower times its term from the reply
	faultSoftRenew                        // (walk) a pass is renewed before the counter confirmed
	faultDeltas                           // returns are changes, not totals
	faultAnyBucket                        // an unknown renewal takes any bucket
	faultTauAhead                         // counter time steps ahead at a takeover
	faultMixScales                        // estimates are mixed over epochs
	faultNoAge                            // the age of the write is not stretched
	faultLateRefill                       // a bucket refills after the report is believed
	faultNoCountLent                      // a bucket refills without counting what is lent
	faultNoClip                           // a term is not clipped to one's own
	faultColdTells                        // a cold host tells the time
	faultLongPause                        // a host goes on however long counter time stood still
	faultOpenRenames                      // what is opened takes the name back from its renewal
)
