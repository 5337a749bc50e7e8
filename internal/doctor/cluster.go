package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/headgate/headgate/internal/config"
)

// A finding is what one examination finds about the nodes.
type finding struct {
	*config.Cluster
	tls    *tls.Config
	domain string // suffix of all names in certificates

	here   []*door // this node's own ports, if it is a store node and they are in use
	doors  []*door // of the store nodes; this one only if it answers
	heard  []heard // processes, by name
	kept   kept
	server string // server id of this node, if it runs
}

// cluster checks the nodes that form the room together with this one.
func (x *examiner) cluster(ctx context.Context) {
	switch {
	case x.cfg.Config == nil:
		return
	case x.cfg.Config.Engine != nil:
		x.name = "engine"
		x.say(Skipped, "your own NATS is not looked at",
			"headgate cluster status says what a running process sees of it; nats server report jetstream the rest")
		return
	case x.cfg.Config.Cluster == nil:
		return
	}
	c := &finding{Cluster: x.cfg.Config.Cluster}
	t, err := c.TLSConfig()
	if err != nil {
		x.name = "cluster"
		x.err(err, "make another join file with headgate cluster node")
		return
	}
	t.Time = x.cfg.Now
	c.tls, c.domain = t, strings.TrimPrefix(t.ServerName, anyStore)
	x.check("ports", func() { x.ports(ctx, c) })
	c.list()
	knockAll(ctx, c.doors, c.tls)
	x.check("store nodes", func() { x.peers(c) })
	x.check("cluster certificates", func() { x.proofs(c) })
	c.listen(ctx)
	if len(c.Datacenters) > 0 {
		x.check("data centers", func() { x.datacenters(ctx, c) })
	}
	x.check("quorum", func() { x.quorum(c) })
	x.check("copies", func() { x.keptWhere(c) })
	x.check("nodes", func() { x.nodes(c) })
	x.check("clocks", func() { x.clocks(c) })
}

// anyStore is the prefix of the names of all store nodes in certificates (package join).
const anyStore = "store"

// ports checks whether this node has the ports it needs: free while it is stopped, in use by itself
// while it runs.
func (x *examiner) ports(ctx context.Context, c *finding) {
	if !c.IsStore() {
		x.ok("a worker needs none but those of visitors and operators")
		return
	}
	addrs := []string{c.Listen}
	if len(c.Store) > 1 {
		addrs = append(addrs, c.Routes())
	}
	links := len(addrs)
	if c.isDialed() {
		addrs = append(addrs, c.Leaf())
	}
	for i, addr := range addrs {
		if !x.running {
			err := bind(ctx, addr)
			if !errors.Is(err, syscall.EADDRINUSE) {
				x.free(addr, err)
				continue
			}
		}
		c.here = append(c.here, &door{node: c.Node, addr: dialable(addr), route: i > 0, link: i == links})
	}
	knockAll(ctx, c.here, c.tls)
	for _, d := range c.here {
		x.ownPort(c, d)
	}
}

// bind opens a port and closes it again.
func bind(ctx context.Context, addr string) error {
	ctx, stop := context.WithTimeout(ctx, knockWait) // a name must be resolved
	defer stop()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return l.Close()
}

// free reports the result of opening a port.
func (x *examiner) free(addr string, err error) {
	do := "write an address of this machine as cluster.listen, or the port alone, such as :7422"
	switch {
	case err == nil:
		x.ok("%s is free", addr)
		return
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		x.say(Fault, addr+" cannot be opened: this machine has no such address", do)
		return
	case errors.Is(err, syscall.EACCES):
		do = "take a port above 1023, or give headgate CAP_NET_BIND_SERVICE; run this as its user"
	}
	x.say(Fault, fmt.Sprintf("%s cannot be opened: %v", addr, err), do)
}

// ownPort reports who answers at a port of this node that is in use.
func (x *examiner) ownPort(c *finding, d *door) {
	_, port, _ := net.SplitHostPort(d.addr) // the configuration has been checked
	find := "see who has the port (ss -ltnp 'sport = :" + port + "') and stop it, or give " +
		"cluster.listen another"
	mine := d.leaf() != nil && slices.Contains(d.leaf().DNSNames, c.Node+c.domain)
	if d.link && mine && (d.why == refusesCA || d.why == refusesUs) {
		d.why = "" // as expected: no node of this data center connects there
	}
	switch {
	case d.why == refused && x.running:
		x.say(Fault, d.addr+": headgate runs and does not listen there",
			"it started with another configuration, or without the cluster: restart it")
	case mine && d.why == "" && x.running:
		x.ok("%s answers as %s", d.addr, c.Node)
	case mine && d.why == "":
		x.say(Warning, fmt.Sprintf("%s answers as %s, but no headgate works in the data folder",
			d.addr, c.Node), "name the folder of the one that runs: --data DIR, or --config FILE")
	case d.leaf() != nil:
		x.say(Fault, fmt.Sprintf("%s answers as %s: %s", d.addr, whose(d.leaf(), c.domain),
			orElse(d.why)), "see cluster certificates; if this node's files are new, restart it")
	default:
		x.say(Fault, fmt.Sprintf("%s is taken by another program: %s", d.addr, orElse(d.why)), find)
	}
	if mine && d.why == "" && !d.route {
		c.server = d.server
	}
}

func orElse(why reason) string {
	if why == "" {
		return "it is another node"
	}
	return string(why)
}

// dialable returns the address under which this machine reaches its own listen address.
func dialable(listen string) string {
	host, port, _ := net.SplitHostPort(listen) // the configuration has been checked
	ip, err := netip.ParseAddr(host)
	switch {
	case host == "" || err == nil && ip.IsUnspecified() && ip.Is4():
		host = "127.0.0.1"
	case err == nil && ip.IsUnspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}

// list collects the doors of the store nodes as seen from this node. Workers use no routes. This
// node itself is checked only while it answers here.
func (c *finding) list() {
	for _, name := range c.Store {
		if name == c.Node && c.server == "" {
			continue
		}
		c.doors = append(c.doors, &door{node: name, addr: c.Peers[name]})
		if c.IsStore() && len(c.Store) > 1 {
			c.doors = append(c.doors, &door{node: name, addr: c.RouteTo(name), route: true})
		}
	}
}

// of returns the doors of a store node: the one for workers, and the one for store nodes or nil.
func (c *finding) of(node string) (front, route *door) {
	for _, d := range c.doors {
		switch {
		case d.node == node && d.route:
			route = d
		case d.node == node:
			front = d
		}
	}
	return front, route
}

// peers reports which of the store nodes can be reached from here.
func (x *examiner) peers(c *finding) {
	for _, name := range c.Store {
		front, route := c.of(name)
		switch {
		case front == nil: // this node, which does not run
		case front.why == "" && (route == nil || route.why == ""):
			at := front.addr
			if route != nil {
				_, port, _ := net.SplitHostPort(route.addr) // made by RouteTo
				at += " and :" + port
			}
			x.ok("%s at %s, %s away", name, at, inMS(front.rtt))
		case route != nil && front.why == route.why:
			x.shut(c, front, front.addr+" and the next port")
		default:
			for _, d := range []*door{front, route} {
				if d != nil && d.why != "" {
					x.shut(c, d, d.addr)
				}
			}
		}
	}
	if len(c.doors) == 0 {
		x.ok("there is no other")
	}
	x.onlyHere(c)
	x.twice(c)
}

// shut reports why a door does not open, and what to do. The check quorum decides whether one
// missing node of three matters.
func (x *examiner) shut(c *finding, d *door, at string) {
	what := fmt.Sprintf("%s at %s: %s", d.node, at, d.why)
	if d.node == c.Node {
		x.say(Warning, what+", though it runs here", "the others use this address: see that it leads "+
			"here from them, else mend it under peers in all join files")
		return
	}
	front, _ := c.of(d.node)
	if d.route && front.why == "" && !d.reached() {
		x.say(Fault, what+", while its other port answers", "let store nodes through to the port: they "+
			"need it among each other")
		return
	}
	switch d.why {
	case refused:
		x.say(Warning, what, "start headgate on "+d.node+"; if it runs, see that its cluster.listen "+
			"and the address under peers are one place")
	case silent, noWay:
		x.say(Warning, what, "see that the machine is up and the address is its own (peers), and that "+
			"firewalls let this port and the next one through")
	case noName:
		x.say(Warning, what, "mend the look-up of names, or write the IP address under peers in all "+
			"join files")
	case noTLS, broken:
		x.say(Fault, fmt.Sprintf("%s (%v)", what, d.err), "see which program has the port on "+
			d.node+" (ss -ltnp), and what the log of headgate there says")
	default:
		x.say(Fault, "the TLS handshake with "+what, "see cluster certificates")
	}
}

// onlyHere warns of addresses of other nodes that lead back to this machine.
func (x *examiner) onlyHere(c *finding) {
	var back []string
	for _, name := range c.Store {
		front, _ := c.of(name)
		if name != c.Node && (onLoopback(c.Peers[name]) || front != nil && front.local) {
			back = append(back, name+" at "+c.Peers[name])
		}
	}
	if len(back) > 0 {
		x.say(Warning, strings.Join(back, ", ")+": a loopback address, which leads nowhere but to "+
			"this machine", "for a trial on one machine that is right; else write addresses by which "+
			"machines reach each other under peers in all join files")
	}
}

func onLoopback(addr string) bool {
	host, _, _ := net.SplitHostPort(addr) // the configuration has been checked
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() || strings.EqualFold(host, "localhost")
}

// twice finds addresses that lead to the same process, or to another node than expected.
func (x *examiner) twice(c *finding) {
	seen := map[string]string{}
	for _, d := range c.doors {
		if d.server == "" || d.route {
			continue
		}
		is := whose(d.leaf(), c.domain)
		other, ok := seen[d.server]
		switch {
		case ok:
			x.say(Fault, fmt.Sprintf("the addresses of %s and %s lead to one process", other, d.node),
				"give each store node an address of its own under peers in all join files")
		case is != d.node && !slices.Contains(d.leaf().DNSNames, d.node+c.domain):
			x.say(Fault, fmt.Sprintf("%s answers as %s", d.about(), is),
				"the addresses under peers are mixed up, or "+is+" has another's join file: each node "+
					"needs its own")
		case d.node == c.Node && c.server != d.server:
			x.say(Fault, d.about()+" is another process than the one here", "two processes have the "+
				"join file of "+d.node+", or its address is another machine's: stop one, mend peers")
		}
		seen[d.server] = d.node
	}
}
