package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// A node is one headgate process. It may be killed and restarted.
type node struct {
	name   string // city/node
	binary string
	folder string
	listen string // where clients call
	admin  string

	cmd    *exec.Cmd // nil: not running
	output *tail
}

// settle writes the configuration of the node, including the cluster.
func (n *node) settle(origin string, window time.Duration, cluster map[string]any) error {
	if err := os.MkdirAll(n.folder, 0o700); err != nil {
		return err
	}
	text, err := json.MarshalIndent(map[string]any{ // JSON is valid YAML
		"listen": n.listen, "admin_listen": n.admin, "data": filepath.Join(n.folder, "data"),
		"cluster": cluster,
		"limits": []any{map[string]any{
			"name": "api", "algorithm": "sliding_log", "amount": amount, "window": window.String(),
			"key": []string{"header:x-client"},
			// A node that cannot reach the counter rejects calls: the limit of 100 matters more
			// than the calls.
			"on_unreachable": "deny",
		}},
		"rooms": []any{map[string]any{
			"name": "api", "origin": origin, "limits": []string{"api"},
			// An API has no waiting line: the room is suspended, and only the limit is active.
			"suspended": true, "total_active_users": 1, "new_users_per_minute": 1,
		}},
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(n.config(), text, 0o600)
}

func (n *node) config() string { return filepath.Join(n.folder, "headgate.yaml") }

// start starts the process and does not wait for it. The child dies with this process.
func (n *node) start() error {
	n.output = &tail{}
	n.cmd = exec.Command(n.binary, "run", "--config", n.config())
	n.cmd.Dir, n.cmd.Stdout, n.cmd.Stderr = n.folder, n.output, n.output
	n.cmd.SysProcAttr = dieWithParent()
	if err := n.cmd.Start(); err != nil {
		n.cmd = nil
		return fmt.Errorf("start %s: %w", n.name, err)
	}
	return nil
}

// kill ends the process as a power failure would. It returns an error if the process had already
// ended.
func (n *node) kill() error {
	if n.cmd == nil {
		return nil
	}
	err := n.cmd.Process.Kill()
	ended := n.cmd.Wait()
	if !wasKilled(n.cmd.ProcessState) {
		err = fmt.Errorf("%s had ended by itself: %w\n%s", n.name, errors.Join(ended, err), n.output)
	}
	n.cmd = nil
	return err
}

// await waits until the node is ready for calls.
func (n *node) await(ctx context.Context) error {
	for {
		if n.ready(ctx) {
			return nil
		}
		if !rest(ctx, askEach) {
			return fmt.Errorf("%s is not ready: %w\n%s", n.name, ctx.Err(), n.output)
		}
	}
}

// askEach is the interval of polls while a node starts. Chosen.
const askEach = 50 * time.Millisecond

func (n *node) ready(ctx context.Context) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.admin+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// rest waits, and reports whether ctx is still active.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// free returns the first of several consecutive loopback ports without a listener. They lie below
// the ports that systems use for outgoing connections.
func free(taken map[int]bool, row int) (first int, err error) {
	for first = 12000; first < 30000; first += row {
		good := true
		for port := first; port < first+row && good; port++ {
			var ln net.Listener
			if good = !taken[port]; !good {
				break
			}
			if ln, err = net.Listen("tcp", loopback(port)); err == nil {
				err = ln.Close()
			}
			good = err == nil
		}
		if !good {
			continue
		}
		for port := first; port < first+row; port++ {
			taken[port] = true
		}
		return first, nil
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// A tail keeps the end of what a process prints.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write keeps only the last few lines.
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
	return string(bytes.TrimSpace(t.text))
}
