package slot

import (
	"math"
	"time"
)

// Provisional tickets ensure that a flood of requests that keep no cookies does not stand before
// people. A new ticket is provisional until its cookie has come back once. It holds no place:
// positions do not count it, it is never called, and it lapses after ProvisionalFor. Confirm turns
// it into a place at its own number, so a ticket that is confirmed in time keeps the order of its
// arrival.

// FirstInterval is the longest polling interval of a newcomer before its first poll and before its
// second. Chosen: visitors who poll twice in a few seconds are present, and those who do not hold
// up others only briefly. ProvisionalFor is how long a provisional ticket may be silent. Chosen: a
// page loads slowly on a slow phone.
const (
	FirstInterval  = 2 * time.Second
	ProvisionalFor = 10 * time.Second
)

// JoinProvisional issues the next number. hold applies to the place that Confirm makes of it. The
// interval is FirstInterval until SetProvisionalInterval changes it.
func (l *Line) JoinProvisional(now Time, hold time.Duration) uint64 {
	return l.join(provisionalSet, now, newLineSpan(FirstInterval), newLineSpan(hold))
}

// SetProvisionalInterval records the interval that the visitor of a provisional ticket got.
func (l *Line) SetProvisionalInterval(number uint64, interval time.Duration) {
	if number = l.rank(number); l.isProvisional(number) {
		c, i := l.findAny(number)
		c.places[i].window = newLineSpan(min(interval, ProvisionalFor))
	}
}

// Confirm records that the cookie of a ticket has come back. A provisional ticket holds a place
// from now on, or is gone if the cookie comes too late. A ticket whose cookie came back in less
// than half of the interval is unproven until it polls on time: see Doubtful. Other tickets do not
// change.
func (l *Line) Confirm(number uint64, now Time) {
	number = l.rank(number)
	if !l.isProvisional(number) {
		return
	}
	c, i := l.findAny(number)
	p, tick := &c.places[i], l.tick(now)
	if p.lapsed(tick) {
		l.dropProvisional(number)
		return
	}
	l.mark(liveSet, number)
	l.unmark(provisionalSet, number)
	if 2*(tick-int64(p.seen)) < p.window.ticks() {
		l.mark(unprovenSet, number)
	}
	// Polled follows. The cookie came back with a part of the page, and the page polls when the join
	// told it to, whatever interval the part is told.
	left := p.window.ticks() - (tick - int64(p.seen))
	p.seen, p.window = uint32(tick), presence(time.Duration(max(1, left))*lineTick)
	if number < l.frontier {
		l.late++
	}
}

// Doubtful estimates how many of the tickets ahead of a number will never poll again. It considers
// those that have polled once, too soon, and not since. It also returns for how long the last of
// them counts as present. All overdue ones are doubtful; of the others, all that are probably no
// people: see people. A browser that loads an image of the waiting page is unproven for a second, but a
// client that uses each cookie twice leaves thousands of such tickets. They hold their places like
// all others, and cost those behind them no more than the time until they are passed over.
func (l *Line) Doubtful(number uint64, now Time) (ahead int64, present time.Duration) {
	number = l.rank(number)
	tick := l.tick(now)
	over, last := l.membersBefore(overdueSet, number, tick)
	young, lastYoung := l.membersBefore(unprovenSet, number, tick)
	young -= l.people(young, tick)
	if young > 0 {
		last = max(last, lastYoung)
	}
	return int64(over + young), time.Duration(last) * lineTick
}

// membersBefore returns the number of members of a set below a number, and for how many ticks the
// last of them is present.
func (l *Line) membersBefore(set int, number uint64, tick int64) (n int, present int64) {
	c, i := l.findAny(number)
	if c == nil || l.counts[set] == 0 {
		return 0, 0
	}
	k := l.index(number)
	sum := l.trees[set].sum(k)
	own := c.count(set, i)
	if c.has(set, i) {
		own--
	}
	switch {
	case sum+own == 0:
		return 0, 0
	case own == 0:
		c, i = l.chunks[l.trees[set].find(sum-1)], lineMask
	default:
		i--
	}
	p := &c.places[c.last(set, i)]
	return sum + own, max(0, int64(p.seen)+p.window.ticks()-tick)
}

// Doubtful uses the results of about the last unprovenTried unproven tickets. It starts as if
// askedBefore tickets had polled again. Chosen: a crowd shows within a second what it is.
const (
	askedBefore   = 20
	unprovenTried = 2000
)

// people estimates how many of some unproven tickets are people. One estimate is the share of
// tickets that polled again lately. It lags behind a flood that has just ended. The other one is
// Little's law, L = λ·W: people stay unproven for as long as those who polled again lately were, and
// come as often. It lags behind people who have just begun to come. The greater one counts.
func (l *Line) people(unproven int, tick int64) int {
	bySuccess := unproven - unproven*l.unasked/(l.asked+l.unasked)
	byLittle := l.proven.at(tick) * float64(unproven) / float64(max(1, l.counts[unprovenSet]))
	return min(unproven, max(bySuccess, int(byLittle)))
}

// A decayingSum is the average of what was added per tick, with a memory of provenLag.
type decayingSum struct {
	sum  float64
	last int64
}

// provenLag is long compared with the first intervals of newcomers, and short compared with how
// long they wait. Chosen.
const provenLag = 2 * float64(time.Second/lineTick)

func (s *decayingSum) add(tick int64, n float64) {
	s.sum, s.last = s.sum*math.Exp(-float64(tick-s.last)/provenLag)+n, tick
}

func (s *decayingSum) at(tick int64) float64 {
	return s.sum * math.Exp(-float64(tick-s.last)/provenLag) / provenLag
}

// tried records whether an unproven ticket polled again.
func (l *Line) tried(again bool) {
	if again {
		l.asked++
	} else {
		l.unasked++
	}
	if l.asked+l.unasked > unprovenTried {
		l.asked, l.unasked = l.asked/2, l.unasked/2
	}
}

// prove removes the unproven mark of a ticket that polled on time.
func (l *Line) prove(number uint64, p *linePlace, tick int64) {
	const halfOfInterval = 5 // the window is 2.5 intervals
	if ago := tick - int64(p.seen); ago > 0 && halfOfInterval*ago >= p.window.ticks() {
		if c, i := l.find(number); c.has(unprovenSet, i) {
			l.tried(true)
			l.proven.add(tick, float64(ago))
		}
		l.unmark(unprovenSet, number)
		l.unmark(overdueSet, number)
	}
}

// countOverdue moves the unproven tickets that are overdue to overdueSet, in the order of their
// numbers, up to the first that is not overdue.
func (l *Line) countOverdue(tick int64, budget int) {
	for n, p := l.from(unprovenSet, 0); p != nil && budget > 0; n, p = l.from(unprovenSet, n+1) {
		if (tick-int64(p.seen))*2 <= p.window.ticks() { // 1.25 intervals
			return
		}
		l.unmark(unprovenSet, n)
		l.mark(overdueSet, n)
		l.tried(false)
		budget--
	}
}

// LapseProvisional drops provisional tickets whose time is over, in the order of their numbers, up
// to the first whose time is not, and at most budget of them.
func (l *Line) LapseProvisional(now Time, budget int) {
	tick := l.tick(now)
	l.countOverdue(tick, budget)
	for n, p := l.from(provisionalSet, 0); p != nil && budget > 0; n, p = l.from(provisionalSet, n+1) {
		if !p.lapsed(tick) {
			return
		}
		budget--
		l.dropProvisional(n)
	}
}

// Provisional returns the number of provisional tickets.
func (l *Line) Provisional() int { return l.counts[provisionalSet] }

func (l *Line) isProvisional(rank uint64) bool {
	c, i := l.findAny(rank)
	return c != nil && c.has(provisionalSet, i)
}

func (l *Line) dropProvisional(rank uint64) {
	l.unmark(provisionalSet, rank)
	l.setNetwork(rank, 0)
	l.release(l.index(rank))
}

// lapsed reports whether a provisional ticket has been silent for too long.
func (p linePlace) lapsed(tick int64) bool {
	return tick-int64(p.seen) > int64(ProvisionalFor/lineTick)
}
