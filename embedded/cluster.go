package embedded

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Parameters of a cluster. Chosen, except the elections of nats-server, which take 4 to 9 s once a
// leader is silent (raft.go, minElectionTimeout).
const (
	listenWait = 2 * time.Second // the ports are open when Start returns, or shortly after
	tlsWait    = 5.0             // seconds for a handshake: a machine is slow while it starts

	// A connection is closed when it is silent for three times this: longer than the longest
	// election, so that a pause alone causes no reconnect. With 1.5 s, a node that was suspended
	// for 10 s made the others hold a new election, which took 9 s.
	pingEvery = 4 * time.Second
	pingsOut  = 2
)

// Log lines of the engine that need no action: clients must start with a TLS handshake, as Connect
// does, and another store node does not answer, which happens whenever one starts before it.
const (
	handshakeFirst = "Clients that are not using"
	routeFailed    = "Error trying to connect to route"
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

// A clusterError is a failed start that is not caused by the folder.
type clusterError struct{ text string }

func (e *clusterError) Error() string { return e.text }

// notOfFolder reports whether another folder would not help.
func notOfFolder(err error) bool {
	_, ok := errors.AsType[*clusterError](err)
	return ok
}

// apply adds what a cluster needs to the options of an engine. A nil Cluster adds nothing.
func (c *Cluster) apply(o *server.Options) error {
	if c == nil {
		return nil
	}
	if err := c.check(); err != nil {
		return err
	}
	var err error
	if o.Host, o.Port, err = hostPort(c.Listen); err != nil {
		return err
	}
	o.DontListen = false
	keeper := &doorkeeper{store: c.TLS.ServerName, others: map[string]*x509.CertPool{},
		revoked: c.revocations}
	o.CustomClientAuthentication = keeper
	o.TLS, o.TLSVerify, o.TLSConfig, o.TLSTimeout = true, true, c.clientTLS(), tlsWait
	o.TLSHandshakeFirst = true // a stranger learns nothing, not even the version
	o.PingInterval, o.MaxPingsOut = pingEvery, pingsOut
	o.JetStreamDomain = c.Name
	if err := c.cross(o, keeper); err != nil {
		return err
	}
	if len(c.Peers) == 0 {
		return nil
	}
	own := c.Advertise
	if own == "" {
		own = c.Routes
	}
	o.Cluster = server.ClusterOpts{
		Name: c.Name, TLSConfig: c.routeTLS(), TLSTimeout: tlsWait,
		NoAdvertise: true, PoolSize: -1, Advertise: own,
		PingInterval: pingEvery, MaxPingsOut: pingsOut,
	}
	if o.Cluster.Host, o.Cluster.Port, err = hostPort(c.Routes); err != nil {
		return err
	}
	// Engines without a record elect the first leader only when all of them are present, so that
	// two engines that have lost their folders cannot lose what the third one has. The engine
	// counts its routes to know their number (bootstrapRaftNode). It must find itself among them,
	// and does not connect to itself.
	for _, peer := range slices.Concat(c.Peers, []string{own}) {
		if _, _, err := hostPort(peer); err != nil {
			return err
		}
		o.Routes = append(o.Routes, &url.URL{Scheme: "nats-route", Host: peer})
	}
	return nil
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

// clientTLS requires a certificate of the CA.
func (c *Cluster) clientTLS() *tls.Config { return c.requireTLS(c.revocations.check) }

// requireTLS requires a certificate of the CA that check accepts.
func (c *Cluster) requireTLS(check func(chain []*x509.Certificate) error) *tls.Config {
	t := c.TLS.Clone()
	t.ClientAuth = tls.RequireAndVerifyClientCert
	verify := t.VerifyConnection
	t.VerifyConnection = func(cs tls.ConnectionState) error {
		if verify != nil {
			if err := verify(cs); err != nil {
				return err
			}
		}
		return check(cs.PeerCertificates)
	}
	return t
}

// routeTLS requires the certificate of an engine at both ends: a client's certificate does not
// admit an engine.
func (c *Cluster) routeTLS() *tls.Config {
	return c.requireTLS(func(chain []*x509.Certificate) error {
		if err := carries(chain, c.TLS.ServerName); err != nil {
			return err
		}
		return c.revocations.checkPeer(chain)
	})
}

func carries(chain []*x509.Certificate, name string) error {
	if len(chain) == 0 {
		return errors.New("the other end shows no certificate")
	}
	return chain[0].VerifyHostname(name)
}

// hostPort splits an address. It rejects port 0, which would select the engine's own default.
func hostPort(addr string) (string, int, error) {
	host, port, err := net.SplitHostPort(addr)
	n, numErr := strconv.Atoi(port)
	if err != nil || numErr != nil || n < 1 || n > 65535 {
		return "", 0, &clusterError{fmt.Sprintf("%q is not host:port", addr)}
	}
	return host, n, nil
}
