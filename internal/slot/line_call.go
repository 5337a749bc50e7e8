package slot

import (
	"iter"
	"time"
)

// Call calls the next ticket: the lowest late one that is back, else the lowest
// present one, else a deferred one that is back. Absent tickets at the head are
// passed over on the way and become late; those whose hold is over are dropped.
// Not ok: nobody who is present waits, or a restored ticket that was not heard
// yet still holds up the rest.
//
// Use, Lapse or Leave must follow. Until then the ticket is called and its hold
// does not end: a slot is reserved for it.
func (l *Line) Call(now Time) (number uint64, ok bool) { return l.CallOf(now, 1) }

// call calls the next where more slots are free than are kept.
func (l *Line) call(now Time, free int) (number uint64, ok bool) {
	tick := l.tick(now)
	number, ok = l.callLate(backSet, tick)
	if !ok && l.turns%againEach == againEach-1 {
		number, ok = l.callLate(againSet, tick)
	}
	if !ok {
		var blocked bool
		if number, ok, blocked = l.callWaiting(now, tick, free); !ok && !blocked {
			number, ok = l.callLate(againSet, tick)
		}
	}
	if ok {
		l.turns++
	}
	return number, ok
}

// againEach is how few of the calls are for tickets that were called before and did not come, while
// others are there. Chosen.
const againEach = 10

// callLate calls the lowest present ticket of those that have spoken since they were late.
func (l *Line) callLate(set int, tick int64) (number uint64, ok bool) {
	for n, p := l.from(set, 0); p != nil; n, p = l.from(set, n+1) {
		switch {
		case p.present(tick):
			l.unmark(set, n)
			l.mark(calledSet, n)
			if !l.unkeep(n) {
				l.late--
			}
			return l.number(n), true
		case p.over(tick):
			l.expire(n)
		default:
			l.unmark(set, n)
		}
	}
	return 0, false
}

// callWaiting calls the lowest present ticket that has not been called or passed over. blocked: a
// restored ticket that was not heard yet still holds up the rest.
func (l *Line) callWaiting(now Time, tick int64, free int) (number uint64, ok, blocked bool) {
	for n, p := l.from(liveSet, l.frontier); p != nil; n, p = l.from(liveSet, l.frontier) {
		if l.blocks(n, p, now) {
			if l.keep(n, free) {
				continue
			}
			l.frontier = n
			return 0, false, true
		}
		present, over := p.present(tick), p.over(tick)
		if over {
			l.expire(n)
		}
		l.frontier = n + 1
		if present {
			l.mark(calledSet, n)
			return l.number(n), true, false
		}
		if c, i := l.find(n); c != nil && !c.has(unsureSet, i) {
			l.late++
			if !c.has(unprovenSet, i) && !c.has(overdueSet, i) {
				l.silenced++
			}
		}
	}
	l.frontier = l.next
	return 0, false, false
}

// Use notes that a called ticket was claimed. It holds no place any more and
// never admits again. False, and nothing changes, if it was not called: whoever
// admits must ask here first.
func (l *Line) Use(number uint64) bool {
	number = l.rank(number)
	if l.status(number) != TicketCalled {
		return false
	}
	l.drop(number)
	return true
}

// Lapse notes that a call was not claimed in time. The ticket is late from now
// on: it keeps its place until its hold is over and is called first when it
// speaks again. False, and nothing changes, if it was not called.
func (l *Line) Lapse(number uint64, now Time) bool {
	number = l.rank(number)
	if l.status(number) != TicketCalled {
		return false
	}
	l.unmark(calledSet, number)
	l.mark(outSet, number) // no draw picks it before it has spoken
	l.late++
	if c, i := l.find(number); c.places[i].over(l.tick(now)) {
		l.expire(number)
	}
	return true
}

// Defer is Lapse of a ticket that was told to come in and did not: when it speaks again it is called
// behind those who were not called yet, but for each tenth call. Else a crowd of clients that only ask
// would keep slots empty, one call after the other.
func (l *Line) Defer(number uint64, now Time) bool {
	if !l.Lapse(number, now) {
		return false
	}
	if number = l.rank(number); l.status(number) == TicketLate {
		l.mark(deferredSet, number)
		if c, i := l.find(number); !c.has(hiddenSet, i) { // else nobody counts it
			l.mark(behindSet, number)
		}
	}
	return true
}

// Leave gives up a place and tells what it was: after TicketCalled a reserved
// slot is free again.
func (l *Line) Leave(number uint64) TicketStatus {
	number = l.rank(number)
	was := l.status(number)
	switch was {
	case TicketWaiting, TicketLate, TicketCalled:
		l.drop(number)
	case TicketProvisional:
		l.dropProvisional(number)
	}
	return was
}

// Expire drops places whose hold is over, so that positions fall even while
// nobody is called. It looks at up to budget places, goes on where the last
// call stopped, and starts again at the end, at most one round a call. It
// returns how many it dropped.
func (l *Line) Expire(now Time, budget int) (dropped int) {
	l.unkeepSilent(now)
	tick, start, wrapped := l.tick(now), l.sweep, false
	for at := start; budget > 0; {
		n, p := l.from(liveSet, at)
		if wrapped && (p == nil || n >= start) {
			break
		}
		if p == nil {
			wrapped, at = true, 0
			continue
		}
		budget--
		at = n + 1
		l.sweep = at
		if p.over(tick) && l.status(n) != TicketCalled {
			l.expire(n)
			dropped++
		}
	}
	return dropped
}

// Next gives up to k tickets in the order in which Call would call them now, but for the turns of
// deferred ones, and changes nothing. The line must not change while it runs. It costs O(log n)
// for each ticket it gives and for each absent one on the way.
func (l *Line) Next(now Time, k int) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for n, blocked := range l.upcoming(now) {
			if k--; blocked || k < 0 || !yield(l.number(n)) {
				return
			}
		}
	}
}

// Oldest is the arrival of the ticket that Call would call now, or that holds
// up the call. It is exact to a sixteenth of a second and never later than the
// truth; where 64 joins took more than 68 minutes it may be earlier than that
// by the rest. Of tickets from before a restart it tells Restored.Oldest.
func (l *Line) Oldest(now Time) (arrival Time, ok bool) {
	for n := range l.upcoming(now) {
		c, i := l.find(n)
		ticks := int64(c.born[i>>6]) + int64(c.places[i].born)
		return l.origin + Time(ticks*int64(lineTick)), true
	}
	return 0, false
}

// upcoming gives the tickets that Call would call now, in order, and last the
// one that blocks, if one does.
func (l *Line) upcoming(now Time) iter.Seq2[uint64, bool] {
	return func(yield func(uint64, bool) bool) {
		tick := l.tick(now)
		for n, p := l.from(backSet, 0); p != nil; n, p = l.from(backSet, n+1) {
			if p.present(tick) && !yield(n, false) {
				return
			}
		}
		for n, p := l.from(liveSet, l.frontier); p != nil; n, p = l.from(liveSet, n+1) {
			if l.blocks(n, p, now) {
				yield(n, true)
				return
			}
			if p.present(tick) && !yield(n, false) {
				return
			}
		}
		for n, p := l.from(againSet, 0); p != nil; n, p = l.from(againSet, n+1) {
			if p.present(tick) && !yield(n, false) {
				return
			}
		}
	}
}

// blocks says that a ticket from before a restart has not been heard yet and
// may still be on time: passing it over would break the order.
func (l *Line) blocks(number uint64, p *linePlace, now Time) bool {
	if p.window != 0 || l.restored.Grace == nil {
		return false
	}
	waited := time.Duration(now - l.restored.At)
	if c, i := l.find(number); c.has(unsureSet, i) { // perhaps nobody has it
		return waited < l.restored.UnconfirmedGrace
	}
	return waited < l.restored.Grace(number-l.restored.Frontier)
}
