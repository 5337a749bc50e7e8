package slot

import "time"

// upper is a counter's own borrowing from Anywhere. What is granted counts
// only with the counter's own write; what is returned is in its record before
// it is sent.
type upper struct {
	until time.Duration // end of the own term, own clock
	n     uint64
	fly   *Sync
	sent  time.Duration
	heard []Answer
	give  bool // Anywhere asks for what is not used, until it says otherwise
	seen  WriteName
	est   Estimate
	asked bool  // the lender above had nothing for the last need
	most  int64 // greatest grant heard for the loan, written or not
}

// UpSync builds this counter's next Sync to Anywhere from the confirmed
// record, or repeats the one that is not yet answered. Granted is the most that
// was heard, written or not: a counter that heard a grant, was stopped and wrote
// it after its loan had been written off would else draw a new line for the
// same number (found by the walk).
func (p *Pool) UpSync(clk time.Duration, want int64) *Sync {
	if !p.serving || p.rec.Up == nil {
		return nil
	}
	if p.up.fly != nil {
		return p.up.fly
	}
	p.up.n++
	u := p.rec.Up
	x := &Sync{
		Loan: u.Loan, Borrower: p.host, Seq: Seq{p.epoch, p.up.n}, Seen: p.up.seen,
		Est: p.up.est.Epoch, Granted: max(u.Granted, p.up.most), Returned: u.Returned,
		Want: want,
	}
	if p.full && !p.wait || p.wait && p.Free() <= 0 {
		x.Need = max(1, want)
	}
	if p.up.est.Known() {
		x.Settled = p.up.est.Lo(clk, p.par.Rho)
	}
	p.up.fly, p.up.sent = x, clk
	return x
}

// UpAnswer takes in Anywhere's answer. It tells whether a write is needed.
func (p *Pool) UpAnswer(clk time.Duration, a Answer) bool {
	if p.up.fly == nil || a.Loan != p.up.fly.Loan || a.Seq != p.up.fly.Seq {
		return false
	}
	sent := p.up.sent
	need := p.up.fly.Need
	p.up.fly = nil
	if !a.Over {
		if a.Name.Epoch < p.up.est.Epoch {
			return false
		}
		p.up.until = max(p.up.until, sent+p.par.Rho.Down(a.Term))
		p.up.est.Heard(a.Name.Epoch, a.Time, sent, clk, p.par.Rho)
		p.up.seen = a.Name
		p.up.most = max(p.up.most, a.Granted)
		if a.GiveBack && !p.up.give {
			p.recall = true // what our own borrowers hold unused
		}
		p.up.give = a.GiveBack
		p.up.asked = need > 0 && a.Granted == p.rec.Up.Granted
		if a.Granted == p.rec.Up.Granted && !a.GiveBack {
			return false
		}
	}
	p.up.heard = append(p.up.heard, a)
	return true
}

// NewUpLoan draws the loan that follows one that is over: nothing is left of
// the old one, all its passes have ended (R6), so a new life begins.
func (r *Record) newUpLoan(life uint64) {
	r.Up = &Upper{Loan: LoanID(life)}
	r.Name.Life = life
	r.Loans, r.Claimed = nil, nil
	for i := range r.Limits {
		r.Limits[i].Ends = Ends{}
	}
}

func (p *Pool) hearUp(r *Record) {
	if r.Up == nil {
		return
	}
	for _, a := range p.up.heard {
		if a.Over {
			if a.Loan == r.Up.Loan {
				p.up.most = 0
				r.newUpLoan(uint64(r.Up.Loan)*0x9E3779B97F4A7C15 + 1)
				p.known, p.knownAt = map[StayID]Tau{}, map[Tau]*bucket{}
			}
			continue
		}
		r.Up.Granted = max(r.Up.Granted, a.Granted)
	}
	p.up.heard = nil
}

// giveUp returns to Anywhere, while it asks, what is free. With people waiting here
// it is what one limit has more of than the others: nobody can be called on it.
func (p *Pool) giveUp(r *Record) {
	if r.Up == nil || !p.up.give {
		return
	}
	keep := p.calls
	if p.wait {
		keep = max(keep, r.Free())
	}
	for i := range r.Limits {
		if r.Limits[i].Kind != Bucket {
			r.Up.Returned[i] += max(0, r.freeOf(i)-keep)
		}
	}
}

// upMay reports whether Anywhere may still have something to lend.
func (p *Pool) upMay(clk time.Duration) bool {
	return p.rec.Up != nil && clk < p.up.until && !p.up.asked
}
