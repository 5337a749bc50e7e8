package quota

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/internal/cluster"
	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/tests/virtual"
	"github.com/nats-io/nats.go"
)

// A group is a set of processes that share a real engine, in this process and in a bubble.
type group struct {
	t      *testing.T
	engine *embedded.Server
	began  time.Time
	mu     sync.Mutex
	limits map[string]*Definition
}

type member struct {
	*Node
	name string
	conn *nats.Conn
	stop func() // stops it cleanly
	kill func() // its messages end at once
}

func newGroup(t *testing.T) *group {
	e, err := embedded.Open(t.Context(), embedded.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return &group{t: t, engine: e, began: time.Now(), limits: map[string]*Definition{}}
}

// connect returns another connection to the engine.
func (g *group) connect() *nats.Conn {
	g.t.Helper()
	conn, err := nats.Connect("", nats.InProcessServer(g.engine))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(conn.Close)
	return conn
}

func (g *group) define(name string, r limit.Rule) {
	g.t.Helper()
	rules, err := limittable.Compile(r, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limits[name] = &Definition{Name: name, Rules: rules, MaxKeys: 100_000,
		Lends: r.Algorithm != limit.Concurrency && !r.Paced}
}

func (g *group) rules(name string) *Definition {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.limits[name]
}

func (g *group) start(name string, hosts bool) *member {
	g.t.Helper()
	conn, err := nats.Connect("", nats.InProcessServer(g.engine))
	if err != nil {
		g.t.Fatal(err)
	}
	s, err := store.OpenNATS(g.t.Context(), store.NATSConfig{Conn: conn})
	if err != nil {
		g.t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("LOUD") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
		log = log.With("at", name)
	}
	bus := store.NewBus(conn)
	boot := func() time.Duration { return time.Since(g.began) + time.Hour }
	self := cluster.Member{Name: name, Life: rand.Uint64(), CanHost: hosts}
	members := cluster.NewMembers(bus, self, boot, log)
	m := &member{name: name, conn: conn}
	m.Node = NewNode(Config{Prefix: "limits.", Store: s, Bus: bus, Members: members, Boot: boot, Log: log,
		Rules: g.rules})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = members.Run(ctx) })
	wg.Go(func() {
		if err := m.Run(ctx); err != nil && !conn.IsClosed() {
			g.t.Error(err)
		}
	})
	var once sync.Once
	m.stop = func() { once.Do(func() { cancel(); wg.Wait(); conn.Close() }) }
	m.kill = func() { once.Do(func() { conn.Close(); cancel(); wg.Wait() }) }
	g.t.Cleanup(m.stop)
	return m
}

// await waits until holds returns true.
func (g *group) await(what string, holds func() bool) {
	g.t.Helper()
	deadline := time.After(3 * time.Minute) // other tests check how long it takes
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			g.t.Fatalf("waited in vain: %s", what)
		case <-tick.C:
		}
	}
}

// spread waits until every shard has a host and a standby among the given members.
func (g *group) spread(ms ...*member) {
	g.t.Helper()
	g.await("all shards hosted and stood by for", func() bool {
		hosted, standby := 0, 0
		for _, m := range ms {
			a, b := m.ShardCounts()
			hosted, standby = hosted+a, standby+b
		}
		return hosted == Shards && (standby == Shards || len(ms) == 1) && ms[0].Ready()
	})
}

// burst makes calls at all members at once, and counts those that pass.
func (g *group) burst(limitName, key string, calls int, ms ...*member) (passed int64, errs int64) {
	var n, bad atomic.Int64
	var wg sync.WaitGroup
	for _, m := range ms {
		lane := m.Limit(limitName)
		for range 4 {
			wg.Go(func() {
				for range calls {
					d, err := lane.Take(g.t.Context(), key, 1)
					switch {
					case err != nil:
						bad.Add(1)
					case d.Allowed:
						n.Add(1)
					}
				}
			})
		}
	}
	wg.Wait()
	return n.Load(), bad.Load()
}

// Three processes and a worker allow exactly the limit of a key, wherever it is called.
func TestExactlyAsManyEverywhere(t *testing.T) { virtual.Test(t, testExactlyAsManyEverywhere) }

func testExactlyAsManyEverywhere(t *testing.T) {
	g := newGroup(t)
	g.define("api", limit.Rule{Algorithm: limit.SlidingLog, Amount: 100, Window: time.Hour})
	a, b, c, w := g.start("a", true), g.start("b", true), g.start("c", true), g.start("w", false)
	g.spread(a, b, c)
	g.await("the worker knows", w.Ready)
	for i := range 20 {
		key := fmt.Sprint("client-", i)
		began := time.Now()
		got, errs := g.burst("api", key, 40, a, b, c, w)
		if got != 100 || errs > 0 {
			t.Errorf("%s: %d calls passed, want 100; %d errors, in %s", key, got, errs, time.Since(began))
		}
		if i == 0 {
			t.Log("640 calls in", time.Since(began))
		}
	}
	var keys Keys // all are listed page by page, whichever process hosts them
	keys.Init(w.Limit("api"), Usage{})
	seen, shard, from, pages := map[string]int64{}, 0, 0, 0
	for shard < Shards {
		var all []limit.Usage
		var err error
		if all, shard, from, err = keys.Usage(t.Context(), g.rules("api"), shard, from, 3); err != nil {
			t.Fatal(err)
		}
		for _, u := range all {
			if _, twice := seen[u.Key]; twice {
				t.Errorf("%s is listed twice", u.Key)
			}
			seen[u.Key] = u.Used
		}
		if pages++; len(all) > 3 || pages > 100 {
			t.Fatalf("page %d has %d keys", pages, len(all))
		}
	}
	for i := range 20 {
		if used := seen[fmt.Sprint("client-", i)]; used != 100 {
			t.Errorf("client-%d has used %d, want 100", i, used)
		}
	}
}

// A process that was cut off learns the shard map from another process while the store does not
// answer.
func TestTheChartIsToldWithoutTheStore(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testTheChartIsToldWithoutTheStore)
}

func testTheChartIsToldWithoutTheStore(t *testing.T) {
	g := newGroup(t)
	a, b := g.launch("a", launch{}), g.launch("b", launch{})
	g.spreadOf(a, b)
	a.store.cut.Store(true)
	a.near.Lost(0)
	g.await("the chart is another", func() bool {
		c := g.chart(b)
		c.Shards[7] = Assignment{Host: "z~1"}
		return c.save(t.Context(), b.store.Store, "limits.chart") == nil
	})
	b.near.Lost(0)
	g.await("a knows it", func() bool { a.near.Lost(0); return a.near.Host(7) == "z" })
}

// A process that starts after all were killed knows the former hosts of all keys from the shard
// map, and that they do not answer.
func TestWhoHostsAnswers(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testWhoHostsAnswers)
}

func testWhoHostsAnswers(t *testing.T) {
	g := newGroup(t)
	g.define("api", limit.Rule{Algorithm: limit.TokenBucket, Amount: 100, Window: time.Second})
	a, b := g.start("a", true), g.start("b", true)
	g.spread(a, b)
	all := func() bool { return a.CheckHosts(t.Context()) && b.CheckHosts(t.Context()) }
	g.await("they answer each other", all)
	a.kill()
	b.kill()
	a, b = g.start("a", true), g.start("b", true)
	g.await("the chart names hosts", a.Ready)
	if hosted, _ := a.ShardCounts(); hosted == 0 && a.CheckHosts(t.Context()) {
		t.Error("those who are dead answer")
	}
	g.await("all answer", func() bool { return a.CheckHosts(t.Context()) })
	if n, _ := a.ShardCounts(); n == 0 {
		t.Error("it hosts nothing, of two")
	}
	for i := range 500 {
		_, err := a.Limit("api").Peek(t.Context(), fmt.Sprint("client-", i), 1)
		if err != nil {
			t.Fatalf("client-%d: %v", i, err)
		}
	}
}
