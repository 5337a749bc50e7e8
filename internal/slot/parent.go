package slot

import (
	"cmp"
	"time"
)

// upper is a counter's own borrowing from Anywhere. What is granted counts
// only with the counter's own write; what is returned is in its record before
// it is sent.
type upper struct {
	until   time.Duration // end of the own term, own clock
	n       uint64
	fly     *Sync
	sent    time.Duration
	heard   []Answer
	give    bool          // Anywhere asks for what is not used, until it says otherwise
	giveAt  time.Duration // own clock when it last did
	mine    int64         // lent to people who stand here, and not yet theirs
	fresh   int64         // of mine: as many as the latest turn has brought, which may be used
	freshAt time.Duration // from then on, own clock
	lined   bool          // people wait in line before the door of some counter, this one perhaps,
	linedAt time.Duration // as was heard then, own clock
	seen    WriteName
	est     Estimate
	asked   bool   // the lender above had nothing for the last need
	most    int64  // greatest grant heard for the loan, written or not
	plenty  uint64 // limits that Anywhere needs nothing back of
	traffic int64  // as was told last
	part    int64  // what the traffic here has earned of all unused slots, as was last heard
	shed    bool   // what is free beyond keep goes back with the next write
	keep    int64
	paused  time.Duration // counter time has stood still so long since Anywhere was heard
}

// UpSync builds this counter's next Sync to Anywhere from the confirmed
// record, or repeats the one that is not yet answered. Granted is the most that
// was heard, written or not: a counter that heard a grant, was stopped and wrote
// it after its loan had been written off would else draw a new line for the
// same number (found by the walk).
func (p *Pool) ParentSync(clk time.Duration, want, traffic int64, queue []Time) *Sync {
	if !p.serving || p.rec.Parent == nil {
		return nil
	}
	if x := p.up.fly; x != nil { // repeated unchanged, but for what may have come to an end
		if !x.Lapsed && p.lapsed(clk) {
			x = new(*x)
			x.Lapsed = true
			p.up.fly = x
		}
		return x
	}
	p.up.n++
	u := p.rec.Parent
	x := &Sync{
		Loan: u.Loan, Borrower: cmp.Or(p.par.Site, p.host), Seq: Seq{p.epoch, p.up.n}, Seen: p.up.seen,
		Est: p.up.est.Epoch, Granted: max(u.Granted, p.up.most), Returned: u.Returned,
		Want: want, Traffic: traffic, Lapsed: p.lapsed(clk),
	}
	p.up.traffic = traffic
	coming := p.coming()
	x.Need, x.Idle = max(0, p.short-coming), p.ParentIdle(clk)
	if stand := max(0, want); p.wait { // whoever has left or fallen silent needs none
		p.up.mine = min(p.up.mine, stand)
	} else {
		p.up.mine = min(p.up.mine, p.short)
	}
	if p.wait { // the first of the line have their slots
		have := max(0, p.mayUse(clk, p.Free())) + coming
		x.Need, x.Want = max(0, want-have), 0
		queue = queue[min(have, int64(len(queue))):]
	}
	x.Queue = p.arrivals(clk, x.Need, queue)
	if p.up.est.Known() {
		x.Settled = p.up.est.Lo(clk, p.par.Rho)
	}
	p.up.fly, p.up.sent = x, clk
	return x
}

// UpIdle is how many slots here nobody uses. While Anywhere looks for one, those that are lent to
// workers may be unused, too, until they say otherwise, and so may those whose stay has ended, until the
// workers have said that it did not go on. What a write under way returns has not been told.
func (p *Pool) ParentIdle(clk time.Duration) int64 {
	if !p.RecalledByParent(clk) {
		return max(0, p.Free())
	}
	n := int64(0)
	for i := range p.rec.Limits {
		idle := p.owes(clk, p.rec, i)
		if p.up.plenty&(1<<i) == 0 {
			idle += p.rec.Limits[i].Ends.Until(p.CounterTime(clk))
		}
		n = max(n, idle)
	}
	for i := range p.rec.Loans {
		if l := &p.rec.Loans[i]; l.Over == 0 {
			n += max(0, l.Lent(0))
		}
	}
	return n
}

// Cold reports whether this counter may say nothing: its own term is over, or Anywhere has
// not been heard yet. What is asked of it then is dropped.
func (p *Pool) IsCold(clk time.Duration) bool { return p.serving && p.termOver(clk) }

// termOver reports whether this counter's own term is over: nothing may begin then,
// whatever was heard since.
func (p *Pool) termOver(clk time.Duration) bool {
	return p.rec.Parent != nil && clk >= p.up.until && p.par.fault&(faultNoClip|faultColdTells) == 0
}

// lapsed reports whether the own loan may have been taken back: its term is over. That of a
// room that was alone has not begun.
func (p *Pool) lapsed(clk time.Duration) bool {
	return p.termOver(clk) && !(p.rec.WasRoot && !p.up.est.Known())
}

// UpFlying is the Sync to Anywhere that is not yet answered, nil if there is none.
func (p *Pool) ParentInFlight() *Sync { return p.up.fly }

// UpNeed reports whether somebody stands before this counter's door whom only
// Anywhere can help: a borrower in need, or the line.
func (p *Pool) NeedsParent(clk time.Duration) bool {
	if p.rec.Parent == nil {
		return false
	}
	coming := p.coming()
	return p.short > coming && !p.wait || p.wait && p.mayUse(clk, p.Free())+coming <= 0
}

// coming is what was granted and is in no write yet: it is for the first of those who stand
// here, and must not be asked for once more.
func (p *Pool) coming() int64 { return max(0, p.up.most-p.newest().Parent.Granted) }

// arrivals tells up to need arrivals of this counter's time in Anywhere's, halfway
// between the bounds of the estimate. Who stands before a worker has just come.
func (p *Pool) arrivals(clk time.Duration, need int64, queue []Time) []Time {
	if !p.up.est.Known() {
		return nil
	}
	lo, hi := p.up.est.Lo(clk, p.par.Rho), p.up.est.Hi(clk, p.par.Rho)
	there, here := lo+(hi-lo)/2, p.CounterTime(clk)
	var out []Time
	for i := range min(need, maxQueue) {
		at := here
		if i < int64(len(queue)) {
			at = min(here, queue[i])
		} else if p.wait {
			break
		}
		out = append(out, there-(here-at))
	}
	return out
}

// UpAnswer takes in Anywhere's answer. It tells whether a write is needed.
func (p *Pool) ReceiveParent(clk time.Duration, a Answer) bool {
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
		p.up.est.Receive(a.Name.Epoch, a.Time, sent, clk, p.par.Rho)
		p.up.paused = 0
		p.up.seen = a.Name
		p.up.most, p.up.part = max(p.up.most, a.Granted), a.Part
		if a.GiveBack {
			p.RecallByParent(clk)
		} else {
			p.up.give = false
		}
		p.up.plenty = a.Plenty
		p.up.lined, p.up.linedAt = a.Waiting, clk
		if n := a.Granted - p.rec.Parent.Granted; a.Waiting && n > 0 {
			p.up.fresh, p.up.freshAt = n, p.together(clk, a.Time)
		}
		p.up.asked = need > 0 && a.Granted == p.rec.Parent.Granted && a.Waiting
		if a.Granted == p.rec.Parent.Granted && !a.GiveBack {
			return false
		}
	}
	p.up.heard = append(p.up.heard, a)
	return true
}

// inStep is how long after it was told a slot is used that Anywhere has lent to people who wait: by then
// it has been told everywhere. Who stands in a data center near Anywhere would else pass those before
// it elsewhere. Chosen: the way to the other side of the earth.
const inStep = 100 * time.Millisecond

// together is when slots may be used that Anywhere lent at a time of its own: on all counters at once.
func (p *Pool) together(clk time.Duration, at Time) time.Duration {
	lo, hi := p.up.est.Lo(clk, p.par.Rho), p.up.est.Hi(clk, p.par.Rho)
	return clk + min(inStep, max(0, inStep-(lo+(hi-lo)/2).Sub(at)))
}

// notYet is how many slots were lent to the people who stand here and may not be used yet.
func (p *Pool) notYet(clk time.Duration) int64 {
	if p.rec == nil || p.rec.Parent == nil || clk >= p.up.freshAt {
		return 0
	}
	return min(p.up.fresh, p.up.mine)
}

// upLined reports whether people stand in line before the door of any counter: newcomers here are
// behind them.
func (p *Pool) upLined(clk time.Duration) bool { return p.up.lined && clk-p.up.linedAt < queueKept }

// newUpLoan draws the loan that follows one that is over. All its passes have ended, or are
// presumed at Anywhere to their end (R6): none is renewed, so a new life begins. The places
// in the line stand, whatever life their tickets are of.
func (r *Record) newUpLoan(loan LoanID) {
	r.Parent = &ParentLoan{Loan: loan}
	if r.Before == 0 {
		r.Before = r.Name.Life
	}
	r.Name.Life = uint64(loan)
	r.Loans, r.Claimed = nil, nil
	for i := range r.Limits {
		r.Limits[i].Ends, r.Limits[i].InForce = Ends{}, 0
	}
}

func (p *Pool) hearUp(r *Record) {
	if r.Parent == nil {
		return
	}
	r.WasRoot = r.WasRoot && !p.up.est.Known()
	for _, a := range p.up.heard {
		if a.Over {
			if a.Loan == r.Parent.Loan {
				p.up.most, p.up.mine = 0, 0
				r.newUpLoan(r.Parent.Loan*0x9E3779B97F4A7C15 + 1)
				p.known, p.knownAt = map[StayID]Time{}, map[Time]*bucket{}
			}
			continue
		}
		p.up.mine += max(0, a.Granted-r.Parent.Granted)
		r.Parent.Granted = max(r.Parent.Granted, a.Granted)
	}
	p.up.heard = nil
}

// UpRecall takes in that Anywhere asks for what is not used. It carries nothing that
// matters: told once more or never, nothing goes wrong.
func (p *Pool) RecallByParent(clk time.Duration) {
	if p.rec.Parent == nil {
		return
	}
	if !p.RecalledByParent(clk) {
		p.up.mine = 0
	}
	for i := range p.rec.Loans { // what our own borrowers hold unused
		p.recall = p.recall || p.rec.Loans[i].out(p.rec)
	}
	p.up.give, p.up.giveAt, p.up.plenty = true, clk, 0
}

// UpOwes reports whether the next write would give anything back to Anywhere.
func (p *Pool) OwesParent(clk time.Duration) bool {
	if p.rec.Parent == nil {
		return false
	}
	for i := range p.rec.Limits {
		if p.owes(clk, p.rec, i) > 0 {
			return true
		}
	}
	return false
}

// UpShed gives back with the next write what is free beyond keep, of each limit.
func (p *Pool) ReturnToParent(keep int64) { p.up.keep, p.up.shed = max(0, keep), true }

// UpSpare reports whether more than keep of any limit is free that nobody here is to have.
func (p *Pool) HasSpare(keep int64) bool {
	for i := range p.rec.Limits {
		if p.rec.Parent != nil && p.spare(p.rec, i) > keep {
			return true
		}
	}
	return false
}

// UpPart is what the traffic here has earned of all slots that nobody uses, as Anywhere
// said last.
func (p *Pool) ParentPart() int64 { return p.up.part }

// UpTime brackets Anywhere's time; ok is false before its first answer.
func (p *Pool) ParentTime(clk time.Duration) (epoch uint64, lo, hi Time, ok bool) {
	e := &p.up.est
	return e.Epoch, e.Lo(clk, p.par.Rho), e.Hi(clk, p.par.Rho), e.Known()
}

// UpSeen is the newest write of Anywhere that was heard of, and for how long the term
// that it gave still runs, below 0 if it is over.
func (p *Pool) ParentSeen(clk time.Duration) (WriteName, time.Duration) {
	return p.up.seen, p.up.until - clk
}

// owes is what of limit i goes back to Anywhere with the next write.
func (p *Pool) owes(clk time.Duration, r *Record, i int) int64 {
	n := p.spare(r, i)
	switch {
	case p.RecalledByParent(clk) && p.up.plenty&(1<<i) != 0: // those of a window's traffic are enough
		return max(0, n-max(p.up.traffic, r.Parent.Granted-r.Parent.Returned[0]))
	case p.RecalledByParent(clk):
		return n
	case p.up.shed:
		return max(0, n-p.up.keep)
	}
	return 0
}

// spare is what limit i has that nobody here is to have.
func (p *Pool) spare(r *Record, i int) int64 {
	if r.Limits[i].Kind == Bucket {
		return 0
	}
	mine := p.up.mine
	if p.short == 0 && !p.wait { // whoever stood here has left
		mine = 0
	}
	return max(0, r.freeOf(i)-p.calls-mine)
}

// giveUp returns to Anywhere what nobody here is to have.
func (p *Pool) giveUp(clk time.Duration, r *Record) {
	if r.Parent == nil {
		return
	}
	for i := range r.Limits {
		r.Parent.Returned[i] += p.owes(clk, r, i)
	}
	p.up.shed = false
	if !p.RecalledByParent(clk) {
		p.up.mine = 0
	}
}

// upMay reports whether Anywhere may still have something to lend.
func (p *Pool) upMay(clk time.Duration) bool {
	return p.rec.Parent != nil && clk < p.up.until && !p.up.asked
}
