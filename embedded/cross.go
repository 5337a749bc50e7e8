package embedded

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"time"

	"github.com/headgate/headgate/internal/join"
	"github.com/nats-io/nats-server/v2/server"
)

// Parameters of the links between data centers. Chosen: a silent link is closed after three pings,
// at most 5 s, and then dialed about three times a second. An attempt ends after a second, as those
// of nats-server to routes do: when the network recovers, a pending attempt must not delay the next
// one.
const (
	crossPingEvery = 1200 * time.Millisecond
	crossRedial    = 250 * time.Millisecond // plus a random delay of up to the same length (leafnode.go)
	crossDialWait  = time.Second
	crossTLSWait   = 2.0 // seconds for a handshake: two round trips around the world, and a slow machine
	crossInfoWait  = 2 * time.Second
)

// cross adds the options for the links to other data centers.
func (c *Cluster) cross(o *server.Options, keeper *doorkeeper) error {
	if len(c.Others) == 0 {
		return nil
	}
	records, err := recordsAccount()
	if err != nil {
		return err
	}
	o.Accounts = []*server.Account{records}
	o.Cluster.Name = c.Name         // also if alone: its own name may be the same elsewhere
	o.PingInterval = crossPingEvery // for links and clients: routes have their own
	o.LeafNode = server.LeafNodeOpts{
		ReconnectInterval: crossRedial, DialTimeout: crossDialWait, NoAdvertise: true,
		Compression: server.CompressionOpts{Mode: server.CompressionOff},
	}
	all := x509.NewCertPool()
	for i := range c.Others {
		d := &c.Others[i]
		o.Accounts = append(o.Accounts, server.NewAccount(pairAccount(d.Name)))
		if c.dials(d) {
			o.LeafNode.Remotes = append(o.LeafNode.Remotes, c.remote(d))
			continue
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(d.CA) // verified by checkOthers
		all.AppendCertsFromPEM(d.CA)
		keeper.others[d.Name] = pool
	}
	if len(keeper.others) == 0 {
		return nil // no data center connects to this one
	}
	t := c.linkTLS()
	t.ClientAuth, t.ClientCAs = tls.RequireAndVerifyClientCert, all
	t.VerifyConnection = func(cs tls.ConnectionState) error {
		if _, err := keeper.whose(&cs); err != nil {
			return err
		}
		return keeper.revoked.check(cs.PeerCertificates)
	}
	o.LeafNode.TLSConfig, o.LeafNode.TLSTimeout, o.LeafNode.TLSHandshakeFirst = t, crossTLSWait, true
	o.LeafNode.Host, o.LeafNode.Port, err = hostPort(c.Leaf)
	return err
}

// linkTLS has our certificate, and trusts no CA yet.
func (c *Cluster) linkTLS() *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: c.TLS.Certificates, GetCertificate: c.TLS.GetCertificate,
		GetClientCertificate:   c.TLS.GetClientCertificate,
		SessionTicketsDisabled: true, // links live for days, so tickets save nothing
	}
}

// remote returns the options of a link that we dial. The other end must be a store node of exactly
// that data center.
func (c *Cluster) remote(d *Datacenter) *server.RemoteLeafOpts {
	t := c.linkTLS()
	t.RootCAs, t.ServerName = x509.NewCertPool(), join.StoreName(d.Name)
	t.RootCAs.AppendCertsFromPEM(d.CA) // verified by checkOthers
	t.VerifyConnection = func(cs tls.ConnectionState) error {
		return c.revocations.checkPeer(cs.PeerCertificates)
	}
	r := &server.RemoteLeafOpts{
		LocalAccount: pairAccount(d.Name), TLS: true, TLSConfig: t, TLSTimeout: crossTLSWait,
		TLSHandshakeFirst: true, FirstInfoTimeout: crossInfoWait, IgnoreDiscoveredServers: true,
		DenyImports: staysHere(), DenyExports: staysHere(),
		Compression: server.CompressionOpts{Mode: server.CompressionOff},
	}
	for _, addr := range d.Servers {
		r.URLs = append(r.URLs, &url.URL{Scheme: "nats-leaf", Host: addr})
	}
	return r
}

// recordsAccount returns the account of all clients, with JetStream. An engine without further
// accounts keeps the records in this account, and they must still be there after data centers are
// added. Only a configuration text can enable JetStream before the start, and it must not name this
// account (isReservedAccount). So the text names another account, which then gets this name.
func recordsAccount() (*server.Account, error) {
	var o server.Options
	if err := o.ProcessConfigString("accounts { records { jetstream: enabled } }"); err != nil {
		return nil, &clusterError{"make the account of the records: " + err.Error()}
	}
	o.Accounts[0].Name = server.DEFAULT_GLOBAL_ACCOUNT
	return o.Accounts[0], nil
}
