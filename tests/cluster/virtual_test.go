//go:build !cluster

package cluster

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/tests/virtual"
	worlds "github.com/headgate/headgate/tests/world"
	"github.com/headgate/headgate/tests/world/network"
)

var (
	seed = flag.Uint64("seed", 1, "of the network and the store of the scenarios")
	logs = flag.String("logs", "", "folder for the logs of nodes of scenarios that fail")
)

// shortOnes are one scenario of each kind, for quick runs.
func shortOnes() []string {
	return []string{"TestThree", "TestJudgeGoesRed", "TestLimitsKillHost", "TestQueuesKillHost"}
}

// play runs a scenario: here in virtual time.
func play(t *testing.T, scenario func(t *testing.T)) {
	t.Helper()
	if testing.Short() && !slices.Contains(shortOnes(), t.Name()) {
		t.Log("not with -short")
		return
	}
	virtual.Test(t, scenario)
}

// retry runs a scenario once: a bubble does not stand still.
func retry(t *testing.T, scenario func(t *testing.T, last bool) (again bool)) { scenario(t, true) }

// jobsOfRun is how many jobs flow in a run of queues unless told otherwise.
const jobsOfRun = 16_000

// An outside is where visitors, origins and targets are: a host of the network.
type outside struct{ network *network.Network }

func newOutside(*testing.T) *outside { return &outside{worlds.NewNetwork(*seed)} }

func (o *outside) listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := o.network.Listen(worlds.Outside, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func (o *outside) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	return o.network.Dial(ctx, worlds.Outside, addr)
}

func (o *outside) serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := &httptest.Server{Listener: o.listen(t), Config: &http.Server{Handler: h}}
	s.Start()
	return s
}

// A process is a node of a world, or one of its servers.
type process struct {
	t      *testing.T
	name   string
	run    string // no other program is run here
	node   *worlds.Node
	world  *worlds.World // of a server alone
	server bool
}

func (p *process) start() {
	if p.server {
		p.world.Store(p.name).Start(p.name)
		return
	}
	p.node.Start()
}

func (p *process) ready() {
	if !p.server {
		p.node.Ready()
	}
}

func (p *process) runs() bool {
	if p.server {
		return p.world.Store(p.name).Up(p.name)
	}
	return p.node.Runs()
}

func (p *process) kill() {
	if p.server {
		p.world.Store(p.name).Stop(p.name, false)
		return
	}
	p.node.Crash()
}

func (p *process) stop()        { p.node.Stop() }
func (p *process) freeze()      { p.node.Freeze() }
func (p *process) wake()        { p.node.Wake() }
func (p *process) tail() string { return p.node.Log() }

// alive fails the test if the process has ended by itself.
func (p *process) alive() {
	p.t.Helper()
	if !p.node.Runs() || p.node.Ended() {
		p.t.Fatalf("%s has ended by itself: %s", p.name, p.node.Log())
	}
}

func (n *node) token() string { return n.process.node.Token() }

// makeLinks makes the world of a stage, whose links it is.
func (st *stage) makeLinks() *links {
	cfg := worlds.Config{Seed: *seed, Net: st.outside.network, Servers: storeNodes(), Logs: *logs}
	switch {
	case st.plan.alone:
		cfg.Servers, cfg.Alone = []string{"alone"}, true
	case st.plan.sites != nil:
		cfg.Servers, cfg.Datacenters = st.plan.sites, true
	case st.plan.ownNATS:
		cfg.Servers, cfg.Own = []string{"s1", "s2", "s3"}, true
	}
	w := worlds.New(st.t, cfg)
	return &links{w}
}

func (st *stage) startNATS() {
	for _, name := range []string{"s1", "s2", "s3"} {
		p := &process{t: st.t, name: name, world: st.links.w, server: true}
		st.nats = append(st.nats, &node{process: p})
	}
}

func (st *stage) inits() {}

func (st *stage) initSites() { st.doors = newDoors(st) }

func (st *stage) checkOwn() {}

// node adds one to the world, and starts nothing.
func (st *stage) node(name string) *node {
	st.t.Helper()
	factor := max(1, st.plan.factor)
	text := st.plan.limits + strings.ReplaceAll(st.plan.queues, "NODE", name) +
		fmt.Sprintf("rooms:\n%s  - name: %s\n    origin: %s\n    total_active_users: %d\n"+
			"    new_users_per_minute: %d\n    session_duration: %s\n",
			strings.ReplaceAll(st.plan.rooms, "ORIGIN", st.origin.URL), room, st.origin.URL,
			st.plan.total*factor, st.plan.perMinute*factor, st.plan.session)
	w := st.links.w.Add(name, text)
	n := &node{process: &process{t: st.t, name: name, node: w}, public: w.Public, admin: w.Admin}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.nodes = append(st.nodes, n)
	return n
}

// stopNodes ends all nodes in order.
func (st *stage) stopNodes() {
	if st.t.Failed() {
		for _, n := range st.nodes {
			text := n.tail()
			st.t.Logf("%s: %s", n.name, text[max(0, len(text)-4<<10):])
		}
	}
	st.links.w.Close()
}

// A links is the world, whose links are cut.
type links struct{ w *worlds.World }

func (l *links) sever(node string, how cutHow) { l.w.Cut(node, how == silenced, l.w.Others(node)...) }
func (l *links) part(p pair, how cutHow)       { l.w.Cut(p[0], how == silenced, p[1]) }
func (l *links) join(pair)                     { l.w.Heal() }
func (l *links) heal()                         { l.w.Heal() }
func (l *links) bypassed() []string            { return nil }

// moveAnywhere moves Anywhere by the API, at a node, and returns what it says.
func (st *stage) moveAnywhere(n *node, to string, args ...string) string {
	st.t.Helper()
	body, err := json.Marshal(map[string]any{"to": to, "home_is_off": len(args) > 0})
	if err != nil {
		st.t.Fatal(err)
	}
	out, err := st.answer(n, http.MethodPost, "/v1/cluster/anywhere", n.token(), string(body))
	if err != nil {
		st.t.Errorf("move Anywhere to %s: %v %s", to, err, out)
	}
	return string(out)
}

// buildPrevious has nothing to build: a rolling upgrade is a rolling restart here.
func buildPrevious(*testing.T) string { return "" }
