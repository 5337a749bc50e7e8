package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/ratelimit"
	"github.com/headgate/headgate/tests/virtual"

	"github.com/headgate/headgate/limit"
)

func TestAJobThatFailsIsTriedAgainAndThenDead(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAJobThatFailsIsTriedAgainAndThenDead)
}

func testAJobThatFailsIsTriedAgainAndThenDead(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxAttempts, c.MaxBackoff = 3, 20*time.Millisecond })
	b.target.answer = func(j *Job) Outcome {
		if j.Key == "bad" {
			return Outcome{Err: fmt.Errorf("no %d", j.Attempt), Retry: true}
		}
		return Outcome{}
	}
	r := b.put(Job{Key: "bad", Tenant: "t", Body: []byte("bad")}, Job{Key: "good", Body: []byte("good")})
	until(t, "dead", func() bool { return b.status().Dead == 1 })
	dead, _, err := b.q.Dead(t.Context(), DeadFilter{}, "", 10)
	if err != nil || len(dead) != 1 || dead[0].ID != r[0].ID || dead[0].Attempts != 3 ||
		dead[0].Reason != "no 3" || dead[0].Key != "bad" {
		t.Fatalf("dead are %+v %v", dead, err)
	}
	b.end()
	b.start()
	b.hosts()
	if s := b.status(); s.Dead != 1 || s.Depth != 0 {
		t.Fatalf("after a restart %d are dead and %d wait", s.Dead, s.Depth)
	}
	b.target.answer = nil
	if n, err := b.q.Redrive(t.Context(), DeadFilter{IDs: []string{"5-5", dead[0].ID}}); n != 1 || err != nil {
		t.Fatalf("redrive: %d %v", n, err)
	}
	until(t, "none dead", func() bool { s := b.status(); return s.Dead == 0 && s.Depth == 0 })
	if n := b.target.got["bad"]; n != 4 {
		t.Errorf("it went out %d times, want 4", n)
	}
}

func TestNoAttemptIsUsedUpByAnOverrunTarget(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testNoAttemptIsUsedUpByAnOverrunTarget)
}

func testNoAttemptIsUsedUpByAnOverrunTarget(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxAttempts, c.MaxBackoff = 1, 20*time.Millisecond })
	n := 0
	b.target.answer = func(j *Job) Outcome {
		if n++; n < 5 {
			return Outcome{Err: errors.New("429"), Retry: true, Busy: true}
		}
		if j.Attempt != 1 {
			return Outcome{Err: fmt.Errorf("attempt %d", j.Attempt)}
		}
		return Outcome{}
	}
	b.put(Job{Body: []byte("x")})
	until(t, "done", func() bool { return b.status().Totals.Delivered == 1 })
	if s := b.status(); s.Totals.Busy != 4 || s.Dead != 0 {
		t.Errorf("%+v", s)
	}
}

func TestWhatIsWrongForGoodDiesAtOnce(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testWhatIsWrongForGoodDiesAtOnce)
}

func testWhatIsWrongForGoodDiesAtOnce(t *testing.T) {
	b := newBench(t, nil)
	b.target.answer = func(*Job) Outcome { return Outcome{Err: errors.New("400")} }
	b.put(many(3)...)
	until(t, "dead", func() bool { return b.status().Dead == 3 })
	if n := b.target.count(); n != 3 {
		t.Errorf("%d deliveries of 3 jobs", n)
	}
	if n, err := b.q.PurgeDead(t.Context(), DeadFilter{}); n != 3 || err != nil {
		t.Errorf("purged %d %v", n, err)
	}
	until(t, "forgotten", func() bool { return b.status().Bytes == 0 })
}

func TestPausedRateAndPurgeOutliveARestart(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testPausedRateAndPurgeOutliveARestart)
}

func testPausedRateAndPurgeOutliveARestart(t *testing.T) {
	b := newBench(t, nil).hosts()
	for _, err := range []error{b.q.Pause(t.Context()), b.q.SetRate(t.Context(), 7)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	b.put(Job{Key: "old", Body: []byte("old")}, Job{Key: "older", Body: []byte("older")})
	until(t, "known", func() bool { return b.status().Depth == 2 })
	if n, err := b.q.Purge(t.Context()); n != 2 || err != nil {
		t.Fatalf("purged %d %v", n, err)
	}
	if r := b.put(Job{Key: "old", Body: []byte("new")}); r[0].Duplicate {
		t.Error("a purged job's key is still known")
	}
	until(t, "known", func() bool { return b.status().Depth == 1 })
	for range 2 {
		b.end()
		b.start()
		b.hosts()
		if s := b.status(); !s.Paused || s.Rate != 7 || s.Depth != 1 {
			t.Fatalf("after a restart: %+v", s)
		}
	}
	if err := b.q.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "delivered", func() bool { return b.status().Depth == 0 })
	if len(b.target.order) != 1 || b.target.order[0] != "new" {
		t.Errorf("%v were delivered", b.target.order)
	}
}

func TestKeysAreKeptOnce(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testKeysAreKeptOnce)
}

func testKeysAreKeptOnce(t *testing.T) {
	b := newBench(t, nil).hosts()
	first := b.put(Job{Key: "a", Body: []byte("1")}, Job{Key: "a", Body: []byte("2")}, Job{Body: []byte("3")})
	if !first[1].Duplicate || first[1].ID != first[0].ID || first[2].Duplicate {
		t.Errorf("got %+v", first)
	}
	until(t, "delivered", func() bool { return b.status().Totals.Delivered == 2 })
	if r := b.put(Job{Key: "a"}); !r[0].Duplicate || r[0].ID != first[0].ID {
		t.Errorf("later: got %+v, want a duplicate of %v", r, first[0])
	}
	b.end()
	b.start()
	b.hosts()
	if r := b.put(Job{Key: "a"}); !r[0].Duplicate || r[0].ID != first[0].ID {
		t.Errorf("after a restart: got %+v", r)
	}
	if n := b.target.count(); n != 2 {
		t.Errorf("%d deliveries, want 2", n)
	}
}

func TestJobsGoAtTheirTime(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testJobsGoAtTheirTime)
}

func testJobsGoAtTheirTime(t *testing.T) {
	b := newBench(t, nil).hosts()
	at := time.Now().Add(700 * time.Millisecond)
	b.put(Job{Body: []byte("later"), At: at}, Job{Body: []byte("now")})
	until(t, "one", func() bool { return b.target.count() == 1 })
	b.end()
	b.start()
	until(t, "both", func() bool { return b.target.count() == 2 })
	if b.target.order[0] != "now" || b.target.at[1].Before(at.Truncate(time.Millisecond)) {
		t.Errorf("%v, the second %v too early", b.target.order, at.Sub(b.target.at[1]))
	}
}

func TestOldJobsDie(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testOldJobsDie)
}

func testOldJobsDie(t *testing.T) {
	b := newBench(t, nil).hosts()
	if err := b.q.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.put(Job{Body: []byte("old"), MaxAge: 50 * time.Millisecond},
		Job{Body: []byte("good"), MaxAge: time.Hour})
	<-time.After(100 * time.Millisecond)
	if err := b.q.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "one dead", func() bool { s := b.status(); return s.Dead == 1 && s.Depth == 0 })
	if n, err := b.q.Redrive(t.Context(), DeadFilter{}); n != 1 || err != nil { // counts from now on
		t.Fatal(n, err)
	}
	until(t, "delivered", func() bool { return b.target.count() == 2 })
}

func TestTenantsAndPriorities(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testTenantsAndPriorities)
}

func testTenantsAndPriorities(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Concurrency, c.Weights = 1, map[string]int{"heavy": 3} }).hosts()
	if err := b.q.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	var jobs []Job
	for range 300 {
		jobs = append(jobs, Job{Tenant: "heavy", Body: []byte("h")})
	}
	for range 100 {
		jobs = append(jobs, Job{Tenant: "light", Body: []byte("l")})
	}
	jobs = append(jobs, Job{Tenant: "light", Priority: 9, Body: []byte("urgent")})
	b.put(jobs...)
	until(t, "known", func() bool { return b.status().Depth == 401 })
	if err := b.q.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "delivered", func() bool { return b.target.count() == 401 })
	if at := slices.Index(b.target.order, "urgent"); at > 3 {
		t.Errorf("the urgent job was number %d", at)
	}
	heavy := 0
	for _, body := range b.target.order[:200] {
		if body == "h" {
			heavy++
		}
	}
	if heavy < 145 || heavy > 155 {
		t.Errorf("%d of the first 200 were of the tenant of weight 3, want 150", heavy)
	}
}

func TestATenantsOwnLimitHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testATenantsOwnLimitHoldsUpNobodyElse)
}

func testATenantsOwnLimitHoldsUpNobodyElse(t *testing.T) {
	b := newBench(t, func(c *Config) {
		c.Capacity = limiter(t, ratelimit.Limit{Name: "each",
			Rule: limit.Rule{Algorithm: limit.SlidingLog, Amount: 2, Window: time.Minute}})
		c.Uses = []LimitUse{{Limit: "each", PerTenant: true}}
		c.Burst = true
	}).hosts()
	var jobs []Job
	for i := range 50 {
		jobs = append(jobs, Job{Tenant: "many", Body: fmt.Appendf(nil, "many%d", i)})
	}
	b.put(append(jobs, Job{Tenant: "one", Body: []byte("one")})...)
	until(t, "the other one", func() bool { return b.target.count() == 3 })
	if b.target.got["one"] != 1 {
		t.Errorf("got %v", b.target.order)
	}
}

func TestAFullQueueSaysSo(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAFullQueueSaysSo)
}

func testAFullQueueSaysSo(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxWaiting = 10 }).hosts()
	if err := b.q.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.put(many(10)...)
	until(t, "known", func() bool { return b.status().Depth == 10 })
	if _, err := b.q.Put(t.Context(), many(1)); !errors.Is(err, ErrFull) {
		t.Errorf("an eleventh: %v", err)
	}
}

func TestALogThatIsFullSaysSo(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testALogThatIsFullSaysSo)
}

func testALogThatIsFullSaysSo(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxBytes = 1 << 20 }).hosts()
	if err := b.q.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	put := 0
	for {
		_, err := b.q.Put(t.Context(), []Job{{Body: make([]byte, 100<<10)}})
		if errors.Is(err, ErrFull) {
			break
		}
		if err != nil || put > 20 {
			t.Fatal(put, err)
		}
		put++
	}
	until(t, "known", func() bool { return b.status().Depth == put })
	if err := b.q.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "room again", func() bool { s := b.status(); return s.Depth == 0 && s.Bytes == 0 })
	b.put(many(1)...)
}

func TestNotesAreSaidAgainInFew(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testNotesAreSaidAgainInFew)
}

func testNotesAreSaidAgainInFew(t *testing.T) {
	b := newBench(t, nil).hosts()
	b.target.answer = func(j *Job) Outcome {
		if j.Key == "bad" {
			return Outcome{Err: errors.New("no")}
		}
		return Outcome{}
	}
	b.put(Job{Key: "bad"}, Job{Key: "later", At: time.Now().Add(time.Hour)})
	until(t, "one dead", func() bool { return b.status().Dead == 1 })
	for range restateAt + 50 { // each one in its own entry
		if err := b.q.SetRate(t.Context(), 1000); err != nil {
			t.Fatal(err)
		}
	}
	size, err := b.q.notes.Size(t.Context())
	if err != nil || size.Count > 100 {
		t.Errorf("%d entries of notes are kept, %v", size.Count, err)
	}
	b.end()
	b.start()
	b.hosts()
	if s := b.status(); s.Dead != 1 || s.Depth != 1 || s.Rate != 1000 || s.Later != 1 {
		t.Errorf("after a restart: %+v", s)
	}
}

func TestOneNodeHostsAndAnotherTakesOver(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testOneNodeHostsAndAnotherTakesOver)
}

func testOneNodeHostsAndAnotherTakesOver(t *testing.T) {
	b := newBench(t, func(c *Config) {
		if c.Node == "" {
			c.Node = "n1"
		}
	})
	b.hosts()
	other, stop := b.open("n2")
	defer stop()
	b.put(many(100)...)
	if r, err := other.Put(t.Context(), []Job{{Body: []byte("from n2")}}); err != nil || r[0].ID == "" {
		t.Fatal(r, err)
	}
	until(t, "all delivered", func() bool { return b.target.count() == 101 })
	if s, err := other.Status(t.Context()); err != nil || s.Node != "n1" {
		t.Fatalf("asked elsewhere: %+v %v", s, err)
	}
	if other.Hosted() {
		t.Fatal("both host")
	}
	b.stop() // it leaves, and another one continues at once
	begin := time.Now()
	until(t, "another host", func() bool { return other.Hosted() })
	if d := time.Since(begin); d > silent/2 {
		t.Errorf("a handover took %v", d)
	}
	if _, err := other.Put(t.Context(), []Job{{Body: []byte("last")}}); err != nil {
		t.Fatal(err)
	}
	until(t, "one more", func() bool { return b.target.count() == 102 })
	b.stop = func() {}
}

// The rate of a queue holds across a handover and a restart: the next host does not send a job right
// after the last one of the host before.
func TestTheRateHoldsAcrossHosts(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testTheRateHoldsAcrossHosts)
}

func testTheRateHoldsAcrossHosts(t *testing.T) {
	const every = 2 * time.Second
	b := newBench(t, func(c *Config) {
		c.Rate = 1 / every.Seconds()
		if c.Node == "" {
			c.Node = "n1"
		}
	}).hosts()
	b.put(many(12)...)
	sent := func(n int) { until(t, fmt.Sprint(n), func() bool { return b.target.count() >= n }) }
	sent(3)
	other, stop := b.open("n2")
	b.stop()
	sent(6)
	if !other.Hosted() {
		t.Error("the other node does not host the queue")
	}
	stop()
	b.stop = func() {}
	b.end()
	b.start()
	sent(9)
	for i, at := range b.target.at[1:] {
		if gap := at.Sub(b.target.at[i]); gap < every-mostBehind {
			t.Errorf("job %d was sent %v after the one before, want %v", i+1, gap, every)
		}
	}
}

// A deafHandler ignores the end of its context.
type deafHandler struct{ begun, end chan struct{} }

func (h deafHandler) Deliver(context.Context, *Job) Outcome {
	close(h.begun)
	<-h.end
	return Outcome{}
}

// A handler that ignores its context keeps its process from hosting the queue, and no other one.
func TestAnotherNodeBeginsThoughADeliveryNeverEnds(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAnotherNodeBeginsThoughADeliveryNeverEnds)
}

func testAnotherNodeBeginsThoughADeliveryNeverEnds(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	b := newBench(t, func(c *Config) {
		if c.Node == "" {
			c.Node, c.Handler = "n1", deafHandler{begun, end}
		}
	}).hosts()
	other, stop := b.open("n2")
	defer stop()
	b.put(Job{Body: []byte("x")})
	<-begun
	ended := make(chan struct{})
	go func() { b.stop(); close(ended) }()
	time.Sleep(graceEnd + writeWait + silent + 2*lookAtHost)
	if !other.Hosted() {
		t.Error("no other node hosts the queue")
	}
	select {
	case <-ended:
		t.Error("Run has ended before its delivery")
	default:
	}
	close(end)
	<-ended
	b.stop = func() {}
}

// Of several processes the first in rank hosts a queue, and the next one when the first does not run
// it. A host that works stays, whoever comes.
func TestTheFirstInRankHostsAQueue(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testTheFirstInRankHostsAQueue)
}

func testTheFirstInRankHostsAQueue(t *testing.T) {
	ranks := map[string]int{"n1": 2, "n2": 1, "n3": 0}
	b := newBench(t, func(c *Config) {
		if c.Node == "" {
			c.Node = "n1"
		}
		node := c.Node
		c.HostRank = func(name string) (int, bool) {
			if name != "queue.orders" {
				t.Errorf("the rank for %q", name)
			}
			return ranks[node], true
		}
	})
	first, stop1 := b.open("n1")
	defer stop1()
	second, stop2 := b.open("n2") // the first in rank does not run the queue
	begin := time.Now()
	until(t, "a host", func() bool { return second.Hosted() })
	if d := time.Since(begin); d < rankStep || d > rankStep+2*lookAtHost || first.Hosted() {
		t.Errorf("the second in rank hosts after %v, the last %v", d, first.Hosted())
	}
	best, stop3 := b.open("n3")
	defer stop3()
	time.Sleep(10 * time.Second)
	if best.Hosted() || !second.Hosted() {
		t.Error("the queue moved though its host works")
	}
	stop2()
	begin = time.Now()
	until(t, "another host", func() bool { return best.Hosted() })
	if d := time.Since(begin); d > rankStep {
		t.Errorf("a handover took %v", d)
	}
}

func TestAHostThatIsFencedDeliversNothing(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAHostThatIsFencedDeliversNothing)
}

func testAHostThatIsFencedDeliversNothing(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Node = "n1" }).hosts()
	h := b.q.lead.Load()
	size, err := b.q.notes.Size(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Another process writes after the last entry, as a new host does.
	until(t, "fenced by another", func() bool {
		size, err = b.q.notes.Size(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.q.notes.Append(t.Context(), encodeNotes([]note{{kind: noteBegin, text: "n2"}}), size.Last)
		return err == nil
	})
	until(t, "gone", func() bool { return b.q.lead.Load() != h })
	said := make(chan error, 1)
	go func() { // a client that saw it lead and still calls it
		_, err := h.do(t.Context(), &command{Op: opPause})
		said <- err
	}()
	select {
	case err := <-said:
		if !errors.Is(err, ErrNoHost) {
			t.Errorf("a command to a host that has ended: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("who commands a host that has ended waits for ever")
	}
	until(t, "it takes its turn again when the other one is silent", func() bool { return b.q.Hosted() })
}

// Status shows the reason for late jobs while they are still retried, not only when they are dead.
func TestStatusTellsWhyDeliveriesFail(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testStatusTellsWhyDeliveriesFail)
}

func testStatusTellsWhyDeliveriesFail(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MinBackoff, c.MaxBackoff = time.Hour, time.Hour }).hosts()
	if s := b.status(); s.LastFailure != nil || s.NextIn != 0 {
		t.Fatalf("before the first delivery: %+v", s)
	}
	b.target.answer = func(*Job) Outcome {
		return Outcome{Err: errors.New("no: " + strings.Repeat("é", maxReason)), Retry: true}
	}
	id := b.put(Job{Body: []byte("x")})[0].ID
	until(t, "a failure", func() bool { return b.status().Later == 1 })
	s := b.status()
	if f := s.LastFailure; f == nil || f.ID != id || time.Since(f.At) > time.Minute ||
		!strings.HasPrefix(f.Reason, "no: é") || len(f.Reason) > maxReason || !utf8.ValidString(f.Reason) {
		t.Errorf("the last failure is %+v", f)
	}
	if s.NextIn < 1700 || s.NextIn > 3600 {
		t.Errorf("the next attempt in %v s, want half an hour to an hour", s.NextIn)
	}
}

// Notes are written in the order of the changes: jobs that were redriven and have died again stay
// dead after a restart.
func TestJobsThatDieAgainWhileTheyAreRedrivenStayDead(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testJobsThatDieAgainWhileTheyAreRedrivenStayDead)
}

func testJobsThatDieAgainWhileTheyAreRedrivenStayDead(t *testing.T) {
	const n = 3000
	b := newBench(t, func(c *Config) { c.MaxAttempts = 1 }).hosts()
	b.target.answer = func(*Job) Outcome { return Outcome{Err: errors.New("400")} }
	first := many(n)
	for i := range first {
		first[i].Priority = MaxPriority
	}
	b.put(first...)
	until(t, "dead", func() bool { return b.status().Dead == n })
	b.put(many(n)...) // so that the dispatcher is busy
	if k, err := b.q.Redrive(t.Context(), DeadFilter{}); k < n || err != nil {
		t.Fatalf("redriven: %d %v", k, err)
	}
	until(t, "dead again", func() bool { return b.status().Dead == 2*n })
	b.end()
	b.start()
	b.hosts()
	if s := b.status(); s.Dead != 2*n || s.Totals.Dead != 0 {
		t.Errorf("after a restart %d are dead, %d of them once more, want %d and none", s.Dead,
			s.Totals.Dead, 2*n)
	}
}

// A job in flight during a purge stays, even if older notes are deleted and the process is killed
// before the answer.
func TestWhatIsUnderWayAtAPurgeOutlivesTheNotesOfIt(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testWhatIsUnderWayAtAPurgeOutlivesTheNotesOfIt)
}

func testWhatIsUnderWayAtAPurgeOutlivesTheNotesOfIt(t *testing.T) {
	b := newBench(t, nil).hosts()
	begun, end := make(chan struct{}), make(chan struct{})
	b.target.answer = func(*Job) Outcome { close(begun); <-end; return Outcome{} }
	b.put(Job{Body: []byte("under way")})
	<-begun
	if n, err := b.q.Purge(t.Context()); n != 0 || err != nil {
		t.Fatalf("purged %d %v", n, err)
	}
	h, old := b.q.lead.Load(), newReplay()
	h.mu.Lock()
	said := h.index.restate(h.purged)
	var r ref
	for r = range h.index.flying {
	}
	h.mu.Unlock()
	for i := range said {
		old.note(&said[i])
	}
	if old.gone(r) {
		t.Error("whoever hosts next would take it for purged")
	}
	close(end)
	until(t, "done", func() bool { return b.status().Depth == 0 })
}

// A timer runs on the clock of the process. It must not sleep until the time of a job, because the
// wall clock may be set meanwhile, or the machine may sleep.
func TestTheWallClockIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testTheWallClockIsLookedAtAgain)
}

func testTheWallClockIsLookedAtAgain(t *testing.T) {
	b := newBench(t, nil).hosts()
	b.put(Job{Body: []byte("x"), At: time.Now().Add(24 * time.Hour)})
	until(t, "known", func() bool { return b.status().Later == 1 })
	d := &dispatcher{host: b.q.lead.Load(), set: b.q.set.Load()}
	f, again, why := d.look(t.Context())
	if f != nil || why != "" || again.IsZero() || time.Until(again) > lookAtClock {
		t.Errorf("it looks again at %v, want within %v; %v %q", again, lookAtClock, f, why)
	}
}

func TestAJobThatNeverPassesSaysWhatItCostsOfThatLimit(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAJobThatNeverPassesSaysWhatItCostsOfThatLimit)
}

func testAJobThatNeverPassesSaysWhatItCostsOfThatLimit(t *testing.T) {
	b := newBench(t, func(c *Config) {
		c.Capacity = limiter(t, ratelimit.Limit{Name: "net", Unit: ratelimit.RequestBytes,
			Rule: limit.Rule{Algorithm: limit.SlidingLog, Amount: 10, Window: time.Second}})
		c.Uses = []LimitUse{{Limit: "net"}}
	})
	b.put(Job{Body: []byte("twenty bytes of text"), Cost: 3})
	until(t, "dead", func() bool { return b.status().Dead == 1 })
	dead, _, err := b.q.Dead(t.Context(), DeadFilter{}, "", 1)
	if want := "costs 20, more than limit net ever lets pass"; err != nil || dead[0].Reason != want {
		t.Errorf("%+v %v, want %q", dead, err, want)
	}
}

// The jobs of a paused tenant wait and keep their places, those of others go on, and that outlives a kill and
// a sum of the notes.
func TestOneTenantIsPaused(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testOneTenantIsPaused)
}

func testOneTenantIsPaused(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Concurrency = 1 }).hosts()
	if err := b.q.PauseTenant(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	soon := time.Now().Add(time.Minute)
	first := b.put(Job{Tenant: "a", Body: []byte("a1"), Key: "k"}, Job{Tenant: "a", Body: []byte("a2"), OrderKey: "o"},
		Job{Tenant: "a", Body: []byte("a3"), OrderKey: "o"}, Job{Tenant: "a", Body: []byte("a0"), Priority: 9},
		Job{Tenant: "a", Body: []byte("a4"), At: soon}, Job{Tenant: "b", Body: []byte("b1")}, Job{Body: []byte("1")})
	until(t, "the others", func() bool { return b.target.count() == 2 })
	var sum []note
	b.index(func(x *index) { sum = x.restate(0) })
	sum, err := parseNotes(encodeNotes(sum))
	old := newReplay()
	for i := range sum {
		old.note(&sum[i])
	}
	if _, ok := old.stopped["a"]; !ok || len(old.stopped) != 1 || err != nil {
		t.Errorf("a sum of the notes has %v %v", old.stopped, err)
	}
	b.restart()
	b.put(Job{Tenant: "b", Body: []byte("b2")}, Job{Tenant: "a", Body: []byte("a5")})
	time.Sleep(2 * time.Minute) // a4 has its time, too
	if got := b.target.sent(); len(got) != 3 || got[2] != "b2" {
		t.Fatalf("sent are %v", got)
	}
	s := b.status()
	if !slices.Equal(s.PausedTenants, []string{"a"}) || s.Paused || !strings.Contains(s.Reason, "are paused") {
		t.Errorf("%+v", s)
	}
	if s := b.job(JobName{ID: first[0].ID}); !s.Paused || *s.Expected != -1 || s.Position != 2 {
		t.Errorf("%+v", s)
	}
	is, err := b.q.Tenant(t.Context(), "a", 3)
	if err != nil || !is.Paused || is.InLine != 5 || len(is.Jobs) != 3 || is.Jobs[0].ID != first[3].ID ||
		is.Jobs[1].Key != "k" || is.Jobs[2].ID != first[1].ID {
		t.Errorf("%+v %v", is, err)
	}
	if _, err := b.q.Cancel(t.Context(), JobName{ID: first[0].ID}); err != nil {
		t.Error(err)
	}
	for range 2 { // to resume it twice does no harm
		if err := b.q.ResumeTenant(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "all", func() bool { return b.status().Depth == 0 })
	if got := b.target.sent()[3:]; !slices.Equal(got, []string{"a0", "a2", "a5", "a4", "a3"}) &&
		!slices.Equal(got, []string{"a0", "a2", "a4", "a5", "a3"}) {
		t.Errorf("then %v", got)
	}
	b.restart()
	if s := b.status(); len(s.PausedTenants) != 0 {
		t.Errorf("paused again: %v", s.PausedTenants)
	}
}

// The job that is next, which may hold capacity, does not go when its tenant is paused.
func TestATenantIsPausedWhileItsJobIsNext(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testATenantIsPausedWhileItsJobIsNext)
}

func testATenantIsPausedWhileItsJobIsNext(t *testing.T) {
	b := newBench(t, func(c *Config) {
		c.Capacity = limiter(t, ratelimit.Limit{Name: "db",
			Rule: limit.Rule{Algorithm: limit.SlidingLog, Amount: 2, Window: time.Minute}})
		c.Uses = []LimitUse{{Limit: "db"}}
	}).hosts()
	b.put(Job{Tenant: "a", Body: []byte("a1")}, Job{Tenant: "a", Body: []byte("a2")},
		Job{Tenant: "b", Body: []byte("b1")})
	until(t, "one", func() bool { return b.target.count() == 1 }) // the next one has its place in the pace
	for _, tenant := range []string{"a", "b"} {
		if err := b.q.PauseTenant(t.Context(), tenant); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(5 * time.Minute)
	if got := b.target.sent(); len(got) != 1 {
		t.Fatalf("sent are %v", got)
	}
	if err := b.q.ResumeTenant(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	until(t, "the other's", func() bool { return b.target.count() == 2 })
	if got := b.target.sent(); got[1] != "b1" {
		t.Fatalf("sent are %v", got)
	}
	if n, err := b.q.Purge(t.Context()); n != 1 || err != nil {
		t.Error(n, err)
	}
	b.put(Job{Tenant: "a", Body: []byte("a3")}) // paused through the purge
	time.Sleep(5 * time.Minute)
	if got := b.target.sent(); len(got) != 2 {
		t.Fatalf("sent are %v", got)
	}
	if err := b.q.ResumeTenant(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	until(t, "all", func() bool { return b.target.count() == 3 })
}

// A limit keeps a turn for jobs that a queue says it has: those of a paused tenant are none.
func TestAPausedTenantWantsNoCapacity(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAPausedTenantWantsNoCapacity)
}

func testAPausedTenantWantsNoCapacity(t *testing.T) {
	l, err := ratelimit.New(ratelimit.Config{Limits: []ratelimit.Limit{{Name: "db",
		Rule: limit.Rule{Algorithm: limit.SlidingLog, Amount: 100, Window: time.Second}}}})
	if err != nil {
		t.Fatal(err)
	}
	asked := &askedMore{Limits: l}
	b := newBench(t, func(c *Config) {
		c.Capacity, c.Uses = NewCapacity(asked), []LimitUse{{Limit: "db"}}
	}).hosts()
	if err := b.q.PauseTenant(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		b.put(Job{Tenant: "a"}, Job{Tenant: "a", Priority: 9})
	}
	b.put(Job{Tenant: "b"})
	until(t, "b's", func() bool { return b.target.count() == 1 })
	if n := asked.most.Load(); n > 1 {
		t.Errorf("the queue wants %d more for a paused tenant", n)
	}
	if err := b.q.ResumeTenant(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	until(t, "all", func() bool { return b.target.count() == 41 })
	if n := asked.most.Load(); n < 2 {
		t.Errorf("the queue wants %d more for 40 jobs", n)
	}
}

// An askedMore is real limits, with how many more units were wanted at most.
type askedMore struct {
	Limits
	most atomic.Int64
}

func (a *askedMore) Hold(
	ctx context.Context, c ratelimit.Check, w ratelimit.Waiters,
) (ratelimit.Hold, ratelimit.Result, error) {
	a.most.Store(max(a.most.Load(), w.More))
	return a.Limits.Hold(ctx, c, w)
}

func TestPausedTenantsAreBounded(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testPausedTenantsAreBounded)
}

func testPausedTenantsAreBounded(t *testing.T) {
	b := newBench(t, nil).hosts()
	for i := range MaxPausedTenants {
		if err := b.q.PauseTenant(t.Context(), fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.q.PauseTenant(t.Context(), "7"); err != nil { // it is paused already
		t.Error(err)
	}
	if err := b.q.PauseTenant(t.Context(), "x"); !errors.Is(err, ErrTenants) {
		t.Error(err)
	}
	for _, name := range []string{strings.Repeat("x", MaxTenant+1), "\xff"} {
		if err := b.q.PauseTenant(t.Context(), name); !errors.Is(err, ErrJob) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if n := len(b.status().PausedTenants); n != MaxPausedTenants {
		t.Errorf("%d are paused", n)
	}
}

// A queue is failing when ten tries in a row have failed, also if a restart is between them, until one
// succeeds or nothing is left that could.
func TestAQueueThatFailsSaysSo(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAQueueThatFailsSaysSo)
}

func testAQueueThatFailsSaysSo(t *testing.T) {
	b := newBench(t, oneAtATime).hosts()
	code := 503
	b.target.answers(func(*Job) Outcome {
		return Outcome{Err: fmt.Errorf("the target answers %d", code), Retry: code == 503, Status: code}
	})
	began := time.Now().Truncate(time.Millisecond)
	b.put(many(6)...)
	until(t, "six", func() bool { return b.target.count() == 6 })
	b.restart()
	b.put(many(3)...)
	until(t, "nine", func() bool { return b.target.count() == 9 })
	if err := b.q.PauseTenant(t.Context(), "old"); err != nil {
		t.Fatal(err)
	}
	b.put(Job{Body: []byte("old"), MaxAge: time.Millisecond, Tenant: "old"})
	time.Sleep(time.Second)
	if err := b.q.ResumeTenant(t.Context(), "old"); err != nil {
		t.Fatal(err)
	}
	until(t, "too old", func() bool { return b.status().Dead == 1 })
	if f := b.status().Failing; f != nil {
		t.Errorf("after nine: %+v", f)
	}
	b.target.mu.Lock()
	code = 400
	b.target.mu.Unlock()
	b.put(many(1)...)
	until(t, "ten", func() bool { return b.status().Dead == 2 })
	for range 2 {
		f := b.status().Failing
		if f == nil || f.Tries != 10 || f.Status != 400 || f.Reason != "the target answers 400" ||
			f.Since.Before(began) || f.Since.After(began.Add(time.Minute)) {
			t.Fatalf("%+v", f)
		}
		b.restart()
	}
	if _, err := b.q.PurgeDead(t.Context(), DeadFilter{}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.q.Purge(t.Context()); err != nil || b.status().Failing != nil {
		t.Errorf("nothing is left, and it fails: %+v %v", b.status().Failing, err)
	}
	b.put(many(1)...)
	until(t, "one dies", func() bool { return b.status().Dead == 1 })
	if f := b.status().Failing; f != nil {
		t.Errorf("the first failure after it was empty: %+v", f)
	}
	b.target.answers(nil)
	b.put(many(1)...)
	until(t, "one goes", func() bool { return b.status().Totals.Delivered == 1 })
	b.target.answers(func(*Job) Outcome { return Outcome{Err: errors.New("no")} })
	b.put(many(2)...)
	until(t, "two die", func() bool { return b.status().Dead == 3 })
	if f := b.status().Failing; f != nil {
		t.Errorf("two after a success: %+v", f)
	}
	slower := Outcome{Err: errors.New("slower"), Busy: true, Status: 429}
	b.target.answers(func(*Job) Outcome { return slower })
	sent := b.target.count()
	b.put(many(20)...)
	until(t, "all are too fast", func() bool { return b.target.count() >= sent+20 })
	if f := b.status().Failing; f != nil {
		t.Errorf("a target that asks for fewer jobs: %+v", f)
	}
}

// A new host counts what the target refused, not what died without being sent, and begins anew with a
// success.
func TestANewHostCountsFailures(t *testing.T) {
	t.Parallel()
	h := &host{index: newIndex(nil, time.Hour)}
	h.index.history = newHistory(100, time.Hour)
	for i, e := range []event{
		{kind: eventRetry, attempt: 1}, {kind: eventDelivered, attempt: 2},
		{kind: eventRetry, attempt: 1, at: 5}, {kind: eventBusy, attempt: 1, code: 503},
		{kind: eventBusy, attempt: 1, code: 429},
		{kind: eventDead, attempt: 1, why: whyOld}, {kind: eventCanceled},
		{kind: eventDead, attempt: 2, why: whyDear + "7"}, {kind: eventDead, why: "no"}, {kind: eventRedriven},
		{kind: eventDead, attempt: 3, why: "404", code: 404},
	} {
		e.ref = refOf(1, i)
		h.index.history.add(e)
	}
	h.wasFailing()
	want := Failing{Since: time.UnixMilli(5).UTC(), Tries: 3, Status: 404, Reason: "404"}
	if h.failing == nil || *h.failing != want {
		t.Errorf("%+v, want %+v", h.failing, want)
	}
}
