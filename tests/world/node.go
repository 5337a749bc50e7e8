package world

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/server"
	"github.com/headgate/headgate/tests/world/broker"
)

// Boot returns the time of the node's clock.
func (n *Node) Boot() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.frozen {
		return n.stood
	}
	return n.world.Clock() + n.offset
}

// Write stores a line of the log.
func (n *Node) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.log.Write(b)
}

// Log returns the log of the node.
func (n *Node) Log() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.log.String()
}

// Runs reports whether the node has a process.
func (n *Node) Runs() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.now != nil
}

// Ended reports whether the process has ended by itself.
func (n *Node) Ended() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.now == nil {
		return true
	}
	select {
	case <-n.now.done:
		return true
	default:
		return false
	}
}

// Start starts a process, and does not wait until it is ready.
func (n *Node) Start() {
	w := n.world
	w.T.Helper()
	n.life++
	host := n.Name
	if n.life > 1 {
		host = fmt.Sprintf("%s#%d", n.Name, n.life)
	}
	cfg := n.configure()
	if n.beside {
		n.stores(func(b *broker.Broker) { b.Start(n.Name) })
	}
	m := server.Machine{
		Boot:   n.Boot,
		Engine: func(account string) (net.Conn, error) { return n.engine(host, account) },
		Listen: func(_, addr string) (net.Listener, error) { return w.Net.Listen(host, addr) },
		Dial: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return w.Net.Dial(ctx, host, addr)
		},
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &process{host: host, stop: stop, done: make(chan struct{})}
	n.mu.Lock()
	n.now = p
	fmt.Fprintf(&n.log, "--- %s begins at %v\n", host, w.Clock())
	n.mu.Unlock()
	log := slog.New(slog.NewTextHandler(n, &slog.HandlerOptions{Level: slog.LevelInfo}))
	w.ending.Go(func() {
		defer close(p.done)
		s, err := server.OpenOn(ctx, m, cfg, log)
		switch {
		case err == nil:
			err = s.Run(ctx)
		case ctx.Err() != nil: // stopped before it had started: the command ends in order
			err = nil
		}
		p.err = err
		log.Info("ended", "host", host, "error", err)
	})
}

// stores calls do for each store cluster in which the node has a server.
func (n *Node) stores(do func(*broker.Broker)) {
	do(n.world.stores[n.Name])
	for pair, b := range n.world.pairs {
		if pair[0] == n.Name || pair[1] == n.Name {
			do(b)
		}
	}
}

// configure writes the configuration of a process and reads it, as the command does.
func (n *Node) configure() *config.Config {
	w := n.world
	w.T.Helper()
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		w.T.Fatal(err)
	}
	file := filepath.Join(w.dir, n.Name+".yaml")
	text := fmt.Sprintf("listen: %s\nadmin_listen: %s\ndata: %s\ndrain_delay: 1s\n", n.Public, n.Admin, n.dir) +
		w.cluster(n) + n.text
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		w.T.Fatal(err)
	}
	var said bytes.Buffer
	cfg, err := config.ParseRun([]string{"--config", file}, &said)
	if err != nil {
		w.T.Fatalf("configuration of %s: %v\n%s\n%s", n.Name, err, said.String(), text)
	}
	return cfg
}

// engine connects a process to the store: to the server on the same node, or to one that it can
// reach.
func (n *Node) engine(host, account string) (net.Conn, error) {
	w := n.world
	b := w.Store(n.Name)
	if account != "" {
		b = w.pair(n.Name, strings.TrimPrefix(account, "dc-"))
	}
	servers := []string{n.Name}
	if !n.beside {
		first := len(w.Nodes()) % len(w.cfg.Servers)
		servers = slices.Concat(w.cfg.Servers[first:], w.cfg.Servers[:first])
	}
	for _, server := range servers {
		at := w.processOf(server)
		if n.beside {
			at = host
		}
		if !b.Up(server) {
			continue
		}
		near, far, err := w.Net.Pipe(host, at)
		if err == nil {
			b.Serve(server, "", far)
			return near, nil
		}
	}
	return nil, fmt.Errorf("%s reaches no server of the store", host)
}

// processOf returns the process that a server of the store runs beside: a node that was started again has
// another one than before. Servers of the operator's own have none, and their name.
func (w *World) processOf(server string) string {
	for _, n := range w.Nodes() {
		n.mu.Lock()
		now := n.now
		n.mu.Unlock()
		if n.Name == server && now != nil {
			return now.host
		}
	}
	return server
}

// Token creates a token for the node's admin address that allows writing.
func (n *Node) Token() string {
	n.world.T.Helper()
	if n.tokens[n.dir] == "" {
		scopes, err := api.ParseScopes("write")
		if err != nil {
			n.world.T.Fatal(err)
		}
		secret, _, err := api.CreateToken(n.dir, api.Token{Name: "test", Scopes: scopes})
		if err != nil {
			n.world.T.Fatal(err)
		}
		n.tokens[n.dir] = secret
	}
	return n.tokens[n.dir]
}

// Ready waits until the node is ready for visitors.
func (n *Node) Ready() {
	w := n.world
	w.T.Helper()
	last := error(nil)
	for end := w.Clock() + 2*time.Minute; w.Clock() < end; w.Rest(50 * time.Millisecond) {
		if _, last = w.Ask(n, "GET", "/readyz", "", ""); last == nil {
			return
		}
	}
	w.T.Fatalf("%s is not ready: %v\n%s", n.Name, last, n.Log())
}

// Crash ends the process immediately. Nothing that it does later has any effect outside. The next
// process finds the files that it had written.
func (n *Node) Crash() {
	w := n.world
	n.mu.Lock()
	p, was := n.now, n.frozen
	n.now, n.frozen = nil, false
	fmt.Fprintf(&n.log, "--- %s crashes at %v\n", n.Name, w.Clock())
	n.mu.Unlock()
	if was {
		n.linkStores()
	}
	if p == nil {
		return
	}
	next := filepath.Join(w.dir, fmt.Sprintf("%s-%d", n.Name, n.life+1))
	if err := copyDir(next, n.dir); err != nil {
		w.T.Error(err)
	}
	n.tokens[next] = n.tokens[n.dir]
	n.dir = next
	w.Net.Kill(p.host)
	if n.beside {
		n.stores(func(b *broker.Broker) { b.Stop(n.Name, false) })
	}
	p.stop()
}

// Stop shuts the process down in order, and waits for its end.
func (n *Node) Stop() {
	n.mu.Lock()
	p := n.now
	n.mu.Unlock()
	if p == nil {
		return
	}
	p.stop()
	<-p.done
	n.mu.Lock()
	n.now = nil
	n.mu.Unlock()
	if p.err != nil {
		n.world.T.Errorf("%s ends with %v", n.Name, p.err)
	}
	if n.beside {
		n.stores(func(b *broker.Broker) { b.Stop(n.Name, true) })
	}
	n.world.Net.Kill(p.host)
}

// Freeze blocks all traffic of the node and stops its clock, until Wake.
func (n *Node) Freeze() {
	stood := n.Boot()
	n.mu.Lock()
	n.frozen, n.stood = true, stood
	n.mu.Unlock()
	n.world.Net.Freeze(n.Name)
	n.linkStores()
}

// linkStores sets the links of its server to their intended state.
func (n *Node) linkStores() {
	for _, other := range n.world.Others(n.Name) {
		n.world.linkStores(n.Name, other)
	}
}

// Wake ends Freeze. The clock then includes the time that has passed.
func (n *Node) Wake() {
	n.mu.Lock()
	was := n.frozen
	n.frozen = false
	n.mu.Unlock()
	if !was {
		return
	}
	n.world.Net.Wake(n.Name)
	n.linkStores()
}

// copyDir copies a folder while a process may write to it. It skips files that disappear meanwhile.
func copyDir(to, from string) error {
	return filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(from, path)
		switch {
		case os.IsNotExist(err):
			return nil
		case err != nil:
			return err
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		case !d.Type().IsRegular():
			return nil
		}
		in, err := os.Open(path)
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		defer in.Close()
		out, err := os.OpenFile(filepath.Join(to, rel), os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, in)
		if end := out.Close(); err == nil {
			err = end
		}
		return err
	})
}

// Close stops all nodes in order and waits for everything that runs.
func (w *World) Close() {
	w.Heal()
	var all sync.WaitGroup
	for _, n := range w.Nodes() {
		n.Wake()
		all.Go(n.Stop)
	}
	all.Wait()
	w.ending.Wait()
	w.client.CloseIdleConnections()
	for _, b := range w.brokers() {
		b.Close()
	}
	if w.T.Failed() {
		w.keepLogs()
	}
}

// keepLogs writes the logs of all nodes.
func (w *World) keepLogs() {
	dir := w.cfg.Logs
	if dir == "" {
		return
	}
	for _, n := range w.Nodes() {
		name := strings.ReplaceAll(w.T.Name(), "/", "-") + "-" + n.Name + ".log"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(n.Log()), 0o600); err != nil {
			w.T.Log(err)
		}
	}
}
