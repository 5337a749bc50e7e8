package limittable

import (
	"slices"
	"time"

	"github.com/headgate/headgate/limit"
)

// Term is how long a borrower may use units of a key after its last request to the lender, by its
// own clock. lendDrift is the tolerance of that clock (docs/protocol.md §12). Chosen: after the
// term, what a dead borrower holds counts as used.
const (
	Term      = 5 * time.Second
	lendDrift = 1000 // one part in so many
)

// BorrowTerm is how long after its request a borrower may use a loan.
const BorrowTerm = Term - Term/lendDrift

// LendTerm is how long after a request the lender keeps the loan for the borrower.
const LendTerm = Time(Term + Term/lendDrift)

// mostLoans is the maximum number of borrowers of one key; further ones get nothing. Chosen.
const mostLoans = 4096

// lendAgain is when to request again what others hold. Chosen.
const lendAgain = 100 * time.Millisecond

// A loan is what one borrower was lent of a key. Its totals only grow, so that a lost, late or
// repeated message does no harm.
type loan struct {
	who, id           uint64
	given, used, back int64
	want, held        int64
	heard             Time // lender's own clock, which is never stepped
}

func (l *loan) out() int64 { return l.given - l.used - l.back }

// A Report is a borrower's message about a key, with its request.
type Report struct {
	Borrower uint64 // the borrower
	Loan     uint64 // chosen at the start with the key: later loans are greater
	Used     int64  // total of the loan: allowed calls
	Back     int64  // total of the loan: returned unused
	Age      time.Duration

	Need  int64 // to be lent now: at least Least of it, or nothing
	Least int64
	Want  int64 // to be lent ahead, if there is enough
	Close bool  // no more of this loan will be used

	Held   int64 // outstanding units that will be used or returned when done
	Weight int64 // weight of its waiting calls against other borrowers; 0: they do not wait
	More   int64 // how much more than Need they would like
	Spread bool  // they go one after the other, not at once
}

// A LoanState is the answer to a Report.
type LoanState struct {
	limit.Decision       // for Least
	Given          int64 // total of the loan
	Used           int64 // as reported, unless more is known
	Back           int64
	Others         int64 // lent to others and not held for a use, as far as known
	Booked         int64 // booked as used, and as of when: for Replicate
	At             Time
	Closed         bool // the loan is over; a later report begins a new one
}

// Borrow processes a report and lends. What is lent counts as used until it is reported as used,
// and then as of r.Age ago, or until it is returned. So the guarantee of the algorithm holds for
// the times of use, whenever a borrower uses its loan. A borrower that sends no report for Term
// counts as having used all it had; see Expire. clk is a clock that is never stepped.
//
// Concurrency and paced limits lend nothing: there Take decides.
func (t *Table) Borrow(now, clk Time, hash uint64, key string, r *Report) (l LoanState) {
	l.Given, l.Used, l.Back = r.Used+r.Back, r.Used, r.Back
	if r.Need < 0 || r.Need > limit.MaxAmount || r.Least < 0 || r.Least > r.Need || r.Want < 0 ||
		r.Want > limit.MaxAmount || r.Used < 0 || r.Used > owedMost || r.Back < 0 || r.Back > owedMost ||
		r.More < 0 || r.Weight < 0 || t.rules.calls || t.rules.paced {
		return l
	}
	at := t.step(now)
	_, e := t.slot(hash)
	if e == nil && r.Need == 0 && r.Want == 0 {
		l.Decision = t.Peek(now, hash, key, 0)
		return l
	}
	if e == nil {
		t.sweep(at, lookNew)
		if e = t.add(hash, key, at); e == nil { // full: taken at once, together with all others
			t.share(at, hash, key, r, &l)
			return l
		}
	}
	x := e.loan(r)
	if x == nil {
		t.decide(e, t.rules.of(e), at, r.Need, &l.Decision)
		l.Allowed = r.Need == 0
		return l
	}
	was := x.back
	l.Booked, l.At = t.settleLoan(e, x, at, r)
	law := t.rules.of(e)
	t.decide(e, law, at, r.Least, &l.Decision)
	x.heard, x.want, x.held = clk, r.Want, max(0, min(r.Held, x.out()))
	l.Others = e.idle(x)
	mine := e.turnOf(r, clk)
	theirs := e.theirs(mine, clk)
	free := l.Remaining
	if r.Weight > 0 {
		if r.Spread {
			free = e.spreads(law, Time(t.rules.rule.Window), at, free, r.Least)
		}
		if r.Least > 0 && (!l.Allowed && l.Retry > 0 || l.Allowed && r.Least > free-theirs) {
			l.Allowed, l.Retry = false, e.again(law, at, r.Least, theirs, l.Retry)
		}
	}
	give, ahead := int64(0), int64(0)
	if l.Allowed {
		give = min(r.Need, free)
		if r.Weight > 0 {
			give = max(0, min(r.Need, free-theirs))
		}
		e.lend(x, give)
	}
	if ahead = e.ahead(x, free-give-theirs); ahead > 0 {
		e.lend(x, ahead)
	}
	if r.Weight > 0 && r.Spread && law.step > 0 {
		e.more.next += law.step * min(Time(give+ahead), Time(t.rules.rule.Window)/law.step)
	}
	l.Remaining -= give + ahead
	mine.took(r, give+ahead, x.back-was, &l.Decision, clk)
	l.Given, l.Used, l.Back = x.given, x.used, x.back
	l.Reset = t.whole(e, law, at)
	// A loan with outstanding units stays, whatever the report says: the message may be late.
	if l.Closed = x.out() == 0 && (r.Close || r.Want == 0); l.Closed {
		t.drop(e, x)
	} else {
		t.lends(e)
	}
	t.late(&l.Decision, now)
	return l
}

// share takes what r needs at once, from the amount of all keys without a place, or as much of it
// as is left.
func (t *Table) share(at Time, hash uint64, key string, r *Report, l *LoanState) {
	for n := r.Need; ; {
		if t.take(at, hash, key, ask{n: n}, &l.Decision); l.Allowed {
			l.Given, l.Booked, l.At = l.Given+n, n, at
			return
		}
		some := max(r.Least, l.Remaining)
		if some >= n {
			return
		}
		n = some
	}
}

// whole returns how long it takes until e is as good as new, if what is lent is used now. It is
// called after spare.
func (t *Table) whole(e *entry, law *ruled, now Time) time.Duration {
	at := law.idle(e)
	if lent := e.lent(); lent > 0 {
		switch l := law.law.(type) {
		case *logLaw:
			at = max(at, l.tick(now)+l.window)
		case *slidingLaw:
			at = max(at, (now/l.sub+Time(l.parts)+1)*l.sub)
		case *fixedLaw:
			if at = Time(e.a); at <= now { // its first call begins a window
				at = now + l.window
			}
		case *bucketLaw:
			at = l.fallen(e, now, e.b+lent)
		}
	}
	return max(0, time.Duration(at-now))
}

// loan returns the loan of r's borrower, or begins one. It returns nil if the message is of a loan
// that is over, or if there are too many loans.
func (e *entry) loan(r *Report) *loan {
	m := e.extra()
	for i := range m.loans {
		x := &m.loans[i]
		switch {
		case x.who != r.Borrower:
			continue
		case x.id > r.Loan:
			return nil
		case x.id < r.Loan: // it has closed that loan: it never used units it did not receive
			m.lent -= x.out()
			*x = loan{who: r.Borrower, id: r.Loan}
		}
		return x
	}
	if len(m.loans) == mostLoans {
		return nil
	}
	m.loans = append(m.loans, loan{
		who: r.Borrower, id: r.Loan, given: r.Used + r.Back, used: r.Used, back: r.Back})
	return &m.loans[len(m.loans)-1]
}

// settleLoan books what was used since the previous report, and takes back what was returned. What
// is reported beyond the loan dates from before the loan was dropped: it was booked then.
func (t *Table) settleLoan(e *entry, x *loan, now Time, r *Report) (booked int64, at Time) {
	out := x.out()
	used := min(max(0, r.Used-x.used), out)
	back := min(max(0, r.Back-x.back), out-used)
	x.used, x.back = max(x.used, r.Used), max(x.back, r.Back)
	x.given = x.used + x.back + out - used - back
	e.more.lent -= used + back
	law := t.rules.of(e)
	law.spare(e, now)
	at = now
	if t.rules.rule.Algorithm == limit.SlidingLog { // the other algorithms forget evenly, or by windows
		age := Time(r.Age - r.Age*2/lendDrift) // its clock may be faster than this one
		at -= max(0, min(age, Time(t.rules.rule.Window)))
	}
	if used > 0 {
		law.book(e, at, used)
	}
	return used, at
}

// lend lends n more to x.
func (e *entry) lend(x *loan, n int64) { x.given, e.more.lent = x.given+n, e.more.lent+n }

// idle returns what borrowers other than x were lent and do not hold for a use.
func (e *entry) idle(x *loan) (n int64) {
	for i := range e.more.loans {
		if o := &e.more.loans[i]; o != x {
			n += max(0, o.out()-o.held)
		}
	}
	return n
}

// ahead returns how much of spare a borrower is lent ahead: max-min fair among all borrowers that
// want some of the key, including what they hold (Bertsekas and Gallager 1992, §6.5.2).
func (e *entry) ahead(x *loan, spare int64) int64 {
	if x.want <= x.out() || spare <= 0 {
		return 0
	}
	level := int64(0) // borrowers that want at most level get all, the others get level
	for range e.more.loans {
		rest, more := spare+e.more.lent, int64(0)
		for i := range e.more.loans {
			if w := max(e.more.loans[i].want, e.more.loans[i].out()); w <= level {
				rest -= w
			} else {
				more++
			}
		}
		if more == 0 || rest/more <= level {
			break
		}
		level = rest / more
	}
	return min(spare, max(0, min(x.want, level)-x.out()))
}

// drop deletes a loan; what is left of it comes back.
func (t *Table) drop(e *entry, x *loan) {
	m := e.more
	m.lent -= x.out()
	who := x.who
	m.loans = slices.DeleteFunc(m.loans, func(y loan) bool { return y.who == who })
	if len(m.loans) == 0 {
		m.loans = nil
		delete(t.lending, e.hash)
	}
}

// lends notes that a key has loans.
func (t *Table) lends(e *entry) {
	if t.lending == nil {
		t.lending = map[uint64]struct{}{}
	}
	t.lending[e.hash] = struct{}{}
}

// Expire books as used what borrowers hold who sent no report for a term, for all keys. It calls
// did, if not nil, with each entry, so that a standby table can replicate it before any later
// decision.
func (t *Table) Expire(now, clk Time, did func(key string, d *Entry)) {
	if t.rules == nil {
		return
	}
	now = t.step(now)
	for hash := range t.lending {
		if _, e := t.slot(hash); e != nil && e.more != nil {
			t.expire(e, now, clk, did)
		}
	}
}

// expire ends the loans of borrowers that were silent for too long. What they held counts as used:
// they may have used it.
func (t *Table) expire(e *entry, now, clk Time, did func(key string, d *Entry)) {
	for i := 0; i < len(e.more.loans); i++ {
		x := &e.more.loans[i]
		if clk-x.heard <= LendTerm {
			continue
		}
		out := x.out()
		d := Entry{
			Kind: EntryLend, N: out, At: now, Borrower: x.who, Loan: x.id, Given: x.given, Used: x.used + out,
			Back: x.back, Close: true,
		}
		if t.rules.calls { // lent under earlier rules: no call is in progress
			d.N = 0
		}
		if d.N > 0 {
			law := t.rules.of(e)
			law.spare(e, now)
			law.book(e, now, d.N)
		}
		t.drop(e, x)
		if i--; did != nil {
			did(e.key, &d)
		}
	}
}

// Holders returns the borrowers, except but, that were lent some of a key which they do not hold
// for a use.
func (t *Table) Holders(hash, but uint64) (who []uint64) {
	_, e := t.slot(hash)
	if e == nil || e.more == nil {
		return nil
	}
	for i := range e.more.loans {
		if x := &e.more.loans[i]; x.who != but && x.out() > x.held {
			who = append(who, x.who)
		}
	}
	return who
}

// Lent returns how much of a key is lent and not reported as used.
func (t *Table) Lent(hash uint64) int64 {
	if _, e := t.slot(hash); e != nil {
		return e.lent()
	}
	return 0
}

// lent returns what of e is lent and not reported as used.
func (e *entry) lent() int64 {
	if e.more == nil {
		return 0
	}
	return e.more.lent
}

// Presume makes every unknown key count as fully used at a moment, because its usage was lost.
// Under Concurrency, calls of that moment may be in progress until their leases end. The moment may
// be long ago: a table begins with its first key.
func (t *Table) Presume(at Time) {
	t.lostAt, t.lost = min(at, t.step(at)), true
}

// presume sets what a new key has used of what was lost.
func (t *Table) presume(e *entry, now Time) {
	if !t.lost {
		return
	}
	law := t.rules.of(e)
	if t.rules.calls {
		if end := t.lostAt + Time(t.rules.rule.Lease); end > now && law.most > 0 {
			e.b = law.most
			t.ids++
			e.hold(hold{id: t.ids, at: t.lostAt, end: end, n: law.most, low: owedMost, call: true})
		}
		return
	}
	law.spare(e, t.lostAt)
	law.book(e, t.lostAt, law.most)
	if law.idle(e) <= now { // a new caller has the full amount again, as has everybody
		*e = entry{key: e.key, hash: e.hash}
	}
}
