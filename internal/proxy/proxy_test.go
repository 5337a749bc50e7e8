package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// patience is how long a test waits for an expected event. It is long because only a failing test
// waits that long.
const patience = 20 * time.Second

func parseURL(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// newOrigin serves h and returns its URL.
func newOrigin(t testing.TB, h http.HandlerFunc) *url.URL {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return parseURL(t, srv.URL)
}

// newGate serves the proxy of cfg. Each wrap is put in front of the proxy.
func newGate(t testing.TB, cfg Config, wrap ...func(http.Handler) http.Handler) (*Proxy, string) {
	t.Helper()
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var h http.Handler = p
	for _, w := range wrap {
		h = w(h)
	}
	srv := httptest.NewUnstartedServer(h)
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
		p.CloseIdleConnections()
	})
	return p, srv.URL
}

func do(t testing.TB, r *http.Request) (*http.Response, string) {
	t.Helper()
	res, err := newClient(t).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

func newClient(t testing.TB) *http.Client {
	tr := &http.Transport{DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

func request(t testing.TB, method, url string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func get(t testing.TB, url string) (*http.Response, string) {
	t.Helper()
	return do(t, request(t, "GET", url, nil))
}

func wait[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("waited %v for %s", patience, what)
		panic("unreachable")
	}
}

func TestNewNamesEveryFault(t *testing.T) {
	_, err := New(Config{
		Origin:  parseURL(t, "ftp://example.com"),
		Trusted: []netip.Prefix{{}, netip.MustParsePrefix("::ffff:10.0.0.0/104")},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`scheme "ftp"`, "invalid Prefix", "::ffff:10.0.0.0/104"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not name %q:\n%v", want, err)
		}
	}
	for _, bad := range []string{
		"//example.com", "http://", "http://:80", "http://u:p@h", "http://h/?q=1", "http://h/#f",
	} {
		if _, err := New(Config{Origin: parseURL(t, bad)}); err == nil {
			t.Errorf("origin %q was accepted", bad)
		} else if strings.Contains(err.Error(), "u:p") {
			t.Errorf("the error shows a password: %v", err)
		}
	}
	if _, err := New(Config{}); err == nil {
		t.Error("a missing origin was accepted")
	}
}

func TestRequestReachesOrigin(t *testing.T) {
	type seen struct{ URI, Host string }
	var got seen
	origin := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		got = seen{r.RequestURI, r.Host}
	})
	base := *origin
	base.Path = "/base/"
	_, root := newGate(t, Config{Origin: origin})
	_, joined := newGate(t, Config{Origin: &base})

	for _, tt := range []struct {
		url  string
		want seen
	}{
		{root, seen{"/", "shop.example"}},
		{root + "/a%2Fb/c?x=1;y=2&z=%zz&a=0", seen{"/a%2Fb/c?x=1;y=2&z=%zz&a=0", "shop.example"}},
		{joined + "/a%2Fb?q", seen{"/base/a%2Fb?q", "shop.example"}},
		{joined, seen{"/base/", "shop.example"}},
	} {
		r := request(t, "GET", tt.url, nil)
		r.Host = "shop.example"
		do(t, r)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.url, diff)
		}
	}
}

func TestRequestHeaders(t *testing.T) {
	const peer = "127.0.0.1"
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	forged := http.Header{
		"Forwarded":         {"for=9.9.9.9"},
		"X-Forwarded-For":   {"9.9.9.9", "8.8.8.8"},
		"X-Forwarded-Proto": {"https"},
		"X-Forwarded-Host":  {"evil.example"},
	}
	for _, tt := range []struct {
		name    string
		trusted []netip.Prefix
		in      http.Header
		want    http.Header // nil values: must be absent
	}{
		{"first hop", nil, http.Header{}, http.Header{
			"Forwarded": nil, "X-Forwarded-For": {peer},
			"X-Forwarded-Proto": {"http"}, "X-Forwarded-Host": {"shop.example"},
			"User-Agent": {"Go-http-client/1.1"}, "Accept-Encoding": nil,
		}},
		{"forged", nil, forged, http.Header{
			"Forwarded": nil, "X-Forwarded-For": {peer},
			"X-Forwarded-Proto": {"http"}, "X-Forwarded-Host": {"shop.example"},
		}},
		{
			"forged, others trusted",
			[]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
			forged,
			http.Header{
				"Forwarded": nil, "X-Forwarded-For": {peer},
				"X-Forwarded-Proto": {"http"}, "X-Forwarded-Host": {"shop.example"},
			},
		},
		{"trusted", loopback, forged, http.Header{
			"Forwarded":         {"for=9.9.9.9, for=127.0.0.1"},
			"X-Forwarded-For":   {"9.9.9.9, 8.8.8.8, " + peer},
			"X-Forwarded-Proto": {"https"}, "X-Forwarded-Host": {"evil.example"},
		}},
		{"trusted but silent", loopback, http.Header{}, http.Header{
			"Forwarded": nil, "X-Forwarded-For": {peer},
			"X-Forwarded-Proto": {"http"}, "X-Forwarded-Host": {"shop.example"},
		}},
		{
			"hop by hop",
			nil,
			http.Header{
				"Connection": {"X-Secret, X-Forwarded-For, close"}, "X-Secret": {"1"},
				"Keep-Alive": {"1"}, "Proxy-Authorization": {"1"}, "Te": {"gzip"}, "X-Stay": {"1"},
			},
			http.Header{
				"Connection": nil, "X-Secret": nil, "Keep-Alive": nil, "Te": nil,
				"Proxy-Authorization": nil, "X-Stay": {"1"}, "X-Forwarded-For": {peer},
			},
		},
		{
			"headgate's own",
			nil,
			http.Header{
				"Headgate-Poll": {"1"}, "Headgate-Solution": {"x"},
				"Cookie": {"a=1; __cfwaitingroom=x; b=2", "__cfwaitingroom_shop=y", "c=3"},
			},
			http.Header{"Headgate-Poll": nil, "Headgate-Solution": nil, "Cookie": {"a=1; b=2", "c=3"}},
		},
		{
			"only headgate's cookie",
			nil,
			http.Header{"Cookie": {"__cfwaitingroom=x"}},
			http.Header{"Cookie": nil},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got http.Header
			origin := newOrigin(t, func(w http.ResponseWriter, r *http.Request) { got = r.Header })
			_, gate := newGate(t, Config{
				Origin: origin, Trusted: tt.trusted, StripCookiePrefix: "__cfwaitingroom",
			})
			r := request(t, "GET", gate, nil)
			r.Host, r.Header = "shop.example", tt.in.Clone()
			do(t, r)
			for name, want := range tt.want {
				if diff := cmp.Diff(want, http.Header(got)[name], cmpEmpty); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
		})
	}
}

var cmpEmpty = cmp.FilterValues(func(a, b []string) bool { return len(a) == 0 && len(b) == 0 },
	cmp.Ignore())

func TestStripCookies(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"a=1", "a=1"},
		{"a=1;b=2", "a=1;b=2"}, // not changed
		{"a=__gate; b=2", "a=__gate; b=2"},
		{"__gate=1", ""},
		{" \t__gate ; ;", ""},
		{"a=1; __gate_x=1;b=2; __gate=2", "a=1; b=2"},
		{"x__gate=1", "x__gate=1"},
		{"a=1; headgate-session=S; __Host-headgate-session=S;b=2", "a=1; b=2"},
		{"x-headgate-session=1", "x-headgate-session=1"},
	} {
		h := http.Header{"Cookie": {tt.in}}
		stripCookies(h, "__gate")
		if got := h.Get("Cookie"); got != tt.want {
			t.Errorf("stripCookies(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
	h := http.Header{"Cookie": {"a=1; headgate-session=S", "__Host-headgate-session=S"}}
	if stripCookies(h, ""); h.Get("Cookie") != "a=1" || len(h["Cookie"]) != 1 {
		t.Errorf("without a prefix: %q", h["Cookie"])
	}
	h = http.Header{"Cookie": {"session=1; theme=dark", "lang=en"}}
	if n := testing.AllocsPerRun(100, func() { stripCookies(h, "__gate") }); n != 0 {
		t.Errorf("a request without our cookie costs %v allocations, want 0", n)
	}
}

// The client's own request must stay unchanged: OnError and the Room read it.
func TestClientRequestIsUntouched(t *testing.T) {
	p, err := New(Config{
		Origin: parseURL(t, "http://127.0.0.1:1"), StripCookiePrefix: "__gate",
		OnError: func(_ http.ResponseWriter, r *http.Request, _ error) {
			if r.Header.Get("Cookie") != "__gate=1; a=1" || r.URL.Host != "" {
				t.Errorf("OnError got a changed request: %v %v", r.URL, r.Header)
			}
			if r.Header.Get(pollHeader) != "1" {
				t.Error("OnError got a request without Headgate-Poll")
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Cookie", "__gate=1; a=1")
	r.Header.Set(pollHeader, "1")
	p.ServeHTTP(httptest.NewRecorder(), r)
}

type roomKey struct{}

func TestCommandsStayInside(t *testing.T) {
	names := []string{"Cf-Waiting-Room-Command", "Headgate-Command"}
	origin := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		for _, n := range names {
			h.Set(n, "revoke")
		}
		h.Set("Link", "</a.css>")
		w.WriteHeader(http.StatusEarlyHints)
		h.Set("Trailer", "Headgate-Command, X-Announced")
		io.WriteString(w, "body")
		h.Set("X-Announced", "1")
		h.Set(http.TrailerPrefix+"Cf-Waiting-Room-Command", "revoke")
		h.Set(http.TrailerPrefix+"X-Late", "2")
	})
	var command any
	_, gate := newGate(t, Config{Origin: origin, OnResponse: func(res *http.Response) error {
		if room, ok := res.Request.Context().Value(roomKey{}).(string); ok {
			command = room + " " + res.Header.Get("Headgate-Command")
		}
		return nil
	}}, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), roomKey{}, "shop")))
		})
	})

	var early http.Header
	r := request(t, "GET", gate, nil)
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
			early = http.Header(h).Clone()
			return nil
		},
	}))
	res, body := do(t, r)
	if body != "body" || early.Get("Link") == "" {
		t.Errorf("body %q, early hints %v", body, early)
	}
	if command != "shop revoke" {
		t.Errorf("OnResponse found %v, want the room and its command", command)
	}
	if res.Trailer.Get("X-Announced") != "1" || res.Trailer.Get("X-Late") != "2" {
		t.Errorf("trailers did not pass: %v", res.Trailer)
	}
	for _, n := range names {
		if early.Get(n) != "" || res.Header.Get(n) != "" || res.Trailer.Get(n) != "" {
			t.Errorf("%s reached the visitor: early %q, header %q, trailer %q",
				n, early.Get(n), res.Header.Get(n), res.Trailer.Get(n))
		}
	}
}

// Headers that were set before the request went to the origin, such as the visitor's pass, are sent
// with the final answer, whatever 1xx answers come before it: browsers ignore cookies in those.
func TestInformationalAnswersTakeNothingAway(t *testing.T) {
	origin := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		if r.Header.Get("Upgrade") == "" {
			io.Copy(io.Discard, r.Body) // makes the server send 100 to the client
		}
		for range 2 {
			h["Link"], h["Set-Cookie"] = []string{"</a.css>"}, []string{"early=1"}
			w.WriteHeader(http.StatusEarlyHints)
		}
		h["Set-Cookie"] = []string{"origin=1"}
		if r.Header.Get("Upgrade") != "" {
			h["Connection"], h["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
			w.WriteHeader(http.StatusSwitchingProtocols)
		}
	})
	_, gate := newGate(t, Config{Origin: origin}, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Set-Cookie"] = []string{"pass=1"}
			w.Header()["Ratelimit"] = []string{`"api";r=1`}
			next.ServeHTTP(w, r)
		})
	})
	for _, upgrade := range []bool{false, true} {
		var early []http.Header
		r := request(t, "POST", gate, strings.NewReader("body"))
		r.Header.Set("Expect", "100-continue")
		if upgrade {
			r = request(t, "GET", gate, nil)
			r.Header["Connection"], r.Header["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
			r.Header.Set("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
		}
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				if code != http.StatusSwitchingProtocols {
					early = append(early, http.Header(h).Clone())
				}
				return nil
			},
		}))
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if got := fmt.Sprint(res.Header["Set-Cookie"], res.Header["Ratelimit"]); got !=
			`[pass=1 origin=1] ["api";r=1]` {
			t.Errorf("upgrade %v: the answer says %s", upgrade, got)
		}
		hints := 0
		for _, h := range early {
			if h.Get("Link") != "" {
				hints++
			}
			if got := fmt.Sprint(h["Set-Cookie"], h["Ratelimit"]); got != "[early=1] []" && got != "[] []" {
				t.Errorf("upgrade %v: an informational answer says %s", upgrade, got)
			}
		}
		if hints != 2 {
			t.Errorf("upgrade %v: %d early hints of 2: %v", upgrade, hints, early)
		}
	}
}

// A header with a single value shows what this proxy's limits have left, and not what the origin's
// have; RateLimit lists both.
func TestHeadersOfOneValue(t *testing.T) {
	origin := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Ratelimit", "Ratelimit-Limit", "X-Ratelimit-Limit", "X-Other"} {
			w.Header()[name] = []string{"origin"}
		}
	})
	_, gate := newGate(t, Config{Origin: origin}, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, name := range []string{"Ratelimit", "Ratelimit-Limit", "X-Other"} {
				w.Header()[name] = []string{"gate"}
			}
			next.ServeHTTP(w, r)
		})
	})
	res, _ := get(t, gate)
	h := res.Header
	got := fmt.Sprint(h["Ratelimit"], h["Ratelimit-Limit"], h["X-Ratelimit-Limit"], h["X-Other"])
	if want := "[gate origin] [gate] [origin] [gate origin]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// ReverseProxy's other way to handle trailers: all of them announced.
func TestAnnouncedCommandTrailer(t *testing.T) {
	origin := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Headgate-Command, Cf-Waiting-Room-Command")
		io.WriteString(w, "body")
		w.Header().Set("Headgate-Command", "revoke")
		w.Header().Set("Cf-Waiting-Room-Command", "revoke")
	})
	_, gate := newGate(t, Config{Origin: origin})
	if res, body := get(t, gate); len(res.Trailer) != 0 || body != "body" {
		t.Errorf("body %q, trailers %v", body, res.Trailer)
	}
}

func TestOnResponseError(t *testing.T) {
	origin := newOrigin(t, func(http.ResponseWriter, *http.Request) {})
	p, gate := newGate(t, Config{
		Origin:     origin,
		OnResponse: func(*http.Response) error { return errors.New("no") },
	})
	if res, _ := get(t, gate); res.StatusCode != 502 || !p.Healthy() {
		t.Errorf("status %d, healthy %v", res.StatusCode, p.Healthy())
	}
}

// Each side sends a piece only after the other has acknowledged the previous one, which fails if
// anything in between buffers.
func TestBodiesStreamInLockstep(t *testing.T) {
	for _, contentType := range []string{"text/event-stream", "application/octet-stream"} {
		t.Run(contentType, func(t *testing.T) {
			got, next := make(chan string), make(chan struct{})
			origin := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
				in := bufio.NewReader(r.Body)
				for range 3 {
					line, _ := in.ReadString('\n')
					got <- line
				}
				io.Copy(io.Discard, in)
				w.Header().Set("Content-Type", contentType)
				for range 3 {
					io.WriteString(w, "data: x\n\n")
					http.NewResponseController(w).Flush()
					select {
					case <-next:
					case <-r.Context().Done():
						return
					}
				}
			})
			_, gate := newGate(t, Config{Origin: origin})
			pr, pw := io.Pipe()
			sent := make(chan error, 1)
			go func() {
				defer pw.Close()
				for range 3 {
					io.WriteString(pw, "line\n")
					select {
					case <-got:
					case <-time.After(patience):
						sent <- errors.New("the origin did not get a line")
						return
					}
				}
				sent <- nil
			}()
			res, err := newClient(t).Do(request(t, "POST", gate, pr))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if err := wait(t, "the upload", sent); err != nil {
				t.Fatal(err)
			}
			out := bufio.NewReader(res.Body)
			for i := range 3 {
				if line, err := out.ReadString('\n'); err != nil || line != "data: x\n" {
					t.Fatalf("event %d: %q %v", i, line, err)
				}
				out.ReadString('\n')
				next <- struct{}{}
			}
		})
	}
}

func TestBigBodies(t *testing.T) {
	const size = 24 << 20
	block := bytes.Repeat([]byte("0123456789abcdef"), 4096)
	sums := make(chan [32]byte, 2)
	sum := func(r io.Reader) [32]byte {
		h := sha256.New()
		io.Copy(h, r)
		return [32]byte(h.Sum(nil))
	}
	content := func() io.Reader {
		endless := readerFunc(func(b []byte) (int, error) { return copy(b, block), nil })
		return io.LimitReader(endless, size)
	}
	origin := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		sums <- sum(r.Body)
		io.Copy(w, content())
	})
	_, gate := newGate(t, Config{Origin: origin})
	res, err := newClient(t).Do(request(t, "PUT", gate, content()))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	want := sum(content())
	if got := sum(res.Body); got != want {
		t.Error("the download differs")
	}
	if got := <-sums; got != want {
		t.Error("the upload differs")
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func TestCleartextHTTP2(t *testing.T) {
	origin := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Sum")
		w.Write(append(body, r.Header.Get("Cookie")...))
		w.Header().Set("X-Sum", "7")
	})
	_, gate := newGate(t, Config{Origin: origin, StripCookiePrefix: "__gate"})
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	for range 3 {
		r := request(t, "POST", gate, strings.NewReader("hello "))
		r.Header.Set("Cookie", "a=1; __gate=2; b=3")
		res, err := tr.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.ProtoMajor != 2 || string(body) != "hello a=1; b=3" {
			t.Errorf("%s %q %v", res.Proto, body, err)
		}
		if res.Trailer.Get("X-Sum") != "7" {
			t.Errorf("trailer %v", res.Trailer)
		}
	}
}

func TestTLSOrigin(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Proto)
	}))
	defer srv.Close()
	tlsConfig := srv.Client().Transport.(*http.Transport).TLSClientConfig
	_, gate := newGate(t, Config{Origin: parseURL(t, srv.URL), TLS: tlsConfig})
	if res, body := get(t, gate); res.StatusCode != 200 || body != "HTTP/1.1" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	p, stranger := newGate(t, Config{Origin: parseURL(t, srv.URL)})
	if res, _ := get(t, stranger); res.StatusCode != 502 || !p.Healthy() {
		t.Errorf("unknown CA: status %d, healthy %v", res.StatusCode, p.Healthy())
	}
}

// An origin that breaks the connection must not look like one that finished.
func TestBrokenAnswerIsAborted(t *testing.T) {
	origin := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "half")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	logged := make(logLines, 8)
	debug := &slog.HandlerOptions{Level: slog.LevelDebug}
	_, gate := newGate(t, Config{Origin: origin, Log: slog.New(slog.NewTextHandler(logged, debug))})
	res, err := newClient(t).Get(gate)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("read %q without an error", body)
	}
	if line := wait(t, "the log", (chan string)(logged)); !strings.Contains(line, "level=DEBUG") {
		t.Errorf("logged %q", line)
	}
}

// logLines is a writer that a test can wait for.
type logLines chan string

func (l logLines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// A POST whose connection breaks may have been executed, so it is not repeated.
func TestPostIsNotSentTwice(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	posts := make(chan struct{}, 8)
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			in := bufio.NewReader(conn)
			for {
				r, err := http.ReadRequest(in)
				if err != nil {
					break
				}
				io.Copy(io.Discard, r.Body)
				if r.Method == "POST" {
					posts <- struct{}{}
					break
				}
				io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
			}
			conn.Close()
		}
	}()
	p, gate := newGate(t, Config{Origin: parseURL(t, "http://"+ln.Addr().String())})
	get(t, gate) // leaves a kept connection, the case in which net/http may retry
	res, _ := do(t, request(t, "POST", gate, strings.NewReader("pay")))
	if res.StatusCode != 502 || len(posts) != 1 {
		t.Errorf("status %d, sent %d times", res.StatusCode, len(posts))
	}
	if !p.Healthy() {
		t.Error("one broken connection marked the origin down")
	}
}
