// Package world runs whole nodes of headgate, as headgate run assembles them, in one bubble of
// testing/synctest. The test owns their network and store, and each node has its own clock.
//
// # The promise
//
// A node is server.OpenOn and Run of the production code, with its configuration in a file. It has
// the faults of real processes: it crashes at any point and nothing that it does later has an
// effect outside, it freezes and wakes, it is cut off. All random choices of the network and the
// store come from the seed.
//
// # Concurrency
//
// Only the test's goroutine may call the methods of a World. Any goroutine may call the methods
// that read the state of nodes.
//
// # What it does not do
//
// It does not order goroutines: Go's scheduler may run any that is ready, and headgate makes its
// own random choices. The same seed gives the same network, the same store and the same faults at
// the same times, but the same history only with the runtime of scripts/seeded. A frozen node
// continues to run with a stopped clock, and without traffic in or out. All wall clocks are the same.
package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/tests/world/broker"
	"github.com/headgate/headgate/tests/world/network"
)

// delayLeast and delayMost are the limits of network delays, as in a data center.
const delayLeast, delayMost = 50 * time.Microsecond, 800 * time.Microsecond

// siteDelay is the one-way delay between two data centers.
const siteDelay = 40 * time.Millisecond

// Outside is the host name of visitors, origins and targets.
const Outside = "outside"

// A Config describes a world.
type Config struct {
	Seed uint64
	Net  *network.Network // nil creates one
	// Servers are the nodes that store the records: each has a store server on it.
	Servers []string
	// Own makes all nodes use the servers as the operator's own NATS.
	Own bool
	// Alone creates one node without a cluster.
	Alone bool
	// Sites makes each of Servers a data center of one node. The first is the home of Anywhere.
	Datacenters bool
	// Logs is a folder for the logs of a failed world; "" for none.
	Logs string
}

// A World is a set of nodes and their environment.
type World struct {
	T      *testing.T
	Net    *network.Network
	Began  time.Time
	cfg    Config
	dir    string
	stores map[string]*broker.Broker    // by server: the cluster it belongs to
	pairs  map[[2]string]*broker.Broker // between data centers
	client *http.Client
	cuts   map[[2]string]func(*broker.Broker) // by pair: how to cut the servers of the two
	ending sync.WaitGroup

	mu    sync.Mutex // guards nodes
	nodes []*Node
}

// A Node is one machine, and its process while it runs.
type Node struct {
	world         *World
	Name          string
	Public, Admin string // addresses
	beside        bool   // runs a server of the store
	text          string // its configuration
	dir           string // data folder of the current process
	life          int
	tokens        map[string]string

	mu     sync.Mutex // guards the following
	now    *process   // nil: none runs
	log    bytes.Buffer
	offset time.Duration // of its clock
	frozen bool
	stood  time.Duration // the time of its clock while it is frozen
}

// A process is one run of a node, from start to end.
type process struct {
	host string // of the network
	stop context.CancelFunc
	done chan struct{}
	err  error
}

func (n *Node) isFrozen() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.frozen
}

// NewNetwork returns the network of a world, with delays as in a data center.
func NewNetwork(seed uint64) *network.Network { return network.New(seed, delayLeast, delayMost) }

// New returns a world in a bubble, without nodes. The caller must call Close.
func New(t *testing.T, cfg Config) *World {
	t.Helper()
	if cfg.Net == nil {
		cfg.Net = NewNetwork(cfg.Seed)
	}
	w := &World{T: t, cfg: cfg, Net: cfg.Net, dir: t.TempDir(), Began: time.Now(),
		stores: map[string]*broker.Broker{}, pairs: map[[2]string]*broker.Broker{},
		cuts: map[[2]string]func(*broker.Broker){}}
	w.client = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return w.Net.Dial(ctx, Outside, addr)
		}, DisableCompression: true, MaxIdleConnsPerHost: 64}}
	w.makeStores()
	w.joinFiles()
	return w
}

// Add adds a node, which does not run yet. The text is its configuration, without its addresses and
// its cluster.
func (w *World) Add(name, text string) *Node {
	w.T.Helper()
	i := len(w.Nodes())
	n := &Node{world: w, Name: name, Public: fmt.Sprintf("127.0.0.1:%d", 8000+2*i),
		Admin: fmt.Sprintf("127.0.0.1:%d", 8001+2*i), text: text, tokens: map[string]string{},
		beside: !w.cfg.Own && slices.Contains(w.cfg.Servers, name),
		offset: time.Duration(w.cfg.Seed%97+uint64(i)*13) * time.Minute,
		dir:    filepath.Join(w.dir, name+"-1")}
	if !n.beside && !w.cfg.Own {
		if _, err := join.Node(filepath.Join(w.dir, "join", "test"), name, time.Now()); err != nil {
			w.T.Fatal(err)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes = append(w.nodes, n)
	return n
}

// Store returns the cluster of servers that stores the records of a node.
func (w *World) Store(name string) *broker.Broker {
	if b := w.stores[name]; b != nil {
		return b
	}
	return w.stores[w.cfg.Servers[0]]
}

func (w *World) makeStores() {
	if !w.cfg.Datacenters {
		b := broker.New(w.cfg.Seed, w.cfg.Servers...)
		for _, name := range w.cfg.Servers {
			w.stores[name] = b
		}
		return
	}
	for i, name := range w.cfg.Servers {
		w.stores[name] = broker.New(w.cfg.Seed+uint64(i), name)
		for _, other := range w.cfg.Servers[:i] {
			pair := broker.New(w.cfg.Seed, other, name)
			pair.Far(siteDelay)
			w.pairs[[2]string{other, name}] = pair
		}
	}
}

// pair returns the link between two data centers.
func (w *World) pair(a, b string) *broker.Broker {
	if p := w.pairs[[2]string{a, b}]; p != nil {
		return p
	}
	return w.pairs[[2]string{b, a}]
}

// brokers returns all brokers, each once.
func (w *World) brokers() (all []*broker.Broker) {
	for _, name := range w.cfg.Servers {
		if b := w.stores[name]; !slices.Contains(all, b) {
			all = append(all, b)
		}
	}
	for _, p := range w.pairs {
		all = append(all, p)
	}
	return all
}

// joinFiles writes the files with which nodes join their cluster.
func (w *World) joinFiles() {
	w.T.Helper()
	if w.cfg.Own || w.cfg.Alone {
		return
	}
	sites := map[string][]string{"test": w.cfg.Servers}
	if w.cfg.Datacenters {
		sites = map[string][]string{}
		for _, name := range w.cfg.Servers {
			sites[name] = []string{name}
		}
	}
	for site, names := range sites {
		p := join.Plan{Datacenter: site, Peers: map[string]string{}}
		for i, name := range names {
			p.Store = append(p.Store, name)
			p.Peers[name] = fmt.Sprintf("127.0.0.1:%d", 7000+10*i)
		}
		if _, err := join.Init(filepath.Join(w.dir, "join", site), p, time.Now()); err != nil {
			w.T.Fatal(err)
		}
	}
}

// cluster returns the part of a node's configuration about its store.
func (w *World) cluster(n *Node) string {
	var b strings.Builder
	switch {
	case w.cfg.Alone:
	case w.cfg.Own:
		fmt.Fprintf(&b, "engine:\n  url: nats://127.0.0.1:4222\n  name: %s\n", n.Name)
	case w.cfg.Datacenters:
		dir := filepath.Join(w.dir, "join")
		fmt.Fprintf(&b, "cluster:\n  join: %s\n  home: %s\n  datacenters:\n",
			filepath.Join(dir, n.Name, n.Name+".join"), w.cfg.Servers[0])
		for _, other := range w.cfg.Servers {
			if other != n.Name {
				fmt.Fprintf(&b, "    %s: {url: \"127.0.0.1:7002\", ca: %s}\n", other,
					filepath.Join(dir, other, "ca.pem"))
			}
		}
	default:
		fmt.Fprintf(&b, "cluster:\n  join: %s\n", filepath.Join(w.dir, "join", "test", n.Name+".join"))
	}
	return b.String()
}

// Node returns the node with this name.
func (w *World) Node(name string) *Node {
	all := w.Nodes()
	i := slices.IndexFunc(all, func(n *Node) bool { return n.Name == name })
	if i < 0 {
		w.T.Fatalf("there is no node %q", name)
	}
	return all[i]
}

// Nodes returns all nodes, running or not.
func (w *World) Nodes() []*Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.nodes)
}

// Clock returns the time since the world began.
func (w *World) Clock() time.Duration { return time.Since(w.Began) }

// Rest lets the bubble of the world run for a while.
func (w *World) Rest(d time.Duration) { time.Sleep(d) }

// key returns the key of the link between two nodes, in either direction.
func key(a, b string) [2]string {
	if a > b {
		a, b = b, a
	}
	return [2]string{a, b}
}

// Cut separates a node from others. It closes the connections, or silently drops all traffic.
// Visitors, origins and targets can still reach the node.
func (w *World) Cut(name string, silent bool, others ...string) {
	for _, other := range others {
		if other == name {
			continue
		}
		w.cuts[key(name, other)] = func(b *broker.Broker) { b.Cut(name, other, silent) }
		if silent {
			w.Net.Hold(name, other)
			w.Net.Hold(other, name)
		} else {
			w.Net.Cut(name, other)
		}
		w.linkStores(name, other)
	}
}

// Mute drops all traffic from one node to another, in one direction.
func (w *World) Mute(from, to string) {
	w.cuts[key(from, to)] = func(b *broker.Broker) { b.Heal(from, to); b.Mute(from, to) }
	w.Net.Hold(from, to)
	w.linkStores(from, to)
}

// linkStores sets the link between the servers of two nodes to its intended state. Healing a cut
// must not connect the server of a frozen node, and waking a node must not heal a cut.
func (w *World) linkStores(x, y string) {
	if !w.Node(x).beside || !w.Node(y).beside {
		return
	}
	b := w.stores[x]
	if w.cfg.Datacenters {
		b = w.pair(x, y)
	}
	cut := w.cuts[key(x, y)]
	switch {
	case w.Node(x).isFrozen() || w.Node(y).isFrozen():
		b.Cut(x, y, true)
	case cut != nil:
		cut(b)
	default:
		b.Heal(x, y)
	}
}

// Heal ends all cuts.
func (w *World) Heal() {
	healed := w.cuts
	w.cuts = map[[2]string]func(*broker.Broker){}
	for k := range healed {
		w.Net.Heal(k[0], k[1])
		w.linkStores(k[0], k[1])
	}
}

// Others returns the names of all nodes except one.
func (w *World) Others(name string) (all []string) {
	for _, n := range w.Nodes() {
		if n.Name != name {
			all = append(all, n.Name)
		}
	}
	return all
}

// Ask sends a request to the admin address of a node, from outside.
func (w *World) Ask(n *Node, method, path, token, body string) (string, error) {
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Second)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+n.Admin+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(text), err
}
