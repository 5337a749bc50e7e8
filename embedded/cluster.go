package embedded

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/headgate/headgate/internal/join"
)

// A Cluster configures how an engine finds the other engines of its cluster, and how they and
// clients connect to it. Each of them proves with a certificate that it belongs to the cluster;
// there is no other way in.
type Cluster struct {
	Name   string // of the cluster and its JetStream domain: the data center
	Listen string // host:port for clients in other processes
	Routes string // host:port for the other engines

	// Advertise is the host:port at which the other engines connect to Routes. Default: Routes.
	Advertise string

	// Peers are the host:port of the other engines. Without peers this is a cluster of one, which
	// does not open Routes.
	Peers []string

	// TLS is for both ends of all connections. Certificates, RootCAs, ClientCAs and ServerName are
	// required. ServerName is a name that the certificates of all engines have, and no other
	// certificate has.
	TLS *tls.Config

	// Others are the other data centers, and Leaf is the host:port at which their engines connect
	// to this one: see Datacenter.
	Others []Datacenter
	Leaf   string

	// Revoked are serial numbers of certificates that are rejected from the start; see Revoke.
	Revoked []string

	revocations *revocations // set by Open
}

// A Datacenter is another cluster that is linked with this one. The engines of each two data
// centers are linked in an account for that pair. Only messages in this account cross the link; the
// records and the messages within the cluster do not.
type Datacenter struct {
	Name    string   // of its cluster
	Servers []string // host:port of Leaf of its engines
	CA      []byte   // PEM: CA that signs its nodes' certificates
}

// A clusterError is a failed start that is not caused by the folder.
type clusterError struct{ text string }

func (e *clusterError) Error() string { return e.text }

// notOfFolder reports whether another folder would not help.
func notOfFolder(err error) bool {
	_, ok := errors.AsType[*clusterError](err)
	return ok
}

// check rejects a configuration that would let strangers in: without RootCAs or ClientCAs every
// certificate that browsers trust would be accepted.
func (c *Cluster) check() error {
	switch t := c.TLS; {
	case c.Name == "":
		return &clusterError{"the cluster has no name"}
	case t == nil || len(t.Certificates) == 0 && t.GetCertificate == nil || t.RootCAs == nil ||
		t.ClientCAs == nil || t.ServerName == "" || t.InsecureSkipVerify:
		return &clusterError{"the cluster needs certificates at both ends of each connection"}
	}
	return c.checkOthers()
}

// checkOthers rejects a configuration that cannot work or would let strangers in.
func (c *Cluster) checkOthers() error {
	seen := map[string]bool{c.Name: true}
	for i := range c.Others {
		d := &c.Others[i]
		bad := func(format string, args ...any) error {
			return &clusterError{fmt.Sprintf("data center %q: ", d.Name) + fmt.Sprintf(format, args...)}
		}
		if f := join.CheckName(d.Name); f != nil {
			return bad("%s", f.Problem)
		}
		switch {
		case seen[d.Name]:
			return bad("two have this name")
		case len(d.Servers) == 0:
			return bad("it has no address")
		case !x509.NewCertPool().AppendCertsFromPEM(d.CA):
			return bad("it has no CA")
		case !c.dials(d) && c.Leaf == "":
			return bad("it connects to us, and we listen nowhere")
		}
		for _, addr := range d.Servers {
			if _, _, err := hostPort(addr); err != nil {
				return err
			}
		}
		seen[d.Name] = true
	}
	return nil
}

// dials reports which of two data centers connects to the other.
func (c *Cluster) dials(d *Datacenter) bool { return c.Name < d.Name }

// hostPort splits an address. It rejects port 0, which would select the engine's own default.
func hostPort(addr string) (string, int, error) {
	host, port, err := net.SplitHostPort(addr)
	n, numErr := strconv.Atoi(port)
	if err != nil || numErr != nil || n < 1 || n > 65535 {
		return "", 0, &clusterError{fmt.Sprintf("%q is not host:port", addr)}
	}
	return host, n, nil
}
