package slot

import (
	"maps"
	"slices"
	"time"
)

// Begin processes all queued Syncs and claims. It returns the replies that the confirmed record
// already allows, and the next write if there is something to write or force is set. While a write
// is in flight, Begin does nothing.
func (p *Pool) Begin(clk time.Duration, force bool) (now []Reply, write *Record) {
	if !p.serving || p.wr != nil {
		return nil, nil
	}
	if p.termOver(clk) {
		p.queue = nil // own loan is over or unknown: no time, no term, no answer
		if len(p.up.heard) == 0 {
			return nil, nil
		}
	}
	var build []*Sync
	for _, x := range p.queue {
		if reply, again, drop := p.sort(clk, x); again {
			now = append(now, reply)
		} else if !drop && !slices.ContainsFunc(build, func(y *Sync) bool {
			return y.Loan == x.Loan && y.Seq == x.Seq // a duplicate
		}) {
			build = append(build, x)
		}
	}
	p.queue = nil
	fresh := len(build) > 0 || len(p.claims) > 0 ||
		len(p.up.heard) > 0 || p.limits != nil
	told := p.nothing(clk)
	var first []*Sync // earlier requests are answered first
	for _, h := range p.held {
		if again := p.hinders(clk, h); again || clk >= h.until || told(h.x) {
			r := Reply{h.x, p.answer(clk, h.x)}
			r.Answer.Again = again && !r.Answer.Over
			now = append(now, r)
		} else {
			first = append(first, h.x)
			force = force || p.rec.Free() > p.calls && p.lendDue(clk) ||
				p.wait && !p.par.Counters // visitors wait in line here, so no newcomer is held
		}
	}
	build = append(first, build...)
	if !fresh && !force {
		p.held = slices.DeleteFunc(p.held, func(h pending) bool {
			return p.hinders(clk, h) || clk >= h.until || told(h.x)
		})
		return now, nil
	}
	held := p.held
	p.held = nil
	p.build(clk, build, held)
	return now, p.wr
}

// sort decides what happens to a Sync: an immediate answer, a drop, or a part in the next write.
func (p *Pool) sort(clk time.Duration, x *Sync) (r Reply, again, drop bool) {
	if x.Seen.Newer(p.rec.Name) {
		p.rolled, p.ahead = true, max(p.ahead, x.Seen.Epoch)
		return r, false, true
	}
	l := p.rec.loan(x.Loan)
	switch {
	case l == nil && (x.Granted == 0 || p.rec.reinstates(x)):
		return r, false, false
	case l == nil || l.Dead || x.Granted > l.Granted:
		// The loan is written off, or a late duplicate of a loan's first Sync has created it again.
		// The new loan never granted what the borrower holds.
		return Reply{x, p.dead(x)}, true, false
	case x.Seq.Before(l.Seq):
		return r, false, true
	case x.Seq == l.Seq:
		if slices.ContainsFunc(p.held, func(h pending) bool { return h.x.Loan == x.Loan }) {
			return r, false, true // its request is still open
		}
		return Reply{x, p.answer(clk, x)}, true, false
	case len(x.Items) == 0 && x.Returned == l.Returned && l.Over == 0 &&
		(x.Need == 0 || p.wait && !p.par.Counters) && (x.Want == 0 || p.wait):
		l.Seq = x.Seq // a heartbeat: answered without a write
		p.settle(x)
		p.noteSite(clk, x)
		return Reply{x, p.answer(clk, x)}, true, false
	}
	return r, false, false
}

func (p *Pool) settle(x *Sync) {
	if x.Est == p.epoch {
		p.settled[x.Loan] = x.Settled
	} else {
		p.settled[x.Loan] = 0
	}
}

// build makes the next write. It first applies what has happened by now, then what the messages
// report.
func (p *Pool) build(clk time.Duration, syncs []*Sync, held []pending) {
	p.short = 0
	r := p.rec.Clone()
	r.Name.Writes++
	r.Name.Epoch = p.epoch
	r.Time = p.CounterTime(clk)
	p.setLimits(r)
	p.shorten(r)
	p.hearUp(r)
	p.goOn(clk, r, p.settledUntil(clk, r, r.Time))
	p.free(clk, r)
	p.refill(r)
	p.takeBack(clk, r)
	p.allSpoke = false
	for _, x := range syncs {
		p.apply(clk, r, x)
	}
	p.evict(clk, r, syncs)
	p.sure(r)
	claims := p.claims
	p.making, p.claims = p.making[:0], nil
	for _, c := range claims {
		if !p.termOver(clk) && p.claim(r, c) {
			p.making = append(p.making, c)
			r.dropPlace(c.place)
		} else {
			p.claims = append(p.claims, c) // it waits until an end is settled
		}
	}
	r.Claimed = slices.DeleteFunc(r.Claimed, func(c Claimed) bool {
		return r.Time > max(c.At, p.toldAt[c.ID]).Add(claimKept)
	})
	for _, m := range [...]map[SessionID]Time{p.toldAt, p.untold, p.usedAt} {
		maps.DeleteFunc(m, func(_ SessionID, at Time) bool { return r.Time > at.Add(claimKept) })
	}
	r.Claimed = r.Claimed[max(0, len(r.Claimed)-mostClaimed):]
	got := map[LoanID]int64{}
	if p.par.Counters {
		got = p.share(clk, r, syncs)
	}
	for _, x := range syncs {
		p.lend(clk, r, x, held, got)
	}
	p.giveUp(clk, r)
	for i := range r.Limits {
		if r.freeOf(i) >= 0 {
			r.Limits[i].InForce = r.capacity(i)
		} else {
			r.Limits[i].InForce = max(r.Limits[i].InForce, r.capacity(i))
		}
	}
	r.Left = p.gone.latest(r.Time)
	if p.finding = p.found != nil; p.finding {
		r.Found, p.found = *p.found, nil
	}
	r.Waiting = p.wait || p.lined
	r.Quiet = clk < p.quiet
	if p.line != nil {
		r.Next, r.Issued, r.Frontier = p.line.Next, p.line.Issued, p.line.Frontier
		r.Skipped, r.Unconfirmed = p.line.Skipped, p.line.Unconfirmed
		r.Heads, r.Draws, r.Lanes = p.line.Heads, p.line.Draws, p.line.Lanes
		r.Moved = p.line.Moved
		r.putReleased(p.line.Released)
		p.line = nil
	}
	for _, c := range p.making {
		r.useReleased(c.id)
	}
	for _, c := range p.claims {
		if !c.back { // else the record has the claim, or the ticket is used up
			r.keepPlace(c.place)
		}
	}
	if p.resign {
		r.Host = ""
	}
	r.MovedTo = p.moved
	p.wr, p.built = r, clk
}

func (p *Pool) setLimits(r *Record) {
	if p.setting = p.limits != nil; p.limits == nil {
		return
	}
	for i, l := range p.limits {
		s := &r.Limits[i]
		if i == 0 && l.Per != s.Per {
			r.breakSpan(p.epoch, r.Time) // earlier renewals may now have another end
		}
		s.Tokens += min(0, l.N-s.N) // a smaller bucket holds fewer tokens; a larger one fills up
		if l.Per != s.Per {
			s.Since = r.Time
		}
		s.Limit = l
		s.Longest = max(s.Longest, l.Per)
	}
	r.LimitRev, p.limits = p.rev, nil
}

// shorten resets Longest once no session under a former, longer limit can still run. Such sessions
// were opened at most one term after the change.
func (p *Pool) shorten(r *Record) {
	for i := range r.Limits {
		s := &r.Limits[i]
		if s.Longest > s.Per &&
			r.Time > s.Since.Add(p.par.Drift.Stretch(s.Longest+2*p.par.Term+p.par.Sigma)) {
			s.Longest = s.Per
		}
	}
}

func (p *Pool) refill(r *Record) {
	for i := range r.Limits {
		if r.Limits[i].Kind == Bucket {
			r.refill(i, &p.par)
		}
	}
}

// free drops the sessions that ended. An end is kept for renewals that are still on their way:
// until every live loan has reported past it, or until settle has passed since.
func (p *Pool) free(clk time.Duration, r *Record) {
	until := p.settledUntil(clk, r, r.Time)
	for i := range r.Limits {
		drop := func(c EndCount) {}
		if i == 0 && r.Limits[i].Kind == AtOnce {
			drop = func(c EndCount) { p.forget(c.End); p.ended += c.N }
		}
		r.Limits[i].Ends.Free(until, drop)
	}
}

// settledUntil returns the latest end that may be freed at counter time now.
func (p *Pool) settledUntil(clk time.Duration, r *Record, now Time) Time {
	until := now
	for i := range r.Loans {
		l := &r.Loans[i]
		if l.Over == 0 && clk < p.backAt[l.ID] {
			until = min(until, max(p.courtesy(now), p.settled[l.ID]))
		}
	}
	return until
}

// takeBack marks loans whose term is surely over. It writes off loans whose slots are no longer
// presumed used (docs/protocol.md §6).
func (p *Pool) takeBack(clk time.Duration, r *Record) {
	for i := range r.Loans {
		l := &r.Loans[i]
		if l.ID == presumedLoan && p.allSpoke {
			for k := range r.Limits {
				l.Back[k] = min(l.Back[k], p.presumed(&r.Limits[k], r.Time))
			}
		}
		if l.Over == 0 && clk >= p.backAt[l.ID] {
			p.over(r, l, r.Time)
			r.breakSpan(p.epoch, r.Time) // it may have seen visitors and not reported them
		}
		if l.Over > 0 {
			for k := range r.Limits {
				l.Dead = l.Dead || r.Time >= l.Back[k]
			}
		}
	}
	r.Loans = slices.DeleteFunc(r.Loans, func(l Loan) bool {
		over := l.Over > 0 && !l.out(r) && l.ID != presumedLoan // others may have more to report
		if l.Over > 0 && !over {
			over = true
			for k := range r.Limits {
				over = over && r.Time >= l.Back[k]
			}
		}
		if over {
			delete(p.backAt, l.ID)
			delete(p.settled, l.ID)
			delete(p.fronts, l.ID)
			delete(p.sites, l.ID)
			delete(p.gone.told, l.ID)
		}
		return over
	})
}

// over takes a loan back. Its lent slots are presumed used for a while.
func (p *Pool) over(r *Record, l *Loan, at Time) {
	if l.Over > 0 {
		return
	}
	l.Over = max(1, r.Time)
	for k := range r.Limits {
		l.Back[k] = p.presumed(&r.Limits[k], at)
	}
}

// sure records the time up to which r contains every renewal that any borrower has seen.
func (p *Pool) sure(r *Record) {
	to, alive := Never, false
	for i := range r.Loans {
		if l := &r.Loans[i]; l.Over == 0 {
			to, alive = min(to, p.settled[l.ID]), true
		}
	}
	r.Sure = slices.DeleteFunc(r.Sure, func(s Span) bool { // ends requested then have passed
		return s.Epoch != p.epoch && s.To.Add(r.Limits[0].Longest+p.par.Term) < r.Time
	})
	if s := &r.Sure[len(r.Sure)-1]; alive && to > max(s.From, s.To) {
		s.To = to
	}
}

// presumed returns the time until which a slot taken back at over may still be used.
func (p *Pool) presumed(s *LimitState, over Time) Time {
	switch {
	case s.Kind == Bucket:
		return over
	case p.par.Counters:
		return over.Add(p.par.Drift.Stretch(s.Longest + p.par.Sigma))
	case s.Kind == PerWindow:
		return p.par.windowEnd(s.Limit, over)
	}
	return p.par.CeilEnd(s.Limit, over.Add(s.Longest))
}

// apply processes one Sync: the slots that it returned, and its items.
func (p *Pool) apply(clk time.Duration, r *Record, x *Sync) {
	l := r.loan(x.Loan)
	if l == nil {
		switch {
		case len(r.Loans) >= mostLoans: // it requests again once other loans are gone
			return
		case x.Granted == 0:
			r.Loans = append(r.Loans, Loan{ID: x.Loan, Borrower: x.Borrower})
		case r.reinstates(x):
			r.reinstate(x)
		default:
			return
		}
		l = &r.Loans[len(r.Loans)-1]
		p.backAt[l.ID] = clk + p.par.Drift.Up(p.par.Term)
	}
	if l.Dead || x.Seq == l.Seq { // x.Seq == l.Seq: an open request, already processed
		return
	}
	l.Seq, l.Over, l.Back = x.Seq, 0, [MaxLimits]Time{}
	p.noteSite(clk, x)
	p.settle(x)
	for i := range r.Limits {
		back := max(0, min(x.Returned[i]-l.Returned[i], l.Lent(i)))
		l.Returned[i] += back
		if r.Limits[i].Kind == Bucket {
			r.Limits[i].Tokens += back
		}
	}
	if p.par.Counters { // a counter keeps the records of its own sessions
		return
	}
	l.Opened = max(l.Opened, min(x.Opened, l.Granted-l.Returned[0]))
	for i := range x.Items {
		p.item(r, &x.Items[i])
	}
}

// lend decides how many slots x is granted, and whether its request stays open.
func (p *Pool) lend(clk time.Duration, r *Record, x *Sync, held []pending, got map[LoanID]int64) {
	l := r.loan(x.Loan)
	if l == nil && len(r.Loans) >= mostLoans {
		return
	}
	if l == nil || l.Dead {
		p.done = append(p.done, pending{x: x})
		return
	}
	at, until, open := clk, clk+p.par.RecallWait, false
	if p.inTurn(clk) {
		until = p.turn(clk)
	}
	for _, h := range held {
		if h.x == x {
			at, until = h.at, h.until
		}
	}
	free := r.Free() - p.calls
	if p.upLined(clk) {
		free = p.mayUse(clk, free) - p.notYet(clk)
	}
	for _, n := range got { // slots that the order has given to others
		free -= n
	}
	free += got[x.Loan]
	if free > 0 && !p.wait && clk >= p.quiet && !p.termOver(clk) {
		n := p.grant(clk, r, x, free, got[x.Loan])
		got[x.Loan] -= min(n, got[x.Loan])
		l.Granted += n
		p.up.mine = max(0, p.up.mine-n)
		for i := range r.Limits {
			if r.Limits[i].Kind == Bucket {
				r.Limits[i].Tokens -= n
			}
		}
	}
	if x.Need > l.Granted-x.Granted && !p.wait {
		p.short += x.Need - (l.Granted - x.Granted)
		switch {
		case p.lined && p.par.Counters: // the slots of its turn, or more
			p.recall, open = p.recall || p.others(clk, r, l), true
		case p.upLined(clk): // visitors wait elsewhere, so visitors here must wait too
		case l.Granted != x.Granted: // the rest is requested with the next Sync
			p.recall = p.recall || p.par.Counters && p.others(clk, r, l)
		case p.others(clk, r, l):
			p.recall, open = true, true
		}
		p.lined = p.lined || !open && l.Granted == x.Granted
	}
	p.done = append(p.done, pending{x, at, until, open})
}

// grant returns how many of the free slots x gets. got is what x gets by the order between
// counters.
func (p *Pool) grant(clk time.Duration, r *Record, x *Sync, free, got int64) int64 {
	need, want := x.Need, x.Want
	if p.RecalledByParent(clk) { // other data centers have waiting visitors
		want = 0
	}
	if p.par.Counters {
		got = min(free, got)
		if p.queueing(clk) {
			return got
		}
		ahead := p.par.Allotment.grant(free-got, 0, want, int64(len(r.Loans)))
		return got + min(want, free-got, max(ahead, p.part(x.Loan)-p.sites[x.Loan].idle-got))
	}
	return p.par.Allotment.grant(free, need, want, int64(len(r.Loans)))
}

// hindersAfter is the least time that a request stays open. Chosen: the others are recalled in that
// time.
const hindersAfter = 20 * time.Millisecond

// hinders reports whether only the sender of an open request can report that a session is over. It
// reports that only with its next Sync.
func (p *Pool) hinders(clk time.Duration, h pending) bool {
	if p.par.Counters || p.wait || clk-h.at < hindersAfter || clk >= h.until {
		return false
	}
	end := p.Unsettled(clk)
	return end > 0 && p.settled[h.x.Loan] < end
}

// others reports whether a recall could free a slot: another borrower holds slots, or an end is not
// settled yet.
func (p *Pool) others(clk time.Duration, r *Record, me *Loan) bool {
	for i := range r.Loans {
		l := &r.Loans[i]
		if l.ID != me.ID && l.Over == 0 && l.out(r) {
			return true
		}
	}
	for i := range r.Limits {
		if all := r.Limits[i].Ends.All(); len(all) > 0 && all[0].End <= r.Time {
			return true
		}
	}
	return p.upMay(clk)
}
