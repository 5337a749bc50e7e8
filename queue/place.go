package queue

import (
	"cmp"
	"container/heap"
	"slices"
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

// at returns the place of job i of the chunk. All jobs behind the first of a series have the number of the
// series, and tenant 0.
func (s *span) at(i int) place {
	if s.tenant == 0 {
		return place{0, s.number, s.priority}
	}
	return place{s.tenant, s.number + uint32(i) - uint32(s.from), s.priority}
}

// line records the place of job i of a chunk. Jobs are recorded in order. A job without a place need not be
// recorded if nothing asks for it, and must not be taken for one behind others of its order key.
func (c *chunk) line(i int, at place) {
	n := len(c.spans)
	if at == (place{}) && (n == 0 || c.spans[n-1].tenant != 0) || n > 0 && c.spans[n-1].at(i) == at {
		return
	}
	c.spans = append(c.spans, span{at.tenant, at.number, uint16(i), at.priority})
}

// places say where jobs wait. Each unfinished job is in exactly one of these, in this order: in flight,
// dead, in due, in moved, or in a span of its chunk. One that is behind others of its order key may be in
// due and in moved or a span.
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
		if p.lastID > 0 && p.ids[p.lastID] == nil {
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
	return c.spans[n-1].at(i), true
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

// inLine returns how many entries the lines of a tenant have.
func (t *tenant) inLine() int { return t.ahead(place{number: t.lanes[0].pushed}) }

// aheadOfAll returns how many jobs of all tenants go before one, at most: while this tenant sends its
// jobs, the others send theirs by their weights.
func (x *index) aheadOfAll(t *tenant, own int) int {
	return min(max(own, x.lined-1), int(float64(own+1)*max(1, x.weight/t.weight))-1)
}

// leastStale is how many entries of jobs that were canceled or moved away may stay in the lines. Chosen: a
// megabyte, and 30 if each has a tenant of its own.
const leastStale = 1 << 16

// tidy removes these entries when there are many: jobs that are put and canceled while nothing is sent would
// need ever more memory.
func (x *index) tidy() {
	if x.stale > max(leastStale, (x.lined+x.left)/2) {
		x.dropStale()
	}
}

// dropStale removes the entries of jobs that were canceled or moved away from all lines.
func (x *index) dropStale() {
	gone := map[lineOf][]uint32{} // the numbers of the entries that are removed, ascending
	for _, t := range x.tenants {
		for p := range t.lanes {
			at := lineOf{t.id, uint8(p)}
			if numbers := x.tidyLane(&t.lanes[p], at); len(numbers) > 0 {
				gone[at] = numbers
			}
		}
	}
	for _, c := range x.chunks {
		x.tidySpans(c, gone)
	}
	for r, at := range x.moved {
		x.moved[r] = at.without(gone)
	}
	x.stale = 0
	x.active = slices.DeleteFunc(x.active, func(t *tenant) bool {
		if l, _ := t.lane(); l != nil {
			return false
		}
		t.place = -1
		x.weight -= t.weight
		x.forgetTenant(t)
		return true
	})
	for i, t := range x.active {
		t.place = i
	}
	heap.Init(&x.active)
}

// A lineOf names a line.
type lineOf struct {
	tenant   uint32
	priority uint8
}

// without returns a place when entries were removed from its line.
func (at place) without(gone map[lineOf][]uint32) place {
	numbers := gone[lineOf{at.tenant, at.priority}]
	n, _ := slices.BinarySearchFunc(numbers, at.number, func(a, b uint32) int {
		return cmp.Compare(int32(a-b), 0) // numbers start again after 2^32
	})
	at.number -= uint32(n)
	return at
}

// tidyLane removes entries of jobs that are not there any more, and returns their numbers.
func (x *index) tidyLane(l *lane, of lineOf) (gone []uint32) {
	before := *l
	l.runs, l.head, l.pushed = nil, 0, l.popped
	for number := before.popped; !before.empty(); number++ {
		r := before.pop()
		c := x.chunks[r.chunk()]
		if c == nil || c.done(r.index()) || x.elsewhere(r, place{of.tenant, number, of.priority}) {
			gone = append(gone, number)
			continue
		}
		l.push(r)
	}
	x.lined -= len(gone)
	return gone
}

// tidySpans sets the places of the jobs of a chunk that stand where they were put.
func (x *index) tidySpans(c *chunk, gone map[lineOf][]uint32) {
	spans := c.spans
	c.spans = nil
	for n := range spans {
		s, end := &spans[n], int(c.n)
		if n+1 < len(spans) {
			end = int(spans[n+1].from)
		}
		for i := int(s.from); i < end; i++ {
			at := s.at(i)
			if c.done(i) || at.tenant > 0 && x.elsewhere(refOf(c.seq, i), at) {
				at = place{}
			}
			c.line(i, at.without(gone))
		}
	}
	c.spans = slices.Clip(c.spans)
}
