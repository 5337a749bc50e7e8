package slot

import (
	"cmp"
	"time"
)

// upper is a counter's own loan from Anywhere. A grant counts only with the counter's own write. A
// return is in the counter's record before it is sent.
type upper struct {
	until   time.Duration // end of the counter's own term, own clock
	n       uint64
	fly     *Sync
	sent    time.Duration
	heard   []Answer
	give    bool          // Anywhere requests unused slots, until a later answer ends this
	giveAt  time.Duration // own clock when it last did
	mine    int64         // lent for visitors that wait here and not used yet
	fresh   int64         // of mine: slots of the latest turn, which may be used
	freshAt time.Duration // from then on, own clock
	lined   bool          // visitors wait in line at some counter, perhaps this one,
	linedAt time.Duration // as received then, own clock
	seen    WriteName
	est     Estimate
	asked   bool   // the lender above had nothing for the last need
	most    int64  // greatest grant received for the loan, written or not
	plenty  uint64 // limits of which Anywhere needs no slots back
	traffic int64  // as last sent
	part    int64  // what the traffic here has earned of all unused slots, as last received
	shed    bool   // the next write returns what is free beyond keep
	keep    int64
	paused  time.Duration // how long counter time has stood still since Anywhere last answered
}

// ParentSync builds this counter's next Sync to Anywhere from the confirmed record, or repeats the
// unanswered one. Granted is the greatest grant received, written or not. Otherwise a counter that
// received a grant, was stopped, and wrote the grant after its loan had been written off would
// create a new loan with the same number (found by the walk).
func (p *Pool) ParentSync(clk time.Duration, want, traffic int64, queue []Time) *Sync {
	if !p.serving || p.rec.Parent == nil {
		return nil
	}
	if x := p.up.fly; x != nil { // repeated unchanged, except for a term that has ended
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
		Loan: u.Loan, Borrower: cmp.Or(p.par.Datacenter, p.host), Seq: Seq{p.epoch, p.up.n}, Seen: p.up.seen,
		Est: p.up.est.Epoch, Granted: max(u.Granted, p.up.most), Returned: u.Returned,
		Want: want, Traffic: traffic, Lapsed: p.lapsed(clk),
	}
	p.up.traffic = traffic
	coming := p.coming()
	x.Need, x.Idle = max(0, p.short-coming), p.ParentIdle(clk)
	if stand := max(0, want); p.wait { // visitors that have left or gone silent need no slot
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
		x.Settled = p.up.est.Lo(clk, p.par.Drift)
	}
	p.up.fly, p.up.sent = x, clk
	return x
}

// ParentIdle returns how many slots here are unused. While Anywhere recalls slots, it also counts
// slots that workers may not have used, and sessions whose end has passed, until the workers report
// that they did not continue. Slots that a write in flight returns still count, because the return
// has not been sent.
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

// IsCold reports whether this counter must send nothing, because its own term is over or Anywhere
// has not answered yet. It then drops requests.
func (p *Pool) IsCold(clk time.Duration) bool { return p.serving && p.termOver(clk) }

// termOver reports whether this counter's own term is over. Nothing may begin then, whatever was
// received since.
func (p *Pool) termOver(clk time.Duration) bool {
	return p.rec.Parent != nil && clk >= p.up.until
}

// lapsed reports whether Anywhere may have taken the counter's loan back, because its term is over.
// The term of a room that was the root has not begun.
func (p *Pool) lapsed(clk time.Duration) bool {
	return p.termOver(clk) && !(p.rec.WasRoot && !p.up.est.Known())
}

// ParentInFlight returns the Sync to Anywhere that is not answered yet, or nil if there is none.
func (p *Pool) ParentInFlight() *Sync { return p.up.fly }

// NeedsParent reports whether a borrower in need or the line here has a visitor that only Anywhere
// can help.
func (p *Pool) NeedsParent(clk time.Duration) bool {
	if p.rec.Parent == nil {
		return false
	}
	coming := p.coming()
	return p.short > coming && !p.wait || p.wait && p.mayUse(clk, p.Free())+coming <= 0
}

// coming returns how many slots were granted that no write contains yet. They are for the first
// visitors that wait here, and must not be requested again.
func (p *Pool) coming() int64 { return max(0, p.up.most-p.newest().Parent.Granted) }

// arrivals converts up to need arrivals from this counter's time to Anywhere's, using the middle of
// the estimate. Newcomers held by a worker have just arrived.
func (p *Pool) arrivals(clk time.Duration, need int64, queue []Time) []Time {
	if !p.up.est.Known() {
		return nil
	}
	lo, hi := p.up.est.Lo(clk, p.par.Drift), p.up.est.Hi(clk, p.par.Drift)
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

// ReceiveParent processes Anywhere's answer. It reports whether a write is needed.
func (p *Pool) ReceiveParent(clk time.Duration, a Answer) bool {
	// Only the answer to the request in flight counts. An older one may arrive late, or twice.
	if p.up.fly == nil || a.Loan != p.up.fly.Loan || a.Seq != p.up.fly.Seq {
		return false
	}
	sent := p.up.sent
	need := p.up.fly.Need
	p.up.fly = nil
	if !a.Over {
		// A former host of Anywhere may still answer: what it grants is not in the record of the
		// new one.
		if a.Name.Epoch < p.up.est.Epoch {
			return false
		}
		// The term runs from when the request was sent, which is surely before Anywhere granted it,
		// and is shortened by the most that this clock may be slow.
		p.up.until = max(p.up.until, sent+p.par.Drift.Down(a.Term))
		p.up.est.Receive(a.Name.Epoch, a.Time, sent, clk, p.par.Drift)
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

// inStep is the delay after which a slot that Anywhere has lent for waiting visitors may be used:
// by then the answers have arrived everywhere. Otherwise visitors in a data center near Anywhere
// would overtake earlier visitors elsewhere. Chosen: the time to the other side of the earth.
const inStep = 100 * time.Millisecond

// together returns when slots may be used that Anywhere lent at a time of its own clock: at the
// same moment on all counters.
func (p *Pool) together(clk time.Duration, at Time) time.Duration {
	lo, hi := p.up.est.Lo(clk, p.par.Drift), p.up.est.Hi(clk, p.par.Drift)
	return clk + min(inStep, max(0, inStep-(lo+(hi-lo)/2).Sub(at)))
}

// notYet returns how many slots were lent for visitors that wait here and may not be used yet.
func (p *Pool) notYet(clk time.Duration) int64 {
	if p.rec == nil || p.rec.Parent == nil || clk >= p.up.freshAt {
		return 0
	}
	return min(p.up.fresh, p.up.mine)
}

// upLined reports whether visitors wait in line at any counter. Newcomers here are behind them.
func (p *Pool) upLined(clk time.Duration) bool { return p.up.lined && clk-p.up.linedAt < queueKept }

// newUpLoan draws the loan that follows one that is over. All passes of the old loan have ended, or
// Anywhere presumes their slots used until they end (R6). None can be renewed, so a new life
// begins. Places in the line remain valid, whatever life their tickets are of.
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
				p.known, p.knownAt = map[SessionID]Time{}, map[Time]*bucket{}
			}
			continue
		}
		p.up.mine += max(0, a.Granted-r.Parent.Granted)
		r.Parent.Granted = max(r.Parent.Granted, a.Granted)
	}
	p.up.heard = nil
}

// RecallByParent records that Anywhere requests unused slots. It does no harm if the recall is
// duplicated or lost.
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

// OwesParent reports whether the next write would return any slot to Anywhere.
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

// ReturnToParent makes the next write return what is free of each limit beyond keep.
func (p *Pool) ReturnToParent(keep int64) { p.up.keep, p.up.shed = max(0, keep), true }

// HasSpare reports whether more than keep of any limit is free and not intended for a visitor here.
func (p *Pool) HasSpare(keep int64) bool {
	for i := range p.rec.Limits {
		if p.rec.Parent != nil && p.spare(p.rec, i) > keep {
			return true
		}
	}
	return false
}

// ParentPart returns what the traffic here has earned of all unused slots, by Anywhere's last
// answer.
func (p *Pool) ParentPart() int64 { return p.up.part }

// ParentTime returns bounds on Anywhere's time. ok is false before its first answer.
func (p *Pool) ParentTime(clk time.Duration) (epoch uint64, lo, hi Time, ok bool) {
	e := &p.up.est
	return e.Epoch, e.Lo(clk, p.par.Drift), e.Hi(clk, p.par.Drift), e.Known()
}

// ParentSeen returns the newest write of Anywhere that this counter knows of, and how long the term
// that it gave still runs; below 0 the term is over.
func (p *Pool) ParentSeen(clk time.Duration) (WriteName, time.Duration) {
	return p.up.seen, p.up.until - clk
}

// owes returns how many slots of limit i the next write returns to Anywhere.
func (p *Pool) owes(clk time.Duration, r *Record, i int) int64 {
	n := p.spare(r, i)
	switch {
	case p.RecalledByParent(clk) && p.up.plenty&(1<<i) != 0: // the slots for a window's traffic are enough
		return max(0, n-max(p.up.traffic, r.Parent.Granted-r.Parent.Returned[0]))
	case p.RecalledByParent(clk):
		return n
	case p.up.shed:
		return max(0, n-p.up.keep)
	}
	return 0
}

// spare returns how many slots limit i has that are not intended for a visitor here.
func (p *Pool) spare(r *Record, i int) int64 {
	if r.Limits[i].Kind == Bucket {
		return 0
	}
	mine := p.up.mine
	if p.short == 0 && !p.wait { // the visitors that waited here have left
		mine = 0
	}
	return max(0, r.freeOf(i)-p.calls-mine)
}

// giveUp returns the spare slots to Anywhere.
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
