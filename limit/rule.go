package limit

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Algorithm selects how usage is counted.
type Algorithm uint8

// The algorithms. N is the amount, w the window, B the burst.
const (
	// SlidingLog stores the time of each call.
	//
	// Guarantee: at most N in every window of length w, wherever it begins. Worst case: none. Cost:
	// 16 to 48 bytes a call, for up to N calls. Above 4,096 calls, calls less than w/4096 apart
	// become one, and count until the last of them would: never over the limit, and at most 0.025 %
	// of a window too long.
	SlidingLog Algorithm = iota + 1

	// SlidingWindow counts in sub-windows of length w/Parts. Of the sub-window that w covers only
	// partly, it counts that part, as if its calls were spread evenly (Cloudflare 2017; with one
	// part Criteo's two counters: count(this minute) + 17/60·count(the last one) at 43 s).
	//
	// Guarantee: at most N in every window of length w·(1 − 1/Parts), wherever it begins. Worst
	// case: 2N in a window of length w, with N at the very end of a sub-window and N more as the
	// window leaves it. It may also reject calls that a log would allow. Cost: Parts+1 counters,
	// with one part 24 bytes.
	SlidingWindow

	// FixedWindow counts in consecutive windows: from 1970, from a key's first call, or by the
	// calendar.
	//
	// Guarantee: at most N in each of these windows. Worst case: 2N within a length w that spans
	// two windows (100 at 07:09:59, 100 more at 07:10:00). Cost: 16 bytes.
	FixedWindow

	// TokenBucket adds N tokens in each w, evenly, and holds at most B of them.
	//
	// Guarantee: at most B + N·Δ/w in every time Δ. Worst case: as guaranteed; a window w may have
	// B + N. It is exact: fractions of a token are kept. Cost: 24 bytes.
	TokenBucket

	// LeakyBucket holds at most B calls and empties at N in each w. It rejects calls that would
	// overflow it. If Paced, it gives each call a time to wait.
	//
	// Guarantee: as TokenBucket; if Paced, calls leave w/N apart, and none waits longer than B·w/N.
	// Worst case: as guaranteed. Cost: 24 bytes.
	LeakyBucket

	// Concurrency counts calls in progress, each with a lease.
	//
	// Guarantee: at most N at every instant, as long as a call ends before its lease does. Cost: 24
	// bytes for each call in progress.
	Concurrency
)

// algorithms are the names in the configuration.
var algorithms = [...]string{"", "sliding_log", "sliding_window", "fixed_window", "token_bucket",
	"leaky_bucket", "concurrency"}

// String returns the algorithm's name in the configuration.
func (a Algorithm) String() string {
	if int(a) < len(algorithms) {
		return algorithms[a]
	}
	return fmt.Sprintf("algorithm(%d)", uint8(a))
}

// ParseAlgorithm returns the algorithm of a name in the configuration.
func ParseAlgorithm(name string) (Algorithm, bool) {
	for a, s := range algorithms {
		if s == name && a > 0 {
			return Algorithm(a), true
		}
	}
	return 0, false
}

// HasBurst reports whether the algorithm is a bucket, which has a burst.
func (a Algorithm) HasBurst() bool { return a == TokenBucket || a == LeakyBucket }

// Align selects where fixed windows begin.
type Align uint8

// Alignments of FixedWindow.
const (
	Epoch    Align = iota // multiples of the window since 1970 in UTC
	FirstHit              // a key's first call after its last window
	Minute                // from here on by the calendar of Zone; Window is ignored
	Hour
	Day
	Week // begins on Monday
	Month
	Year
)

var aligns = [...]string{"epoch", "first_hit", "minute", "hour", "day", "week", "month", "year"}

// String returns the alignment's name in the configuration.
func (a Align) String() string {
	if int(a) < len(aligns) {
		return aligns[a]
	}
	return fmt.Sprintf("align(%d)", uint8(a))
}

// ParseAlign returns the alignment of a name in the configuration.
func ParseAlign(name string) (Align, bool) {
	for a, s := range aligns {
		if s == name {
			return Align(a), true
		}
	}
	return 0, false
}

// Bounds of a rule. Chosen: a petabyte in a window, and what an int64 of nanoseconds holds.
const (
	MaxAmount = 1 << 50
	MaxWindow = 366 * 24 * time.Hour
	MaxParts  = 3600
	MinWindow = time.Millisecond

	MaxConcurrent = 1 << 20
)

// A Rule configures how one key is limited.
type Rule struct {
	Algorithm Algorithm
	Amount    int64         // N, in units of cost; 0 rejects everything
	Window    time.Duration // w; Concurrency has none
	Parts     int           // SlidingWindow: sub-windows, default 1
	Burst     int64         // B: TokenBucket and LeakyBucket, default Amount
	Align     Align
	Zone      *time.Location // of the calendar, default UTC
	Paced     bool           // LeakyBucket: give a call a time to wait
	Lease     time.Duration  // Concurrency: maximum length of a call, default one minute
}

// ErrRule is wrapped by every error about an invalid rule.
var ErrRule = errors.New("invalid limit")

// Check returns an error that lists everything that is wrong with the rule.
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
	bad(r.Burst != 0 && !r.Algorithm.HasBurst(), "burst belongs to token_bucket and leaky_bucket")
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

// WithDefaults returns the rule with its defaults filled in.
func (r Rule) WithDefaults() Rule {
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

// MaxCost returns the greatest cost that can ever be allowed at once.
func (r Rule) MaxCost() int64 {
	if r = r.WithDefaults(); r.Algorithm.HasBurst() {
		return r.Burst
	}
	return r.Amount
}

// A Decision is the result for a call.
type Decision struct {
	Allowed   bool
	Shared    bool          // the table is full: counted together with all other unknown keys
	Local     bool          // decided without the other processes of the limit: they did not answer
	Amount    int64         // the maximum at once: N, for buckets B
	Remaining int64         // what may still be taken now, never below 0
	Reset     time.Duration // until Remaining equals Amount if there are no calls
	// Retry is the time until this cost is allowed if nobody else calls. It is 0 if the cost is
	// allowed now, and negative if it never is. Under Concurrency it is at most a second, because a
	// call may end at any moment.
	Retry time.Duration
	Wait  time.Duration // Paced: wait this long
	ID    uint64        // of the reservation, or of the lease of Concurrency
}

// A Usage is what a key has used.
type Usage struct {
	Key       string
	Used      int64 // of Amount; the part above Amount is owed
	Amount    int64
	Remaining int64
	Reset     time.Duration
}

// Refill returns the time in which Amount comes back. It is 0 if that time has no fixed length: for
// Concurrency, months and years. A bucket gets its burst B back in B·w/N.
func (r Rule) Refill() time.Duration {
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
