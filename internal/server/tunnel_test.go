package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/h2c" //nolint:staticcheck // nothing else upgrades to h2c, as old origins do
)

// dial opens a connection to a server under test.
func dial(t *testing.T, url string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, bufio.NewReader(c)
}

// askRaw sends the bytes of one request and returns the answer to it.
func askRaw(t *testing.T, url, text string) *http.Response {
	t.Helper()
	c, in := dial(t, url)
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return res
}

const (
	toWebSocket = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	toH2C = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
)

// Requests inside a tunnel are counted by nobody. The origin is Go's own, which speaks h2c.
func TestNoTunnelThroughAnExcludedRequest(t *testing.T) {
	var upgrades atomic.Int64
	//nolint:staticcheck // nothing else upgrades to h2c, as old origins do
	speaks := h2c.NewHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "websocket" {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "websocket")
			w.WriteHeader(http.StatusSwitchingProtocols)
		}
	}), &http2.Server{})
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header["Upgrade"] != nil || r.Header["Http2-Settings"] != nil || r.Header["Connection"] != nil {
			upgrades.Add(1)
		}
		speaks.ServeHTTP(w, r)
	}))
	defer origin.Close()
	if res := askRaw(t, origin.URL, "GET / HTTP/1.1\r\nHost: x\r\n"+toH2C+"\r\n"); res.StatusCode != 101 {
		t.Fatalf("the origin does not speak h2c: %d", res.StatusCode)
	}
	const more = "  - {name: off, path: /off, origin: ORIGIN, total_active_users: 1, new_users_per_minute: 1, " +
		"suspended: true}\n  - {name: open, path: /open, origin: ORIGIN, total_active_users: 1, " +
		"new_users_per_minute: 1, exclude: {paths: [/open/], upgrade: true}}\n" +
		"  - {name: rule, path: /rule, origin: ORIGIN, total_active_users: 1, new_users_per_minute: 1, " +
		"rules: [{action: bypass, expression: 'http.request.method != \"PUT\"'}]}\n"
	visitors, _, _ := start(t, origin.URL, oneRoom+more)
	pass := "Cookie: " + get(t, visitors+"/", "").cookie + "\r\n"
	for _, x := range []struct {
		what, line, headers string
		want                int
	}{
		{"excluded, h2c", "GET /robots.txt", toH2C, 200},
		{"excluded, WebSocket", "GET /robots.txt", toWebSocket, 200},
		{"inside, h2c", "GET /", pass + toH2C, 200},
		{"inside, both", "GET /", pass + "Connection: Upgrade\r\nUpgrade: websocket, h2c\r\nSec-WebSocket-Key: x\r\n", 200},
		{"inside, two lines", "GET /", pass + toWebSocket + toH2C, 200},
		{"inside, h2c without Connection", "GET /", pass + "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n", 200},
		{"inside, settings alone", "GET /", pass + "HTTP2-Settings: AAMAAABk\r\n", 200},
		{"inside, by POST", "POST /", pass + "Content-Length: 0\r\n" + toWebSocket, 200},
		{"inside, no key", "GET /", pass + "Connection: Upgrade\r\nUpgrade: websocket\r\n", 200},
		{"inside, WebSocket", "GET /", pass + toWebSocket, 101},
		{"suspended, h2c", "GET /off", toH2C, 200},
		{"suspended, WebSocket", "GET /off", toWebSocket, 101},
		{"bypass, WebSocket", "GET /rule", toWebSocket, 200},
		{"excluded with upgrade, h2c", "GET /open/x", toH2C, 200},
		{"excluded with upgrade, WebSocket", "GET /open/x", toWebSocket, 101},
	} {
		upgrades.Store(0)
		res := askRaw(t, visitors, x.line+" HTTP/1.1\r\nHost: x\r\n"+x.headers+"\r\n")
		if res.StatusCode != x.want {
			t.Errorf("%s: %d, want %d", x.what, res.StatusCode, x.want)
		}
		if got := upgrades.Load(); got > 0 != (x.want == 101) {
			t.Errorf("%s: the origin was asked %d times to switch", x.what, got)
		}
	}
}

// An origin that switches unasked opens no tunnel either.
func TestAnOriginThatSwitchesUnasked(t *testing.T) {
	for _, head := range []string{"", "Connection: Upgrade\r\n", "Connection: Upgrade\r\nUpgrade: h2c\r\n",
		"Connection: Upgrade\r\nUpgrade: websocket\r\n", "Connection: Upgrade\r\nUpgrade: \r\n"} {
		origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\n%s\r\nHTTP/1.1 200 OK\r\n\r\n", head)
		}))
		visitors, _, _ := start(t, origin.URL, oneRoom)
		pass := "Cookie: " + get(t, visitors+"/", "").cookie + "\r\n"
		for _, ask := range []string{"GET /robots.txt HTTP/1.1\r\nHost: x\r\n", "GET / HTTP/1.1\r\nHost: x\r\n" + pass,
			"GET / HTTP/1.1\r\nHost: x\r\n" + pass + toH2C} {
			c, in := dial(t, visitors)
			io.WriteString(c, ask+"\r\n")
			res, err := http.ReadResponse(in, nil)
			if err != nil || res.StatusCode != 502 {
				t.Errorf("%q after %q: %v %v", head, ask, res, err)
			}
		}
		origin.Close()
	}
}

// rawOrigin keeps the bytes of what headgate sends, and answers each request on a connection of
// its own.
func rawOrigin(t *testing.T) (url string, heads <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	got, done := make(chan string, 100), make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			in := bufio.NewReader(c)
			var all strings.Builder
			r, err := http.ReadRequest(bufio.NewReader(io.TeeReader(in, &all)))
			if err == nil {
				io.Copy(io.Discard, r.Body)
				io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
				got <- all.String()
			}
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return "http://" + l.Addr().String(), got
}

// CGI, WSGI and Rack read X_Forwarded_For as X-Forwarded-For.
func TestOtherSpellingsOfOurHeadersStopHere(t *testing.T) {
	url, heads := rawOrigin(t)
	visitors, _, _ := start(t, url, oneRoom)
	const forged = "X_Forwarded_For: 6.6.6.6\r\nx.forwarded.proto: 6.6.6.6\r\nX-Forwarded_Host: 6.6.6.6\r\n" +
		"X_Real_IP: 6.6.6.6\r\nX-Real-Ip: 6.6.6.6\r\nX-Forwarded-Port: 6.6.6.6\r\nHeadgate_Pass: 6.6.6.6\r\n" +
		"Headgate.Pass: 6.6.6.6\r\nCf_Waiting_Room_Command: 6.6.6.6\r\nTransfer_Encoding: 6.6.6.6\r\n" +
		"Content_Length: 6.6.6.6\r\nX~Forwarded!For: 6.6.6.6\r\n"
	send := "POST / HTTP/1.1\r\nHost: x\r\nX_Shop: kept\r\n" + forged +
		"Transfer-Encoding: chunked\r\nTrailer: X_Forwarded_For, X-Forwarded-For\r\n\r\n" +
		"1\r\na\r\n0\r\nX_Forwarded_For: 6.6.6.6\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n"
	if res := askRaw(t, visitors, send); res.StatusCode != 200 {
		t.Fatal(res.Status)
	}
	h1 := <-heads
	r, err := http.NewRequestWithContext(t.Context(), "GET", visitors+"/robots.txt", nil)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(forged + "X_Shop: kept\r\n") {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		r.Header[strings.ToLower(name)] = []string{value}
	}
	h2, err := overH2C(t).RoundTrip(r)
	if err != nil || h2.ProtoMajor != 2 || h2.StatusCode != 200 {
		t.Fatal(h2, err)
	}
	h2.Body.Close()
	for proto, text := range map[string]string{"HTTP/1.1": h1, "HTTP/2": <-heads} {
		if strings.Contains(text, "6.6.6.6") || strings.Contains(text, "Trailer: X") {
			t.Errorf("by %s the origin reads\n%s", proto, text)
		}
		if !strings.Contains(strings.ToLower(text), "x_shop: kept") {
			t.Errorf("by %s a header of the site's own is lost:\n%s", proto, text)
		}
	}
}

// overH2C speaks HTTP/2 without TLS.
func overH2C(t *testing.T) *http.Transport {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: p}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}
