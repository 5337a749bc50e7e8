package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/internal/loopback"
)

// A room is all processes that are the room.
type room struct {
	nodes []*node
	turn  atomic.Uint64 // of the balancer
}

// A ground is where a room is built.
type ground struct {
	program, folder string
	origin          string
	limits          Limits
	failed          chan error // a process that ended unexpectedly
}

// add configures one more node. It starts nothing.
func (r *room) add(g *ground, name, title string, cluster map[string]any) (*node, error) {
	n := newNode(name, title, g.program, filepath.Join(g.folder, name), g.failed)
	r.nodes = append(r.nodes, n)
	if cluster == nil {
		return n, n.settle(g.origin, g.limits, nil)
	}
	return n, n.settle(g.origin, g.limits, map[string]any{"cluster": cluster})
}

// storeNodes is the number of store nodes of a cluster. Three is the smallest number of which one
// may die: each has a record of who waits and who is inside.
const storeNodes = 3

// cluster writes the join files as headgate cluster init does, and a configuration for each node.
func (g *ground) cluster() (*room, error) {
	plan := join.Plan{Datacenter: roomName, Peers: map[string]string{}}
	for i := range storeNodes {
		name := fmt.Sprintf("n%d", i+1)
		port, err := loopback.Ports(2) // for workers, and the next one for store nodes
		if err != nil {
			return nil, err
		}
		plan.Peers[name], plan.Store = loopback.Address(port), append(plan.Store, name)
	}
	joins := filepath.Join(g.folder, "cluster")
	if _, err := join.Init(joins, plan, time.Now()); err != nil {
		return nil, err
	}
	r := &room{}
	for _, name := range plan.Store {
		n, err := r.add(g, name, name, map[string]any{"join": filepath.Join(joins, name+".join")})
		if err != nil {
			return nil, err
		}
		n.about = "/v1/cluster"
	}
	return r, nil
}

// launch starts all nodes at once: the first start of a cluster succeeds only when all nodes are up.
// It does not wait for them, because there is something to see meanwhile.
func (r *room) launch(context.Context) error {
	for _, n := range r.nodes {
		if err := n.launch(); err != nil {
			return err
		}
	}
	return nil
}

// close kills all nodes.
func (r *room) close() error {
	var errs []error
	for _, n := range r.nodes {
		errs = append(errs, n.kill())
		n.transport.CloseIdleConnections()
	}
	return errors.Join(errs...)
}

func (r *room) all() []*node { return r.nodes }

// host returns the node that hosts the room, or nil if none does.
func (r *room) host() *node {
	if i := slices.IndexFunc(r.nodes, (*node).hosts); i >= 0 {
		return r.nodes[i]
	}
	return nil
}

// leader returns the name of the node that leads the records, or "" if it is not known.
func (r *room) leader() string {
	for _, n := range r.nodes {
		_, _, s := n.now()
		lives := func(o *node) bool { return o.name == s.Leader && o.stands() != down }
		if slices.ContainsFunc(r.nodes, lives) {
			return s.Leader
		}
	}
	return ""
}

// count returns the number of nodes with this standing.
func (r *room) count(s standing) (k int) {
	for _, n := range r.nodes {
		if n.stands() == s {
			k++
		}
	}
	return k
}

// whole reports whether the room has all its nodes and a host.
func (r *room) whole() bool { return r.count(up) == len(r.nodes) && r.host() != nil }

// quorate reports whether more than half of the nodes are up, so that records can be written.
func (r *room) quorate() bool { return 2*r.count(up) > len(r.nodes) }

var errNobody = errors.New("no node takes visitors")

// RoundTrip balances: it sends a request to the next node that is ready for visitors, in turn. A
// visitor inside therefore meets another node with each click, which shows that all nodes are one
// room. If it cannot connect to that node, the node has seen nothing of the request, and the node
// after it gets it.
func (r *room) RoundTrip(req *http.Request) (*http.Response, error) {
	first := int(r.turn.Add(1) % uint64(len(r.nodes)))
	err := errNobody
	for _, n := range slices.Concat(r.nodes[first:], r.nodes[:first]) {
		if n.stands() != up {
			continue
		}
		var resp *http.Response
		if resp, err = n.RoundTrip(req); err == nil {
			return resp, nil
		}
		op, ok := errors.AsType[*net.OpError](err)
		if !ok || op.Op != "dial" || req.Body != nil && req.Body != http.NoBody {
			return nil, err
		}
	}
	if req.Body != nil {
		req.Body.Close()
	}
	return nil, err
}
