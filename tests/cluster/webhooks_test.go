package cluster

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A mailbox is the receiver of a webhook. It refuses all until it is opened.
type mailbox struct {
	mu          sync.Mutex
	open        bool
	seen, taken map[string]string // kinds by id
}

// ServeHTTP takes a message, or refuses it.
func (m *mailbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return // its sender was killed
	}
	kind, _, _ := strings.Cut(strings.TrimPrefix(string(b), `{"type":"`), `"`)
	id := r.Header.Get("Webhook-Id")
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen[id] = kind; !m.open {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	m.taken[id] = kind
}

// kinds are those of different messages, sorted.
func (m *mailbox) kinds(taken bool) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if taken {
		return slices.Sorted(maps.Values(m.taken))
	}
	return slices.Sorted(maps.Values(m.seen))
}

// patience is how long elections may take, with other tests beside. Chosen: they took up to 40 s.
const patience = 2 * time.Minute

// TestWebhooksOfThree: what happens in a cluster is told once, whichever node finds it out, and
// whichever is killed between what has happened and its delivery: the host of the room, at once
// after a change too, and the node that sends.
func TestWebhooksOfThree(t *testing.T) { play(t, testWebhooksOfThree) }

func testWebhooksOfThree(t *testing.T) {
	box := &mailbox{seen: map[string]string{}, taken: map[string]string{}}
	out := newOutside(t)
	receiver := out.serve(t, box)
	defer receiver.Close()
	secret := filepath.Join(t.TempDir(), "secret")
	const key = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
	if err := os.WriteFile(secret, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	p := quiet(1000, 60_000, 10*time.Second)
	p.outside = out
	p.queues = fmt.Sprintf("webhooks:\n  - {name: ops, url: '%s/', secret_files: [%s]}\n", receiver.URL, secret)
	st := newStage(t, p)
	sees := func(what string, taken bool, want ...string) {
		t.Helper()
		slices.Sort(want)
		var got []string
		for end := time.Now().Add(patience); time.Now().Before(end); st.rest(100 * time.Millisecond) {
			if got = box.kinds(taken); slices.Equal(got, want) {
				return
			}
		}
		t.Fatalf("%s: %q, want %q", what, got, want)
	}
	host, _ := st.roles()
	st.rest(10 * time.Second) // a host of a room tells changes from then on: it may know them late before
	token := st.get("n2").token()
	// set changes the room at n2 or another node; again and again while the store elects a leader.
	set := func(at, body string) {
		t.Helper()
		token := token
		if at != "n2" {
			token = st.get(at).token()
		}
		var err error
		for end := time.Now().Add(patience); time.Now().Before(end); st.rest(200 * time.Millisecond) {
			var now told
			if err = st.ask(st.get(at), http.MethodPatch, "/v1/rooms/"+room, token, body, &now); err == nil {
				return
			}
		}
		t.Fatal(err)
	}
	set("n2", `{"queue_all": true}`)
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+st.get("n3").public+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html")
	res, err := st.api.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusServiceUnavailable {
		t.Fatal(res.Status)
	}
	cookie, _, _ := strings.Cut(res.Header.Get("Set-Cookie"), ";")
	r.Header.Set("Cookie", cookie) // it comes back
	if res, err = st.api.RoundTrip(r); err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	sees("nobody has let anybody in", false, "queueing_started")
	set("n2", `{"total_active_users": 900}`)
	sees("a change", false, "limit_changed", "queueing_started")

	set(host, `{"total_active_users": 800}`)
	st.kill("kill at once after a change", host)
	sees("a change just before a kill", false, "limit_changed", "limit_changed", "queueing_started")
	back := func(name string) { // and has caught up: two of three that are behind are no store
		t.Helper()
		st.again(name)
		st.rest(settled)
		st.roles()
	}
	back(host)

	sender := ""
	for end := time.Now().Add(patience); sender == "" && time.Now().Before(end); st.rest(time.Second) {
		var hooks struct{ Webhooks []struct{ Node string } }
		if st.ask(st.get("n2"), http.MethodGet, "/v1/webhooks", token, "", &hooks) == nil {
			sender = hooks.Webhooks[0].Node
		}
	}
	st.kill("kill of who sends", sender)
	back(sender)
	box.mu.Lock()
	box.open = true
	box.mu.Unlock()
	sees("once it is open", true, "limit_changed", "limit_changed", "queueing_started")
	set("n1", `{"total_active_users": 700}`)
	sees("a last change", true, "limit_changed", "limit_changed", "limit_changed", "queueing_started")
	sees("in all", false, "limit_changed", "limit_changed", "limit_changed", "queueing_started")
	t.Logf("host %s, sender %s: %v", host, sender, box.taken)
}
