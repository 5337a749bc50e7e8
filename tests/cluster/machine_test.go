//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate/headgate/internal/loopback"
)

// play runs a scenario: here with real processes.
func play(t *testing.T, scenario func(t *testing.T)) { scenario(t) }

// retry runs a scenario up to three times, for a machine that stands still proves nothing.
func retry(t *testing.T, scenario func(t *testing.T, last bool) (again bool)) {
	const tries = 3
	for try, again := 1, true; again; try++ {
		again = false
		t.Run(fmt.Sprint(try), func(t *testing.T) { again = scenario(t, try == tries) })
	}
}

// jobsOfRun is how many jobs flow in a run of queues unless told otherwise.
const jobsOfRun = 100_000

// An outside is where visitors, origins and targets are: this machine.
type outside struct{}

func newOutside(*testing.T) *outside { return &outside{} }

func (o *outside) listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func (o *outside) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, addr)
}

func (o *outside) serve(_ *testing.T, h http.Handler) *httptest.Server { return httptest.NewServer(h) }

func (st *stage) makeLinks() *links { return newLinks(st.t, st.pids) }

// token makes a token of the node's that may write.
func (n *node) token() string {
	return command(n.t, "token", "create", "--scope", "write", "--config", n.config)
}

// moveAnywhere gives the command that moves Anywhere, at a node, and returns what it says.
func (st *stage) moveAnywhere(n *node, to string, args ...string) string {
	st.t.Helper()
	token := filepath.Join(st.t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(n.token()), 0o600); err != nil {
		st.t.Fatal(err)
	}
	return command(st.t, append([]string{"cluster", "move-anywhere", to, "--admin", "http://" + n.admin,
		"--token-file", token}, args...)...)
}

// stopNodes ends all nodes at once, and fails if one does not end in order.
func (st *stage) stopNodes() {
	for _, n := range st.nodes {
		if n.runs() {
			n.wake()
			n.signal(syscall.SIGTERM)
		}
	}
	for _, n := range append(st.nodes, st.nats...) {
		if n.runs() && slices.Contains(st.nats, n) {
			n.stop() // after those who use it
		} else if n.runs() {
			n.over()
		}
		if st.t.Failed() {
			st.t.Log(n.tail())
		}
		n.output.Close()
	}
}

// inits makes the join files of three store nodes, whose cluster ports are those
// of the links, and of workers.
func (st *stage) inits() {
	st.t.Helper()
	st.joins = filepath.Join(st.t.TempDir(), "cluster")
	var store []string
	for _, name := range storeNodes() {
		port := loopback.Port(st.t, 2)
		own := loopback.Port(st.t, 2)
		st.links.way(name, port, own)
		st.links.way(name, port+1, own+1) // routes
		st.own[name] = own
		store = append(store, name+"="+loopback.Address(port))
	}
	command(st.t, "cluster", "init", "--store", strings.Join(store, ","), "--datacenter", "test",
		"--dir", st.joins)
}

// node writes the configuration of one, and starts nothing.
func (st *stage) node(name string) *node {
	st.t.Helper()
	n := &node{public: loopback.Free(st.t), admin: loopback.Free(st.t)}
	dir := st.t.TempDir()
	n.config = filepath.Join(dir, "headgate.yaml")
	n.process = newProcess(st.t, name, n.admin, "run", "--config", n.config)
	n.run = st.plan.program
	n.env = append(os.Environ(), fmt.Sprintf("%s=%d", clockOffset, st.plan.ahead[name]))
	factor := max(1, st.plan.factor)
	text := fmt.Sprintf("listen: %s\nadmin_listen: %s\ndata: %s\n", n.public, n.admin,
		filepath.Join(dir, "data"))
	switch {
	case st.plan.ownNATS:
		text += st.engine(name)
	case st.plan.sites != nil:
		text += st.site(name)
	case !st.plan.alone:
		join := filepath.Join(st.joins, name+".join")
		text += fmt.Sprintf("cluster:\n  join: %s\n", join)
		if own, ok := st.own[name]; ok { // a worker listens to nobody
			text += fmt.Sprintf("  listen: %s\n", loopback.Address(own))
		} else {
			command(st.t, "cluster", "node", name, "--dir", st.joins)
		}
	}
	text += st.plan.limits + strings.ReplaceAll(st.plan.queues, "NODE", name)
	text += fmt.Sprintf("rooms:\n%s  - name: %s\n    origin: %s\n    total_active_users: %d\n"+
		"    new_users_per_minute: %d\n    session_duration: %s\n",
		strings.ReplaceAll(st.plan.rooms, "ORIGIN", st.origin.URL), room, st.origin.URL,
		st.plan.total*factor, st.plan.perMinute*factor, st.plan.session)
	if err := os.WriteFile(n.config, []byte(text), 0o600); err != nil {
		st.t.Fatal(err)
	}
	st.mu.Lock()
	st.nodes = append(st.nodes, n)
	st.mu.Unlock()
	return n
}

// pids are the processes that run.
func (st *stage) pids() map[int]string {
	st.mu.Lock()
	defer st.mu.Unlock()
	out := map[int]string{}
	for _, n := range st.nodes {
		if pid := n.number.Load(); pid != 0 {
			out[int(pid)] = n.name
		}
	}
	return out
}

// initSites makes a cluster of one node for each data center, and a late way between
// each two of them, in either direction.
func (st *stage) initSites() {
	st.t.Helper()
	st.joins = filepath.Join(st.t.TempDir(), "clusters")
	st.doors = newDoors(st)
	for _, name := range st.plan.sites {
		st.own[name] = loopback.Port(st.t, 3) // of workers, of routes, of other data centers
		command(st.t, "cluster", "init", "--store", "n1="+loopback.Address(st.own[name]),
			"--datacenter", name, "--dir", filepath.Join(st.joins, name))
	}
}

// site is the cluster of one data center, as it is configured.
func (st *stage) site(name string) string {
	st.t.Helper()
	text := fmt.Sprintf("cluster:\n  join: %s\n  home: %s\n  datacenters:\n",
		filepath.Join(st.joins, name, "n1.join"), st.plan.sites[0])
	for _, other := range st.plan.sites {
		if other == name {
			continue
		}
		port := loopback.Port(st.t, 1)
		st.links.far(name, other, oneWay, port, st.own[other]+2)
		text += fmt.Sprintf("    %s: {url: %q, ca: %s}\n", other, loopback.Address(port),
			filepath.Join(st.joins, other, "ca.pem"))
	}
	return text
}

// buildPrevious builds headgate as it was a commit ago.
func buildPrevious(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source, program := filepath.Join(dir, "source"), filepath.Join(dir, "headgate")
	for _, args := range [][]string{
		{"git", "worktree", "add", "--detach", source, "HEAD^"},
		{"go", "build", "-C", source, "-race=false", "-o", program, "./cmd/headgate"},
		{"git", "worktree", "remove", "--force", source},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s\nthis test needs git and the commit before this one", args, err, out)
		}
	}
	return program
}
