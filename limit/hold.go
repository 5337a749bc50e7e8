package limit

// What is held is a loan that the table makes to its own caller: it counts against the limit
// without an end, and as used from the moment that the caller names. A job that is sent to a
// service is counted there at some moment between its departure and its answer, and nobody
// but the service knows when: held from the one to the other, and used as of the answer, it
// is counted by the limit whenever the service may count it.

// holder is who holds as a borrower: no other draws it.
const holder = 0

// Hold takes n at now, all or nothing, until Use says that they were used or Return that they
// were not. Of Concurrency and of what is paced nothing is held: ErrCost. A key that shares
// what one may have with others (Shared) has used them now; Use counts them again.
func (t *Table) Hold(now Time, hash uint64, key string, n int64) (d Decision, err error) {
	if n < 0 || n > MaxAmount || t.rules.calls || t.rules.paced {
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

// Use says that n were used now at the latest. What was not held counts too: what had to be
// taken for used before may be used yet.
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

// Return gives n back that were held and not used.
func (t *Table) Return(hash uint64, n int64) {
	if _, e := t.slot(hash); e != nil {
		t.unhold(e, n)
	}
}

// unhold ends that n of e are held, or as many as are.
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
