package slot

import "time"

// Time is counter time in nanoseconds: the scale of all ends of one counter. It is kept in the
// record, may stand still and never runs ahead (docs/protocol.md §2). Readings of a process's own
// clock are time.Durations.
type Time int64

// Never is later than every Time a record can hold.
const Never Time = 1<<62 - 1

// Add returns t + d.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Sub returns t − u.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Drift bounds the drift of a clock in parts per million of true time. DefaultDrift covers crystals
// (100) and NTP slewing (500).
type Drift int64

// DefaultDrift is ρ = 0.001 (docs/protocol.md §12).
const DefaultDrift Drift = 1000

const million = 1_000_000

// Up returns d·(1+ρ), rounded up.
func (r Drift) Up(d time.Duration) time.Duration { return scale(d, million+int64(r), million, true) }

// Down returns d·(1−ρ), rounded down.
func (r Drift) Down(d time.Duration) time.Duration {
	return scale(d, million-int64(r), million, false)
}

// Stretch returns d·q, rounded up. q = (1+ρ)/(1−ρ) is the largest ratio between the rates of two
// clocks.
func (r Drift) Stretch(d time.Duration) time.Duration {
	return scale(d, million+int64(r), million-int64(r), true)
}

// Shrink returns d/q, rounded down.
func (r Drift) Shrink(d time.Duration) time.Duration {
	return scale(d, million-int64(r), million+int64(r), false)
}

// scale returns d·num/den without overflow for any d a process can measure.
func scale(d time.Duration, num, den int64, up bool) time.Duration {
	if d < 0 { // d is negative if the readings are out of order: no time has passed
		return 0
	}
	whole, rest := int64(d)/den*num, int64(d)%den*num
	if up {
		rest += den - 1
	}
	return time.Duration(whole + rest/den)
}

// An Estimate bounds the counter time of one epoch from below and above, by the answers that a
// process has received. The zero Estimate has no bounds.
type Estimate struct {
	Epoch    uint64
	lo, hi   Time
	loM, hiM time.Duration
}

// Known reports whether any answer has been received.
func (e *Estimate) Known() bool { return e.Epoch > 0 }

// Lo returns the lower bound of counter time at own clock clk. Use it to set the end of a session
// and to report that everything before it is settled.
func (e *Estimate) Lo(clk time.Duration, r Drift) Time { return e.lo.Add(r.Shrink(clk - e.loM)) }

// Hi returns the upper bound of counter time at own clock clk. Use it to decide whether a pass has
// expired and to date a use that comes back a window later.
func (e *Estimate) Hi(clk time.Duration, r Drift) Time { return e.hi.Add(r.Stretch(clk - e.hiM)) }

// Receive processes an answer with counter time c of an epoch. The request was first sent at sent
// and answered at clk. Receive ignores an older epoch. A newer epoch replaces the estimate, because
// two epochs have different scales.
func (e *Estimate) Receive(epoch uint64, c Time, sent, clk time.Duration, r Drift) {
	e.ReceiveBounds(epoch, c, c, sent, clk, r)
}

// ReceiveBounds is Receive for an answer that bounds the counter time by lo and hi, because another
// borrower gave it.
func (e *Estimate) ReceiveBounds(epoch uint64, lo, hi Time, sent, clk time.Duration, r Drift) {
	switch {
	case epoch < e.Epoch:
	case epoch > e.Epoch:
		*e = Estimate{Epoch: epoch, lo: lo, loM: clk, hi: hi, hiM: sent}
	default:
		if lo > e.Lo(clk, r) {
			e.lo, e.loM = lo, clk
		}
		if hi.Add(r.Stretch(clk-sent)) < e.Hi(clk, r) {
			e.hi, e.hiM = hi, sent
		}
	}
}
