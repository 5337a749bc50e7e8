package embedded

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"slices"
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
