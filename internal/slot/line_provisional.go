package slot

import "time"

// Provisional tickets: a flood of requests that keep no cookies must not stand before people. A
// ticket that has just been issued is provisional until its cookie has come back once. It holds no
// place: nobody behind counts it, it is never called, and it lapses after ProvisionalFor. Confirm
// makes it a place, at its own number: a ticket that is confirmed in time keeps the order of its
// arrival.

// FirstInterval is the longest that a newcomer is told to wait before it asks for the first time, and
// before it asks again after its first request. Chosen: whoever asks twice in a few seconds is there,
// and whoever does not holds up nobody for long. ProvisionalFor is how long a provisional ticket may
// be silent. Chosen: a page takes its time on a slow phone.
const (
	FirstInterval  = 2 * time.Second
	ProvisionalFor = 10 * time.Second
)

// JoinProvisional issues the next number. hold is that of the place which Confirm makes of it. Until
// Told says another one, the interval is FirstInterval.
func (l *Line) JoinProvisional(now Time, hold time.Duration) uint64 {
	return l.join(provisionalSet, now, newLineSpan(FirstInterval), newLineSpan(hold))
}

// Told notes the interval that the visitor of a provisional ticket was told.
func (l *Line) SetProvisionalInterval(number uint64, interval time.Duration) {
	if number = l.rank(number); l.isProvisional(number) {
		c, i := l.findAny(number)
		c.places[i].window = newLineSpan(min(interval, ProvisionalFor))
	}
}

// Confirm notes that the cookie of a ticket has come back. A provisional one holds a place from
// now on, or is gone if that comes too late. One whose cookie came back in less than half of the
// interval is unproven until it asks again on time: see Doubtful. Any other one is left as it is.
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
	p.seen, p.window = uint32(tick), 1 // Seen follows, and says for how long
	if number < l.frontier {
		l.late++
	}
}

// Doubtful estimates how many of the tickets ahead of a number will never ask again, of those that
// have asked once, sooner than they were told to, and not since; and for how long the last of them
// counts as present. All that are overdue are doubtful, and of the others the share that was overdue
// lately. A browser that loads a picture of the waiting page is unproven for a second, but a client
// that uses each cookie twice leaves thousands. They hold their places as all others do, and cost
// those behind them no more than the time after which they are passed over.
func (l *Line) Doubtful(number uint64, now Time) (ahead int64, present time.Duration) {
	number = l.rank(number)
	tick := l.tick(now)
	over, last := l.membersBefore(overdueSet, number, tick)
	young, lastYoung := l.membersBefore(unprovenSet, number, tick)
	young = young * l.unasked / (l.asked + l.unasked)
	if young > 0 {
		last = max(last, lastYoung)
	}
	return int64(over + young), time.Duration(last) * lineTick
}

// membersBefore counts the members of a set below a number, and tells for how many ticks the last of them
// is present.
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

// Of the last unproven tickets, Doubtful counts some thousand, and assumes of some before that they
// asked again. Chosen: a crowd tells what it is within a second.
const (
	askedBefore   = 20
	unprovenTried = 2000
)

// tried notes whether an unproven ticket asked again.
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

// prove notes that an unproven ticket polled, if it did so on time.
func (l *Line) prove(number uint64, p *linePlace, tick int64) {
	const halfOfInterval = 5 // the window is 2.5 intervals
	if ago := tick - int64(p.seen); ago > 0 && halfOfInterval*ago >= p.window.ticks() {
		if c, i := l.find(number); c.has(unprovenSet, i) {
			l.tried(true)
		}
		l.unmark(unprovenSet, number)
		l.unmark(overdueSet, number)
	}
}

// countOverdue finds the unproven tickets that are overdue, in the order of their numbers, as far as
// the first that is not.
func (l *Line) countOverdue(tick int64, budget int) {
	for n, p := l.from(unprovenSet, 0); p != nil && budget > 0; n, p = l.from(unprovenSet, n+1) {
		if (tick-int64(p.seen))*2 <= p.window.ticks() { // an interval and a quarter
			return
		}
		l.unmark(unprovenSet, n)
		l.mark(overdueSet, n)
		l.tried(false)
		budget--
	}
}

// LapseProvisional drops provisional tickets whose time is over, in the order of their numbers, as
// far as the first whose time is not, and at most budget of them.
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

// lapsed reports whether a provisional ticket has been silent for too long.
func (p linePlace) lapsed(tick int64) bool {
	return tick-int64(p.seen) > int64(ProvisionalFor/lineTick)
}
