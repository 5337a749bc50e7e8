package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// isDialed reports whether another data center connects to this store node.
func (c *finding) isDialed() bool {
	if c.Leaf() == "" {
		return false
	}
	for name := range c.Datacenters {
		if !c.Dials(name) {
			return true
		}
	}
	return false
}

// datacenters reports which of the other data centers can be reached from here. It cannot check the
// ones that connect to this one.
func (x *examiner) datacenters(ctx context.Context, c *finding) {
	if !c.IsStore() {
		x.ok("a worker connects to none")
		return
	}
	var theirs []string
	for _, name := range slices.Sorted(maps.Keys(c.Datacenters)) {
		if c.Dials(name) {
			x.datacenter(ctx, c, name)
		} else {
			theirs = append(theirs, name)
		}
	}
	if len(theirs) > 0 {
		x.say(Skipped, strings.Join(theirs, ", ")+" would connect to us at "+c.Leaf(),
			"headgate doctor there says whether it can")
	}
}

// datacenter tries all addresses of another data center.
func (x *examiner) datacenter(ctx context.Context, c *finding, name string) {
	t, err := c.LinkTLS(name)
	if err != nil {
		x.err(err, "make another join file with headgate cluster node")
		return
	}
	t.Time = x.cfg.Now
	var doors []*door
	for _, addr := range c.Datacenters[name].URLs {
		doors = append(doors, &door{node: name, addr: addr, link: true})
	}
	knockAll(ctx, doors, t)
	bad := Warning // one address answers: the link works
	if !slices.ContainsFunc(doors, func(d *door) bool { return d.why == "" }) {
		bad = Fault
	}
	for _, d := range doors {
		if d.why == "" {
			x.ok("%s, %s away", d.about(), inMS(d.rtt))
			continue
		}
		x.say(bad, fmt.Sprintf("%s: %s", d.about(), d.why), d.mendLink())
	}
}

// mendLink returns what to do about an address of another data center.
func (d *door) mendLink() string {
	switch d.why {
	case refused:
		return "start headgate there; if it runs, see that it has this data center in its datacenters, and " +
			"that the port is by two above that of its store node"
	case silent, noWay:
		return "see that the machine there is up, and that firewalls let this machine through to the port"
	case noName:
		return "mend the look-up of names, or write the IP address in url"
	case otherCA:
		return "copy the ca.pem of " + d.node + " anew"
	case refusesCA, refusesUs:
		return "copy the ca.pem of this data center to " + d.node + " anew, and see that the port is by two " +
			"above that of its store node"
	case refusesOver, over, early:
		return "make the certificate anew with headgate cluster node, or mend the clock"
	case otherName:
		return "see that url leads to store nodes of " + d.node
	}
	return "see which program has the port there (ss -ltnp)"
}
