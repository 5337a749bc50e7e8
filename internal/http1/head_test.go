//go:build unix

package http1

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"reflect"
	"strings"
	"testing"
)

func TestWhatIsNotCarried(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"TLS":           func(r *http.Request) { r.URL.Scheme = "https" },
		"an upgrade":    func(r *http.Request) { r.Header.Set("Upgrade", "websocket") },
		"connection":    func(r *http.Request) { r.Header.Set("Connection", "close") },
		"expect":        func(r *http.Request) { r.Header.Set("Expect", "100-continue") },
		"CONNECT":       func(r *http.Request) { r.Method = "CONNECT" },
		"close":         func(r *http.Request) { r.Close = true },
		"trailers":      func(r *http.Request) { r.Trailer = http.Header{"X": nil} },
		"opaque":        func(r *http.Request) { r.URL.Opaque = "//x/y" },
		"a zone":        func(r *http.Request) { r.Host = "[fe80::1%25en0]" },
		"another host":  func(r *http.Request) { r.Host = "bücher.example" },
		"a bad host":    func(r *http.Request) { r.Host = "a b" },
		"a host line":   func(r *http.Request) { r.Host = "a\r\nX: y" },
		"perhaps empty": func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader("")), -1 },
	} {
		r := newRequest(t, "GET", "/", nil)
		if change(r); Carries(r) {
			t.Errorf("%s: carried", name)
		}
	}
}

func TestHead(t *testing.T) {
	r := newRequest(t, "PUT", "/a%2fb/../c;d?e=f;g&h=%zz", nil)
	r.Host = "shop.test:81"
	r.Header = http.Header{
		"B": {" 2\t", "3"}, "A": {"1"}, "User-Agent": {""}, "Host": {"evil"}, "Content-Length": {"7"},
		"Transfer-Encoding": {"chunked"}, "Trailer": {"X"},
	}
	var h buffer
	if err := h.head(r); err != nil {
		t.Fatal(err)
	}
	want := "PUT /a%2fb/../c;d?e=f;g&h=%zz HTTP/1.1\r\nHost: shop.test:81\r\nContent-Length: 0\r\n" +
		"A: 1\r\nB: 2\r\nB: 3\r\n\r\n"
	if got := string(h.b); got != want {
		t.Errorf("%q\nwant\n%q", got, want)
	}
}

// The origin sees the fields in the order of net/http, which firewalls know.
func TestTheOrderIsThatOfNetHTTP(t *testing.T) {
	for _, h := range []http.Header{
		{"Accept": {"1", "2"}, "User-Agent": {"a"}, "Cookie": {"b=c"}, "Zz": {"4"}},
		{"Accept": {"1"}, "User-Agent": {"a", "b"}},
		{"Accept": {"1"}, "User-Agent": {""}},
	} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			for _, body := range []io.Reader{nil, strings.NewReader("")} {
				r := newRequest(t, method, "/", nil)
				r.Header = h
				if method == "POST" && body != nil {
					r.Body, r.ContentLength = io.NopCloser(body), -1
				}
				var ours buffer
				if err := ours.head(r); err != nil {
					t.Fatal(err)
				}
				var theirs bytes.Buffer
				r.Write(&theirs)
				head, _, _ := strings.Cut(theirs.String(), "\r\n\r\n")
				if got, want := string(ours.b), head+"\r\n\r\n"; got != want {
					t.Errorf("%q\nwant\n%q", got, want)
				}
			}
		}
	}
}

func TestRequestsThatAreNotSent(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"a line in a value":     func(r *http.Request) { r.Header["X"] = []string{"a\r\nY: b"} },
		"a NUL in a value":      func(r *http.Request) { r.Header["X"] = []string{"a\x00"} },
		"a space in a name":     func(r *http.Request) { r.Header["X Y"] = []string{"a"} },
		"a colon in a name":     func(r *http.Request) { r.Header["X:"] = []string{"a"} },
		"an empty name":         func(r *http.Request) { r.Header[""] = []string{"a"} },
		"a space in the method": func(r *http.Request) { r.Method = "GET /" },
		"a line in the agent":   func(r *http.Request) { r.Header["User-Agent"] = []string{"a\r\nY: b"} },
		"a line in the method":  func(r *http.Request) { r.Method = "GET\r\n" },
		"a space in the query":  func(r *http.Request) { r.URL.RawQuery = "a HTTP/1.1" },
		"a line in the query":   func(r *http.Request) { r.URL.RawQuery = "a\r\nX: y" },
	} {
		p := newPeer(t, func(c *script, _ int64) {
			for r := c.request(); r != nil; r = c.request() {
				if r.RequestURI != "/good" {
					t.Errorf("%s: the server got %s", name, r.RequestURI)
				}
				c.say(hello)
			}
			if said := c.rest(); said != "" {
				t.Errorf("%s: the server got %q", name, said)
			}
		})
		tr := p.transport()
		ask(t, tr, newRequest(t, "GET", "/good", nil))
		r := newRequest(t, "GET", "/", nil)
		change(r)
		if _, err := tr.RoundTrip(r); err == nil {
			t.Errorf("%s: sent", name)
		}
		ask(t, tr, newRequest(t, "GET", "/good", nil))
		if p.seen.Load() != 1 {
			t.Errorf("%s: it has cost a connection", name)
		}
	}
}

// FuzzHead: what is sent is one request, and the one that was meant.
func FuzzHead(f *testing.F) {
	f.Add("GET", "/a", "b=c", "x.test", "X-A", "1", int64(0))
	f.Add("POST", "/..%2f", "", "x:80", "Cookie", "a=b", int64(-1))
	f.Add("PUT", "*", "\r\n", "x", "Content-Length", "5", int64(7))
	f.Add("GET", "//x/y", "?", "", "Transfer-Encoding", "chunked", int64(0))
	f.Fuzz(func(t *testing.T, method, path, query, host, name, value string, length int64) {
		r := &http.Request{
			Method: method, Host: host, ContentLength: length, Header: http.Header{},
			URL: &url.URL{Scheme: "http", Host: "origin.test", Path: path, RawQuery: query},
		}
		if length != 0 {
			r.Body = io.NopCloser(strings.NewReader(""))
			r.TransferEncoding = []string{"chunked"}
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		r.Header[name] = []string{value}
		var h buffer
		if !Carries(r) || h.head(r) != nil {
			return
		}
		rest := bufio.NewReader(bytes.NewReader(h.b))
		got, err := http.ReadRequest(rest)
		if err != nil {
			if strings.HasPrefix(r.URL.RequestURI(), "/") && !strings.HasPrefix(r.URL.RequestURI(), "//") &&
				!strings.Contains(query, "%") {
				t.Fatalf("%q: %v", h.b, err)
			}
			return
		}
		if rest.Buffered() > 0 {
			t.Fatalf("%q leaves %d bytes", h.b, rest.Buffered())
		}
		if got.Method != method || got.RequestURI != r.URL.RequestURI() || got.Host != hostOf(r) {
			t.Fatalf("%q is %s %s for %s", h.b, got.Method, got.RequestURI, got.Host)
		}
		switch {
		case length > 0 && got.ContentLength != length, length < 0 && got.ContentLength != -1,
			length == 0 && got.ContentLength != 0:
			t.Fatalf("%q has a length of %d", h.b, got.ContentLength)
		}
		switch name {
		case "Host", "Content-Length", "Transfer-Encoding", "Trailer":
			return
		}
		want := []string{textproto.TrimString(value)}
		if name == "User-Agent" && value == "" {
			want = nil
		}
		if have := got.Header[name]; !reflect.DeepEqual(have, want) {
			t.Fatalf("%q has %q, want %q", h.b, have, want)
		}
	})
}
