package embedded

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority returns the CA of a cluster.
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

// The dialing side accepts only a store node of that data center.
func TestWhoIsTakenForADatacenter(t *testing.T) {
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

// An evil is a store node of lhr that sends whatever it likes.
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

// want reads until a line begins with begin.
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

func TestDatacentersThatCannotWorkAreRefused(t *testing.T) {
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
	// A data center that nobody dials does not listen.
	config := w.at["del"].config("n1")
	s, err := Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if conn, err := net.Dial("tcp", config.Cluster.Leaf); err == nil {
		conn.Close()
		t.Error("del waits for data centers, and none dials it")
	}
}

func TestComplaintsAboutManyLinksAreOneKind(t *testing.T) {
	const failed = "TLS leafnode handshake error: %v"
	for format, want := range map[string]string{
		"127.0.0.1:7424 - lid:10 - " + failed:    " - lid:" + failed,
		"10.0.0.1:50614 - lid:999 - " + failed:   " - lid:" + failed,
		"10.0.0.1:50614 - cid:999 - x":           " - cid:x",
		"10.0.0.1:50614 - rid:9 - x %q":          " - rid:x %q",
		`10.0.0.1:1 - cid:9 - "w - x" - "y" - z`: " - cid:z", // w - x is the name that the client chose
		"x":                                      "x",
	} {
		if got := kindOf(format); got != want {
			t.Errorf("%s: got %q", format, got)
		}
	}
}
