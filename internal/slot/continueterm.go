package slot

import "time"

// A ParentTerm is the time until which a counter may use its loan from Anywhere, in the counter's
// own time, as its host publishes it. If another process becomes the host while Anywhere is
// unreachable, it continues with this term.
type ParentTerm struct {
	Loan   LoanID        `json:"loan"`
	Epoch  uint64        `json:"epoch"` // the epoch of the counter time of Until
	Until  Time          `json:"until"`
	Paused time.Duration `json:"paused"` // how long counter time has stood still since Anywhere last answered
}

// ParentTerm returns the term of this counter. ok is false if there is no term or it is over.
func (p *Pool) ParentTerm(clk time.Duration) (t ParentTerm, ok bool) {
	if !p.serving || p.rec.Parent == nil || clk >= p.up.until {
		return t, false
	}
	return ParentTerm{p.rec.Parent.Loan, p.epoch, p.CounterTime(clk).Add(p.up.until - clk), p.up.paused}, true
}

// ContinueTerm lets a host that has received nothing from Anywhere continue the term of the
// previous host. lo and hi bound, at clk, the counter time that the previous host would have now,
// by what this process received from it. ContinueTerm returns false and changes nothing unless the
// term surely still runs.
//
// Counter time jumps to lo. This is necessary: when Anywhere presumes a loan to be used, it assumes
// that counter time is at most sigma behind. The jump is allowed because a host that has sent
// nothing yet may choose where its time begins.
func (p *Pool) ContinueTerm(clk time.Duration, t ParentTerm, lo, hi Time) bool {
	if !p.serving || p.wr != nil || p.rec.Parent == nil || p.up.est.Known() || p.up.until > 0 ||
		t.Loan != p.rec.Parent.Loan || t.Epoch != p.tookEpoch {
		return false
	}
	now := p.CounterTime(clk)
	next := max(now, lo)
	paused := t.Paused + max(0, hi.Sub(next))
	if paused > p.par.Sigma || t.Until <= hi {
		return false
	}
	p.up.until = clk + p.par.Drift.Shrink(t.Until.Sub(hi))
	p.up.paused = paused
	p.wentFrom, p.wentOn = now, next
	p.tauC, p.tauM = next, clk
	return true
}

// courtesy returns the latest end that may be freed at counter time now even if a borrower has more
// to report. Borrowers could not report ends that passed while counter time jumped before the jump
// was over.
func (p *Pool) courtesy(now Time) Time {
	until := now.Add(-p.par.Settle)
	if now < p.wentOn.Add(p.par.Settle) {
		until = min(until, p.wentFrom.Add(-p.par.Settle))
	}
	return until
}
