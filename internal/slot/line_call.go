package slot

import (
	"iter"
	"math/bits"
	"time"
)

// Call calls the next ticket: the lowest late one that polls again, else the lowest present one,
// else a deferred one that polls again. Absent tickets at the head are passed over and become late;
// those whose hold has ended are dropped. ok is false if no present ticket waits, or if a restored
// ticket that has not polled yet still holds up the rest.
//
// Use, Lapse or Leave must follow. Until then the ticket is called, a slot is reserved for it, and
// its hold does not end.
func (l *Line) Call(now Time) (number uint64, ok bool) { return l.CallOf(now, 1) }

// call calls the next ticket if more slots are free than are kept.
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

// againEach: one of againEach calls goes to a ticket that was called before and did not come, while
// other tickets wait. Chosen.
const againEach = 10

// callLate calls the lowest present ticket among the late ones that have polled since.
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

// callWaiting calls the lowest present ticket that has not been called or passed over. blocked
// reports whether a restored ticket that has not polled yet still holds up the rest.
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

// Use records that a called ticket was claimed. The ticket then holds no place and never admits
// again. If the ticket was not called, Use returns false and changes nothing. Callers must check
// this before they admit.
func (l *Line) Use(number uint64) bool {
	number = l.rank(number)
	if l.status(number) != TicketCalled {
		return false
	}
	l.drop(number)
	return true
}

// Lapse records that a call was not claimed in time. The ticket is late from now on: it keeps its
// place until its hold ends and is called first when it polls again. If the ticket was not called,
// Lapse returns false and changes nothing.
func (l *Line) Lapse(number uint64, now Time) bool {
	number = l.rank(number)
	if l.status(number) != TicketCalled {
		return false
	}
	l.unmark(calledSet, number)
	l.mark(outSet, number) // no draw picks it before it polls again
	l.late++
	if c, i := l.find(number); c.places[i].over(l.tick(now)) {
		l.expire(number)
	}
	return true
}

// Defer is like Lapse, for a ticket whose visitor learned of the call and did not come in. When it
// polls again it is called behind those that were not called yet, except for each tenth call.
// Otherwise many clients that only poll would keep slots empty, one call after the other.
func (l *Line) Defer(number uint64, now Time) bool {
	if !l.Lapse(number, now) {
		return false
	}
	if number = l.rank(number); l.status(number) == TicketLate {
		l.mark(deferredSet, number)
		if c, i := l.find(number); !c.has(hiddenSet, i) { // else no position counts it
			l.mark(behindSet, number)
		}
	}
	return true
}

// Leave gives up a place and returns the status that the ticket had. If that was TicketCalled, a
// reserved slot is free again.
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

// Expire drops places whose hold has ended, so that positions fall even while nobody is called. It
// checks up to budget places, starting where the last call stopped. At the end of the line it
// continues at the front, at most one round a call. It returns how many places it dropped.
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

// Next yields up to k tickets in the order in which Call would call them now, except for the turns
// of deferred tickets. It changes nothing. The line must not change while it runs. It costs O(log
// n) for each yielded ticket and each absent one on the way.
func (l *Line) Next(now Time, k int) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for n, blocked := range l.upcoming(now) {
			if k--; blocked || k < 0 || !yield(l.number(n)) {
				return
			}
		}
	}
}

// upcoming yields the tickets that Call would call now, in order. If a ticket holds up the rest,
// upcoming yields it last, with true.
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

// blocks reports whether a ticket from before a restart has not polled yet and may still be on
// time. Passing it over would break the order.
func (l *Line) blocks(number uint64, p *linePlace, now Time) bool {
	if p.window != 0 || l.restored.Grace == nil {
		return false
	}
	waited := time.Duration(now - l.restored.At)
	if c, i := l.find(number); c.has(unsureSet, i) { // perhaps never issued
		return waited < l.restored.UnconfirmedGrace
	}
	return waited < l.restored.Grace(number-l.restored.Frontier)
}

// Draw calls a ticket at random. Of all tickets that are present at the draw, each is equally
// likely to be called, however long it has waited and whatever was drawn before. So early visitors
// take part in more draws but have no other advantage. random returns a number below n, each
// equally likely. Visitors must not be able to guess it.
//
// Exception: a network with more places than SetDrawWeight says has that many chances together.
// This is rejection sampling: a candidate of a network with n places counts with the probability
// weight/n. Its expected cost is the places for each chance, and at most mostTries candidates.
//
// Absent tickets are not drawn and lose nothing: they take part again when they poll. A ticket
// whose hold has ended is dropped when it would have been drawn. A ticket whose call lapsed takes
// part again too. ok is false if no present ticket waits.
//
// The line remains ordered by number. In the record, a call out of order looks like the call of a
// head with all tickets before it late. So Call continues in the order of arrival where Draw stops,
// and Draw where Call stops.
//
// It costs O(log n) amortized: each absent ticket is drawn once while it is absent.
func (l *Line) Draw(now Time, random func(n int) int) (number uint64, ok bool) {
	tick, tries := l.tick(now), 0
	l.unkeepAll()
	for n := l.counts[liveSet] - l.counts[outSet]; n > 0; n = l.counts[liveSet] - l.counts[outSet] {
		number = l.nth(random(n))
		c, i := l.find(number)
		p := &c.places[i]
		switch {
		case c.has(calledSet, i): // called in order, before draws were in use
			l.mark(outSet, number)
		case p.present(tick) && tries < mostTries && !l.accepts(c, i, random):
			tries++
		case p.present(tick):
			l.pass(number)
			l.mark(calledSet, number)
			l.mark(outSet, number)
			return l.number(number), true
		case p.over(tick):
			l.expire(number)
		default:
			l.mark(outSet, number)
		}
	}
	return 0, false
}

// mostTries bounds the candidates of one draw: a tenth of a millisecond. Only if almost all places
// belong to networks with a thousand times their weight does a network get more chances than that.
// Chosen.
const mostTries = 1024

// accepts decides whether a candidate counts, by the weight of its network.
func (l *Line) accepts(c *lineChunk, i uint64, random func(n int) int) bool {
	n := l.crowds[c.network(i)]
	return l.weight == 0 || n <= l.weight || random(n) < l.weight
}

// Drawable returns the number of tickets that a draw would choose from: those present, and those
// that have gone silent but were not drawn since.
func (l *Line) Drawable() int { return l.counts[liveSet] - l.counts[outSet] }

// nth returns a place that is not in outSet by its index, from 0.
func (l *Line) nth(rank int) uint64 {
	live, out := l.trees[liveSet], l.trees[outSet]
	k := 0
	for step := 1 << bits.Len(uint(len(live))) >> 1; step > 0; step >>= 1 {
		if n := k + step; n <= len(live) && live[n-1]-out[n-1] <= rank {
			k, rank = n, rank-live[n-1]+out[n-1]
		}
	}
	for w := range l.chunks[k].sets[liveSet] {
		word := l.chunks[k].sets[liveSet][w] &^ l.chunks[k].sets[outSet][w]
		if n := bits.OnesCount64(word); rank >= n {
			rank -= n
			continue
		}
		for ; rank > 0; rank-- {
			word &= word - 1
		}
		return (l.base+uint64(k))<<lineShift + uint64(w)<<6 + uint64(bits.TrailingZeros64(word))
	}
	panic("slot: the counts of a line differ from its bitmaps")
}

// pass moves the frontier behind a ticket that is called out of order, and counts the tickets
// before it as late.
func (l *Line) pass(number uint64) {
	if number < l.frontier {
		l.unmark(backSet, number)
		l.unmark(againSet, number)
		l.late--
		return
	}
	l.late += l.between(liveSet, l.frontier, number) - l.between(unsureSet, l.frontier, number)
	l.frontier = number + 1
}

// between returns the number of members of a searched set from from up to, but not including, to.
func (l *Line) between(set int, from, to uint64) int {
	return l.before(set, to) - l.before(set, from)
}

// before returns the number of members of a set below a number.
func (l *Line) before(set int, number uint64) int {
	if number <= l.base<<lineShift {
		return 0
	}
	k, i := l.index(number), number&lineMask
	if k >= len(l.chunks) {
		return l.counts[set]
	}
	n := l.trees[set].sum(k)
	if c := l.chunks[k]; c != nil && i > 0 {
		n += c.count(set, i-1)
	}
	return n
}
