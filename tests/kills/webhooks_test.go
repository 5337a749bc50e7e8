//go:build kills || soak

package kills

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A receiver hangs, or refuses, or takes messages.
type receiver struct {
	mu    sync.Mutex
	mode  string // hang, refuse or take
	seen  []string
	taken []string
}

// ServeHTTP is the receiver of webhooks.
func (g *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return // its sender was killed
	}
	kind, _, _ := strings.Cut(strings.TrimPrefix(string(b), `{"type":"`), `"`)
	id := r.Header.Get("Webhook-Id") + " " + kind
	g.mu.Lock()
	mode := g.mode
	if g.seen = append(g.seen, id); mode == "take" {
		g.taken = append(g.taken, id)
	}
	g.mu.Unlock()
	switch mode {
	case "hang":
		<-r.Context().Done()
	case "refuse":
		w.WriteHeader(http.StatusInternalServerError)
	}
}

func (g *receiver) set(mode string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mode = mode
}

// count is how many attempts there were.
func (g *receiver) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.seen)
}

// ids are what was seen, or taken, without repetitions.
func (g *receiver) ids(taken bool) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := slices.Clone(g.seen)
	if taken {
		all = slices.Clone(g.taken)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func await(t *testing.T, what string, most time.Duration, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(most); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not %s within %v", what, most)
		}
	}
}

// TestWebhookAfterKills: kill -9 between what has happened and its delivery, again and again, to a
// receiver that hangs, refuses, and at last takes: the message comes with the id that it had at first,
// and nothing is told twice. A kill within a second of the happening loses it neither.
func TestWebhookAfterKills(t *testing.T) {
	t.Parallel()
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer origin.Close()
	g := &receiver{mode: "hang"}
	target := httptest.NewServer(g)
	defer target.Close()
	p := newProcess(t)
	secret := filepath.Join(p.dir, "secret")
	const key = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
	if err := os.WriteFile(secret, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(p.dir, "headgate.yaml")
	write := func(total int) {
		text := fmt.Sprintf("webhooks:\n  - {name: ops, url: '%s/', secret_files: [%s]}\nrooms:\n"+
			"  - {name: shop, origin: '%s', total_active_users: %d, new_users_per_minute: 100}\n",
			target.URL, secret, origin.URL, total)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(1)
	p.args = append(p.args, "--config", file)
	p.start()
	cookie := ""
	// One is in, one waits, and its cookie comes back.
	for _, want := range []int{http.StatusOK, http.StatusServiceUnavailable, http.StatusServiceUnavailable} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+p.public+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/html")
		r.Header.Set("Cookie", cookie)
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Fatal(res.Status)
		}
		if want == http.StatusServiceUnavailable {
			cookie, _, _ = strings.Cut(res.Header.Get("Set-Cookie"), ";")
		}
	}
	await(t, "sent", time.Minute, func() bool { return len(g.ids(false)) == 1 })
	first := g.ids(false)[0]
	for _, mode := range []string{"hang", "refuse"} {
		g.set(mode)
		n := g.count()
		p.kill()
		p.start()
		await(t, "sent after a kill", time.Minute, func() bool { return g.count() > n })
	}
	// The file changes while headgate is dead, and it is killed as soon as it is up again: what was
	// told last is in the record, so the next one still sees the difference.
	p.kill()
	write(2)
	p.start()
	p.kill()
	g.set("take")
	p.start()
	await(t, "taken", 2*time.Minute, func() bool { return len(g.ids(true)) >= 2 })
	all := g.ids(true)
	if len(all) != 2 || len(g.ids(false)) != 2 || !slices.Contains(all, first) ||
		!strings.HasSuffix(first, " queueing_started") ||
		!slices.ContainsFunc(all, func(id string) bool { return strings.HasSuffix(id, " limit_changed") }) {
		t.Errorf("first %q, seen %q, taken %q", first, g.ids(false), all)
	}
}
