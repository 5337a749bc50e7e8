package slot

import (
	"slices"
	"time"
)

// What Anywhere knows of the data centres that borrow from it, beside who stands before
// their doors: whose traffic has earned which part, and how fast slots may go to people
// who wait.

// site is what a counter has said of itself.
type site struct {
	at      time.Duration // own clock when it last answered a recall, or asked again
	traffic int64         // new users in a window, over the last minutes
	idle    int64         // slots that nobody uses
}

// mostSaid bounds what a counter says of itself: as many as a limit may have.
const mostSaid = 1 << 40

// mostLoans bounds the lines of a record: more lives of borrowers wait until others are
// forgotten. Chosen: 40 B each.
const mostLoans = 1 << 13

// noteSite remembers what x's sender says of itself and of those before its door.
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

// part is what a borrower's traffic has earned of all slots that nobody uses, those that
// the others hold included: rounded down, what nobody has earned stays here
// (Cloudflare, "How Waiting Room makes queueing decisions"; see Split).
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

// plenty tells which limits have enough free for all who stand before any door, and a
// quarter of all, which is chosen: what is free of them need not come back. A data centre
// that is cut off could else let nobody in for the slots that its visitors leave.
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

// window is what the traffic of data centres is measured against: the limit of new users,
// or of users where there is none.
func (r *Record) window() int64 {
	for i := range r.Limits {
		if r.Limits[i].Kind == PerWindow {
			return r.Limits[i].N
		}
	}
	return r.Limits[0].N
}

// Space says how far apart slots are lent to people who wait, so that a limit per window
// does not pulse; 0 is not at all.
func (p *Pool) Space(step time.Duration) { p.step = step }

// lendDue reports whether the next slot may go to somebody who waits. Who stands before
// a door while there are slots does not wait: only once somebody was told that there are
// none, and as long as any queue is told.
func (p *Pool) lendDue(clk time.Duration) bool {
	if p.lined && !p.queueing(clk) && clk-p.linedAt >= queueKept {
		p.lined = false
	}
	return p.step == 0 || !p.lined || clk >= p.lendAt
}

// lendBehind is how far lending may be behind and still catch up: whoever is first may not
// be asking for the length of a round trip. Chosen.
const lendBehind = time.Second / 2

// lent notes a slot lent to somebody who stands before a door.
func (p *Pool) lent(clk time.Duration) {
	if !p.lined {
		p.lendAt = clk + p.step
		return
	}
	p.lendAt = max(p.lendAt, clk-max(p.step, lendBehind)) + p.step
}

// LendAt is when the next slot may go to those who wait, own clock; 0 is at once.
func (p *Pool) LendAt(clk time.Duration) time.Duration {
	switch {
	case p.notYet(clk) > 0:
		return p.up.freshAt
	case p.lendDue(clk):
		return 0
	}
	return p.lendAt
}

// doubt is how long Anywhere looks for a slot at most before it says that there is none. Chosen: less
// than a newcomer is held.
const doubt = time.Second

// nothing decides for those who stand before doors whether there is no slot anywhere: once all counters
// have said so since then. One whose own question is open can say only with the next what came back
// there meanwhile: when all the others have said so, it is told to ask again. told are the questions to
// be answered now.
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

// allUsed reports whether each counter has said, since a time, that nobody leaves a slot of it unused;
// others: those with no question of their own.
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

// inTurn reports whether people wait before the doors of counters, so that all counters are answered
// at the same times. An answer for each slot would be a message between data centers for each visitor,
// and a counter that is answered later than another would call its visitors later than those who came
// after them.
func (p *Pool) inTurn(clk time.Duration) bool {
	return p.par.Counters && p.lined && p.queueing(clk)
}

// turn is when all are answered next, own clock.
func (p *Pool) turn(clk time.Duration) time.Duration {
	gap := max(1, p.par.RecallWait)
	return (clk/gap + 1) * gap
}

// presumedLoan is the line of what was lent by a record that is lost. Drawn numbers are
// never that small.
const presumedLoan LoanID = 1

// Presume makes the record of an Anywhere whose former home is gone: all is presumed
// lent, each data centre's Sync brings its part back into the books, and what nobody
// speaks for returns when no counter can use it any more: after the term of a counter and
// its longest stay (docs/protocol.md §9). p are the parameters of Anywhere. Its time goes
// on from now, in an epoch after all that were heard of.
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
		l.Back[i] = r.Time.Add(p.Rho.Up(p.Term)).Add(p.Rho.Stretch(r.Limits[i].Longest + p.Sigma))
	}
	r.Loans = append(r.Loans, l)
}

// reinstates reports whether x speaks for slots that are presumed lent. One whose own
// term is over may have lost them to others long ago: it begins anew. More than are
// presumed are of a limit that was lowered since: nothing is lent until they are back.
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

// DeclareOff takes the loans of data centres back with the next write, on an operator's
// word that they are off: their term need not run out, their stays still do. What is
// presumed lent without a name returns then too, if all the others have said what they
// hold. It tells which of them have not.
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

// Hears reports whether a borrower's loan is alive.
func (p *Pool) Hears(borrower string) bool {
	return slices.ContainsFunc(p.rec.Loans, func(l Loan) bool {
		return l.Borrower == borrower && l.Over == 0
	})
}

// MoveTo makes the next write the last of this record: Anywhere goes on in another data
// centre; "" takes that back, but for a write that is under way.
func (p *Pool) MoveTo(site string) { p.moved = site }

// Presumed is how many slots of the first limit are lent to counters that were not heard
// for their term, as the confirmed record has it.
func (p *Pool) Presumed() (n int64) {
	for i := range p.rec.Loans {
		l := &p.rec.Loans[i]
		if !l.Dead && l.Over > 0 && p.rec.Time < l.Back[0] {
			n += l.Lent(0)
		}
	}
	return n
}
