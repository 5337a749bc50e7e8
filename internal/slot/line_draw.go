package slot

import "math/bits"

// Draw calls a ticket at random. What is promised: of all who are present when the draw is
// made, each is as likely to be called as any other, however long it has waited and whatever
// was drawn before. So who came early takes part in more draws, and has no other advantage.
// random gives a number below n, each equally likely, and must not be guessed by visitors.
//
// Absent tickets are not drawn and lose nothing: they take part again when they speak; one
// whose hold is over is dropped when it would have been drawn. Who lapses a call takes part
// again too. Not ok: nobody who is present waits.
//
// The line stays one of numbers: a call of any of them is told to the record as that of a
// head, with all before it as late ones. So Call goes on in the order of arrival where Draw
// ends, and Draw where Call ends.
//
// It costs O(log n) amortised: each absent ticket is drawn once while it is absent.
func (l *Line) Draw(now Time, random func(n int) int) (number uint64, ok bool) {
	tick := l.tick(now)
	l.unkeepAll()
	for n := l.counts[liveSet] - l.counts[outSet]; n > 0; n = l.counts[liveSet] - l.counts[outSet] {
		number = l.nth(random(n))
		c, i := l.find(number)
		p := &c.places[i]
		switch {
		case c.has(calledSet, i): // called in order, before there were draws
			l.mark(outSet, number)
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

// Drawable counts those among whom a draw would be made: who is present, and who has gone
// silent since the last draw that met it.
func (l *Line) Drawable() int { return l.counts[liveSet] - l.counts[outSet] }

// nth finds a place that is not out by its rank, from 0.
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
	panic("slot: a line's counts and its bitmaps do not agree")
}

// pass moves the frontier behind a ticket that is called out of order, and counts those
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

// between counts the members of a searched set from a number on and below another.
func (l *Line) between(set int, from, to uint64) int {
	return l.before(set, to) - l.before(set, from)
}

// before counts the members of a searched set below a number.
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
