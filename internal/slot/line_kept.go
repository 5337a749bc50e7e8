package slot

import (
	"cmp"
	"slices"
	"time"
)

// Kept slots prevent idle slots after a restart. A ticket from before the restart that has not
// polled yet may still be on time, and holds up those behind it. Where there are enough slots, this
// is not needed: others are called past it while one free slot is kept for it. It gets that slot as
// soon as it polls, as if nobody had been called before it.

// mostKept bounds the tickets for which a slot is kept. The next ticket then holds up those behind
// it. Chosen.
const mostKept = 4096

// A keptPlace is a ticket below the frontier for which a slot is kept.
type keptPlace struct {
	number uint64 // rank of the ticket
	until  Time   // it may be silent until then
	back   bool   // it has polled, and is called at the next turn
}

// CallOf is Call for a given number of free slots. While enough slots are free, a restored ticket
// that has not polled yet does not hold up others: CallOf keeps a slot for it, as long as it may be
// silent, and calls the next. Even if slots are lost, CallOf never gives the last free slots, as
// many as are kept, to other tickets. Those slots go to the kept tickets, lowest first.
//
// With one slot CallOf is Call. A kept ticket counts as waiting.
func (l *Line) CallOf(now Time, free int) (number uint64, ok bool) {
	l.unkeepSilent(now)
	if free <= len(l.kept) {
		return l.CallKept(now, free)
	}
	return l.call(now, free)
}

// CallKept calls the lowest kept ticket that has polled, given the number of free slots.
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

// keep keeps a slot for the ticket at the frontier, if another free slot remains for the next
// ticket.
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

// keptAt returns the index of a kept ticket.
func (l *Line) keptAt(number uint64) (i int, ok bool) {
	return slices.BinarySearchFunc(l.kept, number, func(k keptPlace, n uint64) int {
		return cmp.Compare(k.number, n)
	})
}

// unkeep removes the kept slot of a ticket, and reports whether there was one.
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

// hear records that a kept ticket has polled: its slot is kept as long as it is present.
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

// unkeepSilent makes those kept tickets late that have been silent for too long.
func (l *Line) unkeepSilent(now Time) {
	if len(l.kept) == 0 || now < l.keptDue {
		return
	}
	l.unkeepIf(func(k keptPlace) bool { return now >= k.until })
}

// unkeepAll makes all kept tickets late.
func (l *Line) unkeepAll() { l.unkeepIf(func(keptPlace) bool { return true }) }

// unkeepIf makes the kept tickets late for which f returns true.
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
