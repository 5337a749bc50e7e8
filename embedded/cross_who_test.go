package embedded

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/headgate/headgate/internal/join"
)

// Only store nodes of another data centre of the configuration come in, at the port
// for links alone.
func TestWhoMayLink(t *testing.T) {
	t.Parallel()
	w := newWorld(t, []string{"n1"}, "lhr", "sjc")
	stranger := newWorld(t, []string{"n1"}, "del", "lhr")
	w.at["sjc"].start("n1")
	leaf, clients := w.leaf["sjc"]["n1"], w.at["sjc"].peers["n1"]
	roots := w.at["sjc"].tls("n1").RootCAs // whoever it is takes us for what we are
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
	// It is no client here, and no store node.
	if said, err := speak(clients, as(w.at["lhr"], "n1")); err == nil || said != "" {
		t.Errorf("a store node of lhr at the port for clients: got %q %v", said, err)
	}
}

// forged is a configuration with a certificate for a store node of a data centre, by
// the CA of a cluster, or by itself.
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

// authority is the CA of a cluster.
func (c *trio) authority() (*x509.Certificate, *ecdsa.PrivateKey) {
	c.t.Helper()
	var parts [2]*pem.Block
	for i, name := range []string{"ca.pem", "ca.key"} {
		b, err := os.ReadFile(filepath.Join(c.dir, name))
		if err != nil {
			c.t.Fatal(err)
		}
		parts[i], _ = pem.Decode(b)
	}
	cert, err := x509.ParseCertificate(parts[0].Bytes)
	if err != nil {
		c.t.Fatal(err)
	}
	key, err := x509.ParsePKCS8PrivateKey(parts[1].Bytes)
	if err != nil {
		c.t.Fatal(err)
	}
	return cert, key.(*ecdsa.PrivateKey)
}

// Each CA is believed about its own data centre alone, also one that has no limits of
// its own: the doorkeeper does not go by the limits in it.
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
	pools["fra"] = pools["lhr"] // one CA for two
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

// Who dials takes nobody but a store node of that data centre for it.
func TestWhoIsTakenForADataCentre(t *testing.T) {
	t.Parallel()
	w := newWorld(t, []string{"n1"}, "del", "lhr", "sjc")
	dials := w.at["lhr"].config("n1").Cluster
	var sjc Datacenter
	for _, d := range dials.Others {
		if d.Name == "sjc" {
			sjc = d
		}
	}
	for name, tt := range map[string]struct {
		by   *trio
		node string
		good bool
	}{
		"a store node of sjc": {w.at["sjc"], "n1", true}, "a worker of sjc": {w.at["sjc"], "worker", false},
		"a store node of del": {w.at["del"], "n1", false}, "a store node of lhr": {w.at["lhr"], "n1", false},
	} {
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: tt.by.tls(tt.node).Certificates})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if c, err := l.Accept(); err == nil {
				_ = c.(*tls.Conn).Handshake()
				c.Close()
			}
		}()
		c, err := tls.Dial("tcp", l.Addr().String(), dials.remote(&sjc).TLSConfig)
		if err == nil {
			c.Close()
		}
		if (err == nil) != tt.good {
			t.Errorf("%s: got %v", name, err)
		}
		l.Close()
		<-done
	}
}

// A store node of another data centre that does not keep to the rules gets no further:
// not by the name that it gives, and not to the engine's own subjects.
func TestALinkKeepsToItsAccount(t *testing.T) {
	t.Parallel()
	w := newWorld(t, []string{"n1"}, "del", "lhr", "sjc")
	w.at["sjc"].start("n1")
	sjc := w.at["sjc"].run["n1"]
	inRecords, ofDel := listen(t, sjc.Conn(), "x"), listen(t, sjc.Cross("del"), "x")
	ofLhr := listen(t, sjc.Cross("lhr"), "x")
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

// An evil is a store node of lhr that says whatever it likes.
type evil struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func (w *world) evil(hello string) *evil {
	w.t.Helper()
	d := w.datacenter("sjc")
	lhr := w.at["lhr"].config("n1").Cluster
	conn, err := tls.Dial("tcp", w.leaf["sjc"]["n1"], lhr.remote(&d).TLSConfig)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
		w.t.Fatal(err)
	}
	e := &evil{w.t, conn, bufio.NewReader(conn)}
	e.want("INFO ")
	e.say(hello)
	return e
}

func (e *evil) say(text string) {
	e.t.Helper()
	if _, err := e.conn.Write([]byte(text)); err != nil {
		e.t.Fatal(err)
	}
}

// want reads until a line begins as wanted.
func (e *evil) want(begin string) {
	e.t.Helper()
	var all strings.Builder
	for {
		line, err := e.in.ReadString('\n')
		if err != nil {
			e.t.Errorf("no %q came: %v, but\n%s", begin, err, &all)
			return
		}
		if strings.HasPrefix(line, begin) {
			return
		}
		if strings.HasPrefix(line, "PING") {
			e.say("PONG\r\n")
		}
		fmt.Fprintf(&all, "%.200s", line)
	}
}

func TestDataCentresThatCannotWorkAreRefused(t *testing.T) {
	w := newWorld(t, []string{"n1"}, "del", "lhr", "sjc")
	for name, change := range map[string]func(*Cluster){
		"our name":           func(c *Cluster) { c.Others[0].Name = "sjc" },
		"a name twice":       func(c *Cluster) { c.Others[0].Name = "lhr" },
		"no name":            func(c *Cluster) { c.Others[0].Name = "" },
		"a bad name":         func(c *Cluster) { c.Others[0].Name = "a.b" },
		"no address":         func(c *Cluster) { c.Others[0].Servers = nil },
		"a bad address":      func(c *Cluster) { c.Others[0].Servers = []string{"10.0.0.1"} },
		"no CA":              func(c *Cluster) { c.Others[0].CA = nil },
		"a CA that is none":  func(c *Cluster) { c.Others[0].CA = []byte("x") },
		"no port for links":  func(c *Cluster) { c.Leaf = "" },
		"a bad one":          func(c *Cluster) { c.Leaf = ":0" },
		"one that is routes": func(c *Cluster) { c.Leaf = c.Listen },
	} {
		config := w.at["sjc"].config("n1")
		change(config.Cluster)
		if s, err := Open(t.Context(), config); err == nil {
			s.Close()
			t.Errorf("%s: it started", name)
		}
	}
	if aside, _ := filepath.Glob(filepath.Join(w.at["sjc"].dir, "*.damaged-*")); len(aside) > 0 {
		t.Errorf("put aside: %v", aside)
	}
	// Who is dialled by nobody listens nowhere.
	config := w.at["del"].config("n1")
	s, err := Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if conn, err := net.Dial("tcp", config.Cluster.Leaf); err == nil {
		conn.Close()
		t.Error("del waits for data centres, and none dials it")
	}
}

func TestComplaintsAboutManyLinksAreOneKind(t *testing.T) {
	const failed = "TLS leafnode handshake error: %v"
	for format, want := range map[string]string{
		"127.0.0.1:7424 - lid:10 - " + failed:  " - lid:" + failed,
		"10.0.0.1:50614 - lid:999 - " + failed: " - lid:" + failed,
		"10.0.0.1:50614 - cid:999 - x":         "10.0.0.1:50614 - cid:999 - x",
		"x":                                    "x",
	} {
		if got := kindOf(format); got != want {
			t.Errorf("%s: got %q", format, got)
		}
	}
}
