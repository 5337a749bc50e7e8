package slot

import (
	"slices"
	"time"
)

// What Anywhere knows of the data centers that borrow from it, beside their waiting visitors: which
// part their traffic has earned, and how fast slots may go to waiting visitors.

// site is what a counter has reported about itself.
type site struct {
	at      time.Duration // own clock when it last answered a recall, or requested again
	traffic int64         // new users per window, over the last minutes
	idle    int64         // unused slots
}

// mostSaid bounds the numbers that a counter reports about itself: the greatest that a limit may
// have.
const mostSaid = 1 << 40

// mostLoans bounds the loans in a record. More lives of borrowers wait until others are forgotten.
// Chosen: 40 B each.
const mostLoans = 1 << 13

// noteSite records what the sender of x reports about itself and its waiting visitors.
func (p *Pool) noteSite(clk time.Duration, x *Sync) {
	if !p.par.Counters {
		return
	}
	if p.sites == nil {
		p.sites = map[LoanID]site{}
	}
	p.noteFront(clk, x)
	s := site{at: clk, traffic: min(max(0, x.Traffic), mostSaid), idle: min(max(0, x.Idle), mostSaid)}
	if f := p.fronts[x.Loan]; f != nil && f.at == f.since { // sent before anybody was recalled
		s.at = p.sites[x.Loan].at
	}
	p.sites[x.Loan] = s
}

// part returns what a borrower's traffic has earned of all unused slots, including those that the
// others hold. It is rounded down; what nobody has earned stays here (Cloudflare, "How Waiting Room
// makes queueing decisions"; see Split).
func (p *Pool) part(loan LoanID) int64 {
	if !p.par.Counters {
		return 0
	}
	r := p.newest()
	unused, all, mine := max(0, r.Free()), []int64{}, -1
	for i := range r.Loans {
		s, ok := p.sites[r.Loans[i].ID]
		if !ok || r.Loans[i].Over > 0 {
			continue
		}
		if r.Loans[i].ID == loan {
			mine = len(all)
		}
		unused += s.idle
		all = append(all, s.traffic)
	}
	if mine < 0 {
		return 0
	}
	parts, _ := Split(unused, r.window(), all)
	return parts[mine]
}

// plenty returns which limits have enough free slots for all waiting visitors, plus a quarter of
// the limit. The quarter is chosen. Free slots of those limits need not come back. Otherwise a data
// center that is cut off could not reuse the slots that its visitors leave.
func (p *Pool) plenty(clk time.Duration) (bits uint64) {
	if !p.par.Counters {
		return 0
	}
	need := int64(0)
	for _, f := range p.fronts {
		if clk-f.at < queueKept {
			need += f.need
		}
	}
	r := p.newest()
	for i := range r.Limits {
		if n := r.freeOf(i); n > need && n > r.Limits[i].N/4 {
			bits |= 1 << i
		}
	}
	return bits
}

// window returns the number that the traffic of data centers is measured against: the limit of new
// users, or of users at once where there is no such limit.
func (r *Record) window() int64 {
	for i := range r.Limits {
		if r.Limits[i].Kind == PerWindow {
			return r.Limits[i].N
		}
	}
	return r.Limits[0].N
}

// Space sets the time between slots lent for waiting visitors, so that a limit per window does not
// cause bursts. 0 means no spacing. The next slot follows the last one by the new step.
func (p *Pool) Space(step time.Duration) {
	if p.lendAt != 0 {
		p.lendAt += step - p.step
	}
	p.step = step
}

// lendDue reports whether the next slot may go to a waiting visitor. A visitor that is held while
// there are slots does not count as waiting. Spacing applies only after a counter has been answered
// that there are none, and as long as any counter reports a queue.
func (p *Pool) lendDue(clk time.Duration) bool {
	if p.lined && !p.queueing(clk) && clk-p.linedAt >= queueKept {
		p.lined = false
	}
	return p.step == 0 || !p.lined || clk >= p.lendAt
}

// lendBehind is how far lending may be behind and still catch up, because the counter whose turn it
// is may have no open request for a round trip. Chosen.
const lendBehind = time.Second / 2

// lent records that a slot was lent for a waiting visitor.
func (p *Pool) lent(clk time.Duration) {
	if !p.lined {
		p.lendAt = clk + p.step
		return
	}
	p.lendAt = max(p.lendAt, clk-max(p.step, lendBehind)) + p.step
}

// LendAt returns when the next slot may go to waiting visitors, own clock. 0 means at once.
func (p *Pool) LendAt(clk time.Duration) time.Duration {
	switch {
	case p.notYet(clk) > 0:
		return p.up.freshAt
	case p.lendDue(clk):
		return 0
	}
	return p.lendAt
}

// doubt is the longest time that Anywhere looks for a slot before it answers that there is none.
// Chosen: less than a newcomer is held.
const doubt = time.Second

// nothing decides whether there is no slot anywhere for waiting visitors. This is so once all
// counters have reported it since the visitors began to wait. A counter with an open request can
// report slots that came back meanwhile only with its next Sync. So when all other counters have
// reported, it is answered that it should request again. told reports for a request whether to
// answer it now.
func (p *Pool) nothing(clk time.Duration) (told func(*Sync) bool) {
	if !p.par.Counters || p.lined {
		return func(*Sync) bool { return false }
	}
	again := map[LoanID]bool{}
	for _, h := range p.held {
		f := p.fronts[h.x.Loan]
		if f == nil || !p.unmet(h.x) || p.rec.Free() > p.calls {
			continue
		}
		others, all := p.allUsed(f.since)
		again[h.x.Loan] = others && f.at == f.since
		p.lined = p.lined || all || clk-f.since >= doubt
	}
	return func(x *Sync) bool { return p.unmet(x) && (p.lined || again[x.Loan]) }
}

// allUsed returns, as all, whether each counter has reported since a time that none of its slots is
// unused, and as others, the same for the counters without an open request.
func (p *Pool) allUsed(since time.Duration) (others, all bool) {
	others, all = true, true
	for i := range p.rec.Loans {
		l := &p.rec.Loans[i]
		s := p.sites[l.ID]
		if l.Over == 0 && l.out(p.rec) && (s.at < since || s.idle > 0) {
			all = false
			others = others && p.fronts[l.ID] != nil
		}
	}
	return others, all
}

// inTurn reports whether visitors wait at counters, so that all counters are answered at the same
// times. An answer for each slot would be a message between data centers for each visitor. A
// counter that is answered later than another would call its visitors after visitors that arrived
// later.
func (p *Pool) inTurn(clk time.Duration) bool {
	return p.par.Counters && p.lined && p.queueing(clk)
}

// toldInTurn reports whether a counter needs no recall: nothing is lent to it, or visitors wait there,
// so that it is answered each turn. Each of these answers requests unused slots.
func (p *Pool) toldInTurn(clk time.Duration, l *Loan) bool {
	f := p.fronts[l.ID]
	return l.Over > 0 || !l.out(p.rec) || f != nil && clk-f.at < siteGap
}

// turn returns when all counters are answered next, own clock.
func (p *Pool) turn(clk time.Duration) time.Duration {
	gap := max(1, p.par.RecallWait)
	return (clk/gap + 1) * gap
}

// presumedLoan is the loan for what a lost record had lent. Drawn loan IDs are never that small.
const presumedLoan LoanID = 1

// Presume makes the record of an Anywhere whose former data center is lost. All slots are presumed
// lent. Each data center's Sync brings its part back into the record. The rest returns when no
// counter can use it any more: after the term of a counter and its longest session
// (docs/protocol.md §9). p are the parameters of Anywhere. Its time continues from now, in an epoch
// after all known ones.
func (r *Record) Presume(p Params, name WriteName, now Time) {
	p = p.WithDefaults()
	r.Name, r.Time = name, max(1, now)
	all := int64(0)
	for i := range r.Limits {
		all = max(all, r.Limits[i].N)
	}
	l := Loan{ID: presumedLoan, Borrower: "not heard yet", Granted: all, Over: r.Time}
	for i := range r.Limits {
		l.Returned[i] = all - r.Limits[i].N
		l.Back[i] = r.Time.Add(p.Drift.Up(p.Term)).Add(p.Drift.Stretch(r.Limits[i].Longest + p.Sigma))
	}
	r.Loans = append(r.Loans, l)
}

// reinstates reports whether x may claim slots that are presumed lent. A sender whose own term is
// over may have lost them to others long ago, so it begins anew. If x claims more than is presumed,
// the limit was lowered since: nothing is lent until those slots are back.
func (r *Record) reinstates(x *Sync) bool {
	p := r.loan(presumedLoan)
	if p == nil || x.Lapsed || x.Loan == presumedLoan {
		return false
	}
	for i := range r.Limits {
		if n := x.Granted - x.Returned[i]; n < 0 || x.Granted > mostSaid || x.Returned[i] < 0 {
			return false
		}
	}
	return true
}

func (r *Record) reinstate(x *Sync) {
	p := r.loan(presumedLoan)
	for i := range r.Limits {
		p.Returned[i] += min(p.Lent(i), x.Granted-x.Returned[i])
	}
	r.Loans = append(r.Loans, Loan{
		ID: x.Loan, Borrower: x.Borrower, Granted: x.Granted, Returned: x.Returned,
	})
}

// DeclareOff takes back the loans of data centers with the next write, after an operator declared
// them off. It does not wait for their terms, but still for their sessions. Slots presumed lent
// without a name return then too, if all other data centers have reported what they hold.
// DeclareOff returns those that have not.
func (p *Pool) DeclareOff(clk time.Duration, off, others []string) (missing []string) {
	alive := map[string]bool{}
	for i := range p.rec.Loans {
		l := &p.rec.Loans[i]
		alive[l.Borrower] = alive[l.Borrower] || l.Over == 0
		if slices.Contains(off, l.Borrower) && l.Over == 0 {
			p.backAt[l.ID] = min(clk, p.backAt[l.ID])
		}
	}
	for _, site := range others {
		if !alive[site] {
			missing = append(missing, site)
		}
	}
	p.allSpoke = len(missing) == 0
	return missing
}

// IsHeard reports whether a borrower has a live loan.
func (p *Pool) IsHeard(borrower string) bool {
	return slices.ContainsFunc(p.rec.Loans, func(l Loan) bool {
		return l.Borrower == borrower && l.Over == 0
	})
}

// MoveTo makes the next write the last of this record, because Anywhere moves to another data
// center. "" cancels that, unless the write is in flight.
func (p *Pool) MoveTo(site string) { p.moved = site }

// Presumed returns how many slots of the first limit are lent to counters that sent nothing for
// their term, by the confirmed record.
func (p *Pool) Presumed() (n int64) {
	for i := range p.rec.Loans {
		l := &p.rec.Loans[i]
		if !l.Dead && l.Over > 0 && p.rec.Time < l.Back[0] {
			n += l.Lent(0)
		}
	}
	return n
}
