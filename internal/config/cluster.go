package config

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/join"
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
