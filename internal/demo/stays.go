package demo

import (
	"slices"
	"time"
)

// flight is how long a request may be on its way from the room to the shop, so
// that a limit lowered meanwhile is not held against it. Chosen, and generous.
const flight = 2 * time.Second

// A stay is one visitor inside, as the shop sees it: from the beginning of its
// first request to the end of its last.
type stay struct {
	id       string
	from, to time.Time
	busy     int // requests in flight
	over     bool
}

// A limit is one of the room's, from a moment on.
type limit struct {
	from time.Time
	n    int
}

// stays is the shop's arithmetic: who was inside when. Its caller guards it.
//
// A visitor that says nothing for longer than a session is out, whatever the
// shop knows, and comes as a new one: so a stay ends there.
type stays struct {
	session time.Duration
	most    []limit // at once
	perMin  []limit // new in any minute
	open    map[string]*stay
	log     []*stay // in the order of from; old ones are forgotten
	tight   reach   // the moment nearest to the limit
	fresh   reach   // the same for new visitors in a minute
	over    int     // visitors let in over one of the limits
	count   int     // visitors let in
}

// A reach is how much of a limit was used.
type reach struct{ n, of int }

// nearer reports whether r is nearer to its limit than o, or as near.
func (r reach) nearer(o reach) bool { return o.of == 0 || r.n*o.of >= o.n*r.of }

func newStays(now time.Time, session time.Duration, most, perMinute int) *stays {
	return &stays{
		session: session, open: map[string]*stay{},
		most: []limit{{now, most}}, perMin: []limit{{now, perMinute}},
	}
}

// begin notes a request of a visitor.
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

// end notes that a request is answered; last that the visitor said goodbye.
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

// inside is how many were inside at t, as far as is known yet: a visitor whose
// next request is still to come is not seen between the two.
func (s *stays) inside(t time.Time) (n int) {
	for _, v := range s.log {
		if !v.from.After(t) && (v.busy > 0 || !v.to.Before(t)) {
			n++
		}
	}
	return n
}

// tally judges those who came of late, again at each call: a visitor that was
// silent a moment ago may turn out to have been inside all the time.
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

// forget drops what can change nothing any more.
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

// here is who has been seen within a session and has not said goodbye, and how
// many of them are guests: people, that is, not simulated visitors.
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

// limitTo changes the limit of users at once from now on.
func (s *stays) limitTo(n int, now time.Time) { s.most = append(s.most, limit{now, n}) }

// allowed is the largest limit under which a visitor that came at t may have
// been let in.
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
