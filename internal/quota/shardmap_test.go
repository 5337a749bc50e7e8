package quota

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
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

// A gate holds back the messages of one connection, in both directions, while it is shut.
type gate struct {
	engine *embedded.Server
	mu     sync.Mutex
	open   chan struct{} // nil: open
	conns  []*gated
}

func (g *gate) InProcessConn() (net.Conn, error) {
	c, err := g.engine.InProcessConn()
	g.mu.Lock()
	defer g.mu.Unlock()
	way := &gated{Conn: c, gate: g}
	g.conns = append(g.conns, way)
	return way, err
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		g.open = make(chan struct{})
	}
}

func (g *gate) flow() {
	g.mu.Lock()
	conns := slices.Clone(g.conns)
	if g.open != nil {
		close(g.open)
		g.open = nil
	}
	g.mu.Unlock()
	for _, c := range conns {
		_, _ = c.Write(nil) // what was held back
	}
}

func (g *gate) shutNow() chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open
}

type gated struct {
	net.Conn
	gate *gate
	mu   sync.Mutex
	kept []byte
}

func (c *gated) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if open := c.gate.shutNow(); open != nil {
		<-open
	}
	return n, err
}

// Write holds back what is written while the gate is shut, as a socket does, and does not block:
// nats.go writes with the lock of its connection held, and time in a bubble would stop.
func (c *gated) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gate.shutNow() != nil {
		c.kept = append(c.kept, b...)
		return len(b), nil
	}
	if len(c.kept) > 0 {
		kept := c.kept
		c.kept = nil
		if _, err := c.Conn.Write(kept); err != nil {
			return 0, err
		}
	}
	if len(b) == 0 {
		return 0, nil
	}
	return c.Conn.Write(b)
}

var errCut = errors.New("cut off from the store")

// A cutStore is a store that can be unreachable, lose answers or delay writes.
type cutStore struct {
	store.Store
	cut  atomic.Bool
	last atomic.Pointer[func()] // the delayed write
	late atomic.Bool            // delay the next write
	lost atomic.Int32           // number of block writes that are never answered
}

func (s *cutStore) Load(ctx context.Context, key string) ([]byte, uint64, error) {
	if s.cut.Load() {
		return nil, 0, errCut
	}
	return s.Store.Load(ctx, key)
}

func (s *cutStore) CompareAndSwap(ctx context.Context, key string, rev uint64, b []byte) (uint64, error) {
	if s.cut.Load() {
		return 0, errCut
	}
	if strings.Contains(key, "block.") && s.lost.Add(-1) >= 0 {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	if s.late.CompareAndSwap(true, false) {
		b = bytes.Clone(b)
		do := func() { _, _ = s.Store.CompareAndSwap(context.Background(), key, rev, b) }
		s.last.Store(&do)
		return 0, context.DeadlineExceeded
	}
	return s.Store.CompareAndSwap(ctx, key, rev, b)
}

// A rig is a member whose connections can be cut one by one.
type rig struct {
	*member
	all, beats *gate // of its messages; of its heartbeats only
	store      *cutStore
	ahead      atomic.Int64 // of its clock
	ctx        context.Context
	quit       context.CancelFunc // its callers stop
}

type launch struct {
	worker bool
	lease  time.Duration
	only   bool
	log    *slog.Logger // nil: none
}

func (g *group) launch(name string, o launch) *rig {
	g.t.Helper()
	r := &rig{all: &gate{engine: g.engine}, beats: &gate{engine: g.engine}}
	conn, err := nats.Connect("", nats.InProcessServer(r.all))
	if err != nil {
		g.t.Fatal(err)
	}
	beats, err := nats.Connect("", nats.InProcessServer(r.beats))
	if err != nil {
		g.t.Fatal(err)
	}
	s, err := store.OpenNATS(g.t.Context(), store.NATSConfig{Conn: conn})
	if err != nil {
		g.t.Fatal(err)
	}
	r.store = &cutStore{Store: s}
	log := cmp.Or(o.log, slog.New(slog.DiscardHandler))
	if os.Getenv("LOUD") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
		log = log.With("at", name)
	}
	boot := func() time.Duration {
		return time.Since(g.began) + time.Hour + time.Duration(r.ahead.Load())
	}
	self := cluster.Member{Name: name, Life: rand.Uint64(), CanHost: !o.worker}
	members := cluster.NewMembers(store.NewBus(beats), self, boot, log)
	r.member = &member{name: name, conn: conn}
	r.Node = NewNode(Config{Prefix: "limits.", Store: r.store, Bus: store.NewBus(conn), Members: members,
		Boot: boot, Log: log, Rules: g.rules, Lease: o.lease, SoleHost: o.only})
	ctx, cancel := context.WithCancel(context.Background())
	r.ctx, r.quit = context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { _ = members.Run(ctx) })
	wg.Go(func() {
		if err := r.Run(ctx); err != nil && !conn.IsClosed() {
			g.t.Error(err)
		}
	})
	var once sync.Once
	end := func() { r.quit(); cancel(); wg.Wait(); conn.Close(); beats.Close() }
	r.stop = func() { once.Do(func() { r.all.flow(); r.beats.flow(); end() }) }
	r.kill = func() { once.Do(func() { r.quit(); conn.Close(); beats.Close(); cancel() }) }
	g.t.Cleanup(func() { r.stop(); wg.Wait() })
	return r
}

// spreadOf waits until every shard has a host and a standby according to the shard map: a process
// may still have a copy that no host knows.
func (g *group) spreadOf(rs ...*rig) {
	g.t.Helper()
	there := map[string]bool{}
	for _, r := range rs {
		there[r.host.self] = true
	}
	g.await("the chart has a host and a standby of each shard", func() bool {
		for _, x := range g.chart(rs[0]).Shards {
			if !there[x.Host] || len(rs) > 1 && !there[x.Standby] {
				return false
			}
		}
		return true
	})
	g.await("all shards are hosted", func() bool {
		hosted := 0
		for _, r := range rs {
			n, _ := r.ShardCounts()
			hosted += n
		}
		return hosted == Shards && rs[0].Ready()
	})
}

// chart returns the shard map.
func (g *group) chart(r *rig) *ShardMap {
	g.t.Helper()
	c, err := load(g.t.Context(), r.store.Store, "limits.chart")
	if err != nil {
		g.t.Fatal(err)
	}
	return c
}

// whoHas returns the host and the standby of a key, and the others.
func (g *group) whoHas(name, key string, rs ...*rig) (host, standby *rig, rest []*rig) {
	g.t.Helper()
	x := g.chart(rs[0]).Shards[shardOf(name, key)]
	for _, r := range rs {
		switch r.name {
		case nameOf(x.Host):
			host = r
		case nameOf(x.Standby):
			standby = r
		default:
			rest = append(rest, r)
		}
	}
	return host, standby, rest
}

// A bench is a set of hosts with their own store, driven step by step.
type bench struct {
	t     *testing.T
	store *store.Memory
	bus   *store.Bus
	clock atomic.Int64
	rules *Definition
}

func newBench(t *testing.T, r limit.Rule) *bench {
	e, err := embedded.Open(t.Context(), embedded.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	conn, err := nats.Connect("", nats.InProcessServer(e))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	rules, err := limittable.Compile(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, store: &store.Memory{}, bus: store.NewBus(conn)}
	b.rules = &Definition{Name: "api", Rules: rules, MaxKeys: 1000, Lends: true}
	b.clock.Store(int64(time.Hour))
	return b
}

func (b *bench) boot() time.Duration { return time.Duration(b.clock.Load()) }

func (b *bench) host(name string) (*Host, *cutStore) {
	log := slog.New(slog.DiscardHandler)
	s := &cutStore{Store: b.store}
	self := cluster.Member{Name: name, Life: rand.Uint64(), CanHost: true}
	members := cluster.NewMembers(b.bus, self, b.boot, log)
	h := NewHost(Config{Prefix: "l.", Store: s, Bus: b.bus, Members: members, Boot: b.boot, Log: log,
		Rules: func(string) *Definition { return b.rules }}, func(uint64, []byte) {})
	return h, s
}

// own makes h the host of all shards, with a lease.
func (b *bench) own(h *Host, standby string) {
	b.t.Helper()
	h.ledger.lease.Store(int64(b.boot() + leaseTerm))
	b.write(func(x *Assignment) { *x = Assignment{Host: h.self, Standby: standby} })
	for i := range Shards {
		h.ledger.host(i, basis{known: true})
	}
}

func (b *bench) write(f func(x *Assignment)) {
	b.t.Helper()
	c := b.read()
	for i := range c.Shards {
		f(&c.Shards[i])
	}
	if err := c.save(b.t.Context(), b.store, "l.chart"); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) read() *ShardMap {
	b.t.Helper()
	c, err := load(b.t.Context(), b.store, "l.chart")
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// lend makes a host lend need units of a key to a borrower, and returns how much was lent.
func (b *bench) lend(h *Host, who uint64, need int64) int64 {
	q := &request{kind: kindBorrow, shard: shardOf("api", "k"), limit: "api", key: "k"}
	q.Borrower, q.Loan, q.Need, q.Least = who, 1, need, 1
	r := h.ledger.decide(b.t.Context(), []*request{q})
	if r == nil || r[0].status != decided && r[0].status != again {
		return -1
	}
	return r[0].given
}

// copied gives the second host a copy of all shards of the first.
func (b *bench) copied(from, to *Host) *link {
	b.t.Helper()
	k := newLink(to.self, rand.Uint64(), func(ctx context.Context, msg []byte) ([]byte, error) {
		return to.ledger.repeat(ctx, msg), nil
	})
	ctx, stop := context.WithCancel(b.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = k.run(ctx) })
	b.t.Cleanup(func() { stop(); wg.Wait() })
	var n uint64
	for i := range Shards {
		n = from.ledger.copyTo(i, k)
	}
	if !k.wait(ctx, n) {
		b.t.Fatal("not copied")
	}
	return k
}

var byMinute = limit.Rule{Algorithm: limit.SlidingLog, Amount: 10, Window: time.Minute}

// A standby that takes over shards while another process changes the shard map tries again, and
// keeps its copy.
func TestStandbyThatLosesARaceKeepsItsCopy(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testStandbyThatLosesARaceKeepsItsCopy)
}

func testStandbyThatLosesARaceKeepsItsCopy(t *testing.T) {
	b := newBench(t, byMinute)
	h, _ := b.host("a")
	s, _ := b.host("b")
	b.own(h, s.self)
	b.copied(h, s)
	if got := b.lend(h, 7, 6); got != 6 {
		t.Fatalf("lent %d, want 6", got)
	}
	// The host is dead. The standby has read the shard map, then another process writes it.
	s.ledger.lease.Store(int64(b.boot() + leaseTerm))
	s.chart, s.read = b.read(), b.boot()
	b.write(func(*Assignment) {})
	b.clock.Add(int64(2 * time.Second))
	s.cfg.Members.Self() // it is settled by its clock
	s.keep(t.Context(), false)
	if s.chart != nil {
		t.Fatal("the writing of an old chart was none")
	}
	s.keep(t.Context(), true)
	i := int(shardOf("api", "k"))
	if got := s.ledger.roleOf(i); got != hosts {
		t.Fatalf("its part in the shard is %d, want that of the host", got)
	}
	if got := b.lend(s, 8, 10); got != 4 {
		t.Errorf("the heir lends %d, want the 4 that are left", got)
	}
}

// A process that was fenced once and is alive again is fenced anew when it goes silent again.
func TestFenceIsForOneDeath(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testFenceIsForOneDeath)
}

func testFenceIsForOneDeath(t *testing.T) {
	b := newBench(t, byMinute)
	h, _ := b.host("a")
	f, _ := b.host("b")
	renew := func(rev uint64) uint64 {
		v, _ := json.Marshal(nodeRecord{h.self})
		h.renewOnce(t.Context(), "l.node.a", v, &rev)
		return rev
	}
	rev := renew(0)
	if f.fenced(t.Context(), h.self) {
		t.Fatal("fenced at once: its lease is not over")
	}
	b.clock.Add(int64(leaseTerm + time.Second))
	if !f.fenced(t.Context(), h.self) {
		t.Fatal("not fenced after its lease")
	}
	if rev = renew(rev); !h.deposed.Load() {
		t.Fatal("it does not see that another wrote its record")
	}
	h.keep(t.Context(), true)
	renew(rev)
	if h.deposed.Load() || h.ledger.lease.Load() < int64(b.boot()) {
		t.Fatal("it has no lease again")
	}
	if f.fenced(t.Context(), h.self) {
		t.Error("taken for dead although it has just renewed its lease")
	}
}

// A process that was fenced while it took over shards does not host them when it has its lease
// again.
func TestDeposedHostsNothingThatItTookMeanwhile(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testDeposedHostsNothingThatItTookMeanwhile)
}

func testDeposedHostsNothingThatItTookMeanwhile(t *testing.T) {
	b := newBench(t, byMinute)
	h, _ := b.host("a")
	b.own(h, "")
	v, _ := json.Marshal(nodeRecord{h.self})
	if _, err := b.store.CompareAndSwap(t.Context(), "l.node.a", 0, []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	rev := uint64(0)
	h.renewOnce(t.Context(), "l.node.a", v, &rev)
	h.ledger.host(3, basis{}) // the write that was in progress
	h.renewOnce(t.Context(), "l.node.a", v, &rev)
	if h.ledger.lease.Load() > int64(b.boot()) {
		t.Fatal("it has a lease before it gave up")
	}
	h.keep(t.Context(), true)
	h.renewOnce(t.Context(), "l.node.a", v, &rev)
	if h.ledger.lease.Load() < int64(b.boot()) {
		t.Fatal("it has no lease after it gave up")
	}
	for i := range Shards {
		if x := b.read().Shards[i]; x.Host != "" || !x.UsageLost {
			t.Fatalf("shard %d: the chart has %+v", i, x)
		}
		if h.ledger.roleOf(i) != away {
			t.Fatalf("shard %d is hosted still", i)
		}
	}
}

// A write of the shard map with unknown result may take effect later. Nothing may contradict it in
// the meantime.
func TestWritingThatComesLate(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testWritingThatComesLate)
}

func testWritingThatComesLate(t *testing.T) {
	b := newBench(t, byMinute)
	h, s := b.host("a")
	b.own(h, "")
	b.clock.Add(int64(2 * time.Second))
	h.chart, h.read = b.read(), b.boot()
	next := *h.chart
	next.Shards[5].Standby = "z~1"
	s.late.Store(true)
	if h.write(t.Context(), &next) == nil {
		t.Fatal("the writing was confirmed")
	}
	h.keep(t.Context(), false)
	(*s.last.Load())() // now it takes effect
	if x := b.read().Shards[5]; x.Standby != "" || h.chart == nil || h.chart.Shards[5] != x {
		t.Errorf("the chart has %+v, the host relies on another", x)
	}
}

// Units that a host lent before it gave up may be used for one term. Its successor counts keys as
// fully used from then on.
func TestNothingKnownCountsFromTheLastUse(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testNothingKnownCountsFromTheLastUse)
}

func testNothingKnownCountsFromTheLastUse(t *testing.T) {
	b := newBench(t, limit.Rule{Algorithm: limit.SlidingLog, Amount: 10, Window: 10 * time.Second})
	h, _ := b.host("a")
	f, _ := b.host("b")
	b.own(h, "")
	if got := b.lend(h, 7, 10); got != 10 {
		t.Fatalf("lent %d, want 10", got)
	}
	for i := range Shards {
		h.ledger.leave(i)
	}
	f.ledger.lease.Store(int64(b.boot() + time.Hour))
	i := int(shardOf("api", "k"))
	f.ledger.host(i, basis{})
	const most = 10*time.Second + limittable.BorrowTerm
	for past := time.Duration(0); past < most; past += 100 * time.Millisecond {
		if got := b.lend(f, 8, 1); got > 0 {
			t.Fatalf("lent %s after, when the last use by the one before may be %s ago",
				past, past-limittable.BorrowTerm)
		}
		b.clock.Add(int64(100 * time.Millisecond))
	}
	b.clock.Add(int64(time.Second))
	if got := b.lend(f, 8, 1); got != 1 {
		t.Errorf("lent %d, want 1: all is free again", got)
	}
}

// A standby does not keep the units of dead borrowers forever.
func TestStandbyForgetsTheDead(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testStandbyForgetsTheDead)
}

func testStandbyForgetsTheDead(t *testing.T) {
	b := newBench(t, limit.Rule{Algorithm: limit.SlidingLog, Amount: 10, Window: 10 * time.Second})
	h, _ := b.host("a")
	s, _ := b.host("b")
	b.own(h, s.self)
	k := b.copied(h, s)
	if got := b.lend(h, 7, 10); got != 10 {
		t.Fatalf("lent %d, want 10", got)
	}
	for range 30 {
		b.clock.Add(int64(time.Second))
		h.ledger.lease.Store(int64(b.boot() + leaseTerm))
		h.ledger.expire()
		if !k.wait(t.Context(), h.ledger.pause(0, k)) {
			t.Fatal("not repeated")
		}
	}
	i := int(shardOf("api", "k"))
	if !s.ledger.take(i) {
		t.Fatal("it has no copy")
	}
	s.ledger.host(i, basis{known: true})
	s.ledger.lease.Store(int64(b.boot() + leaseTerm))
	if got := b.lend(s, 8, 10); got != 10 {
		t.Errorf("lent %d, want all 10: they were used 20 s ago", got)
	}
}

// While the store is unreachable no shard waits for its handover: its host continues to decide.
func TestNothingIsHandedOverWithoutTheStore(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testNothingIsHandedOverWithoutTheStore)
}

func testNothingIsHandedOverWithoutTheStore(t *testing.T) {
	b := newBench(t, byMinute)
	h, cut := b.host("a")
	s, _ := b.host("b")
	b.own(h, s.self)
	k := b.copied(h, s)
	h.links[s.self] = &follower{link: k, stop: func() {}}
	h.chart, h.read = b.read(), b.boot()
	i := int(shardOf("api", "k"))
	h.going[i] = &leaving{k, h.ledger.pause(i, k)}
	if got := b.lend(h, 7, 1); got != -1 {
		t.Fatalf("a shard that is handed over lends %d", got)
	}
	cut.cut.Store(true)
	h.keep(t.Context(), true)
	if got := b.lend(h, 7, 1); got != 1 {
		t.Errorf("lent %d, want 1", got)
	}
}

// live lets the clock run, twice as fast as any other clock: heartbeats are a second apart.
func (b *bench) live() {
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for last := time.Now(); ctx.Err() == nil; <-tick.C {
			now := time.Now()
			b.clock.Add(int64(2 * now.Sub(last)))
			last = now
		}
	})
	b.t.Cleanup(func() { stop(); wg.Wait() })
}

// joins makes a host and the others known to each other.
func (b *bench) joins(h *Host) {
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = h.cfg.Members.Run(ctx) })
	b.t.Cleanup(func() { stop(); wg.Wait() })
}

// await waits until holds returns true.
func (b *bench) await(what string, holds func() bool) {
	b.t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			b.t.Fatalf("waited in vain: %s", what)
		case <-tick.C:
		}
	}
}

// keeps runs one pass over the shards, with a lease.
func (b *bench) keeps(ctx context.Context, h *Host) {
	h.ledger.lease.Store(int64(b.boot() + leaseTerm))
	h.keep(ctx, true)
}

// A standby that refuses is tried again after a growing time, not at once.
func TestRefusedStandbyIsLeftInPeace(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testRefusedStandbyIsLeftInPeace)
}

func testRefusedStandbyIsLeftInPeace(t *testing.T) {
	b := newBench(t, byMinute)
	h, _ := b.host("a")
	s, _ := b.host("b")
	b.own(h, "")
	var asked atomic.Int64
	stop, err := b.bus.Serve("l.copy.b", func(context.Context, []byte) []byte {
		asked.Add(1)
		return []byte{0}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	b.live()
	b.joins(h)
	b.joins(s)
	ctx, end := context.WithCancel(t.Context())
	defer func() { end(); h.wg.Wait() }()
	b.await("it is asked", func() bool { b.keeps(ctx, h); return asked.Load() > 0 })
	began := b.boot()
	b.await("a second has passed", func() bool { b.keeps(ctx, h); return b.boot() > began+time.Second })
	if n := asked.Load(); n < 2 || n > 6 { // after 0, 50, 150, 350, 750 ms
		t.Errorf("asked %d times within a second", n)
	}
}

// Shards are not handed to a node that has just joined, because the store may be about to elect a
// leader.
func TestWhoHasJustComeIsHandedNothing(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testWhoHasJustComeIsHandedNothing)
}

func testWhoHasJustComeIsHandedNothing(t *testing.T) {
	b := newBench(t, byMinute)
	h, _ := b.host("a")
	s, _ := b.host("b")
	b.own(h, s.self)
	h.links[s.self] = &follower{link: b.copied(h, s), stop: func() {}}
	b.live()
	b.joins(h)
	b.await("a knows who is there", func() bool { return b.boot() > 3*time.Second+time.Hour })
	b.joins(s)
	came := time.Duration(0)
	b.await("what b is to host is handed over", func() bool {
		b.keeps(t.Context(), h)
		if may, _ := h.present(); came == 0 && len(may) == 2 {
			came = b.boot()
		}
		for i := range h.going {
			if h.going[i] != nil {
				return true
			}
		}
		return false
	})
	if past := b.boot() - came; came == 0 || past < staysFor-time.Second {
		t.Errorf("it begins %v after b came, want %v", past, staysFor)
	}
}
