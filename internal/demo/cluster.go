package demo

import (
	"context"
	"time"
)

// againAfter is the minimum time that a node killed by the demo stays down. Chosen: long enough to
// see that the others go on without it.
const againAfter = 5 * time.Second

// A clustered is the demo of a room that is three processes.
type clustered struct {
	*demo
	*room
	hosted string          // the last host that was told
	woken  map[string]bool // the nodes that are up
}

func newClustered(d *demo, g *ground) (*clustered, error) {
	d.judge.patience, d.judge.slack = doubtFor, clusterSlack
	r, err := g.cluster()
	return &clustered{demo: d, room: r, woken: map[string]bool{}}, err
}

// follow records changes of the nodes.
func (d *clustered) follow(context.Context) {
	for _, n := range d.nodes {
		was := d.woken[n.name]
		if d.woken[n.name] = n.stands() == up; !was && d.woken[n.name] {
			d.tell("%s is up", n.name)
		}
	}
	host := ""
	if h := d.host(); h != nil {
		host = h.name
	}
	if host != d.hosted {
		d.judge.hostMoved()
		if host != "" {
			d.tell("%s hosts the room", host)
		}
	}
	d.hosted = host
	if d.openFor() > 0 {
		now := time.Now()
		r := d.shop.report(now)
		d.judge.watchIdle(now, &r, d.cfg.Limits, d.quorate())
	}
}

// open waits until the room takes visitors.
func (d *clustered) open(ctx context.Context) error {
	return d.await(ctx, func() (string, *node) {
		if d.whole() {
			return "", nil
		}
		return "the cluster was not ready", d.nodes[0]
	})
}

// key acts on a key. 1, 2 and 3 kill that node, or start it again; k kills the host. Before the room
// is open there is nothing to lose, so it ignores keys.
func (d *clustered) key(_ context.Context, k byte) {
	if d.openFor() == 0 {
		return
	}
	d.remark("")
	switch {
	case k >= '1' && int(k-'1') < len(d.nodes):
		n := d.nodes[k-'1']
		if n.stands() == down {
			d.startNode(n)
		} else {
			d.killNode(n)
		}
	case k == 'k' || k == 'K':
		if h := d.host(); h != nil {
			d.killNode(h)
		} else {
			d.remark("nobody hosts the room just now")
		}
	}
}

// killNode kills a node as a power failure would. Other goroutines may do so at the same time.
func (d *clustered) killNode(n *node) {
	who, said := n.name, "is killed"
	if n == d.host() {
		who, said = who+", the host", "is killed, the host of the room"
	}
	d.judge.killed(who)
	if err := n.kill(); err != nil {
		d.fail(err)
		return
	}
	d.tell("%s %s", n.name, said)
}

func (d *clustered) startNode(n *node) {
	if err := n.launch(); err != nil {
		d.fail(err)
		return
	}
	d.tell("%s is started again", n.name)
}

// killByItself kills the host of the room, unless that must wait, and starts it again a little
// later, when another node has taken over. A node that starts while nobody hosts the room does not
// know the counter time yet, and cannot decide whose pass has expired.
func (d *clustered) killByItself(ctx context.Context) bool {
	return d.whole() && d.act(ctx, func(ctx context.Context) error {
		h := d.host()
		if h == nil {
			return nil
		}
		d.killNode(h)
		for again := rest(ctx, againAfter); again; again = rest(ctx, lookEvery) {
			if h.stands() != down { // a key was faster
				return nil
			}
			if d.host() != nil {
				d.startNode(h)
				return nil
			}
		}
		return nil
	})
}

// show adds the nodes to a scene. Its caller holds mu.
func (d *clustered) show(s *scene) {
	host, leader := d.host(), d.leader()
	for _, n := range d.nodes {
		is, since, _ := n.now()
		s.Nodes = append(s.Nodes, nodeScene{Name: n.name, Stands: is, Hosts: n == host,
			Leads: n.name == leader, For: s.Now.Sub(since), LetIn: s.Shop.By[n.name]})
	}
	d.several(s, host != nil && d.quorate())
}
