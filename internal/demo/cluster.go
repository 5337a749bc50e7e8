package demo

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/internal/loopback"
)

// A cluster is three processes that are one room. They are store nodes: each has a record of who
// waits and who is inside, so that any one of them may die.
type cluster struct {
	nodes    []*node
	balancer *balancer
	failed   chan error // a node that ended unexpectedly
}

// storeNodes is the number of store nodes. Three is the smallest number of which one may die.
const storeNodes = 3

// newCluster writes the join files as headgate cluster init does, and a configuration
// for each node. It starts nothing.
func newCluster(program, folder, origin string, l Limits) (*cluster, error) {
	c := &cluster{failed: make(chan error, 1)}
	plan := join.Plan{Datacenter: roomName, Peers: map[string]string{}}
	for i := range storeNodes {
		name := fmt.Sprintf("n%d", i+1)
		port, err := loopback.Ports(2) // for workers, and the next one for store nodes
		if err != nil {
			return nil, err
		}
		plan.Peers[name], plan.Store = loopback.Address(port), append(plan.Store, name)
	}
	joins := filepath.Join(folder, "cluster")
	if _, err := join.Init(joins, plan, time.Now()); err != nil {
		return nil, err
	}
	for _, name := range plan.Store {
		g := &gate{name: name, program: program, folder: filepath.Join(folder, name), failed: c.failed}
		if err := os.Mkdir(g.folder, 0o700); err != nil {
			return nil, err
		}
		err := g.settle(origin, l, map[string]any{
			"cluster": map[string]any{"join": filepath.Join(joins, name+".join")},
		})
		if err != nil {
			return nil, err
		}
		c.nodes = append(c.nodes, newNode(name, g))
	}
	c.balancer = &balancer{nodes: c.nodes}
	return c, nil
}

func newNode(name string, g *gate) *node {
	admin := adminClient(g.admin)
	admin.Timeout = 0 // each request has its own
	return &node{name: name, gate: g, admin: admin, since: time.Now(), transport: &http.Transport{
		DialContext: dialer(g.visitors), MaxIdleConnsPerHost: 64, DisableCompression: true,
		WriteBufferSize: 2 << 10, ReadBufferSize: 4 << 10,
	}}
}

// launch starts all nodes at once: the first start of a cluster succeeds only when all nodes are
// up.
func (c *cluster) launch() error {
	for _, n := range c.nodes {
		if err := n.launch(); err != nil {
			return err
		}
	}
	return nil
}

// close kills all nodes. Their folders are removed anyway, and in an orderly shutdown of all at
// once the nodes would wait for each other.
func (c *cluster) close() error {
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, n.kill())
		n.transport.CloseIdleConnections()
	}
	return errors.Join(errs...)
}

// host returns the node that hosts the room, or nil if none does.
func (c *cluster) host() *node {
	for _, n := range c.nodes {
		if _, _, s := n.now(); s.hosts {
			return n
		}
	}
	return nil
}

// leader returns the name of the node that leads the records, or "" if it is not known.
func (c *cluster) leader() string {
	for _, n := range c.nodes {
		if _, _, s := n.now(); s.leader != "" && c.of(s.leader).stands() != down {
			return s.leader
		}
	}
	return ""
}

// of returns the node with this name. For an unknown name it returns a node that is down.
func (c *cluster) of(name string) *node {
	for _, n := range c.nodes {
		if n.name == name {
			return n
		}
	}
	return &node{gate: &gate{}}
}

// count returns the number of nodes with this standing.
func (c *cluster) count(s standing) (k int) {
	for _, n := range c.nodes {
		if n.stands() == s {
			k++
		}
	}
	return k
}

// whole reports whether the room has all its nodes and a host.
func (c *cluster) whole() bool { return c.count(up) == len(c.nodes) && c.host() != nil }

// quorate reports whether more than half of the nodes are up, so that records can
// be written.
func (c *cluster) quorate() bool { return 2*c.count(up) > len(c.nodes) }
