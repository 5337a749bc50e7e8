//go:build edges

package edges

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// answer sends a request as bytes and returns the whole answer.
func (w *world) answer(t *testing.T, request string) string {
	t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(c)
	if err != nil {
		t.Logf("%.60q: %v", request, err) // a proxy may reset the connection after its answer
	}
	return string(all)
}

// TestEachRoomHasItsOrigin: no request for an open room reaches the origin of a closed one, and no
// request reaches an origin that names another host to it.
func TestEachRoomHasItsOrigin(t *testing.T) {
	each(t, func(t *testing.T, e *edge) {
		shop, tickets, other, exact := serveOrigin(t), serveOrigin(t), serveOrigin(t), serveOrigin(t)
		room := func(keys string, o *origin) string {
			return "  - {" + keys + ", origin: \"http://" + o.addr() +
				"\", total_active_users: 100, new_users_per_minute: 100}\n"
		}
		w := e.openRooms(t, "", room("name: shop, host: shop.example", shop)+
			room("name: tickets, host: shop.example, path: /tickets, closed: true", tickets)+
			room("name: other, host: other.example, closed: true", other)+
			room("name: exact, host: shop.example, path: /Exact, path_case_sensitive: true, closed: true", exact))
		for _, path := range []string{"/", "/exact", "/EXACT/buy", "/exactly"} {
			w.answer(t, "GET "+path+" HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n")
			if got := shop.take(); len(got) != 1 || len(exact.take()) > 0 {
				t.Fatalf("%s: the open room's origin got %v", path, got)
			}
		}
		for _, head := range []string{
			"/tickets HTTP/1.1\r\nHost: shop.example",
			"/Exact/buy HTTP/1.1\r\nHost: shop.example",
			"/tickets/buy HTTP/1.1\r\nHost: shop.example",
			"/TICKETS/buy HTTP/1.1\r\nHost: shop.example",
			"/%74ickets/buy HTTP/1.1\r\nHost: shop.example",
			"/ticketsale HTTP/1.1\r\nHost: shop.example",
			"http://other.example/buy HTTP/1.1\r\nHost: shop.example",
			"http://shop.example/tickets HTTP/1.1\r\nHost: other.example",
			"/buy HTTP/1.1\r\nHost: other.example:1",
			"/buy HTTP/1.1\r\nHost: other.example.",
			"/buy HTTP/1.1\r\nHost: shop.example\r\nHost: other.example",
			"/buy HTTP/1.1\r\nHost: other.example\r\nHost: shop.example",
			"/buy HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-Host: other.example",
			"/buy HTTP/1.1\r\nHost: shop.example\r\nForwarded: host=other.example",
		} {
			w.answer(t, "GET "+head+"\r\nConnection: close\r\n\r\n")
			for _, got := range slices.Concat(tickets.take(), other.take(), exact.take()) {
				t.Errorf("%q: the origin of a closed room got %s of %s", head, got.RequestURI, got.Host)
			}
			for _, got := range shop.take() {
				if all := fmt.Sprint(got.Host, got.Header); strings.Contains(all, "other.example") {
					t.Errorf("%q: the origin of the open room got %s", head, all)
				}
			}
		}
	})
}

// TestPreflightsAreNoWayAround: a request that passes because of its method has no cookies and no
// body, and brings no page back.
func TestPreflightsAreNoWayAround(t *testing.T) {
	each(t, func(t *testing.T, e *edge) {
		o := serveOrigin(t)
		w := e.open(t, o.addr(), "total_active_users: 1, new_users_per_minute: 10, session_duration: 1h")
		for _, method := range []string{"HEAD", "OPTIONS"} {
			if method == "OPTIONS" { // now the room is full
				first := browser{w: w}
				first.ask(t, "GET", "/")
				o.take()
			}
			for _, body := range []string{"", "a=1"} {
				got := w.answer(t, fmt.Sprintf("%s /checkout HTTP/1.1\r\nHost: shop.example\r\nCookie: session=1\r\n"+
					"Origin: https://a.example\r\nAccess-Control-Request-Method: POST\r\nContent-Length: %d\r\n"+
					"Connection: close\r\n\r\n%s", method, len(body), body))
				for _, r := range o.take() {
					if r.Header["Cookie"] != nil || method == "OPTIONS" && r.ContentLength != 0 {
						t.Errorf("%s, body %q: the origin got %d bytes, %v", method, body, r.ContentLength, r.Header)
					}
				}
				if strings.Contains(got, "the shop") {
					t.Errorf("%s, body %q: %s", method, body, got)
				}
			}
		}
	})
}

// TestTheOriginsAnswerStays: a cookie of headgate costs the visitor no cookie of the origin, and no
// cache may keep more than the origin allows.
func TestTheOriginsAnswerStays(t *testing.T) {
	each(t, func(t *testing.T, e *edge) {
		o := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Set-Cookie", "app=1; Path=/")
			w.Header()["Cache-Control"] = []string{"max-age=0", "no-store"}
			io.WriteString(w, "the shop\n")
		}))
		t.Cleanup(o.Close)
		w := e.open(t, strings.TrimPrefix(o.URL, "http://"), "total_active_users: 10, new_users_per_minute: 10")
		b := browser{w: w}
		for _, cookies := range []int{2, 2, 1} { // the pass, the pass after probation, none
			res, _ := b.ask(t, "GET", "/")
			cache := strings.Join(res.Header["Cache-Control"], ", ")
			if len(res.Header["Set-Cookie"]) != cookies || !strings.Contains(cache, "no-store") {
				t.Errorf("%d cookies wanted: %v", cookies, res.Header)
			}
		}
	})
}

// TestSpellingsOfHeadersStopHere: no spelling of a header that names another request, host or pass
// reaches the origin.
func TestSpellingsOfHeadersStopHere(t *testing.T) {
	each(t, func(t *testing.T, e *edge) {
		o := serveOrigin(t)
		w := e.open(t, o.addr(), "total_active_users: 10, new_users_per_minute: 10, session_duration: 1h")
		b := browser{w: w}
		b.ask(t, "GET", "/")
		o.take()
		for _, name := range []string{"X_Original_URL", "X.Original.URL", "X-Original-URL", "X-Rewrite-URL",
			"SCRIPT_NAME", "Headgate_Pass", "X_Forwarded_Host", "Forwarded", "X-HTTP-Method", "X-Method-Override"} {
			for _, path := range []string{"/robots.txt", "/checkout", "/a/.headgate/b"} {
				answer := w.answer(t, "GET "+path+" HTTP/1.1\r\nHost: shop.example\r\nCookie: "+b.jar.String()+"\r\n"+
					name+": forged\r\nConnection: close\r\n\r\n")
				got := o.take()
				if e.name == "k8s" && strings.Contains(name, "_") && strings.HasPrefix(answer, "HTTP/1.1 400") {
					continue // Envoy Gateway rejects underscores
				}
				if len(got) != 1 {
					t.Errorf("%s, %s: the origin got %v", path, name, got)
					continue
				}
				byHeadgate := path == "/a/.headgate/b" && strings.Contains(name, "Method") // and inside
				if all := fmt.Sprint(got[0].Header); strings.Contains(all, "forged") && !byHeadgate {
					t.Errorf("%s: the origin got %s", path, all)
				}
			}
		}
	})
}

// TestLargeQuestions: a request whose question is too large for a proxy, or for headgate, lets nobody
// in.
func TestLargeQuestions(t *testing.T) {
	eachOf(t, append(opened(t), kinds...), func(t *testing.T, e *edge) {
		o := serveOrigin(t)
		w := e.open(t, o.addr(), "total_active_users: 10, new_users_per_minute: 10, closed: true")
		var heads []string
		for n := 85; n <= 101; n++ {
			var b strings.Builder
			for i := range n {
				fmt.Fprintf(&b, "X-%d: a\r\n", i)
			}
			heads = append(heads, "/checkout HTTP/1.1\r\n"+b.String())
		}
		for _, n := range []int{4000, 7000, 8100, 14000, 14800, 15000, 15100, 15200, 15300, 60000} {
			heads = append(heads, "/checkout?"+strings.Repeat("a", n)+" HTTP/1.1\r\n",
				"/checkout HTTP/1.1\r\nCookie: a="+strings.Repeat("a", n)+"\r\n")
		}
		for _, n := range []int{7, 8, 14, 15, 16, 17, 18, 19, 50, 99} { // headgate reads 64 KB
			heads = append(heads, "/checkout HTTP/1.1\r\n"+strings.Repeat("X-A: "+strings.Repeat("a", 4000)+"\r\n", n))
		}
		for _, head := range heads {
			got := w.answer(t, "GET "+head+"Host: shop.example\r\nConnection: close\r\n\r\n")
			if len(o.take()) > 0 {
				t.Errorf("%d bytes, %d lines: the origin got it; %.40q", len(head), strings.Count(head, "\n"), got)
			}
		}
	})
}

// TestAFailedScriptLetsNobodyIn: HAProxy goes on after an error of a Lua action.
func TestAFailedScriptLetsNobodyIn(t *testing.T) {
	broken := []edge{{"haproxy", func(t *testing.T, addr string, to places) {
		dir := t.TempDir()
		write(t, dir, "headgate.lua", strings.Replace(recipe(t, "haproxy-lua", addr, to), "core.httpclient", "core.nothing", 1))
		run(t, dir, addr, "haproxy", "-q", "-f", write(t, dir, "haproxy.cfg", recipe(t, "haproxy", addr, to)))
	}}, {"apache", func(t *testing.T, addr string, to places) {
		runApache(t, addr, to, strings.Replace(recipe(t, "apache-lua", addr, to), "socket.tcp", "socket.nothing", 1))
	}}, {"apache without its script", func(t *testing.T, addr string, to places) {
		runApache(t, addr, to, "")
	}}}
	for i := range broken {
		o := serveOrigin(t)
		w := broken[i].open(t, o.addr(), "total_active_users: 10, new_users_per_minute: 10, closed: true")
		got := w.answer(t, "GET /checkout HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n")
		if len(o.take()) > 0 || !strings.HasPrefix(got, "HTTP/1.1 50") {
			t.Errorf("%s: the origin got the request; %.40q", broken[i].name, got)
		}
	}
}

// TestRedirectsStayOutside: the clean path of a redirect is one of the host that was asked.
func TestRedirectsStayOutside(t *testing.T) {
	each(t, func(t *testing.T, e *edge) {
		o := serveOrigin(t)
		w := e.open(t, o.addr(), "total_active_users: 10, new_users_per_minute: 10")
		for _, target := range []string{"/checkout/..;x/robots.txt", "/robots.txt%20", "/checkout/..%2frobots.txt"} {
			got := w.answer(t, "GET "+target+" HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n")
			if _, to, ok := strings.Cut(got, "\r\nLocation: "); ok && !strings.HasPrefix(to, "/") {
				t.Errorf("%s: %.100q", target, to)
			}
		}
	})
}
