package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"testing"
)

// sent is what a request was when it went to the origin.
type sent struct {
	method, url, host string
	length            int64
	body              bool
	header            http.Header
}

// record returns a transport that records requests.
func record(to *sent) http.RoundTripper {
	return originFunc(func(r *http.Request) (*http.Response, error) {
		*to = sent{r.Method, r.URL.String(), r.Host, r.ContentLength, r.Body != nil, r.Header.Clone()}
		return &http.Response{StatusCode: 204, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	})
}

// same sends r both ways, by forward and by net/http's ReverseProxy, and compares what the origin
// gets.
func same(t *testing.T, p *Proxy, r *http.Request) {
	t.Helper()
	var ours, theirs sent
	before := r.Header.Clone()
	p.carrier = record(&ours)
	p.forward(&answer{ResponseWriter: httptest.NewRecorder(), r: r}, r)
	if !reflect.DeepEqual(r.Header, before) {
		t.Errorf("the client's header is\n%v, and was\n%v", r.Header, before)
	}
	p.reverse.Transport = record(&theirs)
	p.reverse.ServeHTTP(&answer{ResponseWriter: httptest.NewRecorder(), r: r}, r)
	if !reflect.DeepEqual(ours, theirs) {
		t.Errorf("%+v\nwant\n%+v", ours, theirs)
	}
}

func newCompared(t *testing.T) *Proxy {
	t.Helper()
	p, err := New(Config{
		Origin: parseURL(t, "http://origin.test/base/"), StripCookiePrefix: "__gate",
		Trusted: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Vouched: []string{"X-User"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A request goes to the origin as ReverseProxy would send it.
func TestForwardIsReverseProxy(t *testing.T) {
	p := newCompared(t)
	for _, head := range []string{
		"",
		"Connection: close", "Connection: keep-alive, X-Drop", "Connection: x-drop,Cookie , ,X-User",
		"Connection: X-Forwarded-For", "Connection: Te\nTe: trailers", "Te: gzip", "Te: gzip, trailers",
		"Te: trailers;q=0.5", "Keep-Alive: 5\nProxy-Connection: x\nProxy-Authorization: y",
		"Trailer: X-Sum\nTransfer-Encoding: chunked", "Upgrade: h2c\nConnection: Upgrade, HTTP2-Settings\nHttp2-Settings: x",
		"Upgrade: websocket", "User-Agent: a", "User-Agent:",
		"X-Forwarded-For: 198.51.100.1\nX-Forwarded-Proto: https\nX-Forwarded-Host: h\nForwarded: for=1",
		"X-Forwarded-For: 1\nX-Forwarded-For: 2", "Cookie: __gate=1", "Cookie: a=1; __gate=1; b=2\nCookie: __gate=2",
		"Cookie: headgate-session=1; c=3\nCookie: d=4", "X-User: ana", "X_Forwarded_For: 9", "X-Drop: 1\nAccept: */*",
		"Connection: X_drop\nX_drop: 1", "Expect: 100-continue",
	} {
		for _, path := range []string{"/", "/a%2fb/..%2fc?x=1;y=%zz", "//x", "/.", "/%20"} {
			for _, peer := range []string{"192.0.2.1:1", "198.51.100.7:1", "@"} {
				r := httptest.NewRequest("GET", path, nil)
				r.RemoteAddr = peer
				for line := range strings.SplitSeq(head, "\n") {
					if name, value, ok := strings.Cut(line, ":"); ok {
						r.Header.Add(name, strings.TrimSpace(value))
					}
				}
				same(t, p, r)
			}
		}
	}
	post := httptest.NewRequest("POST", "/", strings.NewReader("body"))
	same(t, p, post)
	post = httptest.NewRequest("POST", "/", strings.NewReader("body"))
	post.ContentLength = -1
	same(t, p, post)
	post = httptest.NewRequest("POST", "/", strings.NewReader("body"))
	post.ContentLength = 0
	same(t, p, post)
}

func FuzzForward(f *testing.F) {
	f.Add("/a?b", "Connection", "X-A, close", "X-A", "1")
	f.Add("/a%2f..", "Te", "trailers", "Connection", "te")
	f.Add("/", "X-Forwarded-For", "1", "Forwarded", "for=2")
	f.Fuzz(func(t *testing.T, path, name1, value1, name2, value2 string) {
		r, err := http.NewRequest("GET", "http://shop.test/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.URL, err = r.URL.Parse(path); err != nil {
			return
		}
		r.RemoteAddr = "192.0.2.1:1"
		r.Header.Add(name1, value1)
		r.Header.Add(name2, value2)
		for _, v := range r.Header["Upgrade"] {
			// ReverseProxy refuses it, and we send a request without it.
			if strings.ContainsFunc(v, func(c rune) bool { return c < ' ' || c > '~' }) {
				return
			}
		}
		same(t, newCompared(t), r)
	})
}

// scripted serves one request with the pieces of an answer, and ends the connection after the last one.
func scripted(t *testing.T, pieces <-chan string) *url.URL {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		http.ReadRequest(bufio.NewReader(conn))
		for piece := range pieces {
			io.WriteString(conn, piece)
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return parseURL(t, "http://"+ln.Addr().String())
}

// Each piece reaches the client although the next one has begun, and the last one although the
// origin breaks off.
func TestEachPieceIsPassedOn(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, c := range []struct {
		at   string // what has come when the client reads the first piece
		then string
		want string // "": the answer is broken
	}{
		{head + "5\r\nfirst\r\n6", "\r\nsecond\r\n0\r\n\r\n", "second"},
		{head + "5\r\nfirst\r\n6\r", "\nsecond\r\n0\r\n\r\n", "second"},
		{head + "5\r\nfirst\r\nno size\r\n", "", ""},
	} {
		pieces := make(chan string, 1)
		_, gate := newGate(t, Config{Origin: scripted(t, pieces)})
		pieces <- c.at
		res, err := newClient(t).Do(request(t, "GET", gate, nil))
		if err != nil {
			t.Errorf("%q: %v", c.at, err)
			close(pieces)
			continue
		}
		first := make([]byte, 5)
		if _, err := io.ReadFull(res.Body, first); err != nil || string(first) != "first" {
			t.Errorf("%q: %q %v", c.at, first, err)
		}
		pieces <- c.then
		close(pieces)
		rest, err := io.ReadAll(res.Body)
		if res.Body.Close(); string(rest) != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q: %q %v", c.at, rest, err)
		}
	}
}

// An origin that names no type of its content gets none: a guess could turn a file into a page.
func TestNoTypeIsGuessed(t *testing.T) {
	_, gate := newGate(t, Config{Origin: newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = nil
		if r.URL.Path == "/chunked" {
			http.NewResponseController(w).Flush()
		}
		io.WriteString(w, "<html><script>1</script>")
	})})
	for _, path := range []string{"/", "/chunked"} {
		res, body := get(t, gate+path)
		if kind, ok := res.Header["Content-Type"]; ok || !strings.HasPrefix(body, "<html>") {
			t.Errorf("%s: %q, %q", path, kind, body)
		}
	}
}
