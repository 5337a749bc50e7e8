package limit

import (
	"slices"
	"time"
)

// Term is how long who was lent units of a key may use them after it last asked the lender,
// by its own clock, and lendDrift how far that may be off (docs/protocol.md §12). Chosen:
// what the dead hold counts as used after it.
const (
	Term      = 5 * time.Second
	lendDrift = 1000 // one in so many
)

// MayUse is how long after it asked a borrower may use what it was lent.
const BorrowTerm = Term - Term/lendDrift

// Kept is how long after it was asked the lender keeps what it lent for a borrower.
const LendTerm = Time(Term + Term/lendDrift)

// mostLoans bounds the borrowers of one key; more are lent nothing. Chosen.
const mostLoans = 4096

// lendAgain is when to ask again for what others hold. Chosen.
const lendAgain = 100 * time.Millisecond

// A loan is what one borrower was lent of a key: totals, which only grow, so that a message
// that is lost, late or repeated harms nobody.
type loan struct {
	who, id           uint64
	given, used, back int64
	want, held        int64
	heard             Time // of the lender's own clock, which nothing steps
}

func (l *loan) out() int64 { return l.given - l.used - l.back }

// A Report is what a borrower says of a key, and asks for.
type Report struct {
	Borrower uint64 // the borrower
	Loan     uint64 // drawn when it began with the key: later ones are greater
	Used     int64  // of the loan in all: passed calls
	Back     int64  // of the loan in all: given back unused
	Age      time.Duration

	Need  int64 // to be lent now, in as many as Least at least
	Least int64
	Want  int64 // to be lent ahead, if there is enough
	Close bool  // nothing more of this loan will be used

	Held   int64 // of what is out: it will be used or given back when it is done with
	Weight int64 // its calls wait, and leave others their part by their weights; 0: they do not
	More   int64 // they would have so much more than Need
	Spread bool  // they go one after the other, not at once
}

// A Lent is what a Report is told.
type LoanState struct {
	Decision       // of Least
	Given    int64 // of the loan in all
	Used     int64 // as is said, unless more is known
	Back     int64
	Others   int64 // what others were lent and do not hold for a use, as far as is known
	Booked   int64 // what was booked as used, and as of when: for Repeat
	At       Time
	Closed   bool // the loan is over; a later report begins it anew
}

// Borrow takes a report in and lends. What is lent counts as used until it is said to be
// used, which it then is as of r.Age ago, or comes back: whenever a borrower uses it, the
// promise of the algorithm holds for the times of use. A borrower that is not heard for Term
// has used all it had: Expire says so. clk is a clock that nothing steps.
//
// Of Concurrency and of what is paced nothing is lent: there Take decides.
func (t *Table) Borrow(now, clk Time, hash uint64, key string, r *Report) (l LoanState) {
	l.Given, l.Used, l.Back = r.Used+r.Back, r.Used, r.Back
	if r.Need < 0 || r.Need > MaxAmount || r.Least < 0 || r.Least > r.Need || r.Want < 0 ||
		r.Want > MaxAmount || r.Used < 0 || r.Used > owedMost || r.Back < 0 || r.Back > owedMost ||
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
	// A loan of which something is out stays, whatever is said: the message may be a late one.
	if l.Closed = x.out() == 0 && (r.Close || r.Want == 0); l.Closed {
		t.drop(e, x)
	} else {
		t.lends(e)
	}
	t.late(&l.Decision, now)
	return l
}

// share takes what r needs at once together with all keys that have no place, or as much as is left.
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

// whole is how long it takes until e is as good as new, if what is lent is used now. It follows
// spare.
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

// loan finds what the borrower of r has of e, or begins it. Nil is a message of a loan that
// is over, or one loan too many.
func (e *entry) loan(r *Report) *loan {
	m := e.extra()
	for i := range m.loans {
		x := &m.loans[i]
		switch {
		case x.who != r.Borrower:
			continue
		case x.id > r.Loan:
			return nil
		case x.id < r.Loan: // it has closed that one: what it did not hear of it never used
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

// settleLoan books what was used since the report before, and takes back what came back.
// What is said beyond what was lent is of before the loan was forgotten: it was booked then.
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
	if t.rules.rule.Algorithm == SlidingLog { // the others forget evenly, or by windows
		age := Time(r.Age - r.Age*2/lendDrift) // by a clock that may gain on this one
		at -= max(0, min(age, Time(t.rules.rule.Window)))
	}
	if used > 0 {
		law.book(e, at, used)
	}
	return used, at
}

// lend lends n more to x.
func (e *entry) lend(x *loan, n int64) { x.given, e.more.lent = x.given+n, e.more.lent+n }

// idle is what others than x were lent and do not hold for a use.
func (e *entry) idle(x *loan) (n int64) {
	for i := range e.more.loans {
		if o := &e.more.loans[i]; o != x {
			n += max(0, o.out()-o.held)
		}
	}
	return n
}

// ahead is how much of spare a borrower is lent ahead: max-min fair among all that want
// some of the key, counting what they hold (Bertsekas and Gallager 1992, §6.5.2).
func (e *entry) ahead(x *loan, spare int64) int64 {
	if x.want <= x.out() || spare <= 0 {
		return 0
	}
	level := int64(0) // who wants no more than it gets all, the others as much as it
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

// drop forgets a loan; what is left of it comes back.
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

// lends notes that somebody holds some of a key.
func (t *Table) lends(e *entry) {
	if t.lending == nil {
		t.lending = map[uint64]struct{}{}
	}
	t.lending[e.hash] = struct{}{}
}

// Expire books what those hold who were not heard for a term, of all keys. did is told each
// deed, for a second table to repeat it before anything that is decided later; nil: nobody.
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

func (t *Table) expire(e *entry, now, clk Time, did func(key string, d *Entry)) {
	for i := 0; i < len(e.more.loans); i++ {
		x := &e.more.loans[i]
		if clk-x.heard <= LendTerm {
			continue
		}
		out := x.out()
		d := Entry{
			Kind:     EntryLend,
			N:        out,
			At:       now,
			Borrower: x.who,
			Loan:     x.id,
			Given:    x.given,
			Used:     x.used + out,
			Back:     x.back,
			Close:    true,
		}
		if t.rules.calls { // lent by rules before: no call is under way
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

// Holders are who was lent some of a key that they do not hold for a use, but for one.
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

// Lent is how much of a key is lent and not said to be used.
func (t *Table) Lent(hash uint64) int64 {
	if _, e := t.slot(hash); e != nil {
		return e.lent()
	}
	return 0
}

// lent is what of e is lent and not said to be used.
func (e *entry) lent() int64 {
	if e.more == nil {
		return 0
	}
	return e.more.lent
}

// Presume counts every key that is not known as fully used at a moment: what it has used
// was lost. Of Concurrency calls of that moment may be under way until their leases end. The
// moment may be long ago: a table begins with its first key.
func (t *Table) Presume(at Time) {
	t.lostAt, t.lost = min(at, t.step(at)), true
}

// presume is what a new key has used of what was lost.
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
	if law.idle(e) <= now { // whoever comes now has all again, and so has everybody
		*e = entry{key: e.key, hash: e.hash}
	}
}
