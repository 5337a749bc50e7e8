//go:build real

package embedded

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/internal/rights"
)

// forbidden reports whether the server has rejected what a connection sent.
func forbidden(conn *nats.Conn) bool {
	if err := conn.FlushTimeout(5 * time.Second); err != nil {
		return false
	}
	return errors.Is(conn.LastError(), nats.ErrPermissionViolation)
}

// Finding 13 of the review: with a worker's certificate one could delete and update the stream and
// read every record, including the sealing keys.
func TestWorkerCertificateCannotTouchStreams(t *testing.T) {
	t.Parallel()
	c := newTrio(t, "n1")
	c.start("n1")
	own, err := jetstream.New(c.run["n1"].Conn())
	if err != nil {
		t.Fatal(err)
	}
	_, err = own.CreateStream(t.Context(), jetstream.StreamConfig{Name: "HEADGATE",
		Subjects: []string{"headgate.record.>"}, Storage: jetstream.FileStorage})
	if err == nil {
		_, err = own.Publish(t.Context(), "headgate.record.keys", []byte("secret"))
	}
	if err != nil {
		t.Fatal(err)
	}
	for subject, body := range map[string]string{
		"$JS.API.STREAM.DELETE.HEADGATE":          "",
		"$JS.API.STREAM.PURGE.HEADGATE":           "",
		"$JS.API.STREAM.UPDATE.HEADGATE":          `{"name":"HEADGATE","subjects":["stolen"]}`,
		"$JS.API.STREAM.CREATE.COPY":              `{"name":"COPY","sources":[{"name":"HEADGATE"}]}`,
		"$JS.API.STREAM.INFO.HEADGATE":            "",
		"$JS.API.STREAM.NAMES":                    "",
		"$JS.API.STREAM.SNAPSHOT.HEADGATE":        `{"deliver_subject":"headgate.1.tell.live"}`,
		"$JS.API.STREAM.MSG.GET.HEADGATE":         `{"last_by_subj":"headgate.record.keys"}`,
		"$JS.API.STREAM.MSG.DELETE.HEADGATE":      `{"seq":1}`,
		"$JS.API.DIRECT.GET.HEADGATE":             `{"last_by_subj":"headgate.record.keys"}`,
		"$JS.API.CONSUMER.CREATE.HEADGATE":        `{"stream_name":"HEADGATE","config":{}}`,
		"$JS.sjc.API.STREAM.MSG.GET.HEADGATE":     `{"last_by_subj":"headgate.record.keys"}`,
		"headgate.record.keys":                    "mine",
		"headgate.log.orders_jobs":                "mine",
		"headgate.1.ask.limits.copy.n1":           "mine",
		"headgate.1.ask.take":                     "mine",
		"headgate.1.ask.move.%40shop":             "lhr",
		"headgate.1.tell.members":                 `{"name":"n9","hosts":true}`,
		"headgate.1.tell.home":                    `{"site":"lhr","moves":9}`,
		"headgate.1.tell.limits.chart":            "{}",
		"$SYS.REQ.SERVER.PING":                    "",
		"$SYS.REQ.ACCOUNT.$G.CONNZ":               "",
		"headgate.1.tell.try.n1":                  "", // of another node
		"headgate.1.ask.try.n1":                   "",
		"$JS.ACK.HEADGATE.x.1.1.1.1.1":            "",
		"$KV.secrets.x":                           "",
		"$JS.API.SERVER.REMOVE":                   `{"peer":"n1"}`,
		"$JS.API.ACCOUNT.PURGE.$G":                "",
		"$JS.API.STREAM.LEADER.STEPDOWN.HEADGATE": "",
		"$JS.API.META.LEADER.STEPDOWN":            "",
		"headgate.1.ask.global.copy.n1":           "",
		"headgate.1.ask.left":                     "shop",
		"headgate.1.ask.off.%40shop":              "lhr",
	} {
		conn := c.thief("worker", "w-0badcafe")
		if m, err := conn.Request(subject, []byte(body), 100*time.Millisecond); err == nil {
			t.Errorf("%s: answered %q", subject, m.Data)
		}
		if !forbidden(conn) {
			t.Errorf("%s: the server did not refuse it: %v", subject, conn.LastError())
		}
	}
	for _, subject := range []string{">", "headgate.>", "headgate.1.ask.>", "headgate.1.ask.sync.shop",
		"headgate.1.ask.asks.shop", "headgate.1.ask.sealing", "headgate.1.ask.records",
		"headgate.1.ask.analytics.n1",
		"_INBOX.>", "_INBOX.w.>", "_INBOX.*.*", rights.Inbox("that of another one") + ".>", "$JS.>", "$SYS.>",
		"headgate.record.>"} {
		conn := c.thief("worker", "w-0badcafe")
		if _, err := conn.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		if !forbidden(conn) {
			t.Errorf("a worker may hear %s: %v", subject, conn.LastError())
		}
	}
	s, err := own.Stream(t.Context(), "HEADGATE")
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.GetLastMsgForSubject(t.Context(), "headgate.record.keys")
	if err != nil || string(m.Data) != "secret" || s.CachedInfo().State.Msgs != 1 {
		t.Errorf("the stream has %v, its record %v %v", s.CachedInfo().State, m, err)
	}
}

// A worker must not use the node that answers it to write a record: the answer goes to the subject
// that the request names.
func TestWorkerCannotWriteByTheReplyOfAnother(t *testing.T) {
	t.Parallel()
	c := newTrio(t, "n1")
	c.start("n1")
	conn := c.thief("worker", "w-0badcafe")
	own := c.run["n1"].Conn()
	stolen, err := own.SubscribeSync("headgate.record.>")
	if err != nil {
		t.Fatal(err)
	}
	// It receives its own request. A server that lets clients answer whatever they receive would
	// let it publish to the reply subject.
	sub, err := conn.SubscribeSync("headgate.1.ask.session.shop")
	if err == nil {
		err = conn.PublishRequest("headgate.1.ask.session.shop", "headgate.record.keys", nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	m, err := sub.NextMsg(5 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Respond([]byte("mine")); err != nil {
		t.Fatal(err)
	}
	if !forbidden(conn) {
		t.Errorf("not refused: %v", conn.LastError())
	}
	if err := own.Flush(); err != nil {
		t.Fatal(err)
	}
	if n, _, err := stolen.Pending(); err != nil || n > 0 {
		t.Errorf("%d records written, %v", n, err)
	}
}

// The name that a worker connects with is a name of its certificate, or a random one. It decides
// which requests the worker receives.
func TestWorkerCannotTakeTheNameOfAnother(t *testing.T) {
	t.Parallel()
	c := newTrio(t, "n1")
	if _, err := join.Node(c.dir, "w7", time.Now()); err != nil {
		t.Fatal(err)
	}
	c.start("n1")
	for _, x := range []struct {
		file, name, secret string
		ok                 bool
	}{
		{"worker", "w-0badcafe", "sixteen-characters", true},
		{"w7", "w7", "sixteen-characters", true},
		{"w7", "w-0badcafe", "sixteen-characters", true},
		{"n1", "n1", "", true},
		{"worker", "n1", "sixteen-characters", false},
		{"worker", "w7", "sixteen-characters", false},
		{"worker", "w-0BADCAFE", "sixteen-characters", false},
		{"worker", "w-0badcaf*", "sixteen-characters", false},
		{"worker", ">", "sixteen-characters", false},
		{"worker", "", "sixteen-characters", false},
		{"worker", "w-0badcafe", "short", false},
		{"w7", "n1", "sixteen-characters", false},
		{"w7", "store", "sixteen-characters", false},
	} {
		conn, err := nats.Connect("tls://"+c.peers["n1"], nats.Secure(c.tls(x.file)), nats.TLSHandshakeFirst(),
			nats.Name(x.name), nats.UserInfo(x.secret, ""))
		if err == nil {
			conn.Close()
		}
		if (err == nil) != x.ok {
			t.Errorf("certificate %s as %q: %v", x.file, x.name, err)
		}
	}
}

// A revoked certificate is rejected at every port, and its open connections are closed.
func TestRevokedCertificateIsRefusedAtEveryPort(t *testing.T) {
	t.Parallel()
	c := newTrio(t, "n1", "n2", "n3")
	if _, err := join.Node(c.dir, "w7", time.Now()); err != nil {
		t.Fatal(err)
	}
	c.start("n1", "n2")
	gone := make(chan struct{})
	conn := c.thief("w7", "w7", nats.ClosedHandler(func(*nats.Conn) { close(gone) }))
	stays := c.thief("worker", "w-0badcafe")
	n1 := c.run["n1"]
	n1.Revoke([]string{c.serial("w7"), c.serial("n3")})
	select {
	case <-gone:
	case <-time.After(within):
		t.Fatal("the connection of a revoked certificate stays")
	}
	if conn.IsConnected() {
		t.Error("it is connected")
	}
	for addr, file := range map[string]string{c.peers["n1"]: "w7", c.routes["n1"]: "n3"} {
		if said, err := speak(addr, c.tls(file)); err == nil || said != "" {
			t.Errorf("the revoked %s at %s: got %q %v", file, addr, said, err)
		}
	}
	if err := stays.FlushTimeout(5 * time.Second); err != nil {
		t.Errorf("another worker is cut off: %v", err)
	}
	if said, err := speak(c.routes["n1"], c.tls("n2")); err != nil || !strings.HasPrefix(said, "INFO ") {
		t.Errorf("another store node: got %q %v", said, err)
	}
	n1.Heal(errors.New("the disk is full")) // the list outlives the engine
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	before := n1.engine.Load()
	go func() { done <- n1.Run(ctx) }()
	eventually(t, "started anew", func(context.Context) error {
		if e := n1.engine.Load(); e == nil || e == before {
			return errors.New("not yet")
		}
		return nil
	})
	if said, err := speak(c.peers["n1"], c.tls("w7")); err == nil || said != "" {
		t.Errorf("after a restart of the engine: got %q %v", said, err)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	n1.Revoke(nil)
	if said, err := speak(c.peers["n1"], c.tls("w7")); err != nil || !strings.HasPrefix(said, "INFO ") {
		t.Errorf("taken back: got %q %v", said, err)
	}
}

// A revoked store node of another data center is rejected at the port for links, and its link is
// closed.
func TestRevokedLinkEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, []string{"n1"}, "lhr", "sjc")
	sjc, lhr := w.at["sjc"], w.at["lhr"]
	sjc.start("n1")
	lhr.start("n1")
	n1 := sjc.run["n1"]
	links := func(want int) func(context.Context) error {
		return func(context.Context) error {
			if n := n1.engine.Load().NumLeafNodes(); n != want {
				return errors.New("not yet")
			}
			return nil
		}
	}
	eventually(t, "linked", links(1))
	n1.Revoke([]string{lhr.serial("n1")})
	eventually(t, "cut", links(0))
	config := lhr.tls("n1")
	config.RootCAs, config.ServerName = sjc.tls("n1").RootCAs, "store.sjc.headgate"
	config.VerifyConnection = nil
	if said, err := speak(w.leaf["sjc"]["n1"], config); err == nil || said != "" {
		t.Errorf("it is let in again: %q %v", said, err)
	}
	n1.Revoke(nil)
	eventually(t, "linked again", links(1))
}

// The routes of a revoked store node are closed at the other nodes, whichever side opened them. So
// is a route that is silent after the handshake. The other nodes stay connected with each other.
func TestRevokedStoreNodeLosesItsRoutes(t *testing.T) {
	t.Parallel()
	c := newTrio(t, "n1", "n2", "n3")
	c.start("n1", "n2", "n3")
	js := stream(t, c.run["n1"].Conn(), 3)
	waits, err := tls.Dial("tcp", c.routes["n1"], c.tls("n3"))
	if err != nil {
		t.Fatal(err)
	}
	defer waits.Close()
	ended := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, waits); ended <- err }()
	others := func(name string) map[string]bool {
		routed := map[string]bool{}
		if engine := c.run[name].engine.Load(); engine != nil {
			z, err := engine.Routez(nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range z.Routes {
				routed[r.RemoteName] = true
			}
		}
		return routed
	}
	for _, name := range []string{"n1", "n2"} {
		eventually(t, name+" has routes to both", func(context.Context) error {
			if len(others(name)) != 2 {
				return errors.New("not yet")
			}
			return nil
		})
	}
	// An engine does not count the vote of a copy that has nothing for one that has something: it may
	// have lost its disk. Each must have the log before one of three goes for good.
	eventually(t, "a write of all three", write(js, "zero"))
	c.caughtUp(js, 1)
	c.revoke(c.serial("n3"), "n1", "n2")
	for name, want := range map[string]string{"n1": "n2", "n2": "n1"} {
		eventually(t, name+" has a route to "+want+" alone", func(context.Context) error {
			if got := others(name); len(got) != 1 || !got[want] {
				return fmt.Errorf("it has %v", got)
			}
			return nil
		})
	}
	select {
	case <-ended:
	case <-time.After(within):
		t.Error("a route that waits after its handshake stays")
	}
	eventually(t, "a write of the other two", write(js, "one"))
}

// revoke revokes a certificate at nodes that can restart their engines.
func (c *trio) revoke(serial string, nodes ...string) {
	for _, name := range nodes {
		ctx, stop := context.WithCancel(c.t.Context())
		done := make(chan error, 1)
		go func() { done <- c.run[name].Run(ctx) }()
		c.t.Cleanup(func() {
			stop()
			if err := <-done; err != nil {
				c.t.Error(err)
			}
		})
		c.run[name].Revoke([]string{serial})
	}
}

// A link to a revoked store node of another data center is also closed at the end that opened it.
func TestLinkToRevokedStoreNodeEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, []string{"n1"}, "lhr", "sjc")
	sjc, lhr := w.at["sjc"], w.at["lhr"]
	sjc.start("n1")
	lhr.start("n1") // it dials
	n1 := lhr.run["n1"]
	links := func(want int) func(context.Context) error {
		return func(context.Context) error {
			if engine := n1.engine.Load(); engine == nil || engine.NumLeafNodes() != want {
				return errors.New("not yet")
			}
			return nil
		}
	}
	eventually(t, "linked", links(1))
	lhr.revoke(sjc.serial("n1"), "n1")
	eventually(t, "cut", links(0))
	eventually(t, "refused", func(context.Context) error {
		if !strings.Contains(lhr.log.String(), "other end was revoked") {
			return errors.New("not yet")
		}
		return nil
	})
	if err := links(0)(t.Context()); err != nil {
		t.Error("it is linked again")
	}
	n1.Revoke(nil)
	eventually(t, "linked again", links(1))
}

// A certificate may be revoked while the engine restarts. The connections that it has opened until
// then to the new engine are closed by the next call.
func TestRevokedWhileTheEngineStarts(t *testing.T) {
	t.Parallel()
	c := newTrio(t, "n1", "n2", "n3")
	c.start("n1", "n2")
	n1 := c.run["n1"]
	thief := c.thief("worker", "w-0badcafe")
	eventually(t, "n1 has shaken hands with both", func(context.Context) error {
		n1.revoked.mu.Lock()
		defer n1.revoked.mu.Unlock()
		if len(n1.revoked.open) == 0 || !n1.revoked.peers[c.serial("n2")] {
			return errors.New("not yet")
		}
		return nil
	})
	list := []string{c.serial("worker"), c.serial("n2")}
	engine := n1.engine.Swap(nil) // as while it starts
	n1.Revoke(list)
	n1.engine.Store(engine)
	n1.Revoke(list)
	select {
	case <-n1.again:
	default:
		t.Error("the route of the revoked store node stays")
	}
	eventually(t, "the worker is cut off", func(context.Context) error {
		if !thief.IsClosed() {
			return errors.New("not yet")
		}
		return nil
	})
}

// Noted connections are deleted when they have ended.
func TestEndedConnectionsAreForgotten(t *testing.T) {
	t.Parallel()
	c := newTrio(t, "n1")
	c.start("n1")
	for range 5 {
		c.thief("worker", "w-0badcafe").Close()
	}
	eventually(t, "forgotten", func(context.Context) error {
		n1 := c.run["n1"]
		n1.Revoke(nil)
		n1.revoked.mu.Lock()
		defer n1.revoked.mu.Unlock()
		if len(n1.revoked.open) > 0 {
			return errors.New("not yet")
		}
		return nil
	})
}

// A stranger who connects and sends nothing, or nonsense, receives nothing at any port and is
// disconnected.
func TestStrangersAreCutOffAtEveryPort(t *testing.T) {
	t.Parallel()
	w := newWorld(t, []string{"n1"}, "lhr", "sjc")
	sjc := newTrio(t, "n1", "n2", "n3")
	w.at["sjc"].start("n1")
	sjc.start("n1")
	ports := map[string]string{"clients": sjc.peers["n1"], "routes": sjc.routes["n1"],
		"links": w.leaf["sjc"]["n1"]}
	for port, addr := range ports {
		for name, says := range map[string]string{"nothing": "", "NATS": "CONNECT {}\r\nPING\r\n",
			"http": "GET / HTTP/1.1\r\n\r\n", "a long line": strings.Repeat("x", 1<<16),
			"a record without end": "\x16\x03\x01\xff\xff\x01\x00"} {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Write([]byte(says)); err != nil {
				t.Logf("%s, %s: %v", port, name, err) // already disconnected
			}
			b, err := io.ReadAll(conn)
			if told := string(b); strings.Contains(told, "INFO") || len(b) > 64 { // a TLS alert is short
				t.Errorf("%s: who says %s reads %q %v", port, name, b, err)
			}
		}
	}
}

// A stranger who shakes hands without a certificate a thousand times fills neither the log nor the
// memory: the engine says it for each connection.
func TestStrangersFillNoLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, []string{"n1"}, "lhr", "sjc")
	sjc := newTrio(t, "n1", "n2", "n3")
	w.at["sjc"].start("n1")
	sjc.start("n1")
	for port, x := range map[string]struct {
		addr string
		of   *trio
	}{"clients": {sjc.peers["n1"], sjc}, "routes": {sjc.routes["n1"], sjc}, "links": {w.leaf["sjc"]["n1"], w.at["sjc"]}} {
		for range 200 {
			conn, err := tls.Dial("tcp", x.addr, &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				t.Fatal(port, err)
			}
			if _, err := io.ReadAll(conn); err == nil {
				t.Errorf("%s: a stranger was let in", port)
			}
			conn.Close()
		}
		if log := x.of.log.String(); strings.Count(log, "handshake error") > 2 {
			t.Errorf("%s: %d lines about 200 strangers", port, strings.Count(log, "handshake error"))
		}
	}
}

// A store node of another data center is in the account of the pair, whatever account, user and
// subjects it requests.
func TestLinkStaysInTheAccountOfItsPair(t *testing.T) {
	t.Parallel()
	w := newWorld(t, []string{"n1"}, "lhr", "sjc")
	sjc, lhr := w.at["sjc"], w.at["lhr"]
	sjc.start("n1")
	config := lhr.tls("n1")
	config.RootCAs, config.ServerName = sjc.tls("n1").RootCAs, "store.sjc.headgate"
	config.VerifyConnection = nil
	own, err := sjc.run["n1"].Conn().SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	linked := 0
	for _, user := range []string{"", "$G", "$SYS", "dc-sjc"} {
		conn, err := tls.Dial("tcp", w.leaf["sjc"]["n1"], config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		r := bufio.NewReader(conn)
		if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, "INFO ") {
			t.Fatalf("%q %v", line, err)
		}
		_, err = fmt.Fprintf(conn, "CONNECT {\"user\":%q,\"name\":\"x\",\"cluster\":\"lhr\","+
			"\"remote_account\":%q,\"headers\":true}\r\nLS+ >\r\nLMSG headgate.record.keys 4\r\nmine\r\n"+
			"LMSG headgate.1.ask.sync.shop 4\r\nmine\r\nPING\r\n", user, user)
		if err != nil {
			t.Fatal(err)
		}
		heard := ""
		for !strings.HasPrefix(heard, "PONG") {
			line, err := r.ReadString('\n')
			if err != nil {
				break // rejected
			}
			if heard = line; strings.HasPrefix(line, "LMSG headgate.record") {
				t.Errorf("as %q it reads %q", user, line)
			}
		}
		z, err := sjc.run["n1"].engine.Load().Leafz(nil)
		if err != nil {
			t.Fatal(err)
		}
		linked += len(z.Leafs)
		for _, l := range z.Leafs {
			if l.Account != "dc-lhr" {
				t.Errorf("as %q it is in the account %q", user, l.Account)
			}
		}
	}
	if linked == 0 {
		t.Error("none of them was linked")
	}
	if err := sjc.run["n1"].Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := own.NextMsg(0)
		if err != nil {
			break // that is all
		}
		if string(m.Data) == "mine" {
			t.Errorf("a link has said %s in the account of the records", m.Subject)
		}
	}
}

// thief returns a NATS client that presents the certificate of a join file and sends what it likes.
func (c *trio) thief(file, node string, more ...nats.Option) *nats.Conn {
	c.t.Helper()
	const secret = "sixteen-characters"
	options := append([]nats.Option{nats.Secure(c.tls(file)), nats.TLSHandshakeFirst(), nats.Name(node),
		nats.UserInfo(secret, ""), nats.CustomInboxPrefix(rights.Inbox(secret)), nats.NoReconnect(),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})}, more...)
	conn, err := nats.Connect("tls://"+c.peers["n1"], options...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(conn.Close)
	return conn
}

// serial returns the serial number of the certificate in a join file.
func (c *trio) serial(file string) string {
	c.t.Helper()
	return join.SerialText(c.tls(file).Certificates[0].Leaf.SerialNumber)
}
