package edges

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/virtual"
	worlds "github.com/headgate/headgate/tests/world"
)

// A connector asks at an address, as docs/connectors.md describes it.
type connector struct {
	t      *testing.T
	addr   string
	client *http.Client
}

// A kept is what a connector keeps of a visitor.
type kept struct {
	cookie, pass, local string
}

func (c *connector) ask(method, uri, body string, headers ...string) (*http.Response, string) {
	c.t.Helper()
	verb := "GET"
	if body != "" {
		verb = "POST"
	}
	r, err := http.NewRequest(verb, "http://"+c.addr+"/connect", strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header = http.Header{"X-Forwarded-Method": {method}, "X-Forwarded-Uri": {uri},
		"X-Forwarded-Host": {"shop.example"}, "X-Forwarded-Proto": {"http"}}
	for _, h := range append([]string{"Accept: text/html"}, headers...) {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	res, err := c.client.Transport.RoundTrip(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return res, string(text)
}

// enters asks about a request of a visitor, and reports whether it may pass.
func (c *connector) enters(k *kept) bool {
	c.t.Helper()
	res, _ := c.ask("GET", "/", "", "Cookie: "+k.cookie)
	for _, x := range res.Cookies() {
		k.cookie = x.Name + "=" + x.Value
	}
	k.pass, k.local = res.Header.Get("Headgate-Pass"), res.Header.Get("Headgate-Local")
	if k.local != "" && res.Header.Get("Date") == "" {
		c.t.Error("a connector cannot measure the rest of the pass: there is no Date")
	}
	return res.Header.Get("Headgate-Admitted") == "session"
}

// settles lets a visitor in whose cookie then comes back, as a browser's does.
func (c *connector) settles(k *kept) bool {
	c.t.Helper()
	first := c.enters(k)
	return first && c.enters(k)
}

// A told is the answer to a batch.
type told struct {
	Answers []struct {
		Status                int
		Admitted, Local, Pass string
		Cookies               []string `json:"set_cookie"`
	}
	Ends []struct {
		Ended bool
		Error string
	}
	Lease float64
	Gone  []string
}

func (c *connector) post(body string) (code int, got told) {
	c.t.Helper()
	res, err := c.client.Post("http://"+c.addr+"/batch", "application/json", strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode == http.StatusOK {
		err = json.Unmarshal(text, &got)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return res.StatusCode, got
}

// asks returns the question of a batch about a request of a visitor.
func (k *kept) asks(uri string) string {
	return fmt.Sprintf(`{"method": "GET", "host": "shop.example", "proto": "http", "uri": %q,
		"for": "192.0.2.7", "headers": [["Cookie", %q]]}`, uri, k.cookie)
}

// renews sends one question in a batch, and reports whether the session goes on.
func (c *connector) renews(k *kept) bool {
	c.t.Helper()
	code, got := c.post(`{"questions": [` + k.asks("/") + `]}`)
	if code != http.StatusOK || len(got.Answers) != 1 {
		c.t.Fatalf("a batch: %d %+v", code, got)
	}
	a := got.Answers[0]
	for _, line := range a.Cookies {
		k.cookie, _, _ = strings.Cut(line, ";")
	}
	if a.Status != http.StatusNoContent {
		return false
	}
	k.pass = a.Pass
	return a.Admitted == "session" && a.Local != ""
}

// session returns the session that a pass names.
func (k *kept) session(t *testing.T) string {
	t.Helper()
	sub, _ := k.claims(t)
	return sub
}

func (k *kept) claims(t *testing.T) (sub string, expires time.Time) {
	t.Helper()
	part := strings.Split(k.pass, ".")
	if len(part) != 3 {
		t.Fatalf("no pass: %q", k.pass)
	}
	text, err := base64.RawURLEncoding.DecodeString(part[1])
	var claims struct {
		Sub string
		Exp int64
	}
	if err == nil {
		err = json.Unmarshal(text, &claims)
	}
	if err != nil {
		t.Fatal(err)
	}
	return claims.Sub, time.Unix(claims.Exp, 0)
}

// inBubble runs a test beside a node of its own, in virtual time.
func inBubble(t *testing.T, room string, test func(*testing.T, *connector)) {
	virtual.Test(t, func(t *testing.T) {
		const decide = "127.0.0.1:9100"
		w := worlds.New(t, worlds.Config{Seed: 1, Servers: []string{"n1"}, Alone: true})
		defer w.Close()
		n := w.Add("n1", "decide: {listen: \""+decide+"\"}\ntrusted_proxies: [127.0.0.1]\nrooms:\n"+
			"  - {name: shop, host: shop.example, origin: \"http://127.0.0.1:9\", checkout: {pass: true}, "+room+"}\n")
		n.Start()
		n.Ready()
		client := outside(w)
		defer client.CloseIdleConnections()
		test(t, &connector{t, decide, client})
	})
}

// outside returns a client that is none of the nodes of a world.
func outside(w *worlds.World) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return w.Net.Dial(ctx, worlds.Outside, addr)
		}}}
}

// TestASessionLivesOnByBatches: batches alone prolong a session and its slot, and no longer than
// they come. A session that nobody mentions ends.
func TestASessionLivesOnByBatches(t *testing.T) {
	inBubble(t, "total_active_users: 2, new_users_per_minute: 60, session_duration: 1m", func(t *testing.T, c *connector) {
		var busy, idle, next kept
		if !c.settles(&busy) || !c.settles(&idle) || c.enters(&next) {
			t.Fatal("a room for two does not let exactly two in")
		}
		first, others, passes := busy.session(t), idle.session(t), map[string]bool{}
		for i := range 120 { // ten minutes
			time.Sleep(5 * time.Second)
			if !c.renews(&busy) {
				t.Fatalf("the session is over after batch %d", i)
			}
			passes[busy.pass] = true
		}
		if c.renews(&idle) {
			t.Error("a session that nobody mentioned goes on")
		}
		if !c.enters(&busy) || busy.session(t) != first || len(passes) < 10 || len(passes) > 110 {
			t.Errorf("the session is another one, or has %d passes", len(passes))
		}
		next = kept{} // its place in the line is not held for so long
		if !c.enters(&next) || c.enters(&idle) {
			t.Error("the slot of the idle session is not free, or that of the busy one is")
		}
		if next.session(t) == others {
			t.Error("a newcomer has a session that is over")
		}
		time.Sleep(62 * time.Second)
		if c.renews(&busy) {
			t.Error("a session goes on without batches")
		}
	})
}

// TestABatchAdmitsNobody: there are free slots, and a visitor whose session is over gets none of them
// by a question of a batch. Its slot would stay unused.
func TestABatchAdmitsNobody(t *testing.T) {
	inBubble(t, "total_active_users: 9, new_users_per_minute: 60, session_duration: 10s", func(t *testing.T, c *connector) {
		var a, newcomer kept
		if !c.settles(&a) || !c.renews(&a) {
			t.Fatal("a visitor is not inside")
		}
		time.Sleep(12 * time.Second)
		if c.renews(&a) || c.renews(&newcomer) {
			t.Error("a batch admits a visitor")
		}
	})
}

// TestABatchEndsSessions: the slot is free after a lease, a repeated end is no error, and what is
// not a pass of the room ends nothing.
func TestABatchEndsSessions(t *testing.T) {
	inBubble(t, "total_active_users: 1, new_users_per_minute: 60, session_duration: 10m", func(t *testing.T, c *connector) {
		var a, b kept
		if !c.settles(&a) || c.enters(&b) {
			t.Fatal("a room for one does not let exactly one in")
		}
		end := func(room, pass string) string {
			return fmt.Sprintf(`{"room": %q, "token": %q, "as": "complete"}`, room, pass)
		}
		code, got := c.post(`{"questions": [` + a.asks("/paid") + `], "ends": [` + end("other", a.pass) + "," +
			end("shop", a.pass+"x") + "," + end("shop", a.pass) + "," + end("shop", a.pass) + "]}")
		if code != http.StatusOK || fmt.Sprint(got.Ends) != "[{false no_such_room} {false no_such_pass} {true } {false }]" ||
			got.Answers[0].Status != http.StatusNoContent {
			t.Fatalf("%d %+v", code, got)
		}
		polls := 0
		for ; polls < 5 && !c.enters(&b); polls++ { // a lease
			time.Sleep(time.Second)
		}
		if polls == 5 {
			t.Error("the slot of a session that was ended is not free")
		}
		if c.renews(&a) || c.enters(&a) {
			t.Error("a session that was ended goes on")
		}
	})
}

// A lessee is a connector that lets a visitor in by the pass, by the rules of docs/connectors.md.
type lessee struct {
	*connector
	visitor      kept
	asked, since time.Time
	heard        time.Time // when the last batch that was answered with a lease was sent
	forgotten    bool
}

func (l *lessee) asks() (in bool) {
	l.t.Helper()
	l.asked = time.Now()
	in = l.enters(&l.visitor)
	l.forgotten = !in
	return in
}

func (l *lessee) tells(questions, ends string) (got told) {
	l.t.Helper()
	sent := time.Now()
	code, got := l.post(`{"questions": [` + questions + `], "ends": [` + ends + `]}`)
	if code != http.StatusOK {
		l.t.Fatalf("a batch: %d", code)
	}
	if got.Lease > 0 {
		if sent.Sub(l.heard) > 2*time.Second {
			l.since = sent.Add(-2 * time.Second)
		}
		l.heard = sent
	} else {
		l.heard = time.Time{}
	}
	if l.visitor.pass != "" && slices.Contains(got.Gone, l.visitor.session(l.t)) {
		l.forgotten = true
	}
	return got
}

// letsIn reports whether it may let its visitor in without a question.
func (l *lessee) letsIn() bool {
	now, lease := time.Now(), 2*time.Second
	return !l.forgotten && l.visitor.local != "" &&
		(now.Sub(l.asked) < lease || !l.asked.Before(l.since) && now.Sub(l.heard) < lease)
}

// TestALimitHoldsWhileAConnectorLetsIn: two processes of an application ask headgate. A session ends at
// one, while the other may let its visitor in without a question. The slot is the next visitor's as
// soon as that is over, and not earlier: before, both were inside.
func TestALimitHoldsWhileAConnectorLetsIn(t *testing.T) {
	const room = "total_active_users: 1, new_users_per_minute: 600, session_duration: 10m"
	inBubble(t, room, func(t *testing.T, c *connector) {
		time.Sleep(12 * time.Second) // earlier, headgate cannot know what has ended before
		end := func(k *kept) string { return fmt.Sprintf(`{"room": "shop", "token": %q, "as": "complete"}`, k.pass) }
		one, two := &lessee{connector: c}, &lessee{connector: c}
		locally, questions := 0, 0
		for round := range 40 {
			if one.visitor = (kept{}); !one.asks() || !one.enters(&one.visitor) {
				t.Fatalf("round %d: nobody is inside, and a newcomer does not get in", round)
			}
			next, at := kept{}, time.Duration(round)*70*time.Millisecond+8*time.Second
			began, waited := time.Now(), time.Duration(0)
			for step := 0; ; step++ {
				now := time.Since(began)
				if step%10 == 0 && round%3 > 0 || step == 0 { // some rounds: its batches do not get through
					one.tells("", "")
				}
				if now >= at && waited == 0 {
					if got := two.tells("", end(&one.visitor)); !got.Ends[0].Ended {
						t.Fatalf("round %d: not ended: %+v", round, got)
					}
					waited = now
				}
				entered := waited > 0 && c.enters(&next)
				switch local := one.letsIn(); {
				case local && entered:
					t.Fatalf("round %d: two are inside %v after the end", round, now-waited)
				case local && waited == 0:
					locally++
				case waited == 0:
					questions++
				}
				if entered {
					if now-waited > 2500*time.Millisecond {
						t.Fatalf("round %d: the slot was unused for %v", round, now-waited)
					}
					break
				}
				time.Sleep(100 * time.Millisecond)
			}
			if got := two.tells("", end(&next)); !got.Ends[0].Ended {
				t.Fatalf("round %d: not ended: %+v", round, got)
			}
			time.Sleep(4 * time.Second)
		}
		if locally < 2*questions { // a third of the rounds ask after two seconds
			t.Errorf("%d requests were let in without a question, %d needed one", locally, questions)
		}
	})
}

// TestAPassOfAProbationIsShort: a visitor whose cookie does not come back holds its slot for a few
// seconds. Its connector keeps it in its memory and goes on with its batches, and lets it in without a
// question as the docs allow. It is never inside beside the visitor who got the slot.
func TestAPassOfAProbationIsShort(t *testing.T) {
	inBubble(t, "total_active_users: 1, new_users_per_minute: 600, session_duration: 10m", func(t *testing.T, c *connector) {
		time.Sleep(12 * time.Second)
		for round := range 8 {
			one := &lessee{connector: c}
			one.tells("", "")
			if !one.asks() || one.visitor.local == "" {
				t.Fatalf("round %d: nobody is inside, and a newcomer does not get in", round)
			}
			_, expires := one.visitor.claims(t)
			rest := expires.Sub(one.asked) - time.Second
			var next kept
			for step := 0; !c.enters(&next); step++ {
				if step%10 == 0 {
					one.tells("", "")
				}
				if step > 600 {
					t.Fatal("the slot of a visitor whose cookie never came back is not free")
				}
				time.Sleep(time.Duration(90+round) * time.Millisecond)
			}
			if one.tells("", ""); one.letsIn() && time.Since(one.asked) < rest {
				t.Fatalf("round %d: two are inside: a pass of %v", round, rest)
			}
			c.post(fmt.Sprintf(`{"ends": [{"room": "shop", "token": %q, "as": "complete"}]}`, next.pass))
			time.Sleep(4 * time.Second)
		}
	})
}

// TestASlotIsFreeAtOnceWithoutLeases: where connectors ask about each request, no slot is held.
func TestASlotIsFreeAtOnceWithoutLeases(t *testing.T) {
	const room = "total_active_users: 1, new_users_per_minute: 60, session_duration: 10m, exclude: {paths: [/ping]}"
	inBubble(t, room, func(t *testing.T, c *connector) {
		var a, b kept
		if !c.settles(&a) || c.enters(&b) || a.local != "" {
			t.Fatal("a room for one does not let exactly one in")
		}
		c.post(fmt.Sprintf(`{"ends": [{"room": "shop", "token": %q, "as": "complete"}]}`, a.pass))
		time.Sleep(300 * time.Millisecond)
		if !c.enters(&b) {
			t.Error("the slot is not free")
		}
	})
}

// TestBatchesThatAreAttacked: what headgate cannot read as one clear batch is refused as a whole, a
// question that it cannot decide is refused alone, and nothing of it lets anybody in.
func TestBatchesThatAreAttacked(t *testing.T) {
	s := open(t, "127.0.0.1", "total_active_users: 9, new_users_per_minute: 60, checkout: {pass: true}")
	c := &connector{t, s.DecideAddr().String(), &http.Client{Transport: http.DefaultTransport}}
	var a kept
	if !c.settles(&a) {
		t.Fatal("a visitor is not inside")
	}
	good := a.asks("/a")
	many := func(n int, one string) string { return "[" + strings.Repeat(one+",", n-1) + one + "]" }
	end := fmt.Sprintf(`{"room": "shop", "token": %q, "as": "complete"}`, a.pass+"x")
	for body, want := range map[string]int{
		"": 400, "[]": 400, `"x"`: 400, `{"questions": {}}`: 400, `{"questions": [1]}`: 400, `{"question": []}`: 400,
		`{"questions": []} {}`: 400, `{"questions": []`: 400, `{"questions": [` + good + `]}x`: 400,
		`{"questions": [{"method": 1}]}`: 400, `{"questions": [{"headers": {"Cookie": "a"}}]}`: 400,
		`{"questions": [{"headers": [["Cookie", 1]]}]}`: 400, `{"questions": [{"remote": "192.0.2.1"}]}`: 400,
		"{\"questions\": [{\"host\": \"\xff\"}]}": 400, `{"ends": [{"room": "shop", "token": "", "as": "revoke"}]}`: 400,
		strings.Repeat("[", 20_000):                      400,
		`{"questions": ` + many(1001, "{}") + "}":        400,
		`{"questions": ` + many(1000, "{}") + "}":        200,
		`{"ends": ` + many(101, end) + "}":               400,
		`{"ends": ` + many(100, end) + "}":               200,
		`{"questions": []}` + strings.Repeat(" ", 1<<20): 413,
		"{}": 200, "null": 200, `{"questions": null, "ends": null}`: 200,
	} {
		if code, _ := c.post(body); code != want {
			t.Errorf("%.80q: %d, want %d", body, code, want)
		}
	}
	question := func(old, now string) string {
		bad := strings.Replace(good, old, now, 1)
		if bad == good {
			t.Fatalf("%q is not in %s", old, good)
		}
		return bad
	}
	cookie := fmt.Sprintf("%q", a.cookie)
	for _, bad := range []string{
		"{}", "null", question(`"GET"`, `""`), question(`"GET"`, `"GE T"`), question(`"GET"`, `"GET /x HTTP/1.1\r\nX"`),
		question(`"GET"`, `"CONNECT"`), question(`"shop.example"`, `""`), question(`"shop.example"`, `"shop.example\r\nX: y"`),
		question(`"shop.example"`, `"other.example"`), question(`"shop.example"`, `"shop.example, other.example"`),
		question(`"shop.example"`, `"u@shop.example"`), question(`"http"`, `"ftp"`), question(`"http"`, `"http, https"`),
		question(`"/a"`, `"a"`), question(`"/a"`, `"*"`), question(`"/a"`, `"http://shop.example/a"`), question(`"/a"`, `"/a b"`),
		question(`"/a"`, `"/a\r\n"`), question(`"/a"`, `"/%"`), question(`"/a"`, `"/a/..%2frobots.txt"`), question(`"/a"`, `"/a?\u0000"`),
		question(`"192.0.2.7"`, `"192.0.2.7\r\nCookie: x"`), question(`"192.0.2.7"`, `"\u0100"`),
		question(`"Cookie"`, `"Cookie "`), question(`"Cookie"`, `"Cookie\r\nX"`), question(`"Cookie"`, `"_Cookie"`),
		question(`"Cookie"`, `"Coo_kie"`), question(`"Cookie"`, `""`), question(`"Cookie"`, `"X-Forwarded-For"`),
		question(`"Cookie"`, `"X-Forwarded-Proto"`), question(`"Cookie"`, `"Headgate-Pass"`), question(`"Cookie"`, `"Headgate-Poll"`),
		question(`"Cookie"`, `"Upgrade"`), question(`"Cookie"`, `"Host"`), question(`"Cookie"`, `"Transfer-Encoding"`),
		question(`"Cookie", `+cookie, `"Cookie"`), question(`"Cookie", `+cookie, `"Cookie", `+cookie+`, "x"`),
		question(cookie, `"a=1\nCookie: b=2"`), question(cookie, `"\u0394"`), question(cookie, `""`),
	} {
		code, got := c.post(`{"questions": [` + good + "," + bad + "," + good + `]}`)
		if code != http.StatusOK || len(got.Answers) != 3 || got.Answers[0].Status != 204 ||
			got.Answers[2].Status != 204 || got.Answers[1].Status < 300 ||
			got.Answers[1].Admitted != "" || got.Answers[1].Pass != "" {
			t.Errorf("%s: %d %+v", bad, code, got.Answers)
		}
	}
	for _, fine := range []string{
		question(`"192.0.2.7"`, `"198.51.100.1, 192.0.2.7"`), question(`"192.0.2.7"`, `"unknown, ,,"`), question(`"192.0.2.7"`, `""`),
		question(`"Cookie"`, `"cookie"`), question(`[["Cookie"`, `[["Cookie", "x=1"], ["Cookie", "y=\u00ff"], ["Cookie"`),
		question(`"shop.example"`, `"SHOP.example.:80"`),
	} {
		if code, got := c.post(`{"questions": [` + fine + `]}`); code != http.StatusOK || got.Answers[0].Status != 204 {
			t.Errorf("%s: %d %+v", fine, code, got)
		}
	}
	res, err := http.Get("http://" + c.addr + "/batch")
	if err != nil {
		t.Fatal(err)
	}
	if res.Body.Close(); res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", res.StatusCode)
	}
	s = open(t, "10.0.0.0/8", small)
	for path, body := range map[string]string{"/batch": `{"questions": [` + good + `]}`, "/connect": "", "/jwks.json": ""} {
		res, err := http.Post("http://"+s.DecideAddr().String()+path, "", bytes.NewReader([]byte(body)))
		if err != nil {
			t.Fatal(err)
		}
		if res.Body.Close(); res.StatusCode != http.StatusForbidden {
			t.Errorf("%s of a stranger: %d", path, res.StatusCode)
		}
	}
}

// TestConnect: a connector relays headgate's own answers as they are, and reads from a header
// whether a request may pass.
func TestConnect(t *testing.T) {
	s := open(t, "127.0.0.1", small+", checkout: {pass: true, warn: 1m}")
	c := &connector{t, s.DecideAddr().String(), &http.Client{Transport: http.DefaultTransport}}
	var in, waits kept
	if !c.settles(&in) || in.local != "/" || c.enters(&waits) || waits.local != "" || waits.pass != "" {
		t.Fatalf("a room for one: %+v %+v", in, waits)
	}
	for _, x := range []struct {
		method, uri, body, headers string
		code                       int
		admitted, text             string
	}{
		{"GET", "/", "", "", 200, "", "<html"}, // queueing_status_code: 200
		{"HEAD", "/", "", "", 503, "", ""},
		{"GET", "/", "", "Headgate-Poll: 1", 200, "", `{`},
		{"GET", "/.headgate/served", "", "", 200, "", `"waiting"`},
		{"GET", "/.headgate/jwks.json", "", "", 200, "", `"keys"`},
		{"GET", "/.headgate/warn.js", "", "", 200, "", "headgate:session"},
		{"GET", "/.headgate/session", "", "Cookie: " + in.cookie, 200, "", `"inside":true`},
		{"POST", "/.headgate/session", "x=1", "Cookie: " + in.cookie, 200, "", `"inside":true`},
		{"GET", "/.headgate/pass", "", "Cookie: " + in.cookie, 200, "", `"pass"`},
		{"GET", "/robots.txt", "", "", 204, "uncounted", ""},
		{"GET", "/robots.txt", "", "Upgrade: websocket", 503, "", ""},
		{"GET", "/a/..%2frobots.txt", "", "Cookie: " + in.cookie, 308, "", ""},
		{"OPTIONS", "/a", "", "Origin: https://a.example\nAccess-Control-Request-Method: POST\nCookie: a=1", 204, "bare", ""},
		{"OPTIONS", "/a", "", "", 503, "", ""},
		{"OPTIONS", "/a", "", "Cookie: " + in.cookie, 204, "session", ""},
		{"POST", "/a", "", "Cookie: " + in.cookie, 204, "session", ""},
		{"POST", "/.headgate/leave", "x=1", "Origin: http://shop.example\nSec-Fetch-Site: same-origin", 303, "", ""},
	} {
		var headers []string
		if x.headers != "" {
			headers = strings.Split(x.headers, "\n")
		}
		res, text := c.ask(x.method, x.uri, x.body, headers...)
		if res.StatusCode != x.code || res.Header.Get("Headgate-Admitted") != x.admitted || !strings.Contains(text, x.text) ||
			x.admitted != "session" && res.Header.Get("Headgate-Local") != "" {
			t.Errorf("%s %s %q: %d %v %.80q", x.method, x.uri, x.headers, res.StatusCode, res.Header, text)
		}
	}
	// A form reaches headgate: the text of the move page names what is missing.
	form := []string{"Content-Type: application/x-www-form-urlencoded", "Origin: http://shop.example", "Sec-Fetch-Site: same-origin"}
	_, with := c.ask("POST", "/.headgate/move", "place=x", form...)
	_, without := c.ask("POST", "/.headgate/move", "other=x", form...)
	if with == without {
		t.Errorf("the form is not read: %.200q", with)
	}
	// A room with cors answers preflights itself.
	s = open(t, "127.0.0.1", small+`, cors: {origins: ["https://a.example"]}`)
	c = &connector{t, s.DecideAddr().String(), &http.Client{Transport: http.DefaultTransport}}
	res, _ := c.ask("OPTIONS", "/a", "", "Origin: https://a.example", "Access-Control-Request-Method: POST")
	if res.StatusCode != 204 || res.Header["Headgate-Admitted"] != nil ||
		res.Header.Get("Access-Control-Allow-Origin") != "https://a.example" {
		t.Errorf("a preflight: %d %v", res.StatusCode, res.Header)
	}
	res, _ = asks(t, s, "/jwks.json", "127.0.0.1")
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "application/jwk-set+json" {
		t.Errorf("the keys: %d %v", res.StatusCode, res.Header)
	}
}

// TestLocalOnlyBySession: only where nothing but the session decides may a connector let in by itself.
func TestLocalOnlyBySession(t *testing.T) {
	const room = "total_active_users: 9, new_users_per_minute: 60, "
	secret := filepath.Join(t.TempDir(), "codes.key")
	if err := os.WriteFile(secret, []byte(strings.Repeat("5ecret", 6)), 0o600); err != nil {
		t.Fatal(err)
	}
	for keys, want := range map[string]string{
		"checkout: {pass: true}":                                                                           "/",
		"checkout: {pass: true}, path: /shop":                                                              "/shop",
		"checkout: {pass: true}, session_renewal: false, hard_end: 1h":                                     "/",
		"checkout: {pass: true}, path: /sh*":                                                               "",
		"checkout: {pass: true}, path: /a+b":                                                               "",
		"checkout: {warn: 1m}":                                                                             "",
		"checkout: {pass: true, grace_paths: [/pay]}":                                                      "",
		"checkout: {pass: true}, exclude: {paths: [/api/ping]}":                                            "",
		"checkout: {pass: true}, exclude: {methods: [TRACE]}":                                              "",
		"checkout: {pass: true}, exclude: {cidrs: [192.0.2.0/24]}":                                         "",
		"checkout: {pass: true}, exclude: {headers: [X-Probe]}":                                            "",
		"checkout: {pass: true}, bind: \"header:X-Client\"":                                                "",
		"checkout: {pass: true}, pass_sharing: {action: wait}":                                             "",
		"checkout: {pass: true}, search_engine_crawler_bypass: true":                                       "",
		"checkout: {pass: true}, shadow: true":                                                             "",
		"checkout: {pass: true}, rules: [{expression: 'http.request.uri.path eq \"/x\"', action: bypass}]": "",
		"checkout: {pass: true}, cookie_suffix: a, additional_routes: [{host: a.shop.example, path: /}]":   "",
		"checkout: {pass: true}, identity: {codes: {secret_file: " + secret + "}}":                         "",
		// more rooms
		"checkout: {pass: true}}\n  - {name: b, host: shop.example, path: /b, origin: \"http://127.0.0.1:1\", " + strings.TrimSuffix(room, ", "): "",
		"checkout: {pass: true}}\n  - {name: b, path: /*/b, origin: \"http://127.0.0.1:1\", " + strings.TrimSuffix(room, ", "):                   "",
		"checkout: {pass: true}, path: /shop}\n  - {name: b, path: /, origin: \"http://127.0.0.1:1\", " + strings.TrimSuffix(room, ", "):         "/shop",
		"checkout: {pass: true}, path: /shop}\n  - {name: b, path: /shopping, origin: \"http://127.0.0.1:1\", " + strings.TrimSuffix(room, ", "): "/shop",
		"checkout: {pass: true}, path: /shop}\n  - {name: b, path: /SHOP/x, origin: \"http://127.0.0.1:1\", " + strings.TrimSuffix(room, ", "):   "",
		"checkout: {pass: true}}\n  - {name: b, host: other.example, origin: \"http://127.0.0.1:1\", " + strings.TrimSuffix(room, ", "):          "/",
	} {
		s := open(t, "127.0.0.1", room+keys)
		c := &connector{t, s.DecideAddr().String(), &http.Client{Transport: http.DefaultTransport}}
		for range 2 {
			res, _ := c.ask("GET", "/shop", "", "X-Client: 1")
			if got := res.Header.Get("Headgate-Local"); res.StatusCode != 404 && (got != want || (want == "") != (res.Header["Headgate-Local"] == nil)) {
				t.Errorf("%s: %q, want %q", keys, got, want)
			}
		}
		res, _ := asks(t, s, "/forward", "127.0.0.1", "X-Forwarded-Method: GET", "X-Forwarded-Uri: /shop",
			"X-Forwarded-Host: shop.example", "X-Forwarded-Proto: http")
		if res.Header["Headgate-Local"] != nil {
			t.Errorf("%s: a proxy is told of it", keys)
		}
	}
}
