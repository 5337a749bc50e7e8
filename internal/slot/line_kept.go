package slot

import (
	"cmp"
	"slices"
	"time"
)

// Kept slots: how a restart leaves no slot idle. A ticket from before it that was not heard yet may
// still be on time, and holds up those behind it. Where slots suffice it need not: others are called
// past it while one free slot is kept for it, and so it finds its slot the moment it speaks, as if
// nobody had been.

// mostKept bounds the tickets for which a slot is kept. Chosen: beyond it the next holds up those
// behind it.
const mostKept = 4096

// A keptPlace is a ticket below the frontier for which a slot is kept.
type keptPlace struct {
	number uint64 // its rank
	until  Time   // as long as it may be silent
	back   bool   // it has spoken, and is called as soon as there is a turn
}

// CallOf is Call where as many slots are free. While they suffice it holds nobody up for a restored
// ticket that was not heard yet: it keeps a slot for that one, as long as it may be silent, and
// calls the next. Whatever slots become of, it calls nobody else with the last ones that are kept:
// those are for the kept tickets, the lowest first.
//
// With one slot it is Call. A kept ticket counts as waiting.
func (l *Line) CallOf(now Time, free int) (number uint64, ok bool) {
	l.unkeepSilent(now)
	if free <= len(l.kept) {
		return l.CallKept(now, free)
	}
	return l.call(now, free)
}

// CallKept calls the lowest kept ticket that has spoken, where as many slots are free.
func (l *Line) CallKept(now Time, free int) (number uint64, ok bool) {
	l.unkeepSilent(now)
	if l.keptBack == 0 {
		return 0, false
	}
	tick := l.tick(now)
	for i := range l.kept[:max(0, min(free, len(l.kept)))] {
		n := l.kept[i].number
		if c, at := l.find(n); l.kept[i].back && c.places[at].present(tick) {
			l.unkeep(n)
			l.unmark(backSet, n)
			l.mark(calledSet, n)
			return l.number(n), true
		}
	}
	return 0, false
}

// Kept counts the tickets for which a slot is kept.
func (l *Line) Kept() int { return len(l.kept) }

// keep keeps a slot for the ticket at the frontier, if of those free one is left then.
func (l *Line) keep(number uint64, free int) bool {
	c, i := l.find(number)
	if len(l.kept)+1 >= free || len(l.kept) >= mostKept || c.has(unsureSet, i) {
		return false
	}
	until := l.restored.At.Add(l.restored.Grace(number - l.restored.Frontier))
	if len(l.kept) == 0 || until < l.keptDue {
		l.keptDue = until
	}
	l.kept = append(l.kept, keptPlace{number: number, until: until})
	l.frontier = number + 1
	return true
}

// keptAt finds a kept ticket.
func (l *Line) keptAt(number uint64) (i int, ok bool) {
	return slices.BinarySearchFunc(l.kept, number, func(k keptPlace, n uint64) int {
		return cmp.Compare(k.number, n)
	})
}

// unkeep forgets that a slot is kept for a ticket, and tells whether one was.
func (l *Line) unkeep(number uint64) bool {
	i, ok := l.keptAt(number)
	if !ok {
		return false
	}
	if l.kept[i].back {
		l.keptBack--
	}
	if l.kept = slices.Delete(l.kept, i, i+1); len(l.kept) == 0 {
		l.kept = nil
	}
	return true
}

// hear notes that a kept ticket has spoken: its slot is kept as long as it is present.
func (l *Line) hear(number uint64, now Time, window lineSpan) bool {
	i, ok := l.keptAt(number)
	if !ok {
		return false
	}
	k := &l.kept[i]
	if !k.back {
		k.back = true
		l.keptBack++
	}
	k.until = max(k.until, now.Add(time.Duration(window.ticks()+1)*lineTick))
	return true
}

// unkeepSilent makes those late that have been silent for too long.
func (l *Line) unkeepSilent(now Time) {
	if len(l.kept) == 0 || now < l.keptDue {
		return
	}
	l.unkeepIf(func(k keptPlace) bool { return now >= k.until })
}

// unkeepAll makes all kept tickets late.
func (l *Line) unkeepAll() { l.unkeepIf(func(keptPlace) bool { return true }) }

// unkeepIf makes some kept tickets late.
func (l *Line) unkeepIf(f func(keptPlace) bool) {
	left := l.kept[:0]
	for _, k := range l.kept {
		switch {
		case !f(k):
			if len(left) == 0 || k.until < l.keptDue {
				l.keptDue = k.until
			}
			left = append(left, k)
			continue
		case k.back:
			l.keptBack--
		}
		l.late++
	}
	if l.kept = left; len(left) == 0 {
		l.kept = nil
	}
}
