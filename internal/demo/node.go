package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/adminclient"
	"github.com/headgate/headgate/internal/loopback"
	"github.com/headgate/headgate/internal/platform"
)

// A standing is the state of one node.
type standing int

const (
	down     standing = iota // no process
	starting                 // not yet ready for visitors
	up
)

// These constants define how a node is checked. Chosen: faster than the usual interval of a
// balancer, so that changes show soon, and longer than a node needs to detect that nobody leads the
// records (2 s).
const (
	lookEvery   = 200 * time.Millisecond
	lookTimeout = time.Second
	tellTimeout = 3 * time.Second
)

const (
	roomName   = "pond"
	nodeHeader = "Demo-Node" // the node through which a request reached the shop
)

// A node is a process that is the room, or one of those that are. It is headgate run with a folder
// of its own. It can be killed and started again. It may be used by many goroutines at once.
type node struct {
	name      string
	title     string // used in messages
	program   string
	folder    string
	visitors  string // address of the room
	admin     *adminclient.Client
	about     string          // path of what it reports about itself
	transport *http.Transport // for visitors
	output    tail
	failed    chan error // a process that ended unexpectedly
	heard     func()     // if not nil, it is called with each report, and mu held

	mu      sync.Mutex
	process *process
	life    int // number of starts and ends; results of an earlier one are stale
	says    saying
	ready   bool
	since   time.Time // when it started or ended
}

// A process is one run of a node, from start to end.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// A state is the room as a node reports it.
type state struct {
	Active   int  `json:"active_users"`
	AtOnce   int  `json:"total_active_users"`
	QueueAll bool `json:"queue_all"`
}

// A saying is what a node reports about itself and the others.
type saying struct {
	state
	World  *outlook `json:"datacenters"`
	Leader string   `json:"leader"` // of the records, "" unknown
	Nodes  []struct {
		Name  string   `json:"name"`
		Rooms []string `json:"rooms"`
	} `json:"nodes"`
}

func newNode(name, title, program, folder string, failed chan error) *node {
	return &node{name: name, title: title, program: program, folder: folder, failed: failed,
		about: "/v1/rooms/" + roomName, since: time.Now(), transport: &http.Transport{
			MaxIdleConnsPerHost: 128, DisableCompression: true,
			WriteBufferSize: 2 << 10, ReadBufferSize: 4 << 10,
		}}
}

// settle picks addresses and writes the configuration of a room in front of origin, with the
// additional keys in more.
func (n *node) settle(origin string, l Limits, more map[string]any) error {
	port, err := loopback.Ports(2)
	if err != nil {
		return err
	}
	n.visitors = loopback.Address(port)
	n.admin = &adminclient.Client{URL: "http://" + loopback.Address(port+1)}
	// JSON is valid YAML. The demo is a proxy in front of the room, for browsers.
	keys := map[string]any{
		"listen": n.visitors, "admin_listen": loopback.Address(port + 1), "data": n.data(),
		"trusted_proxies": []string{"127.0.0.1/32"},
		"rooms": []any{map[string]any{
			"name": roomName, "title": "The Duck Shop", "origin": origin,
			"total_active_users": l.AtOnce, "new_users_per_minute": l.PerMinute,
			"session_duration": l.Session.String(),
			// Polls are frequent, so that the picture shows soon after a kill that no place was
			// lost.
			"poll_max": "3s",
		}},
	}
	maps.Copy(keys, more)
	text, err := json.MarshalIndent(keys, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(n.folder, 0o700); err != nil {
		return err
	}
	return os.WriteFile(n.config(), text, 0o600)
}

func (n *node) config() string { return filepath.Join(n.folder, "headgate.yaml") }
func (n *node) data() string   { return filepath.Join(n.folder, "data") }

// RoundTrip sends a visitor's request to the node, whatever its address, and names the node to the
// shop. The demo's traffic never leaves this machine.
func (n *node) RoundTrip(r *http.Request) (*http.Response, error) {
	out := r.Clone(r.Context())
	if out.Host == "" {
		out.Host = r.URL.Host
	}
	out.URL.Host = n.visitors
	out.Header[nodeHeader] = []string{n.name}
	return n.transport.RoundTrip(out)
}

// command returns a command that runs headgate itself. The child dies with this process, and does
// not receive interrupts from the terminal.
func (n *node) command(args ...string) *exec.Cmd {
	cmd := exec.Command(n.program, args...)
	cmd.Args[0] = "headgate"
	cmd.Dir = n.folder
	platform.TieToParent(cmd)
	return cmd
}

// launch starts the node if it does not run, and does not wait for it. A key and the demo may both
// start it.
func (n *node) launch() error {
	cmd := n.command("run", "--config", n.config())
	cmd.Stdout, cmd.Stderr = &n.output, &n.output
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process != nil {
		return nil
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", n.title, err)
	}
	n.forget()
	p := &process{cmd: cmd, ended: make(chan struct{})}
	n.process = p
	go func() {
		err := cmd.Wait()
		n.mu.Lock()
		defer n.mu.Unlock()
		if close(p.ended); n.process != p {
			return // it was killed
		}
		select {
		case n.failed <- fmt.Errorf("%s ended by itself: %v\n%s", n.title, err, &n.output):
		default:
		}
	}()
	return nil
}

// startWithin is how long a start may take. Chosen: enough for a busy machine.
const startWithin = 30 * time.Second

// start starts the node and waits until it is ready for visitors. An end of ctx is no error.
func (n *node) start(ctx context.Context) error {
	if err := n.launch(); err != nil {
		return err
	}
	wait, stop := context.WithTimeout(ctx, startWithin)
	defer stop()
	for rest(wait, 2*time.Millisecond) {
		select {
		case err := <-n.failed:
			return err
		default:
		}
		if n.look(wait); n.stands() == up {
			return nil
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("%s was not ready within %v\n%s", n.title, startWithin, &n.output)
}

// kill ends the node as a power failure would, and waits until it has ended. At the end of the demo
// too: the folders are removed anyway, and in an orderly shutdown of all at once the nodes of a
// cluster would wait for each other.
func (n *node) kill() error {
	n.mu.Lock()
	p := n.process
	n.process = nil
	n.forget()
	n.mu.Unlock()
	if p == nil {
		return nil
	}
	err := p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.ended
	if err != nil && err != os.ErrProcessDone { //nolint:errorlint // it is not wrapped
		return fmt.Errorf("kill %s: %w", n.title, err)
	}
	return nil
}

// forget begins another life of the node. The caller holds mu.
func (n *node) forget() {
	n.life++
	n.ready, n.says, n.since = false, saying{}, time.Now()
}

// stands returns the state of the node.
func (n *node) stands() standing {
	is, _, _ := n.now()
	return is
}

// now returns the state of the node, since when it holds, and the last report of the node. The
// report is empty if the node is not up.
func (n *node) now() (is standing, since time.Time, s saying) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.process == nil:
		return down, n.since, saying{}
	case !n.ready:
		return starting, n.since, saying{}
	}
	return up, n.since, n.says
}

// hosts reports whether the node hosts the room. It trusts a node only about its own hosting,
// because the others learn of a change a moment later.
func (n *node) hosts() bool {
	_, _, s := n.now()
	for _, other := range s.Nodes {
		if other.Name == n.name && slices.Contains(other.Rooms, roomName) {
			return true
		}
	}
	return false
}

// look asks the node whether it is ready, and for its report.
func (n *node) look(ctx context.Context) {
	n.mu.Lock()
	life := n.life
	n.mu.Unlock()
	err := n.get(ctx, "/readyz", lookTimeout, io.Discard)
	n.saw(life, func() {
		if ready := err == nil; ready != n.ready {
			n.ready, n.since, n.says = ready, time.Now(), saying{}
		}
	})
	if err != nil {
		return
	}
	ctx, stop := context.WithTimeout(ctx, tellTimeout)
	defer stop()
	var s saying
	if err := n.admin.Do(ctx, http.MethodGet, n.about, nil, &s); err != nil {
		return
	}
	n.saw(life, func() {
		n.says = s
		if n.heard != nil {
			n.heard()
		}
	})
}

// saw runs f, which records a result, unless that life of the node is over.
func (n *node) saw(life int, f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if life == n.life {
		f()
	}
}

// get copies an answer of the node to operators.
func (n *node) get(ctx context.Context, path string, within time.Duration, to io.Writer) error {
	ctx, stop := context.WithTimeout(ctx, within)
	defer stop()
	return n.admin.Copy(ctx, path, to)
}

// A tail keeps the end of what a process prints.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write keeps the last few lines.
func (t *tail) Write(b []byte) (int, error) {
	const most = 4 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-most):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
