package dashboard

import (
	"time"

	"github.com/headgate/headgate"
)

// A Room is where a room stands now.
type Room struct {
	headgate.Status
	Answers int64         // of the origin, since its proxy was made
	Errors  int64         // of the origin: 5xx, or no answer
	Took    time.Duration // until the headers of all answers, in sum
}

// What is kept. Chosen: what an operator looks back at, and what is simulated.
const (
	fine       = 600              // points of a second
	coarse     = 360              // points of coarseEach
	coarseEach = 10 * time.Second // an hour in all
)

// A point is one second of a room.
type point struct {
	at               int64 // Unix seconds; 0: nothing is known
	active, waiting  int64
	minute           int64 // new users of the last minute
	limit, perMinute int64
	answers, errors  int64   // of the origin, since the point before
	took             float64 // mean of these answers, in seconds
}

// A stretch is what is kept of a longer time: where the room stood at its beginning and at its end, and
// who came in between. Who came is not among those of the beginning, or would be played twice.
type stretch struct {
	at                  int64 // when it began
	hadActive, hadWaits int64 // before anybody of came
	active, waiting     int64
	came, admitted      int64
}

// A ring is the past of one room. Its owner guards it.
type ring struct {
	points  [fine]point
	next    int // where the next one goes
	past    [coarse]stretch
	newest  int // of past
	last    Room
	started bool
}

// add notes where the room stands at a time. It costs the same however much is kept.
func (r *ring) add(now time.Time, s *Room) {
	p := point{
		at: now.Unix(), active: s.ActiveUsers, waiting: s.WaitingUsers, minute: s.NewUsersLastMinute,
		limit: s.TotalActiveUsers, perMinute: s.NewUsersPerMinute,
	}
	var came, admitted int64
	if r.started {
		p.answers, p.errors = since(s.Answers, r.last.Answers), since(s.Errors, r.last.Errors)
		if took := s.Took - r.last.Took; p.answers > 0 && took > 0 {
			p.took = took.Seconds() / float64(p.answers)
		}
		t, was := &s.Totals, &r.last.Totals
		admitted = since(t.Admitted, was.Admitted)
		came = max(0, since(t.Joined, was.Joined)+admitted-since(t.Claimed, was.Claimed))
	}
	before := r.last
	if !r.started {
		before = *s
	}
	r.last, r.started = *s, true
	r.points[r.next] = p
	r.next = (r.next + 1) % fine

	each := int64(coarseEach / time.Second)
	at := p.at - p.at%each
	x := &r.past[r.newest]
	if x.at != at {
		r.newest = (r.newest + 1) % coarse
		x = &r.past[r.newest]
		*x = stretch{at: at, hadActive: before.ActiveUsers, hadWaits: before.WaitingUsers}
	}
	x.active, x.waiting = p.active, p.waiting
	x.came += came
	x.admitted += admitted
}

// since is what has been added to a total; one that is smaller has begun anew.
func since(now, was int64) int64 {
	if now < was {
		return now
	}
	return now - was
}

// seconds are the points that are known, the oldest first.
func (r *ring) seconds() []point {
	all := make([]point, 0, fine)
	for i := range fine {
		if p := r.points[(r.next+i)%fine]; p.at > 0 {
			all = append(all, p)
		}
	}
	return all
}

// hour are the stretches that are known and over, the oldest first.
func (r *ring) hour() []stretch {
	all := make([]stretch, 0, coarse)
	for i := 1; i < coarse; i++ { // but for the newest, which is not over
		if x := r.past[(r.newest+i)%coarse]; x.at > 0 {
			all = append(all, x)
		}
	}
	return all
}
