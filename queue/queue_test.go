package queue

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/ratelimit"
	"github.com/headgate/headgate/tests/virtual"

	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/limit"
)

// A bench is an engine in a folder, with one queue that can be stopped and started.
type bench struct {
	t      testing.TB
	dir    string
	engine *embedded.Server
	q      *Queue
	stop   func()
	target *target
	change func(*Config)
}

// A target accepts jobs and records them.
type target struct {
	mu     sync.Mutex
	got    map[string]int // by body
	order  []string
	at     []time.Time
	answer func(j *Job) Outcome // nil: success
	seen   chan struct{}        // has room for all
}

func (g *target) Deliver(_ context.Context, j *Job) Outcome {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := time.Now() // after the lock: in order
	g.got[string(j.Body)]++
	g.order = append(g.order, string(j.Body))
	g.at = append(g.at, at)
	select {
	case g.seen <- struct{}{}:
	default:
	}
	if g.answer != nil {
		return g.answer(j)
	}
	return Outcome{}
}

func (g *target) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.order)
}

func newBench(t testing.TB, change func(*Config)) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir(), change: change,
		target: &target{got: map[string]int{}, seen: make(chan struct{}, 1<<20)}}
	b.start()
	t.Cleanup(func() { b.end() })
	return b
}

func (b *bench) start() {
	b.t.Helper()
	var err error
	b.engine, err = embedded.Open(context.Background(), embedded.Config{Dir: filepath.Join(b.dir, "engine")})
	if err != nil {
		b.t.Fatal(err)
	}
	b.q, b.stop = b.open("")
}

func (b *bench) open(node string) (*Queue, func()) {
	b.t.Helper()
	cfg := Config{Name: "orders", NATS: b.engine.Conn(), Handler: b.target, Node: node,
		MinBackoff: 10 * time.Millisecond,
		Boot:       func() time.Duration { return time.Duration(time.Now().UnixNano()) }}
	if b.change != nil {
		b.change(&cfg)
	}
	q, err := Open(context.Background(), cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := q.Run(ctx); err != nil {
			b.t.Error(err)
		}
	})
	return q, func() { cancel(); wg.Wait() }
}

func (b *bench) end() {
	if b.stop != nil {
		b.stop()
		b.engine.Close()
		b.stop = nil
	}
}

func (b *bench) put(jobs ...Job) []Receipt {
	b.t.Helper()
	r, err := b.q.Put(b.t.Context(), jobs)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// until waits until so returns true.
func until(t testing.TB, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.After(20 * time.Second)
	for !so() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("still not: %s", what)
		}
	}
}

func (b *bench) status() Status {
	s, err := b.q.Status(context.Background())
	if err != nil && !errors.Is(err, ErrNoHost) {
		b.t.Fatal(err)
	}
	return s
}

func (b *bench) hosts() *bench {
	b.t.Helper()
	until(b.t, "a host", func() bool { return b.q.lead.Load() != nil })
	return b
}

func many(n int) []Job {
	jobs := make([]Job, n)
	for i := range jobs {
		jobs[i] = Job{Body: fmt.Appendf(nil, "%d", i)}
	}
	return jobs
}

func TestEachJobIsDeliveredOnce(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testEachJobIsDeliveredOnce)
}

func testEachJobIsDeliveredOnce(t *testing.T) {
	b := newBench(t, nil)
	const n = 10_000
	r := b.put(many(n)...)
	if len(r) != n || r[0].ID == "" || r[n-1].ID == r[0].ID {
		t.Fatalf("receipts %v … %v", r[0], r[n-1])
	}
	until(t, "all delivered", func() bool { return b.target.count() == n })
	until(t, "all forgotten", func() bool { s := b.status(); return s.Depth == 0 && s.Bytes == 0 })
	if len(b.target.got) != n {
		t.Errorf("%d of %d were delivered", len(b.target.got), n)
	}
	b.end()
	b.start()
	b.hosts()
	b.put(Job{Body: []byte("last")})
	until(t, "one more", func() bool { return b.target.count() > n })
	if b.target.count() != n+1 {
		t.Errorf("after a restart %d were delivered, want one", b.target.count()-n)
	}
}

func limiter(t testing.TB, c ...ratelimit.Limit) *Capacity {
	t.Helper()
	l, err := ratelimit.New(ratelimit.Config{Limits: c})
	if err != nil {
		t.Fatal(err)
	}
	return NewCapacity(l)
}

func TestALimitIsNeverExceededAndUsed(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testALimitIsNeverExceededAndUsed)
}

func testALimitIsNeverExceededAndUsed(t *testing.T) {
	b := newBench(t, func(c *Config) {
		c.Capacity = limiter(t, ratelimit.Limit{Name: "db",
			Rule: limit.Rule{Algorithm: limit.SlidingLog, Amount: 500, Window: time.Second}})
		c.Uses = []LimitUse{{Limit: "db"}}
	})
	const n = 1500
	b.put(many(n)...)
	until(t, "all delivered", func() bool { return b.target.count() == n })
	at := b.target.at
	for i := 500; i < n; i++ {
		if d := at[i].Sub(at[i-500]); d < time.Second {
			t.Fatalf("501 jobs within %v", d)
		}
	}
	rate := float64(n-500) / at[n-1].Sub(at[499]).Seconds()
	t.Logf("%.1f a second of 500", rate)
	if rate < 0.5*500 { // the machine may be busy; tests/queues measures
		t.Errorf("%.0f a second of 500", rate)
	}
}
