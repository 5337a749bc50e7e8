package demo

import (
	"slices"
	"time"
)

// flight is how long a request may be under way from the room to the shop. A lowered limit does not
// apply to requests sent before. Chosen, and generous.
const flight = 2 * time.Second

// A stay is one session as the shop sees it, from the start of its first request to the end of its
// last.
type stay struct {
	id       string
	from, to time.Time
	busy     int // requests in flight
	over     bool
}

// A limit is one limit of the room, valid from a given time.
type limit struct {
	from time.Time
	n    int
}

// stays computes who was inside when. The caller must hold its lock.
//
// A visitor that is silent for longer than a session is out, whatever the shop knows, and returns
// as a new visitor. So a stay ends there.
type stays struct {
	session time.Duration
	most    []limit // at once
	perMin  []limit // new ones in any minute
	open    map[string]*stay
	log     []*stay // sorted by from; old ones are dropped
	tight   reach   // the time closest to the limit
	fresh   reach   // the same for new visitors in a minute
	over    int     // admissions above one of the limits
	count   int     // admissions
}

// A reach is how much of a limit was used.
type reach struct{ n, of int }

// nearer reports whether r is at least as near to its limit as o.
func (r reach) nearer(o reach) bool { return o.of == 0 || r.n*o.of >= o.n*r.of }

func newStays(now time.Time, session time.Duration, most, perMinute int) *stays {
	return &stays{
		session: session, open: map[string]*stay{},
		most: []limit{{now, most}}, perMin: []limit{{now, perMinute}},
	}
}

// begin records the start of a request.
func (s *stays) begin(id string, now time.Time) {
	v := s.open[id]
	if v == nil || v.busy == 0 && now.Sub(v.to) > s.session {
		v = &stay{id: id, from: now, to: now}
		s.open[id] = v
		s.log = append(s.log, v)
		s.count++
	}
	v.busy++
}

// end records the end of a request; last means that the visitor ended its session.
func (s *stays) end(id string, now time.Time, last bool) {
	v := s.open[id]
	if v == nil {
		return
	}
	v.busy--
	v.to = now
	if last {
		delete(s.open, id)
	}
}

// inside returns how many visitors were inside at t, as far as is known. A visitor between two
// requests is not counted until its next request arrives.
func (s *stays) inside(t time.Time) (n int) {
	for _, v := range s.log {
		if !v.from.After(t) && (v.busy > 0 || !v.to.Before(t)) {
			n++
		}
	}
	return n
}

// tally checks recent arrivals again at each call. A visitor that was silent may turn out to have
// been inside all the time.
func (s *stays) tally(now time.Time) {
	for i, v := range s.log {
		if now.Sub(v.from) > 2*time.Minute {
			continue
		}
		at := reach{s.inside(v.from), allowed(s.most, v.from)}
		fresh := reach{1, allowed(s.perMin, v.from)}
		for j := i - 1; j >= 0 && v.from.Sub(s.log[j].from) < time.Minute; j-- {
			fresh.n++
		}
		if at.nearer(s.tight) {
			s.tight = at
		}
		if fresh.nearer(s.fresh) {
			s.fresh = fresh
		}
		if !v.over && (at.n > at.of || fresh.n > fresh.of) {
			v.over = true
			s.over++
		}
	}
	s.forget(now)
}

// forget drops stays that cannot change the result any more.
func (s *stays) forget(now time.Time) {
	const keep = 4 * time.Minute
	s.log = slices.DeleteFunc(s.log, func(v *stay) bool {
		gone := v.busy == 0 && now.Sub(v.to) > keep
		if gone && s.open[v.id] == v {
			delete(s.open, v.id)
		}
		return gone
	})
}

// here returns the number of visitors that were seen within a session and have not left, and how
// many of them are guests: people, not simulated visitors.
func (s *stays) here(now time.Time, guest func(id string) bool) (all, guests int) {
	for id, v := range s.open {
		if v.busy == 0 && now.Sub(v.to) > s.session {
			continue
		}
		all++
		if guest(id) {
			guests++
		}
	}
	return all, guests
}

// limitTo changes the limit of sessions at once from now on.
func (s *stays) limitTo(n int, now time.Time) { s.most = append(s.most, limit{now, n}) }

// allowed returns the largest limit under which a visitor that came at t may have been admitted.
func allowed(limits []limit, t time.Time) int {
	n := 0
	for i, l := range limits {
		ended := i+1 < len(limits) && t.Sub(limits[i+1].from) > flight
		if !ended && (i == 0 || !l.from.After(t)) {
			n = max(n, l.n)
		}
	}
	return n
}
