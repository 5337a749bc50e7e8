package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/deliver"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/ratelimit"
)

// A sink is a target that records the bodies and signatures that it receives.
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

// got returns the bodies so far, sorted.
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
	if err := two.Resume(t.Context()); err != nil { // it was paused, and is still
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
	var left *api.RollbackError
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

// The receiver of completions gets each job that has ended, signed, again when it has refused it, and with
// the same key.
func TestCompletionsGoToTheirReceiver(t *testing.T) {
	g := newReceiver(t, http.StatusInternalServerError, http.StatusServiceUnavailable)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b, _ := io.ReadAll(r.Body); string(b) == "bad" {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(target.Close)
	p := run(t, shop)
	to := func(completion string) string {
		return shop + fmt.Sprintf("queues:\n  - {name: orders, target: {url: '%s'}%s}\n"+
			"  - {name: ended, target: {url: '%s/in', secret_files: [%s]}, min_backoff: 10ms}\n",
			target.URL, completion, g.URL, secretFile(t, oneSecret))
	}
	p.write(to(", completion: {queue: ended}"))
	p.reload()
	p.put("orders", "good")
	g.awaits(t, "job_delivered")
	p.put("orders", "bad")
	g.awaits(t, "job_delivered", "job_dead")
	keys := map[string]bool{}
	for _, l := range g.got() {
		if err := verify(oneSecret, &l, time.Now()); err != nil {
			t.Errorf("%s: %v", l.text, err)
		}
		keys[l.header.Get("Idempotency-Key")] = true
	}
	if len(g.got()) != 4 || len(keys) != 2 {
		t.Errorf("%d attempts with the keys %v", len(g.got()), keys)
	}
	text := get(t, p.operators+"/metrics", "").body
	for _, want := range []string{`headgate_queue_completions_total{queue="orders"} 2`,
		`headgate_queue_completions_waiting{queue="orders"} 0`, `headgate_queue_completions_lost_total{queue="orders"} 0`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
	p.write(to(", completion: {queue: ended, on: [canceled]}"))
	p.reload()
	p.put("orders", "bad", "good")
	eventually(t, "ended", func() bool {
		s, err := p.queue("orders").Status(t.Context())
		return err == nil && s.Depth == 0 && s.Dead == 2
	})
	p.write(to(""))
	p.reload()
	if n := len(g.taken()); n != 2 {
		t.Errorf("%d were taken: %v", n, g.taken())
	}
}

// Overload concerns a machine as a whole, however its name is spelled.
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

// posts puts jobs, and returns the answer.
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

func TestJobsLeaveRoomOnTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free, looks := uint64(130<<20), 0
		d := newDiskRoom("data")
		d.look = func(string) (uint64, uint64, error) { looks++; return free, 10 << 30, nil }
		for i, st := range []struct {
			bytes int64
			fits  bool
		}{{20 << 20, true}, {20 << 20, false}, {10 << 20, true}, {1, false}} {
			if err := d.take(st.bytes); (err == nil) != st.fits {
				t.Errorf("%d: %d bytes of 30 MB: %v", i, st.bytes, err)
			}
		}
		if looks != 1 {
			t.Errorf("%d looks at once", looks)
		}
		time.Sleep(lookAgain)
		if err := d.take(20 << 20); err != nil {
			t.Errorf("after another look: %v", err)
		}
		time.Sleep(lookAgain)
		free, d.look = 3<<20, func(string) (uint64, uint64, error) { return free, 40 << 20, nil }
		if d.take(1<<20) != nil || d.take(1) == nil {
			t.Error("of a small disk a twentieth is kept free")
		}
	})
}

// finds writes the record of an amount or a rate that another process has found.
func (p *process) finds(key string, n int64) {
	p.t.Helper()
	b := fmt.Appendf(nil, `{"version": %d, "shown": {"amount": %d, "reason": "full"}, "in_force": %d}`,
		uint64(1)<<50, n, n)
	for { // the process may write at the same time
		_, revision, err := p.s.node.Records.Load(p.t.Context(), key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			p.t.Fatal(err)
		}
		if _, err = p.s.node.Records.CompareAndSwap(p.t.Context(), key, revision, b); err == nil {
			return
		}
	}
}

// A queue that was removed, and is back, delivers at the rate that was found meanwhile, from the first job
// on. With a number, it forgets that.
func TestAQueueThatComesBackReadsItsRate(t *testing.T) {
	p := run(t, shop)
	write := func(rate string) {
		t.Helper()
		p.write(shop + "queues:\n  - {name: one, target: {url: 'http://127.0.0.1:1/'}, rate: " + rate + "}\n")
		p.reload()
	}
	rate := func() float64 {
		t.Helper()
		eventually(t, "a host", p.queue("one").Hosted)
		var s queue.Status
		eventually(t, "the rate is read", func() bool {
			s, _ = p.queue("one").Status(t.Context())
			return s.Rate != 5
		})
		return s.Rate
	}
	const auto = "{auto: true, min: 5, max: 500, start: 300}"
	write(auto)
	if got := rate(); got != 300 {
		t.Errorf("it begins with %v a second", got)
	}
	was := p.s.jobs.rates["one"]
	p.write(shop)
	p.reload()
	if len(p.s.jobs.rates) > 0 {
		t.Error("the rate of a queue that is removed is kept")
	}
	p.finds("queue-rate.one", 10)
	if write(auto); p.s.jobs.rates["one"] == was || rate() != 10 {
		t.Errorf("it is back with %v a second, 10 were found", rate())
	}
	write("7")
	if write(auto); rate() != 300 {
		t.Errorf("%v a second, found before the rate was a number", rate())
	}
}

// The queues of the configuration check the free space, also after a reload.
func TestAPutIsRefusedWhileTheDiskIsNearlyFull(t *testing.T) {
	g := newSink(t)
	p := run(t, shop)
	queues := "queues:\n  - {name: one, rate: 50, target: {url: '" + g.URL + "'}}\n"
	p.write(shop + queues)
	p.reload()
	p.write(shop + strings.Replace(queues, "rate: 50", "rate: 70", 1))
	p.reload()
	room := p.s.jobs.room
	set := func(free uint64) {
		room.mu.Lock()
		defer room.mu.Unlock()
		room.at, room.look = time.Time{}, func(string) (uint64, uint64, error) { return free, 1 << 40, nil }
	}
	set(keptFree)
	_, err := p.queue("one").Put(t.Context(), []queue.Job{{Body: []byte("a")}})
	if !errors.Is(err, queue.ErrFull) || !strings.Contains(err.Error(), "100 MB are kept free") {
		t.Errorf("a put on a full disk: %v", err)
	}
	set(keptFree + 1<<20)
	p.put("one", "b")
	eventually(t, "delivered", func() bool { return g.got() == "b" })
}

func TestASharedTargetsPaceFollowsItsLimit(t *testing.T) {
	limits, err := ratelimit.New(ratelimit.Config{Limits: []ratelimit.Limit{{
		Name: "db", Rule: limit.Rule{Algorithm: limit.SlidingLog, Amount: 10, Window: time.Second}}}})
	if err != nil {
		t.Fatal(err)
	}
	pace := deliver.Pace{Amount: 10, Window: time.Second, Shared: true}
	slow, err := deliver.NewThrottle(pace)
	if err != nil {
		t.Fatal(err)
	}
	th := &throttle{Throttle: slow, rules: limits, limit: "db", pace: pace}
	now := time.Now()
	apart := func(want time.Duration) {
		t.Helper()
		now = now.Add(time.Second)
		ok, at := th.Pass(now, 1)
		for ok { // first what was late, then the next
			ok, at = th.Pass(now, 1)
		}
		if at.Sub(now) != want {
			t.Errorf("the next in %v, want %v", at.Sub(now), want)
		}
	}
	amount := func(n int64) {
		t.Helper()
		err := limits.Update("db", func(c *ratelimit.Limit) error {
			c.Amount = n
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	apart(100 * time.Millisecond)
	amount(100)
	apart(10 * time.Millisecond)
	amount(0) // the limit itself allows nothing
	apart(10 * time.Millisecond)
	amount(5)
	apart(200 * time.Millisecond)
}

const closedAndOpen = `
  - {name: shop, host: shop.example, origin: ORIGIN, closed: true, total_active_users: 9, new_users_per_minute: 9}
  - {name: rest, origin: ORIGIN, suspended: true, total_active_users: 9, new_users_per_minute: 9}
`

// TestWalls3TargetsThatAreNoPath, finding 3: a target that is not a path is rejected and not sent
// to any origin.
func TestWalls3TargetsThatAreNoPath(t *testing.T) {
	origin := newLineOrigin(t)
	visitors, _, _ := start(t, origin.url, closedAndOpen)
	for _, start := range []string{
		"GET http:http://shop.example/tickets", "POST http:/tickets", "GET shop.example:80", "GET *", "POST *",
		"GET http://shop.example", "GET http://shop.example?x", "GET x:y", "GET ?x", "GET tickets",
		"GET mailto:a@shop.example", "CONNECT shop.example:443",
		"CONNECT /tickets", "CONNECT http://shop.example/",
		"GET http://%73hop.example/", "GET http://other.example:80:80/",
	} {
		r := raw(t, visitors, start+" HTTP/1.1\r\nHost: other.example\r\n\r\n")
		if lines, _ := origin.seen(); r.StatusCode != http.StatusBadRequest || len(lines) > 0 {
			t.Errorf("%s: %d, and the origin saw %q", start, r.StatusCode, lines)
		}
	}
	r := raw(t, visitors, "OPTIONS * HTTP/1.1\r\nHost: other.example\r\n\r\n")
	if lines, _ := origin.seen(); r.StatusCode != http.StatusOK || len(lines) > 0 || len(r.body) > 0 {
		t.Errorf("OPTIONS *: %d, and the origin saw %q", r.StatusCode, lines)
	}
}

// TestWalls3TheHostOfATargetDecides checks that the host of the decision is the host that is sent.
func TestWalls3TheHostOfATargetDecides(t *testing.T) {
	origin := newLineOrigin(t)
	visitors, _, _ := start(t, origin.url, closedAndOpen)
	if r := raw(t, visitors, "GET http://shop.example/a HTTP/1.1\r\nHost: other.example\r\n\r\n"); r.StatusCode != 503 {
		t.Errorf("the room of the target's host: %d", r.StatusCode)
	}
	if r := raw(t, visitors, "GET http://u:p@SHOP.example:81/a HTTP/1.1\r\nHost: x\r\n\r\n"); r.StatusCode != 503 {
		t.Errorf("the room of the target's host: %d", r.StatusCode)
	}
	raw(t, visitors, "GET http://other.example:81/a%2fb?c HTTP/1.1\r\nHost: shop.example\r\n\r\n")
	lines, hosts := origin.seen()
	if len(lines) != 1 || lines[0] != "GET /a%2fb?c HTTP/1.1" || hosts[0] != "other.example:81" {
		t.Errorf("the origin saw %q of %q", lines, hosts)
	}
	if r := raw(t, visitors, "GET / HTTP/1.1\r\nHost: other.example\r\nHost: shop.example\r\n\r\n"); r.StatusCode != 400 {
		t.Errorf("two hosts: %d", r.StatusCode)
	}
}

// TestWalls16HostsAreReadInOneWay, finding 16: each Host belongs to its room and is sent as it was
// read, or is rejected.
func TestWalls16HostsAreReadInOneWay(t *testing.T) {
	origin := newLineOrigin(t)
	visitors, _, _ := start(t, origin.url, closedAndOpen)
	ask := func(host string) (int, []string) {
		t.Helper()
		r := raw(t, visitors, "POST /robots.tx HTTP/1.1\r\nHost: "+host+"\r\nContent-Length: 0\r\n\r\n")
		_, hosts := origin.seen()
		return r.StatusCode, hosts
	}
	for _, host := range []string{"shop.example", "SHOP.example:80", "shop.example.", "Shop.Example.:8080",
		"shop.example:"} {
		if code, hosts := ask(host); code != 503 || len(hosts) > 0 {
			t.Errorf("%s: %d, and the origin saw %q", host, code, hosts)
		}
	}
	for _, host := range []string{
		"shop.example..", "shop.example..:80", "shop..example", ".shop.example", ".", "shop.example:80:80",
		"shop.example:x", "a@shop.example", "shop.example@a", "shop.example a",
		"shop%2eexample", "shop.example/",
		"shop.example\\", "shop.example,other", "[::1%25eth0]", "[::1", "::1", "[shop.example]",
		"sh\xc3\xb6p.example",
		"shop.example#", "shop.example?", "shop.example;", ":80", "shop.example:123456",
	} {
		if code, hosts := ask(host); code != 400 || len(hosts) > 0 {
			t.Errorf("%s: %d, and the origin saw %q", host, code, hosts)
		}
	}
	for host, want := range map[string]string{
		"other.example.": "other.example", "other.example.:81": "other.example:81",
		"A_b.example":      "A_b.example",
		"[2001:db8::1]:80": "[2001:db8::1]:80", "127.0.0.1": "127.0.0.1",
	} {
		if code, hosts := ask(host); code != 200 || len(hosts) != 1 || hosts[0] != want {
			t.Errorf("%s: %d, and the origin saw %q", host, code, hosts)
		}
	}
}

// TestWalls3TargetsByHTTP2 checks the same for pseudo-headers.
func TestWalls3TargetsByHTTP2(t *testing.T) {
	origin := newLineOrigin(t)
	visitors, _, _ := start(t, origin.url, closedAndOpen)
	for _, x := range []struct{ method, authority, path, want string }{
		{"GET", "other.example", "/a%2fb", "200"},
		{"GET", "shop.example", "/a", "503"},
		{"GET", "shop.example..", "/a", "400"},
		{"GET", "other.example", "tickets", ""},
		{"GET", "other.example", "http:http://shop.example/tickets", "400"},
		{"GET", "other.example", "http://shop.example/tickets", "400"},
		{"GET", "other.example", "", ""},
		{"GET", "other.example", "*", "400"},
		{"POST", "shop.example", "/x/..%2frobots.txt", "400"},
		{"CONNECT", "shop.example:443", "", "400"},
	} {
		got := askHTTP2(t, visitors, x.method, x.authority, x.path)
		lines, _ := origin.seen()
		if got != x.want || (len(lines) > 0) != (x.want == "200") {
			t.Errorf("%s %s%s: %q, want %q; the origin saw %q", x.method, x.authority, x.path, got, x.want, lines)
		}
	}
}

// askHTTP2 returns the status of an answer, "" if the stream was reset.
func askHTTP2(t *testing.T, visitors, method, authority, path string) (status string) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(visitors, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var block bytes.Buffer
	head := hpack.NewEncoder(&block)
	field := func(name, value string) { head.WriteField(hpack.HeaderField{Name: name, Value: value}) }
	field(":method", method)
	field(":authority", authority)
	if method != "CONNECT" {
		field(":scheme", "http")
		field(":path", path)
	}
	io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.WriteSettings()
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(),
		EndStream: true, EndHeaders: true})
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch x := frame.(type) {
		case *http2.MetaHeadersFrame:
			return x.PseudoValue("status")
		case *http2.RSTStreamFrame:
			return ""
		}
	}
}
