package queue

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
)

// orderHeader is the header that the target gets the order key in. Jobs are stored with it as well: a node
// that does not know order keys delivers such a job, out of order, in place of losing it.
const orderHeader = "Headgate-Order-Key"

// A series is the unfinished jobs of one tenant and order key. Only its first job is in a line, waits for
// its time or is under way; the others are behind it. So neither the dispatcher nor the jobs of other keys
// ever meet them, however many they are.
//
// The next one of a series is always the job that was put first, as a new host finds it in the log. It
// becomes the first when the outcome of the one before is on disk: see release.
type series struct {
	key    [2]uint64
	tenant *tenant
	first  ref // 0: none yet
	behind *backlog

	priority uint8 // of the first, as it was put
	purge    int   // dropped jobs after the first had ended; 0: none
}

// A backlog is the jobs that are behind the first of a series.
type backlog struct {
	id    uint32     // in places
	jobs  []orderRun // in the order of their put; those before head have left
	head  int
	early []orderRun // jobs that came later than others that were put after them: dead ones that are redriven
	n     int        // jobs
	stale int        // entries of jobs that are finished
}

// An orderRun is consecutive jobs of a chunk with one priority.
type orderRun struct {
	first    ref
	n        uint32
	priority uint8
}

// orders are the series of a queue.
type orders struct {
	series   map[[2]uint64]*series
	firsts   map[ref]*series // by the first job
	backlogs map[uint32]*series
	lastLog  uint32
	behind   int // jobs
	most     int // series since the maps were made: a map never shrinks

	purges   int              // in this process
	purged   int              // those that are on disk
	canceled map[ref]struct{} // behind others; that is not on disk
}

func newOrders() orders {
	return orders{series: map[[2]uint64]*series{}, firsts: map[ref]*series{}, backlogs: map[uint32]*series{},
		canceled: map[ref]struct{}{}}
}

// seriesOf returns the series of a tenant and order key. Tenants may use the same keys: none can hold up
// another one. The key has no 0 byte, so no two pairs have the same text.
func (x *index) seriesOf(tenant string, order []byte) *series {
	text := append(append([]byte(tenant), 0), order...)
	key := [2]uint64{maphash.Bytes(x.seeds[0], text), maphash.Bytes(x.seeds[1], text)}
	s := x.series[key]
	if s == nil {
		s = &series{key: key, tenant: x.tenantOf(tenant)}
		s.tenant.series++
		x.series[key] = s
		x.most = max(x.most, len(x.series))
	}
	return s
}

// mostEmpty is how many series the maps may have room for without need. Chosen: some 100 KB.
const mostEmpty = 4096

// shrink makes the maps anew when most of their room is empty: an hour with a million keys would else take
// memory until the next start.
func (o *orders) shrink() {
	if o.most <= mostEmpty || len(o.series) > o.most/8 {
		return
	}
	o.series, o.firsts, o.backlogs = anew(o.series), anew(o.firsts), anew(o.backlogs)
	o.most = len(o.series)
}

// anew returns a copy of a map that has room for its entries only.
func anew[K comparable, V any](m map[K]V) map[K]V {
	n := make(map[K]V, len(m))
	maps.Copy(n, m)
	return n
}

// join adds a waiting job to its series. It returns its place if it is behind others.
func (x *index) join(r ref, h *head, at int64) (behind place, is bool) {
	if len(h.order) == 0 {
		return place{}, false
	}
	if s := x.firsts[r]; s != nil {
		s.purge = 0 // it was redriven, and ends with a note after that
		return place{}, false
	}
	s := x.seriesOf(h.tenant, h.order)
	if x.yields(s.first, r) {
		x.displace(s)
	}
	if s.first == 0 {
		s.first, s.priority = r, h.priority
		x.firsts[r] = s
		return place{}, false
	}
	if at > 0 {
		x.due[r] = at // not in later: its time counts when it is the first
	}
	return x.follow(s, r, x.rank(r, h.priority)), true
}

// yields reports whether the first job of a series lets one go before it that was put earlier and died, as
// it does at the next host: it waits.
func (x *index) yields(first, to ref) bool {
	_, flying := x.flying[first]
	_, dead := x.dead[first]
	return to < first && !flying && !dead && x.waiting(first)
}

// displace puts the first job of a series, which waits, behind it.
func (x *index) displace(s *series) {
	r := s.first
	s.first = 0
	delete(x.firsts, r)
	if _, later := x.due[r]; !later {
		x.stale++
	}
	x.moved[r] = x.follow(s, r, s.priority)
}

// follow puts a job behind the first of its series.
func (x *index) follow(s *series, r ref, priority uint8) place {
	b := s.behind
	if b == nil {
		for x.lastLog++; x.lastLog == 0 || x.backlogs[x.lastLog] != nil; x.lastLog++ {
		}
		b = &backlog{id: x.lastLog}
		s.behind, x.backlogs[b.id] = b, s
	}
	b.n++
	x.behind++
	b.add(r, priority)
	return place{number: b.id, priority: priority}
}

// add appends a job, or inserts it if jobs that were put later are there.
func (b *backlog) add(r ref, priority uint8) {
	n := len(b.jobs)
	if n == b.head {
		b.jobs = append(b.jobs, orderRun{r, 1, priority})
		return
	}
	last := &b.jobs[n-1]
	switch next := last.first + ref(last.n); {
	case next == r && last.priority == priority:
		last.n++
	case next <= r:
		b.jobs = append(b.jobs, orderRun{r, 1, priority})
	default:
		at, _ := slices.BinarySearchFunc(b.early, r, func(o orderRun, r ref) int {
			return cmp.Compare(o.first, r)
		})
		b.early = slices.Insert(b.early, at, orderRun{r, 1, priority})
	}
}

// pop removes the entry of the job that was put first.
func (b *backlog) pop() (r ref, priority uint8, ok bool) {
	if len(b.early) > 0 && (b.head == len(b.jobs) || b.early[0].first < b.jobs[b.head].first) {
		o := b.early[0]
		b.early = b.early[1:]
		return o.first, o.priority, true
	}
	if b.head == len(b.jobs) {
		return 0, 0, false
	}
	o := &b.jobs[b.head]
	r = o.first
	o.first++
	if o.n--; o.n == 0 {
		b.head++
		if b.head > 64 && b.head > len(b.jobs)/2 { // chosen: rare enough to cost nothing
			b.jobs, b.head = slices.Clone(b.jobs[b.head:]), 0
		}
	}
	return r, o.priority, true
}

// waitsBehind returns the series in which a job that is neither finished nor dead is behind others, or nil.
func (x *index) waitsBehind(r ref) (*series, place) {
	if x.behind == 0 || x.firsts[r] != nil {
		return nil, place{}
	}
	at, ok := x.placeOf(r)
	if !ok || at.tenant != 0 {
		return nil, place{}
	}
	return x.backlogs[at.number], at
}

// leaveBehind removes a job that is behind others, and finishes it. Until that is on disk, its entry holds up
// the next ones, should its turn come: the next host may find that it waits.
func (x *index) leaveBehind(s *series, r ref) {
	x.finish(r)
	x.canceled[r] = struct{}{}
	x.behind--
	b := s.behind
	b.n--
	if b.stale++; b.stale > 64+b.n { // chosen: then half the entries are gone, so each costs a step or two
		all := *b
		b.jobs, b.head, b.early, b.stale = nil, 0, nil, 0
		for r, priority, ok := all.pop(); ok; r, priority, ok = all.pop() {
			_, unwritten := x.canceled[r]
			if unwritten {
				b.stale++
			}
			if unwritten || x.waiting(r) {
				b.add(r, priority)
			}
		}
	}
}

// waiting reports whether a job is unfinished.
func (x *index) waiting(r ref) bool {
	c := x.chunks[r.chunk()]
	return c != nil && !c.done(r.index())
}

// release lets the next job of a series go, if r was its first one and has ended. It is called when that is
// on disk: otherwise the next host could send r after a job that was put later.
func (x *index) release(r ref) {
	s := x.firsts[r]
	if s == nil {
		return
	}
	if _, dead := x.dead[r]; !dead && x.waiting(r) { // redriven meanwhile
		return
	}
	if s.purge > x.purged { // the next host may find jobs between this one and the next
		return
	}
	delete(x.firsts, r)
	x.promote(s)
}

// promote makes the next job of a series the first one.
func (x *index) promote(s *series) {
	s.first, s.purge = 0, 0
	for b := s.behind; b != nil; {
		r, priority, ok := b.pop()
		if !ok {
			break
		}
		if !x.waiting(r) {
			b.stale--
			if _, unwritten := x.canceled[r]; unwritten {
				s.first, x.firsts[r] = r, s
				return
			}
			continue
		}
		b.n--
		x.behind--
		s.first, s.priority = r, priority
		x.firsts[r] = s
		delete(x.moved, r)
		priority = x.rank(r, priority)
		if at, later := x.due[r]; later {
			x.wait(laterJob{at, r, s.tenant.name, priority})
		} else {
			x.moved[r] = x.push(s.tenant.name, priority, r)
		}
		break
	}
	if b := s.behind; b != nil && b.n == 0 {
		delete(x.backlogs, b.id)
		s.behind = nil
	}
	if s.first == 0 {
		delete(x.series, s.key)
		s.tenant.series--
		x.forgetTenant(s.tenant)
		x.shrink()
	}
}

// releaseDead is release for a job that died at a time, in milliseconds. One that was redriven since ends
// with another note.
func (x *index) releaseDead(r ref, at int64) {
	if d, dead := x.dead[r]; dead && d.at == at {
		x.release(r)
	}
}

// releaseDone is release for a job that has finished.
func (x *index) releaseDone(r ref) {
	delete(x.canceled, r)
	x.release(r)
}

// releasePurged is release for the series that had to wait for a purge, in the order of their put.
func (x *index) releasePurged(purge int) {
	x.purged = max(x.purged, purge)
	var all []ref
	for r, s := range x.firsts {
		if s.purge > 0 && s.purge <= x.purged {
			all = append(all, r)
		}
	}
	slices.Sort(all)
	for _, r := range all {
		x.release(r)
	}
}

// hold makes a job that a worker has the first of its series, while a host reads the log. A redriven job
// that was put before is there already. A host that does not know order keys may have handed out several.
func (x *index) hold(r ref, h *head) {
	if len(h.order) == 0 {
		return
	}
	s := x.seriesOf(h.tenant, h.order)
	if _, flying := x.flying[s.first]; flying {
		return
	}
	if s.first != 0 {
		x.displace(s)
	}
	s.first, s.priority = r, h.priority
	x.firsts[r] = s
}

// purgeOrders drops the jobs that are behind others. A first one that has ended, now or before, stays until
// the purge is on disk; one under way ends with a later note.
func (x *index) purgeOrders() {
	x.backlogs, x.behind, x.purges = map[uint32]*series{}, 0, x.purges+1
	for _, s := range x.series {
		if _, dead := x.dead[s.first]; dead || !x.waiting(s.first) {
			s.purge = x.purges
		}
		s.behind = nil
		s.tenant = x.tenantOf(s.tenant.name)
		s.tenant.series++
	}
}
