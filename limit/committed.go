package limit

import "time"

// longest is the longest window of which all may count as used when it is not known what is.
// From docs/design.md §6.
const longest = time.Minute

// Long reports whether it takes more than a minute until a key that has used all it may has
// all again.
func (r *Rules) Long() bool {
	x := &r.rule
	switch {
	case r.calls:
		return false
	case x.leaks():
		return x.Amount > 0 && float64(x.Window)*float64(x.Burst)/float64(x.Amount) > float64(longest)
	case x.Algorithm == FixedWindow && x.Align >= Minute:
		return x.Align > Minute
	}
	return x.Window > longest
}

// Now is the latest moment that the table was told.
func (t *Table) Now() Time { return t.now }

// Claimed is what a key has used and lent, and the most that it may.
func (t *Table) Committed(hash uint64) (claimed, most int64) {
	_, e := t.slot(hash)
	if e == nil {
		e = &t.rest
	}
	return t.claimed(e), t.rules.of(e).most
}

// ClaimedAt is what the key at one of Places has used and lent.
func (t *Table) CommittedAt(i int) (key string, hash uint64, claimed int64) {
	e := &t.entries[i]
	return e.key, e.hash, t.claimed(e)
}

func (t *Table) claimed(e *entry) int64 {
	l := t.rules.of(e)
	return max(0, l.most-l.spare(e, t.now)+e.lent())
}

// SameWindow reports whether two moments lie in one window of those that are aligned to the
// clock on the wall; all others have none.
func (t *Table) SameWindow(a, b Time) bool {
	l, ok := t.rules.law.law.(*fixedLaw)
	if !ok || l.align == FirstHit {
		return true
	}
	from, _ := l.around(a)
	other, _ := l.around(b)
	return from == other
}
