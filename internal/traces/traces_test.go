package traces

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/yardstick"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/tests/tracestest"
)

// A rig is a Tracer that runs, and a collector that takes what it sends.
type rig struct {
	*Tracer
	*tracestest.Collector
	log  *lines
	stop func() // ends Run and waits until what was recorded is sent
}

// lines is a log that can be read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func record(t testing.TB, c Config, to *tracestest.Collector) *rig {
	t.Helper()
	s := httptest.NewServer(to)
	t.Cleanup(s.Close)
	c.Endpoint = s.URL + tracestest.Path
	return begin(t, c, to)
}

// begin lets a Tracer run whose endpoint is in c.
func begin(t testing.TB, c Config, to *tracestest.Collector) *rig {
	t.Helper()
	g := &rig{Collector: to, log: &lines{}}
	c.Log = slog.New(slog.NewTextHandler(g.log, nil))
	var err error
	if g.Tracer, err = New(c); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); g.Run(ctx) }()
	g.stop = func() { cancel(); <-done }
	t.Cleanup(g.stop)
	return g
}

// origin answers with the traceparent that it got.
func origin(w http.ResponseWriter, r *http.Request) {
	io.WriteString(w, strings.Join(r.Header[parentHeader], "+")+" "+r.Header.Get(stateHeader))
}

// ask sends one request through the handler as from peer, with these headers.
func ask(h http.Handler, peer string, headers ...string) string {
	r := httptest.NewRequest("GET", "http://shop.example/in?token=secret", nil)
	r.RemoteAddr = peer
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Body.String()
}

const (
	stranger = "203.0.113.9:4000"
	friend   = "10.1.2.3:4000"

	sampledParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	silentParent  = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
	claimedTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
)

func friends() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} }

// What a stranger says records nothing here, and nothing at the origin either.
func TestStrangersCannotForceSampling(t *testing.T) {
	g := record(t, Config{Sample: 0, Parents: friends()}, &tracestest.Collector{})
	h := g.Request("shop", http.HandlerFunc(origin))
	for range 1000 {
		got := ask(h, stranger, "Traceparent: "+sampledParent, "Tracestate: ours=1")
		if strings.Contains(got, claimedTrace) || len(got) != 56 || !strings.HasSuffix(got, "-00 ") {
			t.Fatalf("the origin got %q", got)
		}
	}
	g.stop()
	if n := len(g.Spans()); n != 0 {
		t.Errorf("%d spans were recorded", n)
	}
}

// A stranger's trace is not continued: ours stands beside it, and says so.
func TestAStrangersTraceIsLinked(t *testing.T) {
	g := record(t, Config{Sample: 1, Parents: friends()}, &tracestest.Collector{})
	h := g.Request("shop", http.HandlerFunc(origin))
	ask(h, stranger, "Traceparent: "+sampledParent)
	ask(h, stranger, "Traceparent: "+sampledParent, "Traceparent: "+sampledParent)
	ask(h, stranger, "Traceparent: 00-zz")
	g.stop()
	spans := g.Spans()
	if len(spans) != 3 {
		t.Fatalf("%d spans, want 3", len(spans))
	}
	for i, s := range spans {
		if hex.EncodeToString(s.TraceId) == claimedTrace || len(s.ParentSpanId) != 0 {
			t.Errorf("span %d is of a stranger's trace: %v", i, s)
		}
		linked := len(s.Links) == 1 && hex.EncodeToString(s.Links[0].TraceId) == claimedTrace
		if linked != (i == 0) {
			t.Errorf("span %d: links %v", i, s.Links)
		}
	}
}

// A peer that is named decides: what it records is recorded, and nothing else.
func TestNamedPeersAreFollowed(t *testing.T) {
	for _, sample := range []float64{0, 1} {
		g := record(t, Config{Sample: sample, Parents: friends()}, &tracestest.Collector{})
		h := g.Request("shop", http.HandlerFunc(origin))
		got := ask(h, friend, "Traceparent: "+silentParent, "Tracestate: ours=1")
		if got != silentParent+" ours=1" {
			t.Errorf("the origin got %q", got)
		}
		ask(h, friend, "Traceparent: "+sampledParent)
		ask(h, "[::ffff:10.1.2.3]:1", "Traceparent: "+sampledParent)
		g.stop()
		spans := g.Spans()
		if len(spans) != 2 {
			t.Fatalf("sample %v: %d spans, want 2", sample, len(spans))
		}
		for _, s := range spans {
			if hex.EncodeToString(s.TraceId) != claimedTrace ||
				hex.EncodeToString(s.ParentSpanId) != "00f067aa0ba902b7" {
				t.Errorf("sample %v: %v", sample, s)
			}
		}
	}
}

// Of 10,000 requests a tenth is recorded: 1,000 with a deviation of 30, and six of those are met
// once in a billion runs.
func TestSample(t *testing.T) {
	g := record(t, Config{Sample: 0.1}, &tracestest.Collector{})
	h := g.Request("shop", http.HandlerFunc(origin))
	ids := map[string]bool{}
	for range 10_000 {
		ids[ask(h, stranger)] = true
	}
	g.stop()
	if n := len(g.Spans()); n < 820 || n > 1180 {
		t.Errorf("%d of 10,000 are recorded, want about 1,000", n)
	}
	if n := len(ids); n < 8820 { // each that is not recorded has an id of its own
		t.Errorf("%d different ids", n)
	}
	if n, _ := g.Totals(); n.Full+n.Refused+n.Ended != 0 {
		t.Errorf("%+v", n)
	}
}

// With nothing to record there is nothing in the way.
func TestOffIsFree(t *testing.T) {
	var off *Tracer
	h, rt, q := http.Handler(http.NewServeMux()), http.DefaultTransport, queue.Handler(&jobs{})
	if off.Request("shop", h) != h || off.Inside(nil, h) != h || off.Transport(rt) != rt ||
		off.Deliveries(q) != q || off.ParentIn(http.Header{parentHeader: {sampledParent}}) != "" ||
		off.Records(t.Context()) {
		t.Error("something is in the way")
	}
	off.Run(t.Context()) // returns
	if _, on := off.Totals(); on {
		t.Error("it is on")
	}
}

// What is not recorded costs the header that says so, and nothing else.
func TestNotRecordedIsCheap(t *testing.T) {
	g := record(t, Config{Sample: 0}, &tracestest.Collector{})
	plain := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	r := httptest.NewRequest("GET", "/", nil)
	w := httptest.NewRecorder()
	through := g.Request("shop", g.Inside(nil, plain))
	if n := testing.AllocsPerRun(1000, func() { through.ServeHTTP(w, r) }); n > 2 {
		t.Errorf("%v allocations, want the text of the header and the list it stands in", n)
	}
	r = r.WithContext(t.Context())
	if n := testing.AllocsPerRun(1000, func() { g.Records(r.Context()) }); n > 0 {
		t.Errorf("%v allocations to see that it is not recorded", n)
	}
}

// Whatever bytes a stranger sends, the batch is whole: one that is broken would take 511 others
// with it.
func TestStrangeTextLosesNoBatch(t *testing.T) {
	g := record(t, Config{Sample: 1, Paths: true}, &tracestest.Collector{})
	h := g.Request("shop", g.Inside(func(http.ResponseWriter) string { return "\xff" },
		http.HandlerFunc(origin)))
	for _, long := range []int{0, 300} {
		bad := "\xff\xfe" + strings.Repeat("ä", long) + "\xc3"
		r := httptest.NewRequest("GET", "/", nil)
		r.URL.Path, r.URL.RawPath, r.Host, r.Method = "/"+bad, "/"+bad, bad+":99999", "G"+bad
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	g.stop()
	if _, fault := g.Requests(); fault != nil {
		t.Error(fault)
	}
	if len(g.Spans()) != 2 {
		t.Fatalf("%d spans; %s", len(g.Spans()), g.log)
	}
	of := tracestest.Texts(g.Spans()[1].Attributes)
	for k, v := range of {
		if len([]rune(v)) > maxText {
			t.Errorf("%s has %d characters", k, len([]rune(v)))
		}
	}
	if of["http.request.method"] != "_OTHER" || g.Spans()[0].Name != "HTTP shop" {
		t.Errorf("%q: %v", g.Spans()[0].Name, of)
	}
}

// Whoever answers can still do all that net/http lets it do.
func TestAnAnswerKeepsItsPowers(t *testing.T) {
	g := record(t, Config{Sample: 1}, &tracestest.Collector{})
	s := httptest.NewServer(g.Request("shop", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c := http.NewResponseController(w)
		soon := time.Now().Add(time.Minute)
		if err := errors.Join(c.SetReadDeadline(soon), c.SetWriteDeadline(soon), c.EnableFullDuplex(),
			c.Flush()); err != nil {
			t.Error(err)
		}
		w.(http.Flusher).Flush()
	})))
	defer s.Close()
	res, err := http.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
}

// A collector that rejects a part, and one that answers what is no OTLP: all is counted.
func TestWhatACollectorMayAnswer(t *testing.T) {
	reject := protowire.AppendTag(nil, 1, protowire.BytesType)
	reject = protowire.AppendBytes(reject, append(protowire.AppendVarint(
		protowire.AppendTag(nil, 1, protowire.VarintType), 2), 0x12, 2, 'n', 'o'))
	for _, c := range []struct {
		name, kind    string
		code          int
		body          []byte
		sent, refused uint64
		says          string
	}{
		{"all", protobuf, 200, nil, 3, 0, ""},
		{"words", "text/html", 200, []byte("hello"), 3, 0, ""},
		{"a part", protobuf, 200, reject, 1, 2, `rejected 2 spans: \"no\"`},
		{"no message", protobuf, 200, []byte("\xff\xff\xffhello"), 0, 3, "is it the right endpoint"},
		{"an error", "text/plain", 500, []byte("secret"), 0, 3, "answered 500 Internal Server Error"},
		{"elsewhere", "", 302, nil, 0, 3, "answered 302 Found"},
		{"without end", "text/plain", 400, bytes.Repeat([]byte("x"), 1<<20), 0, 3, "answered 400"},
	} {
		t.Run(c.name, func(t *testing.T) {
			to := &tracestest.Collector{Instead: func(w http.ResponseWriter, r *http.Request) bool {
				io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", c.kind)
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(c.code)
				w.Write(c.body)
				return true
			}}
			g := record(t, Config{Sample: 1}, to)
			h := g.Request("shop", http.HandlerFunc(origin))
			for range 3 {
				ask(h, stranger)
			}
			g.stop()
			n, _ := g.Totals()
			if n.Sent != c.sent || n.Refused+n.Ended != c.refused {
				t.Errorf("%+v, want %d sent and %d not", n, c.sent, c.refused)
			}
			if said := g.log.String(); !strings.Contains(said, c.says) || strings.Contains(said, "secret") ||
				strings.Count(said, "level=WARN") != min(1, len(c.says)) {
				t.Errorf("the log says %s", said)
			}
		})
	}
}

// A process that ends sends what it has, and does not wait for a collector that says nothing.
func TestTheEnd(t *testing.T) {
	g := record(t, Config{Sample: 1, Service: "gate", Version: "1.2", Node: "n1",
		Headers: map[string]string{"Authorization": "Bearer x"}}, &tracestest.Collector{})
	h := g.Request("shop", http.HandlerFunc(origin))
	for range 1000 {
		ask(h, stranger)
	}
	g.stop()
	about, header := g.About()
	if n := len(g.Spans()); n != 1000 || about["service.name"] != "gate" ||
		about["service.version"] != "1.2" || about["service.instance.id"] != "n1" ||
		header.Get("Authorization") != "Bearer x" {
		t.Errorf("%d of 1000 spans, of %v with %v", n, about, header)
	}
	ask(h, stranger)
	if n, _ := g.Totals(); n.Ended != 1 {
		t.Errorf("what came too late is not counted: %+v", n)
	}

	leave := make(chan struct{})
	silent := &tracestest.Collector{Instead: func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-leave:
		case <-r.Context().Done():
		}
		return true
	}}
	g = record(t, Config{Sample: 1}, silent)
	t.Cleanup(func() { close(leave) })
	h = g.Request("shop", http.HandlerFunc(origin))
	stick := yardstick.Start(t)
	began := time.Now()
	for range maxQueued + 2*maxBatch + 100 { // nobody waits for the collector
		ask(h, stranger)
	}
	stick.Judge(t, "requests beside a silent collector", time.Since(began),
		yardstick.Bound{Design: tryFor / 2, Requests: 100})
	if n, _ := g.Totals(); n.Full < 100 {
		t.Errorf("more than fits was queued: %+v", n)
	}
	began = time.Now()
	g.stop()
	stick.Judge(t, "the end", time.Since(began), yardstick.Bound{Design: 2 * flushFor, Requests: 100})
	n, _ := g.Totals()
	if n.Sent != 0 || n.Full+n.Ended != maxQueued+2*maxBatch+100 {
		t.Errorf("not all is counted: %+v", n)
	}
}

// jobs is a target that remembers nothing and says what its context names as the parent.
type jobs struct {
	then func(context.Context) queue.Outcome
}

func (d *jobs) Deliver(ctx context.Context, _ *queue.Job) queue.Outcome { return d.then(ctx) }

// A job that was put by a trace is recorded whatever the sample, in a trace that is linked to it.
func TestDeliveriesAreLinkedToWhoPutThem(t *testing.T) {
	g := record(t, Config{Sample: 0}, &tracestest.Collector{})
	var sent []string
	send := g.Transport(roundTrip(func(r *http.Request) (*http.Response, error) {
		sent = append(sent, r.Header.Get("Traceparent"))
		return &http.Response{StatusCode: 503, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}, nil
	}))
	d := g.Deliveries(&jobs{func(ctx context.Context) queue.Outcome {
		r, _ := http.NewRequestWithContext(ctx, "POST", "http://t.example/hook?key=secret", nil)
		send.RoundTrip(r)
		return queue.Outcome{Err: fmt.Errorf("secret"), Retry: true, Busy: true}
	}})
	j := &queue.Job{ID: "orders-7", Queue: "orders", Key: "secret", Tenant: "secret", Attempt: 2,
		Enqueued: time.Now().Add(-time.Hour), Headers: map[string]string{"traceparent": sampledParent}}
	d.Deliver(t.Context(), j)
	j.Headers["traceparent"] = silentParent
	d.Deliver(t.Context(), j)
	j.Headers = nil
	d.Deliver(t.Context(), j)
	g.stop()
	spans := g.Spans()
	if len(spans) != 2 || len(sent) != 3 || sent[1]+sent[2] != "" {
		t.Fatalf("%d spans, sent %q", len(spans), sent)
	}
	client, process := spans[0], spans[1]
	if hex.EncodeToString(process.Links[0].TraceId) != claimedTrace ||
		hex.EncodeToString(process.TraceId) == claimedTrace ||
		process.Kind != tracepb.Span_SPAN_KIND_CONSUMER {
		t.Errorf("%v", process)
	}
	if !bytes.Equal(client.ParentSpanId, process.SpanId) || client.Kind != tracepb.Span_SPAN_KIND_CLIENT ||
		sent[0] != "00-"+hex.EncodeToString(client.TraceId)+"-"+hex.EncodeToString(client.SpanId)+"-01" {
		t.Errorf("%v; the target got %s", client, sent[0])
	}
	of := tracestest.Texts(process.Attributes)
	if of["messaging.message.id"] != "orders-7" || of["headgate.attempt"] != "2" ||
		of["error.type"] != "busy" {
		t.Errorf("%v", of)
	}
	if strings.Contains(fmt.Sprint(spans), "secret") {
		t.Errorf("more than may be known: %v", spans)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// FuzzAnswer: whatever a collector answers is read to its end, and counts no more than there was.
func FuzzAnswer(f *testing.F) {
	f.Add(protobuf, []byte{0x0a, 2, 8, 3})
	f.Add("application/x-protobuf; charset=x", []byte("\xff"))
	f.Fuzz(func(t *testing.T, kind string, b []byte) {
		switch err := judge(kind, b).(type) {
		case nil:
		case *partial:
			if err.rejected == 0 || len(err.Error()) > 1000 {
				t.Error(err)
			}
		case *refusal:
			if err.again {
				t.Error("it would be sent again")
			}
		default:
			t.Error(err)
		}
	})
}

// FuzzParent: what is read as a parent is one that can be written again.
func FuzzParent(f *testing.F) {
	f.Add(sampledParent, "a=1")
	f.Add("ff-00", "\xff")
	f.Fuzz(func(t *testing.T, parent, state string) {
		p := parentOf(http.Header{parentHeader: {parent}, stateHeader: {state}})
		if p.IsValid() && (len(parent) < 55 || !strings.Contains(parent, p.TraceID().String())) {
			t.Errorf("%q is read as %v", parent, p)
		}
	})
}
