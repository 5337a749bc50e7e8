package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/loopback"
	"github.com/headgate/headgate/internal/platform"
)

// A gate is the room, or one of the processes of a room. It is headgate run with a folder of its
// own. It can be killed and started again.
type gate struct {
	name     string // used in messages
	program  string
	folder   string
	visitors string // address of the room
	admin    string // address for operators
	output   tail
	failed   chan error // a process that ended unexpectedly

	mu      sync.Mutex
	process *process
}

// A process is one run of the room, from start to end.
type process struct {
	cmd    *exec.Cmd
	meant  atomic.Bool // the end is intended
	ended  chan struct{}
	ending error // set when it has ended
}

// newGate writes the configuration of a room in front of origin.
func newGate(program, folder, origin string, l Limits) (*gate, error) {
	g := &gate{name: "the room", program: program, folder: folder, failed: make(chan error, 1)}
	return g, g.settle(origin, l, nil)
}

// settle picks addresses and writes the configuration, with the additional keys in more.
func (g *gate) settle(origin string, l Limits, more map[string]any) error {
	port, err := loopback.Ports(2)
	if err != nil {
		return err
	}
	g.visitors, g.admin = loopback.Address(port), loopback.Address(port+1)
	// JSON is valid YAML. The demo is a proxy in front of the room, for browsers.
	keys := map[string]any{
		"listen": g.visitors, "admin_listen": g.admin, "data": g.data(),
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
	return os.WriteFile(g.config(), text, 0o600)
}

const roomName = "pond"

func (g *gate) config() string { return filepath.Join(g.folder, "headgate.yaml") }
func (g *gate) data() string   { return filepath.Join(g.folder, "data") }

// start starts the process and waits until it is ready for visitors.
func (g *gate) start(ctx context.Context) error {
	p, err := g.launch()
	if err != nil {
		return err
	}
	return g.await(ctx, p)
}

// launch starts the process if it does not run. It does not wait until it is ready.
func (g *gate) launch() (*process, error) {
	cmd := g.command("run", "--config", g.config())
	cmd.Stdout, cmd.Stderr = &g.output, &g.output
	p := &process{cmd: cmd, ended: make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.process != nil {
		return g.process, nil // a key and the demo may both start it
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", g.name, err)
	}
	g.process = p
	go func() {
		p.ending = cmd.Wait()
		close(p.ended)
		if !p.meant.Load() {
			select {
			case g.failed <- fmt.Errorf("%s ended by itself: %v\n%s", g.name, p.ending, &g.output):
			default:
			}
		}
	}()
	return p, nil
}

// runs reports whether the process exists, ready or not.
func (g *gate) runs() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.process != nil
}

// command returns a command that runs headgate itself. The child dies with this process, and does
// not receive interrupts from the terminal.
func (g *gate) command(args ...string) *exec.Cmd {
	cmd := exec.Command(g.program, args...)
	cmd.Args[0] = "headgate"
	cmd.Dir = g.folder
	platform.TieToParent(cmd)
	return cmd
}

// startWithin is how long a start may take. Chosen: enough for a busy machine.
const startWithin = 30 * time.Second

// await polls /readyz every few milliseconds.
func (g *gate) await(ctx context.Context, p *process) error {
	ctx, stop := context.WithTimeout(ctx, startWithin)
	defer stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	client := adminClient(g.admin)
	defer client.CloseIdleConnections()
	for {
		select {
		case <-p.ended:
			return fmt.Errorf("the room did not start: %v\n%s", p.ending, &g.output)
		case <-ctx.Done():
			return fmt.Errorf("the room was not ready: %w\n%s", ctx.Err(), &g.output)
		case <-tick.C:
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.admin+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(r)
		if err != nil {
			continue
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return nil
		}
	}
}

// kill ends the process as a power failure would, and waits until it has ended.
func (g *gate) kill() error { return g.end(syscall.SIGKILL, 0) }

// close requests the process to end, and kills it if it does not.
func (g *gate) close() error { return g.end(syscall.SIGTERM, 2*time.Second) }

func (g *gate) end(sig syscall.Signal, patience time.Duration) error {
	g.mu.Lock()
	p := g.process
	g.process = nil
	g.mu.Unlock()
	if p == nil {
		return nil
	}
	p.meant.Store(true)
	err := p.cmd.Process.Signal(sig)
	if patience > 0 {
		select {
		case <-p.ended:
		case <-time.After(patience):
			err = errors.Join(err, p.cmd.Process.Kill())
		}
	}
	<-p.ended
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
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
	if n := len(t.text); n > most {
		t.text = append(t.text[:0], t.text[n-most:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
