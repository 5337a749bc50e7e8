package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/tests/virtual"
)

// job returns the state of a job, which must be known.
func (b *bench) job(name JobName) JobStatus {
	b.t.Helper()
	s, err := b.q.Job(b.t.Context(), name, 0)
	if err != nil {
		b.t.Fatalf("%+v: %v", name, err)
	}
	return s
}

// restart ends the process and starts it again.
func (b *bench) restart() {
	b.t.Helper()
	b.end()
	b.start()
	b.hosts()
}

// oneAtATime delivers one job at a time, and tries it again after about an hour.
func oneAtATime(c *Config) { c.Concurrency, c.MinBackoff, c.MaxBackoff = 1, time.Hour, time.Hour }

// sent returns the bodies of what the target has been sent.
func (g *target) sent() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.order)
}

// answers sets how the target answers.
func (g *target) answers(how func(*Job) Outcome) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answer = how
}

func whats(s *JobStatus) (all []string) {
	for _, t := range s.Tries {
		all = append(all, fmt.Sprintf("%s %d %d", t.What, t.Attempt, t.Status))
	}
	return all
}

// A job is followed by its ID and by its key from the put to its end, and over restarts.
func TestAJobIsFollowedToItsEnd(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAJobIsFollowedToItsEnd)
}

func testAJobIsFollowedToItsEnd(t *testing.T) {
	b := newBench(t, oneAtATime).hosts()
	begun, end := make(chan struct{}), make(chan Outcome)
	b.target.answers(func(*Job) Outcome { begun <- struct{}{}; return <-end })
	id := b.put(Job{Key: "k", Body: []byte("1")}, Job{Key: "l", Tenant: "t", Body: []byte("2")})
	by := []JobName{{ID: id[0].ID}, {Key: []byte("k")}}
	<-begun
	for _, name := range by {
		if s := b.job(name); s.State != StateUnderWay || s.ID != id[0].ID || s.Attempts != 1 ||
			s.Since.IsZero() || s.Key != string(name.Key) || s.HasEnded() {
			t.Errorf("%+v: %+v", name, s)
		}
	}
	s := b.job(NameJob("l"))
	if s.State != StateWaiting || s.Position != 1 || s.Tenant != "t" || *s.Expected != -1 {
		t.Errorf("the next one: %+v", s)
	}
	end <- Outcome{Err: errors.New("the target answered 500"), Retry: true, Status: 500}
	<-begun // of the other one
	for _, name := range by {
		s := b.job(name)
		wait := time.Until(s.At)
		if s.State != StateWaiting || s.Attempts != 1 || wait < 20*time.Minute || wait > time.Hour ||
			!slices.Equal(whats(&s), []string{"retry 1 500"}) ||
			s.Tries[0].Reason != "the target answered 500" {
			t.Errorf("%+v: %+v", name, s)
		}
	}
	end <- Outcome{Err: errors.New("busy"), Retry: true, Busy: true, Status: 429}
	until(t, "the other one waits", func() bool { return len(b.job(NameJob("l")).Tries) == 1 })
	b.restart()
	if s := b.job(by[0]); s.State != StateWaiting || s.Attempts != 1 || len(s.Tries) != 1 {
		t.Errorf("after a restart: %+v", s)
	}
	now := time.Now()
	if _, err := b.q.Change(t.Context(), by[0], JobChange{At: &now}); err != nil {
		t.Fatal(err)
	}
	<-begun
	end <- Outcome{Status: 201}
	var err error
	s, err = b.q.Job(t.Context(), by[1], time.Minute)
	want := []string{"retry 1 500", "changed 1 0", "delivered 2 201"}
	if err != nil || s.State != StateDelivered || s.Attempts != 2 || !slices.Equal(whats(&s), want) ||
		time.Since(s.Ended) > time.Second {
		t.Errorf("at the end: %+v %v", s, err)
	}
	b.target.answers(nil)
	b.restart()
	for _, name := range by {
		if s := b.job(name); s.State != StateDelivered || !slices.Equal(whats(&s), want) {
			t.Errorf("after a restart: %+v", s)
		}
	}
}

// A job that is canceled is not sent any more, by this host or the next one; one under way is not
// canceled.
func TestACanceledJobIsNotSent(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testACanceledJobIsNotSent)
}

func testACanceledJobIsNotSent(t *testing.T) {
	b := newBench(t, oneAtATime).hosts()
	begun, end := make(chan struct{}, 100), make(chan Outcome)
	b.target.answers(func(*Job) Outcome { begun <- struct{}{}; return <-end })
	r := b.put(Job{Body: []byte("under way")}, Job{Body: []byte("next")},
		Job{Body: []byte("later"), At: time.Now().Add(time.Minute)}, Job{Body: []byte("last")})
	<-begun
	name := func(i int) JobName { return JobName{ID: r[i].ID} }
	if _, err := b.q.Cancel(t.Context(), name(0)); !errors.Is(err, ErrUnderWay) {
		t.Errorf("under way: %v", err)
	}
	for _, i := range []int{1, 2, 1} {
		s, err := b.q.Cancel(t.Context(), name(i))
		if err != nil || s.State != StateCanceled || s.Ended.IsZero() {
			t.Errorf("job %d: %+v %v", i, s, err)
		}
	}
	if s := b.job(name(3)); s.Position > 2 || s.State != StateWaiting {
		t.Errorf("the last one: %+v", s)
	}
	if s := b.status(); s.Depth != 2 || s.Later != 0 {
		t.Errorf("%d jobs, %d later", s.Depth, s.Later)
	}
	end <- Outcome{Err: errors.New("no")} // dead
	<-begun
	if _, err := b.q.Cancel(t.Context(), name(0)); !errors.Is(err, ErrEnded) {
		t.Errorf("dead: %v", err)
	}
	end <- Outcome{}
	until(t, "all done", func() bool { return b.status().Depth == 0 })
	if _, err := b.q.Cancel(t.Context(), name(3)); !errors.Is(err, ErrEnded) {
		t.Errorf("delivered: %v", err)
	}
	for _, id := range []string{"999999-0", r[0].ID + "9", "1-4095"} {
		if _, err := b.q.Cancel(t.Context(), JobName{ID: id}); !errors.Is(err, ErrNoJob) {
			t.Errorf("%s: %v", id, err)
		}
	}
	b.target.answers(nil)
	b.restart()
	time.Sleep(2 * time.Minute)
	if got := b.target.sent(); !slices.Equal(got, []string{"under way", "last"}) {
		t.Errorf("sent were %q", got)
	}
	for i, want := range []string{StateDead, StateCanceled, StateCanceled, StateDelivered} {
		if s := b.job(name(i)); s.State != want {
			t.Errorf("after a restart job %d: %+v, want %s", i, s, want)
		}
	}
	_, err := b.q.PurgeDead(t.Context(), DeadFilter{IDs: []string{r[0].ID}})
	if err != nil || b.job(name(0)).State != StatePurged {
		t.Errorf("a purged one: %+v %v", b.job(name(0)), err)
	}
}

// The priority and the time of a job are changed while it waits in line, for its time or for a retry. It goes
// once, in its new place, also after a restart.
func TestAWaitingJobIsChanged(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAWaitingJobIsChanged)
}

func testAWaitingJobIsChanged(t *testing.T) {
	for _, restart := range []bool{false, true} {
		b := newBench(t, func(c *Config) { c.Concurrency = 1 }).hosts()
		if err := b.q.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		r := b.put(Job{Body: []byte("a")}, Job{Body: []byte("b")}, Job{Body: []byte("c")},
			Job{Body: []byte("d"), At: time.Now().Add(time.Hour)}, Job{Body: []byte("e"), MaxAge: 30 * time.Second})
		change := func(i int, to JobChange) JobStatus {
			t.Helper()
			s, err := b.q.Change(t.Context(), JobName{ID: r[i].ID}, to)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		five, nine, none := 5, 9, 0
		now, hour := time.Now(), time.Now().Add(2*time.Minute)
		if s := change(2, JobChange{Priority: &five}); s.Position != 1 || s.Priority != 5 {
			t.Errorf("c: %+v", s)
		}
		change(1, JobChange{Priority: &nine})
		change(1, JobChange{Priority: &five}) // behind c
		if s := change(1, JobChange{Priority: &five}); s.Position > 4 || s.Priority != 5 {
			t.Errorf("b: %+v", s)
		}
		change(3, JobChange{At: &now, Priority: &none}) // behind a
		if s := change(4, JobChange{At: &hour}); !s.At.Equal(hour.Truncate(time.Millisecond)) {
			t.Errorf("e: %+v", s)
		}
		if restart {
			b.restart()
		}
		if err := b.q.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if got := fmt.Sprint(b.target.sent()); got != "[c b a d]" && !(restart && got == "[b c a d]") {
			t.Errorf("restart: %v: sent were %v", restart, got)
		}
		time.Sleep(2 * time.Minute) // its maximum age counts from its new time
		if got := b.target.sent(); len(got) != 5 || got[4] != "e" {
			t.Errorf("restart: %v: sent were %v", restart, got)
		}
		_, err := b.q.Change(t.Context(), JobName{ID: r[0].ID}, JobChange{At: &now})
		if !errors.Is(err, ErrEnded) {
			t.Errorf("delivered: %v", err)
		}
		ten := 10
		for _, to := range []JobChange{{}, {Priority: &ten}} {
			if _, err := b.q.Change(t.Context(), JobName{ID: r[0].ID}, to); !errors.Is(err, ErrJob) {
				t.Errorf("%+v: %v", to, err)
			}
		}
		b.end()
	}
}

// Wait returns when the job has ended, and after its time at the latest.
func TestWaitForAnOutcome(t *testing.T) {
	t.Parallel()
	virtual.Test(t, func(t *testing.T) {
		b := newBench(t, nil).hosts()
		r := b.put(Job{Body: []byte("x"), At: time.Now().Add(10 * time.Second)})
		name := JobName{ID: r[0].ID}
		for _, st := range []struct {
			wait, took time.Duration
			state      string
		}{
			{3 * time.Second, 3 * time.Second, StateWaiting},
			{30 * time.Second, 7 * time.Second, StateDelivered}, {time.Hour, 0, StateDelivered},
		} {
			begin := time.Now()
			s, err := b.q.Job(t.Context(), name, st.wait)
			if took := time.Since(begin); err != nil || s.State != st.state || took < st.took-time.Second ||
				took > st.took+time.Second {
				t.Errorf("waited %v of %v for %+v %v", took, st.wait, s, err)
			}
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		b.put(Job{Key: "y", At: time.Now().Add(time.Hour)})
		if _, err := b.q.Job(ctx, NameJob("y"), time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a client that leaves: %v", err)
		}
	})
}

// Other nodes follow, cancel and change jobs as the host does, with the same errors.
func TestAnyNodeFollowsJobs(t *testing.T) {
	t.Parallel()
	virtual.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.stop()
		q1, stop1 := b.open("n1")
		b.stop = func() {}
		defer func() { stop1() }()
		b.q = q1
		b.hosts()
		q2, stop2 := b.open("n2")
		defer stop2()
		r, err := q2.Put(t.Context(), []Job{{Body: []byte("no"), At: time.Now().Add(time.Minute)},
			{Key: "k", Body: []byte("yes"), At: time.Now().Add(time.Minute)}})
		if err != nil {
			t.Fatal(err)
		}
		if s, err := q2.Job(t.Context(), JobName{ID: r[0].ID}, 0); err != nil || s.State != StateWaiting {
			t.Errorf("%+v %v", s, err)
		}
		if s, err := q2.Cancel(t.Context(), JobName{ID: r[0].ID}); err != nil || s.State != StateCanceled {
			t.Errorf("%+v %v", s, err)
		}
		_, err = q2.Job(t.Context(), JobName{ID: "77-7"}, 0)
		if !errors.Is(err, ErrNoJob) || err.Error() != ErrNoJob.Error() {
			t.Errorf("unknown: %v", err)
		}
		stop1() // the host leaves in order
		stop1 = func() {}
		s, err := q2.Job(t.Context(), NameJob("k"), 2*time.Minute)
		if err != nil || s.State != StateDelivered {
			t.Errorf("%+v %v", s, err)
		}
		if _, err := q2.Cancel(t.Context(), NameJob("k")); !errors.Is(err, ErrEnded) {
			t.Errorf("delivered: %v", err)
		}
		if s, err := q2.Job(t.Context(), JobName{ID: r[0].ID}, 0); err != nil || s.State != StateCanceled ||
			slices.Contains(b.target.sent(), "no") {
			t.Errorf("%+v %v, sent were %v", s, err, b.target.sent())
		}
	})
}

// What a client is told is on disk: another host must not say something else.
func TestAStateIsOnDiskBeforeItIsTold(t *testing.T) {
	t.Parallel()
	virtual.Test(t, func(t *testing.T) {
		b := newBench(t, nil).hosts()
		r := b.put(Job{At: time.Now().Add(time.Hour)})
		h := b.q.lead.Load()
		until(t, "known", func() bool { return b.status().Later == 1 })
		is, _ := parseRef(r[0].ID)
		h.mu.Lock()
		h.index.finish(is)
		n := h.happens(note{kind: noteDone, ref: is, done: []int{is.index()}, tried: 1}, eventDelivered)
		h.notesMu.Lock()
		h.pending = append(h.pending, n) // and nobody writes it yet
		h.notesMu.Unlock()
		h.mu.Unlock()
		if s := b.job(JobName{ID: r[0].ID}); s.State != StateDelivered {
			t.Errorf("%+v", s)
		}
		old := newReplay()
		old.history = newHistory(10, time.Hour)
		if _, err := b.q.notes.ReadAll(t.Context(), func(e store.Entry) error {
			notes, err := parseNotes(e.Data)
			for i := range notes {
				old.note(&notes[i])
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if !old.gone(is) || old.history.len() != 1 {
			t.Error("it was told before it was on disk")
		}
	})
}

// Outcomes are bounded in number and age, and survive that the notes are summed up.
func TestOutcomesAreBounded(t *testing.T) {
	t.Parallel()
	virtual.Test(t, func(t *testing.T) {
		b := newBench(t, func(c *Config) { c.Outcomes, c.OutcomeAge = 5, time.Minute }).hosts()
		r := b.put(many(8)...)
		until(t, "all done", func() bool { return b.target.count() == 8 && b.status().Depth == 0 })
		known := func() (n int) {
			for _, r := range r {
				s, err := b.q.Job(t.Context(), JobName{ID: r.ID}, 0)
				if err == nil && s.State == StateDelivered {
					n++
				} else if !errors.Is(err, ErrNoJob) {
					t.Errorf("%s: %+v %v", r.ID, s, err)
				}
			}
			return n
		}
		if n := known(); n != 5 {
			t.Errorf("%d outcomes are known, want 5", n)
		}
		h := b.q.lead.Load()
		h.mu.Lock()
		said := h.index.restate(h.purged)
		h.mu.Unlock()
		again, err := parseNotes(encodeNotes(said))
		if err != nil {
			t.Fatal(err)
		}
		old := newReplay()
		old.history = newHistory(5, time.Minute)
		for range 2 { // a host that stops before it has cut off the earlier ones leaves them twice
			for i := range again {
				old.note(&again[i])
			}
		}
		if old.history.len() != 5 {
			t.Errorf("%d events are restated, want 5", old.history.len())
		}
		b.restart()
		if n := known(); n != 5 {
			t.Errorf("%d outcomes are known after a restart, want 5", n)
		}
		time.Sleep(time.Minute)
		if n := known(); n != 0 {
			t.Errorf("%d outcomes are known after a minute", n)
		}
		time.Sleep(2 * sweepEvery)
		if n := b.q.lead.Load().remembered(); n != 0 {
			t.Errorf("%d events are kept", n)
		}
	})
}

// The history is as a list of all events, of which only the last ones count.
func TestHistory(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(uint64(seed), 0))
	const most = 3000
	y := newHistory(most, time.Hour)
	var all []event
	for i := range 20_000 {
		e := event{ref: ref(r.IntN(200 + i/10)), at: int64(i), attempt: int32(i), kind: eventRetry}
		y.add(e)
		all = append(all, e)
		if i == 15_000 {
			y.configure(100, time.Hour)
		}
		kept := most
		if i >= 15_000 {
			kept = 100
		}
		if r.IntN(100) > 0 {
			continue
		}
		of := all[r.IntN(len(all))].ref
		var want, got []int32
		for _, e := range slices.Backward(all[max(0, len(all)-kept):]) {
			if e.ref == of {
				want = append(want, e.attempt)
			}
		}
		for e := range y.of(of, int64(i)) {
			got = append(got, e.attempt)
		}
		if !slices.Equal(got, want) || y.len() > kept || len(y.chains) > 2*most {
			t.Fatalf("after %d events: %v, want %v; %d events, %d chains", i, got, want, y.len(),
				len(y.chains))
		}
	}
}

// A lineModel is a slow, obvious model of the lines of an index.
type lineModel struct {
	t     *testing.T
	r     *rand.Rand
	h     *host
	lines map[string]*[MaxPriority + 1][]ref // jobs that were canceled or moved away are 0
	all   []ref
}

// find returns where a job waits; at is -1 if it does not.
func (m *lineModel) find(of ref) (tenant string, priority, at int) {
	for tenant, lanes := range m.lines {
		for p, lane := range lanes {
			if i := slices.Index(lane, of); i >= 0 {
				return tenant, p, i
			}
		}
	}
	return "", 0, -1
}

// put adds a chunk of jobs.
func (m *lineModel) put(seq uint64) {
	var jobs [][]byte
	names := []string{"", "a", "b"}
	name := names[m.r.IntN(3)]
	for i := range 1 + m.r.IntN(100) {
		if m.r.IntN(10) == 0 {
			name = names[m.r.IntN(3)]
		}
		j := Job{Tenant: name, Priority: m.r.IntN(2), Cost: 1}
		jobs = append(jobs, appendJob(nil, &j))
		of := refOf(seq, i)
		m.lines[name][j.Priority] = append(m.lines[name][j.Priority], of)
		m.all = append(m.all, of)
	}
	m.h.index.add(seq, time.Unix(1, 0), jobs, nil)
}

// send sends the job that is next.
func (m *lineModel) send() {
	x := m.h.index
	of, tenant, ok := x.peek()
	if !ok {
		return
	}
	x.take(tenant, 1, 0)
	x.finish(of)
	lanes := m.lines[tenant.name]
	for p := MaxPriority; p >= 0; p-- {
		for len(lanes[p]) > 0 && lanes[p][0] == 0 {
			lanes[p] = lanes[p][1:]
		}
		if len(lanes[p]) == 0 {
			continue
		}
		if lanes[p][0] != of {
			m.t.Fatalf("%v goes, want %v", of, lanes[p][0])
		}
		lanes[p] = lanes[p][1:]
		return
	}
	m.t.Fatalf("%v goes, and the model has no job", of)
}

// alter cancels or moves a job.
func (m *lineModel) alter() {
	of := m.all[m.r.IntN(len(m.all))]
	name, p, at := m.find(of)
	if at < 0 {
		return
	}
	m.lines[name][p][at] = 0
	if m.r.IntN(2) == 0 {
		m.h.index.stale++
		m.h.index.finish(of)
		return
	}
	to := m.r.IntN(MaxPriority + 1)
	m.h.move(&flight{ref: of, head: head{tenant: name}}, &JobStatus{}, &JobChange{Priority: &to})
	m.lines[name][to] = append(m.lines[name][to], of)
}

// check compares the place of a job.
func (m *lineModel) check() {
	of := m.all[m.r.IntN(len(m.all))]
	name, p, at := m.find(of)
	if at < 0 {
		return
	}
	ahead := func(line []ref) (n int) {
		for _, other := range line {
			if other != 0 {
				n++
			}
		}
		return n
	}
	want := ahead(m.lines[name][p][:at])
	for _, lane := range m.lines[name][p+1:] {
		want += ahead(lane)
	}
	x := m.h.index
	got, ok := x.placeOf(of)
	tenant := x.ids[got.tenant]
	if !ok || tenant == nil || tenant.name != name || int(got.priority) != p {
		m.t.Fatalf("%v is at %+v %v, want tenant %q priority %d", of, got, ok, name, p)
	}
	if n := tenant.ahead(got); n < want || n > want+x.stale {
		m.t.Fatalf("%d are ahead of %v, want %d to %d", n, of, want, want+x.stale)
	}
}

// The places of jobs are as a list of all lines would say, whatever is put, sent, canceled and moved.
func TestPlaces(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	x := newIndex(map[string]int{"a": 3}, 0)
	m := &lineModel{t: t, r: rand.New(rand.NewPCG(uint64(seed), 0)), h: &host{index: x, q: &Queue{}},
		lines: map[string]*[MaxPriority + 1][]ref{"": {}, "a": {}, "b": {}}}
	m.put(1)
	for step := range 2000 {
		switch m.r.IntN(4) {
		case 0:
			m.put(uint64(step + 2))
		case 1:
			m.alter()
		default:
			for range m.r.IntN(50) {
				m.send()
			}
		}
		if m.r.IntN(20) == 0 {
			if m.h.index.dropStale(); x.stale != 0 {
				t.Fatal("something is left")
			}
		}
		m.check()
	}
	for _, _, ok := x.peek(); ok; _, _, ok = x.peek() {
		m.send()
	}
	maps := len(x.moved) + len(x.due) + len(x.priorities) + len(x.ids)
	if x.lined != 0 || x.stale != 0 || x.left != 0 || maps > 0 || x.weight != 0 {
		t.Errorf("no job is left: %d entries, %d stale, %d jobs, %+v", x.lined, x.stale, x.left, x.places)
	}
}
