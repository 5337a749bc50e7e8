package limittable

import (
	"math/bits"
	"slices"
)

// A slidingLaw counts in sub-windows; the window covers the oldest one only partly. a is the number
// of the newest, and the counts are a ring by number. With one part the counts are b and c.
// Otherwise they are in more.cells, and b is the sum of those that are completely in the window.
type slidingLaw struct {
	amount, parts int64
	sub           Time
}

func (l *slidingLaw) cell(e *entry, i int64) *int64 {
	if l.parts > 1 {
		return &e.more.cells[(i+l.parts+1)%(l.parts+1)] // i is at least −parts
	}
	if i%2 == 0 {
		return &e.b
	}
	return &e.c
}

// whole returns the sum of the sub-windows that are completely in the window.
func (l *slidingLaw) whole(e *entry) int64 {
	if l.parts > 1 {
		return e.b
	}
	return *l.cell(e, e.a)
}

// spare moves the sub-windows to now, and returns what is left.
func (l *slidingLaw) spare(e *entry, now Time) int64 {
	if l.parts > 1 && e.extra().cells == nil {
		e.more.cells = make([]int64, l.parts+1)
	}
	i := int64(now / l.sub)
	switch {
	case i > e.a+l.parts:
		if e.b, e.c = 0, 0; l.parts > 1 {
			clear(e.more.cells)
		}
		e.a = i
	default:
		for e.a < i {
			e.a++
			if l.parts > 1 {
				e.b -= *l.cell(e, e.a-l.parts)
			}
			*l.cell(e, e.a) = 0
		}
	}
	return l.amount - l.used(e, now)
}

// used returns count(this) + … + (part of the oldest that the window covers)·count(the oldest),
// rounded up.
func (l *slidingLaw) used(e *entry, now Time) int64 {
	oldest := *l.cell(e, e.a-l.parts)
	if oldest <= 0 {
		return l.whole(e)
	}
	hi, lo := bits.Mul64(uint64(oldest), uint64(l.sub-now%l.sub))
	lo, carry := bits.Add64(lo, uint64(l.sub-1), 0)
	part, _ := bits.Div64(hi+carry, lo, uint64(l.sub))
	return l.whole(e) + int64(part)
}

func (l *slidingLaw) book(e *entry, _ Time, n int64) { l.add(e, e.a, min(n, owedMost-l.whole(e))) }

func (l *slidingLaw) add(e *entry, i, n int64) {
	*l.cell(e, i) += n
	if l.parts > 1 && i > e.a-l.parts {
		e.b += n
	}
}

func (l *slidingLaw) back(e *entry, of *hold, n int64) {
	from, to := e.a-l.parts, e.a
	if of != nil {
		from, to = max(from, int64(of.at/l.sub)), int64(of.at/l.sub)
	}
	for i := to; i >= max(0, from) && n > 0; i-- {
		k := min(n, *l.cell(e, i))
		l.add(e, i, -k)
		n -= k
	}
}

// when returns when n units will be free. Within a sub-window the oldest one leaves evenly, so the
// moment is computed and not searched.
func (l *slidingLaw) when(e *entry, now Time, n int64) Time {
	room := l.amount - n
	if room < 0 {
		return Never
	}
	if l.used(e, now) <= room {
		return now
	}
	whole := l.whole(e)
	for k := int64(0); ; k++ { // the newest sub-window is then e.a + k, and is empty
		if k > 0 {
			whole -= *l.cell(e, e.a+k-l.parts)
		}
		if whole > room {
			continue
		}
		begin, oldest := Time(e.a+k)*l.sub, *l.cell(e, e.a+k-l.parts)
		if oldest <= room-whole {
			return max(now, begin)
		}
		hi, lo := bits.Mul64(uint64(room-whole), uint64(l.sub)) // less than oldest·sub
		part, _ := bits.Div64(hi, lo, uint64(oldest))
		return max(now, begin+l.sub-Time(part))
	}
}

func (l *slidingLaw) idle(e *entry) Time {
	if l.parts > 1 && (e.more == nil || e.more.cells == nil) { // nothing has been counted yet
		return 0
	}
	for i := e.a; i >= e.a-l.parts; i-- {
		if *l.cell(e, i) > 0 {
			return Time(i+l.parts+1) * l.sub
		}
		if i == e.a && l.parts > 1 && e.b == 0 { // what is left is in the oldest
			i = e.a - l.parts + 1
		}
	}
	return 0
}

// logMost is how many different times of calls a log keeps. Chosen.
const logMost = 4096

// A logLaw stores when something was taken, oldest first. b is the sum. c is the number of entries,
// between others, that were given back.
type logLaw struct {
	amount       int64
	window, grid Time
}

// tick returns the moment that a call at now counts as: now, or a little later.
func (l *logLaw) tick(now Time) Time { return (now + l.grid - 1) / l.grid * l.grid }

func (l *logLaw) spare(e *entry, now Time) int64 {
	m := e.extra()
	for m.head < len(m.log) && m.log[m.head].at+l.window <= now {
		if e.b -= m.log[m.head].n; m.log[m.head].n == 0 {
			e.c--
		}
		m.head++
	}
	if m.head > len(m.log)/2 {
		m.log, m.head = slices.Delete(m.log, 0, m.head), 0
	}
	return l.amount - e.b
}

func (l *logLaw) book(e *entry, now Time, n int64) {
	if n = min(n, owedMost-e.b); n <= 0 {
		return
	}
	m, at := e.extra(), l.tick(now)
	if last := len(m.log) - 1; last >= m.head && m.log[last].at >= at {
		if m.log[last].n == 0 {
			e.c--
		}
		m.log[last].n += n
	} else {
		m.log = append(m.log, used{at, n})
	}
	e.b += n
}

// back gives n units back, the newest first. Units that a reservation holds are left alone, unless
// it is the one that gives back.
func (l *logLaw) back(e *entry, of *hold, n int64) {
	m := e.extra()
	for i := len(m.log) - 1; i >= m.head && n > 0; i-- {
		free := m.log[i].n
		switch {
		case of == nil: // reservations belong to others
			for _, h := range m.holds {
				if l.tick(h.at) == m.log[i].at {
					free = max(0, free-h.n)
				}
			}
		case m.log[i].at != l.tick(of.at):
			continue
		}
		k := min(n, free)
		if m.log[i].n -= k; k > 0 && m.log[i].n == 0 {
			e.c++
		}
		e.b -= k
		n -= k
	}
	if e.c > int64(len(m.log)-m.head)/2 { // taking and giving back must not make a log longer
		m.log = slices.DeleteFunc(m.log[m.head:], func(u used) bool { return u.n == 0 })
		m.head, e.c = 0, 0
	}
}

func (l *logLaw) when(e *entry, now Time, n int64) Time {
	if n > l.amount {
		return Never
	}
	over := e.b + n - l.amount
	for m, i := e.extra(), e.extra().head; i < len(m.log) && over > 0; i++ {
		over -= m.log[i].n
		now = max(now, m.log[i].at+l.window)
	}
	return now
}

func (l *logLaw) idle(e *entry) Time {
	times := e.times()
	for i := len(times) - 1; i >= 0; i-- {
		if times[i].n > 0 {
			return times[i].at + l.window
		}
	}
	return 0
}

// times returns the calls of a log.
func (e *entry) times() []used {
	if e.more == nil {
		return nil
	}
	return e.more.log[e.more.head:]
}

// retick converts a log that was kept with another grid to this one.
func (l *logLaw) retick(e *entry, was *logLaw) {
	if was.grid == l.grid || e.more == nil {
		return
	}
	var log []used
	for _, u := range e.times() {
		switch at := l.tick(u.at); {
		case u.n == 0:
		case len(log) > 0 && log[len(log)-1].at >= at:
			log[len(log)-1].n += u.n
		default:
			log = append(log, used{at, u.n})
		}
	}
	e.more.log, e.more.head, e.c = log, 0, 0
	for i := range e.more.holds {
		e.more.holds[i].at = was.tick(e.more.holds[i].at)
	}
}
