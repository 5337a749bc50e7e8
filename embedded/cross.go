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

// Parameters of the links between data centres. Chosen: a link that is silent is
// given up after three pings, 5 s at the latest, and dialled again about three
// times a second. An attempt ends after a second, as those of nats-server to
// routes do: when a link heals, the one under way must not hold up the next.
const (
	crossPingEvery = 1200 * time.Millisecond
	crossRedial    = 250 * time.Millisecond // and up to as much again, by chance (leafnode.go)
	crossDialWait  = time.Second
	crossTLSWait   = 2.0 // seconds for a handshake: two round trips around the world, and a slow machine
	crossInfoWait  = 2 * time.Second
)

// What the engine says of a link that needs no person: the other data centre is not
// there, or somebody was refused. Lines about one connection begin with its address.
const (
	linkFailed = "Error trying to connect as leafnode"
	ofOneLink  = " - lid:"
)

// A Datacenter is another cluster that this one is joined with. The engines of each
// two are linked, in an account of that pair's own: what is said in it crosses, and
// nothing else does. Neither the records nor what this cluster says among itself.
type Datacenter struct {
	Name    string   // of its cluster
	Servers []string // host:port of the Leaf of its engines
	CA      []byte   // PEM: who signs the certificates of its nodes
}

// account is the account of the pair that we and d are. Loops of links within an
// account are refused by nats-server, and three data centres would make one: hence
// one for each pair. The other end calls it after us.
func (d *Datacenter) account() string { return "dc-" + d.Name }

// dials tells which of two data centres connects to the other.
func (c *Cluster) dials(d *Datacenter) bool { return c.Name < d.Name }

// checkOthers refuses what could not work, or would let in others.
func (c *Cluster) checkOthers() error {
	seen := map[string]bool{c.Name: true}
	for i := range c.Others {
		d := &c.Others[i]
		bad := func(format string, args ...any) error {
			return &clusterError{fmt.Sprintf("data centre %q: ", d.Name) + fmt.Sprintf(format, args...)}
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

// cross adds what the links to other data centres need.
func (c *Cluster) cross(o *server.Options, keeper *doorkeeper) error {
	if len(c.Others) == 0 {
		return nil
	}
	records, err := recordsAccount()
	if err != nil {
		return err
	}
	o.Accounts = []*server.Account{records}
	o.Cluster.Name = c.Name         // with a single engine too: else its own name, which the other may have
	o.PingInterval = crossPingEvery // of links, and of clients: routes have their own
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
		pool.AppendCertsFromPEM(d.CA) // checkOthers has seen it
		all.AppendCertsFromPEM(d.CA)
		keeper.others[d.Name] = pool
	}
	if len(keeper.others) == 0 {
		return nil // nobody connects to us
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

// linkTLS shows our certificate, and trusts nobody yet.
func (c *Cluster) linkTLS() *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: c.TLS.Certificates, GetCertificate: c.TLS.GetCertificate,
		GetClientCertificate:   c.TLS.GetClientCertificate,
		SessionTicketsDisabled: true, // links live for days: nothing is saved by them
	}
}

// remote is a link that we dial. At the other end must be a store node of exactly
// that data centre.
func (c *Cluster) remote(d *Datacenter) *server.RemoteLeafOpts {
	t := c.linkTLS()
	t.RootCAs, t.ServerName = x509.NewCertPool(), join.StoreName(d.Name)
	t.RootCAs.AppendCertsFromPEM(d.CA) // checkOthers has seen it
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

// staysHere are the subjects by which an engine is asked about itself and its
// records. In the account of a pair they lead nowhere; they do not cross either.
func staysHere() []string { return []string{"$SYS.>", "$JS.>", "$KV.>", "$OBJ.>"} }

// recordsAccount is the account of all clients, with JetStream. An engine without
// accounts of its own keeps the records in this one, and they are to be found there
// when data centres are added. Only the text of a configuration can switch JetStream
// on before the start, and it may not name this account (isReservedAccount): it names
// another, which takes the name.
func recordsAccount() (*server.Account, error) {
	var o server.Options
	if err := o.ProcessConfigString("accounts { records { jetstream: enabled } }"); err != nil {
		return nil, &clusterError{"make the account of the records: " + err.Error()}
	}
	o.Accounts[0].Name = server.DEFAULT_GLOBAL_ACCOUNT
	return o.Accounts[0], nil
}

// whose says of which data centre the store node at the other end is. Each CA is
// believed about its own data centre alone.
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
		return "", fmt.Errorf("the certificate of %q is not of a store node of another data centre",
			leaf.Subject.CommonName)
	}
	return found, nil
}

// Cross is a connection in the account of the pair that this data centre and another
// are: what is said in it is heard at the Cross of all engines of both, and nowhere
// else. It outlives the engine's restarts as Conn does. An engine without a link is
// cut off from the other data centre, even when its neighbours are not; a request then
// fails at once, or when its time is up. It is nil for a data centre that is not among
// Others.
func (s *Server) Link(datacenter string) *nats.Conn { return s.cross[datacenter] }

// isOfLink tells whether the engine speaks of a link between data centres.
func isOfLink(format string) bool {
	return strings.HasPrefix(format, linkFailed) || strings.Contains(format, ofOneLink)
}

// kindOf is what a complaint about one connection has in common with those about
// others: all but the address and the number at its beginning.
func kindOf(format string) string {
	if _, after, ok := strings.Cut(format, ofOneLink); ok {
		_, rest, _ := strings.Cut(after, " - ")
		return ofOneLink + rest
	}
	return format
}
