package queue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/ratelimit"
	"github.com/headgate/headgate/tests/virtual"

	"github.com/headgate/headgate/limit"
)

// A gate is a target that answers on command.
type gate struct {
	mu     sync.Mutex
	inside int
	open   chan struct{}
}

func (g *gate) Deliver(context.Context, *Job) Outcome {
	g.mu.Lock()
	g.inside++
	g.mu.Unlock()
	<-g.open
	g.mu.Lock()
	g.inside--
	g.mu.Unlock()
	return Outcome{}
}

func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside
}

func (b *bench) reconfigure(change func(*Config)) {
	b.t.Helper()
	c := *b.q.set.Load()
	change(&c)
	if err := b.q.Reconfigure(b.t.Context(), c); err != nil {
		b.t.Fatal(err)
	}
}

func TestConcurrencyChangesWhileDeliveriesAreUnderWay(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testConcurrencyChangesWhileDeliveriesAreUnderWay)
}

func testConcurrencyChangesWhileDeliveriesAreUnderWay(t *testing.T) {
	g := &gate{open: make(chan struct{})}
	b := newBench(t, func(c *Config) { c.Handler, c.Concurrency = g, 1 })
	b.put(many(30)...)
	until(t, "one", func() bool { return g.count() == 1 })
	b.reconfigure(func(c *Config) { c.Concurrency = 5 })
	until(t, "five", func() bool { return g.count() == 5 })
	b.reconfigure(func(c *Config) { c.Concurrency = 2 })
	for left := 30; left > 0; left-- { // those from before end first
		now := min(left, max(2, 5-(30-left)))
		until(t, "as many as may be", func() bool { return g.count() == now })
		if n := b.status().InFlight; n > max(now, 2) {
			t.Fatalf("%d under way with %d left, want %d", n, left, now)
		}
		g.open <- struct{}{}
	}
	until(t, "all", func() bool { return b.status().Depth == 0 })
}

func TestAnotherConfigurationWhileItRuns(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAnotherConfigurationWhileItRuns)
}

func testAnotherConfigurationWhileItRuns(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Rate, c.MaxWaiting = 50, 4 }).hosts()
	other := &target{got: map[string]int{}, seen: make(chan struct{}, 100)}
	if err := b.q.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.put(many(4)...)
	until(t, "known", func() bool { return b.status().Depth == 4 })
	if _, err := b.q.Put(t.Context(), many(2)); !errors.Is(err, ErrFull) {
		t.Fatalf("a full queue: %v", err)
	}
	b.reconfigure(func(c *Config) { c.Handler, c.MaxWaiting, c.MaxBytes = other, 100, 2<<20 })
	b.put(many(2)...)
	if info, err := b.q.jobs.Size(t.Context()); err != nil || info.Bytes == 0 {
		t.Errorf("the log has %+v %v", info, err)
	}
	if s := b.status(); !s.Paused || s.Rate != 50 {
		t.Errorf("paused %v, rate %v", s.Paused, s.Rate)
	}
	if err := b.q.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "all delivered", func() bool { return other.count() == 6 })
	if n := b.target.count(); n != 0 {
		t.Errorf("%d went to the target of before", n)
	}
	err := b.q.Reconfigure(t.Context(), Config{Handler: other, Weight: -1})
	if !errors.Is(err, ErrConfig) || b.q.set.Load().Weight != 1 {
		t.Errorf("an impossible one: %v", err)
	}
}

func TestARateThatWasAskedForHoldsUntilTheConfigurationsChanges(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testARateThatWasAskedForHoldsUntilTheConfigurationsChanges)
}

func testARateThatWasAskedForHoldsUntilTheConfigurationsChanges(t *testing.T) {
	rate := 50.0
	b := newBench(t, func(c *Config) { c.Rate = rate }).hosts()
	want := func(want float64) {
		t.Helper()
		if s := b.status(); s.Rate != want {
			t.Errorf("the rate is %v, want %v", s.Rate, want)
		}
	}
	want(50)
	if err := b.q.SetRate(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	b.reconfigure(func(c *Config) { c.Weight = 3 })
	want(7)
	b.reconfigure(func(c *Config) { c.Rate = 60 })
	want(60)
	b.end()
	rate = 80 // the file was changed while nothing ran
	b.start()
	b.hosts()
	want(80)
	if err := b.q.Pause(t.Context()); err != nil { // does not affect the rate
		t.Fatal(err)
	}
	b.end()
	rate = 90
	b.start()
	b.hosts()
	want(90)
}

// Jobs in flight when limits are replaced are not counted by the new limits.
func TestNewLimitsBeginWhenWhatWentOutBeforeNoLongerCounts(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testNewLimitsBeginWhenWhatWentOutBeforeNoLongerCounts)
}

func testNewLimitsBeginWhenWhatWentOutBeforeNoLongerCounts(t *testing.T) {
	rule := limit.Rule{Algorithm: limit.SlidingLog, Amount: 100, Window: time.Second}
	rules, err := ratelimit.New(ratelimit.Config{
		Limits: []ratelimit.Limit{{Name: "one", Rule: rule}, {Name: "two", Rule: rule}}})
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, func(c *Config) {
		c.Capacity, c.Uses, c.Burst = NewCapacity(rules), []LimitUse{{Limit: "one"}}, true
	})
	b.put(many(300)...)
	until(t, "some", func() bool { return b.target.count() >= 100 })
	b.reconfigure(func(c *Config) { c.Uses = []LimitUse{{Limit: "two"}} })
	until(t, "all", func() bool { return b.target.count() == 300 })
	at := b.target.at
	slices.SortFunc(at, time.Time.Compare)
	for i := 100; i < len(at); i++ {
		if d := at[i].Sub(at[i-100]); d < time.Second {
			t.Fatalf("101 jobs within %v", d)
		}
	}
}
