package limittable

import "github.com/headgate/headgate/limit"

// What is held is a loan of the table to its own caller. It counts against the limit without an
// end, and as used from the moment that the caller names. A service counts a job at some moment
// between its departure and its answer, and only the service knows when. The job is held during
// that time and counts as used from the answer on, so the limit counts it whenever the service may
// count it.

// holder is the borrower ID of holds. No real borrower uses it.
const holder = 0

// Hold takes n at now, all or nothing, until Use marks the units as used or Return gives them back.
// Concurrency and paced limits hold nothing: Hold returns ErrCost. A key that shares one amount
// with others (Shared) has used the units now, and Use counts them again.
func (t *Table) Hold(now Time, hash uint64, key string, n int64) (d limit.Decision, err error) {
	if n < 0 || n > limit.MaxAmount || t.rules.calls || t.rules.paced {
		return d, ErrCost
	}
	at := t.step(now)
	_, e := t.slot(hash)
	if e == nil && n > 0 {
		t.sweep(at, lookNew)
		e = t.add(hash, key, at)
	}
	if e == nil {
		t.take(at, hash, key, ask{n: n}, &d)
		t.late(&d, now)
		return d, nil
	}
	law := t.rules.of(e)
	t.decide(e, law, at, n, &d)
	if d.Allowed && n > 0 {
		x := e.loan(&Report{Borrower: holder})
		if x == nil { // one loan too many
			d.Allowed, d.Retry = false, lendAgain
			return d, nil
		}
		x.given, e.more.lent, d.Remaining = x.given+n, e.more.lent+n, d.Remaining-n
	}
	d.Reset = t.whole(e, law, at)
	t.late(&d, now)
	return d, nil
}

// Use marks n units as used, at the latest now. It also counts units that were not held: they had
// to be assumed used before, but may only be used now.
func (t *Table) Use(now Time, hash uint64, key string, n int64) {
	at := t.step(now)
	_, e := t.slot(hash)
	if e == nil {
		if e = t.add(hash, key, at); e == nil {
			e = &t.rest
		}
	}
	t.unhold(e, n)
	if !t.rules.calls && n > 0 {
		law := t.rules.of(e)
		law.spare(e, at)
		law.book(e, at, n)
	}
}

// Return gives back n units that were held and not used.
func (t *Table) Return(hash uint64, n int64) {
	if _, e := t.slot(hash); e != nil {
		t.unhold(e, n)
	}
}

// unhold ends the hold of n units of e, or of all held units if there are fewer.
func (t *Table) unhold(e *entry, n int64) {
	if e.more == nil {
		return
	}
	for i := range e.more.loans {
		x := &e.more.loans[i]
		if x.who != holder {
			continue
		}
		n = min(n, x.out())
		x.given, e.more.lent = x.given-n, e.more.lent-n
		if x.out() == 0 {
			t.drop(e, x)
		}
		return
	}
}
