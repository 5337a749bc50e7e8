//go:build bench

package queues

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/embedded"
	rule "github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/ratelimit"
)

// A counter is the target of many processors: it counts what arrives, and takes a while.
type counter struct {
	mu   sync.Mutex
	at   []time.Time
	took []time.Duration
}

const counterTakes = 5 * time.Millisecond

func (c *counter) Deliver(ctx context.Context, _ *queue.Job) queue.Outcome {
	at := time.Now()
	timer := time.NewTimer(counterTakes)
	defer timer.Stop()
	c.mu.Lock()
	c.at = append(c.at, at)
	c.mu.Unlock()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return queue.Outcome{Err: ctx.Err(), Retry: true}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took = append(c.took, time.Since(at))
	return queue.Outcome{}
}

// reached is the most in any window, and the pace between two moments as a part of what is
// possible with such answers.
func (c *counter) reached(window time.Duration, amount int, from, to time.Time) (most int, part float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.SortFunc(c.at, time.Time.Compare)
	slices.Sort(c.took)
	first, n := 0, 0
	for i, at := range c.at {
		for at.Sub(c.at[first]) >= window {
			first++
		}
		most = max(most, i-first+1)
		if at.After(from) && at.Before(to) {
			n++
		}
	}
	answer := c.took[len(c.took)/2]
	possible := float64(amount) * to.Sub(from).Seconds() / (window + answer).Seconds()
	return most, float64(n) / possible
}

// A processor hosts a queue of its own, and shares the limit of all with the others. The
// limit is counted by homes, which stay, deliver nothing, and have no target.
type processor struct {
	name   string
	server *embedded.Server
	amount int
	target *counter
}

// run delivers until ctx ends. put, if not 0, are jobs that are put first.
func (p *processor) run(ctx context.Context, put int) error {
	conn, err := nats.Connect("", nats.InProcessServer(p.server))
	if err != nil {
		return err
	}
	defer conn.Close()
	engine, err := headgate.OpenEngine(ctx, headgate.EngineConfig{
		NATS: conn, Node: p.name, CanHost: p.target == nil})
	if err != nil {
		return err
	}
	defer engine.Close()
	limits, err := ratelimit.New(ratelimit.Config{Engine: engine, Limits: []ratelimit.Limit{{
		Name: "db", OnUnreachable: ratelimit.UnreachableDeny,
		Rule: rule.Rule{Algorithm: rule.SlidingLog, Amount: int64(p.amount), Window: time.Second}}}})
	if err != nil {
		return err
	}
	after, stop := context.WithCancel(context.WithoutCancel(ctx)) // the engine ends last
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	defer engine.Leave()
	wg.Go(func() { _ = engine.Run(after) })
	if p.target == nil {
		<-ctx.Done()
		return nil
	}
	q, err := queue.Open(ctx, queue.Config{Name: p.name, NATS: conn, Handler: p.target, Node: p.name,
		Capacity: queue.NewCapacity(limits), Uses: []queue.LimitUse{{Limit: "db"}}})
	if err != nil {
		return err
	}
	work, end := context.WithCancel(ctx)
	defer end()
	var run sync.WaitGroup
	defer run.Wait()
	run.Go(func() { _ = q.Run(work) })
	for ; put > 0; put -= 1000 {
		if _, err := q.Put(ctx, make([]queue.Job, min(put, 1000))); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// TestManyProcessorsShareALimit lets processors come and go that all have work waiting: what
// the limit allows is used, and never more. One alone stays.
func TestManyProcessorsShareALimit(t *testing.T) {
	for _, n := range []int{1, 4, 16} {
		for _, amount := range []int{10, 100, 1000} {
			t.Run(fmt.Sprintf("%d/%d", n, amount), func(t *testing.T) { comeAndGo(t, n, amount) })
		}
	}
}

// For how long it is counted, and when: all have come by then.
const (
	settle  = 6 * time.Second
	counted = 20 * time.Second
)

func comeAndGo(t *testing.T, n, amount int) {
	server, err := embedded.Open(t.Context(), embedded.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	target := &counter{}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	for _, name := range []string{"home1", "home2"} {
		home := &processor{name: name, server: server, amount: amount}
		wg.Go(func() {
			if err := home.run(ctx, 0); err != nil {
				t.Error(err)
			}
		})
	}
	var changes, away atomic.Int64
	for i := range n {
		p := &processor{fmt.Sprintf("p%d", i), server, amount, target}
		wg.Go(func() {
			put := 2 * amount * int((settle+counted)/time.Second)
			for ctx.Err() == nil {
				here, leave := context.WithTimeout(ctx, 4*time.Second+rand.N(8*time.Second))
				if away.Add(1) > int64(n)/2 { // half of them stay
					here = ctx
				}
				if err := p.run(here, put); err != nil && here.Err() == nil {
					t.Error(err)
				}
				put = 0
				leave()
				changes.Add(1)
				select {
				case <-time.After(rand.N(2 * time.Second)):
				case <-ctx.Done():
				}
				away.Add(-1)
			}
		})
	}
	<-time.After(settle)
	from := time.Now()
	<-time.After(counted)
	to := time.Now()
	stop()
	wg.Wait()
	most, part := target.reached(time.Second, amount, from, to)
	t.Logf("%d processors, %d comings and goings: %.1f %% of what is possible; most in a second: %d of %d",
		n, changes.Load(), 100*part, most, amount)
	if most > amount {
		t.Errorf("the target has counted %d in a second, want %d at most", most, amount)
	}
	if part < 0.99 {
		t.Errorf("%.1f %% of what is possible, want 99 %%", 100*part)
	}
}
