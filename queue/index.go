package queue

import (
	"container/heap"
	"hash/maphash"
	"slices"
	"time"
)

// An index knows where each unfinished job is, and which job is next. The jobs themselves stay in
// the log: a waiting job costs one bit, and a run of jobs of one tenant and priority 16 bytes. An
// index is not safe for concurrent use.
type index struct {
	chunks  map[uint64]*chunk
	order   []uint64 // the numbers of the chunks, ascending; some may be gone
	tenants map[string]*tenant
	weights map[string]int
	active  tenantHeap          // tenants with a job that may leave now
	now     float64             // virtual time of the last tenant
	later   laterHeap           // may hold entries that due no longer has
	blocked []*tenant           // tenants that must wait until a time
	stopped map[string]struct{} // paused tenants, also those without jobs
	tries   map[ref]try
	dead    map[ref]deadJob
	claims  map[ref]*claim // jobs in flight that workers have
	keys    keyWindow
	seeds   [2]maphash.Seed
	history history
	endings endings

	places
	orders
	timetables
	left       int           // unfinished jobs, including those in flight and dead
	flying     map[ref]int64 // since when, in milliseconds
	duplicates uint64
}

// A chunk is the state of the jobs of one chunk of the log.
type chunk struct {
	seq   uint64
	at    int64 // nanoseconds since 1970
	n     int32
	left  int32
	keyed bool
	spans []span   // in which lines the jobs were put
	bits  uint64   // of the first 64 jobs: finished
	more  []uint64 // of the other jobs
}

func (c *chunk) done(i int) bool {
	if i < 64 {
		return c.bits>>i&1 == 1
	}
	return c.more[i/64-1]>>(i%64)&1 == 1
}

// finish marks a job as finished. It reports whether the job was unfinished before.
func (c *chunk) finish(i int) bool {
	if i >= int(c.n) || c.done(i) {
		return false
	}
	if i < 64 {
		c.bits |= 1 << i
	} else {
		c.more[i/64-1] |= 1 << (i % 64)
	}
	if c.left--; c.left == 0 {
		c.spans = nil
	}
	return true
}

// A try is what is known of a job that was sent before.
type try struct {
	attempt int
	since   int64 // milliseconds: the age of the job counts from then
}

// A deadJob is a job that is not tried any more.
type deadJob struct {
	attempt int
	at      int64
	why     string
	tenant  string
	code    uint16 // of the last answer, 0: none
}

// A run is a series of consecutive jobs in a chunk.
type run struct {
	first ref
	n     uint32
}

// A lane holds the jobs of one tenant and one priority, in order.
type lane struct {
	runs   []run
	head   int
	pushed uint32 // entries so far; the number of an entry is how many were pushed before it
	popped uint32
}

func (l *lane) empty() bool { return l.head == len(l.runs) }

func (l *lane) push(r ref) {
	l.pushed++
	if n := len(l.runs); n > l.head && l.runs[n-1].first+ref(l.runs[n-1].n) == r {
		l.runs[n-1].n++
		return
	}
	l.runs = append(l.runs, run{r, 1})
}

func (l *lane) pop() ref {
	x := &l.runs[l.head]
	r := x.first
	x.first++
	l.popped++
	if x.n--; x.n == 0 {
		l.head++
		switch {
		case l.empty():
			l.runs, l.head = l.runs[:0], 0
		case l.head > 1024 && l.head > len(l.runs)/2: // chosen: rare enough to cost nothing
			l.runs, l.head = slices.Clone(l.runs[l.head:]), 0
		}
	}
	return r
}

// A tenant holds the waiting jobs of one tenant.
type tenant struct {
	name   string
	id     uint32
	weight float64
	used   float64 // virtual time: cost divided by weight
	lanes  [MaxPriority + 1]lane
	place  int // position in active, -1: not there
	until  time.Time
	paused bool
	series int // with this tenant
}

// lane returns the line that is next, and its priority.
func (t *tenant) lane() (*lane, uint8) {
	for p := MaxPriority; p >= 0; p-- {
		if !t.lanes[p].empty() {
			return &t.lanes[p], uint8(p)
		}
	}
	return nil, 0
}

type tenantHeap []*tenant

func (h tenantHeap) Len() int           { return len(h) }
func (h tenantHeap) Less(a, b int) bool { return h[a].used < h[b].used }
func (h tenantHeap) Swap(a, b int) {
	h[a], h[b] = h[b], h[a]
	h[a].place, h[b].place = a, b
}
func (h *tenantHeap) Push(x any) {
	t := x.(*tenant)
	t.place = len(*h)
	*h = append(*h, t)
}
func (h *tenantHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	t.place = -1
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return t
}

// A laterJob is a job that must wait until a time.
type laterJob struct {
	at       int64 // milliseconds, not 0
	ref      ref
	tenant   string
	priority uint8
}

type laterHeap []laterJob

func (h laterHeap) Len() int           { return len(h) }
func (h laterHeap) Less(a, b int) bool { return h[a].at < h[b].at }
func (h laterHeap) Swap(a, b int)      { h[a], h[b] = h[b], h[a] }
func (h *laterHeap) Push(x any)        { *h = append(*h, x.(laterJob)) }
func (h *laterHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

func newIndex(weights map[string]int, window time.Duration) *index {
	return &index{
		chunks: map[uint64]*chunk{}, tenants: map[string]*tenant{}, weights: weights,
		tries: map[ref]try{}, dead: map[ref]deadJob{}, flying: map[ref]int64{}, places: newPlaces(),
		orders: newOrders(), timetables: newTimetables(), claims: map[ref]*claim{}, history: newHistory(0, 0),
		stopped: map[string]struct{}{},
		keys:    keyWindow{window: window}, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
	}
}

// configure sets the weights of the tenants and the time for which keys are remembered.
func (x *index) configure(weights map[string]int, window time.Duration) {
	x.weights, x.keys.window = weights, window
	for _, t := range x.tenants {
		t.weight = float64(max(1, weights[t.name]))
	}
	x.weight = 0
	for _, t := range x.active {
		x.weight += t.weight
	}
}

// push adds a job to the line of its tenant, and returns its place.
func (x *index) push(name string, priority uint8, r ref) place {
	t := x.tenantOf(name)
	l := &t.lanes[priority]
	l.push(r)
	x.lined++
	if t.place < 0 && t.until.IsZero() {
		x.enter(t)
	}
	return place{t.id, l.pushed - 1, priority}
}

// tenantOf returns the tenant with a name.
func (x *index) tenantOf(name string) *tenant {
	t := x.tenants[name]
	if t == nil {
		t = &tenant{name: name, id: x.newID(), weight: float64(max(1, x.weights[name])), place: -1}
		_, t.paused = x.stopped[name]
		x.tenants[name], x.ids[t.id] = t, t
	}
	return t
}

// forgetTenant removes a tenant without jobs: one that comes back starts at the present virtual time. A
// tenant whose next job only waits for the one before has used its share.
func (x *index) forgetTenant(t *tenant) {
	if l, _ := t.lane(); l == nil && t.place < 0 && t.until.IsZero() && t.series == 0 {
		delete(x.tenants, t.name)
		delete(x.ids, t.id)
	}
}

// wait adds a job that must wait until a time, in milliseconds.
func (x *index) wait(j laterJob) {
	x.due[j.ref] = j.at
	heap.Push(&x.later, j)
	if len(x.later) > 2*len(x.due)+1024 { // chosen: rare enough to cost nothing
		x.later = slices.DeleteFunc(x.later, func(j laterJob) bool { return x.due[j.ref] != j.at })
		heap.Init(&x.later)
	}
}

// nextLater returns the job that waits for the earliest time. It drops entries of jobs whose time has
// changed.
func (x *index) nextLater() (laterJob, bool) {
	for len(x.later) > 0 {
		if j := x.later[0]; x.due[j.ref] == j.at {
			return j, true
		}
		heap.Pop(&x.later)
	}
	return laterJob{}, false
}

// ripen moves jobs whose time has come into the lines, and returns when the next one is due.
func (x *index) ripen(now time.Time) (next time.Time) {
	j, ok := x.nextLater()
	for ; ok && j.at <= now.UnixMilli(); j, ok = x.nextLater() {
		heap.Pop(&x.later)
		delete(x.due, j.ref)
		if of, _ := x.waitsBehind(j.ref); of != nil {
			continue
		}
		if c := x.chunks[j.ref.chunk()]; c != nil && !c.done(j.ref.index()) {
			x.moved[j.ref] = x.push(j.tenant, x.rank(j.ref, j.priority), j.ref)
		}
	}
	if ok {
		next = time.UnixMilli(j.at)
	}
	x.blocked = slices.DeleteFunc(x.blocked, func(t *tenant) bool {
		if now.Before(t.until) {
			if next.IsZero() || t.until.Before(next) {
				next = t.until
			}
			return false
		}
		t.until = time.Time{}
		x.enter(t) // peek removes a tenant without jobs
		return true
	})
	return next
}

// peek returns the job that is next. It stays in the line until take is called.
func (x *index) peek() (r ref, of *tenant, ok bool) {
	for len(x.active) > 0 {
		t := x.active[0]
		l, priority := t.lane()
		if l == nil {
			x.leave(t)
			continue
		}
		r = l.runs[l.head].first
		if c := x.chunks[r.chunk()]; c == nil || c.done(r.index()) || // purged or canceled
			x.stale > 0 && x.elsewhere(r, place{t.id, l.popped, priority}) {
			l.pop()
			x.lined, x.stale = x.lined-1, max(0, x.stale-1)
			continue
		}
		return r, t, true
	}
	return 0, nil, false
}

// stop pauses a tenant, or lets it go on. Its jobs stay in their lines. It reports false if too many are
// paused.
func (x *index) stop(name string, paused bool) bool {
	delete(x.stopped, name)
	if paused && len(x.stopped) >= MaxPausedTenants {
		return false
	}
	if paused {
		x.stopped[name] = struct{}{}
	}
	t := x.tenants[name]
	if t == nil {
		return true
	}
	t.paused = paused
	switch l, _ := t.lane(); {
	case paused && t.place >= 0:
		heap.Remove(&x.active, t.place)
		x.weight -= t.weight
	case !paused && l != nil && t.place < 0 && t.until.IsZero():
		x.enter(t)
	}
	x.forgetTenant(t)
	return true
}

// ready returns how many jobs could go now, at most. A limit keeps turns for them, so those of paused tenants
// do not count: other processes would wait for nobody.
func (x *index) ready() int {
	n := x.lined
	for name := range x.stopped {
		if t := x.tenants[name]; t != nil {
			n -= t.inLine()
		}
	}
	return max(0, min(n, x.left-x.behind))
}

// whyStopped says that no job may go because the tenants of those in the lines are paused, or "".
func (x *index) whyStopped() string {
	if len(x.stopped) > 0 && len(x.active)+len(x.blocked) == 0 && x.lined > x.stale {
		return "the tenants of all jobs that could go are paused"
	}
	return ""
}

// enter adds a tenant to those with jobs that may go.
func (x *index) enter(t *tenant) {
	if t.paused {
		return
	}
	t.used = max(t.used, x.now)
	heap.Push(&x.active, t)
	x.weight += t.weight
}

// leave removes the first tenant from those with jobs.
func (x *index) leave(t *tenant) {
	heap.Pop(&x.active)
	x.weight -= t.weight
	x.forgetTenant(t)
}

// take removes the job that peek returned from the line. The job is now in flight, since a time in
// milliseconds.
func (x *index) take(t *tenant, cost, at int64) {
	l, _ := t.lane()
	r := l.pop()
	x.lined--
	delete(x.moved, r)
	x.flying[r] = at
	x.now = t.used
	t.used += float64(cost) / t.weight
	if l, _ := t.lane(); l == nil {
		x.leave(t)
		return
	}
	heap.Fix(&x.active, t.place)
}

// block makes the tenant that is next wait until a time, while the others continue.
func (x *index) block(t *tenant, until time.Time) {
	t.until = until
	heap.Pop(&x.active)
	x.weight -= t.weight
	x.blocked = append(x.blocked, t)
}

// finish marks a job as finished.
func (x *index) finish(r ref) bool {
	delete(x.flying, r)
	delete(x.tries, r)
	delete(x.dead, r)
	x.forget(r)
	c := x.chunks[r.chunk()]
	if c == nil || !c.finish(r.index()) {
		return false
	}
	x.left--
	return true
}

// purge finishes all waiting jobs, forgets all keys and returns the number of jobs. Jobs in flight
// and dead jobs stay.
func (x *index) purge() (n int) {
	for _, seq := range x.order {
		c := x.chunks[seq]
		for i := range int(c.n) {
			r := refOf(seq, i)
			_, dead := x.dead[r]
			if _, flying := x.flying[r]; !dead && !flying && x.finish(r) {
				n++
			}
		}
	}
	x.tenants, x.active, x.later, x.blocked = map[string]*tenant{}, nil, nil, nil
	x.places.clear()
	x.purgeOrders()
	for _, seq := range x.order { // after a purge the same jobs are often put again
		x.chunks[seq].keyed = false
	}
	x.keys = keyWindow{window: x.keys.window, most: x.keys.most}
	return n
}

// hash returns the hash of an idempotency key. The seeds are random for each process, so that
// nobody can construct two keys with the same hash.
func (x *index) hash(key []byte) [2]uint64 {
	return [2]uint64{maphash.Bytes(x.seeds[0], key), maphash.Bytes(x.seeds[1], key)}
}

// seen returns the job that was put with a key.
func (x *index) seen(key string, at time.Time) (ref, bool) {
	return x.keys.find(x.hash([]byte(key)), at)
}

// add reads a chunk of the log into the index. old holds the notes of earlier hosts, or is nil. add
// returns the jobs that are duplicates; they are finished.
func (x *index) add(seq uint64, at time.Time, jobs [][]byte, old *replay) (duplicates []int) {
	if x.chunks[seq] != nil {
		return nil
	}
	c := &chunk{seq: seq, at: at.UnixNano(), n: int32(len(jobs)), left: int32(len(jobs))}
	if len(jobs) > 64 {
		c.more = make([]uint64, (len(jobs)-1)/64)
	}
	x.chunks[seq] = c
	x.order = append(x.order, seq)
	x.left += len(jobs)
	for i, b := range jobs {
		r := refOf(seq, i)
		h, _, _, ok := parseHead(b)
		if !ok { // in a complete chunk: no node wrote that
			x.finish(r)
			continue
		}
		tooMany := len(h.schedule) > 0 && !x.fires(&h, r)
		if len(h.key) > 0 && x.keys.window > 0 && (old == nil || seq > old.purged) {
			c.keyed = true
			known := !x.keys.add(x.hash(h.key), r, at)
			tooMany = tooMany || known && len(h.schedule) == 0 // nobody can take the key of a time before
		}
		if tooMany {
			x.duplicates++
			x.finish(r)
			duplicates = append(duplicates, i)
			continue
		}
		if old != nil && !old.apply(x, r, &h) {
			c.line(i, place{})
			continue
		}
		later := int64(0)
		if h.at > at.UnixMilli() {
			later = h.at
		}
		if here, behind := x.join(r, &h, later); behind {
			c.line(i, here)
		} else if later > 0 {
			x.wait(laterJob{later, r, h.tenant, h.priority})
			c.line(i, place{})
		} else {
			c.line(i, x.push(h.tenant, h.priority, r))
		}
	}
	c.spans = slices.Clone(c.spans) // exactly as many bytes as needed
	return duplicates
}

// rank returns the priority of a job that was put with another one, or not.
func (x *index) rank(r ref, put uint8) uint8 {
	if p, ok := x.priorities[r]; ok {
		return p
	}
	return put
}

// again puts a job that was in flight back into the line: now, or at a time.
func (x *index) again(r ref, h *head, at int64) {
	delete(x.flying, r)
	priority := x.rank(r, h.priority)
	if here, behind := x.join(r, h, at); behind {
		x.moved[r] = here
		return
	}
	if at == 0 {
		x.moved[r] = x.push(h.tenant, priority, r)
		return
	}
	x.wait(laterJob{at, r, h.tenant, priority})
}

// oldest returns when the oldest waiting job was put, or the zero time if none waits.
func (x *index) oldest() time.Time {
	for _, seq := range x.order {
		if c := x.chunks[seq]; c != nil && c.left > 0 {
			return time.Unix(0, c.at)
		}
	}
	return time.Time{}
}

// gone returns the chunks that are no longer needed, because all their jobs are finished and none
// of their keys counts any more. All chunks before first can be deleted from the log (0: none), and
// so can the chunks in others, at most most of them. Then drop removes them from the index.
func (x *index) gone(now time.Time, most int) (first uint64, others []uint64) {
	prefix := true
	for _, seq := range x.order {
		c := x.chunks[seq]
		free := c.left == 0 && (!c.keyed || now.Sub(time.Unix(0, c.at)) > x.keys.reach())
		switch {
		case free && prefix:
			first = seq + 1
		case free && len(others) < most:
			others = append(others, seq)
		default:
			prefix = prefix && free
		}
	}
	return first, others
}

// drop removes chunks that were deleted from the log: those before first, and others, ascending.
func (x *index) drop(first uint64, others []uint64) {
	if first == 0 && len(others) == 0 {
		return
	}
	x.order = slices.DeleteFunc(x.order, func(seq uint64) bool {
		_, is := slices.BinarySearch(others, seq)
		if is = is || seq < first; is {
			delete(x.chunks, seq)
		}
		return is
	})
}

// A keyWindow remembers keys for a time. It holds them in buckets of a sixth of the window each,
// and drops whole buckets.
type keyWindow struct {
	window  time.Duration
	most    int         // of maxKeys and this one the greater
	buckets []keyBucket // the newest is last
	count   int
	cut     bool // keys were dropped early
}

type keyBucket struct {
	begin int64
	refs  map[[2]uint64]ref
}

// maxKeys bounds the keys of a queue that has fewer waiting jobs at most: above it the oldest bucket is
// dropped early. Chosen: 50 bytes per key, so 200 MB.
const maxKeys = 4_000_000

func (w *keyWindow) step() time.Duration { return max(w.window/6, time.Millisecond) }

// reach returns the longest time for which a key may count.
func (w *keyWindow) reach() time.Duration { return w.window + w.step() }

func (w *keyWindow) find(key [2]uint64, at time.Time) (ref, bool) {
	for i := range w.buckets {
		b := &w.buckets[i]
		if at.UnixNano()-b.begin <= int64(w.reach()) {
			if r, ok := b.refs[key]; ok {
				return r, true
			}
		}
	}
	return 0, false
}

// add remembers a key. It reports false if the key is already known.
func (w *keyWindow) add(key [2]uint64, r ref, at time.Time) bool {
	begin := at.Truncate(w.step()).UnixNano()
	w.buckets = slices.DeleteFunc(w.buckets, func(b keyBucket) bool {
		old := at.UnixNano()-b.begin > int64(w.reach())
		if old {
			w.count -= len(b.refs)
		}
		return old
	})
	if _, known := w.find(key, at); known {
		return false
	}
	n := len(w.buckets)
	if n == 0 || w.buckets[n-1].begin < begin {
		w.buckets = append(w.buckets, keyBucket{begin, map[[2]uint64]ref{}})
		n++
	}
	w.buckets[n-1].refs[key] = r
	if w.count++; w.count > max(maxKeys, w.most) {
		w.cut = true
		if n > 1 {
			w.count -= len(w.buckets[0].refs)
			w.buckets = slices.Delete(w.buckets, 0, 1)
		} else {
			w.count, w.buckets[0].refs = 0, map[[2]uint64]ref{}
		}
	}
	return true
}
