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

// A gate is the room, or one of the processes that are the room together: headgate
// run over a folder of its own. It can be killed and started again.
type gate struct {
	name     string // in what is said of it
	program  string
	folder   string
	visitors string // address of the room
	admin    string // address for operators
	output   tail
	failed   chan error // a process that ended by itself

	mu      sync.Mutex
	process *process
}

// A process is one life of the room.
type process struct {
	cmd    *exec.Cmd
	meant  atomic.Bool // its end is meant
	ended  chan struct{}
	ending error // once ended
}

// newGate writes the configuration of the room before origin.
func newGate(program, folder, origin string, l Limits) (*gate, error) {
	g := &gate{name: "the room", program: program, folder: folder, failed: make(chan error, 1)}
	return g, g.settle(origin, l, nil)
}

// settle finds addresses and writes the configuration, with more keys if there are
// any.
func (g *gate) settle(origin string, l Limits, more map[string]any) error {
	port, err := loopback.Ports(2)
	if err != nil {
		return err
	}
	g.visitors, g.admin = loopback.Address(port), loopback.Address(port+1)
	// JSON is YAML. The demo is a proxy before the room, for people.
	keys := map[string]any{
		"listen": g.visitors, "admin_listen": g.admin, "data": g.data(),
		"trusted_proxies": []string{"127.0.0.1/32"},
		"rooms": []any{map[string]any{
			"name": roomName, "title": "The Duck Shop", "origin": origin,
			"total_active_users": l.AtOnce, "new_users_per_minute": l.PerMinute,
			"session_duration": l.Session.String(),
			// Asked often enough for a kill to be seen to have lost nothing.
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

// start starts the process and waits until it takes visitors.
func (g *gate) start(ctx context.Context) error {
	p, err := g.launch()
	if err != nil {
		return err
	}
	return g.await(ctx, p)
}

// launch starts the process, unless there is one, and does not wait for it.
func (g *gate) launch() (*process, error) {
	cmd := g.command("run", "--config", g.config())
	cmd.Stdout, cmd.Stderr = &g.output, &g.output
	p := &process{cmd: cmd, ended: make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.process != nil {
		return g.process, nil // a key and the demo itself may want the same
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

// runs reports whether there is a process, ready or not.
func (g *gate) runs() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.process != nil
}

// command is headgate itself, with an end that is tied to ours: it dies with us,
// and an interrupt at our terminal is not for it.
func (g *gate) command(args ...string) *exec.Cmd {
	cmd := exec.Command(g.program, args...)
	cmd.Args[0] = "headgate"
	cmd.Dir = g.folder
	platform.TieToParent(cmd)
	return cmd
}

// startWithin is how long a start may take. Chosen: a machine that is busy.
const startWithin = 30 * time.Second

// await asks for /readyz every few milliseconds.
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

// kill ends the process as a power failure would, and waits for it to be gone.
func (g *gate) kill() error { return g.end(syscall.SIGKILL, 0) }

// close asks the process to end, and ends it if it does not.
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
