package headgate_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// A library is a room with one slot in another program: net/http in front, and a reverse proxy of
// net/http to the site.
type library struct {
	*testing.T
	addr string
	room *headgate.Room

	mu   sync.Mutex
	seen []*http.Request // by the site
}

func newLibrary(t *testing.T, change func(*headgate.RoomConfig)) *library {
	t.Helper()
	l := &library{T: t}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.seen = append(l.seen, r)
		if r.URL.Path == "/leave" {
			w.Header().Set(headgate.CommandHeader, "revoke")
		}
	}))
	t.Cleanup(site.Close)
	origin, err := url.Parse(site.URL)
	if err != nil {
		t.Fatal(err)
	}
	cfg := headgate.RoomConfig{Name: "shop", TotalActiveUsers: 1, NewUsersPerMinute: 60}
	if change != nil {
		change(&cfg)
	}
	ctx, stop := context.WithCancel(context.Background())
	if l.room, err = headgate.OpenRoom(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.room.Run(ctx)
	}()
	front := httptest.NewUnstartedServer(nil)
	front.Config = guarded(l.room.Handler(forward(origin)))
	front.Start()
	t.Cleanup(func() {
		front.Close()
		stop()
		<-ended
	})
	l.addr = front.Listener.Addr().String()
	return l
}

// requests returns the requests that the site has received since the previous call.
func (l *library) requests() []*http.Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := l.seen
	l.seen = nil
	return seen
}

// send writes bytes to a connection of its own, and returns all answers.
func (l *library) send(text string) (answers []*http.Response) {
	l.Helper()
	c, err := net.Dial("tcp", l.addr)
	if err != nil {
		l.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		l.Fatal(err)
	}
	for in := bufio.NewReader(c); ; {
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			return answers
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			l.Fatal(err)
		}
		answers = append(answers, res)
	}
}

// enter takes the only slot.
func (l *library) enter() (cookie string) {
	l.Helper()
	res := l.send("GET / HTTP/1.1\r\nHost: shop.example\r\nAccept: text/html\r\nConnection: close\r\n\r\n")
	if len(res) != 1 || res[0].StatusCode != 200 || len(res[0].Cookies()) != 1 || len(l.requests()) != 1 {
		l.Fatalf("not let in: %v", res)
	}
	c := res[0].Cookies()[0]
	return c.Name + "=" + c.Value
}

// Whatever a stranger sends to a full room of the library, none of it reaches the site.
func TestLibraryHoldsTheLine(t *testing.T) {
	l := newLibrary(t, nil)
	pass := l.enter()
	name, value, _ := strings.Cut(pass, "=")
	const end = "Host: shop.example\r\nConnection: close\r\n\r\n"
	for what, text := range map[string]string{
		"a page":          "GET / HTTP/1.1\r\n" + end,
		"a form":          "POST /checkout HTTP/1.1\r\nContent-Length: 3\r\n" + end + "a=b",
		"PUT":             "PUT /checkout HTTP/1.1\r\nContent-Length: 0\r\n" + end,
		"DELETE":          "DELETE /checkout HTTP/1.1\r\n" + end,
		"an unknown one":  "BREW /checkout HTTP/1.1\r\n" + end,
		"lower case":      "head /checkout HTTP/1.1\r\n" + end,
		"CONNECT":         "CONNECT shop.example:443 HTTP/1.1\r\n" + end,
		"an absolute one": "GET http://shop.example/checkout HTTP/1.1\r\n" + end,
		"a slash more":    "GET //checkout HTTP/1.1\r\n" + end,
		"HTTP/1.0":        "GET / HTTP/1.0\r\n\r\n",
		"a poll":          "GET / HTTP/1.1\r\nHeadgate-Poll: 1\r\n" + end,
		"another address": "GET / HTTP/1.1\r\nX-Forwarded-For: 192.0.2.9\r\nForwarded: for=192.0.2.9\r\n" + end,
		"a forged pass":   "GET / HTTP/1.1\r\nHeadgate-Pass: x\r\nCookie: " + name + "=AAAA\r\n" + end,
		"a cut pass":      "GET / HTTP/1.1\r\nCookie: " + name + "=" + value[:len(value)-2] + "\r\n" + end,
		"a hop header":    "GET / HTTP/1.1\r\nCookie: " + pass + "x\r\nConnection: Cookie\r\n" + end,
		"a command":       "GET / HTTP/1.1\r\nHeadgate-Command: revoke\r\n" + end,
		"two, one by one": "GET / HTTP/1.1\r\nHost: shop.example\r\n\r\nGET /two HTTP/1.1\r\n" + end,
		"a smuggled one": "POST / HTTP/1.1\r\nContent-Length: 41\r\nTransfer-Encoding: chunked\r\n" + end +
			"0\r\n\r\nGET /smuggled HTTP/1.1\r\nX: y\r\n\r\n",
		"two lengths":      "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n" + end + "ab",
		"a chunk too long": "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + end + "ffffffffffffffffff\r\nab",
		"large headers":    "GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 80<<10) + "\r\n" + end,
		"no host":          "GET / HTTP/1.1\r\n\r\n",
	} {
		for _, res := range l.send(text) {
			if res.StatusCode/100 == 2 && what != "a poll" {
				t.Errorf("%s: answered %d", what, res.StatusCode)
			}
			for _, c := range res.Cookies() {
				if c.Value == value {
					t.Errorf("%s: handed the pass of another visitor", what)
				}
			}
		}
		for _, r := range l.requests() {
			t.Errorf("%s: the site was asked for %s %s", what, r.Method, r.URL)
		}
	}
	if s := l.room.Status(); s.ActiveUsers != 1 {
		t.Errorf("%d users are inside", s.ActiveUsers)
	}
	if res := l.send("GET / HTTP/1.1\r\nCookie: " + pass + "\r\n" + end); res[0].StatusCode != 200 {
		t.Errorf("the visitor inside is answered %d", res[0].StatusCode)
	}
}

// The site receives everything that a visitor inside sends, except what belongs to the room and
// what the client made up about its address.
func TestLibraryForwardsWhatIsTheVisitors(t *testing.T) {
	l := newLibrary(t, nil)
	pass := l.enter()
	res := l.send("POST /pay?x=1;y=%2 HTTP/1.1\r\nHost: shop.example\r\nCookie: a=1; " + pass + ";b=\"2\"\r\n" +
		"Cookie: __Host-" + pass + "\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nHeadgate-Poll:\r\n" +
		"X-Forwarded-For: 192.0.2.9\r\nX-Forwarded-Host: evil.example\r\nForwarded: for=192.0.2.9\r\n" +
		"Content-Length: 3\r\n\r\na=b")
	seen := l.requests()
	if len(res) != 1 || res[0].StatusCode != 200 || len(seen) != 1 {
		t.Fatalf("%v; the site saw %v", res, seen)
	}
	r := seen[0]
	if r.Method != "POST" || r.URL.Path != "/pay" || r.Host != "shop.example" || r.ContentLength != 3 {
		t.Errorf("%s %s of %s, %d bytes", r.Method, r.URL, r.Host, r.ContentLength)
	}
	for name, want := range map[string]string{
		"Cookie": `a=1; b="2"`, "X-Hop": "", headgate.PollHeader: "", "X-Forwarded-For": "127.0.0.1",
		"X-Forwarded-Host": "shop.example", "Forwarded": "",
	} {
		if got := strings.Join(r.Header[name], " AND "); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	// The site ends the session. The command does not reach the visitor, and the pass is no longer
	// valid.
	const end = "Host: shop.example\r\nConnection: close\r\n\r\n"
	res = l.send("GET /leave HTTP/1.1\r\nCookie: " + pass + "\r\n" + end)
	if len(res) != 1 || res[0].StatusCode != 200 || res[0].Header.Get(headgate.CommandHeader) != "" {
		t.Errorf("%+v", res)
	}
	l.requests()
	l.enter() // somebody else has the slot
	if res = l.send("GET / HTTP/1.1\r\nCookie: " + pass + "\r\n" + end); res[0].StatusCode != 503 ||
		len(l.requests()) != 0 {
		t.Errorf("with a pass that was revoked: %+v", res)
	}
}

// An excluded request opens no tunnel to the site through which others could pass.
func TestLibraryOpensNoTunnel(t *testing.T) {
	l := newLibrary(t, nil)
	l.enter()
	for _, protocol := range []string{"h2c", "tunnel", "websocket2", ""} {
		res := l.send("GET /robots.txt HTTP/1.1\r\nHost: shop.example\r\nUpgrade: " + protocol +
			"\r\nConnection: close, Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n")
		if len(res) != 1 || res[0].StatusCode/100 == 1 {
			t.Errorf("%q: %+v", protocol, res)
		}
		for _, r := range l.requests() {
			if len(r.Header["Upgrade"])+len(r.Header["Http2-Settings"]) > 0 {
				t.Errorf("%q: the site reads %v", protocol, r.Header)
			}
		}
	}
}

const fromApp = "Host: shop.example\r\nConnection: close\r\nOrigin: https://app.example\r\n"

// A room of the library answers preflights as the command's rooms do, in every state.
func TestLibraryAnswersPreflights(t *testing.T) {
	for state, change := range map[string]func(*headgate.RoomConfig){
		"open":         func(*headgate.RoomConfig) {},
		"closed":       func(c *headgate.RoomConfig) { c.Closed = true },
		"suspended":    func(c *headgate.RoomConfig) { c.Suspended = true },
		"OPTIONS pass": func(c *headgate.RoomConfig) { c.Exclude = headgate.Exclude{Methods: []string{"OPTIONS"}} },
	} {
		l := newLibrary(t, func(c *headgate.RoomConfig) {
			change(c)
			c.CORS = &headgate.CORS{Origins: []string{"https://app.example", "https://*.shop.example"},
				Methods: []string{"GET", "PUT"}, Headers: []string{"x-member"}, MaxAge: 10 * time.Minute,
				Credentials: true}
		})
		for _, x := range []struct {
			origin, method string
			allowed        bool
		}{
			{"https://app.example", "PUT", true}, {"https://m.shop.example", "GET", true},
			{"https://app.example", "DELETE", false}, {"https://evil.example", "PUT", false}, {"null", "PUT", false},
		} {
			res := l.send("OPTIONS /x HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\nOrigin: " + x.origin +
				"\r\nAccess-Control-Request-Method: " + x.method + "\r\nAccess-Control-Request-Headers: X-Member\r\n\r\n")
			if len(res) != 1 || res[0].StatusCode != http.StatusNoContent {
				t.Fatalf("%s: answered %v", state, res)
			}
			want := http.Header{}
			if x.allowed {
				want = http.Header{"Access-Control-Allow-Origin": {x.origin},
					"Access-Control-Allow-Credentials": {"true"}, "Access-Control-Allow-Methods": {"GET, PUT"},
					"Access-Control-Allow-Headers": {"X-Member"}, "Access-Control-Max-Age": {"600"}}
			}
			for _, name := range []string{"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials",
				"Access-Control-Allow-Methods", "Access-Control-Allow-Headers", "Access-Control-Max-Age"} {
				if got := res[0].Header.Get(name); got != want.Get(name) {
					t.Errorf("%s, %s from %s: %s is %q", state, x.method, x.origin, name, got)
				}
			}
		}
		if n := len(l.requests()); n != 0 {
			t.Errorf("%s: the site was asked %d times", state, n)
		}
	}
}

// Pages of listed origins can read the room's own answers. The site decides about its own answers.
func TestLibrarySharesItsOwnAnswers(t *testing.T) {
	l := newLibrary(t, func(c *headgate.RoomConfig) {
		c.CORS = &headgate.CORS{Origins: []string{"https://app.example"}}
	})
	inside := l.send("GET / HTTP/1.1\r\n" + fromApp + "\r\n")[0]
	waits := l.send("GET / HTTP/1.1\r\n" + fromApp + "\r\n")[0]
	if got := inside.Header.Get("Access-Control-Allow-Origin"); inside.StatusCode != 200 || got != "" {
		t.Errorf("the site's answer, %d, is shared with %q", inside.StatusCode, got)
	}
	if got := waits.Header.Get("Access-Control-Allow-Origin"); waits.StatusCode != 503 || got != "https://app.example" {
		t.Errorf("the waiting answer, %d, is shared with %q", waits.StatusCode, got)
	}
	if res := l.send("OPTIONS / HTTP/1.1\r\n" + fromApp + "Access-Control-Request-Method: POST\r\n\r\n")[0]; res.Header.
		Get("Access-Control-Allow-Methods") != "GET, HEAD, POST" || res.Header.Get("Access-Control-Max-Age") != "5" {
		t.Errorf("by default: %v", res.Header)
	}
	cfg := headgate.RoomConfig{Name: "shop", CORS: &headgate.CORS{Origins: []string{"*"}, Credentials: true}}
	if _, err := headgate.OpenRoom(t.Context(), cfg); !errors.Is(err, headgate.ErrConfig) {
		t.Errorf("all origins with credentials: %v", err)
	}
}
