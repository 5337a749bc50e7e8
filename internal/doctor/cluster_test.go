//go:build real

package doctor

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/cluster"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/datadir"
	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/internal/loopback"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/status"
	"github.com/headgate/headgate/tests/yardstick"
)

// A town is a cluster on this machine, of real engines with real certificates.
type town struct {
	t       *testing.T
	dir     string
	plan    join.Plan
	engines map[string]*embedded.Server
}

// newTown makes the files of store nodes that are yet to be started, at a time.
func newTown(t *testing.T, now time.Time, names ...string) *town {
	t.Helper()
	c := &town{t: t, engines: map[string]*embedded.Server{},
		plan: join.Plan{Datacenter: "sjc", Store: names, Peers: map[string]string{}}}
	for _, name := range names {
		c.plan.Peers[name] = loopback.Address(loopback.Port(t, 2))
	}
	c.init(now)
	t.Cleanup(func() {
		for _, e := range c.engines {
			e.Close()
		}
	})
	return c
}

// init makes the files of the plan, by a new CA.
func (c *town) init(now time.Time) {
	c.t.Helper()
	c.dir = filepath.Join(c.t.TempDir(), "cluster")
	if _, err := join.Init(c.dir, c.plan, now); err != nil {
		c.t.Fatal(err)
	}
}

// node is the configuration of a node: n1 and such, or worker.
func (c *town) node(name string) *config.Config {
	c.t.Helper()
	f, err := join.Read(filepath.Join(c.dir, name+".join"))
	if err != nil {
		c.t.Fatal(err)
	}
	return &config.Config{File: "headgate.yaml", Cluster: &config.Cluster{
		Datacenter: f.Datacenter, Node: f.Node, Listen: f.Listen, Peers: f.Peers, Store: f.Store,
		TLS: config.ClusterTLS{CA: []byte(f.CA), Cert: []byte(f.Cert), Key: []byte(f.Key)}}}
}

func (c *town) tls(name string) *tls.Config {
	c.t.Helper()
	t, err := c.node(name).Cluster.TLSConfig()
	if err != nil {
		c.t.Fatal(err)
	}
	return t
}

// start starts the engines of store nodes.
func (c *town) start(names ...string) {
	c.t.Helper()
	for _, name := range names {
		cl := c.node(name).Cluster
		e, err := embedded.Open(c.t.Context(), embedded.Config{Name: name,
			Dir: filepath.Join(c.dir, name, "engine"), Cluster: &embedded.Cluster{
				Name: cl.Datacenter, Listen: cl.Listen, Routes: cl.Routes(), Peers: cl.Others(),
				TLS: c.tls(name)}})
		if err != nil {
			c.t.Fatalf("%s: %v", name, err)
		}
		c.engines[name] = e
		desk := &store.Proxy{Conn: e.Conn(), Log: slog.New(slog.DiscardHandler)} // as headgate run has
		stop, err := desk.Serve()
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(stop)
	}
}

func (c *town) stop(names ...string) {
	for _, name := range names {
		c.engines[name].Close()
		delete(c.engines, name)
	}
}

// records waits until there are some, on all store nodes.
func (c *town) records(from string) {
	c.t.Helper()
	yardstick.Await(c.t, "led: the records", func() bool {
		s, err := store.OpenNATS(c.t.Context(), store.NATSConfig{Conn: c.engines[from].Conn(),
			Replicas: len(c.plan.Store)})
		if err == nil {
			_, err = s.CompareAndSwap(c.t.Context(), "counter.shop", 0, recordOf(1))
			s.Close()
		}
		return err == nil
	})
}

// beats lets a process be heard, as a headgate is, until the test ends.
func (c *town) beats(conn *embedded.Server, m cluster.Member, off time.Duration) {
	c.t.Helper()
	bus := store.NewBus(conn.Conn())
	done, tick := make(chan struct{}), time.NewTicker(100*time.Millisecond)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			m.Wall = time.Now().Add(off)
			b, err := json.Marshal(&m)
			if err == nil {
				err = bus.Publish("members", b)
			}
			if err != nil {
				return // the engine has been stopped
			}
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	})
	c.t.Cleanup(func() { close(done); tick.Stop(); wg.Wait() })
}

// examine looks from a node that has no folder yet.
func (c *town) examine(name string) *Report {
	c.t.Helper()
	return c.with(Config{Config: c.node(name)})
}

func (c *town) with(cfg Config) *Report {
	c.t.Helper()
	if cfg.Data == "" {
		cfg.Data = filepath.Join(c.t.TempDir(), "none")
	}
	stick, began := yardstick.Start(c.t), time.Now()
	r := Examine(c.t.Context(), cfg)
	stick.Judge(c.t, "a look at all", time.Since(began),
		yardstick.Bound{Design: 10 * time.Second, Delays: 20})
	for _, l := range r.Checks {
		if (l.State == Fault || l.State == Warning) && l.Do == "" {
			c.t.Errorf("%+v does not say what to do", l)
		}
		if strings.Contains(l.What+l.Do, "PRIVATE") {
			c.t.Errorf("%+v tells a key", l)
		}
	}
	return r
}

// wants wants a line of a check, with a text in what it says or what to do.
func (r *Report) wants(t *testing.T, check string, state State, text string) {
	t.Helper()
	for _, c := range r.Checks {
		if c.Name == check && c.State == state && strings.Contains(c.What+"\n"+c.Do, text) {
			return
		}
	}
	t.Errorf("no line %s, %s: %q in:\n%s", state, check, text, r.text())
}

func (r *Report) text() string {
	var b strings.Builder
	for _, c := range r.Checks {
		fmt.Fprintf(&b, "%s  %s: %s\n    %s\n", c.State, c.Name, c.What, c.Do)
	}
	return b.String()
}

// worst is the worst state of some checks.
func (r *Report) worst(checks ...string) State {
	order := []State{OK, Skipped, Warning, Fault}
	worst := 0
	for _, c := range r.Checks {
		if slices.Contains(checks, c.Name) {
			worst = max(worst, slices.Index(order, c.State))
		}
	}
	return order[worst]
}

func TestAClusterOfThreeLosesOneNodeAfterAnother(t *testing.T) {
	t.Parallel()
	c := newTown(t, time.Now(), "n1", "n2", "n3")

	r := c.examine("n1") // before the first start
	r.wants(t, "ports", OK, c.plan.Peers["n1"]+" is free")
	r.wants(t, "ports", OK, c.node("n1").Cluster.Routes()+" is free")
	r.wants(t, "store nodes", Warning, "n2 at "+c.plan.Peers["n2"]+" and the next port: connection refused")
	r.wants(t, "quorum", Fault, "0 of 3 store nodes answer: newcomers are not admitted")
	r.wants(t, "folder", Warning, "before the first start")

	c.start("n1", "n2", "n3")
	c.records("n1")
	for i, name := range []string{"n1", "n2", "n3"} {
		m := cluster.Member{Name: name, Life: uint64(i + 1), CanHost: true, Version: "v1"}
		c.beats(c.engines[name], m, 0)
	}
	dir := filepath.Join(t.TempDir(), "data")
	f, err := datadir.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // n1 runs
	r = c.with(Config{Data: dir, Config: c.node("n1")})
	r.wants(t, "ports", OK, c.plan.Peers["n1"]+" answers as n1")
	r.wants(t, "store nodes", OK, "n2 at "+c.plan.Peers["n2"]+" and :")
	r.wants(t, "store nodes", Warning, "n2 at "+c.plan.Peers["n2"]+", n3 at ")
	r.wants(t, "cluster certificates", OK, "ours, of n1, until ")
	r.wants(t, "cluster certificates", OK, "n3 shows that of n3, until ")
	r.wants(t, "quorum", OK, "3 of 3 store nodes answer; one may die")
	r.wants(t, "quorum", OK, "orders the writes")
	r.wants(t, "copies", OK, "3 of 3 store nodes have all records")
	r.wants(t, "nodes", OK, "3, all of version v1: n1 n2 n3")
	r.wants(t, "clocks", OK, "all within 0.")
	r.wants(t, "sealing keys", OK, "in the records")
	r.wants(t, "engine", Skipped, "the other store nodes")
	if !r.OK {
		t.Errorf("faults in:\n%s", r.text())
	}

	r = c.examine("worker")
	r.wants(t, "ports", OK, "a worker needs none")
	r.wants(t, "cluster certificates", OK, "ours, of worker, until ")
	r.wants(t, "quorum", OK, "3 of 3 store nodes answer")
	r.wants(t, "folder", OK, "the records are elsewhere")
	if strings.Contains(r.text(), c.node("n1").Cluster.RouteTo("n2")) {
		t.Errorf("a worker knocks where only store nodes go:\n%s", r.text())
	}

	c.stop("n3")
	r = c.untilLed("worker")
	r.wants(t, "store nodes", Warning, "n3 at "+c.plan.Peers["n3"]+": connection refused")
	r.wants(t, "quorum", Warning,
		"2 of 3 store nodes answer, n3 does not: it works, but no further one may die")
	r.wants(t, "copies", Warning, "2 of 3 store nodes have all records: n3 does not answer")
	if !r.OK {
		t.Errorf("one of three is no fault:\n%s", r.text())
	}

	c.stop("n2")
	r = c.examine("worker")
	r.wants(t, "quorum", Fault, "1 of 3 store nodes answers: newcomers are not admitted")
	r.wants(t, "quorum", Fault, "start n2 and n3: 2 of 3 are needed")
	r.wants(t, "copies", Skipped, "see quorum")
}

// Who is late is told with the reason that helps.
func TestWhatTheStoreSaysOfCopies(t *testing.T) {
	c := &finding{Cluster: &config.Cluster{Store: []string{"n1", "n2", "n3"}},
		doors: []*door{{node: "n1"}, {node: "n2"}, {node: "n3", why: refused}}}
	for _, x := range []struct {
		kept  store.Placement
		state State
		want  string
	}{
		{store.Placement{Wanted: 3}, OK, "3 of 3 store nodes have all records"},
		{store.Placement{Wanted: 1}, Warning, "kept on 1 store node, not on 3"},
		{store.Placement{Wanted: 3, Behind: map[string]int{"n2": 7}}, Warning, "2 of 3 store nodes have all " +
			"records: n2 has not 7 of the newest writes"},
		{store.Placement{Wanted: 3, Gone: []string{"n2", "n3"}}, Warning, "1 of 3 store nodes have all " +
			"records: n2 has just been away, n3 does not answer"},
	} {
		c.kept = kept{Placement: x.kept, asked: true}
		e := &examiner{name: "copies"}
		e.keptWhere(c)
		e.report.wants(t, "copies", x.state, x.want)
	}
}

// untilLed looks again until somebody leads and the loss of a node is known.
func (c *town) untilLed(name string) (r *Report) {
	c.t.Helper()
	yardstick.Await(c.t, "led", func() bool {
		r = c.examine(name)
		return r.worst("quorum", "copies") == Warning
	})
	return r
}

func TestCertificatesAreToldApart(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := newTown(t, now, "n1")
	c.start("n1")
	good, cert := c.dir, c.node("worker").Cluster.TLS
	at := c.plan.Peers["n1"]

	c.init(now) // another cluster at the same address
	r := c.examine("worker")
	r.wants(t, "store nodes", Fault, "the TLS handshake with n1 at "+at+": wrong CA")
	r.wants(t, "cluster certificates", Fault, `n1 shows a certificate of another CA, "headgate sjc"`)
	r.wants(t, "quorum", Fault, "the only store node does not answer")

	// It trusts our CA no more than that; we trust both.
	both := c.node("worker")
	both.Cluster.TLS.CA = append(slices.Clone(both.Cluster.TLS.CA), cert.CA...)
	r = c.with(Config{Config: both})
	r.wants(t, "store nodes", Fault, "it refuses our certificate: wrong CA")
	r.wants(t, "cluster certificates", Fault, "n1 does not trust the CA of our certificate")

	c.dir = good
	r = c.with(Config{Config: c.node("worker"), Now: func() time.Time { return now.AddDate(2, 0, -20) }})
	r.wants(t, "cluster certificates", Warning, "n1 shows that of n1: expires at ")
	r.wants(t, "cluster certificates", Warning, "headgate cluster node n1")
	r.wants(t, "cluster certificates", Warning, "ours, of worker: expires at ")
	r = c.with(Config{Config: c.node("worker"), Now: func() time.Time { return now.AddDate(-1, 0, 0) }})
	r.wants(t, "store nodes", Fault, "not valid yet")
	r.wants(t, "cluster certificates", Fault, "ours, of worker: is not valid before")
	r.wants(t, "cluster certificates", Fault, "check the clock")
}

func TestACertificateThatIsOverIsNamed(t *testing.T) {
	t.Parallel()
	c := newTown(t, time.Now().AddDate(-2, 0, -1), "n1") // the CA is good for ten years
	c.start("n1")
	old := c.node("worker")
	if _, err := join.Node(c.dir, "w7", time.Now()); err != nil {
		t.Fatal(err)
	}
	r := c.examine("w7")
	r.wants(t, "store nodes", Fault, ": expired")
	r.wants(t, "cluster certificates", OK, "ours, of w7, until ")
	r.wants(t, "cluster certificates", Fault, "n1 shows that of n1: expired at ")
	r.wants(t, "cluster certificates", Fault, "move n1.join away and run: headgate cluster node n1")

	// The other way round: the store node is good, we are over.
	c.stop("n1")
	if err := os.Remove(filepath.Join(c.dir, "n1.join")); err != nil {
		t.Fatal(err)
	}
	if _, err := join.Node(c.dir, "n1", time.Now()); err != nil {
		t.Fatal(err)
	}
	c.start("n1")
	r = c.with(Config{Config: old})
	r.wants(t, "store nodes", Fault, "it refuses our certificate: expired")
	r.wants(t, "cluster certificates", Fault, "ours, of worker: expired at ")
	r.wants(t, "cluster certificates", Fault, "headgate cluster node worker")
	r.wants(t, "cluster certificates", Fault, "n1 refuses our certificate: it is over by the clock there")
}

func TestWhatAnswersMustBeTheNode(t *testing.T) {
	t.Parallel()
	c := newTown(t, time.Now(), "n1", "n2", "n3")
	serve := func(name, addr string) { // a program with the certificate of a node
		l, err := tls.Listen("tcp", addr, c.tls(name))
		if err != nil {
			t.Fatal(err)
		}
		answer(t, l, "INFO {\"server_id\":\"S"+name+"\"}\r\n")
	}
	serve("worker", c.plan.Peers["n1"])
	serve("n3", c.plan.Peers["n2"])
	plain, err := net.Listen("tcp", c.plan.Peers["n3"])
	if err != nil {
		t.Fatal(err)
	}
	answer(t, plain, "SSH-2.0-OpenSSH_9.6\r\n")
	r := c.examine("worker")
	r.wants(t, "store nodes", Fault, "the TLS handshake with n1 at "+c.plan.Peers["n1"]+": wrong name")
	r.wants(t, "cluster certificates", Fault,
		"n1 shows the certificate of worker, which is no store node of sjc")
	r.wants(t, "store nodes", Fault, "n2 at "+c.plan.Peers["n2"]+" answers as n3")
	r.wants(t, "store nodes", Fault, "n3 at "+c.plan.Peers["n3"]+": no TLS: another program answers")

	r = c.examine("n3") // which has that port itself
	r.wants(t, "ports", Fault, c.plan.Peers["n3"]+" is taken by another program: no TLS")
	r.wants(t, "ports", OK, c.node("n3").Cluster.Routes()+" is free")

	r.wants(t, "store nodes", Fault, "n2 at "+c.node("n3").Cluster.RouteTo("n2")+
		": connection refused, while its other port answers")

	// Two addresses, one process.
	same := c.node("worker")
	same.Cluster.Peers = map[string]string{"n1": c.plan.Peers["n2"], "n2": c.plan.Peers["n2"],
		"n3": c.plan.Peers["n2"]}
	r = c.with(Config{Config: same})
	r.wants(t, "store nodes", Fault, "the addresses of n1 and n2 lead to one process")
}

// answer says the same to all who connect, until the test ends.
func answer(t *testing.T, l net.Listener, text string) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				// The end of the test closes it: the other end may forget to.
				defer conn.Close()
				defer context.AfterFunc(t.Context(), func() { conn.Close() })()
				// Whoever does not take the certificate is gone: nothing to do.
				_, _ = conn.Write([]byte(text))
				_, _ = conn.Read(make([]byte, 1))
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
}

func TestSilenceAndWrongAddressesAreTold(t *testing.T) {
	t.Parallel()
	c := newTown(t, time.Now(), "n1", "n2", "n3")
	mute, err := net.Listen("tcp", c.plan.Peers["n2"]) // the kernel answers, and nobody else
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	n1 := c.node("n1")
	n1.Cluster.Listen = "192.0.2.1:7422"                // of nobody: RFC 5737
	n1.Cluster.Peers["n3"] = "n3.headgate.invalid:7422" // never there: RFC 2606
	r := c.with(Config{Config: n1})
	r.wants(t, "ports", Fault, "192.0.2.1:7422 cannot be opened: this machine has no such address")
	r.wants(t, "ports", Fault, "192.0.2.1:7423 cannot be opened")
	r.wants(t, "store nodes", Warning, "n2 at "+c.plan.Peers["n2"]+": timeout")
	r.wants(t, "store nodes", Warning, "n3 at n3.headgate.invalid:7422 and the next port: its name cannot be")
	r.wants(t, "store nodes", Warning, "n2 at "+c.plan.Peers["n2"]+": a loopback address")
}

func TestNodesAreHeld(t *testing.T) {
	t.Parallel()
	c := newTown(t, time.Now(), "n1")
	c.start("n1")
	c.records("n1")
	e := c.engines["n1"]
	c.beats(e, cluster.Member{Name: "n1", Life: 1, CanHost: true, Version: "v1"}, 0)
	c.beats(e, cluster.Member{Name: "w1", Life: 2, Version: "v1"}, 50*time.Millisecond)
	c.beats(e, cluster.Member{Name: "w2", Life: 3, Version: "v2"}, -time.Second)
	c.beats(e, cluster.Member{Name: "w3", Life: 4, Version: "v1"}, time.Minute)
	c.beats(e, cluster.Member{Name: "w4", Life: 5, Version: "v1"}, 0)
	c.beats(e, cluster.Member{Name: "w4", Life: 6, Version: "v1"}, 0)
	c.beats(e, cluster.Member{Name: "w5", Life: 7, Version: "v1", Leaving: true}, 0)
	c.beats(e, cluster.Member{Name: "w5", Life: 8, Version: "v1"}, 0) // a restart
	r := c.examine("worker")
	r.wants(t, "nodes", Fault, "two processes are called w4")
	if strings.Contains(r.text(), "called w5") {
		t.Error("a restart is taken for two processes")
	}
	r.wants(t, "nodes", Warning, "v1 on n1 w1 w3 w4 w5; v2 on w2")
	r.wants(t, "clocks", Warning, "the clock of w2 is 1.0 s behind the others: sealing keys depend on it")
	r.wants(t, "clocks", Fault, "the clock of w3 is 60.0 s ahead of the others")
	if strings.Contains(r.text(), "clock of w1") || strings.Contains(r.text(), "clock of this") {
		t.Errorf("a good clock is blamed:\n%s", r.text())
	}
}

// What the headgate that runs here says counts too.
func TestTheHeadgateThatRunsIsAsked(t *testing.T) {
	t.Parallel()
	c := newTown(t, time.Now(), "n1")
	dir := filepath.Join(t.TempDir(), "data")
	f, err := datadir.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	said := &Running{About: api.About{Data: dir}, Cluster: &api.Cluster{Problem: "the records are gone"}}
	said.Cluster.Nodes = append(said.Cluster.Nodes, headgateNode("w1", 0.1), headgateNode("w2", -3))
	cfg := Config{Data: dir, Config: c.node("worker"), Ask: asked(said)}
	r := c.with(cfg)
	r.wants(t, "nodes", Fault, "says: the records are gone")
	r.wants(t, "clocks", Fault, "the clock of w2 is 3.0 s behind the others")
	said.Cluster.Nodes[0].Skew = -3
	c.with(cfg).wants(t, "clocks", Fault, "the clock of this machine is 3.0 s ahead of the others")
	said.Cluster.Nodes = said.Cluster.Nodes[1:]
	c.with(cfg).wants(t, "clocks", Fault, "the clock of w2 is 3.0 s behind this machine")
	cfg.Ask = asked(&Running{About: api.About{Data: dir}, Alone: true})
	c.with(cfg).wants(t, "nodes", Fault, "is not part of the cluster")
	cfg.Config = c.node("n1")
	c.with(cfg).wants(t, "ports", Fault, "headgate runs and does not listen there")
	c.start("n1")
	c.records("n1")
	r = c.with(cfg)
	r.wants(t, "ports", OK, "answers as n1")
	r.wants(t, "quorum", OK, "the only store node answers")

	// Its files are made anew, and it has not been started again.
	if err := os.Remove(filepath.Join(c.dir, "n1.join")); err != nil {
		t.Fatal(err)
	}
	if _, err := join.Node(c.dir, "n1", time.Now()); err != nil {
		t.Fatal(err)
	}
	cfg.Config = c.node("n1")
	c.with(cfg).wants(t, "cluster certificates", Warning, "shows another one, of n1, until ")
	r = c.examine("n1") // in another folder, where nobody works
	r.wants(t, "ports", Warning, "answers as n1, but no headgate works in the data folder")
}

func headgateNode(name string, skew float64) status.Node {
	return status.Node{Name: name, Alive: true, Skew: skew}
}

func asked(r *Running) func(context.Context) (*Running, error) {
	return func(context.Context) (*Running, error) { return r, nil }
}

// The one store node of a cluster has what nobody else has.
func TestTheEngineOfTheOnlyStoreNodeIsLookedAt(t *testing.T) {
	dir := used(t)
	c := newTown(t, time.Now(), "n1")
	os.RemoveAll(filepath.Join(dir, "records"))
	os.RemoveAll(filepath.Join(dir, "keys"))
	cfg := Config{Data: dir, Config: c.node("n1"), Temp: t.TempDir()}
	r := c.with(cfg)
	r.wants(t, "engine", OK, "it opens, records: 2")
	r.wants(t, "quorum", Warning, "this is the only store node, and it does not run")
	os.Remove(one(t, dir, "../meta.inf"))
	c.with(cfg).wants(t, "engine", Fault, "no other node has the records")
	r = c.with(Config{Data: dir, Config: c.node("worker"), lowSpace: 1 << 62, maxCopy: 1})
	r.wants(t, "free space", OK, "the records are elsewhere")
	r.wants(t, "engine", OK, "none here")
}
