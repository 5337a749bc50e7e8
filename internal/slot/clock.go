package slot

import "time"

// Tau is counter time in nanoseconds: the scale of all ends of one counter.
// It is kept in the record, may stand still and never runs ahead
// (docs/protocol.md §2). Readings of a process's own clock are time.Durations.
type Time int64

// Never is later than every Tau a record can hold.
const Never Time = 1<<62 - 1

// Add returns t + d.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Sub returns t − u.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Rho bounds the drift of a clock in parts per million of true time.
// DefaultRho covers crystals (100) and NTP slewing (500).
type Drift int64

// DefaultRho is ρ = 0.001 (docs/protocol.md §12).
const DefaultDrift Drift = 1000

const million = 1_000_000

// Up returns d·(1+ρ), rounded up.
func (r Drift) Up(d time.Duration) time.Duration { return scale(d, million+int64(r), million, true) }

// Down returns d·(1−ρ), rounded down.
func (r Drift) Down(d time.Duration) time.Duration {
	return scale(d, million-int64(r), million, false)
}

// Stretch returns d·q, rounded up; q = (1+ρ)/(1−ρ) is how far two clocks can
// differ in rate.
func (r Drift) Stretch(d time.Duration) time.Duration {
	return scale(d, million+int64(r), million-int64(r), true)
}

// Shrink returns d/q, rounded down.
func (r Drift) Shrink(d time.Duration) time.Duration {
	return scale(d, million-int64(r), million+int64(r), false)
}

// scale returns d·num/den without overflow for any d a process can measure.
func scale(d time.Duration, num, den int64, up bool) time.Duration {
	if d < 0 { // a reading from before the other: no time has passed
		return 0
	}
	whole, rest := int64(d)/den*num, int64(d)%den*num
	if up {
		rest += den - 1
	}
	return time.Duration(whole + rest/den)
}

// An Estimate brackets the counter time of one epoch from the answers a
// process has seen. The zero Estimate knows nothing.
type Estimate struct {
	Epoch    uint64
	lo, hi   Time
	loM, hiM time.Duration
}

// Known reports whether any answer has been seen.
func (e *Estimate) Known() bool { return e.Epoch > 0 }

// Lo is what counter time is at least at own clock clk; use it to set the end
// of a stay and to say "all before is reported".
func (e *Estimate) Lo(clk time.Duration, r Drift) Time { return e.lo.Add(r.Shrink(clk - e.loM)) }

// Hi is what counter time is at most; use it to ask whether a pass is over
// and to stamp a use that comes back a window later.
func (e *Estimate) Hi(clk time.Duration, r Drift) Time { return e.hi.Add(r.Stretch(clk - e.hiM)) }

// Heard takes in an answer with counter time c of an epoch, to a question
// first sent at sent and answered at clk. An older epoch is not heard; a newer
// one replaces all (scales are never mixed).
func (e *Estimate) Receive(epoch uint64, c Time, sent, clk time.Duration, r Drift) {
	switch {
	case epoch < e.Epoch:
	case epoch > e.Epoch:
		*e = Estimate{Epoch: epoch, lo: c, loM: clk, hi: c, hiM: sent}
	default:
		if c > e.Lo(clk, r) {
			e.lo, e.loM = c, clk
		}
		if c.Add(r.Stretch(clk-sent)) < e.Hi(clk, r) {
			e.hi, e.hiM = c, sent
		}
	}
}
