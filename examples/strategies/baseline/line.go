package baseline

import (
	"time"

	"github.com/headgate/headgate/internal/sim"
)

// refresh is how often a waiting page polls: cloudflare2022, loop of the sequence diagram, and
// cloudflare2023.
const refresh = 20 * time.Second

// A line holds the waiting visitors in lanes: one for each worker, or data center, that tries for
// them. Refreshes happen in beats, so each lane is a ring of refresh/beat queues in order of
// arrival, and each beat processes one of them. A visitor costs nothing until its turn.
type line struct {
	phases int
	queues []queue  // lane by lane
	next   []sim.ID // next visitor in the same queue
	born   []int32  // minute of arrival of each visitor
	waits  []int64  // waiting visitors of each lane
	groups []groups // of each lane
	total  int64
}

type queue struct{ head, tail sim.ID } // -1: empty

// groups are the visitors of one lane, by minute of arrival.
type groups struct {
	size   []int32
	oldest int32 // all earlier ones are empty
}

// newLine returns a line with this number of lanes.
func newLine(lanes int, beat time.Duration) *line {
	l := &line{phases: int(refresh / beat), waits: make([]int64, lanes), groups: make([]groups, lanes)}
	l.queues = make([]queue, lanes*l.phases)
	for i := range l.queues {
		l.queues[i] = queue{-1, -1}
	}
	return l
}

// behind reports whether a visitor of that minute must wait for an earlier group in the lane.
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

// add puts v into a lane; its first refresh is one refresh interval after this beat.
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

// An outcome is the result of one attempt to enter.
type outcome uint8

const (
	stays outcome = iota // waits; the next one may try
	enters
	nobody // waits; no other of the lane can enter
)

// ask tries the visitors of a lane whose refresh is in this beat, in order. It stops at the first
// visitor of a later minute than the earliest group there, or when nobody can enter.
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

// forget removes a visitor from the counts.
func (l *line) forget(v sim.ID, lane int32) {
	l.groups[lane].size[l.born[v]]--
	l.waits[lane]--
	l.total--
}

// A meter estimates the wait: position divided by the admissions of the last minute.
type meter struct {
	minute    int32
	now, last int64 // admissions of this minute and the last
}

// count counts an admission.
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

// expect returns the estimate for a position, or none if nobody was admitted in the last minute.
// The range is one refresh wide on both sides, because a visitor learns of its turn only at a
// refresh. Chosen.
func expect(place, lastMinute int64) sim.WaitEstimate {
	if lastMinute == 0 {
		return sim.WaitEstimate{}
	}
	e := time.Duration(float64(place) / float64(lastMinute) * float64(time.Minute))
	return sim.WaitEstimate{Known: true, Expect: e, Low: max(0, e-refresh), High: e + refresh}
}

// minuteOf returns the minute of a time.
func minuteOf(t time.Duration) int32 { return int32(t / time.Minute) }

// move moves all waiting visitors to the lanes that to returns. They keep their order and their
// refresh.
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
