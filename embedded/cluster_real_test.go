//go:build real

package embedded

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/tests/yardstick"
)

// domain returns the cluster's JetStream, as a process sees it.
func domain(t *testing.T, conn *nats.Conn) jetstream.JetStream {
	t.Helper()
	return domainOf(t, conn, "sjc")
}

func domainOf(t *testing.T, conn *nats.Conn, name string) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.NewWithDomain(conn, name)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// stream makes a stream with this number of replicas.
func stream(t *testing.T, conn *nats.Conn, replicas int) jetstream.JetStream {
	t.Helper()
	js := domain(t, conn)
	eventually(t, fmt.Sprintf("a stream with %d copies", replicas), create(js, replicas))
	return js
}

func write(js jetstream.JetStream, text string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		_, err := js.Publish(ctx, "s.x", []byte(text), jetstream.WithRetryAttempts(1))
		return err
	}
}

// leader returns the store node that leads the stream.
func leader(t *testing.T, js jetstream.JetStream) string {
	t.Helper()
	name := ""
	eventually(t, "a leader", func(ctx context.Context) error {
		s, err := js.Stream(ctx, "s")
		if err != nil {
			return err
		}
		if c := s.CachedInfo().Cluster; c != nil && c.Leader != "" {
			name = c.Leader
			return nil
		}
		return errors.New("nobody leads")
	})
	return name
}

func TestThreeEnginesKeepAStreamTogether(t *testing.T) {
	stick := yardstick.Start(t)
	t.Parallel()
	c := newTrio(t, "n1", "n2", "n3")
	begin := time.Now()
	c.start("n1", "n2", "n3")
	js := stream(t, c.worker("n1"), 3)
	eventually(t, "the first write", write(js, "one"))
	t.Logf("from nothing to the first write: %v", time.Since(begin).Round(time.Millisecond))

	// Each engine's own process writes to it too, without a port.
	own, err := jetstream.New(c.run["n2"].Conn()) // of its own domain
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a write from inside", write(own, "two"))

	// Whichever node stops, the others continue; a node that comes back catches up.
	leads := leader(t, js)
	follows := "n1"
	if leads == follows {
		follows = "n2"
	}
	for i, name := range []string{leads, follows} {
		c.stop(name)
		took := eventually(t, "a write without "+name, write(js, name))
		judge(t, stick, "a write without "+name, took, within)
		if name == follows { // the machine is replaced
			if err := os.RemoveAll(c.config(name).Dir); err != nil {
				t.Fatal(err)
			}
		}
		c.start(name)
		c.caughtUp(js, 3+i)
	}
}

func TestEnginesMayStartOneAfterAnother(t *testing.T) {
	stick := yardstick.Start(t)
	t.Parallel()
	c := newTrio(t, "n1", "n2", "n3")
	js := domain(t, c.worker("n1")) // before any node has started
	for i, name := range []string{"n3", "n1", "n2"} {
		if i > 0 {
			pause(t)
			if err := attempt(t.Context(), create(js, 1)); err == nil {
				t.Errorf("%d of three have begun without the others", i)
			}
		}
		c.start(name)
	}
	begin := time.Now()
	eventually(t, "a stream", create(js, 3))
	eventually(t, "the first write", write(js, "one"))
	judge(t, stick, "the beginning when the last of three came", time.Since(begin), within)

	// From now on two of three nodes are enough.
	for name := range c.peers {
		c.stop(name)
	}
	c.start("n2")
	pause(t)
	c.start("n3")
	judge(t, stick, "a write of two", eventually(t, "a write of two", write(js, "two")), within)
	pause(t)
	c.start("n1")
	c.caughtUp(js, 2)
}

// pause is the time between starts of machines by hand.
func pause(t *testing.T) {
	apart := 2 * time.Second
	if testing.Short() {
		apart /= 10
	}
	select {
	case <-time.After(apart):
	case <-t.Context().Done():
	}
}

func TestStrangersAreNotLetIn(t *testing.T) {
	t.Parallel()
	c := newTrio(t, "n1", "n2", "n3")
	c.start("n1", "n2")
	if err := c.worker("worker", c.peers["n1"]).FlushTimeout(5 * time.Second); err != nil {
		t.Fatalf("a worker: %v", err)
	}
	other := newTrio(t, "n1", "n2", "n3")
	without := c.tls("worker")
	without.Certificates = nil
	old := c.tls("worker")
	old.MinVersion, old.MaxVersion = 0, tls.VersionTLS12
	for name, config := range map[string]*tls.Config{
		"no certificate": without, "a worker of another CA": other.tls("worker"),
		"a store node of another CA": other.tls("n1"), "old TLS": old,
	} {
		config.RootCAs = c.tls("worker").RootCAs // the server is accepted for what it is
		for _, addr := range []string{c.peers["n1"], c.routes["n1"]} {
			if said, err := speak(addr, config); err == nil || said != "" {
				t.Errorf("%s at %s: got %q %v", name, addr, said, err)
			}
		}
	}
	if said, err := speak(c.peers["n1"], nil); said != "" {
		t.Errorf("without TLS a stranger reads %q %v", said, err)
	}

	// A client's certificate does not admit an engine.
	if said, err := speak(c.routes["n1"], c.tls("worker")); err == nil || said != "" {
		t.Errorf("a worker at the routes: got %q %v", said, err)
	}
	if said, err := speak(c.routes["n1"], c.tls("n2")); err != nil || !strings.HasPrefix(said, "INFO ") {
		t.Errorf("a store node at the routes: got %q %v", said, err)
	}
}

// A worker that takes over the addresses of a store node which is down gains nothing.
func TestAWorkerCannotPoseAsAStoreNode(t *testing.T) {
	t.Parallel()
	c := newTrio(t, "n1", "n2", "n3")
	c.start("n1", "n2")
	if _, err := join.Node(c.dir, "w7", time.Now()); err != nil {
		t.Fatal(err)
	}
	posing := c.config("n3")
	posing.Log, posing.Cluster.TLS = nil, c.tls("w7")
	s, err := Open(t.Context(), posing)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	conn := c.worker("worker", c.peers["n3"])
	if err := conn.FlushTimeout(time.Second); err == nil || conn.IsConnected() {
		t.Errorf("a client takes a worker for a store node: %v", err)
	}
	const name = "not store.sjc.headgate"
	if err := conn.LastError(); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("a client refused a worker because of %v", err)
	}
	// Each of the two has tried to connect to the other.
	eventually(t, "refused", func(context.Context) error {
		if strings.Count(c.log.String(), name) < 2 {
			return errors.New("not by both yet")
		}
		return nil
	})
	mine, own := s.engine.Load().NumRoutes(), c.run["n1"].engine.Load().NumRoutes()
	if mine != 0 || own != 1 {
		t.Errorf("the worker has %d routes, n1 has %d, want 0 and 1", mine, own)
	}
}

func TestOneEngineServesWorkersToo(t *testing.T) {
	c := newTrio(t, "n1")
	c.start("n1")
	js := stream(t, c.worker("n1"), 1)
	eventually(t, "a write", write(js, "one"))
	if n := c.run["n1"].engine.Load().Addr(); n.String() != c.peers["n1"] {
		t.Errorf("it listens at %s", n)
	}
	if conn, err := net.Dial("tcp", c.routes["n1"]); err == nil {
		conn.Close()
		t.Error("a cluster of one waits for others")
	}
}

func TestAPortThatIsTakenIsNoDamage(t *testing.T) {
	t.Parallel()
	c := newTrio(t, "n1", "n2", "n3")
	for _, addr := range []string{c.peers["n1"], c.routes["n1"]} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), c.config("n1"))
		if err == nil {
			s.Close()
			t.Error("it started")
		} else if !strings.Contains(err.Error(), "address already in use") {
			t.Errorf("got %v", err)
		}
		l.Close()
	}
	if aside, _ := filepath.Glob(filepath.Join(c.dir, "*.damaged-*")); len(aside) > 0 {
		t.Errorf("put aside: %v", aside)
	}
	c.start("n1") // the port is free now
}

func TestAnEngineComesBackAtItsPorts(t *testing.T) {
	t.Parallel()
	c := newTrio(t, "n1", "n2", "n3")
	c.start("n1", "n2", "n3")
	js := stream(t, c.worker("n1"), 3)
	eventually(t, "a write", write(js, "one"))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.run["n1"].Run(ctx) }()
	before := c.run["n1"].engine.Load()
	c.run["n1"].Heal(errors.New("the disk is full"))
	eventually(t, "started anew", func(context.Context) error {
		c.run["n1"].mu.Lock()
		defer c.run["n1"].mu.Unlock()
		if e := c.run["n1"].engine.Load(); e == nil || e == before || e.NumRoutes() != 2 {
			return errors.New("it is the same, or alone")
		}
		return nil
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	eventually(t, "a write", write(js, "two"))
}

func TestConnectWaitsForNobody(t *testing.T) {
	stick := yardstick.Start(t)
	c := newTrio(t, "n1")
	log := &book{}
	r := Remote{Name: "w-0000beef", Servers: []string{c.peers["n1"]}, TLS: c.tls("worker"),
		Log: slog.New(slog.NewTextHandler(log, nil))}
	begin := time.Now()
	conn, err := Connect(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	judge(t, stick, "a connection to nobody", time.Since(begin), 100*time.Millisecond)
	if err := conn.Publish("x", nil); err == nil {
		t.Error("what cannot be sent is kept")
	}
	c.start("n1")
	eventually(t, "connected", func(context.Context) error {
		if !conn.IsConnected() {
			return errors.New("not yet")
		}
		return nil
	})
	c.stop("n1")
	c.start("n1")
	eventually(t, "connected again", func(context.Context) error { return conn.FlushTimeout(time.Second) })
	conn.Close()
	for conn.Status() != nats.CLOSED {
		<-time.After(time.Millisecond)
	}
	for _, want := range []string{"connected to store node", "node=n1", "connection to store node lost"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, log.String())
		}
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Connect(ended, r); !errors.Is(err, context.Canceled) {
		t.Errorf("ended: got %v", err)
	}
	for name, bad := range map[string]Remote{
		"no TLS": {Servers: r.Servers}, "no address": {TLS: r.TLS},
		"bad address": {Servers: []string{"n1"}, TLS: r.TLS},
	} {
		if _, err := Connect(t.Context(), bad); err == nil {
			t.Errorf("%s: connected", name)
		}
	}
}

// judge compares a duration with the time that the engines wait by design plus what this machine
// needs for an election: some twenty steps in sequence, each with a write.
func judge(t *testing.T, stick *yardstick.Stick, what string, took, design time.Duration) {
	t.Helper()
	stick.Judge(t, what, took, yardstick.Bound{Design: design, Delays: 20, Syncs: 20})
}
