package limit

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"
)

// Algorithm says how use is counted.
type Algorithm uint8

// The algorithms. N is the amount, w the window, B the burst.
const (
	// SlidingLog remembers when each call was made.
	//
	// Promise: at most N in every window of length w, wherever it begins. Worst case: none.
	// Cost: 16 to 48 bytes a call, up to N of them; above 4,096 calls that are less than w/4096
	// apart are one, and count until the last of them would: never over, and at most
	// 0.025 % of a window late.
	SlidingLog Algorithm = iota + 1

	// SlidingWindow counts in sub-windows of length w/Parts, and takes of the one that w
	// reaches into only the part that it covers, as if its calls were spread evenly
	// (Cloudflare 2017; with one part Criteo's two counters: count(this minute) +
	// 17/60·count(the last one) at 43 s).
	//
	// Promise: at most N in every window of length w·(1 − 1/Parts), wherever it begins.
	// Worst case: 2N in one of length w, with N at the very end of a sub-window and N more
	// as the window leaves it; and it may refuse what a log would let pass. Cost: Parts+1
	// counters, with one part 24 bytes.
	SlidingWindow

	// FixedWindow counts in windows that follow each other: from 1970, from a key's first
	// call, or by the calendar.
	//
	// Promise: at most N in each of these windows. Worst case: 2N in a time of length w
	// that two of them share (100 at 07:09:59, 100 more at 07:10:00). Cost: 16 bytes.
	FixedWindow

	// TokenBucket gives N tokens in each w, evenly, and keeps B of them at most.
	//
	// Promise: at most B + N·Δ/w in every time Δ. Worst case: none beyond it; a window w
	// may see B + N. Exact: fractions of a token are kept as such. Cost: 24 bytes.
	TokenBucket

	// LeakyBucket holds B calls at most and empties at N in each w. It refuses what would
	// overflow, or, Paced, tells each call when to go.
	//
	// Promise: as TokenBucket; Paced, calls go w/N apart, none waits longer than B·w/N.
	// Worst case: as promised. Cost: 24 bytes.
	LeakyBucket

	// Concurrency counts calls that are under way, each with a lease.
	//
	// Promise: at most N at every instant, as long as a call ends before its lease does.
	// Cost: 24 bytes a call under way.
	Concurrency
)

// algorithms are their names in configuration.
var algorithms = [...]string{"", "sliding_log", "sliding_window", "fixed_window", "token_bucket",
	"leaky_bucket", "concurrency"}

// String is the algorithm's name in configuration.
func (a Algorithm) String() string {
	if int(a) < len(algorithms) {
		return algorithms[a]
	}
	return fmt.Sprintf("algorithm(%d)", uint8(a))
}

// ParseAlgorithm finds an algorithm by its name in configuration.
func ParseAlgorithm(name string) (Algorithm, bool) {
	for a, s := range algorithms {
		if s == name && a > 0 {
			return Algorithm(a), true
		}
	}
	return 0, false
}

// Align says where fixed windows begin.
type Align uint8

// The alignments of FixedWindow.
const (
	Epoch    Align = iota // multiples of the window since 1970 in UTC
	FirstHit              // a key's first call after its last window
	Minute                // the calendar of Zone from here on; Window is ignored
	Hour
	Day
	Week // from Monday on
	Month
	Year
)

var aligns = [...]string{"epoch", "first_hit", "minute", "hour", "day", "week", "month", "year"}

// String is the alignment's name in configuration.
func (a Align) String() string {
	if int(a) < len(aligns) {
		return aligns[a]
	}
	return fmt.Sprintf("align(%d)", uint8(a))
}

// ParseAlign finds an alignment by its name in configuration.
func ParseAlign(name string) (Align, bool) {
	for a, s := range aligns {
		if s == name {
			return Align(a), true
		}
	}
	return 0, false
}

// Bounds of a rule. Chosen: a petabyte a window, and what an int64 of nanoseconds holds.
const (
	MaxAmount = 1 << 50
	MaxWindow = 366 * 24 * time.Hour
	MaxParts  = 3600
	MinWindow = time.Millisecond

	MaxConcurrent = 1 << 20
)

// A Rule says how one key is limited.
type Rule struct {
	Algorithm Algorithm
	Amount    int64         // N, in units of cost; 0 refuses everything
	Window    time.Duration // w; Concurrency has none
	Parts     int           // SlidingWindow: sub-windows, default 1
	Burst     int64         // B: TokenBucket and LeakyBucket, default Amount
	Align     Align
	Zone      *time.Location // of the calendar, default UTC
	Paced     bool           // LeakyBucket: a call is told to wait
	Lease     time.Duration  // Concurrency: how long a call may last, default a minute
}

// ErrRule is wrapped by every error about a rule that makes no sense.
var ErrRule = errors.New("impossible limit")

// Check reports all that is wrong with the rule.
func (r Rule) Check() error {
	var all []error
	bad := func(wrong bool, text string, args ...any) {
		if wrong {
			all = append(all, fmt.Errorf("%w: "+text, append([]any{ErrRule}, args...)...))
		}
	}
	bad(r.Algorithm < SlidingLog || r.Algorithm > Concurrency, "unknown algorithm %d", r.Algorithm)
	bad(r.Amount < 0 || r.Amount > MaxAmount, "amount %d, want 0 to %d", r.Amount, int64(MaxAmount))
	bad(r.needsWindow() && (r.Window < MinWindow || r.Window > MaxWindow),
		"window %v, want %v to %v", r.Window, MinWindow, MaxWindow)
	bad(r.Parts < 0 || r.Parts > MaxParts, "%d parts, want 1 to %d", r.Parts, MaxParts)
	bad(r.Parts > 1 && int64(r.Window)/int64(max(1, r.Parts)) < int64(MinWindow),
		"%d parts of %v are shorter than %v", r.Parts, r.Window, MinWindow)
	bad(r.Parts != 0 && r.Algorithm != SlidingWindow, "parts belong to sliding_window")
	bad(r.Burst < 0 || r.Burst > MaxAmount, "burst %d, want 0 to %d", r.Burst, int64(MaxAmount))
	bad(r.Burst > 0 && r.Amount == 0, "a burst beside an amount of 0, which refuses everything")
	bad(r.Burst != 0 && !r.leaks(), "burst belongs to token_bucket and leaky_bucket")
	bad(r.Align > Year, "unknown alignment %d", r.Align)
	bad(r.Align != Epoch && r.Algorithm != FixedWindow, "alignment belongs to fixed_window")
	bad(r.Zone != nil && r.Align < Minute, "a time zone belongs to windows of the calendar")
	bad(r.Paced && r.Algorithm != LeakyBucket, "paced belongs to leaky_bucket")
	bad(r.Paced && r.Amount == 0, "a paced amount of 0 would wait for ever")
	bad(r.Lease < 0 || r.Lease > MaxWindow, "lease %v, want 0 to %v", r.Lease, MaxWindow)
	bad(r.Lease != 0 && r.Algorithm != Concurrency, "a lease belongs to concurrency")
	bad(r.Algorithm == Concurrency && r.Window != 0, "concurrency has no window")
	bad(r.Algorithm == Concurrency && r.Amount > MaxConcurrent, "amount %d, want 0 to %d at once", r.Amount,
		MaxConcurrent)
	return errors.Join(all...)
}

func (r Rule) needsWindow() bool {
	return r.Algorithm != Concurrency && (r.Algorithm != FixedWindow || r.Align < Minute)
}

func (r Rule) leaks() bool { return r.Algorithm == TokenBucket || r.Algorithm == LeakyBucket }

// withDefaults fills in what is not said.
func (r Rule) withDefaults() Rule {
	switch r.Algorithm {
	case SlidingWindow:
		r.Parts = max(1, r.Parts)
	case TokenBucket, LeakyBucket:
		r.Burst = cmp.Or(r.Burst, r.Amount)
	case Concurrency:
		r.Lease = cmp.Or(r.Lease, time.Minute)
	}
	if r.Zone == nil {
		r.Zone = time.UTC
	}
	return r
}

// Most is the greatest cost that can ever pass at once.
func (r Rule) MaxCost() int64 {
	if r = r.withDefaults(); r.leaks() {
		return r.Burst
	}
	return r.Amount
}

// Time is a moment in nanoseconds since 1970. A Table takes the latest that it was told.
type Time int64

// Never is later than every moment.
const Never Time = math.MaxInt64

// A Decision is what a call is told.
type Decision struct {
	Allowed   bool
	Shared    bool          // the table is full: counted together with all other unknown keys
	Local     bool          // decided without those who share the limit: they did not answer
	Amount    int64         // the most that can pass at once: N, of buckets B
	Remaining int64         // what may still be taken now, never below 0
	Reset     time.Duration // until Remaining is Amount again if nobody calls
	// Retry is until this cost passes if nobody else calls; 0 if it does, below 0: never. Of
	// Concurrency it is a second at most: a call may end at any moment.
	Retry time.Duration
	Wait  time.Duration // Paced: go then
	ID    uint64        // of the reservation, or of the lease of Concurrency
}

// Refill is the time in which Amount comes back, 0 where that has no fixed length: of
// Concurrency, and of months and years. A bucket gets its burst B back in B·w/N.
func (r *Rule) Refill() time.Duration {
	switch {
	case r.Algorithm == Concurrency:
		return 0
	case r.Burst > 0 && r.Amount > 0:
		return time.Duration(float64(r.Window) * float64(r.Burst) / float64(r.Amount))
	case r.Algorithm != FixedWindow:
		return r.Window
	}
	switch r.Align {
	case Epoch, FirstHit:
		return r.Window
	case Minute:
		return time.Minute
	case Hour:
		return time.Hour
	case Day:
		return 24 * time.Hour
	case Week:
		return 7 * 24 * time.Hour
	}
	return 0
}
