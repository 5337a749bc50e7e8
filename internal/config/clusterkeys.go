package config

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/internal/schema"
	"github.com/headgate/headgate/internal/smallfile"
	"github.com/headgate/headgate/internal/suggest"
)

// maxPeers bounds the work that a malicious file can cause. Chosen: at most three of the peers are
// store nodes.
const maxPeers = 100

// clusterKeys holds the keys of cluster as they are written in the file.
type clusterKeys struct {
	cluster       Cluster
	join          string
	ca, cert, key string
	home          string
	datacenters   map[string]*datacenterKeys // nil: the key is not in the file
}

func readCluster(c *Config) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		k := &clusterKeys{cluster: Cluster{Datacenter: "dc1"}}
		c.Cluster = &k.cluster
		before := d.Count()
		d.mapping(key, n, clusterFields(k))
		if d.Count() > before || d.Stopped {
			return
		}
		if _, ok := d.spots["cluster.join"]; ok {
			k.byJoin(d)
		} else {
			k.byHand(d, n)
		}
		if d.Count() == before {
			k.cross(d)
		}
		if d.Count() == before {
			k.settle(d, c)
		}
	}
}

func clusterFields(k *clusterKeys) []field {
	c := &k.cluster
	return []field{
		one("join", text(&k.join, cleanJoin)),
		one("datacenter", raw(&c.Datacenter, asJoin(join.CheckName))),
		one("node", raw(&c.Node, asJoin(join.CheckNode))),
		one("listen", raw(&c.Listen, asJoin(join.CheckListen))),
		{name: "peers", read: readPeers(&c.Peers)},
		list("store", &c.Store, asJoin(join.CheckNode)),
		group("tls", clusterTLSFields(k)),
		{name: "datacenters", read: readDatacenters(&k.datacenters)},
		one("home", raw(&k.home, asJoin(join.CheckName))),
	}
}

func clusterTLSFields(k *clusterKeys) []field {
	return []field{
		required("ca", "ca.pem", text(&k.ca, cleanFile)),
		required("cert", "n1.pem", text(&k.cert, cleanFile)),
		required("key", "n1.key", text(&k.key, cleanFile)),
	}
}

// asJoin makes a clean function from a rule of package join.
func asJoin(check func(string) *join.Fault) func(string) (string, *mistake) {
	return func(s string) (string, *mistake) {
		if f := check(s); f != nil {
			return "", &mistake{problem: f.Problem, hint: f.Hint}
		}
		return s, nil
	}
}

// cleanJoin checks the name of a join file.
func cleanJoin(s string) (string, *mistake) {
	s, m := cleanFile(s)
	if m != nil {
		m.hint = "name a file that headgate cluster init has made, such as n1.join"
	}
	return s, m
}

// readPeers reads a group whose keys are names of nodes.
func readPeers(dst *map[string]string) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		if n.Kind != yaml.MappingNode || len(n.Content) > 2*maxPeers {
			m := wrong("write a name and an address for each store node, such as {n1: 10.0.0.1:7422}",
				"is %s, not a group of up to %d nodes", kind(n), maxPeers)
			d.fault(key, n, m)
			return
		}
		var fields []field
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			if k.Kind == yaml.AliasNode {
				k = k.Alias
			}
			fields = append(fields, one(k.Value, readPeer(dst, k.Value)))
		}
		d.mapping(key, n, fields)
	}
}

func readPeer(dst *map[string]string, name string) scalar {
	return scalar{func(n *yaml.Node) *mistake {
		if _, m := asJoin(join.CheckNode)(name); m != nil {
			return m
		}
		if *dst == nil {
			*dst = map[string]string{}
		}
		addr, m := asJoin(join.CheckAddress)(n.Value)
		(*dst)[name] = addr
		return m
	}, schema.Text("", "")}
}

// byJoin reads the join file. Of the keys that a join file sets, only listen may be written beside
// it: a machine's own address may differ from the one by which the others reach it.
func (k *clusterKeys) byJoin(d *decoder) {
	for _, name := range []string{"datacenter", "node", "peers", "store", "tls"} {
		if _, ok := d.spots["cluster."+name]; ok {
			d.clash(wrong("take it out, or write all keys by hand instead of join",
				"stands beside join"), "cluster."+name)
			return
		}
	}
	path := d.beside(k.join)
	f, err := join.Read(path)
	if err != nil {
		d.clash(clusterFile(err), "cluster.join")
		return
	}
	if k.cluster.Listen != "" {
		f.Listen = k.cluster.Listen
	}
	k.cluster = *ofFile(f)
	for _, fault := range f.Faults(time.Now()) {
		d.clash(&mistake{path + ": " + fault.Error(), fault.Hint}, "cluster.join")
	}
}

// byHand requires all keys and reads the files that tls names.
func (k *clusterKeys) byHand(d *decoder, n *yaml.Node) {
	missing := map[string]string{
		"peers": "{n1: 10.0.0.1:7422}", "store": "[n1]",
		"tls": "{ca: ca.pem, cert: n1.pem, key: n1.key}",
	}
	for name := range missing {
		if _, ok := d.spots["cluster."+name]; ok {
			delete(missing, name)
		}
	}
	if len(missing) == 3 {
		d.fault("cluster", n, wrong("add join: n1.join, a file that headgate cluster init makes",
			"says neither how to join nor whom"))
		return
	}
	for _, name := range []string{"peers", "store", "tls"} {
		if example, ok := missing[name]; ok {
			d.fault("cluster."+name, n, wrong("add "+name+": "+example, "is missing"))
		}
	}
	if len(missing) > 0 {
		return
	}
	c := &k.cluster
	before, now := d.Count(), time.Now()
	k.tell(d, c.file().Layout())
	for _, part := range k.parts() {
		b, err := part.read(d.beside(part.path))
		if err != nil {
			d.clash(clusterFile(err), "cluster.tls."+part.name)
		}
		*part.dst = b
	}
	if d.Count() == before {
		k.tell(d, c.file().Faults(now))
	}
}

func (k *clusterKeys) parts() []part {
	t := &k.cluster.TLS
	return []part{
		{"ca", k.ca, &t.CA, smallfile.ReadPublic},
		{"cert", k.cert, &t.Cert, smallfile.ReadPublic},
		{"key", k.key, &t.Key, smallfile.ReadSecret},
	}
}

// tell records the faults that package join found, each at the key that it concerns.
func (k *clusterKeys) tell(d *decoder, faults []*join.Fault) {
	for _, f := range faults {
		key, problem := "cluster."+f.Field, f.Problem
		for _, p := range k.parts() {
			if p.name == f.Field {
				key, problem = "cluster.tls."+f.Field, d.beside(p.path)+": "+problem
			}
		}
		at, ok := d.spots[key]
		if !ok {
			at = d.spots["cluster"]
		}
		d.faultAt(key, at, &mistake{problem, f.Hint})
	}
}

// settle adds warnings for what is allowed but odd.
func (k *clusterKeys) settle(d *decoder, c *Config) {
	cl := &k.cluster
	if !cl.IsStore() && cl.Listen != "" {
		c.warn(d, wrong("take it out, or name this node in store", "has no effect on a worker"),
			"cluster.listen", "cluster.join")
	}
	if at, ok := cl.file().EndsSoon(time.Now()); ok {
		c.warn(d, wrong("make another with headgate cluster node, and restart",
			"the certificate ends at %s", at.UTC().Format(time.RFC3339)), "cluster.tls.cert", "cluster.join")
	}
}

// cross takes over the configuration of the other data centers. This data center may be listed too,
// so that all of them can share one text; it is left out.
func (k *clusterKeys) cross(d *decoder) {
	c := &k.cluster
	if k.datacenters == nil {
		if k.home != "" {
			d.clash(wrong("name the other data centers under datacenters, or take home out",
				"stands without datacenters"), "cluster.home")
		}
		return
	}
	_, known := k.datacenters[k.home]
	known = known || k.home == c.Datacenter
	delete(k.datacenters, c.Datacenter)
	names := slices.Sorted(maps.Keys(k.datacenters))
	switch all := append(names[:len(names):len(names)], c.Datacenter); {
	case k.home == "":
		at := d.spots["cluster.datacenters"]
		d.faultAt("cluster.home", at, wrong("add home: "+c.Datacenter+", where those of no data center are counted",
			"is missing beside datacenters"))
	case !known:
		hint := "write one of " + strings.Join(all, ", ")
		if near := suggest.Nearest(k.home, all); near != "" {
			hint = "did you mean " + near + "?"
		}
		d.clash(wrong(hint, "%s is not a data center of this configuration", quote(k.home)), "cluster.home")
	}
	if len(names) == 0 {
		return
	}
	c.Home, c.Datacenters = k.home, map[string]Datacenter{}
	for _, name := range names {
		c.Datacenters[name] = Datacenter{URLs: k.datacenters[name].urls}
		if c.IsStore() {
			k.crossCA(d, name)
		}
	}
	if c.IsStore() {
		k.crossPorts(d)
	}
}

// crossCA reads the CA of another data center.
func (k *clusterKeys) crossCA(d *decoder, name string) {
	path := d.beside(k.datacenters[name].ca)
	key := under("cluster.datacenters", name) + ".ca"
	b, err := smallfile.ReadPublic(path)
	if err != nil {
		d.clash(clusterFile(err), key)
		return
	}
	if f := join.CheckCA(b, name, time.Now()); f != nil {
		d.clash(&mistake{path + ": " + f.Problem, f.Hint}, key)
		return
	}
	dc := k.cluster.Datacenters[name]
	dc.CA = b
	k.cluster.Datacenters[name] = dc
}

// crossPorts rejects ports that two of this data center's nodes on one machine would both need.
// Each node takes two ports, and three if there are other data centers.
func (k *clusterKeys) crossPorts(d *decoder) {
	c := &k.cluster
	if a, b, ok := join.SharedPort(c.Peers, 3); ok {
		d.clash(wrong("give each node three ports of its own, such as 7422, 7425 and 7428",
			"%s and %s share a port: beside datacenters each needs its own and the next two", a, b),
			"cluster.peers", "cluster.join")
		return
	}
	for _, addr := range []string{c.Listen, c.Peers[c.Node]} {
		if strings.HasSuffix(addr, lastPort) {
			d.clash(wrong("take a port up to 65533",
				"%s has one port after it, and beside datacenters two are needed", addr),
				"cluster.listen", "cluster.peers", "cluster.join")
			return
		}
	}
}

// A part is a file under cluster.tls.
type part struct {
	name, path string
	dst        *[]byte
	read       func(string) ([]byte, error)
}

// clusterFile describes an error of a file that cluster names.
func clusterFile(err error) *mistake {
	m := &mistake{problem: err.Error(), hint: "name a plain file"}
	do := hint.Of(err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		m.hint = "paths in cluster count from the folder of the configuration"
	case do != "":
		m.hint = do
	}
	return m
}

// clusterDrain is how long the nodes of a cluster wait before they close their listeners, so that a
// load balancer that checks each second notices. Chosen.
const clusterDrain = 2 * time.Second

// checkCluster checks that the ports of a store node do not collide with those of visitors and
// operators.
func checkCluster(d *decoder, c *Config) {
	if c.Cluster == nil {
		return
	}
	if _, ok := d.spots["drain_delay"]; !ok {
		c.DrainDelay = clusterDrain
	}
	if !c.Cluster.IsStore() || c.Cluster.Listen == "" {
		return
	}
	ports := "two ports of its own, such as :7422 and the next"
	if c.Cluster.Leaf() != "" {
		ports = "three ports of its own, such as :7422 and the next two"
	}
	for _, mine := range []string{c.Cluster.Listen, c.Cluster.Routes(), c.Cluster.Leaf()} {
		for _, other := range []struct{ key, addr string }{
			{"listen", c.Listen}, {"admin_listen", c.AdminListen}, {"tls.listen", c.TLS.Listen},
		} {
			if d.good("cluster", "cluster.listen", "cluster.join", other.key) && collide(mine, other.addr) {
				d.clash(wrong("give the cluster "+ports,
					"%s and %s %s are the same place", mine, other.key, other.addr),
					"cluster.listen", "cluster.join", "cluster")
			}
		}
	}
}

// Limits on the size of cluster.datacenters. Chosen: every two data centers are linked, and each
// has at most three store nodes, with some spare addresses.
const (
	maxDatacenters = 32
	maxLinks       = 9
)

// datacenterKeys holds the keys of one data center as they are written in the file.
type datacenterKeys struct {
	urls []string
	ca   string
}

// readDatacenters reads a group whose keys are names of data centers.
func readDatacenters(dst *map[string]*datacenterKeys) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		if n.Kind != yaml.MappingNode || len(n.Content) > 2*maxDatacenters || len(n.Content) == 0 {
			d.fault(key, n, wrong(`write each data center, such as lhr: {url: "10.1.0.1:7424", ca: lhr-ca.pem}`,
				"is %s, not a group of 1 to %d data centers", kind(n), maxDatacenters))
			return
		}
		*dst = map[string]*datacenterKeys{}
		var fields []field
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			if k.Kind == yaml.AliasNode {
				k = k.Alias
			}
			fields = append(fields, field{name: k.Value, read: readDatacenter(*dst, k.Value)})
		}
		d.mapping(key, n, fields)
	}
}

func readDatacenter(dst map[string]*datacenterKeys, name string) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		if _, m := asJoin(join.CheckName)(name); m != nil {
			d.fault(key, n, m)
			return
		}
		dst[name] = &datacenterKeys{}
		d.mapping(key, n, datacenterFields(dst[name], name))
	}
}

func datacenterFields(k *datacenterKeys, name string) []field {
	return []field{
		required("url", `"10.1.0.1:7424"`, raw(&k.urls, cleanLinks)),
		required("ca", name+"-ca.pem", text(&k.ca, cleanFile)),
	}
}

// cleanLinks splits a list of addresses at its commas.
func cleanLinks(s string) ([]string, *mistake) {
	var all []string
	for addr := range strings.SplitSeq(s, ",") {
		addr, m := asJoin(join.CheckLink)(strings.TrimSpace(addr))
		switch {
		case m != nil:
			return nil, m
		case slices.Contains(all, addr):
			return nil, wrong("name each store node once", "has %s twice", addr)
		case len(all) == maxLinks:
			return nil, wrong("name its store nodes, one or three", "has more than %d addresses", maxLinks)
		}
		all = append(all, addr)
	}
	return all, nil
}

// lastPort is the highest port of a store node that still leaves one port after its own.
const lastPort = ":65534"
