package server

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/tests/tracestest"
	"github.com/headgate/headgate/tests/yardstick"
)

// traced runs a server in front of an origin, with a collector for its traces.
func traced(t *testing.T, keys, file string, origin http.HandlerFunc) (*process, *tracestest.Collector) {
	t.Helper()
	to := &tracestest.Collector{}
	c, o := httptest.NewServer(to), httptest.NewServer(origin)
	t.Cleanup(c.Close)
	t.Cleanup(o.Close)
	p := run(t, "traces: {endpoint: '"+c.URL+"', "+keys+"}\n"+strings.ReplaceAll(file, "ORIGIN", o.URL))
	return p, to
}

const tracedShop = `
limits:
  - {name: api, algorithm: sliding_log, amount: 2, window: 1h, key: ["header:x-client"]}
  - {name: all, algorithm: sliding_log, amount: 1000, window: 1h}
rooms:
  - name: shop
    origin: ORIGIN/base
    total_active_users: 1
    new_users_per_minute: 100
    exclude: {paths: ["/api/*"]}
    limits: [api, all]
`

// A tree holds the spans of one trace by their parent.
type tree map[string][]*tracepb.Span

// treesOf groups spans by trace, in the order in which the root spans began.
func treesOf(spans []*tracepb.Span) (all []tree) {
	slices.SortFunc(spans, func(a, b *tracepb.Span) int {
		return int(int64(a.StartTimeUnixNano) - int64(b.StartTimeUnixNano))
	})
	of := map[string]tree{}
	for _, s := range spans {
		id := string(s.TraceId)
		if of[id] == nil {
			of[id] = tree{}
			all = append(all, of[id])
		}
		of[id][string(s.ParentSpanId)] = append(of[id][string(s.ParentSpanId)], s)
	}
	return all
}

// root returns the only span without a parent.
func (x tree) root(t *testing.T) *tracepb.Span {
	t.Helper()
	if len(x[""]) != 1 {
		t.Fatalf("%d roots", len(x[""]))
	}
	return x[""][0]
}

func (x tree) children(of *tracepb.Span, kind tracepb.Span_SpanKind) (all []*tracepb.Span) {
	for _, s := range x[string(of.SpanId)] {
		if s.Kind == kind {
			all = append(all, s)
		}
	}
	return all
}

func wantTexts(t *testing.T, s *tracepb.Span, want map[string]string) {
	t.Helper()
	got := tracestest.Texts(s.Attributes)
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s: %s is %q, want %q; all are %v", s.Name, k, got[k], v, got)
		}
	}
}

const internal, server, client = tracepb.Span_SPAN_KIND_INTERNAL, tracepb.Span_SPAN_KIND_SERVER,
	tracepb.Span_SPAN_KIND_CLIENT

// A session, a waiting visitor, a bypass, a denial by a limit and a failing origin: the parent of
// each span, and what is recorded and what is not.
func TestTracesOfVisits(t *testing.T) {
	var mu sync.Mutex
	var parents []string
	p, to := traced(t, "sample: 1", tracedShop, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		parents = append(parents, strings.Join(r.Header["Traceparent"], "+"))
		mu.Unlock()
		if r.URL.Path == "/base/api/broken" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	ask := func(path, cookie string) reply {
		r, _ := http.NewRequest("GET", p.visitors+path+"?token=hidden", nil)
		r.Header = http.Header{"Accept": {"text/html"}, "Cookie": {"own=hidden; " + cookie},
			"X-Client": {"hidden"}, "User-Agent": {"hidden"}, "Referer": {"http://hidden/"},
			"X-Forwarded-For": {"192.0.2.77"},
			"Traceparent":     {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		return reply{Response: res}
	}
	codes := []int{}
	for _, path := range []string{"/in", "/in", "/api/broken", "/api/more"} {
		codes = append(codes, ask(path, "").StatusCode)
	}
	if !slices.Equal(codes, []int{200, 503, 500, 429}) {
		t.Fatalf("%v", codes)
	}
	p.stop()
	if _, fault := to.Requests(); fault != nil {
		t.Error(fault)
	}
	trees := treesOf(to.Spans())
	if len(trees) != 4 {
		t.Fatalf("%d traces", len(trees))
	}
	visit := trees[0].root(t)
	wantTexts(t, visit, map[string]string{"headgate.room": "shop", "headgate.state": "active",
		"http.request.method": "GET", "url.path": "/in", "url.scheme": "http", "url.query": "",
		"http.response.status_code": "200", "network.protocol.version": "1.1", "server.address": "127.0.0.1"})
	if visit.Kind != server || visit.Name != "GET shop" || visit.Status.GetCode() != 0 ||
		len(visit.Links) != 1 {
		t.Errorf("%v", visit)
	}
	limits, sent := trees[0].children(visit, internal), trees[0].children(visit, client)
	if len(limits) != 1 || len(sent) != 1 || len(trees[0]) != 2 {
		t.Fatalf("%v", trees[0])
	}
	wantTexts(t, limits[0], map[string]string{"headgate.limits": "api all ",
		"headgate.limits.allowed": "true"})
	wantTexts(t, sent[0], map[string]string{"http.response.status_code": "200",
		"server.address": "127.0.0.1"})
	if full := tracestest.Texts(sent[0].Attributes)["url.full"]; !strings.HasSuffix(full, "/base/in") {
		t.Errorf("url.full is %q", full)
	}
	mu.Lock()
	defer mu.Unlock()
	want := "00-" + hex.EncodeToString(visit.TraceId) + "-" + hex.EncodeToString(sent[0].SpanId) + "-01"
	if len(parents) != 2 || parents[0] != want {
		t.Errorf("the origin got %v, want %s first", parents, want)
	}
	for i, want := range []map[string]string{
		1: {"headgate.state": "waiting", "http.response.status_code": "503", "error.type": ""},
		2: {"headgate.state": "bypass", "http.response.status_code": "500", "error.type": "500"},
		3: {"headgate.state": "bypass", "http.response.status_code": "429", "error.type": ""},
	} {
		wantTexts(t, trees[i].root(t), want)
	}
	if trees[1].root(t).Status.GetCode() != 0 ||
		trees[2].root(t).Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR {
		t.Error("who waits has met no error, and whose origin fails has")
	}
	refused := trees[3].children(trees[3].root(t), internal)
	if len(refused) != 1 || len(trees[3].children(trees[3].root(t), client)) != 0 {
		t.Fatalf("%v", trees[3])
	}
	wantTexts(t, refused[0], map[string]string{"headgate.limits.allowed": "false",
		"headgate.limits.refused_by": "api "})
	said := fmt.Sprint(to.Spans())
	for _, secret := range []string{"hidden", "192.0.2.77", "__cf", "client.address", "user_agent",
		"network.peer"} {
		if strings.Contains(said, secret) {
			t.Errorf("%s is told: %s", secret, said)
		}
	}
}

// With paths off, nothing recorded contains a path.
func TestTracesWithoutPaths(t *testing.T) {
	p, to := traced(t, "sample: 1, paths: false", tracedShop, func(http.ResponseWriter, *http.Request) {})
	get(t, p.visitors+"/reset/hidden", "")
	p.stop()
	if said := fmt.Sprint(to.Spans()); strings.Contains(said, "hidden") || strings.Contains(said, "/base") {
		t.Error(said)
	}
	if len(to.Spans()) != 3 {
		t.Errorf("%d spans", len(to.Spans()))
	}
}

// What an untrusted peer claims is removed on the way to the origin even when nothing is recorded;
// with traces off it passes unchanged.
func TestTheOriginIsToldWhatWasDecided(t *testing.T) {
	const claim = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	got := make(chan string, 1)
	origin := func(_ http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("Traceparent") + " " + r.Header.Get("Tracestate")
	}
	ask := func(p *process) string {
		r, _ := http.NewRequest("GET", p.visitors+"/", nil)
		r.Header.Set("Traceparent", claim)
		r.Header.Set("Tracestate", "x=1")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return <-got
	}
	const file = "rooms: [{name: shop, origin: ORIGIN, total_active_users: 9, new_users_per_minute: 9}]\n"
	p, to := traced(t, "sample: 0", file, origin)
	if said := ask(p); strings.Contains(said, "4bf92f35") || !strings.HasSuffix(said, "-00 ") {
		t.Errorf("the origin got %q", said)
	}
	p.stop()
	p, friendly := traced(t, "sample: 0, parents: [127.0.0.1]", file, origin)
	if said := ask(p); !strings.HasPrefix(said, claim[:36]) || strings.Contains(said, claim[36:52]) ||
		!strings.HasSuffix(said, "-01 x=1") {
		t.Errorf("the origin got %q", said)
	}
	p.stop()
	if len(to.Spans()) != 0 || len(friendly.Spans()) != 2 {
		t.Errorf("%d spans for a stranger, %d for a peer", len(to.Spans()), len(friendly.Spans()))
	}
	o := httptest.NewServer(http.HandlerFunc(origin))
	defer o.Close()
	p = run(t, strings.ReplaceAll(file, "ORIGIN", o.URL))
	if said := ask(p); said != claim+" x=1" {
		t.Errorf("without traces the origin got %q", said)
	}
	if p.s.around() != nil || p.s.limits.asked() != p.s.limits.Rules {
		t.Error("something is in the way though traces are off")
	}
	if strings.Contains(get(t, p.operators+"/metrics", "").body, "headgate_traces") {
		t.Error("there are metrics of traces though they are off")
	}
}

// A connection that switches to another protocol stays open, and is recorded when it ends.
func TestTracesOfAWebSocket(t *testing.T) {
	p, to := traced(t, "sample: 1", tracedShop, func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		rw.Flush()
		line, _ := rw.ReadString('\n')
		io.WriteString(conn, line)
	})
	conn, err := net.Dial("tcp", p.s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET /chat HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, nil)
	if err != nil || res.StatusCode != 101 {
		t.Fatalf("%v, %v", res, err)
	}
	io.WriteString(conn, "hello\n")
	if line, err := r.ReadString('\n'); line != "hello\n" {
		t.Fatalf("%q, %v", line, err)
	}
	conn.Close()
	// A stop does not wait for a WebSocket: its request must have ended first.
	yardstick.Await(t, "the span of the request", func() bool {
		for _, s := range to.Spans() {
			if len(s.ParentSpanId) == 0 {
				return true
			}
		}
		return false
	})
	p.stop()
	trees := treesOf(to.Spans())
	if len(trees) != 1 {
		t.Fatalf("%d traces", len(trees))
	}
	wantTexts(t, trees[0].root(t), map[string]string{"http.response.status_code": "101",
		"headgate.state": "active"})
}

// A job keeps the trace of its sender; its delivery is linked to that trace, and passes it to the
// target.
func TestTracesOfAJob(t *testing.T) {
	got := make(chan http.Header, 2)
	p, to := traced(t, "sample: 0", "queues:\n  - {name: orders, target: {url: 'ORIGIN/hook?key=hidden'}}\n",
		func(_ http.ResponseWriter, r *http.Request) { got <- r.Header })
	secret, _, err := api.CreateToken(p.s.dataFolder(), api.Token{Scopes: []string{"put"}})
	if err != nil {
		t.Fatal(err)
	}
	put := func(kind, body, parent string) {
		r, _ := http.NewRequest("POST", p.operators+"/v1/queues/orders/jobs", strings.NewReader(body))
		r.Header.Set("Content-Type", kind)
		r.Header.Set("Authorization", "Bearer "+secret)
		r.Header.Set("Traceparent", parent)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if b, _ := io.ReadAll(res.Body); res.StatusCode/100 != 2 {
			t.Fatalf("%d %s", res.StatusCode, b)
		}
	}
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	put("application/json", `{"body": {"n": 1}, "key": "hidden"}`, "00-"+trace+"-00f067aa0ba902b7-01")
	if said := (<-got).Get("Traceparent"); !strings.HasSuffix(said, "-01") || strings.Contains(said, trace) {
		t.Errorf("the target got %q", said)
	}
	put("application/x-ndjson", `{"body": {"n": 1}}`+"\n", "00-"+trace+"-00f067aa0ba902b7-00")
	if said := (<-got).Get("Traceparent"); said != "" {
		t.Errorf("of a job whose producer records nothing the target got %q", said)
	}
	p.stop()
	trees := treesOf(to.Spans())
	if len(trees) != 1 {
		t.Fatalf("%d traces: %v", len(trees), to.Spans())
	}
	job := trees[0].root(t)
	if job.Kind != tracepb.Span_SPAN_KIND_CONSUMER || len(job.Links) != 1 ||
		hex.EncodeToString(job.Links[0].TraceId) != trace || len(trees[0].children(job, client)) != 1 {
		t.Errorf("%v", trees[0])
	}
	wantTexts(t, job, map[string]string{"messaging.destination.name": "orders", "headgate.attempt": "1"})
	if strings.Contains(fmt.Sprint(to.Spans()), "hidden") {
		t.Errorf("%v", to.Spans())
	}
}

// A reload does not change traces and reports that; rooms with a new origin are recorded as before.
func TestTracesAndReload(t *testing.T) {
	p, to := traced(t, "sample: 1", tracedShop, func(http.ResponseWriter, *http.Request) {})
	p.write("traces: {endpoint: 'http://127.0.0.1:1', sample: 0}\n" + tracedShop)
	if got := p.reload(); !slices.Equal(got.NeedsRestart, []string{"traces"}) ||
		!slices.Equal(got.Rooms.Changed, []string{"shop"}) {
		t.Fatalf("%+v", got)
	}
	get(t, p.visitors+"/in", "")
	eventually(t, "sent", func() bool {
		return strings.Contains(get(t, p.operators+"/metrics", "").body, "\nheadgate_traces_sent_total 3\n")
	})
	if body := get(t, p.operators+"/metrics", "").body; !strings.Contains(body, `headgate_traces_dropped_total{why="full"} 0`) {
		t.Error("no metric of what was dropped")
	}
	if len(to.Spans()) != 3 {
		t.Errorf("%v", to.Spans())
	}
}

// An answer that breaks off ends its span as an error, and not as 200.
func TestTracesOfAnAnswerThatBreaksOff(t *testing.T) {
	p, to := traced(t, "sample: 1", tracedShop, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000000")
		w.Write(bytes.Repeat([]byte("x"), 100_000))
	})
	res, err := http.Get(p.visitors + "/in")
	if err == nil {
		_, err = io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
	if err == nil {
		t.Error("the visitor took it for whole")
	}
	p.stop()
	trees := treesOf(to.Spans())
	if len(trees) != 1 {
		t.Fatalf("%d traces", len(trees))
	}
	wantTexts(t, trees[0].root(t), map[string]string{"error.type": "aborted",
		"http.response.status_code": "200"})
}
