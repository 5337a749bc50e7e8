package dashboard

import (
	"time"

	"github.com/headgate/headgate/status"
)

// A Room is the current state of a room.
type Room struct {
	status.Room
	Answers int64         // of the origin, since its proxy was made
	Errors  int64         // of the origin: 5xx, or no response
	Took    time.Duration // sum of the times until the headers of all answers
}

// These constants define what is stored. Chosen: as far as an operator looks back, and as
// simulations need.
const (
	fine       = 600              // points of one second
	coarse     = 360              // points of coarseEach
	coarseEach = 10 * time.Second // an hour in total
)

// A point is one second of a room.
type point struct {
	at               int64 // Unix seconds; 0: no data
	active, waiting  int64
	minute           int64 // new users of the last minute
	limit, perMinute int64
	answers, errors  int64   // of the origin, since the previous point
	took             float64 // mean of these answers, in seconds
	knee             float64 // requests a second; 0: not known
	signal           float64 // percent of what the origin bears; 0: no signal
	found            int64   // limit of users at once that was found; 0: none is sought
}

// A stretch summarizes a longer period: the state of the room at its beginning and end, and the
// arrivals in between. Arrivals are not part of the state at the beginning, or a simulation would
// count them twice.
type stretch struct {
	at                  int64 // when it began
	hadActive, hadWaits int64 // before any of the arrivals
	active, waiting     int64
	came, admitted      int64
}

// A ring is the history of one room. The owner guards it.
type ring struct {
	points  [fine]point
	next    int // index of the next one
	past    [coarse]stretch
	newest  int // of past
	last    Room
	started bool
}

// add records the state of the room at a time. It takes constant time.
func (r *ring) add(now time.Time, s *Room) {
	p := point{
		at: now.Unix(), active: s.ActiveUsers, waiting: s.WaitingUsers, minute: s.NewUsersLastMinute,
		limit: s.TotalActiveUsers, perMinute: s.NewUsersPerMinute,
	}
	if a := s.Auto; a != nil {
		p.found, p.knee, p.signal = a.Active, a.Knee, 100*max(0, a.P95, a.Load)
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

// since returns the growth of a total. A total that fell has restarted.
func since(now, was int64) int64 {
	if now < was {
		return now
	}
	return now - was
}

// seconds returns the known points, the oldest first.
func (r *ring) seconds() []point {
	all := make([]point, 0, fine)
	for i := range fine {
		if p := r.points[(r.next+i)%fine]; p.at > 0 {
			all = append(all, p)
		}
	}
	return all
}

// hour returns the completed stretches, the oldest first.
func (r *ring) hour() []stretch {
	all := make([]stretch, 0, coarse)
	for i := 1; i < coarse; i++ { // without the newest, which is not complete
		if x := r.past[(r.newest+i)%coarse]; x.at > 0 {
			all = append(all, x)
		}
	}
	return all
}
