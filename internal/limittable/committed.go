package limittable

import (
	"time"

	"github.com/headgate/headgate/limit"
)

// longest is the longest window for which, when usage is unknown, everything may count as used.
// From docs/design.md §6.
const longest = time.Minute

// Long reports whether a key that has used its full amount needs more than a minute to have it all
// again.
func (r *Rules) Long() bool {
	x := &r.rule
	switch {
	case r.calls:
		return false
	case x.Algorithm.HasBurst():
		return x.Amount > 0 && float64(x.Window)*float64(x.Burst)/float64(x.Amount) > float64(longest)
	case x.Algorithm == limit.FixedWindow && x.Align >= limit.Minute:
		return x.Align > limit.Minute
	}
	return x.Window > longest
}

// Now returns the latest moment that the table was given.
func (t *Table) Now() Time { return t.now }

// Committed returns what a key has used and lent, and its maximum.
func (t *Table) Committed(hash uint64) (claimed, most int64) {
	_, e := t.slot(hash)
	if e == nil {
		e = &t.rest
	}
	return t.claimed(e), t.rules.of(e).most
}

// CommittedAt returns the key at a position of Places, its hash, and what it has used and lent.
func (t *Table) CommittedAt(i int) (key string, hash uint64, claimed int64) {
	e := &t.entries[i]
	return e.key, e.hash, t.claimed(e)
}

func (t *Table) claimed(e *entry) int64 {
	l := t.rules.of(e)
	return max(0, l.most-l.spare(e, t.now)+e.lent())
}

// SameWindow reports whether two moments are in the same window, for windows that are aligned to
// the wall clock. For all other rules it returns true.
func (t *Table) SameWindow(a, b Time) bool {
	l, ok := t.rules.law.law.(*fixedLaw)
	if !ok || l.align == limit.FirstHit {
		return true
	}
	from, _ := l.around(a)
	other, _ := l.around(b)
	return from == other
}
