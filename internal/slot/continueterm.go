package slot

import "time"

// An UpTerm is until when a counter may use what Anywhere has lent it, in its own counter time, as its
// host says. Another process that becomes the host while Anywhere is out of reach goes on with it.
type ParentTerm struct {
	Loan   LoanID        `json:"loan"`
	Epoch  uint64        `json:"epoch"` // whose counter time Until is of
	Until  Time          `json:"until"`
	Paused time.Duration `json:"paused"` // counter time has stood still so long since Anywhere was heard
}

// UpTerm returns the term of this counter. It is false without one, or once it is over.
func (p *Pool) ParentTerm(clk time.Duration) (t ParentTerm, ok bool) {
	if !p.serving || p.rec.Parent == nil || clk >= p.up.until {
		return t, false
	}
	return ParentTerm{p.rec.Parent.Loan, p.epoch, p.CounterTime(clk).Add(p.up.until - clk), p.up.paused}, true
}

// GoOn lets a host that has not heard of Anywhere go on with the term of the host before it. lo and hi
// bracket, at clk, the counter time that host would have now, by what this process heard of it. It reports
// false, and changes nothing, unless the term surely still runs.
//
// Counter time jumps to lo. It must: Anywhere takes it for no more than sigma behind when it presumes what
// is lent to be used. A host that has said nothing may choose where its time begins.
func (p *Pool) ContinueTerm(clk time.Duration, t ParentTerm, lo, hi Time) bool {
	if !p.serving || p.wr != nil || p.rec.Parent == nil || p.up.est.Known() || p.up.until > 0 ||
		t.Loan != p.rec.Parent.Loan || t.Epoch != p.tookEpoch {
		return false
	}
	now := p.CounterTime(clk)
	next := max(now, lo)
	paused := t.Paused + max(0, hi.Sub(next))
	if paused > p.par.Sigma && p.par.fault&faultLongPause == 0 || t.Until <= hi {
		return false
	}
	p.up.until = clk + p.par.Rho.Shrink(t.Until.Sub(hi))
	p.up.paused = paused
	p.wentFrom, p.wentOn = now, next
	p.tauC, p.tauM = next, clk
	return true
}

// courtesy is up to when ends may be freed at counter time now though somebody may have more to report: what
// ended while counter time jumped can only be reported since.
func (p *Pool) courtesy(now Time) Time {
	until := now.Add(-p.par.Settle)
	if now < p.wentOn.Add(p.par.Settle) {
		until = min(until, p.wentFrom.Add(-p.par.Settle))
	}
	return until
}
