//go:build real

package server

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/checkout"
	"github.com/headgate/headgate/internal/loopback"
)

func TestServerOriginDownKeepsPlaces(t *testing.T) {
	t.Run("refuses", func(t *testing.T) { originDown(t, func(string) (end func()) { return func() {} }) })
	t.Run("resets", func(t *testing.T) {
		originDown(t, func(addr string) (end func()) {
			l, err := net.Listen("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					c.(*net.TCPConn).SetLinger(0)
					c.Close()
				}
			}()
			return func() { l.Close(); <-ended }
		})
	})
}

// originDown replaces an origin by dead for a while.
func originDown(t *testing.T, dead func(addr string) (end func())) {
	addr := loopback.Free(t) // reserved for this test: the origin comes back there
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	origin := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "origin") })}}
	origin.Start()
	visitors, operators, _ := start(t, origin.URL, oneRoom)
	a := get(t, visitors+"/", "")
	b := get(t, visitors+"/", "")
	origin.Close()
	end := dead(addr)
	down := get(t, visitors+"/", a.cookie)
	if down.StatusCode != 502 || !strings.Contains(down.body, "<!doctype html>") ||
		down.Header.Get("Retry-After") == "" {
		t.Fatalf("%d %q", down.StatusCode, down.body)
	}
	eventually(t, "down", func() bool { return !roomStatus(t, operators).OriginUp })
	if m := get(t, operators+"/metrics", "").body; !strings.Contains(m, `headgate_origin_up{room="shop"} 0`) {
		t.Error("the metric says that it is up")
	}
	if w := get(t, visitors+"/", b.cookie); w.Header.Get(headgate.StateHeader) != "down" {
		t.Errorf("the one who waits is told %q", w.Header.Get(headgate.StateHeader))
	}
	end()
	if l, err = net.Listen("tcp", addr); err != nil {
		t.Fatal(err)
	}
	back := &http.Server{Handler: origin.Config.Handler}
	go back.Serve(l)
	defer back.Close()
	eventually(t, "up again", func() bool { return roomStatus(t, operators).OriginUp })
	eventually(t, "let in", func() bool { return get(t, visitors+"/", b.cookie).StatusCode == 200 })
}

func TestServerWebSocketHoldsTheStay(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			fmt.Fprint(w, "origin")
			return
		}
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		rw.Flush()
		io.Copy(c, rw)
	}))
	defer origin.Close()
	visitors, operators, _ := start(t, origin.URL, oneRoom)
	a := get(t, visitors+"/", "")
	c, err := net.Dial("tcp", strings.TrimPrefix(visitors, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nCookie: %s\r\n\r\n", a.cookie)
	r := bufio.NewReader(c)
	if res, err := http.ReadResponse(r, nil); err != nil || res.StatusCode != 101 {
		t.Fatal(res, err)
	}
	b := get(t, visitors+"/", "")
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for range 8 { // 4 s: twice the session
		<-tick.C
		fmt.Fprint(c, "x")
		if _, err := r.ReadByte(); err != nil {
			t.Fatal(err)
		}
		if get(t, visitors+"/", b.cookie).StatusCode == 200 || roomStatus(t, operators).ActiveUsers != 1 {
			t.Fatal("the slot of an open WebSocket was given away")
		}
	}
	c.Close()
	eventually(t, "let in", func() bool { return get(t, visitors+"/", b.cookie).StatusCode == 200 })
}

// Whichever node of a cluster gets a job a second time, the answer is the same.
func TestADuplicateIsToldByEachNodeOfACluster(t *testing.T) {
	t.Parallel()
	target := newSink(t)
	all := nodes(t, shop+"queues:\n  - {name: one, target: {url: '"+target.URL+"'}}\n", "n1", "n2")
	var host *process
	eventually(t, "a host", func() bool {
		for _, p := range all {
			if p.queue("one").Hosted() {
				host = p
			}
		}
		return host != nil
	})
	key := func(i int) string { return fmt.Sprintf(`{"key":"key %d","text":"%d"}`, i, i) }
	for i, p := range all {
		first := p.posts("application/json", key(i))
		if !strings.Contains(first, `"duplicate":false`) {
			t.Fatalf("n%d, hosts %v: %s", i+1, p == host, first)
		}
		again := strings.Replace(first, "false", "true", 1)
		for n, q := range all {
			if got := q.posts("application/json", key(i)); got != again {
				t.Errorf("put at n%d and again at n%d, hosts %v: %s, want %s", i+1, n+1, q == host, got, again)
			}
		}
	}
	for n, p := range all {
		got := p.posts("application/x-ndjson", key(0)+"\n"+key(10+n)+"\n"+key(1)+"\n"+key(10+n))
		if !strings.Contains(got, `"put":1,"duplicates":3,`) {
			t.Errorf("many at n%d, hosts %v: %s, want one that is new", n+1, p == host, got)
		}
	}
	eventually(t, "each is delivered", func() bool { return target.got() == "0 1 10 11" })
}

// The home alone sends messages about what all data centers share, wherever a change was made and
// by whom. Each data center sends its own.
func TestWebhooksOfTwoDatacenters(t *testing.T) {
	t.Parallel()
	g := newReceiver(t)
	hooks := hooked(secretFile(t, oneSecret), "", g)
	all := centers(t, strings.TrimPrefix(hooks, shop)+sharedLimits+twoSites, "sjc", "lhr")
	for _, p := range all {
		p.told("shop")
		p.told(limitsWatched)
	}
	for path, body := range map[string]string{
		"/v1/limits/api": `{"amount": 7}`, "/v1/limits/near": `{"amount": 8}`,
		"/v1/rooms/shop": `{"total_active_users": 11}`,
	} {
		if r := operate(t, all["lhr"], "PATCH", path, body); r.StatusCode != http.StatusOK {
			t.Fatal(r.Status, r.body)
		}
	}
	g.awaits(t, "limit_changed api", "limit_changed near", "limit_changed shop")
	within(t, time.Minute, "known in both", func() bool {
		for _, p := range all {
			if p.told(limitsWatched).Limits["api"]["amount"] != "7" ||
				p.told("shop").Limits[""]["total_active_users"] != "11" {
				return false
			}
		}
		return true
	})
	g.awaits(t, "limit_changed api", "limit_changed near", "limit_changed shop")
	for _, l := range g.got() {
		d, want := l.body.Data, "sjc"
		if d.Limit == "near" {
			want = "lhr"
		}
		if d.Datacenter != want || !strings.HasSuffix(d.By, " ann") {
			t.Errorf("%s", l.text)
		}
	}
}

func TestTheWarningLooksAndProlongsNothing(t *testing.T) {
	long := strings.Replace(payRoom, "session_duration: 4s, checkout: {pass: true, warn: 3s}",
		"session_duration: 8s, checkout: {warn: 7s}", 1)
	visitors, _, _ := start(t, shopOf(t), long)
	a := get(t, visitors+"/", "")
	if got := a.Header.Get(checkout.EndsHeader); got != "7" && got != "8" {
		t.Errorf("%s: %q, want 8 or almost", checkout.EndsHeader, got)
	}
	if a.body != "origin " {
		t.Errorf("a pass that nobody asked for: %s", a.body)
	}
	type answer struct {
		Inside, Renews, Warn bool
		EndsIn               int64 `json:"ends_in_seconds"`
		Text                 struct{ Lang, Ends string }
	}
	look := func(method string) (x answer) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, visitors+"/.headgate/session", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Cookie", a.cookie)
		r.Header.Set("Accept-Language", "de")
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if err := json.NewDecoder(res.Body).Decode(&x); err != nil {
			t.Fatal(err)
		}
		return x
	}
	x := look("GET")
	if !x.Inside || !x.Renews || x.Text.Lang != "de-DE" || !strings.Contains(x.Text.Ends, "{t}") {
		t.Errorf("%+v", x)
	}
	eventually(t, "warned", func() bool { x = look("GET"); return x.Warn && x.EndsIn <= 4 })
	began := time.Now() // before the request: a slow machine makes the time longer, not shorter
	look("POST")        // a request of the session
	eventually(t, "longer", func() bool { return look("GET").EndsIn > 4 })
	eventually(t, "over", func() bool { return !look("GET").Inside }) // polled fifty times a second
	if d := time.Since(began); d < 2*time.Second {
		t.Errorf("over after %v", d)
	}
	if s := get(t, visitors+"/.headgate/warn.js", ""); s.StatusCode != 200 ||
		!strings.HasPrefix(s.Header.Get("Content-Type"), "text/javascript") {
		t.Errorf("%d %s", s.StatusCode, s.body)
	}
}

// The counts of three nodes are one figure at every node; a node that is down is named.
func TestAnalyticsOfAllNodes(t *testing.T) {
	t.Parallel()
	all := nodes(t, "rooms:\n  - {name: shop, origin: ORIGIN, total_active_users: 6, "+
		"new_users_per_minute: 6}\n", "n1", "n2", "n3")
	inside, waiting, joined := 0.0, 0.0, 0.0
	for i := range 12 {
		status, _, _ := see(t, all[i%3], "x", "")
		if status == 200 {
			inside++
		} else {
			waiting++
		}
	}
	for _, p := range all { // a visitor who is called at once is inside; one may have no number yet
		joined += float64(p.s.set.Load().find("shop").room.Status().Totals.Joined)
	}
	if joined < waiting-2 || joined > 12 {
		t.Errorf("%v wait, and %v have joined", waiting, joined)
	}
	for i, p := range all {
		var got past
		eventually(t, "all nodes and the host are heard", func() bool { // by a node that has just started
			got = p.past("room=shop")
			return got.Total["requests"] == inside && got.Total["totalActiveUsersConfig"] != 0.0
		})
		for name, want := range map[string]float64{"admitted": inside, "requests": inside, "polls": waiting,
			"joined": joined, "totalActiveUsersConfig": 6} {
			if got.Total[name] != want {
				t.Errorf("n%d: %s is %v, want %v", i+1, name, got.Total[name], want)
			}
		}
		if len(got.Missing) != 0 {
			t.Errorf("n%d: %v do not answer", i+1, got.Missing)
		}
		eventually(t, "the host seen", func() bool {
			n, _ := p.past("room=shop").Total["totalQueuedUsersMax"].(float64)
			return n == waiting || (joined != waiting || inside < 6) && n > 0 && n <= joined
		})
	}
	all[2].stop()
	eventually(t, "n3 missing", func() bool {
		m := all[0].past("room=shop").Missing
		return len(m) == 0 || slices.Equal(m, []string{"n3"}) // as long as it is known
	})
}

// A room that is made at one node is the same room at all of them, can be changed at any, and each
// node shows what another has written.
func TestMadeRoomOfAllNodes(t *testing.T) {
	t.Parallel()
	all := nodes(t, "zones:\n  - {name: tea.example, origin: ORIGIN}\n"+anyHost, "n1", "n2", "n3")
	var bosses []*boss
	for _, p := range all {
		bosses = append(bosses, p.boss("write")) // a token belongs to one node
	}
	const rooms = "/client/v4/zones/tea.example/waiting_rooms"
	a := bosses[0].ask("POST", rooms, strings.Replace(teaRoom, "{", `{"custom_page_html":"<p>own</p>",`, 1))
	if a.StatusCode != 200 {
		t.Fatal(a.text)
	}
	r := a.room(t)
	open := func(p *process) func() bool {
		return func() bool {
			status, _, _ := see(t, p, "tea.example", "")
			return status != 404
		}
	}
	for i, b := range bosses {
		if got := b.ask("GET", rooms+"/"+r.ID, "").room(t); got.Name != "tea" {
			t.Errorf("n%d does not know it at once", i+1)
		}
	}
	entered := 0
	for _, p := range all {
		eventually(t, "open at "+p.operators, open(p))
	}
	for i := range 9 {
		if _, _, body := see(t, all[i%3], "tea.example", ""); strings.HasPrefix(body, "origin") {
			entered++
		} else if body != "<p>own</p>" {
			t.Errorf("who waits sees %q", body)
		}
	}
	if entered > 1 {
		t.Errorf("%d entered over three nodes, and one may", entered)
	}
	if a = bosses[1].ask("PATCH", rooms+"/"+r.ID, `{"suspended":true}`); a.StatusCode != 200 {
		t.Fatal(a.text)
	}
	for _, p := range all {
		eventually(t, "suspended at "+p.operators, func() bool {
			_, _, body := see(t, p, "tea.example", "")
			return strings.HasPrefix(body, "origin")
		})
	}
	writeAtOnce(t, bosses, rooms, r.ID)
	if a = bosses[2].ask("DELETE", rooms+"/"+r.ID, ""); a.StatusCode != 200 {
		t.Fatal(a.text)
	}
	for _, p := range all {
		eventually(t, "gone at "+p.operators, func() bool { return !open(p)() })
	}
}

// A client that changes the size of the header table while answers are written ends no process.
// net/http shares the table of its HPACK encoder between two goroutines without a lock, and Go ends
// a process in which two goroutines write a map. So the server keeps the table empty. The race
// detector would report the rest of what net/http shares: these tests run without it.
func TestHeaderTablesWhileAnswersAreWritten(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for i := range 30 {
			w.Header().Set(fmt.Sprintf("X-%s-%d", r.Header.Get("X-N"), i), "1")
		}
	}))
	defer origin.Close()
	visitors, _, _ := start(t, origin.URL, oneRoom)
	for range 300 {
		f, out := writer(t, visitors)
		go f.listen()
		for i := range uint32(3000) {
			if i%2 == 0 && f.ask(2*i+1, f.fields("/robots.txt", fmt.Sprintf("x-n %d", i))) != nil {
				break
			}
			if f.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: i % 2 * 4096}) != nil {
				break
			}
			if i%20 == 19 {
				out.Flush()
			}
		}
		f.c.Close()
		<-f.ended
	}
	eventually(t, "somebody else is served", func() bool { // once the last requests have ended
		return get(t, visitors+"/robots.txt", "").StatusCode == http.StatusOK
	})
}
