package demo

import (
	"context"
	"fmt"
	"time"
)

// againAfter is the minimum time that a node killed by the demo stays down. Chosen: long enough to
// see that the others go on without it.
const againAfter = 5 * time.Second

// coldStart is how long a cluster may take until it hosts the room. Chosen: an election takes 4 to
// 12 s, and longer on a busy machine.
const coldStart = time.Minute

// A news is an event of one node.
type news struct {
	at   time.Time
	text string
}

// tell stores an event until it is shown.
func (d *demo) tell(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.news = append(d.news, news{time.Now(), fmt.Sprintf(format, args...)})
}

// follow watches the nodes and the state of the room until ctx is done.
func (d *demo) follow(ctx context.Context) {
	for _, n := range d.cluster.nodes {
		d.spawn(func() error { return n.look(ctx) })
	}
	d.spawn(func() error {
		f := &follower{demo: d, woken: map[string]bool{}}
		for rest(ctx, lookEvery) {
			f.look()
		}
		return nil
	})
}

// A follower records changes of the nodes. It is used by one goroutine.
type follower struct {
	demo  *demo
	host  string
	woken map[string]bool // the nodes that are up
}

func (f *follower) look() {
	d := f.demo
	for _, n := range d.cluster.nodes {
		was := f.woken[n.name]
		f.woken[n.name] = n.stands() == up
		if !was && f.woken[n.name] {
			d.tell("%s is up", n.name)
		}
	}
	host := ""
	if h := d.cluster.host(); h != nil {
		host = h.name
	}
	if host != f.host {
		d.judge.hostMoved()
		if host != "" {
			d.tell("%s hosts the room", host)
		}
	}
	f.host = host
	if d.openFor() == 0 {
		return
	}
	now := time.Now()
	r := d.shop.report(now)
	d.judge.watchIdle(now, &r, d.cfg.Limits, d.cluster.quorate())
}

// open waits until the room takes visitors.
func (d *demo) open(ctx context.Context) error {
	if d.world != nil {
		if err := d.world.await(ctx); err != nil || ctx.Err() != nil {
			return err
		}
	}
	for d.cluster != nil && !d.cluster.whole() {
		if time.Since(d.begun) > coldStart {
			return fmt.Errorf("the cluster was not ready within %v\n%s", coldStart,
				&d.cluster.nodes[0].gate.output)
		}
		if !rest(ctx, lookEvery/4) {
			return nil
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opened = time.Now()
	return nil
}

// clusterKey acts on a key. 1, 2 and 3 kill that node, or start it again; k kills the host. Before
// the room is open there is nothing to lose, so it ignores keys.
func (d *demo) clusterKey(k byte) {
	if d.openFor() == 0 {
		return
	}
	d.remark("")
	switch {
	case k >= '1' && int(k-'1') < len(d.cluster.nodes):
		n := d.cluster.nodes[k-'1']
		if n.stands() == down {
			d.startNode(n)
		} else {
			d.killNode(n)
		}
	case k == 'k' || k == 'K':
		if h := d.cluster.host(); h != nil {
			d.killNode(h)
		} else {
			d.remark("nobody hosts the room just now")
		}
	}
}

// remark stores the result of a key if it differs from what the key promises.
func (d *demo) remark(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.note = text
}

// killNode kills a node as a power failure would. Other goroutines may do so at the same time.
func (d *demo) killNode(n *node) {
	who, said := n.name, "is killed"
	if n == d.cluster.host() {
		who, said = who+", the host", "is killed, the host of the room"
	}
	d.judge.killed(who)
	if err := n.kill(); err != nil {
		d.fail(fmt.Errorf("kill %s: %w", n.name, err))
		return
	}
	d.tell("%s %s", n.name, said)
}

func (d *demo) startNode(n *node) {
	if err := n.launch(); err != nil {
		d.fail(err)
		return
	}
	d.tell("%s is started again", n.name)
}

// killHostAndStart kills the host of the room, and starts it again a little later, when another
// node has taken over. A node that starts while nobody hosts the room does not know the counter
// time yet, and cannot decide whose pass has expired.
func (d *demo) killHostAndStart(ctx context.Context) error {
	h := d.cluster.host()
	if h == nil {
		return nil
	}
	d.killNode(h)
	for again := rest(ctx, againAfter); again; again = rest(ctx, lookEvery) {
		if h.stands() != down { // a key was faster
			return nil
		}
		if d.cluster.host() != nil {
			d.startNode(h)
			return nil
		}
	}
	return nil
}

// clusterScene adds the nodes to a scene. Its caller holds mu.
func (d *demo) clusterScene(s *scene) {
	host, leader := d.cluster.host(), d.cluster.leader()
	for _, n := range d.cluster.nodes {
		is, since, _ := n.now()
		s.Nodes = append(s.Nodes, nodeScene{Name: n.name, Stands: is, Hosts: n == host,
			Leads: n.name == leader, For: s.Now.Sub(since), LetIn: s.Shop.By[n.name]})
	}
	d.severalScene(s, host != nil && d.cluster.quorate())
}

// String returns the node as part of a log line.
func (n *nodeScene) String() string {
	switch {
	case n.Hosts:
		return n.Name + " hosts"
	case n.Stands == up:
		return n.Name + " up"
	case n.Stands == starting:
		return n.Name + " starting"
	}
	return n.Name + " down"
}
