package config

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/internal/smallfile"
	"github.com/headgate/headgate/internal/suggest"
)

// A Datacenter is another cluster with which this one shares limits.
type Datacenter struct {
	// URLs are the addresses, host:port, at which its store nodes accept other data centers.
	URLs []string

	// CA is the PEM of the authority that signs the certificates there. Workers do not read it.
	CA []byte
}

// Dials reports whether this data center connects to the given one. Of two data centers, the one
// whose name sorts first connects (package embedded).
func (c *Cluster) Dials(datacenter string) bool { return c.Datacenter < datacenter }

// LinkTLS returns the TLS configuration of a connection to another data center of c. It accepts
// only certificates of that data center's store nodes.
func (c *Cluster) LinkTLS(datacenter string) (*tls.Config, error) {
	t, err := c.TLSConfig()
	if err != nil {
		return nil, err
	}
	link := &tls.Config{MinVersion: t.MinVersion, Certificates: t.Certificates,
		RootCAs: x509.NewCertPool(), ServerName: join.StoreName(datacenter)}
	link.RootCAs.AppendCertsFromPEM(c.Datacenters[datacenter].CA) // crossCA has checked it
	return link, nil
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
	type place struct {
		node, host string
		port       int
	}
	places := []place{}
	for _, node := range slices.Sorted(maps.Keys(c.Peers)) {
		host, port, _ := net.SplitHostPort(c.Peers[node]) // join.CheckAddress has checked it
		n, _ := strconv.Atoi(port)
		places = append(places, place{node, strings.ToLower(host), n})
	}
	slices.SortStableFunc(places, func(a, b place) int {
		return cmp.Or(strings.Compare(a.host, b.host), cmp.Compare(a.port, b.port))
	})
	for i := 1; i < len(places); i++ {
		a, b := places[i-1], places[i]
		if a.host == b.host && b.port-a.port < 3 {
			d.clash(wrong("give each node three ports of its own, such as 7422, 7425 and 7428",
				"%s and %s share a port: beside datacenters each needs its own and the next two", a.node, b.node),
				"cluster.peers", "cluster.join")
			return
		}
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

// lastPort is the highest port of a store node that still leaves one port after its own.
const lastPort = ":65534"
