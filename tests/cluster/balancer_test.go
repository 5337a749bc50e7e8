package cluster

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// A balancer passes connections on to nodes, in turn, and knows nothing of HTTP.
// As balancers do, it asks each node whether it takes visitors: one that says no
// gets no new connections, and one that is silent loses those it has.
type balancer struct {
	t       *testing.T
	outside *outside
	ln      net.Listener
	stop    context.CancelFunc
	wg      sync.WaitGroup
	mu      sync.Mutex
	rng     *rand.Rand
	nodes   []*backend
	next    int
	favor   string
	share   float64 // of new connections for favor, if it is up
	loss    float64 // of answers that are lost
	passed  map[string]*passage
	refused int
	losses  int
	lone    bool // before one node: a connection that it refuses is a question to it
}

// A backend is a node as the balancer sees it.
type backend struct {
	name, public, admin string
	state               health
	silent              int // looks in a row without an answer
	conns               map[net.Conn]bool
}

type health int

const (
	up health = iota
	busy
	down
)

// A passage is where a connection of a visitor led.
type passage struct {
	node string // "" if no node took it
	lost bool   // it was closed between a request and its answer
}

// How the balancer looks at nodes. Chosen: an ordinary interval, and short enough
// for visitors with sessions of seconds.
const (
	lookEvery  = 250 * time.Millisecond
	silentMost = 2
)

func newBalancer(t *testing.T, out *outside) *balancer {
	t.Helper()
	ln := out.listen(t)
	ctx, stop := context.WithCancel(context.Background())
	b := &balancer{t: t, outside: out, ln: ln, stop: stop, passed: map[string]*passage{},
		rng: rand.New(rand.NewPCG(1, 1))}
	b.wg.Go(b.accept)
	b.wg.Go(func() { b.look(ctx) })
	t.Cleanup(b.close)
	return b
}

// add makes a node one of those that get connections.
func (b *balancer) add(name, public, admin string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes = append(b.nodes, &backend{name: name, public: public, admin: admin,
		conns: map[net.Conn]bool{}})
}

// lean sends a share of the new connections to one node.
func (b *balancer) lean(name string, share float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.favor, b.share = name, share
}

// lose closes a share of the connections between request and answer.
func (b *balancer) lose(share float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.loss = share
}

// passage is where the connection from an address led.
func (b *balancer) passage(from string) passage {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.passed[from]; p != nil {
		return *p
	}
	return passage{}
}

func (b *balancer) close() {
	b.stop()
	b.ln.Close()
	b.mu.Lock()
	for _, n := range b.nodes {
		n.drop()
	}
	b.mu.Unlock()
	b.wg.Wait()
}

// drop closes all connections of a node.
func (n *backend) drop() {
	for c := range n.conns {
		c.Close()
	}
}

// look asks all nodes again and again.
func (b *balancer) look(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		b.mu.Lock()
		nodes := slices.Clone(b.nodes)
		b.mu.Unlock()
		var all sync.WaitGroup
		for _, n := range nodes {
			all.Go(func() { b.judge(n, b.outside.probe(n.admin)) })
		}
		all.Wait()
	}
}

func (b *balancer) judge(n *backend, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err == nil:
		n.state, n.silent = up, 0
	case errors.Is(err, errBusy):
		n.state, n.silent = busy, 0
	default:
		if n.silent++; n.silent >= silentMost {
			n.state = down
			n.drop()
		}
	}
}

func (b *balancer) accept() {
	for {
		c, err := b.ln.Accept()
		if err != nil {
			return // closed
		}
		b.wg.Go(func() { b.carry(c) })
	}
}

// order is whom to try for one connection: the favored node perhaps, then those
// that are up in turn, then those that are not.
func (b *balancer) order() []*backend {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.nodes) == 0 {
		return nil
	}
	b.next++
	first := b.next % len(b.nodes)
	all := slices.Concat(b.nodes[first:], b.nodes[:first])
	if b.favor != "" {
		i := slices.IndexFunc(all, func(n *backend) bool { return n.name == b.favor })
		favored := all[i]
		all = slices.Delete(all, i, i+1)
		if b.rng.Float64() < b.share {
			all = slices.Insert(all, 0, favored)
		} else {
			all = append(all, favored)
		}
	}
	slices.SortStableFunc(all, func(x, y *backend) int { return int(x.state) - int(y.state) })
	return all
}

// carry is one connection of a visitor.
func (b *balancer) carry(from net.Conn) {
	defer from.Close()
	at := &passage{}
	b.mu.Lock()
	b.passed[from.RemoteAddr().String()] = at
	b.mu.Unlock()
	for _, n := range b.order() {
		if b.lone {
			b.mu.Lock()
			at.node = n.name
			b.mu.Unlock()
		}
		to, err := b.dial(n.public)
		if err != nil {
			continue
		}
		b.join(from, to, n, at)
		return
	}
	b.mu.Lock()
	if !b.lone {
		b.refused++
	}
	b.mu.Unlock()
}

func (b *balancer) dial(addr string) (net.Conn, error) {
	ctx, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	return b.outside.dial(ctx, "tcp", addr)
}

// errBusy means that a process answers, and takes no visitors.
var errBusy = errors.New("not ready")

// probe asks a process whether it takes visitors, as a balancer does.
func (o *outside) probe(admin string) error {
	by := http.Client{Timeout: time.Second,
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: o.dial}}
	resp, err := by.Get("http://" + admin + "/readyz")
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errBusy
	}
	return nil
}

// join copies both ways until one side ends.
func (b *balancer) join(from, to net.Conn, n *backend, at *passage) {
	b.mu.Lock()
	at.node, n.conns[to] = n.name, true
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		delete(n.conns, to)
		b.mu.Unlock()
	}()
	shut := func() { from.Close(); to.Close() }
	var both sync.WaitGroup
	both.Go(func() {
		defer shut()
		buf := make([]byte, 8<<10)
		for {
			k, err := from.Read(buf)
			if k > 0 {
				if _, err := to.Write(buf[:k]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	both.Go(func() {
		defer shut()
		buf := make([]byte, 32<<10)
		for {
			k, err := to.Read(buf)
			if k > 0 {
				if b.losing(at) {
					return
				}
				if _, err := from.Write(buf[:k]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	both.Wait()
}

// losing draws whether an answer is lost; the node has applied its request.
func (b *balancer) losing(at *passage) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.loss == 0 || b.rng.Float64() >= b.loss {
		return false
	}
	at.lost = true
	b.losses++
	return true
}
