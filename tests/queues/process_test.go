//go:build kills || bench

package queues

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/loopback"
	"github.com/headgate/headgate/queue"
)

// A process is the real binary with a queue named orders.
type process struct {
	t     *testing.T
	bin   string
	dir   string
	admin string
	token string
	cmd   *exec.Cmd
	out   *os.File
}

// build makes the binary and its folder. keys are those of the queue, in YAML.
func build(t *testing.T, limit int, keys string) *process {
	t.Helper()
	p := &process{t: t, dir: t.TempDir(), admin: loopback.Free(t)}
	p.bin = filepath.Join(p.dir, "headgate")
	p.run("go", "build", "-o", p.bin, "github.com/headgate/headgate/cmd/headgate")
	config := fmt.Sprintf(`data: %s/data
listen: %s
admin_listen: %s
limits:
  - {name: db, algorithm: sliding_log, amount: %d, window: 1s}
queues:
  - name: orders
    limits: [db]
%s`, p.dir, loopback.Free(t), p.admin, limit, keys)
	if err := os.WriteFile(p.path("headgate.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p.token = strings.TrimSpace(p.run(p.bin, "token", "create", "--scope", "write", "--data", p.path("data")))
	var err error
	if p.out, err = os.Create(p.path("log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		p.out.Close()
		if t.Failed() {
			b, _ := os.ReadFile(p.path("log"))
			t.Logf("log of the process:\n%s", b[max(0, len(b)-4000):])
		}
	})
	return p
}

func (p *process) path(name string) string { return filepath.Join(p.dir, name) }

func (p *process) run(name string, args ...string) string {
	p.t.Helper()
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		p.t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// start starts the process and waits until it is ready.
func (p *process) start() {
	p.t.Helper()
	p.cmd = exec.Command(p.bin, "run", "--config", p.path("headgate.yaml"))
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	wait(p.t, "ready", time.Minute, func() bool {
		r, err := http.Get("http://" + p.admin + "/readyz")
		if err != nil {
			return false
		}
		r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
}

// kill ends the process as a loss of power would, but for the disk.
func (p *process) kill() {
	if p.cmd != nil {
		p.cmd.Process.Kill()
		p.cmd.Wait()
		p.cmd = nil
	}
}

// wait tries until something is so.
func wait(t *testing.T, what string, most time.Duration, so func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end := time.After(most)
	for !so() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("still not after %v: %s", most, what)
		}
	}
}

// do sends a request as the operator.
func (p *process) do(method, path, kind string, body []byte) ([]byte, error) {
	r, err := http.NewRequest(method, "http://"+p.admin+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+p.token)
	r.Header.Set("Content-Type", kind)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, b)
	}
	return b, err
}

// put puts jobs of these numbers, each with its own as key and text.
func (p *process) put(from, to int) error {
	var b bytes.Buffer
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "{\"key\":\"job-%d\",\"text\":\"%d\"}\n", i, i)
	}
	_, err := p.do("POST", "/v1/queues/orders/jobs", "application/x-ndjson", b.Bytes())
	return err
}

func (p *process) status() (s queue.Status) {
	if b, err := p.do("GET", "/v1/queues/orders", "", nil); err == nil {
		json.Unmarshal(b, &s)
	}
	return s
}
