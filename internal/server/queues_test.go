package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/queue"
)

// A sink is a target that remembers the bodies of what it gets, and the signatures.
type sink struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
	signed []string
}

func newSink(t *testing.T) *sink {
	g := &sink{}
	g.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.bodies = append(g.bodies, string(b))
		g.signed = append(g.signed, r.Header.Get("Webhook-Signature"))
	}))
	t.Cleanup(g.Close)
	return g
}

// got are the bodies so far, sorted.
func (g *sink) got() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.Join(slices.Sorted(slices.Values(g.bodies)), " ")
}

func (g *sink) signature() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.signed) == 0 {
		return ""
	}
	return g.signed[len(g.signed)-1]
}

func (p *process) queue(name string) *queue.Queue {
	p.t.Helper()
	q := p.s.jobs.find(name)
	if q == nil {
		p.t.Fatalf("no queue %s", name)
	}
	return q.Queue
}

func (p *process) put(name string, bodies ...string) {
	p.t.Helper()
	var jobs []queue.Job
	for _, b := range bodies {
		jobs = append(jobs, queue.Job{Body: []byte(b)})
	}
	if _, err := p.queue(name).Put(p.t.Context(), jobs); err != nil {
		p.t.Fatal(err)
	}
}

const dbLimit = "limits:\n  - {name: db, algorithm: sliding_log, amount: 1000, window: 1s}\n"

func TestReloadOpensRemovesAndChangesQueues(t *testing.T) {
	first, second := newSink(t), newSink(t)
	p := run(t, shop)
	one := "  - {name: one, target: {url: '" + first.URL + "'}, limits: [db]}\n"
	p.write(shop + dbLimit + "queues:\n" + one + "  - {name: two, target: {url: '" + first.URL + "'}}\n")
	got := p.reload()
	if !slices.Equal(got.Queues.Added, []string{"one", "two"}) || len(got.NeedsRestart) != 0 {
		t.Fatalf("%+v", got)
	}
	p.put("one", "a")
	p.put("two", "b")
	eventually(t, "delivered", func() bool { return first.got() == "a b" })

	two := p.queue("two")
	eventually(t, "a host", two.Hosted)
	if err := two.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.put("two", "c", "d")
	eventually(t, "known", func() bool { s, _ := two.Status(t.Context()); return s.Depth == 2 })
	one = strings.Replace(one, first.URL, second.URL, 1)
	p.write(shop + dbLimit + "queues:\n" + one)
	got = p.reload()
	if !slices.Equal(got.Queues.Changed, []string{"one"}) ||
		!slices.Equal(got.Queues.Removed, []string{"two"}) {
		t.Fatalf("%+v", got)
	}
	if !strings.Contains(p.log.String(), "queue removed: what is in it stays on the disk") ||
		!strings.Contains(p.log.String(), "queue=two jobs=2") {
		t.Errorf("the log says nothing of what stays:\n%s", p.log.String())
	}
	if r := get(t, p.operators+"/v1/queues", ""); strings.Contains(r.body, `"two"`) {
		t.Errorf("it is still told of: %s", r.body)
	}
	p.put("one", "e")
	eventually(t, "delivered elsewhere", func() bool { return second.got() == "e" })

	p.write(shop + dbLimit + "queues:\n" + one + "  - {name: two, target: {url: '" + second.URL + "'}}\n")
	if got = p.reload(); !slices.Equal(got.Queues.Added, []string{"two"}) || len(got.Queues.Changed) != 0 {
		t.Fatalf("%+v", got)
	}
	two = p.queue("two")
	eventually(t, "a host", two.Hosted)
	if err := two.Resume(t.Context()); err != nil { // it was paused, and is
		t.Fatal(err)
	}
	eventually(t, "what stayed goes on", func() bool { return second.got() == "c d e" })
	if s := first.got(); s != "a b" {
		t.Errorf("the target of before got %s", s)
	}
}

func TestReloadOfQueuesThatCannotBeChangesNothing(t *testing.T) {
	g := newSink(t)
	p := run(t, shop)
	queues := "queues:\n  - {name: one, rate: 50, target: {url: '" + g.URL + "'}}\n"
	p.write(shop + queues)
	p.reload()
	p.write(shop + strings.Replace(queues, "rate: 50", "rate: 60", 1) +
		"  - {name: two, target: {url: '" + g.URL + "', secret_files: [" + p.dir + "/none]}}\n")
	if _, err := p.s.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), `queue "two"`) {
		t.Fatalf("a secret that is not there: %v", err)
	}
	p.write(shop + strings.Replace(queues, "rate: 50", "rate: -1", 1))
	if _, err := p.s.Reload(t.Context()); err == nil {
		t.Fatal("a rate below 0 was taken")
	}
	eventually(t, "a host", p.queue("one").Hosted)
	if s, err := p.queue("one").Status(t.Context()); err != nil || s.Rate != 50 || len(p.s.jobs.all()) != 1 {
		t.Errorf("%+v %v", s, err)
	}
	var left *api.Leftover
	p.write(shop + strings.Replace(queues, "rate: 50", "rate: 70", 1))
	if _, err := p.s.Reload(t.Context()); errors.As(err, &left) {
		t.Fatal(err)
	}
	if s, err := p.queue("one").Status(context.Background()); err != nil || s.Rate != 70 {
		t.Errorf("%+v %v", s, err)
	}
}

func TestTheSecretOfATargetIsReadAgain(t *testing.T) {
	g := newSink(t)
	p := run(t, shop)
	file := filepath.Join(p.dir, "secret")
	write := func(fill byte) {
		t.Helper()
		const alphabet = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
		text := "whsec_" + strings.Replace(alphabet, "M", string(fill), 1)
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write('A')
	p.write(shop + fmt.Sprintf("queues:\n  - {name: one, target: {url: '%s', secret_files: [%s]}}\n", g.URL, file))
	p.reload()
	target := p.s.jobs.find("one").target
	old := target.current.Load()
	target.look()
	if target.current.Load() != old {
		t.Error("files that are the same were read again")
	}
	if err := os.WriteFile(file, []byte("no secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	target.look()
	target.look()
	if target.current.Load() != old || strings.Count(p.log.String(), "new files of a target refused") != 1 {
		t.Errorf("a file that is no secret:\n%s", p.log.String())
	}
	if _, err := p.s.Reload(t.Context()); err == nil || strings.Contains(err.Error(), "no secret") {
		t.Errorf("a reload with a file that is no secret: %v", err)
	}
	p.put("one", "a")
	eventually(t, "signed", func() bool { return g.signature() != "" })
	write('B')
	target.look()
	if target.current.Load() == old {
		t.Fatal("the new secret is not taken up")
	}
	write('C')
	if got := p.reload(); !slices.Equal(got.Queues.Changed, []string{"one"}) {
		t.Errorf("a reload with another secret: %+v", got)
	}
}

// A machine is overrun as a whole, however its name is spelt.
func TestTargetsOfOneSiteSlowDownTogether(t *testing.T) {
	for text, want := range map[string]string{
		"http://db.example/a":       "http://db.example:80",
		"HTTP://DB.Example:80/b?c":  "http://db.example:80",
		"https://db.example":        "https://db.example:443",
		"http://[::1]:9000/x":       "http://[::1]:9000",
		"http://db.example:8080/a/": "http://db.example:8080",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := siteOf(u); got != want {
			t.Errorf("%s is of %s, want %s", text, got, want)
		}
	}
	g := newSink(t)
	p := run(t, shop)
	other := strings.Replace(g.URL, "127.0.0.1", "LOCALHOST", 1)
	p.write(shop + "queues:\n  - {name: one, target: {url: '" + other + "/a'}}\n" +
		"  - {name: two, target: {url: '" + strings.ToLower(other) + "/b'}}\n")
	p.reload()
	if a, b := p.s.jobs.find("one"), p.s.jobs.find("two"); a.config.Throttle != b.config.Throttle {
		t.Error("two queues of one target do not slow down together")
	}
}

// posts puts jobs, and gives the answer.
func (p *process) posts(kind, body string) string {
	p.t.Helper()
	secret, _, err := api.CreateToken(p.s.dataFolder(), api.Token{Scopes: []string{"put"}})
	if err != nil {
		p.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(p.t.Context(), "POST", p.operators+"/v1/queues/one/jobs",
		strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+secret)
	r.Header.Set("Content-Type", kind)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		p.t.Fatal(res.Status, string(b), err)
	}
	return string(b)
}
