package embedded

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/headgate/headgate/internal/join"
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

// Log lines of the engine about a link that need no action: the other data center is down, or a
// connection was rejected. Lines about one connection begin with its address.
const (
	linkFailed = "Error trying to connect as leafnode"
	ofOneLink  = " - lid:"
)

// A Datacenter is another cluster that is linked with this one. The engines of each two data
// centers are linked in an account for that pair. Only messages in this account cross the link; the
// records and the messages within the cluster do not.
type Datacenter struct {
	Name    string   // of its cluster
	Servers []string // host:port of Leaf of its engines
	CA      []byte   // PEM: CA that signs its nodes' certificates
}

// account returns the name of the account for the pair of this data center and d. nats-server
// rejects loops of links within an account, and three data centers would form one: so each pair has
// its own account. At the other end the account is named after this data center.
func (d *Datacenter) account() string { return "dc-" + d.Name }

// dials reports which of two data centers connects to the other.
func (c *Cluster) dials(d *Datacenter) bool { return c.Name < d.Name }

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
		o.Accounts = append(o.Accounts, server.NewAccount(d.account()))
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
		LocalAccount: d.account(), TLS: true, TLSConfig: t, TLSTimeout: crossTLSWait,
		TLSHandshakeFirst: true, FirstInfoTimeout: crossInfoWait, IgnoreDiscoveredServers: true,
		DenyImports: staysHere(), DenyExports: staysHere(),
		Compression: server.CompressionOpts{Mode: server.CompressionOff},
	}
	for _, addr := range d.Servers {
		r.URLs = append(r.URLs, &url.URL{Scheme: "nats-leaf", Host: addr})
	}
	return r
}

// staysHere returns the subjects for requests to an engine about itself and its records. In the
// account of a pair they lead nowhere, and they do not cross the link.
func staysHere() []string { return []string{"$SYS.>", "$JS.>", "$KV.>", "$OBJ.>"} }

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

// whose returns the data center of the store node at the other end. Each CA is trusted for its own
// data center only.
func (k *doorkeeper) whose(cs *tls.ConnectionState) (string, error) {
	if cs == nil || len(cs.PeerCertificates) == 0 {
		return "", errors.New("the other end shows no certificate")
	}
	leaf, found := cs.PeerCertificates[0], ""
	for name, pool := range k.others {
		if !slices.Contains(leaf.DNSNames, join.StoreName(name)) {
			continue
		}
		_, err := leaf.Verify(x509.VerifyOptions{Roots: pool,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		switch {
		case err != nil:
			return "", err
		case found != "":
			return "", fmt.Errorf("the certificate is of %s and of %s", found, name)
		}
		found = name
	}
	if found == "" {
		return "", fmt.Errorf("the certificate of %q is not of a store node of another data center",
			leaf.Subject.CommonName)
	}
	return found, nil
}

// Link returns a connection in the account for the pair of this data center and another. What is
// published on it arrives at the Link of all engines of both data centers, and nowhere else. The
// connection outlives the engine's restarts, as Conn does. An engine without a link cannot reach
// the other data center, even if its neighbors can; a request then fails at once, or at its
// timeout. Link returns nil for a data center that is not in Others.
func (s *Server) Link(datacenter string) *nats.Conn { return s.cross[datacenter] }

// isOfLink reports whether a log line of the engine is about a link between data centers.
func isOfLink(format string) bool {
	return strings.HasPrefix(format, linkFailed) || strings.Contains(format, ofOneLink)
}

// kindOf returns the part of a log line that is the same for all connections. The engine puts the
// address, the number and the names of the client before it, and a stranger can open any number of
// connections.
func kindOf(format string) string {
	for _, of := range [...]string{" - cid:", " - rid:", ofOneLink} {
		if strings.Contains(format, of) {
			return of + format[strings.LastIndex(format, " - ")+len(" - "):]
		}
	}
	return format
}
