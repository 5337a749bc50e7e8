package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/ratelimit"
	"github.com/headgate/headgate/tests/virtual"
)

// pulled makes a queue whose jobs are claimed.
func pulled(c *Config) { c.Handler, c.Lease, c.MaxBackoff = nil, 30*time.Second, 20*time.Millisecond }

// claim claims jobs. The host may not know yet of jobs that were just put.
func (b *bench) claim(w Want) []Claimed {
	b.t.Helper()
	w.Wait = cmp.Or(w.Wait, 100*time.Millisecond)
	jobs, err := b.q.Claim(b.t.Context(), w)
	if err != nil {
		b.t.Fatal(err)
	}
	return jobs
}

func receiptsOf(jobs []Claimed) (all []string) {
	for i := range jobs {
		all = append(all, jobs[i].Receipt)
	}
	return all
}

func bodies(jobs []Claimed) (all []string) {
	for i := range jobs {
		all = append(all, string(jobs[i].Body))
	}
	return all
}

// settled checks the answers about receipts: "ok", or a code with the state of the job.
func settled(t *testing.T, want ...string) func([]Settled, error) {
	t.Helper()
	return func(all []Settled, err error) {
		t.Helper()
		var got []string
		for _, s := range all {
			switch {
			case s.Err() == nil:
				got = append(got, "ok")
			default:
				got = append(got, strings.TrimSpace(s.Code+" "+s.State))
			}
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("the answers are %q %v, want %q", got, err, want)
		}
	}
}

// A worker claims jobs in the order of their priorities, and what it has done is done, also after a
// restart. Its claims survive one.
func TestAWorkerClaimsJobs(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAWorkerClaimsJobs)
}

func testAWorkerClaimsJobs(t *testing.T) {
	b := newBench(t, pulled).hosts()
	b.put(Job{Key: "a", Body: []byte("1")}, Job{Key: "b", Body: []byte("2"), Headers: map[string]string{"X-A": "b"}},
		Job{Body: []byte("3"), Priority: 5}, Job{Body: []byte("4"), At: time.Now().Add(time.Hour)})
	got := b.claim(Want{Max: 10, Worker: "w1"})
	if !slices.Equal(bodies(got), []string{"3", "1", "2"}) || got[0].Attempt != 1 || got[2].Key != "b" ||
		got[2].Headers["X-A"] != "b" || got[2].Queue != "orders" || got[2].ID == "" ||
		time.Until(got[2].Until) > 30*time.Second || time.Until(got[2].Until) < 29*time.Second {
		t.Fatalf("claimed %+v", got)
	}
	if again := b.claim(Want{}); len(again) != 0 {
		t.Errorf("claimed again: %+v", again)
	}
	s := b.job(NameJob("a"))
	if s.State != StateUnderWay || s.Worker != "w1" || s.Attempts != 1 || s.Until.Sub(got[1].Until).Abs() > time.Millisecond ||
		s.Since.IsZero() {
		t.Errorf("a claimed job is %+v", s)
	}
	if _, err := b.q.Cancel(t.Context(), NameJob("a")); !errors.Is(err, ErrUnderWay) {
		t.Errorf("it is canceled: %v", err)
	}
	if s := b.status(); !s.Pulled || s.InFlight != 3 || s.Depth != 4 {
		t.Errorf("the status is %+v", s)
	}
	settled(t, "ok", "lease_over delivered", "invalid_receipt", "invalid_receipt")(
		b.q.Ack(t.Context(), got[0].Receipt, got[0].Receipt, got[0].ID, ""))
	b.restart()
	if s := b.job(NameJob("a")); s.State != StateUnderWay || s.Worker != "w1" ||
		s.Until.Sub(got[1].Until).Abs() > time.Millisecond {
		t.Errorf("after a restart it is %+v", s)
	}
	if again := b.claim(Want{Max: 10}); len(again) != 0 {
		t.Errorf("claimed again after a restart: %q", bodies(again))
	}
	settled(t, "ok", "ok")(b.q.Ack(t.Context(), receiptsOf(got[1:])...))
	b.restart()
	s = b.job(NameJob("a"))
	if s.State != StateDelivered || !slices.Equal(whats(&s), []string{"delivered 1 0"}) {
		t.Errorf("after its ack it is %+v", s)
	}
	if s := b.status(); s.Depth != 1 || s.InFlight != 0 {
		t.Errorf("%+v", s)
	}
}

// A job whose lease has ended is handed out again, with a try counted, by this host and by the next one. The
// receipt of the first claim counts no more.
func TestALeaseEnds(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testALeaseEnds)
}

func testALeaseEnds(t *testing.T) {
	b := newBench(t, pulled).hosts()
	b.put(Job{Key: "a", Body: []byte("1")})
	first := b.claim(Want{Lease: 2 * time.Second, Worker: "w1"})
	began := time.Now()
	second := b.claim(Want{Lease: 2 * time.Second, Wait: time.Minute, Worker: "w2"})
	d := time.Since(began)
	if len(second) != 1 || second[0].Attempt != 2 || d < 1900*time.Millisecond || d > 3*time.Second {
		t.Fatalf("the second claim after %v: %+v", d, second)
	}
	settled(t, "lease_over under_way")(b.q.Ack(t.Context(), first[0].Receipt))
	settled(t, "lease_over under_way")(b.q.Nack(t.Context(), Nack{Dead: true}, first[0].Receipt))
	settled(t, "lease_over under_way")(b.q.Extend(t.Context(), time.Hour, first[0].Receipt))
	s := b.job(NameJob("a"))
	if s.Worker != "w2" || len(s.Tries) != 1 || s.Tries[0].What != "retry" || s.Tries[0].Attempt != 1 ||
		!strings.Contains(s.Tries[0].Reason, "w1") {
		t.Errorf("%+v", s)
	}
	settled(t, "ok")(b.q.Extend(t.Context(), 10*time.Second, second[0].Receipt))
	b.restart()
	time.Sleep(6 * time.Second) // a lease that was extended has not ended
	settled(t, "ok")(b.q.Extend(t.Context(), 5*time.Second, second[0].Receipt))
	b.end()
	time.Sleep(6 * time.Second) // it ends while no host is there
	b.start()
	b.hosts()
	third := b.claim(Want{Wait: time.Minute})
	if len(third) != 1 || third[0].Attempt != 3 {
		t.Fatalf("the third claim: %+v", third)
	}
	settled(t, "lease_over under_way", "ok")(b.q.Ack(t.Context(), second[0].Receipt, third[0].Receipt))
	settled(t, "lease_over delivered", "lease_over delivered")(
		b.q.Ack(t.Context(), second[0].Receipt, third[0].Receipt))
	if s := b.job(NameJob("a")); s.State != StateDelivered || s.Attempts != 3 {
		t.Errorf("%+v", s)
	}
}

// What a worker has not done is tried again, or dead, as if its delivery had failed.
func TestAWorkerGivesJobsBack(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAWorkerGivesJobsBack)
}

func testAWorkerGivesJobsBack(t *testing.T) {
	b := newBench(t, func(c *Config) { pulled(c); c.MaxAttempts = 3 }).hosts()
	r := b.put(many(4)...)
	got := b.claim(Want{Max: 4})
	settled(t, "ok")(b.q.Nack(t.Context(), Nack{Delay: time.Minute, Reason: "no table"}, got[0].Receipt))
	settled(t, "ok")(b.q.Nack(t.Context(), Nack{Dead: true, Reason: "no such order"}, got[1].Receipt))
	settled(t, "ok", "lease_over waiting")(
		b.q.Nack(t.Context(), Nack{Untried: true}, got[2].Receipt, got[2].Receipt))
	s := b.job(JobName{ID: r[0].ID})
	if d := time.Until(s.At); s.State != StateWaiting || d < 59*time.Second || d > time.Minute ||
		s.Attempts != 1 || s.Tries[0].Reason != "no table" {
		t.Errorf("given back: %+v", s)
	}
	s = b.job(JobName{ID: r[1].ID})
	if s.State != StateDead || s.Tries[0].Reason != "no such order" {
		t.Errorf("dead: %+v", s)
	}
	again := b.claim(Want{Max: 10})
	if len(again) != 1 || again[0].ID != r[2].ID || again[0].Attempt != 1 {
		t.Fatalf("untried, and claimed again: %+v", again)
	}
	if n, err := b.q.Redrive(t.Context(), DeadFilter{IDs: []string{r[1].ID}}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	redriven := b.claim(Want{Wait: time.Second, Lease: MaxLease})
	if len(redriven) != 1 || redriven[0].Attempt != 1 {
		t.Fatalf("redriven: %+v", redriven)
	}
	// got[1] is of the same job and attempt as what was redriven, and does not count for it.
	settled(t, "lease_over under_way")(b.q.Ack(t.Context(), got[1].Receipt))
	settled(t, "ok", "ok")(b.q.Ack(t.Context(), got[3].Receipt, again[0].Receipt))
	b.restart()
	for _, attempt := range []int{2, 3} {
		got := b.claim(Want{Max: 1, Wait: 2 * time.Minute, Lease: MaxLease})
		if len(got) != 1 || got[0].ID != r[0].ID || got[0].Attempt != attempt {
			t.Fatalf("attempt %d: %+v", attempt, got)
		}
		settled(t, "ok")(b.q.Nack(t.Context(), Nack{}, got[0].Receipt))
		if attempt == 2 { // the leases of the others end
			settled(t, "lease_over waiting")(b.q.Ack(t.Context(), got[0].Receipt))
		}
	}
	if s := b.job(JobName{ID: r[0].ID}); s.State != StateDead || s.Attempts != 3 {
		t.Errorf("after three attempts: %+v", s)
	}
}

// A worker that waits gets a job as soon as there is one; one that has left gets none.
func TestAWorkerWaits(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAWorkerWaits)
}

func testAWorkerWaits(t *testing.T) {
	b := newBench(t, pulled).hosts()
	began := time.Now()
	if got, err := b.q.Claim(t.Context(), Want{}); len(got) != 0 || err != nil || time.Since(began) > 0 {
		t.Errorf("%v %v after %v, though nothing is there", got, err, time.Since(began))
	}
	began = time.Now()
	if got := b.claim(Want{Wait: 10 * time.Second}); len(got) != 0 || time.Since(began) != 10*time.Second {
		t.Errorf("%v after %v, though it waits for 10 s", got, time.Since(began))
	}
	gone, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		got, err := b.q.Claim(gone, Want{Wait: time.Minute})
		if !errors.Is(err, context.Canceled) || got != nil {
			t.Errorf("a worker that has left: %v %v", got, err)
		}
	})
	wait := func() {
		until(t, "a worker waits", func() bool { return b.status().Workers == 1 })
	}
	wait()
	leave()
	wg.Wait()
	wg.Go(func() {
		got, err := b.q.Claim(t.Context(), Want{Max: 5, Wait: time.Minute})
		if err != nil || !slices.Equal(bodies(got), []string{"0", "1"}) {
			t.Errorf("%q %v", bodies(got), err)
		}
	})
	wait()
	began = time.Now()
	b.put(many(2)...)
	wg.Wait()
	if d := time.Since(began); d > 500*time.Millisecond {
		t.Errorf("it was woken after %v", d)
	}
	wg.Go(func() {
		got, err := b.q.Claim(t.Context(), Want{Wait: time.Minute})
		if !errors.Is(err, ErrClosed) || len(got) > 0 {
			t.Errorf("%v %v", got, err)
		}
	})
	wait()
	b.end() // no goroutine stays
	wg.Wait()
}

// Jobs that are claimed count at the limits until they are done, and go at their pace.
func TestClaimsKeepTheLimits(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testClaimsKeepTheLimits)
}

func testClaimsKeepTheLimits(t *testing.T) {
	b := newBench(t, func(c *Config) {
		pulled(c)
		c.Capacity = limiter(t, rate(100))
		c.Uses = []LimitUse{{Limit: "db"}}
	}).hosts()
	b.put(many(500)...)
	var mu sync.Mutex
	var at []time.Time // of what the target counts: between the claim and the ack
	claims := 0
	var wg sync.WaitGroup
	for seed := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(seed)))
			for {
				got, err := b.q.Claim(t.Context(), Want{Max: 20, Wait: 10 * time.Second})
				if err != nil || len(got) == 0 {
					if err != nil {
						t.Error(err)
					}
					return
				}
				time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
				mu.Lock()
				claims++
				for range got {
					at = append(at, time.Now())
				}
				mu.Unlock()
				time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
				for _, s := range mustSettle(t, b.q, got) {
					if s.Err() != nil {
						t.Error(s)
					}
				}
			}
		})
	}
	wg.Wait()
	if len(at) != 500 {
		t.Fatalf("%d jobs were claimed, want 500", len(at))
	}
	slices.SortFunc(at, time.Time.Compare)
	for i := 100; i < len(at); i++ {
		if d := at[i].Sub(at[i-100]); d < time.Second {
			t.Fatalf("101 jobs within %v", d)
		}
	}
	if d := at[499].Sub(at[0]); d > 12*time.Second {
		t.Errorf("500 jobs took %v at 100 a second", d)
	}
	if claims > 400 { // 20 ms of a pace of 10 ms
		t.Errorf("%d claims for 500 jobs: they are not gathered", claims)
	}
}

// Jobs that go one by one are gathered, though the worker is never late.
func TestClaimsAreGathered(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testClaimsAreGathered)
}

func testClaimsAreGathered(t *testing.T) {
	b := newBench(t, func(c *Config) { pulled(c); c.Rate = 500 }).hosts()
	b.put(many(500)...)
	began, claims := time.Now(), 0
	for n := 0; n < 500; claims++ {
		got := b.claim(Want{Max: 100, Wait: time.Second})
		n += len(got)
		mustSettle(t, b.q, got)
	}
	if d := time.Since(began); claims > 100 || d > 1500*time.Millisecond || d < 900*time.Millisecond {
		t.Errorf("500 jobs at 500 a second took %v and %d claims", d, claims)
	}
}

func mustSettle(t *testing.T, q *Queue, got []Claimed) []Settled {
	all, err := q.Ack(t.Context(), receiptsOf(got)...)
	if err != nil {
		t.Error(err)
	}
	return all
}

// No more jobs than Concurrency are claimed at a time. The next host counts those that were claimed before,
// also at limits.
func TestClaimsKeepTheirPlacesOverARestart(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testClaimsKeepTheirPlacesOverARestart)
}

func testClaimsKeepTheirPlacesOverARestart(t *testing.T) {
	for _, limited := range []bool{false, true} {
		b := newBench(t, func(c *Config) {
			pulled(c)
			if !limited {
				c.Concurrency = 5
				return
			}
			c.Capacity = limiter(t, ratelimit.Limit{Name: "db",
				Rule: limit.Rule{Algorithm: limit.Concurrency, Amount: 5}})
			c.Uses = []LimitUse{{Limit: "db"}}
		}).hosts()
		b.put(many(20)...)
		first := b.claim(Want{Max: 3})
		got := b.claim(Want{Max: 10})
		if len(first) != 3 || len(got) != 2 || len(b.claim(Want{Max: 10})) != 0 {
			t.Fatalf("limited %v: claimed %d and %d", limited, len(first), len(got))
		}
		began := time.Now()
		none, err := b.q.Claim(t.Context(), Want{})
		if d := time.Since(began); len(none) > 0 || err != nil || d > claimNow/2 {
			t.Errorf("limited %v: a claim that does not wait took %v: %v %v", limited, d, none, err)
		}
		b.restart()
		if more := b.claim(Want{Max: 10}); len(more) != 0 {
			t.Errorf("limited %v: after a restart %d more are claimed", limited, len(more))
		}
		settled(t, "ok", "ok", "ok")(b.q.Ack(t.Context(), receiptsOf(first)...))
		if more := b.claim(Want{Max: 10, Wait: 5 * time.Second}); len(more) != 3 {
			t.Errorf("limited %v: after three acks %d are claimed", limited, len(more))
		}
		b.end()
	}
}

// The capacity of jobs comes back when their leases end, and when their host stops. They are dead after that
// attempt, so that it would not come back by another claim.
func TestClaimsGiveTheirCapacityBack(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testClaimsGiveTheirCapacityBack)
}

func testClaimsGiveTheirCapacityBack(t *testing.T) {
	capacity := limiter(t, ratelimit.Limit{Name: "db",
		Rule: limit.Rule{Algorithm: limit.Concurrency, Amount: 5}})
	b := newBench(t, func(c *Config) {
		pulled(c)
		c.MaxAttempts, c.Capacity, c.Uses = 1, capacity, []LimitUse{{Limit: "db"}}
	}).hosts()
	b.put(many(20)...)
	if got := b.claim(Want{Max: 10, Lease: time.Second}); len(got) != 5 {
		t.Fatalf("%d are claimed, want 5", len(got))
	}
	second := b.claim(Want{Max: 10, Wait: 5 * time.Second})
	if len(second) != 5 {
		t.Fatalf("%d are claimed after the end of the leases, want 5", len(second))
	}
	b.restart()
	settled(t, "ok", "ok", "ok", "ok", "ok")(b.q.Ack(t.Context(), receiptsOf(second)...))
	if third := b.claim(Want{Max: 10, Wait: 5 * time.Second}); len(third) != 5 {
		t.Errorf("%d are claimed from the next host, want 5", len(third))
	}
}

// A worker claims at each node, and says there what it has done.
func TestWorkersClaimAtEachNode(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testWorkersClaimAtEachNode)
}

func testWorkersClaimAtEachNode(t *testing.T) {
	b := newBench(t, func(c *Config) {
		pulled(c)
		if c.Node == "" {
			c.Node = "n1"
		}
	}).hosts()
	other, stop := b.open("n2")
	t.Cleanup(stop)
	var wg sync.WaitGroup
	wg.Go(func() {
		got, err := other.Claim(t.Context(), Want{Max: 9, Wait: time.Minute, Worker: "w", Lease: time.Minute})
		if err != nil || len(got) != 2 || got[0].Attempt != 1 || got[1].Key != "\xffb" ||
			got[0].Queue != "orders" || got[1].ID == "" || got[0].Enqueued.IsZero() || string(got[0].Body) != "\x00\xff" {
			t.Errorf("%+v %v", got, err)
			return
		}
		settled(t, "ok", "invalid_receipt", "ok")(
			other.Ack(t.Context(), got[0].Receipt, "x", got[1].Receipt))
		settled(t, "lease_over delivered")(b.q.Ack(t.Context(), got[0].Receipt))
	})
	time.Sleep(10 * time.Second) // longer than the host lets it wait
	b.put(Job{Body: []byte("\x00\xff")}, Job{Key: "\xffb"})
	wg.Wait()
	// One that has left while the host handed it a job gives it back.
	gone, leave := context.WithCancel(t.Context())
	wg.Go(func() {
		if got, err := other.Claim(gone, Want{Wait: time.Minute}); !errors.Is(err, context.Canceled) {
			t.Errorf("%+v %v", got, err)
		}
	})
	until(t, "it waits", func() bool { return b.status().Workers == 1 })
	leave()
	b.put(Job{Key: "c"})
	wg.Wait()
	if got := b.claim(Want{Wait: time.Second}); len(got) != 1 || got[0].Attempt != 1 {
		t.Errorf("claimed after another worker has left: %+v", got)
	}
}

// A worker that leaves while jobs are gathered for it leaves them and their capacity to others.
func TestAWorkerLeavesWithJobs(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAWorkerLeavesWithJobs)
}

func testAWorkerLeavesWithJobs(t *testing.T) {
	b := newBench(t, func(c *Config) {
		pulled(c)
		c.Rate, c.Capacity, c.Uses = 100, limiter(t, ratelimit.Limit{Name: "db",
			Rule: limit.Rule{Algorithm: limit.Concurrency, Amount: 8}}), []LimitUse{{Limit: "db"}}
	}).hosts()
	b.put(many(20)...)
	until(t, "all known", func() bool { return b.status().Depth == 20 })
	for range 10 {
		ctx, leave := context.WithTimeout(t.Context(), gather*3/4)
		if got, err := b.q.Claim(ctx, Want{Max: 100, Wait: time.Second}); err == nil || len(got) > 0 {
			t.Fatalf("%v %v", got, err)
		}
		leave()
	}
	got := 0
	for range 8 {
		for _, j := range b.claim(Want{Max: 100, Wait: time.Second}) {
			if got++; j.Attempt != 1 {
				t.Errorf("%+v", j)
			}
		}
	}
	if got != 8 {
		t.Errorf("%d are claimed, want as many as the limit has", got)
	}
}

// The workers that wait are bounded.
func TestTooManyWorkersWait(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testTooManyWorkersWait)
}

func testTooManyWorkersWait(t *testing.T) {
	b := newBench(t, pulled).hosts()
	ctx, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range maxAskers {
		wg.Go(func() {
			if _, err := b.q.Claim(ctx, Want{Wait: time.Hour}); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	until(t, "all wait", func() bool { return b.status().Workers == maxAskers })
	if _, err := b.q.Claim(t.Context(), Want{Wait: time.Second}); !errors.Is(err, ErrBusy) {
		t.Errorf("one more: %v", err)
	}
	leave()
	wg.Wait()
	if n := b.status().Workers; n != 0 {
		t.Errorf("%d wait after they have left", n)
	}
}

// Bounds, and what makes no sense.
func TestBadClaims(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testBadClaims)
}

func testBadClaims(t *testing.T) {
	b := newBench(t, pulled).hosts()
	for _, w := range []Want{{Max: -1}, {Max: MaxClaim + 1}, {Lease: time.Millisecond},
		{Lease: 13 * time.Hour}, {Wait: -1}, {Worker: "a\nb"}, {Worker: "\xff"}, {Worker: strings.Repeat("x", 65)}} {
		if got, err := b.q.Claim(t.Context(), w); !errors.Is(err, ErrClaim) {
			t.Errorf("%+v: %v %v", w, got, err)
		}
	}
	for _, n := range []Nack{{Delay: -1}, {Dead: true, Delay: 1}, {Dead: true, Untried: true},
		{Reason: "\x1b[2J"}} {
		if _, err := b.q.Nack(t.Context(), n, "1-0.x"); !errors.Is(err, ErrClaim) {
			t.Errorf("%+v: %v", n, err)
		}
	}
	for _, receipts := range [][]string{nil, make([]string, MaxClaim+1)} {
		if _, err := b.q.Ack(t.Context(), receipts...); !errors.Is(err, ErrClaim) {
			t.Errorf("%d receipts: %v", len(receipts), err)
		}
	}
	if _, err := b.q.Extend(t.Context(), time.Millisecond, "x"); !errors.Is(err, ErrClaim) {
		t.Error(err)
	}
	large := make([]byte, MaxBody)
	b.put(Job{Body: large[:300<<10]}, Job{Body: large[:300<<10]}, Job{Body: large})
	for range 3 { // not two of them in one answer
		got := b.claim(Want{Max: 10})
		if len(got) != 1 {
			t.Fatalf("%d large jobs in one answer", len(got))
		}
		own := got[0].Receipt
		last := byte('A')
		if own[len(own)-1] == 'A' {
			last = 'Q' // the last character has two bits
		}
		settled(t, "lease_over under_way", "lease_over")(b.q.Ack(t.Context(), own[:len(own)-1]+string(last),
			"99-0"+own[strings.Index(own, "."):]))
		settled(t, "ok")(b.q.Ack(t.Context(), own))
	}
	push := newBench(t, nil).hosts()
	if _, err := push.q.Claim(t.Context(), Want{}); !errors.Is(err, ErrPush) {
		t.Errorf("a queue with a target: %v", err)
	}
	for _, c := range []Config{{Lease: time.Minute, Handler: b.target}, {}, {Lease: time.Millisecond}} {
		c.Name, c.NATS = "x", b.engine.Conn()
		if _, err := Open(t.Context(), c); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// A purge leaves jobs that workers have, also over a restart.
func TestAPurgeLeavesClaimedJobs(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAPurgeLeavesClaimedJobs)
}

func testAPurgeLeavesClaimedJobs(t *testing.T) {
	b := newBench(t, pulled).hosts()
	b.put(many(3)...)
	got := b.claim(Want{Max: 2})
	if n, err := b.q.Purge(t.Context()); n != 1 || err != nil {
		t.Fatalf("purged %d %v", n, err)
	}
	b.restart()
	settled(t, "ok")(b.q.Nack(t.Context(), Nack{}, got[0].Receipt))
	b.restart()
	settled(t, "ok")(b.q.Ack(t.Context(), got[1].Receipt))
	again := b.claim(Want{Max: 5, Wait: time.Second})
	if len(again) != 1 || again[0].ID != got[0].ID || again[0].Attempt != 2 {
		t.Errorf("claimed %+v", again)
	}
}

// A queue of which workers have jobs gets a target: the claims stay valid.
func TestAPulledQueueGetsATarget(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAPulledQueueGetsATarget)
}

func testAPulledQueueGetsATarget(t *testing.T) {
	b := newBench(t, pulled).hosts()
	b.put(many(2)...)
	got := b.claim(Want{Max: 1})
	var wg sync.WaitGroup
	b.put() // nothing
	wg.Go(func() {
		for {
			more, err := b.q.Claim(t.Context(), Want{Wait: time.Minute, Max: 5})
			if errors.Is(err, ErrPush) {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = b.q.Nack(t.Context(), Nack{Delay: time.Second}, receiptsOf(more)...)
		}
	})
	until(t, "a worker waits", func() bool { return b.status().Workers == 1 })
	if err := b.q.Reconfigure(t.Context(), Config{Handler: b.target}); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	until(t, "the other one is delivered", func() bool { return b.target.count() == 1 })
	settled(t, "ok")(b.q.Ack(t.Context(), got[0].Receipt))
	if s := b.status(); s.Depth != 0 || s.Pulled {
		t.Errorf("%+v", s)
	}
}

// A model of workers: whatever they do, and whenever the host starts again, no job is lost, and no job is
// acknowledged to two of them.
func TestNoTwoWorkersHaveDoneAJob(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testNoTwoWorkersHaveDoneAJob)
}

func testNoTwoWorkersHaveDoneAJob(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	b := newBench(t, func(c *Config) {
		pulled(c)
		c.Node, c.Concurrency, c.MaxAttempts = "n1", 40, 1000
	}).hosts()
	const jobs, workers = 300, 6
	b.put(many(jobs)...)
	var mu sync.Mutex
	done := map[string]int{}
	handed := map[string]bool{} // done, and then handed out
	acked := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(done)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	queue := func() *Queue { mu.Lock(); defer mu.Unlock(); return b.q }
	for w := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(w)))
			for ctx.Err() == nil {
				got, err := queue().Claim(ctx, Want{Max: 1 + r.IntN(10), Lease: time.Second,
					Wait: time.Second, Worker: fmt.Sprint(w)})
				if err != nil || len(got) == 0 {
					time.Sleep(50 * time.Millisecond)
					continue
				}
				mu.Lock()
				for i := range got {
					if done[got[i].ID] > 0 {
						handed[got[i].ID] = true
					}
				}
				mu.Unlock()
				time.Sleep(time.Duration(r.IntN(1300)) * time.Millisecond) // sometimes too long
				for i := range got {
					switch id, of := got[i].ID, got[i].Receipt; r.IntN(5) {
					case 0:
						_, _ = queue().Nack(ctx, Nack{Untried: r.IntN(2) == 0}, of)
					case 1:
						_, _ = queue().Extend(ctx, time.Second, of)
					default:
						all, err := queue().Ack(ctx, of)
						if err == nil && all[0].Err() == nil {
							mu.Lock()
							done[id]++
							mu.Unlock()
						}
					}
				}
			}
		})
	}
	for range 5 {
		time.Sleep(3 * time.Second)
		b.end()
		time.Sleep(200 * time.Millisecond)
		mu.Lock()
		b.start()
		mu.Unlock()
		b.hosts()
	}
	until(t, "all done", func() bool { return b.status().Depth == 0 || acked() >= jobs })
	stop()
	wg.Wait()
	for id, n := range done {
		if n > 1 || handed[id] {
			t.Errorf("job %s was acknowledged %d times, handed out afterwards: %v", id, n, handed[id])
		}
	}
	if s := b.status(); s.Depth != 0 || s.Dead != 0 {
		t.Errorf("%+v", s)
	}
	t.Logf("%d of %d acknowledged with a certain answer", len(done), jobs)
}

// An overrun runs at each job that may leave, before it does.
type overrunning struct{ pass func() }

func (o *overrunning) Pass(now time.Time, n int) (bool, time.Time) {
	if n > 0 {
		o.pass()
	}
	return true, now
}
func (*overrunning) Busy(time.Time, time.Duration) {}
func (*overrunning) Done(time.Time)                {}

// A queue with a target becomes one whose jobs are claimed, at the moment in which a job leaves: it goes to a
// worker.
func TestAQueueLosesItsTarget(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAQueueLosesItsTarget)
}

func testAQueueLosesItsTarget(t *testing.T) {
	var b *bench
	var once sync.Once
	o := &overrunning{pass: func() {
		once.Do(func() {
			if err := b.q.Reconfigure(t.Context(), Config{Lease: 30 * time.Second}); err != nil {
				t.Error(err)
			}
		})
	}}
	b = newBench(t, func(c *Config) {
		if c.Throttle = o; b != nil {
			pulled(c)
			c.Throttle = nil
		}
	}).hosts()
	b.put(Job{Key: "a"})
	until(t, "it is claimed", func() bool { return b.status().Pulled })
	began := time.Now()
	got := b.claim(Want{Wait: time.Minute})
	if len(got) != 1 || got[0].Attempt != 1 || time.Since(began) > time.Second || b.target.count() != 0 {
		t.Fatalf("%+v after %v, and %d at the target", got, time.Since(began), b.target.count())
	}
	settled(t, "ok")(b.q.Ack(t.Context(), got[0].Receipt))
}

// What a worker gives back goes to the next one at once, also if a limit has held it.
func TestAnAckLetsTheNextJobGo(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAnAckLetsTheNextJobGo)
}

func testAnAckLetsTheNextJobGo(t *testing.T) {
	b := newBench(t, func(c *Config) {
		pulled(c)
		c.Capacity = limiter(t, ratelimit.Limit{Name: "db",
			Rule: limit.Rule{Algorithm: limit.Concurrency, Amount: 1}})
		c.Uses = []LimitUse{{Limit: "db"}}
	}).hosts()
	b.put(many(40)...)
	until(t, "all known", func() bool { return b.status().Depth == 40 })
	for i := range 20 {
		got := b.claim(Want{Wait: time.Second})
		if len(got) != 1 {
			t.Fatalf("claim %d: %+v", i, got)
		}
		var wg sync.WaitGroup
		next := make(chan []Claimed, 1)
		wg.Go(func() { next <- b.claim(Want{Wait: time.Second}) })
		until(t, "it waits", func() bool { return b.status().Workers == 1 })
		time.Sleep(3 * longWait / 2)
		began := time.Now()
		settled(t, "ok")(b.q.Ack(t.Context(), got[0].Receipt))
		wg.Wait()
		if d := time.Since(began); d > longWait/10 {
			t.Fatalf("after ack %d the next worker waits %v", i, d)
		}
		mustSettle(t, b.q, <-next)
	}
}

// A worker at a node that waits for a place waits no longer than it asked for.
func TestAWorkerWaitsForAPlaceAtTheHost(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAWorkerWaitsForAPlaceAtTheHost)
}

func testAWorkerWaitsForAPlaceAtTheHost(t *testing.T) {
	b := newBench(t, func(c *Config) {
		pulled(c)
		c.Node = cmp.Or(c.Node, "n1")
	}).hosts()
	other, stop := b.open("n2")
	t.Cleanup(stop)
	for range farAsks {
		other.asks <- struct{}{}
	}
	time.AfterFunc(1900*time.Millisecond, func() { <-other.asks })
	began := time.Now()
	got, err := other.Claim(t.Context(), Want{Wait: 2 * time.Second})
	if d := time.Since(began); len(got) != 0 || err != nil || d < 2*time.Second || d > 2100*time.Millisecond {
		t.Errorf("%v %v after %v, though it waits for 2 s", got, err, d)
	}
}

// A node that does not know yet that jobs are claimed leaves the lease to the host.
func TestTheHostKnowsTheLease(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testTheHostKnowsTheLease)
}

func testTheHostKnowsTheLease(t *testing.T) {
	b := newBench(t, func(c *Config) {
		if c.Node != "n2" {
			pulled(c)
			c.Node = "n1"
		}
	}).hosts()
	other, stop := b.open("n2")
	t.Cleanup(stop)
	b.put(Job{Key: "a"})
	got, err := other.Claim(t.Context(), Want{Wait: 5 * time.Second})
	if err != nil || len(got) != 1 || time.Until(got[0].Until) < 29*time.Second {
		t.Fatalf("%+v %v", got, err)
	}
	all, err := other.Extend(t.Context(), 0, got[0].Receipt)
	if err != nil || time.Until(all[0].Until) < 29*time.Second {
		t.Errorf("%+v %v", all, err)
	}
}

// farLimits are limits that another node counts: each hold takes a round trip.
type farLimits struct{ Limits }

func (f farLimits) Hold(
	ctx context.Context, c ratelimit.Check, w ratelimit.Waiters,
) (ratelimit.Hold, ratelimit.Result, error) {
	time.Sleep(5 * time.Millisecond)
	return f.Limits.Hold(ctx, c, w)
}

// A worker that wants many jobs does not wait until it has all of them.
func TestAWorkerHasItsFirstJobsSoon(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAWorkerHasItsFirstJobsSoon)
}

func testAWorkerHasItsFirstJobsSoon(t *testing.T) {
	b := newBench(t, func(c *Config) {
		pulled(c)
		c.Capacity = NewCapacity(farLimits{limiter(t, rate(1000)).limits})
		c.Burst, c.Uses = true, []LimitUse{{Limit: "db"}}
	}).hosts()
	b.put(many(300)...)
	until(t, "all known", func() bool { return b.status().Depth == 300 })
	for n := 0; n < 300; {
		began := time.Now()
		got := b.claim(Want{Max: 300, Wait: time.Minute})
		if d := time.Since(began); len(got) == 0 || d > 3*gather {
			t.Fatalf("%d jobs after %v", len(got), d)
		}
		n += len(got)
		mustSettle(t, b.q, got)
	}
}

// People see why nobody gets a job after the limits have changed.
func TestNewLimitsWaitForWorkers(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testNewLimitsWaitForWorkers)
}

func testNewLimitsWaitForWorkers(t *testing.T) {
	b := newBench(t, func(c *Config) {
		pulled(c)
		c.Capacity = limiter(t, rate(10))
	}).hosts()
	b.put(many(2)...)
	got := b.claim(Want{Lease: time.Minute})
	b.reconfigure(func(c *Config) { c.Uses = []LimitUse{{Limit: "db"}} })
	if more := b.claim(Want{Wait: 2 * time.Second}); len(more) != 0 {
		t.Fatalf("%+v", more)
	}
	if why := b.status().Reason; !strings.Contains(why, "limits have changed") {
		t.Errorf("the reason is %q", why)
	}
	mustSettle(t, b.q, got)
	if more := b.claim(Want{Wait: 5 * time.Second}); len(more) != 1 || b.status().Reason != "" {
		t.Errorf("%+v %q", more, b.status().Reason)
	}
}
