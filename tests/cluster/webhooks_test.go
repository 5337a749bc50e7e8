package cluster

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	judge "github.com/headgate/headgate/tests/crowd"
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

// completions is the receiver of the completions of a feed. It is down until it is opened, and then fails
// now and then.
type completions struct {
	q  *feed
	mu sync.Mutex
	r  *rand.Rand

	open    bool
	keys    []map[string]bool // idempotency keys of each job that arrived
	first   []int             // number of the first one that was accepted, 0: none
	count   int               // of jobs whose completion was accepted
	refused int
	wrong   []string
}

// newCompletions makes the receiver of completions of a feed whose target refuses some jobs for good.
func newCompletions(q *feed) {
	q.order()
	seed := rand.Uint64()
	q.t.Logf("seed of the receiver %d", seed)
	q.ended = &completions{q: q, r: rand.New(rand.NewPCG(seed, 0)), keys: make([]map[string]bool, q.jobs),
		first: make([]int, q.jobs)}
	q.refuses = func(job int) bool { return job%40 == 7 }
}

// ServeHTTP judges a completion by what the target of the job has seen.
func (c *completions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		Type string
		Data struct {
			Queue, ID, Key, State string
			OrderKey              string `json:"order_key"`
			Status                int
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		return // its sender was killed
	}
	job, err := strconv.Atoi(strings.TrimPrefix(m.Data.Key, "job-"))
	want, status := "delivered", http.StatusOK
	if err == nil && c.q.refuses(job) {
		want, status = "dead", http.StatusBadRequest
	}
	c.q.mu.Lock()
	known := err == nil && job < c.q.jobs && c.q.ordering.done[job] > 0
	c.q.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := &m.Data; !known || m.Type != "job_"+want || d.State != want || d.Status != status ||
		d.Queue != "orders" || d.OrderKey != c.q.of(job) || r.Header.Get("Headgate-Order-Key") != d.OrderKey {
		if len(c.wrong) < 10 {
			c.wrong = append(c.wrong, fmt.Sprintf("%+v", m))
		}
		return
	}
	if c.keys[job] == nil {
		c.keys[job] = map[string]bool{}
	}
	c.keys[job][r.Header.Get("Idempotency-Key")] = true
	if !c.open || c.r.IntN(50) == 0 {
		c.refused++
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	if c.first[job] == 0 {
		c.count++
		c.first[job] = c.count
	}
}

func (c *completions) set(open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = open
}

// await waits until each job has a completion, or none has come for a minute.
func (c *completions) await() {
	last, at := -1, c.q.clock()
	for {
		c.mu.Lock()
		count := c.count
		c.mu.Unlock()
		if count > last {
			last, at = count, c.q.clock()
		}
		if count == c.q.jobs || c.q.clock()-at > time.Minute {
			return
		}
		c.q.rest(100 * time.Millisecond)
	}
}

// judge judges what has arrived.
func (c *completions) judge() []judge.Figure {
	c.mu.Lock()
	defer c.mu.Unlock()
	missing, twice, early, before := 0, 0, 0, map[string]int{}
	for job := range c.q.jobs {
		if c.first[job] == 0 {
			missing++
		}
		if len(c.keys[job]) > 1 {
			twice++
		}
		key := c.q.of(job)
		if one, ok := before[key]; ok && c.first[job] < c.first[one] {
			early++
		}
		before[key] = job
	}
	return []judge.Figure{
		most("jobs without a completion", missing, 0, "of %d", c.q.jobs),
		most("completions that are wrong, or before the end", len(c.wrong), 0, "%v", c.wrong),
		most("completions with another key", twice, 0, ""),
		most("completions before that of the job ahead of the same order key", early, 0, ""),
		show("completions that were refused", float64(c.refused), ""),
	}
}

// TestQueuesCompletionKill: another queue gets the completions of jobs with order keys, some of which die.
// Their receiver is down at first, and fails now and then, while the node that delivers is killed, and then
// each node in turn.
func TestQueuesCompletionKill(t *testing.T) { play(t, testQueuesCompletionKill) }

func testQueuesCompletionKill(t *testing.T) {
	*jobs = min(*jobs, 16_000)
	q := startFeed(t, 1, orderSettings+", completion: {queue: ended}}\n"+
		"  - {name: ended, target: {url: 'TARGET/ended'}, min_backoff: 100ms, max_backoff: 1s, max_attempts: 1000",
		newCompletions)
	q.strike(q.partly(1, 7, q.hostOf))
	for i, n := range q.nodes {
		q.ended.set(i > 0)
		q.strike(q.partly(i+2, 7, func() string { return n.name }))
	}
	q.arriveAll()
	q.ended.await()
	q.done(wanted{besides: append(q.inOrder(), q.ended.judge()...), pause: pauseCut,
		repeats: q.failed + againAfter(len(q.faults))})
}
