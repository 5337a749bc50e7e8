package slot

import "time"

// Provisional tickets: a flood of requests that keep no cookies must not stand before people. A
// ticket that has just been issued is provisional until its cookie has come back once. It holds no
// place: nobody behind counts it, it is never called, and it lapses after twice the interval that
// its visitor was told, but not before FirstInterval: a page takes its time on a slow phone. Confirm
// makes it a place, at its own number: a ticket that is confirmed in time keeps the order of its
// arrival.

// FirstInterval is the longest that a newcomer is told to wait before it asks for the first time.
// Chosen: a page that loads asks within a second, and a ticket without a cookie is gone after ten.
const FirstInterval = 5 * time.Second

// JoinProvisional issues the next number. hold is that of the place which Confirm makes of it. Until
// Told says another one, the interval is FirstInterval.
func (l *Line) JoinProvisional(now Tau, hold time.Duration) uint64 {
	return l.join(provisionalSet, now, patience(FirstInterval), newLineSpan(hold))
}

// Told notes the interval that the visitor of a provisional ticket was told.
func (l *Line) Told(number uint64, interval time.Duration) {
	if number = l.rank(number); l.isProvisional(number) {
		c, i := l.findAny(number)
		c.places[i].window = patience(interval)
	}
}

// patience is how long a provisional ticket may be silent.
func patience(interval time.Duration) lineSpan {
	return newLineSpan(max(2*min(interval, FirstInterval), FirstInterval))
}

// Confirm notes that the cookie of a ticket has come back. A provisional one holds a place from
// now on, or is gone if that comes too late. Any other one is left as it is.
func (l *Line) Confirm(number uint64, now Tau) {
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
	p.seen, p.window = uint32(tick), 1 // Seen follows, and says for how long
	if number < l.frontier {
		l.late++
	}
}

// LapseProvisional drops provisional tickets whose time is over, in the order of their numbers, as
// far as the first whose time is not, and at most budget of them.
func (l *Line) LapseProvisional(now Tau, budget int) {
	tick := l.tick(now)
	for n, p := l.from(provisionalSet, 0); p != nil && budget > 0; n, p = l.from(provisionalSet, n+1) {
		if !p.lapsed(tick) {
			return
		}
		budget--
		l.dropProvisional(n)
	}
}

// Provisional counts the provisional tickets.
func (l *Line) Provisional() int { return l.counts[provisionalSet] }

func (l *Line) isProvisional(rank uint64) bool {
	c, i := l.findAny(rank)
	return c != nil && c.has(provisionalSet, i)
}

func (l *Line) dropProvisional(rank uint64) {
	l.unmark(provisionalSet, rank)
	l.release(l.index(rank))
}

// lapsed says that a provisional ticket has been silent for too long.
func (p linePlace) lapsed(tick int64) bool { return tick-int64(p.seen) > p.window.ticks() }
