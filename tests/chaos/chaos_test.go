package chaos_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/internal/events"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/internal/ticket"
	"github.com/headgate/headgate/tests/virtual"
)

var (
	chaosSeeds = flag.Int("chaos-seeds", 2, "how many worlds TestChaos plays")
	chaosFirst = flag.Uint64("chaos-first", 4, "the seed of the first")
	chaosEach  = flag.Uint64("chaos-each", 4, "the next seed is so many on; 4 from 4: one process in each")
	chaosSteps = flag.Int("chaos-steps", 40, "how often an operator or an accident does something to each")
	chaosOnly  = flag.String("chaos-only", "", "what alone is done, as limits,cut")
	chaosTalks = flag.Bool("chaos-talks", false, "TestChaos says all that is done")
)

// TestChaos combines what no other test combines: a crowd, operators who change everything, and
// failures, in one process, several nodes, or several data centers. The processes, their messages
// and the clocks of the bubble are real, and an hour takes seconds. The scheduling of goroutines is
// part of the seed only when scripts/seeded plays it, alone. Worlds of several nodes are for long runs
// (make soak): in one of some hundred, a visitor who was late is called after one behind. Also, in one
// of some hundred, a pass that was used after its session had ended frees another visitor's slot when
// the whole room was killed in between; docs/protocol.md excludes this case.
//
// The judges are outside the room: at the origin, in each browser, and where records are written.
func TestChaos(t *testing.T) {
	for i := range *chaosSeeds {
		seed := *chaosFirst + uint64(i)**chaosEach
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			virtual.Test(t, func(t *testing.T) { newChaos(t, seed).play() })
		})
	}
}

// A chaos is a room, wherever it runs, and everything that happens to it.
type chaos struct {
	t     *testing.T
	seed  uint64
	r     *rand.Rand // of the operator
	began time.Time
	buses map[string]*embedded.Server // between the nodes of a data center; none in one process
	links map[string]*embedded.Server // between two data centers, by both names in order
	sites []string
	each  int // nodes of a data center; 0: a single process
	ring  *ticket.Ring
	keys  headgate.SealingKeys
	over  atomic.Bool // a judge has failed the test, or the end has come
	going sync.WaitGroup

	mu     sync.Mutex
	mem    map[string]*store.Memory
	nodes  []*chaosNode
	cfg    headgate.RoomConfig // as the operator wants it
	list   []events.Event
	change []func(*headgate.RoomConfig) // what the event of the same index makes of it
	said   []string                     // the last that was done
	judges
}

// A chaosNode is a process.
type chaosNode struct {
	c          *chaos
	site, name string
	store      *chaosStore
	conns      []*nats.Conn
	ways       []*chaosWay
	engine     *headgate.Engine
	room       *headgate.Room
	h          http.Handler
	dead       atomic.Bool
	stop       func()
}

// A chaosStore is what a process has of the records of its data center.
type chaosStore struct {
	*store.Memory
	full   atomic.Bool // it rejects each write, as a full disk does
	killed atomic.Bool // nothing reaches it any more
	wrote  func(key string, value []byte)
}

var errGone = errors.New("the store is full, or the process was killed")

func (s *chaosStore) Load(ctx context.Context, key string) ([]byte, uint64, error) {
	if s.killed.Load() {
		return nil, 0, errGone
	}
	return s.Memory.Load(ctx, key)
}

func (s *chaosStore) CompareAndSwap(
	ctx context.Context, key string, rev uint64, value []byte,
) (uint64, error) {
	if s.full.Load() || s.killed.Load() {
		return 0, errGone
	}
	next, err := s.Memory.CompareAndSwap(ctx, key, rev, value)
	if err == nil {
		s.wrote(key, value)
	}
	return next, err
}

// A chaosWay is how a process reaches others; it can be cut.
type chaosWay struct {
	virtual.Link
	to string
}

func newChaos(t *testing.T, seed uint64) *chaos {
	r := rand.New(rand.NewPCG(seed, 3))
	sites, each := 1, 0
	switch seed % 4 {
	case 1:
		each = 2 + r.IntN(2)
	case 2:
		sites, each = 2+r.IntN(2), 1+r.IntN(2)
	case 3:
		sites, each = 3, 1+r.IntN(2)
	}
	return openChaos(t, seed, r, sites, each, headgate.RoomConfig{
		TotalActiveUsers: int64(1 + r.IntN(6)), NewUsersPerMinute: int64(10 + r.IntN(60)),
		SessionDuration: time.Duration(8+r.IntN(20)) * time.Second, PollMin: time.Second,
		PollMax: time.Duration(2+r.IntN(7)) * time.Second,
	})
}

// openChaos makes a world of sites data centers with each nodes in each; 0 nodes means a single
// process.
func openChaos(t *testing.T, seed uint64, r *rand.Rand, sites, each int, cfg headgate.RoomConfig) *chaos {
	c := &chaos{t: t, seed: seed, r: r, began: time.Now(), keys: newKeys(), each: each, cfg: cfg,
		sites: []string{"sjc", "lhr", "del"}[:sites], mem: map[string]*store.Memory{},
		buses: map[string]*embedded.Server{}, links: map[string]*embedded.Server{}}
	c.judges.init()
	for i, site := range c.sites {
		c.mem[site] = &store.Memory{}
		if c.each > 0 {
			c.buses[site] = c.bus(site)
		}
		for _, other := range c.sites[i+1:] {
			s := c.bus(site + other)
			c.links[site+other], c.links[other+site] = s, s
		}
	}
	c.cfg.Name, c.cfg.Hold, c.cfg.HoldPhone, c.cfg.Rules = "shop", chaosHold, chaosHold, chaosRules{}
	c.setKeys()
	for _, site := range c.sites {
		for i := range max(1, c.each) {
			c.start(site, fmt.Sprint(site, i+1), c.config)
		}
	}
	return c
}

const (
	chaosHold = 90 * time.Second // how long a silent visitor keeps the place
	probation = 10 * time.Second // of a newcomer without a wait, see docs/protocol.md
	unlimited = 1_000_000_000
)

func (c *chaos) bus(name string) *embedded.Server {
	s, err := embedded.Open(c.t.Context(), embedded.Config{Dir: filepath.Join(c.t.TempDir(), name)})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(s.Close)
	return s
}

func (c *chaos) setKeys() {
	ring, err := ticket.NewRing(c.keys.Current, c.keys.Keys)
	if err != nil {
		c.t.Fatal(err)
	}
	c.ring = ring
}

func newKeys() headgate.SealingKeys {
	return headgate.SealingKeys{Current: 1, Keys: map[byte][32]byte{1: ticket.NewKey()}}
}

// way returns a connection that can be cut.
func (n *chaosNode) way(to string, s *embedded.Server) *nats.Conn {
	w := &chaosWay{Link: virtual.Link{To: s}, to: to}
	conn, err := nats.Connect("", nats.InProcessServer(&w.Link), nats.MaxReconnects(-1),
		nats.ReconnectWait(250*time.Millisecond), nats.ReconnectJitter(0, 0), nats.ReconnectBufSize(-1))
	if err != nil {
		n.c.t.Fatal(err)
	}
	n.ways, n.conns = append(n.ways, w), append(n.conns, conn)
	return conn
}

// open opens the engine of a process.
func (n *chaosNode) open(boot func() time.Duration) {
	c := n.c
	cfg := headgate.EngineConfig{Keys: c.keys, Exclusive: c.each == 0, Boot: boot}
	cfg.Store = n.store
	if c.each > 0 {
		cfg.NATS, cfg.Node, cfg.CanHost = n.way("", c.buses[n.site]), n.name, true
	}
	if len(c.sites) > 1 {
		conns := map[string]*nats.Conn{}
		cfg.Datacenters = &headgate.Datacenters{Own: n.site, Home: c.sites[0],
			Link: func(other string) *nats.Conn { return conns[other] }}
		for _, other := range c.sites {
			if other != n.site {
				cfg.Datacenters.Others = append(cfg.Datacenters.Others, other)
				conns[other] = n.way(other, c.links[n.site+other])
			}
		}
	}
	engine, err := headgate.OpenEngine(c.t.Context(), cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	n.engine = engine
}

// start begins a process, and makes it follow its configuration.
func (c *chaos) start(site, name string, config func(time.Time) headgate.RoomConfig) *chaosNode {
	n := &chaosNode{c: c, site: site, name: name, store: &chaosStore{}}
	n.store.Memory = c.mem[site]
	n.store.wrote = func(key string, value []byte) { c.wrote(site, key, value) }
	began, off := time.Now(), time.Duration(rand.Int64N(1e14))
	boot := func() time.Duration { return time.Since(began) + off }
	n.open(boot)
	cfg := config(time.Now())
	cfg.Engine, cfg.Boot = n.engine, boot
	room, err := headgate.OpenRoom(c.t.Context(), cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	n.room, n.h = room, room.Handler(http.HandlerFunc(n.origin))
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	rooms, end := context.WithCancel(ctx)
	var run, follow sync.WaitGroup
	run.Go(func() { c.must(n.engine.Run(ctx)) })
	follow.Go(func() {
		if err := room.Run(rooms); err != nil && !n.dead.Load() {
			c.fail("the room of %s ends: %v", name, err)
		}
	})
	follow.Go(func() { n.follow(rooms, cfg, config) })
	n.stop = sync.OnceFunc(func() { // as a process stops: it hands over and goes
		n.engine.Leave()
		end()
		follow.Wait()
		cancel()
		run.Wait()
		for _, conn := range n.conns {
			conn.Close()
		}
	})
	c.t.Cleanup(n.stop)
	c.mu.Lock()
	c.nodes = append(c.nodes, n)
	c.mu.Unlock()
	return n
}

func (c *chaos) must(err error) {
	if err != nil && !c.over.Load() {
		c.fail("%v", err)
	}
}

// follow takes what the operator wants and what events make of it, as the process does.
func (n *chaosNode) follow(
	ctx context.Context, have headgate.RoomConfig, config func(time.Time) headgate.RoomConfig,
) {
	key := func(c headgate.RoomConfig) string {
		c.Engine, c.Boot = nil, nil
		return fmt.Sprintf("%+v", c)
	}
	had := key(have)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(250 * time.Millisecond):
		}
		cfg := config(time.Now())
		if next := key(cfg); next != had {
			if err := n.room.Reconfigure(ctx, cfg); err != nil {
				n.c.log("%s does not take the change yet: %v", n.name, err)
				time.Sleep(2 * time.Second)
				continue
			}
			had = next
		}
	}
}

// config returns the configuration for a time.
func (c *chaos) config(now time.Time) headgate.RoomConfig {
	c.mu.Lock()
	defer c.mu.Unlock()
	cfg, m := c.cfg, events.At(c.list, now)
	if m.Active != nil {
		c.change[m.Active.Index](&cfg)
		cfg.Event = headgate.Event{Name: m.Active.Name, Active: true, Prequeue: m.Prequeue,
			Shuffle: m.Active.Shuffle, StartsAt: m.Active.Start, EndsAt: m.Active.End}
	}
	if m.Draw != nil {
		cfg.Draw = headgate.DrawPlan{Event: m.Draw.Key, StartsAt: m.Draw.Start,
			Begun: !m.Draw.Announced(now), Started: m.Draw.Started(now)}
	}
	return cfg
}

// end ends a process, as kill -9 does or cleanly.
func (c *chaos) end(n *chaosNode, kill bool) {
	c.mu.Lock()
	for i := range c.nodes {
		if c.nodes[i] == n {
			c.nodes = append(c.nodes[:i:i], c.nodes[i+1:]...)
			break
		}
	}
	c.mu.Unlock()
	if kill {
		n.dead.Store(true)
		n.store.killed.Store(true)
		for _, conn := range n.conns {
			conn.Close()
		}
	}
	n.stop()
	n.dead.Store(true)
}

// node returns any living node, of the given data center if that has one.
func (c *chaos) node(r *rand.Rand, site string) *chaosNode {
	c.mu.Lock()
	defer c.mu.Unlock()
	var of []*chaosNode
	for _, n := range c.nodes {
		if n.site == site {
			of = append(of, n)
		}
	}
	if len(of) == 0 {
		of = c.nodes
	}
	if len(of) == 0 {
		return nil
	}
	return of[r.IntN(len(of))]
}

// chaosRules obey headers.
type chaosRules struct{}

func (chaosRules) Match(r headgate.RuleRequest) headgate.RuleAction {
	switch x := r.Header.Get("X-Rule"); {
	case x == "deny":
		return headgate.RuleDeny
	case x == "bypass":
		return headgate.RuleBypass
	case strings.HasPrefix(x, "lane"):
		return headgate.RuleLane + headgate.RuleAction(x[4]-'0')
	}
	return headgate.RuleNone
}

// play runs everything, then calls peace: everybody gets in, and the room is empty in the end.
func (c *chaos) play() {
	defer c.going.Wait()
	defer c.over.Store(true)
	c.awake()
	c.going.Go(c.watch)
	people := 10 + c.r.IntN(40)
	for i := range people {
		c.going.Go(func() { newPerson(c, i).live() })
	}
	for range *chaosSteps {
		c.pause(time.Duration(c.r.Int64N(int64(12 * time.Second))))
		if c.over.Load() {
			return
		}
		c.happen()
	}
	c.peace()
	took := time.Since(c.began)
	c.await("all have come in and gone", 40*time.Minute, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.alive == 0
	})
	c.await("the room says that it is empty", 10*time.Minute, c.empty)
	if *chaosTalks {
		c.t.Logf("peace after %v, all quiet %v later; %d stays", took, time.Since(c.began)-took, len(c.stays))
	}
}

func (c *chaos) awake() {
	c.await("all know the time", time.Minute, func() bool {
		for _, n := range c.nodes {
			if !n.room.HasCounterTime() {
				return false
			}
		}
		return true
	})
}

func (c *chaos) pause(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end) && !c.over.Load(); {
		time.Sleep(min(time.Second, time.Until(end)))
	}
}

// nap lets bubble time pass.
func nap(d time.Duration) { <-time.After(d) }

func (c *chaos) await(what string, most time.Duration, ok func() bool) {
	for end := time.Now().Add(most); !ok(); time.Sleep(time.Second) {
		if c.over.Load() {
			return
		}
		if time.Now().After(end) {
			c.fail("%s: not within %v", what, most)
			return
		}
	}
}

// log records what is done.
func (c *chaos) log(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	virtual.Note("log", fmt.Appendf(nil, format, args...))
	c.said = append(c.said, fmt.Sprintf("%8.3f ", time.Since(c.began).Seconds())+fmt.Sprintf(format, args...))
	if *chaosTalks {
		c.t.Log(c.said[len(c.said)-1])
	}
	if len(c.said) > 30 {
		c.said = c.said[1:]
	}
}

// fail records a judge's failure; only the first one counts.
func (c *chaos) fail(format string, args ...any) {
	if c.over.Swap(true) {
		return
	}
	c.log("JUDGED: "+format, args...)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t.Errorf("seed %d, %d data centers, %d nodes in each; the last that was done:\n%s", c.seed,
		len(c.sites), c.each, strings.Join(c.said, "\n"))
	for _, n := range c.nodes {
		st := n.room.Status()
		c.t.Logf("%s: %+v", n.name, st)
		if st.Datacenters != nil {
			c.t.Logf("   %+v", *st.Datacenters)
		}
	}
}
