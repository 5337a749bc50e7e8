package embedded

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/yardstick"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/internal/loopback"
	"github.com/headgate/headgate/internal/seldom"
)

// within is the maximum time for an election: nats-server waits up to 9 s for a silent leader, and
// repeats a split vote.
const within = 25 * time.Second

// A trio is the store nodes of a cluster, on this machine.
type trio struct {
	t      *testing.T
	dir    string // join files, and a folder for each engine
	peers  map[string]string
	routes map[string]string
	run    map[string]*Server
	log    *book
	dc     string
	change func(node string, config *Config) // nil: no change
}

// newTrio makes the files of store nodes, which are not started yet.
func newTrio(t *testing.T, names ...string) *trio {
	t.Helper()
	return newTrioOf(t, "sjc", names...)
}

func newTrioOf(t *testing.T, dc string, names ...string) *trio {
	t.Helper()
	c := &trio{t: t, dir: t.TempDir(), peers: map[string]string{}, routes: map[string]string{},
		run: map[string]*Server{}, log: &book{}, dc: dc}
	for _, name := range names {
		c.peers[name], c.routes[name] = loopback.Free(t), loopback.Free(t)
	}
	plan := join.Plan{Datacenter: dc, Store: names, Peers: c.peers}
	if _, err := join.Init(c.dir, plan, time.Now()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, s := range c.run {
			s.Close()
		}
	})
	return c
}

func (c *trio) tls(name string) *tls.Config {
	c.t.Helper()
	f, err := join.Read(filepath.Join(c.dir, name+".join"))
	if err != nil {
		c.t.Fatal(err)
	}
	config, err := f.TLS()
	if err != nil {
		c.t.Fatal(err)
	}
	return config
}

func (c *trio) config(name string) Config {
	var peers []string
	for _, other := range slices.Sorted(maps.Keys(c.routes)) {
		if other != name {
			peers = append(peers, c.routes[other])
		}
	}
	log := slog.New(slog.NewTextHandler(c.log, nil)).With("node", name)
	config := Config{Dir: filepath.Join(c.dir, name), Name: name, Log: log, Cluster: &Cluster{Name: c.dc,
		Listen: c.peers[name], Routes: c.routes[name], Peers: peers, TLS: c.tls(name)}}
	if c.change != nil {
		c.change(name, &config)
	}
	return config
}

func (c *trio) start(names ...string) {
	c.t.Helper()
	for _, name := range names {
		s, err := Open(c.t.Context(), c.config(name))
		if err != nil {
			c.t.Fatalf("%s: %v", name, err)
		}
		c.run[name] = s
	}
}

func (c *trio) stop(name string) {
	c.run[name].Close()
	delete(c.run, name)
}

// worker connects as a process without an engine does.
func (c *trio) worker(name string, servers ...string) *nats.Conn {
	c.t.Helper()
	if len(servers) == 0 {
		servers = slices.Collect(maps.Values(c.peers))
	}
	conn, err := Connect(c.t.Context(), Remote{Name: "w-0000beef", Servers: servers, TLS: c.tls(name)})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(conn.Close)
	return conn
}

// eventually calls try until it succeeds, and returns how long that took.
func eventually(t *testing.T, what string, try func(ctx context.Context) error) time.Duration {
	t.Helper()
	took := yardstick.Await(t, what, func() bool { return attempt(t.Context(), try) == nil })
	t.Logf("%s: %v", what, took.Round(time.Millisecond))
	return took
}

// attempt calls try once, with a short timeout, because the node may just have gone.
func attempt(ctx context.Context, try func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	return try(ctx)
}

func create(js jetstream.JetStream, replicas int) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "s", Subjects: []string{"s.>"},
			Replicas: replicas, Storage: jetstream.FileStorage})
		return err
	}
}

// caughtUp waits until the stream is complete at all three engines.
func (c *trio) caughtUp(js jetstream.JetStream, least int) {
	c.t.Helper()
	eventually(c.t, "all have caught up", func(ctx context.Context) error {
		s, err := js.Stream(ctx, "s")
		if err != nil {
			return err
		}
		info := s.CachedInfo()
		for _, r := range info.Cluster.Replicas {
			if !r.Current {
				return fmt.Errorf("%s is behind", r.Name)
			}
		}
		if len(info.Cluster.Replicas) != 2 || info.State.Msgs < uint64(least) {
			return fmt.Errorf("%d copies more, %d messages", len(info.Cluster.Replicas), info.State.Msgs)
		}
		return nil
	})
}

// speak performs the handshake and returns what the other end sends first.
func speak(addr string, config *tls.Config) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if config != nil {
		conn = tls.Client(conn, config)
	}
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return "", err
	}
	b := make([]byte, 512)
	n, err := conn.Read(b) // includes the handshake
	if errors.Is(err, io.EOF) && n == 0 {
		return "", err
	}
	return string(b[:n]), err
}

func TestAClusterWithoutCertificatesIsRefused(t *testing.T) {
	c := newTrio(t, "n1", "n2", "n3")
	for name, change := range map[string]func(*Cluster){
		"no TLS":         func(cl *Cluster) { cl.TLS = nil },
		"no certificate": func(cl *Cluster) { cl.TLS.Certificates = nil },
		"no roots":       func(cl *Cluster) { cl.TLS.RootCAs = nil },
		"no client CA":   func(cl *Cluster) { cl.TLS.ClientCAs = nil },
		"no server name": func(cl *Cluster) { cl.TLS.ServerName = "" },
		"no check":       func(cl *Cluster) { cl.TLS.InsecureSkipVerify = true },
		"no name":        func(cl *Cluster) { cl.Name = "" },
		"no listen":      func(cl *Cluster) { cl.Listen = "" },
		"any port":       func(cl *Cluster) { cl.Listen = "127.0.0.1:0" },
		"no routes":      func(cl *Cluster) { cl.Routes = "" },
		"bad peer":       func(cl *Cluster) { cl.Peers[1] = "n3" },
	} {
		config := c.config("n1")
		change(config.Cluster)
		if s, err := Open(t.Context(), config); err == nil {
			s.Close()
			t.Errorf("%s: it started", name)
		}
	}
	if aside, _ := filepath.Glob(filepath.Join(c.dir, "*.damaged-*")); len(aside) > 0 {
		t.Errorf("put aside: %v", aside)
	}

	// A configuration that requires too little is tightened all the same.
	config := c.config("n1")
	config.Cluster.TLS.ClientAuth, config.Cluster.TLS.VerifyConnection = tls.NoClientCert, nil
	s, err := Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	without := c.tls("worker")
	without.Certificates = nil
	if said, err := speak(c.peers["n1"], without); err == nil {
		t.Errorf("a stranger reads %q", said)
	}
}

// A book is a log that can be read while it is written.
type book struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func TestReconnectDelayIsBounded(t *testing.T) {
	for rounds := range 100 {
		if d := reconnectDelay(rounds); d < reconnectMin/2 || d > reconnectMax {
			t.Errorf("after %d rounds: %v", rounds, d)
		}
	}
}

func TestWhatTheEngineSays(t *testing.T) {
	var said strings.Builder
	sick := 0
	l := &logger{log: slog.New(slog.NewTextHandler(&said, nil)), said: &seldom.Lines{},
		sick: func(error) { sick++ }}
	l.Errorf("RAFT [x - y] Critical write error: %v", os.ErrPermission)
	l.Errorf("JetStream failed to store a msg on stream '%s'", "s")
	if sick != 2 {
		t.Errorf("healed %d times, want 2", sick)
	}
	l.Errorf("Error trying to connect to route (attempt %v): %v", 1, "refused")
	l.Warnf("Clients that are not using \"TLS Handshake First\" option will fail to connect")
	got := said.String()
	if sick != 2 || !strings.Contains(got, "level=WARN msg=engine says=\"Error trying") ||
		strings.Contains(got, "Handshake First") {
		t.Errorf("healed %d times, and the log is\n%s", sick, got)
	}
}
