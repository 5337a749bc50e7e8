package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/ratelimit"
	"github.com/headgate/headgate/tests/virtual"
)

// An orderModel plays a queue with order keys, step by step, with hosts that are killed before they have
// written what they know. It judges as the target does.
type orderModel struct {
	t       *testing.T
	r       *rand.Rand
	h       *host
	log     [][][]byte // chunks; the first one is number 1
	at      []time.Time
	written []note
	pending []note

	keys     map[ref]string
	jobs     []ref
	flying   map[ref]*flight
	redriven map[ref]bool
	ended    map[ref]bool // that is on disk
	begun    map[string]ref
	attempts int
	starts   int

	ends   []ending // that are on disk, in order
	passed int      // OnEnd has got so many of them
}

func newOrderModel(t *testing.T, seed uint64) *orderModel {
	m := &orderModel{t: t, r: rand.New(rand.NewPCG(seed, 0)), keys: map[ref]string{},
		flying: map[ref]*flight{}, redriven: map[ref]bool{}, ended: map[ref]bool{}, begun: map[string]ref{}}
	m.start()
	return m
}

// start begins as a host that finds the log and the notes that were written.
func (m *orderModel) start() {
	m.pending, m.starts = nil, m.starts+1
	q := &Queue{}
	q.set.Store(&Config{MaxAttempts: 3, MinBackoff: time.Millisecond, MaxBackoff: 4 * time.Millisecond,
		OnEnd: m.onEnd, Ends: Ends()})
	m.h = &host{q: q, index: newIndex(nil, 0), wake: make(chan struct{}, 1), free: make(chan struct{}, 1000)}
	m.h.index.history = newHistory(1000, time.Hour)
	old := newReplay()
	for i := range m.written { // as they are read from disk
		notes, err := parseNotes(encodeNotes(m.written[i : i+1]))
		if err != nil {
			m.t.Fatal(err)
		}
		for i := range notes {
			old.note(&notes[i])
		}
	}
	m.h.purged, m.h.index.endings = old.purged, old.endings
	m.h.index.endings.written = old.endings.newest
	for i, jobs := range m.log {
		m.h.index.add(uint64(i+1), m.at[i], jobs, old)
	}
	m.flying = map[ref]*flight{}
	for r, c := range m.h.index.claims { // workers still have them, or their answer was lost
		m.flying[r] = &c.flight
	}
}

// flush writes what happened, and lets the next jobs go.
func (m *orderModel) flush() { m.flushSome(len(m.pending)) }

// flushSome writes the first notes that are pending: others have come while they were written.
func (m *orderModel) flushSome(count int) {
	some := m.pending[:count]
	for i := range some {
		switch n := &some[i]; n.kind {
		case noteDone, noteDead:
			m.ended[n.ref] = true
			m.ends = append(m.ends, *n.ended)
		case notePurge:
			for _, r := range m.jobs {
				dead := m.h.index.dead
				if _, is := dead[r]; r.chunk() <= n.ref.chunk() && !m.h.index.waiting(r) && !is {
					m.ended[r] = true
				}
			}
		}
	}
	m.written = append(m.written, some...)
	m.h.release(some)
	m.pending = slices.Clone(m.pending[count:])
}

// onEnd judges what it gets: ends that are on disk, in order, none left out. It may get some again.
func (m *orderModel) onEnd(_ context.Context, some []Ended) error {
	for i := range some {
		e := &some[i]
		is := func(k ending) bool {
			return k.ref.String() == e.ID && endState(k.kind) == e.State && k.at == e.At.UnixMilli() &&
				k.order == e.OrderKey && k.tenant == e.Tenant
		}
		switch {
		case m.passed < len(m.ends) && is(m.ends[m.passed]):
			m.passed++
		case !slices.ContainsFunc(m.ends[:m.passed], is):
			m.t.Fatalf("OnEnd gets %+v after %d of %d", e, m.passed, len(m.ends))
		}
		r, _ := parseRef(e.ID)
		if key := m.keys[r]; key != "" && e.Tenant+"/"+e.OrderKey != key {
			m.t.Fatalf("OnEnd gets %+v of %q", e, key)
		}
	}
	if m.r.IntN(4) == 0 {
		return errors.New("no answer")
	}
	return nil
}

// pass lets OnEnd get some jobs.
func (m *orderModel) pass(most int) int {
	n, _ := m.h.passSome(context.Background(), most)
	m.pending, m.h.pending = append(m.pending, m.h.pending...), nil
	return n
}

func (m *orderModel) put() {
	var jobs [][]byte
	seq := uint64(len(m.log) + 1)
	for i := range 1 + m.r.IntN(90) {
		j := Job{Cost: 1, Tenant: []string{"", "a"}[m.r.IntN(2)], Priority: m.r.IntN(3)}
		if n := m.r.IntN(6); n > 0 {
			j.OrderKey = fmt.Sprint("k", n/2) // runs of one key, and several keys
		}
		if m.r.IntN(10) == 0 {
			j.At = time.Now().Add(time.Duration(m.r.IntN(20)) * time.Millisecond)
		}
		r := refOf(seq, i)
		if m.jobs = append(m.jobs, r); j.OrderKey != "" {
			m.keys[r] = j.Tenant + "/" + j.OrderKey
		}
		jobs = append(jobs, appendJob(nil, &j))
	}
	m.log, m.at = append(m.log, jobs), append(m.at, time.Now())
	m.h.index.add(seq, time.Now(), jobs, nil)
}

func (m *orderModel) flight(r ref) *flight {
	b := m.log[r.chunk()-1][r.index()]
	h, _, _, ok := parseHead(b)
	job, ok2 := parseJob(b)
	if !ok || !ok2 {
		m.t.Fatalf("%v cannot be read", r)
	}
	return &flight{ref: r, head: h, job: job}
}

// send begins an attempt, and judges it.
func (m *orderModel) send() {
	x := m.h.index
	x.ripen(time.Now())
	r, t, ok := x.peek()
	if !ok || len(m.flying) > 5 {
		return
	}
	x.take(t, 1, time.Now().UnixMilli())
	f := m.flight(r)
	f.job.Attempt = x.tries[r].attempt + 1
	m.attempts++
	m.flying[r] = f
	key := m.keys[r]
	if m.r.IntN(3) == 0 { // a worker gets it when its claim is on disk
		f.pulled = true
		c := &claim{flight: *f, since: time.Now(), until: time.Now().Add(time.Minute)}
		c.head.order = nil // as in serveAsker
		x.claims[r] = c
		m.pending = append(m.pending, c.note(x.tries[r].since))
		m.flush()
	}
	if key == "" {
		return
	}
	for other := range m.flying {
		if other != r && m.keys[other] == key {
			m.t.Fatalf("%v and %v of %s are under way at once", r, other, key)
		}
	}
	if m.redriven[r] {
		return
	}
	if m.begun[key] > r {
		m.t.Fatalf("%v of %s begins after %v", r, key, m.begun[key])
	}
	m.begun[key] = r
	for _, other := range m.jobs {
		if other < r && m.keys[other] == key && !m.ended[other] && !m.redriven[other] {
			m.t.Fatalf("%v of %s begins, and %v has not ended", r, key, other)
		}
	}
}

// land ends an attempt.
func (m *orderModel) land() {
	for _, r := range m.sorted() {
		if m.r.IntN(2) == 0 {
			continue
		}
		f := m.flying[r]
		delete(m.flying, r)
		delete(m.h.index.claims, r)
		o := Outcome{}
		if n := m.r.IntN(10); n < 3 {
			o = Outcome{Err: errors.New("no"), Retry: n > 0, Busy: n == 1}
		}
		m.pending = append(m.pending, m.h.outcome(f, &o, m.h.q.set.Load()))
		return
	}
}

func (m *orderModel) sorted() (all []ref) {
	for r := range m.flying {
		all = append(all, r)
	}
	slices.Sort(all)
	return all
}

// alter cancels, changes or redrives a job.
func (m *orderModel) alter() {
	if len(m.jobs) == 0 {
		return
	}
	r, x := m.jobs[m.r.IntN(len(m.jobs))], m.h.index
	if m.r.IntN(4) == 0 {
		for r := range x.dead {
			m.redrive(r)
			if m.r.IntN(4) == 0 { // while a worker has a later one
				m.flush()
				m.start()
			}
			break
		}
		return
	}
	_, s, err := m.h.waits(&JobName{ID: r.String()})
	if err != nil {
		return
	}
	switch m.r.IntN(4) {
	case 0:
		m.pending = append(m.pending, m.h.strike(r, s, m.flight(r))...)
	case 1:
		priority := m.r.IntN(3)
		m.pending = append(m.pending, m.h.move(m.flight(r), s, &JobChange{Priority: &priority})...)
	case 2:
		at := time.Now().Add(time.Duration(m.r.IntN(20)-10) * time.Millisecond)
		m.pending = append(m.pending, m.h.move(m.flight(r), s, &JobChange{At: &at})...)
	}
}

func (m *orderModel) redrive(r ref) {
	x := m.h.index
	delete(x.dead, r)
	m.redriven[r] = true
	delete(m.ended, r)
	x.tries[r] = try{since: 1}
	x.again(r, &m.flight(r).head, 0)
	m.pending = append(m.pending, note{kind: noteTry, ref: r, since: 1})
}

func (m *orderModel) purge() {
	upTo := uint64(len(m.log))
	m.h.purged = upTo
	m.h.index.purge()
	m.pending = append(m.pending, note{kind: notePurge, ref: refOf(upTo, 0), attempt: m.h.index.purges})
	for r := range m.h.index.flying { // as the host does
		if m.h.index.claims[r] == nil {
			t := m.h.index.tries[r]
			m.h.index.tries[r] = t
			m.pending = append(m.pending, note{kind: noteTry, ref: r, attempt: t.attempt})
		}
	}
}

// check compares what the index says of jobs that wait.
func (m *orderModel) check() {
	x, behind := m.h.index, 0
	for _, r := range m.jobs {
		s, err := m.h.look(&JobName{ID: r.String()})
		if err != nil || s.Behind == "" {
			continue
		}
		behind++
		first, ok := parseRef(s.Behind)
		if s.State != StateWaiting || !ok || m.keys[first] != m.keys[r] || m.keys[r] == "" || first == r {
			m.t.Fatalf("%v of %s is %+v", r, m.keys[r], s)
		}
	}
	if behind != x.behind {
		m.t.Fatalf("%d jobs are behind others, and the index says %d", behind, x.behind)
	}
}

// Of the jobs of a key one is under way at a time, and they go in the order of their put, whatever fails, is
// canceled, changed, redriven or purged, and whenever the host is killed.
func TestOrderIsKept(t *testing.T) {
	t.Parallel()
	for range 8 {
		synctest.Test(t, testOrderIsKept)
	}
}

func testOrderIsKept(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	m := newOrderModel(t, seed)
	m.put()
	for range 1000 {
		switch n := m.r.IntN(200); {
		case n < 3 && len(m.jobs) < 800:
			m.put()
		case n < 4:
			m.start()
		case n < 5 && m.r.IntN(4) == 0:
			m.purge()
		case n < 6:
			m.h.index.dropStale()
		case n < 7:
			m.flush()
			sum := m.h.index.restate(m.h.purged)
			if m.r.IntN(2) == 0 { // killed before all of it is written
				m.written = append(m.written, sum[:m.r.IntN(len(sum)+1)]...)
				m.start()
				break
			}
			some := 0 // of the notes before are left by a kill while they are deleted
			if m.r.IntN(2) == 0 {
				some = m.r.IntN(len(m.written) + 1)
			}
			m.written = append(slices.Clone(m.written[len(m.written)-some:]), sum...)
		case n < 40:
			m.flushSome(m.r.IntN(len(m.pending) + 1))
		case n < 70:
			m.alter()
		case n < 72:
			m.pass(1 + m.r.IntN(20))
		case n < 90:
			time.Sleep(time.Millisecond)
		case n < 140:
			m.land()
		default:
			m.send()
		}
		m.check()
	}
	for x := m.h.index; x.left > len(x.dead); time.Sleep(time.Millisecond) {
		m.send()
		m.land()
		m.flush()
	}
	m.flush()
	m.start()
	for range 1000 {
		m.pass(endsAtOnce)
	}
	if m.passed != len(m.ends) || len(m.h.index.endings.all) > 0 || m.passed == 0 {
		t.Errorf("OnEnd has got %d of %d ends", m.passed, len(m.ends))
	}
	x := m.h.index
	kept := len(x.series) + len(x.firsts) + len(x.backlogs) + len(x.tenants)
	if x.left != len(x.dead) || x.behind+x.lined+kept > 0 {
		t.Errorf("no job waits: %d, %d dead, %d series, %d tenants", x.left, len(x.dead), len(x.series),
			len(x.tenants))
	}
	t.Logf("%d jobs, %d attempts, %d hosts", len(m.jobs), m.attempts, m.starts)
}

// keyed are jobs of one order key, with their names as body.
func keyed(names ...string) (all []Job) {
	for _, name := range names {
		all = append(all, Job{OrderKey: "o", Body: []byte(name)})
	}
	return all
}

func (g *target) gotAll(t *testing.T, want ...string) {
	t.Helper()
	until(t, strings.Join(want, " "), func() bool { return g.count() >= len(want) })
	time.Sleep(time.Minute) // nothing else comes
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Equal(g.order, want) {
		t.Errorf("the target got %v, want %v", g.order, want)
	}
	g.order = nil
}

// Jobs of one order key go one after the other. One that fails is tried again before the next, one that dies
// or is canceled lets the next go, and one that waits for its time holds up those behind it, but no others.
func TestAnOrderKey(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAnOrderKey)
}

func testAnOrderKey(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxAttempts = 3 }).hosts()
	b.target.answer = func(j *Job) Outcome {
		switch {
		case string(j.Body) == "twice" && j.Attempt == 1, string(j.Body) == "dies":
			return Outcome{Err: errors.New("no"), Retry: true}
		}
		return Outcome{}
	}
	b.put(keyed("1", "twice", "dies", "4")...)
	b.target.gotAll(t, "1", "twice", "twice", "dies", "dies", "dies", "4")

	in := func(d time.Duration, j []Job) []Job { j[0].At = time.Now().Add(d); return j }
	ids := b.put(in(time.Hour, keyed("late", "no", "urgent", "last"))...)
	b.put(Job{OrderKey: "p", Body: []byte("p")})
	b.target.gotAll(t, "p")
	b.put(Job{OrderKey: "o", Tenant: "t", Body: []byte("t")})
	b.target.gotAll(t, "t")
	// It goes before the one that waits.
	if n, err := b.q.Redrive(t.Context(), DeadFilter{}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	b.target.gotAll(t, "dies", "dies", "dies")
	nine := MaxPriority
	if s, err := b.q.Change(t.Context(), NameJob(ids[2].ID), JobChange{Priority: &nine}); err != nil ||
		s.State != StateWaiting || s.Behind != ids[0].ID || s.Priority != nine || s.Position != 0 {
		t.Fatalf("%+v %v", s, err)
	}
	at := time.Now().Add(2 * time.Hour).UTC()
	if s, err := b.q.Change(t.Context(), NameJob(ids[3].ID), JobChange{At: &at}); err != nil ||
		s.Behind != ids[0].ID || s.At.Sub(at).Abs() > time.Millisecond {
		t.Fatalf("%+v %v", s, err)
	}
	if s, err := b.q.Cancel(t.Context(), NameJob(ids[1].ID)); err != nil || s.State != StateCanceled ||
		s.Behind != "" {
		t.Fatalf("%+v %v", s, err)
	}
	if s := b.status(); s.Depth != 3 || s.Behind != 2 || s.Later != 2 {
		t.Fatalf("%+v", s)
	}
	b.end() // all of it is found again
	b.start()
	b.hosts()
	if s := b.status(); s.Depth != 3 || s.Behind != 2 || s.Later != 2 {
		t.Fatalf("%+v", s)
	}
	now := time.Now()
	if s, err := b.q.Change(t.Context(), NameJob(ids[0].ID), JobChange{At: &now}); err != nil {
		t.Fatal(s, err)
	}
	b.target.gotAll(t, "late", "urgent")
	time.Sleep(2 * time.Hour)
	b.target.gotAll(t, "last")
	if s := b.status(); s.Depth != 0 || s.Behind != 0 || s.Tenants != 0 {
		t.Errorf("%+v", s)
	}
}

// Workers get jobs of one order key one after the other: the next one when the one before is acknowledged,
// and not when its lease has ended.
func TestAnOrderKeyIsClaimed(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAnOrderKeyIsClaimed)
}

func testAnOrderKeyIsClaimed(t *testing.T) {
	b := newBench(t, pulled).hosts()
	b.put(append(keyed("1", "2", "3"), Job{OrderKey: "p", Body: []byte("p")}, Job{Body: []byte("free")})...)
	claim := func(want ...string) (receipts []string) {
		t.Helper()
		got, err := b.q.Claim(t.Context(), Want{Max: 10, Wait: time.Minute, Lease: time.Hour})
		var names []string
		for i := range got {
			names, receipts = append(names, string(got[i].Body)), append(receipts, got[i].Receipt)
		}
		if slices.Sort(names); err != nil || !slices.Equal(names, want) {
			t.Fatalf("claimed %v %v, want %v", names, err, want)
		}
		return receipts
	}
	one := claim("1", "free", "p")
	if got, err := b.q.Claim(t.Context(), Want{Max: 10}); err != nil || len(got) > 0 {
		t.Fatalf("%+v %v", got, err)
	}
	b.end() // the next host knows who has the first job
	b.start()
	b.hosts()
	if got, err := b.q.Claim(t.Context(), Want{Max: 10}); err != nil || len(got) > 0 {
		t.Fatalf("%+v %v", got, err)
	}
	time.Sleep(time.Hour + time.Second) // all leases end
	again := claim("1", "free", "p")
	if all, err := b.q.Ack(t.Context(), one...); err != nil || all[0].Code != CodeLease {
		t.Fatal(all, err)
	}
	if _, err := b.q.Ack(t.Context(), again...); err != nil {
		t.Fatal(err)
	}
	two := claim("2")
	if _, err := b.q.Nack(t.Context(), Nack{Untried: true}, two...); err != nil {
		t.Fatal(err)
	}
	two = claim("2")
	if _, err := b.q.Nack(t.Context(), Nack{Dead: true}, two...); err != nil {
		t.Fatal(err)
	}
	if _, err := b.q.Ack(t.Context(), claim("3")...); err != nil {
		t.Fatal(err)
	}
}

// A tenant with few order keys has no more than its share: it is not new whenever its next job may go.
func TestAnOrderKeyIsNoShare(t *testing.T) {
	x := newIndex(nil, 0)
	var jobs [][]byte
	for i := range 200 {
		j := Job{Cost: 1, Tenant: fmt.Sprint("t", i%4)}
		if i%4 == 0 {
			j.OrderKey = "o"
		}
		jobs = append(jobs, appendJob(nil, &j))
	}
	x.add(1, time.Now(), jobs, nil)
	sent := map[string]int{}
	for range 80 {
		r, of, ok := x.peek()
		if !ok {
			t.Fatal("nothing waits")
		}
		x.take(of, 1, 0)
		sent[of.name]++
		x.finish(r)
		x.release(r)
	}
	for name, n := range sent {
		if n != 20 {
			t.Errorf("%s has sent %d of 80, want 20", name, n)
		}
	}
}

// A job that a purge has left, because it was under way, holds up its order key until its own outcome is on
// disk: the next host finds only the purge, and sends it again.
func TestAPurgeEndsNoJobUnderWay(t *testing.T) {
	m := newOrderModel(t, 1)
	one := func(seq uint64) {
		b := appendJob(nil, &Job{Cost: 1, OrderKey: "o"})
		m.log, m.at = append(m.log, [][]byte{b}), append(m.at, time.Now())
		m.h.index.add(seq, time.Now(), [][]byte{b}, nil)
	}
	take := func() (r ref, ok bool) {
		x := m.h.index
		r, of, ok := x.peek()
		if ok {
			x.take(of, 1, 1)
		}
		return r, ok
	}
	deliver := func(r ref) {
		m.pending = append(m.pending, m.h.outcome(m.flight(r), &Outcome{}, m.h.q.set.Load()))
	}
	one(1)
	first, _ := take()
	m.purge()
	written := len(m.pending)
	one(2)
	deliver(first) // while the purge is being written
	m.flushSome(written)
	if r, ok := take(); ok {
		t.Fatalf("%v goes, and on disk %v has not ended", r, first)
	}
	m.flush()
	second, ok := take()
	if !ok || second != refOf(2, 0) {
		t.Fatal("the next job does not go")
	}

	// What a second purge ends is no more certain after the first one.
	deliver(second)
	m.flush()
	one(3)
	m.purge()
	written = len(m.pending)
	one(4)
	m.purge()
	one(5)
	m.flushSome(written)
	if r, ok := take(); ok {
		t.Fatalf("%v goes, and on disk %v has not ended", r, refOf(4, 0))
	}
	m.flush()
	if r, _ := take(); r != refOf(5, 0) {
		t.Fatalf("%v goes, want the last one", r)
	}
}

// What ends while others of its order key wait behind it is not the last word: those that were canceled or
// purged after it may wait again at the next host, and go before what was put later.
func TestWhatEndsBehindAFirstJobHoldsUpTheKey(t *testing.T) {
	for _, purged := range []bool{false, true} {
		m := newOrderModel(t, 1)
		job := func() []byte { return appendJob(nil, &Job{Cost: 1, OrderKey: "o"}) }
		const last = 200 // so many that the entries of the canceled ones are removed
		var jobs [][]byte
		for i := range last + 1 {
			jobs, m.jobs = append(jobs, job()), append(m.jobs, refOf(1, i))
		}
		m.log, m.at = [][][]byte{jobs}, []time.Time{time.Now()}
		x := m.h.index
		x.add(1, time.Now(), jobs, nil)
		r, of, _ := x.peek()
		x.take(of, 1, 1)
		m.pending = append(m.pending, m.h.outcome(m.flight(r), &Outcome{}, m.h.q.set.Load()))
		next := refOf(1, last)
		if purged {
			m.purge()
			m.log, m.at = append(m.log, [][]byte{job()}), append(m.at, time.Now())
			x.add(2, time.Now(), m.log[1], nil)
			next = refOf(2, 0)
		}
		for _, r := range m.jobs[1:last] {
			if s, err := m.h.look(&JobName{ID: r.String()}); err == nil && s.State == StateWaiting {
				m.pending = append(m.pending, m.h.strike(r, s, nil)...)
			}
		}
		m.flushSome(1)
		if r, _, ok := x.peek(); ok {
			t.Errorf("%v goes, and on disk %v waits", r, refOf(1, 1))
		}
		m.flush()
		if r, _, _ := x.peek(); r != next {
			t.Errorf("%v goes, want %v", r, next)
		}
		if len(x.canceled) > 0 {
			t.Errorf("%d are left", len(x.canceled))
		}
	}
}

// A job that was redriven holds up its order key until its last outcome is on disk, not that before.
func TestADeathBeforeARedriveEndsNothing(t *testing.T) {
	synctest.Test(t, testADeathBeforeARedriveEndsNothing)
}

func testADeathBeforeARedriveEndsNothing(t *testing.T) {
	no := Outcome{Err: errors.New("no")}
	for _, c := range []struct {
		last   Outcome
		purged bool // between the death and the redrive
	}{{}, {last: no}, {last: no, purged: true}} {
		m := newOrderModel(t, 1)
		jobs := [][]byte{appendJob(nil, &Job{Cost: 1, OrderKey: "o"}), appendJob(nil, &Job{Cost: 1, OrderKey: "o"})}
		m.log, m.at = [][][]byte{jobs}, []time.Time{time.Now()}
		x := m.h.index
		x.add(1, time.Now(), jobs, nil)
		first := refOf(1, 0)
		try := func(o Outcome) {
			r, of, ok := x.peek()
			if !ok || r != first {
				t.Fatalf("%v %t goes, want %v", r, ok, first)
			}
			x.take(of, 1, 1)
			m.pending = append(m.pending, m.h.outcome(m.flight(r), &o, m.h.q.set.Load()))
		}
		try(no)
		next := refOf(1, 1)
		if c.purged {
			m.purge()
			m.log, m.at = append(m.log, jobs[:1]), append(m.at, time.Now())
			x.add(2, time.Now(), jobs[:1], nil)
			next = refOf(2, 0)
		}
		m.redrive(first)
		written := len(m.pending)
		time.Sleep(time.Millisecond)
		try(c.last)
		m.flushSome(written)
		if r, _, ok := x.peek(); ok {
			t.Errorf("%v goes, and on disk %v is redriven", r, first)
		}
		m.flush()
		if r, _, _ := x.peek(); r != next {
			t.Errorf("%v goes, want %v", r, next)
		}
	}
}

// A job that a worker had at the last host keeps its priority when one that is redriven goes before it.
func TestAHeldJobKeepsItsPriority(t *testing.T) {
	m := newOrderModel(t, 1)
	job := func() []byte { return appendJob(nil, &Job{Cost: 1, OrderKey: "o", Priority: 7}) }
	jobs := [][]byte{job(), job()}
	m.log, m.at = [][][]byte{jobs}, []time.Time{time.Now()}
	dead, held := refOf(1, 0), refOf(1, 1)
	now := time.Now().UnixMilli()
	m.written = []note{{kind: noteDead, ref: dead, attempt: 1, at: now},
		{kind: noteClaim, ref: held, attempt: 1, at: now, until: now}}
	m.start()
	x := m.h.index
	x.again(held, &x.claims[held].head, 0) // its worker has given it back
	delete(x.claims, held)
	m.redrive(dead)
	for _, want := range []ref{dead, held} {
		r, of, _ := x.peek()
		if _, priority := of.lane(); r != want || priority != 7 {
			t.Fatalf("%v goes with priority %d, want %v with 7", r, priority, want)
		}
		x.take(of, 1, 1)
		m.pending = append(m.pending, m.h.outcome(m.flight(r), &Outcome{}, m.h.q.set.Load()))
		m.flush()
	}
}

// noteMore are limits that note how many more units a queue says it wants.
type noteMore struct {
	Limits
	most *atomic.Int64
}

func (n noteMore) Hold(
	ctx context.Context, c ratelimit.Check, w ratelimit.Waiters,
) (ratelimit.Hold, ratelimit.Result, error) {
	n.most.Store(max(n.most.Load(), w.More))
	return n.Limits.Hold(ctx, c, w)
}

// Jobs that are behind others of their order key want nothing from a limit that others share: only the first
// one could go.
func TestJobsBehindOthersWantNothing(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testJobsBehindOthersWantNothing)
}

func testJobsBehindOthersWantNothing(t *testing.T) {
	var most atomic.Int64
	b := newBench(t, func(c *Config) {
		c.Capacity = NewCapacity(noteMore{limiter(t, rate(1000)).limits, &most})
		c.Burst, c.Uses = true, []LimitUse{{Limit: "db"}}
	}).hosts()
	b.put(keyed(strings.Split(strings.Repeat("x", 50), "")...)...)
	until(t, "all delivered", func() bool { return b.target.count() == 50 })
	if n := most.Load(); n > 1 {
		t.Errorf("%d more units were wanted, and one job could go", n)
	}
}

// When most of many order keys have ended, their room is given back, and those that are left keep their
// order.
func TestTheRoomOfOrderKeysIsGivenBack(t *testing.T) {
	t.Parallel()
	const keys, long, left = 20_000, 100, 7 // two jobs each; the long ones have five
	x := newIndex(nil, 0)
	var jobs [][]byte
	of := func(i int) (key, turn int) {
		if i < 2*keys {
			return i % keys, i / keys
		}
		return (i - 2*keys) % long, 2 + (i-2*keys)/long
	}
	for i := range 2*keys + 3*long {
		key, _ := of(i)
		jobs = append(jobs, appendJob(nil, &Job{Cost: 1, OrderKey: fmt.Sprint("o", key)}))
	}
	for i, some := range slices.Collect(slices.Chunk(jobs, chunkJobs)) {
		x.add(uint64(i+1), time.UnixMilli(1), some, nil)
	}
	next := map[int]int{} // by key: how many have gone
	rooms := 0
	for most := x.most; len(x.series) > left; {
		r, tenant, ok := x.peek()
		if !ok {
			t.Fatal("none is next")
		}
		key, turn := of(int(r.chunk()-1)*chunkJobs + r.index())
		if next[key] != turn {
			t.Fatalf("job %d of key %d goes after %d", turn, key, next[key])
		}
		next[key]++
		x.take(tenant, 1, 0)
		x.finish(r)
		x.release(r)
		if x.most < most {
			rooms++
			most = x.most
			last := 2*keys + 2*long // the last job of key 0
			if s, _ := x.waitsBehind(refOf(uint64(last/chunkJobs+1), last%chunkJobs)); s == nil {
				t.Error("a job that is behind others is not found any more")
			}
		}
	}
	if rooms != 1 || x.most > keys/8 || len(x.firsts) != left || len(x.backlogs) > left {
		t.Errorf("given back %d times, room for %d, %d are first, %d have others behind", rooms, x.most,
			len(x.firsts), len(x.backlogs))
	}
}
