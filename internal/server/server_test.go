package server

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/golang-jwt/jwt/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/status"
	"github.com/headgate/headgate/tests/yardstick"
)

// start runs a real server in front of origin and returns its two addresses.
func start(t *testing.T, origin, rooms string) (visitors, operators string, stop func() error) {
	t.Helper()
	s, stop := serve(t, origin, rooms)
	return "http://" + s.Addr().String(), "http://" + s.AdminAddr().String(), stop
}

func serve(t testing.TB, origin, rooms string) (s *Server, stop func() error) {
	t.Helper()
	text := "listen: 127.0.0.1:0\nadmin_listen: 127.0.0.1:0\ndata: " + t.TempDir() + "\nrooms:\n" +
		strings.ReplaceAll(rooms, "ORIGIN", origin)
	cfg, err := config.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s, err = Open(ctx, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = func() error { cancel(); err := <-done; done <- err; return err }
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	ready := "http://" + s.AdminAddr().String() + "/readyz"
	eventually(t, "ready", func() bool { return get(t, ready, "").StatusCode == 200 })
	return s, stop
}

const oneRoom = "  - {name: shop, origin: ORIGIN, total_active_users: 1, new_users_per_minute: 100, " +
	"session_duration: 2s}\n"

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	yardstick.Await(t, what, ok)
}

type reply struct {
	*http.Response
	body, cookie string
}

// fetch sends a request by a method of net/http, and reads the whole answer.
func fetch(t testing.TB, do func(*http.Request) (*http.Response, error), r *http.Request) reply {
	t.Helper()
	res, err := do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{Response: res, body: string(b)}
}

func get(t testing.TB, url, cookie string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html")
	if cookie != "" {
		r.Header.Set("Cookie", cookie)
	}
	out := fetch(t, http.DefaultTransport.RoundTrip, r)
	out.cookie = cookie
	for _, c := range out.Cookies() {
		out.cookie = c.Name + "=" + c.Value
	}
	loads(t, r, out.body, out.cookie)
	return out
}

// loads requests what a browser loads with a waiting page: its image, with which the cookie comes
// back.
func loads(t testing.TB, page *http.Request, body, cookie string) {
	t.Helper()
	_, src, ok := strings.Cut(body, `<img src="`)
	if path, _, _ := strings.Cut(src, `"`); ok && strings.HasSuffix(path, "here.gif") {
		part := page.Clone(t.Context())
		part.URL.Path, part.URL.RawQuery = path, ""
		part.Header.Set("Accept", "image/*")
		part.Header.Set("Cookie", cookie)
		res, err := http.DefaultTransport.RoundTrip(part)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
}

func roomStatus(t *testing.T, operators string) status.Room {
	t.Helper()
	var m struct{ Rooms []status.Room }
	if err := json.Unmarshal([]byte(get(t, operators+"/v1/rooms", "").body), &m); err != nil {
		t.Fatal(err)
	}
	return m.Rooms[0]
}

func TestServerHoldsTheSecondVisitorAndTellsOperators(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "origin ", r.URL, " ", r.Header.Get("Cookie"))
	}))
	defer origin.Close()
	visitors, operators, _ := start(t, origin.URL, oneRoom)
	a := get(t, visitors+"/x?y=z", "")
	if a.body != "origin /x?y=z " || a.cookie == "" {
		t.Fatalf("%d %q", a.StatusCode, a.body)
	}
	if again := get(t, visitors+"/", a.cookie); !strings.HasPrefix(again.body, "origin / ") ||
		strings.Contains(again.body, "__cf") {
		t.Errorf("%q: the origin must answer, and not see our cookie", again.body)
	}
	b := get(t, visitors+"/", "")
	if b.StatusCode != 503 || b.Header.Get(headgate.StateHeader) != "waiting" ||
		!strings.Contains(b.body, "<!doctype html>") {
		t.Fatalf("%d %q", b.StatusCode, b.body)
	}
	s := roomStatus(t, operators)
	if s.Status != "queueing" || s.ActiveUsers != 1 || s.WaitingUsers != 1 {
		t.Errorf("%+v", s)
	}
	metrics := get(t, operators+"/metrics", "").body
	for _, want := range []string{
		`headgate_active_users{room="shop"} 1`, `headgate_waiting_users{room="shop"} 1`,
		`headgate_admitted_total{room="shop"} 1`, "headgate_call_empty_seconds_count",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("%s is not in the metrics", want)
		}
	}
	if get(t, operators+"/livez", "").StatusCode != 200 {
		t.Error("not live")
	}
}

func TestServerRefusesHugeHeaders(t *testing.T) {
	origin := httptest.NewServer(http.NotFoundHandler())
	defer origin.Close()
	visitors, _, _ := start(t, origin.URL, oneRoom)
	for name, head := range map[string]string{
		"cookie": "Cookie: __cfwaitingroom_shop=" + strings.Repeat("A", 1<<20),
		"header": "X-Big: " + strings.Repeat("A", 1<<20),
	} {
		c, err := net.Dial("tcp", strings.TrimPrefix(visitors, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		go fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", head)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%s of a megabyte: %v %v", name, res, err)
		}
		c.Close()
	}
}

func TestServerSpeaksHTTP2InCleartext(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "origin")
	}))
	defer origin.Close()
	visitors, _, _ := start(t, origin.URL, oneRoom)
	p := &http.Protocols{}
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: p}
	defer tr.CloseIdleConnections()
	res, err := (&http.Client{Transport: tr}).Get(visitors)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.ProtoMajor != 2 || res.StatusCode != 200 {
		t.Errorf("%s %d", res.Proto, res.StatusCode)
	}
}

func TestServerDrains(t *testing.T) {
	begun, end := make(chan bool), make(chan bool)
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		begun <- true
		<-end
		fmt.Fprint(w, "origin")
	}))
	defer origin.Close()
	visitors, operators, stop := start(t, origin.URL, oneRoom)
	answer := make(chan reply)
	go func() { answer <- get(t, visitors+"/", "") }()
	<-begun
	stopped := make(chan error)
	go func() { stopped <- stop() }()
	eventually(t, "not ready", func() bool { return get(t, operators+"/readyz", "").StatusCode == 503 })
	close(end)
	if a := <-answer; a.body != "origin" {
		t.Errorf("a request in flight was cut: %q", a.body)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestServerFindsTheMostSpecificRoom(t *testing.T) {
	origin := httptest.NewServer(http.NotFoundHandler())
	defer origin.Close()
	visitors, _, _ := start(t, origin.URL, `
  - {name: all, origin: ORIGIN, total_active_users: 9, new_users_per_minute: 9}
  - {name: sale, path: /sale, origin: ORIGIN, total_active_users: 9, new_users_per_minute: 9}
  - {name: other, host: other.example, origin: ORIGIN, total_active_users: 9, new_users_per_minute: 9}
`)
	for path, want := range map[string]string{
		"/": "_all", "/sale": "_sale", "/sale/1": "_sale", "/sales": "_all",
		"//sale": "_sale", "/x/../sale": "_sale", "/sale/../": "_all", "/./sale": "_sale", "/SALE/x": "_sale",
	} {
		res := get(t, visitors+path, "")
		if res.StatusCode == http.StatusPermanentRedirect { // rooms differ by the reading
			res = get(t, visitors+res.Header.Get("Location"), "")
		}
		if got := res.cookie; !strings.HasPrefix(got, "__cfwaitingroom"+want+"=") {
			t.Errorf("%s: cookie %q, want of room%s", path, got, want)
		}
	}
}

func TestServerSaysWhichAddressIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg, err := config.Parse("t", []byte("listen: "+l.Addr().String()+"\nadmin_listen: 127.0.0.1:0\n"+
		"data: "+t.TempDir()+"\n"+
		"rooms: [{name: a, origin: 'http://127.0.0.1:1', total_active_users: 1, new_users_per_minute: 1}]"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), cfg, slog.New(slog.DiscardHandler))
	e, ok := err.(*hint.Error)
	if !ok || !strings.Contains(e.Error(), l.Addr().String()) || !strings.Contains(e.Hint(), "--listen") {
		t.Errorf("%v", err)
	}
}

// Each cause has a hint of its own: without permission for port 80, do not look for another
// program.
func TestAddressErrorsSayWhatToDo(t *testing.T) {
	bind := func(why syscall.Errno) error {
		return &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", why)}
	}
	_, elsewhere := new(Machine).listen("192.0.2.1:0", "tls.listen") // of documentation: no machine has it
	for _, c := range []struct {
		err  error
		want string
	}{
		{addressError("listen", ":80", bind(syscall.EACCES)), "see As a service in docs.*, or set --listen "},
		{addressError("admin_listen", ":8081", bind(syscall.EADDRINUSE)), "another program .* set --admin-listen "},
		{elsewhere, "this machine does not have that address: set tls.listen "},
		{addressError("listen", "nowhere:80", &net.DNSError{Err: "no such host"}),
			"^set --listen to an address of this machine"},
	} {
		e, ok := errors.AsType[*hint.Error](c.err)
		if !ok || !regexp.MustCompile(c.want).MatchString(e.Hint()) {
			t.Errorf("%v: %q does not match %q", c.err, e.Hint(), c.want)
		}
	}
}

// metric returns the value of one series, such as headgate_active_users{room="shop"}.
func (p *process) metric(series string) float64 {
	p.t.Helper()
	for line := range strings.Lines(get(p.t, p.operators+"/metrics", "").body) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				p.t.Fatal(err)
			}
			return v
		}
	}
	return math.NaN()
}

func TestOffsetOfTheClock(t *testing.T) {
	for _, c := range []struct {
		others []float64
		want   float64
		why    string
	}{
		{nil, 0, "alone"},
		{[]float64{3}, -3, "of two nobody can tell"},
		{[]float64{-3}, 3, "seen from the other"},
		{[]float64{0, 3}, 0, "of three the one in the middle is right"},
		{[]float64{-3, -3}, 3, "here it is ahead of both"},
		{[]float64{5, 5, 4.9}, -4.95, "behind three"},
		{[]float64{0, 0.1, 30, -0.1}, 0, "one of five is off, and not this one"},
	} {
		if got := offset(c.others); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v gives %g, want %g", c.why, c.others, got, c.want)
		}
	}
}

const threeInside = "rooms:\n  - {name: shop, origin: ORIGIN, total_active_users: 3, " +
	"new_users_per_minute: 100, session_duration: 10m}\n"

// A lowered limit is in force when enough visitors have left; until then the metrics show no
// excess.
func TestMetricsOfALimitThatWasLowered(t *testing.T) {
	t.Parallel()
	p := run(t, threeInside)
	room := func(name string) float64 { return p.metric(name + `{room="shop"}`) }
	if got := room("headgate_estimated_wait_seconds"); got != 0 {
		t.Errorf("nobody waits, and the wait is %g s", got)
	}
	for range 4 {
		get(t, p.visitors+"/", "")
	}
	p.change("shop", map[string]string{"total_active_users": "1"})
	eventually(t, "lowered", func() bool { return room("headgate_total_active_users_limit") == 1 })
	in, bound := room("headgate_active_users"), room("headgate_active_users_bound")
	if in != 3 || bound != 3 {
		t.Errorf("%g inside, bound %g: want 3 of 3", in, bound)
	}
	in, bound = room("headgate_new_users_last_minute"), room("headgate_new_users_bound")
	if in != 3 || bound != 100 {
		t.Errorf("%g new, bound %g: want 3 of 100", in, bound)
	}
	p.change("shop", map[string]string{"total_active_users": "5"})
	eventually(t, "raised", func() bool { return room("headgate_active_users_bound") == 5 })
	p.change("shop", map[string]string{"queue_all": "true"})
	eventually(t, "held", func() bool { return room("headgate_estimated_wait_seconds") == -1 })
}

func TestMetricsOfTheMachine(t *testing.T) {
	t.Parallel()
	p := run(t, threeInside)
	free, size := p.metric("headgate_data_free_bytes"), p.metric("headgate_data_size_bytes")
	if free <= 0 || !(size > free) {
		t.Errorf("%g bytes free of %g", free, size)
	}
	if p.metric(`headgate_room_hosted{datacenter="",room="shop"}`) != 1 ||
		p.metric(`headgate_room_state_age_seconds{room="shop"}`) != 0 {
		t.Error("who is alone counts the room, and knows all of it")
	}
	if n := p.metric("headgate_cluster_nodes"); !math.IsNaN(n) {
		t.Errorf("%g nodes of no cluster", n)
	}
}

func TestMetricsAsOpenMetrics(t *testing.T) {
	t.Parallel()
	p := run(t, threeInside)
	ask := func(accept string) (kind, body string) {
		r, err := http.NewRequestWithContext(t.Context(), "GET", p.operators+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", accept)
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var b strings.Builder
		if err := res.Write(&b); err != nil {
			t.Fatal(err)
		}
		return res.Header.Get("Content-Type"), b.String()
	}
	kind, body := ask("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")
	if !strings.HasPrefix(kind, "application/openmetrics-text") || !strings.Contains(body, "\n# EOF\n") ||
		!strings.Contains(body, "# TYPE headgate_admitted counter\n") {
		t.Errorf("%s:\n%s", kind, body)
	}
	suffixes := map[string][]string{"counter": {"_total", "_created"}, "info": {"_info"},
		"summary":   {"_count", "_sum", "_created"},
		"histogram": {"_count", "_sum", "_bucket", "_created"}}
	taken := map[string]string{} // OpenMetrics 1.0, "MetricFamily": names must not clash
	for line := range strings.Lines(body) {
		f := strings.Fields(line)
		if len(f) != 4 || f[0] != "#" || f[1] != "TYPE" {
			continue
		}
		for _, suffix := range append(suffixes[f[3]], "") {
			if name := f[2] + suffix; taken[name] != "" {
				t.Errorf("%s is of two metrics, %s and %s", name, f[2], taken[name])
			} else {
				taken[name] = f[2]
			}
		}
	}
	for _, name := range []string{"go_memstats_alloc_bytes", "go_memstats_heap_inuse_bytes", "go_goroutines",
		"go_gc_heap_allocs_bytes_total", "process_resident_memory_bytes"} {
		if taken[name] == "" {
			t.Errorf("%s is missing", name)
		}
	}
	kind, body = ask("text/plain")
	if !strings.HasPrefix(kind, "text/plain") || strings.Contains(body, "# EOF") ||
		!strings.Contains(body, "# TYPE headgate_admitted_total counter\n") {
		t.Errorf("%s:\n%s", kind, body)
	}
}

// A process keeps the engine with which it was started.
func TestAnotherEngineNeedsARestart(t *testing.T) {
	on := func(urls ...string) *config.Config {
		return &config.Config{Engine: &config.Engine{URLs: urls}}
	}
	if got := needsRestart(on("nats://n1:4222"), on("nats://n1:4222")); len(got) > 0 {
		t.Errorf("the same engine: %v", got)
	}
	for name, now := range map[string]*config.Config{
		"another": on("nats://n2:4222"), "one more": on("nats://n1:4222", "nats://n2:4222"), "none": {},
	} {
		if got := needsRestart(on("nats://n1:4222"), now); !slices.Equal(got, []string{"engine"}) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Faults in the files of targets and webhooks are reported before anything is opened: the data
// folder, the ports of a cluster, the addresses.
func TestCheckFilesOfTargets(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, torn := file("good", oneSecret, 0o600), file("torn", "-----BEGIN CERT", 0o600)
	open := file("open", oneSecret, 0o644)
	parse := func(target, hook string) *config.Config {
		cfg, err := config.Parse(filepath.Join(dir, "headgate.yaml"), []byte("data: "+dir+"/data\n"+
			"listen: 127.0.0.1:0\nadmin_listen: 127.0.0.1:0\n"+
			"queues:\n  - {name: one, target: {url: 'https://127.0.0.1:1', "+target+"}}\n"+
			"webhooks:\n  - {name: ops, url: 'https://127.0.0.1:1', secret_files: ["+hook+"]}\n"))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	for _, c := range []struct {
		target, hook string
		faults       int
	}{
		{"secret_files: [" + good + "]", good, 0},
		{"secret_files: [" + dir + "/none]", good, 1},
		{"secret_files: [" + good + "]", torn, 1},
		{"secret_files: [" + open + "]", open, 2},
		{"ca: " + torn, good, 1},
		{"certificate: " + torn + ", key: " + torn, dir + "/none", 2},
	} {
		cfg := parse(c.target, c.hook)
		if faults := config.Faults(CheckFiles(cfg)); len(faults) != c.faults {
			t.Errorf("%s, webhook %s: %d faults %v, want %d", c.target, c.hook, len(faults), faults, c.faults)
		}
		if c.faults == 0 {
			continue
		}
		if _, err := Open(t.Context(), cfg, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%s, webhook %s: headgate starts", c.target, c.hook)
		}
		if _, err := os.Stat(dir + "/data"); err == nil {
			t.Errorf("%s, webhook %s: the data folder was made before", c.target, c.hook)
		}
	}
}

// TestAnEventOfTheFile checks an event by the clock: its prequeue holds newcomers, its method is in
// force from its start, and at its end the room is as before.
func TestAnEventOfTheFile(t *testing.T) {
	t.Parallel()
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte("origin"))
	}))
	t.Cleanup(origin.Close)
	p := &process{t: t, dir: t.TempDir()}
	p.save("headgate.yaml", "")
	p.save("sale.html", "<p>sale {{state}}")
	p.file = p.dir + "/headgate.yaml"
	room := "rooms:\n  - name: shop\n    origin: " + origin.URL + "\n" +
		"    total_active_users: 100\n    new_users_per_minute: 100\n"
	p.write(room)
	p.start()
	t.Cleanup(func() { p.stop() })
	const step = 4 * time.Second // each step has a reload, writes and requests
	now := time.Now()
	at := func(n time.Duration) string { return now.Add(n * step).Format(time.RFC3339Nano) }
	p.write(room + fmt.Sprintf("    events:\n    - {name: sale, prequeue_start: %q, start: %q, end: %q,\n"+
		"       shuffle: true, method: reject, html_file: sale.html}\n", at(1), at(2), at(3)))
	p.reload()
	if s := p.status("shop"); s.Draw == nil || len(s.Draw.Hash) != 64 || s.Event != nil {
		t.Errorf("before: %+v %+v", s.Event, s.Draw)
	}
	if r := get(t, p.visitors+"/", ""); r.StatusCode != 200 {
		t.Errorf("before: %d", r.StatusCode)
	}
	eventually(t, "the prequeue", func() bool { return p.status("shop").Status == "event_prequeueing" })
	if r := get(t, p.visitors+"/", ""); r.StatusCode != 503 || r.Header.Get("Headgate-State") != "opens_at" {
		t.Errorf("prequeue: %d %v", r.StatusCode, r.Header)
	}
	eventually(t, "the page of the prequeue", func() bool {
		return get(t, p.visitors+"/", "").body == "<p>sale opens_at"
	})
	eventually(t, "the start", func() bool {
		return p.status("shop").Method == "reject" &&
			p.status("shop").Draw.Finished
	})
	if r := get(t, p.visitors+"/", ""); r.Header.Get("Headgate-State") != "closed" ||
		r.body != "<p>sale closed" {
		t.Errorf("event: %d %v %s", r.StatusCode, r.Header, r.body)
	}
	eventually(t, "the end", func() bool {
		s := p.status("shop")
		return s.Event == nil && s.Method == "fifo"
	})
	p.change("shop", map[string]string{"method": "reject"})
	if r := get(t, p.visitors+"/", ""); r.Header.Get("Headgate-State") != "closed" ||
		strings.Contains(r.body, "sale") {
		t.Errorf("a live change of the method: %d %v", r.StatusCode, r.Header)
	}
	p.change("shop", map[string]string{"method": "passthrough"})
	if r := get(t, p.visitors+"/", ""); r.StatusCode != 200 || p.status("shop").Method != "passthrough" {
		t.Errorf("after: %d %q", r.StatusCode, r.body)
	}
}

// A visitor may say anything: only a trusted proxy says who it is, to headgate and to the origin.
func TestTheHeaderOfAnIdentityStopsHere(t *testing.T) {
	const room = "  - {name: shop, origin: ORIGIN, total_active_users: 1, new_users_per_minute: 100, " +
		"identity: {header: x-member, required: true, sign_in: /login}}\n"
	for trusted, want := range map[string][]string{
		"10.0.0.0/8":  {""},
		"127.0.0.0/8": {"ada"},
	} {
		heads := make(chan http.Header, 10)
		origin := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			heads <- r.Header
		}))
		defer origin.Close()
		visitors, _, _ := start(t, origin.URL, room+"trusted_proxies: ["+trusted+"]\n")
		ask := func(path string) reply {
			r, err := http.NewRequestWithContext(t.Context(), "GET", visitors+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header["X-Member"] = []string{"ada"}
			r.Header["x_member"], r.Header["X.MEMBER"] = []string{"eve"}, []string{"eve"}
			r.Header.Set("Accept", "text/html")
			return fetch(t, http.DefaultTransport.RoundTrip, r)
		}
		for _, path := range []string{"/robots.txt", "/login", "/"} { // excluded twice, and the room
			res := ask(path)
			if path == "/" && trusted == "10.0.0.0/8" {
				if res.StatusCode != 303 || res.Header.Get("Location") != "/login" {
					t.Errorf("an untrusted peer is told %s %v", res.Status, res.Header)
				}
				continue
			}
			eventually(t, path+" is served", func() bool { return len(heads) > 0 || ask(path).StatusCode == 200 })
			h := <-heads
			for name, values := range h {
				if strings.EqualFold(strings.NewReplacer("_", "-", ".", "-").Replace(name), "x-member") &&
					(name != "X-Member" || values[0] != want[0]) {
					t.Errorf("trusted %s, %s: the origin reads %s: %q", trusted, path, name, values)
				}
			}
			if h.Get("X-Member") != want[0] {
				t.Errorf("trusted %s, %s: the origin reads %q", trusted, path, h.Get("X-Member"))
			}
		}
	}
}

// A connector sends on what a visitor sends. So the header counts if a trusted proxy is before the
// application, and a proxy that asks is trusted to have replaced it.
func TestTheHeaderOfAnIdentityInQuestions(t *testing.T) {
	s, _ := serve(t, "http://127.0.0.1:1", "  - {name: shop, origin: ORIGIN, total_active_users: 1, "+
		"new_users_per_minute: 100, queue_all: true, identity: {header: x-member, required: true, sign_in: /login}}\n"+
		"trusted_proxies: [127.0.0.0/8, 10.0.0.0/8]\ndecide: {listen: \"127.0.0.1:0\"}\n")
	for _, c := range []struct {
		path, from, spelling string
		counts               bool
	}{
		{"/connect", "192.0.2.7", "X-Member", false},
		{"/connect", "10.0.0.1, 192.0.2.7", "X-Member", false},
		{"/connect", "192.0.2.7, 10.0.0.1", "X-Member", true},
		{"/connect", "", "X-Member", false},
		{"/connect", "192.0.2.7, 10.0.0.1", "X_member", false},
		{"/forward", "192.0.2.7", "X-Member", true},
		{"/forward", "192.0.2.7", "x.member", false},
	} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+s.DecideAddr().String()+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Accept": {"application/json"}, "X-Forwarded-Method": {"GET"}, c.spelling: {"ada"},
			"X-Forwarded-Proto": {"http"}, "X-Forwarded-Host": {"shop.example"}, "X-Forwarded-Uri": {"/"}}
		if c.from != "" {
			r.Header.Set("X-Forwarded-For", c.from)
		}
		want := map[bool]headgate.State{true: headgate.StateQueueAll, false: headgate.StateSignIn}[c.counts]
		got := fetch(t, http.DefaultTransport.RoundTrip, r).Header.Get(headgate.StateHeader)
		if got != string(want) {
			t.Errorf("%s from %q with %s: %s, want %s", c.path, c.from, c.spelling, got, want)
		}
	}
}

// A person has a number of calls, with whatever device, and also after the cookie is thrown away.
func TestANumberForEachPerson(t *testing.T) {
	var served atomic.Int64
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		served.Add(1)
		w.Header().Set(headgate.CommandHeader, "revoke") // the next order is one of another session
	}))
	defer origin.Close()
	visitors, _, _ := start(t, origin.URL, "  - {name: order, origin: ORIGIN, total_active_users: 100, "+
		"new_users_per_minute: 100, limits: [orders], identity: {header: x-member, required: true, sign_in: /login}}\n"+
		"trusted_proxies: [127.0.0.0/8]\n"+
		"limits:\n  - {name: orders, algorithm: sliding_log, amount: 2, window: 24h, key: [person]}\n")
	order := func(person string) int {
		r, err := http.NewRequestWithContext(t.Context(), "POST", visitors+"/", strings.NewReader("a=1"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"X-Member": {person}, "Accept": {"text/html"}, "Sec-Fetch-Mode": {"navigate"}}
		return fetch(t, http.DefaultTransport.RoundTrip, r).StatusCode
	}
	for range 2 { // the end of a session may take a moment
		eventually(t, "an order", func() bool { return order("ada") == 200 })
	}
	for range 3 {
		eventually(t, "no more orders", func() bool { return order("ada") == 429 })
	}
	eventually(t, "an order of somebody else", func() bool { return order("bob") == 200 })
	if n := served.Load(); n != 3 {
		t.Errorf("%d orders reached the site, want 3", n)
	}
}

// The whole way of a token: from a sign-in with keys in a file to one session on two devices.
func TestTokensOfASignInGiveOneSession(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k"}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "jwks.json")
	if err := os.WriteFile(file, set, 0o600); err != nil {
		t.Fatal(err)
	}
	token := func(who string) string {
		x := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{"iss": "login", "aud": "shop", "sub": who,
			"exp": time.Now().Add(time.Hour).Unix()})
		x.Header["kid"] = "k"
		text, err := x.SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return "session=" + text
	}
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "origin")
	}))
	defer origin.Close()
	visitors, operators, _ := start(t, origin.URL, "  - name: shop\n    origin: ORIGIN\n    total_active_users: 1\n"+
		"    new_users_per_minute: 100\n    identity:\n      jwt: {jwks: "+file+
		", issuer: login, audience: shop, cookie: session}\n      required: true\n      sign_in: /login?to={url}\n")
	if res := get(t, visitors+"/a?b", ""); res.StatusCode != 303 ||
		res.Header.Get("Location") != "/login?to=%2Fa%3Fb" {
		t.Errorf("without a token: %s %v", res.Status, res.Header)
	}
	if res := get(t, visitors+"/login?to=%2F", ""); res.body != "origin" {
		t.Errorf("the sign-in itself: %s", res.Status)
	}
	ada, bob := token("ada"), token("bob")
	for range 2 { // two devices
		eventually(t, "inside", func() bool { return get(t, visitors+"/", ada).body == "origin" })
	}
	if res := get(t, visitors+"/", bob); res.StatusCode != 503 {
		t.Errorf("a second person in a room for one: %s", res.Status)
	}
	eventually(t, "one inside, one waits", func() bool {
		s := roomStatus(t, operators)
		return s.ActiveUsers == 1 && s.WaitingUsers == 1 && s.NewUsersLastMinute == 1
	})
}
