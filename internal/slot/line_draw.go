package slot

import "math/bits"

// Draw calls a ticket at random. Of all tickets that are present at the draw, each is equally
// likely to be called, however long it has waited and whatever was drawn before. So early visitors
// take part in more draws but have no other advantage. random returns a number below n, each
// equally likely. Visitors must not be able to guess it.
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
	tick := l.tick(now)
	l.unkeepAll()
	for n := l.counts[liveSet] - l.counts[outSet]; n > 0; n = l.counts[liveSet] - l.counts[outSet] {
		number = l.nth(random(n))
		c, i := l.find(number)
		p := &c.places[i]
		switch {
		case c.has(calledSet, i): // called in order, before draws were in use
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
