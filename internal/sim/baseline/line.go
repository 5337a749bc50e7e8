package baseline

import (
	"time"

	"github.com/headgate/headgate/internal/sim"
)

// refresh is how often a page that waits asks again: cloudflare2022, loop of the
// sequence diagram, and cloudflare2023.
const refresh = 20 * time.Second

// A line holds who waits, in lanes: one for each worker, or data centre, that tries
// for them. A visitor's refreshes are a beat wide, so each lane is a ring of
// refresh/beat queues in order of arrival, and each beat looks at one of them. A
// visitor costs nothing until its turn.
type line struct {
	phases int
	queues []queue  // lane by lane
	next   []sim.ID // of each visitor, in its queue
	born   []int32  // its minute of arrival
	waits  []int64  // of each lane
	groups []groups // of each lane
	total  int64
}

type queue struct{ head, tail sim.ID } // -1: empty

// groups are those of one lane, by minutes of arrival.
type groups struct {
	size   []int32
	oldest int32 // all before are empty
}

// newLine makes a line of so many lanes.
func newLine(lanes int, beat time.Duration) *line {
	l := &line{phases: int(refresh / beat), waits: make([]int64, lanes), groups: make([]groups, lanes)}
	l.queues = make([]queue, lanes*l.phases)
	for i := range l.queues {
		l.queues[i] = queue{-1, -1}
	}
	return l
}

// behind reports whether one of that minute must let others go first: the group of
// an earlier minute waits in the lane.
func (l *line) behind(lane, minute int32) bool {
	g := &l.groups[lane]
	for g.oldest < minute {
		if int(g.oldest) < len(g.size) && g.size[g.oldest] > 0 {
			return true
		}
		g.oldest++
	}
	return false
}

// add lets v wait in a lane; it asks again a refresh after this beat.
func (l *line) add(v sim.ID, lane, minute int32, beat int64) {
	for int(v) >= len(l.next) {
		l.next = append(l.next, -1)
		l.born = append(l.born, 0)
	}
	l.next[v], l.born[v] = -1, minute
	q := &l.queues[int(lane)*l.phases+int(beat%int64(l.phases))]
	if q.head < 0 {
		q.head = v
	} else {
		l.next[q.tail] = v
	}
	q.tail = v
	g := &l.groups[lane]
	for int(minute) >= len(g.size) {
		g.size = append(g.size, 0)
	}
	g.size[minute]++
	g.oldest = min(g.oldest, minute)
	l.waits[lane]++
	l.total++
}

// What came of one who tried.
type outcome uint8

const (
	stays outcome = iota // the next may try
	enters
	nobody // nor can any other of the lane
)

// ask lets those of a lane whose refresh is this beat try, in order, up to the
// first of a later minute than the earliest that waits there, or until nobody can.
func (l *line) ask(lane int32, beat int64, try func(v sim.ID) outcome) {
	q := &l.queues[int(lane)*l.phases+int(beat%int64(l.phases))]
	before := sim.ID(-1)
	for v := q.head; v >= 0 && !l.behind(lane, l.born[v]); {
		next := l.next[v]
		switch try(v) {
		case nobody:
			return
		case stays:
			before = v
		case enters:
			if before < 0 {
				q.head = next
			} else {
				l.next[before] = next
			}
			if next < 0 {
				q.tail = before
			}
			l.forget(v, lane)
		}
		v = next
	}
}

// forget takes one who waited out of the counts.
func (l *line) forget(v sim.ID, lane int32) {
	l.groups[lane].size[l.born[v]]--
	l.waits[lane]--
	l.total--
}

// A meter tells the wait: place divided by the admissions of the last minute.
type meter struct {
	minute    int32
	now, last int64 // admissions of this minute and the last
}

// count notes an admission.
func (m *meter) count(minute int32) {
	m.turn(minute)
	m.now++
}

func (m *meter) turn(minute int32) {
	if minute != m.minute {
		m.last = 0
		if minute == m.minute+1 {
			m.last = m.now
		}
		m.now, m.minute = 0, minute
	}
}

// expect is what one at that place is told: nothing if nobody came in during the
// last minute. The range is one refresh wide on both sides, chosen: only then does
// a visitor learn it.
func expect(place, lastMinute int64) sim.WaitEstimate {
	if lastMinute == 0 {
		return sim.WaitEstimate{}
	}
	e := time.Duration(float64(place) / float64(lastMinute) * float64(time.Minute))
	return sim.WaitEstimate{Known: true, Expect: e, Low: max(0, e-refresh), High: e + refresh}
}

// minuteOf is the minute of a time.
func minuteOf(t time.Duration) int32 { return int32(t / time.Minute) }

// move puts all who wait into the lanes that to gives them. They keep their place
// in time and their refresh.
func (l *line) move(to func(v sim.ID) int32) {
	for i := range l.queues {
		lane, phase := int32(i/l.phases), int64(i%l.phases)
		v := l.queues[i].head
		l.queues[i] = queue{-1, -1}
		for v >= 0 {
			next := l.next[v]
			l.forget(v, lane)
			l.add(v, to(v), l.born[v], phase)
			v = next
		}
	}
}
