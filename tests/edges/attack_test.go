//go:build edges

package edges

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// raw sends a request as bytes, and returns the status, or 0 when the connection was closed without
// an answer.
func (w *world) raw(t *testing.T, request string) int {
	t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte(request)); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	res.Body.Close()
	return res.StatusCode
}

// TestPathsAreNoWayAround: what was decided is what the origin gets, whatever the proxy makes of a
// path. The room is closed: only excluded paths may pass.
func TestPathsAreNoWayAround(t *testing.T) {
	targets := []string{
		"/checkout/..%2frobots.txt", "/checkout/%2e%2e/robots.txt", "/checkout/../robots.txt",
		"/checkout/..;x/robots.txt", "/checkout/..\\robots.txt", "/checkout/..%5crobots.txt",
		"/robots.txt/..%2fcheckout", "/robots.txt/../checkout", "/robots.txt/%2e%2e/checkout",
		"/robots.txt;/../checkout", "/robots.txt%00/../checkout", "//robots.txt", "//x/robots.txt",
		"/robots.txt%2f..%2fcheckout", "/robots.txt?/../checkout", "/robots.txt#/../checkout",
		"http://shop.example/checkout", "http://other.example/robots.txt", "http:http://shop.example/checkout",
		"/.headgate/../checkout", "/.headgate/..%2fcheckout", "/checkout/.headgate/served",
		"/checkout;%09x", "/checkout;\t", "/checkout;\tx", "/checkout;%09/../robots.txt", "/robots.txt;%09x",
		"/robots.txt;\tx", "/robots.txt;\t/../checkout", "/robots.txt;%09/../checkout", "/robots.txt%09",
		"/robots.txt\t", "/checkout\t/robots.txt", "/robots.txt\tHTTP/1.1",
		"/headgate-decides", "/original", "/forward", "/ROBOTS.TXT/..%2fcheckout", "/./robots.txt/../checkout",
	}
	eachOf(t, append(opened(t), kinds...), func(t *testing.T, e *edge) {
		o := serveOrigin(t)
		w := e.open(t, o.addr(), "total_active_users: 10, new_users_per_minute: 10, closed: true")
		if code := w.raw(t, "GET /robots.txt HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n"); code != 200 ||
			len(o.take()) != 1 {
			t.Fatalf("an excluded path: %d", code)
		}
		for _, target := range targets {
			for _, method := range []string{"GET", "POST"} {
				code := w.raw(t, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 0\r\n"+
					"Connection: close\r\n\r\n", method, target))
				for _, got := range o.take() {
					if path, _, _ := strings.Cut(got.RequestURI, "?"); path != "/robots.txt" {
						t.Errorf("%s %s: %d, and the origin got %s", method, target, code, got.RequestURI)
					}
				}
			}
		}
	})
}

// TestNobodyReachesQuestions: whatever a visitor asks for, the proxy asks headgate only about that
// request, and no visitor gets the answer to a question.
func TestNobodyReachesQuestions(t *testing.T) {
	each(t, func(t *testing.T, e *edge) {
		o := serveOrigin(t)
		type question struct{ wire, about string }
		asked := make(chan question, 100)
		w := watched(t, e, func(r *http.Request) {
			q := question{r.URL.Path, r.Header.Get("X-Original-Uri")}
			if itself, ok := strings.CutPrefix(r.RequestURI, "/envoy"); ok {
				q = question{"/envoy", itself}
			} else if q.wire == "/forward" {
				q.about = r.Header.Get("X-Forwarded-Uri")
			} else if u, err := url.Parse(r.Header.Get("X-Original-Url")); err == nil && u.Host != "" {
				q.about = u.RequestURI() // ingress-nginx
			}
			asked <- q
		}).open(t, o.addr(), "total_active_users: 100, new_users_per_minute: 100")
		questions := func() (all []question) {
			for len(asked) > 0 {
				all = append(all, <-asked)
			}
			return all
		}
		w.answer(t, "GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n")
		o.take()
		if byHTTP := e.name != "envoy" && e.name != "k8s"; len(questions()) > 0 != byHTTP {
			t.Fatalf("the proxy has asked by HTTP: %v", !byHTTP)
		}
		for _, target := range []string{"/original", "/forward", "/connect", "/batch", "/jwks.json", "/envoy/robots.txt",
			"/original/revoke", "/forward/revoke", "/headgate-decides", "/%68eadgate-decides", "//headgate-decides",
			"/a/../headgate-decides", "http://shop.example/batch", "http://decide/original", "http://headgate/connect",
			"/envoy.service.auth.v3.Authorization/Check"} {
			for _, method := range []string{"GET", "POST"} {
				got := w.answer(t, method+" "+target+" HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 2\r\n"+
					"Content-Type: application/json\r\nX-Original-Method: GET\r\nX-Original-URI: /forged\r\n"+
					"X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /forged\r\nX-Forwarded-Host: shop.example\r\n"+
					"X-Forwarded-Proto: http\r\nConnection: close\r\n\r\n{}")
				for _, answer := range []string{"headgate-admitted:", `"answers"`, `"keys"`, "no session"} {
					if strings.Contains(strings.ToLower(got), answer) {
						t.Errorf("%s %s: the answer to a question: %.300q", method, target, got)
					}
				}
				about := []string{target}
				if u, err := url.Parse(target); err == nil && u.Scheme != "" {
					about = []string{u.Path}
				}
				for _, r := range o.take() {
					about = append(about, r.RequestURI) // Apache cleans paths before it asks
				}
				for _, q := range questions() {
					wires := []string{"/original", "/forward", "/envoy"}
					if !slices.Contains(wires, q.wire) || !slices.Contains(about, q.about) {
						t.Errorf("%s %s: headgate was asked at %s about %s", method, target, q.wire, q.about)
					}
				}
			}
		}
	})
}

// forged are headers by which a visitor claims another request, address or decision.
var forged = []string{"X-Forwarded-Uri", "X-Forwarded-Method", "X-Original-URI", "X-Original-URL",
	"X-Original-Method", "X-Rewrite-URL", "X-HTTP-Method-Override", "Headgate-Admitted", "Headgate-Pass"}

// TestForgedHeaders: headers of a visitor decide nothing, and the origin does not get them.
func TestForgedHeaders(t *testing.T) {
	each(t, func(t *testing.T, e *edge) {
		o := serveOrigin(t)
		w := e.open(t, o.addr(), "total_active_users: 1, new_users_per_minute: 10, session_duration: 1h")
		first := browser{w: w}
		if res, _ := first.ask(t, "GET", "/"); res.StatusCode != 200 {
			t.Fatal(res.Status)
		}
		o.take()
		for _, name := range forged {
			for _, value := range []string{"/robots.txt", "https://shop.example/robots.txt", "OPTIONS", "session"} {
				other := browser{w: w}
				res, _ := other.ask(t, "GET", "/checkout", name, value)
				if got := o.take(); res.StatusCode < 400 || len(got) > 0 {
					t.Errorf("%s: %s: %d, and the origin got %v", name, value, res.StatusCode, got)
				}
				if first.ask(t, "GET", "/checkout", name, value); true {
					for _, got := range o.take() {
						if got.Header.Get(name) != "" && name != "Headgate-Admitted" {
							t.Errorf("the origin got %s: %s", name, got.Header.Get(name))
						}
					}
				}
			}
		}
		other := browser{w: w}
		if res, _ := other.ask(t, "GET", "/", "X-Forwarded-Host", "other.example", "X-Forwarded-For", "10.0.0.1",
			"X-Forwarded-Proto", "https"); res.StatusCode != e.waits() {
			t.Errorf("X-Forwarded-*: %d", res.StatusCode)
		}
		for _, c := range strings.Fields(other.jar.String()) {
			if strings.HasPrefix(c, "__Host-") {
				t.Errorf("a visitor chose X-Forwarded-Proto: %s", c)
			}
		}
	})
}

// TestTunnels: only WebSockets of visitors inside are upgraded.
func TestTunnels(t *testing.T) {
	each(t, func(t *testing.T, e *edge) {
		o := serveOrigin(t)
		w := e.open(t, o.addr(), "total_active_users: 1, new_users_per_minute: 10, session_duration: 1h")
		first := browser{w: w}
		first.ask(t, "GET", "/")
		o.take()
		for _, protocol := range []string{"h2c", "websocket", "WebSocket, h2c"} {
			for _, path := range []string{"/robots.txt", "/chat"} {
				w.raw(t, "GET "+path+" HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade, HTTP2-Settings\r\n"+
					"Upgrade: "+protocol+"\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nSec-WebSocket-Key: "+
					"dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
				for _, got := range o.take() {
					if got.Header.Get("Upgrade") != "" || got.Header.Get("HTTP2-Settings") != "" {
						t.Errorf("%s, %s: the origin was asked for %q, %q", path, protocol,
							got.Header.Get("Upgrade"), got.Header.Get("HTTP2-Settings"))
					}
				}
			}
		}
		first.ask(t, "GET", "/chat", "Connection", "Upgrade", "Upgrade", "websocket",
			"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version", "13")
		if got := o.take(); len(got) != 1 || !strings.EqualFold(got[0].Header.Get("Upgrade"), "websocket") {
			t.Errorf("a WebSocket of a visitor inside: %v", got)
		}
	})
}
