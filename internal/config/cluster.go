package config

import (
	"crypto/tls"
	"errors"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/internal/smallfile"
)

// A Cluster configures the cluster that this process belongs to. Its values come from a join file
// or from keys. Its certificate matches them and has not expired.
type Cluster struct {
	// Datacenter names the cluster: 1 to 32 of a-z, 0-9 and -. Default "dc1".
	Datacenter string

	// Node is the name of this process in the cluster. "" is a worker, which chooses a random name
	// when it starts.
	Node string

	// Listen is the address, host:port, at which a store node accepts workers. The other store
	// nodes use the next port. "" on a worker.
	Listen string

	// Peers maps the name of each store node to its address, host:port.
	Peers map[string]string

	// Store lists the names of the one or three nodes that keep the records.
	Store []string

	// TLS holds the certificates and the key with which this node authenticates itself.
	TLS ClusterTLS

	// Datacenters maps the names of the other data centers to their configuration. nil is none.
	Datacenters map[string]Datacenter

	// Home is the data center that hosts the Anywhere counters at first: this one or one of
	// Datacenters. "" without other data centers.
	Home string
}

// ClusterTLS holds certificates and a key as PEM.
type ClusterTLS struct{ CA, Cert, Key []byte }

// String returns a fixed text, so that the private key is never printed.
func (t ClusterTLS) String() string { return "certificates and a key" }

// IsStore reports whether this process is one of the store nodes.
func (c *Cluster) IsStore() bool { return c.Node != "" && slices.Contains(c.Store, c.Node) }

// Servers returns the addresses of the store nodes, to which workers connect.
func (c *Cluster) Servers() []string {
	all := make([]string, len(c.Store))
	for i, name := range c.Store {
		all[i] = c.Peers[name]
	}
	return all
}

// Routes returns the address at which a store node accepts the other store nodes.
func (c *Cluster) Routes() string { return nextPort(c.Listen) }

// Leaf returns the address at which a store node accepts other data centers, the second port after
// Listen. It returns "" without other data centers, and on a worker.
func (c *Cluster) Leaf() string {
	if len(c.Datacenters) == 0 || !c.IsStore() {
		return ""
	}
	return nextPort(nextPort(c.Listen))
}

// RouteTo returns the address at which the other store nodes reach the given one.
func (c *Cluster) RouteTo(node string) string { return nextPort(c.Peers[node]) }

// Others returns the addresses at which a store node reaches the other store nodes.
func (c *Cluster) Others() []string {
	var all []string
	for _, name := range c.Store {
		if name != c.Node {
			all = append(all, c.RouteTo(name))
		}
	}
	return all
}

// nextPort returns addr, which was checked before, with the next port. It returns "" for "".
func nextPort(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	n, numErr := strconv.Atoi(port)
	if err != nil || numErr != nil {
		return ""
	}
	return net.JoinHostPort(host, strconv.Itoa(n+1))
}

// Ends returns when this node's certificate expires, or the zero time if it has no valid one.
func (c *Cluster) Ends() time.Time {
	at, _ := c.file().EndsSoon(time.Now())
	return at
}

// TLSConfig returns the TLS configuration for both ends of all connections of this node; see
// join.File.
func (c *Cluster) TLSConfig() (*tls.Config, error) { return c.file().TLS() }

// file converts c to the form of a join file.
func (c *Cluster) file() *join.File {
	return &join.File{Version: join.Version, Node: c.Node, Listen: c.Listen,
		Plan: join.Plan{Datacenter: c.Datacenter, Peers: c.Peers, Store: c.Store},
		CA:   string(c.TLS.CA), Cert: string(c.TLS.Cert), Key: string(c.TLS.Key)}
}

// ofFile converts a join file to a Cluster.
func ofFile(f *join.File) *Cluster {
	return &Cluster{Datacenter: f.Datacenter, Node: f.Node, Listen: f.Listen,
		Peers: f.Peers, Store: f.Store,
		TLS: ClusterTLS{CA: []byte(f.CA), Cert: []byte(f.Cert), Key: []byte(f.Key)}}
}

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
		before := len(d.faults)
		d.mapping(key, n, clusterFields(k))
		if len(d.faults) > before || d.stopped {
			return
		}
		if _, ok := d.spots["cluster.join"]; ok {
			k.byJoin(d)
		} else {
			k.byHand(d, n)
		}
		if len(d.faults) == before {
			k.cross(d)
		}
		if len(d.faults) == before {
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
	return func(n *yaml.Node) *mistake {
		if _, m := asJoin(join.CheckNode)(name); m != nil {
			return m
		}
		if *dst == nil {
			*dst = map[string]string{}
		}
		addr, m := asJoin(join.CheckAddress)(n.Value)
		(*dst)[name] = addr
		return m
	}
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
	before, now := len(d.faults), time.Now()
	k.tell(d, c.file().Layout())
	for _, part := range k.parts() {
		b, err := part.read(d.beside(part.path))
		if err != nil {
			d.clash(clusterFile(err), "cluster.tls."+part.name)
		}
		*part.dst = b
	}
	if len(d.faults) == before {
		k.tell(d, c.file().Faults(now))
	}
}

// A part is a file under cluster.tls.
type part struct {
	name, path string
	dst        *[]byte
	read       func(string) ([]byte, error)
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

// beside resolves a path relative to the folder of the configuration file.
func (d *decoder) beside(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(d.file), path)
}

// clusterFile describes an error of a file that cluster names.
func clusterFile(err error) *mistake {
	m := &mistake{problem: err.Error(), hint: "name a plain file"}
	e, ok := errors.AsType[*smallfile.Error](err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		m.hint = "paths in cluster count from the folder of the configuration"
	case ok:
		m.hint = e.Hint()
	}
	return m
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
