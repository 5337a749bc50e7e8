//go:build edges

package edges

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/yardstick"
)

// patience returns how long a proxy waits for an answer to its question, and what the visitor gets then,
// as the table of docs/edges.md says.
func (e *edge) patience(t *testing.T) (wait time.Duration, status int) {
	t.Helper()
	names := map[string]string{"nginx": "nginx", "caddy": "Caddy", "haproxy": "HAProxy", "envoy": "Envoy", "envoy-http": "Envoy",
		"apache": "Apache", "traefik": "Traefik", "k8s": "Envoy Gateway", "k8s-traefik": "Traefik", "k8s-nginx": "ingress-nginx"}
	docs, err := os.ReadFile("../../docs/edges.md")
	if err != nil {
		t.Fatal(err)
	}
	_, row, ok := strings.Cut(string(docs), "\n| "+names[e.name]+" | ")
	if _, err = fmt.Sscanf(row, "%d s | %d", &wait, &status); err != nil || !ok {
		t.Fatalf("docs/edges.md has no time limit for %s: %v", names[e.name], err)
	}
	return wait * time.Second, status
}

// TestHeadgateStandsStill: while headgate accepts connections and does not answer, nobody gets in, and
// each visitor gets an answer after the proxy's time limit. When it goes on, so do the visitors.
func TestHeadgateStandsStill(t *testing.T) {
	each(t, func(t *testing.T, e *edge) {
		o := serveOrigin(t)
		w := e.open(t, o.addr(), "total_active_users: 1, new_users_per_minute: 10, session_duration: 1h")
		inside, waiting := browser{w: w}, browser{w: w}
		inside.ask(t, "GET", "/")
		inside.ask(t, "GET", "/") // headgate knows now that the browser keeps cookies
		waiting.ask(t, "GET", "/")
		o.take()
		w.freeze(t)
		wait, status := e.patience(t)
		stick := yardstick.Start(t)
		var all sync.WaitGroup
		for _, b := range []*browser{&inside, &waiting, {w: w}} {
			all.Go(func() {
				begin := time.Now()
				res, body := b.ask(t, "GET", "/checkout")
				took := time.Since(begin)
				if res.StatusCode != status || len(res.Header["Set-Cookie"]) > 0 {
					t.Errorf("%d %.80q %v", res.StatusCode, body, res.Header)
				}
				if took < wait/2 { // nothing else than the time limit ends it
					t.Errorf("answered after %v, long before the time limit of %v", took, wait)
				}
				stick.Judge(t, "an answer", took, yardstick.Bound{Design: 2 * wait, Delays: 100, Requests: 100})
			})
		}
		all.Wait()
		if got := o.take(); len(got) > 0 {
			t.Errorf("the origin got %v", got)
		}
		w.thaw(t)
		if res, _ := inside.ask(t, "GET", "/checkout"); res.StatusCode != http.StatusOK || len(o.take()) != 1 {
			t.Errorf("inside, afterwards: %d", res.StatusCode)
		}
		if res, body := waiting.ask(t, "GET", "/", "Headgate-Poll", "1"); res.StatusCode != http.StatusOK || body[0] != '{' {
			t.Errorf("a poll, afterwards: %d %.80q", res.StatusCode, body)
		}
	})
}

// freeze stops headgate as it is, and returns when all of its threads stand still.
func (w *world) freeze(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { syscall.Kill(w.headgate.PID, syscall.SIGCONT) })
	if err := syscall.Kill(w.headgate.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	yardstick.Await(t, "headgate stands still", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", w.headgate.PID))
		if err != nil || len(threads) == 0 {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(threads, func(file string) bool {
			text, err := os.ReadFile(file)
			return err == nil && !strings.Contains(string(text), ") T ")
		})
	})
}

// thaw lets headgate go on.
func (w *world) thaw(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(w.headgate.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}
