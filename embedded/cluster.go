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

// Parameters of a cluster. Chosen, but for the elections of nats-server, which
// take 4 to 9 s once a leader is silent (raft.go, minElectionTimeout).
const (
	listenWait = 2 * time.Second // the ports are opened when Start returns, or just after
	tlsWait    = 5.0             // seconds for a handshake: a machine that starts is slow

	// A connection is given up when it is silent for three times this: later than
	// the longest election, so that a pause alone makes no new connections. With 1.5 s
	// a node that slept for 10 s made the others elect anew, which took 9 s.
	pingEvery = 4 * time.Second
	pingsOut  = 2
)

// What the engine says of a cluster that needs no person, or nobody at all: that
// clients must shake hands first, as Connect does, and that another store node
// does not answer, which is so whenever one starts before it.
const (
	handshakeFirst = "Clients that are not using"
	routeFailed    = "Error trying to connect to route"
)

// A Cluster says how an engine finds the others it belongs with, and how they
// and clients find it. With a certificate each one proves to belong here; there
// is no other way in.
type Cluster struct {
	Name   string // of the cluster and of its JetStream domain: the data centre
	Listen string // host:port for clients of other processes
	Routes string // host:port for the other engines

	// Advertise is the host:port at which the others reach Routes. Default Routes.
	Advertise string

	// Peers are the host:port at which the others wait for this one. None is a
	// cluster of one, which opens no Routes.
	Peers []string

	// TLS is for both ends of all connections. Certificates, RootCAs, ClientCAs and
	// ServerName are needed; ServerName is the name that the certificates of all
	// engines carry, and of nobody else.
	TLS *tls.Config

	// Others are the other data centres, and Leaf is the host:port at which their
	// engines reach this one: see Datacenter.
	Others []Datacenter
	Leaf   string

	// Revoked are serial numbers of certificates that are refused from the start; see Revoke.
	Revoked []string

	revocations *revocations // set by Open
}

// A clusterError is a reason not to start that the folder has no part in.
type clusterError struct{ text string }

func (e *clusterError) Error() string { return e.text }

// notOfFolder tells whether another folder would not help.
func notOfFolder(err error) bool {
	_, ok := errors.AsType[*clusterError](err)
	return ok
}

// apply adds what a cluster needs to the options of an engine; nil adds nothing.
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
	o.TLSHandshakeFirst = true // a stranger is told nothing, not even the version
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
	// Engines without a record elect the first leader when all of them are there, so
	// that two whose folders are gone cannot forget what the third one has. The
	// engine counts its routes to know how many that is (bootstrapRaftNode): it must
	// find itself among them, and does not connect to itself.
	for _, peer := range slices.Concat(c.Peers, []string{own}) {
		if _, _, err := hostPort(peer); err != nil {
			return err
		}
		o.Routes = append(o.Routes, &url.URL{Scheme: "nats-route", Host: peer})
	}
	return nil
}

// check refuses what would let in strangers: without RootCAs or ClientCAs every
// certificate that browsers trust would be good.
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

// clientTLS wants a certificate of the CA.
func (c *Cluster) clientTLS() *tls.Config { return c.requireTLS(c.revocations.check) }

// requireTLS wants a certificate of the CA that check takes.
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

// routeTLS wants the certificate of an engine, at both ends: who may be a client
// is not let in as an engine.
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

// hostPort takes an address apart; port 0 would be the engine's own default.
func hostPort(addr string) (string, int, error) {
	host, port, err := net.SplitHostPort(addr)
	n, numErr := strconv.Atoi(port)
	if err != nil || numErr != nil || n < 1 || n > 65535 {
		return "", 0, &clusterError{fmt.Sprintf("%q is not host:port", addr)}
	}
	return host, n, nil
}
