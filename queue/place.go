package queue

import (
	"sort"
)

// A place is where a job stands in the lines of its tenant.
type place struct {
	tenant   uint32 // tenant.id
	number   uint32 // in the lane, see lane.pushed
	priority uint8
}

// A span is the places of consecutive jobs of a chunk, which were put into one line one after the
// other. It takes 12 bytes, so that ten million waiting jobs can be found.
type span struct {
	tenant   uint32
	number   uint32 // of the first job
	from     uint16 // index of the first job in the chunk
	priority uint8
}

// line records the place of job i of a chunk. Jobs are recorded in order.
func (c *chunk) line(i int, at place) {
	if n := len(c.spans); n > 0 {
		s := &c.spans[n-1]
		next := s.number + uint32(i) - uint32(s.from)
		if s.tenant == at.tenant && s.priority == at.priority && next == at.number {
			return
		}
	}
	c.spans = append(c.spans, span{at.tenant, at.number, uint16(i), at.priority})
}

// places say where jobs wait. Each unfinished job is in exactly one of these, in this order: in flight,
// dead, in due, in moved, or in a span of its chunk.
type places struct {
	due        map[ref]int64 // jobs that wait until a time, in milliseconds
	moved      map[ref]place // jobs that are not where they were put
	priorities map[ref]uint8 // jobs whose priority was changed
	ids        map[uint32]*tenant
	lastID     uint32
	lined      int     // entries of all lines
	weight     float64 // of all tenants in active
	stale      int     // those whose job was canceled or moved away
}

func newPlaces() places {
	return places{due: map[ref]int64{}, moved: map[ref]place{}, priorities: map[ref]uint8{},
		ids: map[uint32]*tenant{}}
}

// clear empties all lines. Jobs in flight keep their priorities.
func (p *places) clear() {
	priorities, last := p.priorities, p.lastID
	*p = newPlaces()
	p.priorities, p.lastID = priorities, last
}

// newID returns an unused ID for a tenant. IDs are reused after 2^32 tenants only: spans of finished
// jobs may name tenants that have left.
func (p *places) newID() uint32 {
	for {
		p.lastID++
		if p.ids[p.lastID] == nil {
			return p.lastID
		}
	}
}

// forget removes a finished job.
func (p *places) forget(r ref) {
	delete(p.due, r)
	delete(p.moved, r)
	delete(p.priorities, r)
}

// elsewhere reports whether a job does not stand at this place any more.
func (x *index) elsewhere(r ref, here place) bool {
	if at, ok := x.moved[r]; ok {
		return at != here
	}
	_, flying := x.flying[r]
	_, later := x.due[r]
	_, dead := x.dead[r]
	return flying || later || dead
}

// placeOf returns the place of a job that waits in a line.
func (x *index) placeOf(r ref) (place, bool) {
	if at, ok := x.moved[r]; ok {
		return at, true
	}
	c := x.chunks[r.chunk()]
	if c == nil {
		return place{}, false
	}
	i := r.index()
	n := sort.Search(len(c.spans), func(n int) bool { return int(c.spans[n].from) > i })
	if n == 0 {
		return place{}, false
	}
	s := &c.spans[n-1]
	return place{s.tenant, s.number + uint32(i) - uint32(s.from), s.priority}, true
}

// ahead returns how many jobs of the same tenant go before the one at a place, at most. Jobs of the
// line that were canceled or moved count until their turn would have come.
func (t *tenant) ahead(at place) int {
	n := int(at.number - t.lanes[at.priority].popped)
	for p := int(at.priority) + 1; p <= MaxPriority; p++ {
		n += int(t.lanes[p].pushed - t.lanes[p].popped)
	}
	return n
}

// aheadOfAll returns how many jobs of all tenants go before one, at most: while this tenant sends its
// jobs, the others send theirs by their weights.
func (x *index) aheadOfAll(t *tenant, own int) int {
	return min(max(own, x.lined-1), int(float64(own+1)*max(1, x.weight/t.weight))-1)
}
