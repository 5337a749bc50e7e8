// Package embedded runs the engine, a NATS server with JetStream, inside this process.
//
// # Guarantees
//
// The engine syncs everything to disk before it acknowledges it. An engine that can no longer
// write, because the disk was full or failed, is restarted until it can, and connections reconnect
// by themselves. If the engine cannot read its folder, it starts with an empty one; the old folder
// is kept beside it under another name.
//
// # Concurrency
//
// A Server may be used by many goroutines at once. Run owns the only goroutine that restarts the
// engine. The engine's own goroutines end with Close.
//
// # Cost
//
// 10 MB of program, 3 ms at the start, and one fsync for each write.
//
// # Alone or in a cluster
//
// Without a [Cluster] the engine opens no port: clients connect inside the process. With a Cluster,
// this engine and those of the other store nodes keep the data together. What is acknowledged is on
// the disks of a majority of them, and the cluster works while a majority is running; only the
// first start needs all of them. Every port requires a certificate of the cluster's CA before it
// sends anything.
//
// With other data centers ([Cluster].Others), [Server.Link] returns a connection to each of them,
// separate from the data and messages of the cluster. [Connect] is for processes without an engine,
// and [ConnectExternal] for those that use an existing NATS as their engine.
//
// # Limitations
//
// The package does not know what is stored, and it repairs nothing: see package internal/store.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/headgate/headgate/internal/seldom"
)

// Parameters of the engine. Chosen: a start takes 3 ms, or some seconds with a large folder and a
// slow disk. An attempt every two seconds is soon enough for a disk that has space again, and rare
// enough for one that has not.
const (
	startWait   = 30 * time.Second
	healEvery   = 2 * time.Second
	connectWait = 100 * time.Millisecond
	maxStore    = 1 << 40 // not a fraction of what is free now: the disk is the limit
	maxMemory   = 64 << 20
)

// Config configures an engine. The zero value of each field except Dir is a default.
type Config struct {
	Dir     string       // created if it does not exist
	Log     *slog.Logger // default: discard
	Name    string       // of the server, unique in a cluster; default "headgate"
	Cluster *Cluster     // default: no cluster, and no open port

	// Dial, if not nil, opens a connection to an engine that runs elsewhere, for an account: "" is
	// that of the records, others are those of pairs of data centers. If Dial is nil, Open starts
	// an engine in Dir.
	Dial func(account string) (net.Conn, error)
}

// A Server is a running engine.
type Server struct {
	cfg   Config
	conn  *nats.Conn
	cross map[string]*nats.Conn // by name of the other data center
	again chan struct{}         // restart the engine; has room for one

	mu     sync.Mutex // held while the engine starts or stops
	engine atomic.Pointer[server.Server]
	closed bool

	said    seldom.Lines
	revoked revocations
}

// ErrClosed is returned by a closed Server.
var ErrClosed = errors.New("the engine is closed")

// Open starts the engine and connects to it. The caller must call Run, which restarts an engine
// that cannot write, and Close to stop the engine. In a cluster Open does not wait for the others:
// writes are not acknowledged until a majority of the engines is running, or all of them the first
// time.
func Open(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Name == "" {
		cfg.Name = "headgate"
	}
	s := &Server{cfg: cfg, again: make(chan struct{}, 1)}
	if cfg.Cluster != nil {
		c := *cfg.Cluster
		c.revocations, s.cfg.Cluster = &s.revoked, &c
		s.Revoke(c.Revoked)
	}
	if cfg.Dial != nil {
		return s, s.connect()
	}
	engine, err := s.start(ctx)
	if err != nil {
		if ctx.Err() != nil || !readable(cfg.Dir) || notOfFolder(err) {
			return nil, err
		}
		if engine, err = s.startAnew(ctx, err); err != nil {
			return nil, err
		}
	}
	s.engine.Store(engine)
	if err := s.connect(); err != nil {
		s.Close()
		return nil, fmt.Errorf("connect to the engine: %w", err)
	}
	return s, nil
}

// connect makes the connections that outlive the engine.
func (s *Server) connect() error {
	options := []nats.Option{nats.InProcessServer(s), nats.Name(s.cfg.Name),
		nats.MaxReconnects(-1), nats.ReconnectWait(connectWait), nats.ReconnectJitter(0, 0),
		nats.ReconnectBufSize(-1), // fail at once if disconnected
		nats.IgnoreAuthErrorAbort(),
	}
	var err error
	if s.conn, err = nats.Connect("", options...); err != nil || s.cfg.Cluster == nil {
		return err
	}
	s.cross = map[string]*nats.Conn{}
	for _, d := range s.cfg.Cluster.Others {
		as := append(slices.Clone(options), nats.UserInfo(pairAccount(d.Name), ""))
		if s.cfg.Dial != nil {
			as = append(as, nats.InProcessServer(dialer{s.cfg.Dial, pairAccount(d.Name)}))
		}
		if s.cross[d.Name], err = nats.Connect("", as...); err != nil {
			return err
		}
	}
	return nil
}

// readable reports whether the folder can be listed and written. If not, the file system is the
// cause, and a new folder beside it would not help.
func readable(dir string) bool {
	f, err := os.CreateTemp(dir, ".try-")
	if err != nil {
		return false
	}
	f.Close()
	return os.Remove(f.Name()) == nil
}

// startAnew renames a folder that the engine cannot read, and starts with an empty one. No data is
// deleted.
func (s *Server) startAnew(ctx context.Context, why error) (*server.Server, error) {
	aside := fmt.Sprintf("%s.damaged-%s", s.cfg.Dir, time.Now().UTC().Format("20060102T150405.000"))
	s.cfg.Log.Error("engine cannot read its folder: it is put aside, an empty one takes its place",
		"aside", aside, "error", why)
	if err := os.Rename(s.cfg.Dir, aside); err != nil {
		return nil, errors.Join(why, err)
	}
	return s.start(ctx)
}

// ReplaceFolder stops the engine, renames its folder and starts with an empty one. It is for a
// folder that the engine accepts but can read only in part.
func (s *Server) ReplaceFolder(ctx context.Context, why error) error {
	if err := s.replace(ctx, why); err != nil {
		return err
	}
	return s.waitConnected(ctx)
}

func (s *Server) replace(ctx context.Context, why error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.stopLocked()
	engine, err := s.startAnew(ctx, why)
	if err == nil {
		s.engine.Store(engine)
	}
	return err
}

// waitConnected waits until the connection has reconnected to the new engine.
func (s *Server) waitConnected(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !s.conn.IsConnected() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// start starts an engine and waits until it is ready. SyncAlways makes an acknowledgment mean that
// the record is on the disk.
func (s *Server) start(ctx context.Context) (*server.Server, error) {
	if err := os.MkdirAll(s.cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("engine folder: %w", err)
	}
	options := &server.Options{
		ServerName: s.cfg.Name, DontListen: true, NoSigs: true,
		JetStream: true, StoreDir: s.cfg.Dir, SyncAlways: true,
		JetStreamMaxStore: maxStore, JetStreamMaxMemory: maxMemory,
		DisableJetStreamBanner: true, NoSystemAccount: false,
	}
	if err := s.cfg.Cluster.apply(options); err != nil {
		return nil, err
	}
	engine, err := server.NewServer(options)
	switch {
	case err != nil && s.cfg.Cluster != nil:
		return nil, &clusterError{"make the engine: " + err.Error()}
	case err != nil:
		return nil, fmt.Errorf("make the engine: %w", err)
	}
	if d, ok := options.CustomClientAuthentication.(*doorkeeper); ok {
		d.engine = engine
		s.revoked.begin()
	}
	log := &logger{log: s.cfg.Log, sick: s.Heal, said: &s.said}
	engine.SetLoggerV2(log, false, false, false)
	started := make(chan struct{})
	go func() { engine.Start(); close(started) }() // Start returns when everything is running
	select {
	case <-started:
	case <-time.After(startWait):
		engine.Shutdown()
		return nil, fmt.Errorf("the engine did not start within %v", startWait)
	case <-ctx.Done():
		engine.Shutdown()
		return nil, ctx.Err()
	}
	if !engine.Running() || !engine.JetStreamEnabled() {
		engine.Shutdown()
		engine.WaitForShutdown()
		return nil, fmt.Errorf("the engine did not start: %s", log.last())
	}
	if s.cfg.Cluster != nil && !engine.ReadyForConnections(listenWait) {
		engine.Shutdown()
		engine.WaitForShutdown()
		return nil, &clusterError{"the engine cannot listen: " + log.last()}
	}
	return engine, nil
}

// Conn returns the connection to the engine. It outlives the engine's restarts.
func (s *Server) Conn() *nats.Conn { return s.conn }

// Link returns a connection in the account for the pair of this data center and another. What is
// published on it arrives at the Link of all engines of both data centers, and nowhere else. The
// connection outlives the engine's restarts, as Conn does. An engine without a link cannot reach
// the other data center, even if its neighbors can; a request then fails at once, or at its
// timeout. Link returns nil for a data center that is not in Others.
func (s *Server) Link(datacenter string) *nats.Conn { return s.cross[datacenter] }

// InProcessConn implements nats.InProcessConnProvider: it returns a connection to the engine that
// runs now. It does not wait for an engine to start, because the caller holds the connection's
// lock, and everybody who uses the connection would wait too.
func (s *Server) InProcessConn() (net.Conn, error) {
	if s.cfg.Dial != nil {
		return s.cfg.Dial("")
	}
	engine := s.engine.Load()
	if engine == nil {
		return nil, ErrClosed
	}
	return engine.InProcessConn()
}

// Heal reports that the engine could not write. It does not block: Run restarts the engine, because
// an engine that has failed to write rejects all further writes.
func (s *Server) Heal(err error) {
	if s.startAgain() && s.said.Due("heal") {
		s.cfg.Log.Error("engine cannot write: it is started anew until it can", "error", err)
	}
}

// startAgain makes Run restart the engine. It returns false if a restart is already pending.
func (s *Server) startAgain() bool {
	select {
	case s.again <- struct{}{}:
		return true
	default:
		return false
	}
}

// Revoke replaces the list of rejected certificates, which are serial numbers in lower-case
// hexadecimal, and closes all connections that were opened with one of them. nats-server can close
// those of clients and links one by one. For a route, and for a link that this engine opened, Run
// restarts the engine. Call Revoke with the same list from time to time: it deletes ended
// connections from its tables, and closes those that were opened while the engine was starting.
func (s *Server) Revoke(serials []string) {
	refused := make(map[string]bool, len(serials))
	for _, serial := range serials {
		refused[serial] = true
	}
	engine := s.engine.Load()
	s.revoked.mu.Lock()
	s.revoked.serials = refused
	if engine == nil { // one that is starting may have connections already: keep them for the next call
		s.revoked.mu.Unlock()
		return
	}
	var end []uint64
	for id, serial := range s.revoked.open {
		if refused[serial] {
			end = append(end, id)
		}
		if refused[serial] || engine.GetClient(id) == nil && engine.GetLeafNode(id) == nil {
			delete(s.revoked.open, id)
		}
	}
	var peers []string
	for serial := range s.revoked.peers {
		if refused[serial] {
			peers = append(peers, serial)
			delete(s.revoked.peers, serial)
		}
	}
	s.revoked.mu.Unlock()
	for _, id := range end {
		_ = engine.DisconnectClientByID(id) // it may already be closed
	}
	if len(peers) > 0 && s.startAgain() {
		s.cfg.Log.Warn("a store node was revoked: the engine is started anew, which ends its connections",
			"serials", peers)
	}
}

// Run restarts an engine that cannot write, every two seconds until it can, and an engine that has
// a connection with a revoked store node. It returns when ctx ends.
func (s *Server) Run(ctx context.Context) error {
	look := time.NewTicker(healEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
			if s.writes() {
				continue
			}
		case <-s.again:
		}
		s.restart(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(healEvery):
		}
	}
}

// writes reports whether JetStream is on: the engine switches it off when the disk is full or
// read-only.
func (s *Server) writes() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	engine := s.engine.Load()
	return s.closed || s.cfg.Dial != nil || engine != nil && engine.JetStreamEnabled()
}

func (s *Server) restart(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.cfg.Dial != nil {
		return
	}
	s.stopLocked()
	engine, err := s.start(ctx)
	if err != nil {
		if s.said.Due("start") {
			s.cfg.Log.Error("engine does not start", "error", err)
		}
		return // Run checks again
	}
	s.engine.Store(engine)
}

func (s *Server) stopLocked() {
	if engine := s.engine.Swap(nil); engine != nil {
		engine.Shutdown()
		engine.WaitForShutdown()
	}
}

// Close closes the connections and the engine and waits until they have ended.
func (s *Server) Close() {
	if s.conn != nil {
		s.conn.Close()
	}
	for _, conn := range s.cross {
		if conn != nil {
			conn.Close()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.stopLocked()
}
