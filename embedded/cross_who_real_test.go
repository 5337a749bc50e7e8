//go:build real

package embedded

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/headgate/headgate/internal/join"
)

// Only store nodes of another configured data center are accepted, and only at the port for links.
func TestWhoMayLink(t *testing.T) {
	t.Parallel()
	w := newWorld(t, []string{"n1"}, "lhr", "sjc")
	stranger := newWorld(t, []string{"n1"}, "del", "lhr")
	w.at["sjc"].start("n1")
	leaf, clients := w.leaf["sjc"]["n1"], w.at["sjc"].peers["n1"]
	roots := w.at["sjc"].tls("n1").RootCAs // the other end accepts us for what we are
	as := func(c *trio, name string) *tls.Config {
		config := c.tls(name)
		config.RootCAs, config.ServerName, config.VerifyConnection = roots, "store.sjc.headgate", nil
		return config
	}
	without, old := as(w.at["lhr"], "n1"), as(w.at["lhr"], "n1")
	without.Certificates = nil
	old.MinVersion, old.MaxVersion = 0, tls.VersionTLS12
	for name, config := range map[string]*tls.Config{
		"no certificate": without, "old TLS": old,
		"a worker of lhr":         as(w.at["lhr"], "worker"),
		"a worker of sjc":         as(w.at["sjc"], "worker"),
		"a store node of sjc":     as(w.at["sjc"], "n1"),
		"a store node of del":     as(stranger.at["del"], "n1"),
		"lhr by another CA":       as(stranger.at["lhr"], "n1"),
		"lhr, forged by del":      forged(t, stranger.at["del"], as(stranger.at["del"], "n1"), "lhr"),
		"a store node, self-made": forged(t, nil, as(w.at["lhr"], "n1"), "lhr"),
	} {
		if said, err := speak(leaf, config); err == nil || said != "" {
			t.Errorf("%s: got %q %v", name, said, err)
		}
	}
	if said, err := speak(leaf, nil); said != "" {
		t.Errorf("without TLS a stranger reads %q %v", said, err)
	}
	if said, err := speak(leaf, as(w.at["lhr"], "n1")); err != nil || !strings.HasPrefix(said, "INFO ") {
		t.Errorf("a store node of lhr: got %q %v", said, err)
	}
	// It is neither a client nor a store node here.
	if said, err := speak(clients, as(w.at["lhr"], "n1")); err == nil || said != "" {
		t.Errorf("a store node of lhr at the port for clients: got %q %v", said, err)
	}
}

// forged returns a configuration with a certificate for a store node of a data center, signed by
// the CA of a cluster, or self-signed.
func forged(t *testing.T, by *trio, config *tls.Config, dc string) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "n1"},
		DNSNames:  []string{"n1." + dc + ".headgate", join.StoreName(dc)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	parent, signer := c, key
	if by != nil {
		parent, signer = by.authority()
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	config.Certificates = []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
	return config
}

// Each CA is trusted for its own data center only, also a CA without name constraints: the
// doorkeeper does not rely on them.
func TestNoCASpeaksForAnother(t *testing.T) {
	pools, keys := map[string]*x509.CertPool{}, map[string]*ecdsa.PrivateKey{}
	certs := map[string]*x509.Certificate{}
	for _, name := range []string{"lhr", "del"} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true,
			BasicConstraintsValid: true,
			NotBefore:             time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		if certs[name], err = x509.ParseCertificate(der); err != nil {
			t.Fatal(err)
		}
		keys[name], pools[name] = key, x509.NewCertPool()
		pools[name].AddCert(certs[name])
	}
	pools["fra"] = pools["lhr"] // one CA for two data centers
	keeper := &doorkeeper{others: pools}
	link, err := url.Parse("store.del.headgate")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		by   string
		cert x509.Certificate
		want string
	}{
		{"lhr", x509.Certificate{DNSNames: []string{"n1.lhr.headgate", "store.lhr.headgate"}}, "lhr"},
		{"del", x509.Certificate{DNSNames: []string{"store.del.headgate"}}, "del"},
		{"del", x509.Certificate{DNSNames: []string{"store.lhr.headgate"}}, ""},
		{"lhr", x509.Certificate{DNSNames: []string{"store.lhr.headgate", "store.del.headgate"}}, ""},
		{"lhr", x509.Certificate{DNSNames: []string{"store.fra.headgate"}}, "fra"},
		{"lhr", x509.Certificate{DNSNames: []string{"store.fra.headgate", "store.lhr.headgate"}}, ""},
		{"lhr", x509.Certificate{DNSNames: []string{"n1.lhr.headgate"}}, ""},
		{"lhr", x509.Certificate{DNSNames: []string{"*.lhr.headgate"}}, ""},
		{"lhr", x509.Certificate{Subject: pkix.Name{CommonName: "store.lhr.headgate"}}, ""},
		{"lhr", x509.Certificate{DNSNames: []string{"store.lhr.headgate"}, URIs: []*url.URL{link},
			EmailAddresses: []string{"store.del.headgate"}}, "lhr"},
	} {
		c := tt.cert
		c.SerialNumber = big.NewInt(2)
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		der, err := x509.CreateCertificate(rand.Reader, &c, certs[tt.by], keys[tt.by].Public(), keys[tt.by])
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		got, err := keeper.whose(&tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}})
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%v %v by %s: got %q %v, want %q", c.DNSNames, c.Subject, tt.by, got, err, tt.want)
		}
	}
	for _, cs := range []*tls.ConnectionState{nil, {}} {
		if got, err := keeper.whose(cs); err == nil {
			t.Errorf("no certificate is of %q", got)
		}
	}
}

// A store node of another data center that breaks the rules gains nothing: neither by the name that
// it sends nor on the engine's own subjects.
func TestALinkKeepsToItsAccount(t *testing.T) {
	t.Parallel()
	w := newWorld(t, []string{"n1"}, "del", "lhr", "sjc")
	w.at["sjc"].start("n1")
	sjc := w.at["sjc"].run["n1"]
	inRecords, ofDel := listen(t, sjc.Conn(), "x"), listen(t, sjc.Link("del"), "x")
	ofLhr := listen(t, sjc.Link("lhr"), "x")
	const hello = `CONNECT {"server_id":"EVIL","name":"n9","cluster":"lhr","headers":true,"version":"2.15.0",` +
		`"remote_account":"$G","user":"dc-del","pass":"","domain":"sjc","protocol":1}` + "\r\nPING\r\n"
	c := w.evil(hello)
	c.want("PONG")
	c.say("LMSG x 1\r\n1\r\nPING\r\n")
	c.want("PONG")
	if m, err := ofLhr.NextMsg(within); err != nil || string(m.Data) != "1" {
		t.Errorf("what lhr says is not heard: %v", err)
	}
	for name, sub := range map[string]*nats.Subscription{
		"the records' account": inRecords, "the account of del": ofDel,
	} {
		if m, err := sub.NextMsg(50 * time.Millisecond); err == nil {
			t.Errorf("what lhr says is heard in %s: %q", name, m.Data)
		}
	}
	for _, subject := range []string{"$JS.API.STREAM.NAMES", "$JS.sjc.API.STREAM.NAMES",
		"$SYS.REQ.SERVER.PING", "$SYS.REQ.USER.INFO", "$KV.x.y"} {
		c := w.evil(hello)
		c.want("PONG")
		c.say("LS+ _INBOX.evil\r\nLMSG " + subject + " _INBOX.evil 2\r\n{}\r\n")
		c.want("-ERR 'Permissions Violation for Publish to") // by the name that it is mapped to
	}
}
