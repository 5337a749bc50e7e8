package counter

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/internal/adaptive"
	"github.com/headgate/headgate/internal/cluster"
	"github.com/headgate/headgate/internal/signals"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/status"
	"github.com/headgate/headgate/tests/virtual"
	"github.com/nats-io/nats.go"
)

// A node is one process of a cluster with a real engine, without HTTP.
type node struct {
	name    string
	members *cluster.Members
	seat    *Handle
	share   *slot.Share
	stop    func()
}

type testCluster struct {
	t      *testing.T
	engine *embedded.Server
	began  time.Time
	random bool // the order of the line
	lanes  []slot.Lane
}

func newCluster(t *testing.T) *testCluster {
	e, err := embedded.Open(t.Context(), embedded.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return &testCluster{t: t, engine: e, began: time.Now()}
}

func (c *testCluster) boot() time.Duration { return time.Since(c.began) + time.Hour }

func (c *testCluster) settings() Settings {
	return Settings{
		Active: slot.Limit{Kind: slot.AtOnce, N: 10, Per: 5 * time.Second},
		New:    slot.Limit{Kind: slot.PerWindow, N: 1000, Per: time.Minute},
		Line: LineConfig{
			MaxWaiting: 1000, PollMin: 100 * time.Millisecond, PollMax: time.Second, Hold: time.Minute,
		},
		DrawWeight: 20, RandomOrder: c.random, Lanes: c.lanes,
	}
}

func (c *testCluster) start(name string) *node {
	conn, err := nats.Connect("", nats.InProcessServer(c.engine))
	if err != nil {
		c.t.Fatal(err)
	}
	s, err := store.OpenNATS(c.t.Context(), store.NATSConfig{Conn: conn})
	if err != nil {
		c.t.Fatal(err)
	}
	log, bus := slog.New(slog.DiscardHandler), store.NewBus(conn)
	n := &node{name: name}
	self := cluster.Member{Name: name, Life: rand.Uint64(), CanHost: true}
	n.members = cluster.NewMembers(bus, self, c.boot, log)
	set := c.settings()
	n.share = slot.NewShare(slot.Params{}, name, slot.LoanID(rand.Uint64()|1), set.Active, set.New)
	n.seat = NewHandle(Config{
		Room: "shop", Host: name, Store: s, Settings: set, Boot: c.boot, Log: log,
	}, bus, n.members, func() {})
	ctx, cancel := context.WithCancel(context.Background())
	seatCtx, cancelSeat := context.WithCancel(context.Background())
	var wg, seat sync.WaitGroup
	wg.Go(func() {
		if err := n.members.Run(ctx); err != nil {
			c.t.Error(err)
		}
	})
	seat.Go(func() {
		if err := n.seat.Run(seatCtx); err != nil {
			c.t.Error(err)
		}
	})
	n.stop = sync.OnceFunc(func() { // like a process that stops: it announces it, hands over and exits
		n.members.Leave()
		cancelSeat()
		seat.Wait()
		cancel()
		wg.Wait()
		conn.Close()
	})
	c.t.Cleanup(n.stop)
	return n
}

func (c *testCluster) hosts(nodes ...*node) (names []string) {
	for _, n := range nodes {
		if n.seat.host.Load() != nil {
			names = append(names, n.name)
		}
	}
	return names
}

func (c *testCluster) await(what string, d time.Duration, ok func() bool) time.Duration {
	c.t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > d {
			c.t.Fatalf("%s: not within %v", what, d)
		}
		wait(c.t.Context(), 5*time.Millisecond)
	}
	return time.Since(began)
}

// join joins at any node, and retries like a visitor.
func (c *testCluster) join(n *node) (p PlaceInfo) {
	c.t.Helper()
	c.await("join at "+n.name, 8*time.Second, func() bool {
		var err error
		if p.Number == 0 {
			p, err = n.seat.Join(c.t.Context(), 0, time.Minute, 0)
		}
		if err == nil { // its cookie comes back
			_, err = n.seat.Poll(c.t.Context(), p.Life, p.Number, 0)
		}
		return err == nil
	})
	return p
}

// Three nodes have one host, and there is one line whichever node gets a request. The host stops
// and another node takes over: all places stay in their order.
func TestThreeSeatsAreOneRoom(t *testing.T) { virtual.Test(t, testThreeSeatsAreOneRoom) }

func testThreeSeatsAreOneRoom(t *testing.T) {
	c := newCluster(t)
	all := []*node{c.start("n1"), c.start("n2"), c.start("n3")}
	c.await("a host", 10*time.Second, func() bool { return len(c.hosts(all...)) == 1 })
	for _, n := range all {
		n.seat.Hold(true)
	}
	var places []PlaceInfo
	for i := range 30 {
		places = append(places, c.join(all[i%3]))
	}
	for i, p := range places {
		if p.Number != places[0].Number+uint64(i) {
			t.Fatalf("place %d has number %d after %d", i, p.Number, places[0].Number)
		}
	}
	old := all[slices.IndexFunc(all, func(n *node) bool { return n.seat.host.Load() != nil })]
	rest := slices.DeleteFunc(slices.Clone(all), func(n *node) bool { return n == old })
	old.stop()
	gap := c.await("the next host", 10*time.Second, func() bool { return len(c.hosts(rest...)) == 1 })
	t.Logf("handed over in %v", gap.Round(time.Millisecond))
	if gap > time.Second {
		t.Errorf("a clean stop handed over in %v", gap)
	}
	for i, p := range places {
		got, err := rest[i%2].seat.Poll(t.Context(), p.Life, p.Number, 0)
		if err != nil || got.Position > p.Position {
			t.Fatalf("place %d of %d is now %d, %v", i, p.Position, got.Position, err)
		}
	}
	if p := c.join(rest[0]); p.Number <= places[29].Number {
		t.Errorf("after the handover number %d is issued, %d was before", p.Number, places[29].Number)
	}
	if _, err := rest[0].seat.Poll(t.Context(), places[0].Life+1, 1, 0); err != nil {
		t.Fatal(err)
	}
}

// The node of a visitor tells the host the visitor's network, where a draw needs it.
func TestNodesTellTheHostTheNetworks(t *testing.T) { virtual.Test(t, testNodesTellTheHostTheNetworks) }

func testNodesTellTheHostTheNetworks(t *testing.T) {
	c := newCluster(t)
	c.random = true
	all := []*node{c.start("n1"), c.start("n2"), c.start("n3")}
	c.await("a host", 10*time.Second, func() bool { return len(c.hosts(all...)) == 1 })
	at := slices.IndexFunc(all, func(n *node) bool { return n.seat.host.Load() != nil })
	host := all[at].seat.host.Load()
	for i, n := range all {
		n.seat.Hold(true)
		p := c.join(n)
		p, err := n.seat.Poll(t.Context(), p.Life, p.Number, 0)
		asked := p.AsksNetwork
		if err == nil {
			err = n.seat.SetNetwork(t.Context(), p.Life, p.Number, uint32(1+i))
		}
		host.mu.Lock()
		network := host.line.Ordinary().Network(p.Number)
		host.mu.Unlock()
		if err != nil || !asked || network != uint32(1+i) {
			t.Errorf("%s: asked %v, the network is %d, want %d, %v", n.name, asked, network, 1+i, err)
		}
		if p, err = n.seat.Poll(t.Context(), p.Life, p.Number, 0); err != nil || p.AsksNetwork {
			t.Errorf("%s: asked again, %v", n.name, err)
		}
	}
}

// What all nodes have measured arrives at the host, wherever it is, and at the next one.
func TestSignalsOfAllNodesReachTheHost(t *testing.T) { virtual.Test(t, testSignalsReachTheHost) }

func testSignalsReachTheHost(t *testing.T) {
	c := newCluster(t)
	all := []*node{c.start("n1"), c.start("n2"), c.start("n3")}
	for round := range 2 {
		c.await("a host", 10*time.Second, func() bool { return len(c.hosts(all...)) == 1 })
		for k, n := range all {
			x := &signals.Report{Length: 5 * time.Second, InFlight: float64(k + 1),
				Routes: []adaptive.Route{{Class: "GET /", Answered: 100}}}
			c.await("the host takes a report of "+n.name, 10*time.Second, func() bool {
				return n.seat.SendSignals(t.Context(), x) == nil
			})
		}
		at := slices.IndexFunc(all, func(n *node) bool { return n.seat.host.Load() != nil })
		host := all[at].seat.host.Load()
		x, senders := host.TakeSignals()
		want := len(all)
		if senders != want || x.InFlight != float64(want*(want+1)/2) ||
			len(x.Routes) != 1 || x.Routes[0].Answered != uint64(100*want) {
			t.Errorf("round %d: of %d nodes %d are in %+v", round, want, senders, x)
		}
		all[at].stop()
		all = slices.Delete(all, at, at+1)
	}
}

// A node borrows from a host elsewhere. No slot is lent twice, and the limit holds for both
// together.
func TestSeatsBorrowFromOneHost(t *testing.T) { virtual.Test(t, testSeatsBorrowFromOneHost) }

func testSeatsBorrowFromOneHost(t *testing.T) {
	c := newCluster(t)
	all := []*node{c.start("n1"), c.start("n2"), c.start("n3")}
	c.await("a host", 10*time.Second, func() bool { return len(c.hosts(all...)) == 1 })
	open := 0
	for _, n := range all {
		x := n.share.Sync(c.boot(), 4, 0)
		a, err := n.seat.Sync(t.Context(), x)
		if err != nil || !n.share.Receive(c.boot(), &a) {
			t.Fatal(err)
		}
		for {
			if _, ok := n.share.Open(c.boot(), slot.SessionID(rand.Uint64()), 0, 0); !ok {
				break
			}
			open++
		}
	}
	if open != 10 {
		t.Errorf("%d let in of 10", open)
	}
}

// There are two hosts at once, because the network hides one from the other. The fenced host must
// not answer what it has not written.
func TestAHostThatIsReplacedSaysNothing(t *testing.T) {
	virtual.Test(t, testAHostThatIsReplacedSaysNothing)
}

func testAHostThatIsReplacedSaysNothing(t *testing.T) {
	c := newCluster(t)
	n1 := c.start("n1")
	c.await("a host", 10*time.Second, func() bool { return len(c.hosts(n1)) == 1 })
	old := n1.seat.host.Load()
	p := c.join(n1)
	rival, err := Open(t.Context(), Config{
		Room: "shop", Host: "rival", Store: n1.seat.cfg.Store, Settings: c.settings(), Boot: c.boot,
		Log: slog.New(slog.DiscardHandler),
	}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.Sync(t.Context(), n1.share.Sync(c.boot(), 1, 0)); !errors.Is(err, ErrFenced) {
		t.Errorf("the replaced host lends: %v", err)
	}
	c.await("the node takes it back", 5*time.Second, func() bool {
		now := n1.seat.host.Load()
		return now != nil && now != old
	})
	got, err := n1.seat.Poll(t.Context(), p.Life, p.Number, 0)
	if err != nil || got.Status == slot.TicketUnknown {
		t.Errorf("the place is %v, %v", got.Status, err)
	}
	_ = rival
}

// The prequeue began at one node, which then stops. Another node makes the draw, with the announced
// seed and the visitors that the first node counted.
func TestTheNextHostDrawsTheSame(t *testing.T) { virtual.Test(t, testTheNextHostDrawsTheSame) }

func testTheNextHostDrawsTheSame(t *testing.T) {
	c := newCluster(t)
	all := []*node{c.start("n1"), c.start("n2"), c.start("n3")}
	c.await("a host", 10*time.Second, func() bool { return len(c.hosts(all...)) == 1 })
	follow := func(phase Phase, nodes ...*node) {
		t.Helper()
		for _, n := range nodes {
			n.seat.Hold(true)
			if err := n.seat.SetPlan(t.Context(), Plan{Event: "sale", Start: 5, Phase: phase}); err != nil {
				t.Fatal(err)
			}
		}
	}
	draw := func(n *node) *status.Draw { return n.seat.State(0, 0).Draw }
	follow(Prequeuing, all...)
	c.await("the hash everywhere", 5*time.Second, func() bool {
		return !slices.ContainsFunc(all, func(n *node) bool { return draw(n) == nil })
	})
	hash := draw(all[0]).Hash
	var places []PlaceInfo
	for i := range 20 {
		places = append(places, c.join(all[i%3]))
	}
	old := all[slices.IndexFunc(all, func(n *node) bool { return n.seat.host.Load() != nil })]
	rest := slices.DeleteFunc(slices.Clone(all), func(n *node) bool { return n == old })
	old.stop()
	c.await("the next host", 10*time.Second, func() bool { return len(c.hosts(rest...)) == 1 })
	follow(Started, rest...)
	c.await("the draw everywhere", 5*time.Second, func() bool {
		return !slices.ContainsFunc(rest, func(n *node) bool { return draw(n) == nil || !draw(n).Finished })
	})
	k, err := newChecker(hash, draw(rest[0]).Text())
	if err != nil || *draw(rest[1]) != *draw(rest[0]) {
		t.Fatalf("%v; %+v and %+v", err, draw(rest[0]), draw(rest[1]))
	}
	slices.SortFunc(places, func(a, b PlaceInfo) int { return int(k.rank(a.Number)) - int(k.rank(b.Number)) })
	last := int64(0)
	for i, p := range places {
		got, err := rest[i%2].seat.Poll(t.Context(), p.Life, p.Number, 0)
		if err != nil || got.Position <= last {
			t.Fatalf("the %d. of the draw is at %d, the one before at %d: %v", i+1, got.Position, last, err)
		}
		last = got.Position
	}
}

// A new node knows the others at once: they do not wait for their next heartbeat.
func TestANewcomerKnowsTheOthersAtOnce(t *testing.T) {
	virtual.Test(t, testANewcomerKnowsTheOthersAtOnce)
}

func testANewcomerKnowsTheOthersAtOnce(t *testing.T) {
	c := newCluster(t)
	all := []*node{c.start("a")}
	for _, name := range []string{"b", "c", "d", "e", "f"} {
		all = append(all, c.start(name))
		n := all[len(all)-1]
		took := c.await(name+" knows all", cluster.HeartbeatInterval*4/5, func() bool {
			return len(n.members.All()) == len(all)
		})
		t.Logf("%s knows all after %v", name, took)
	}
}

// A ticket is released at any node, also at two at once, and the next host knows it.
func TestATicketIsReleasedAtAnyNode(t *testing.T) {
	t.Parallel()
	virtual.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.lanes = []slot.Lane{{Name: slot.UnsolvedLane, Share: 10}}
		a, b := c.start("a"), c.start("b")
		c.await("one host", 10*time.Second, func() bool { return len(c.hosts(a, b)) == 1 })
		for _, n := range []*node{a, b} {
			n.seat.Hold(true)
		}
		host, other := a, b
		if host.seat.host.Load() == nil {
			host, other = b, a
		}
		first, before := c.join(host), PlaceInfo{}
		c.await("a place in the lane", 8*time.Second, func() (ok bool) {
			before, _ = other.seat.Join(t.Context(), c.lanes[0].ID(), time.Minute, 0)
			_, err := other.seat.Poll(t.Context(), before.Life, before.Number, 0)
			return err == nil && slot.LaneIndex(before.Number) > 0
		})
		c.join(host)
		c.await("its life is known", 8*time.Second, func() bool { return other.seat.State(0, 0).Life == first.Life })
		find := func(life uint64) (uint64, bool) { return before.Number, life == first.Life }
		var wg sync.WaitGroup
		for _, n := range []*node{a, b, other} {
			wg.Go(func() {
				if err := n.seat.Release(t.Context(), find); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		err := other.seat.Release(t.Context(), func(uint64) (uint64, bool) { return first.Number, true })
		if !errors.Is(err, ErrNotHeldBack) {
			t.Errorf("a ticket of the ordinary line is released: %v", err)
		}
		x := TicketPoll{Life: before.Life, Number: before.Number, First: first.Number + 1}
		for range 2 {
			c.await("its place", 10*time.Second, func() bool {
				p, err := other.seat.PollAs(t.Context(), x)
				tr, terr := other.seat.Trace(t.Context(), find)
				return err == nil && p.Position == 2 && terr == nil && tr.Released && tr.Position == 2
			})
			if n := host.seat.host.Load(); n != nil && n.State(0, 0).Totals.Released != 1 {
				t.Errorf("%d are counted", n.State(0, 0).Totals.Released)
			}
			host.stop() // the other node takes over
		}
	})
}
