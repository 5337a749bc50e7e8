package headgate

import (
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/publicsuffix"

	"github.com/headgate/headgate/internal/crowd"
)

// A browser is a visitor whose cookies go where a browser's go.
type browser struct {
	v   *visitor
	jar *cookiejar.Jar
}

func (g *gate) browser() *browser {
	jar, err := cookiejar.New(&cookiejar.Options{PublicSuffixList: publicsuffix.List})
	if err != nil {
		g.t.Fatal(err)
	}
	return &browser{g.visitor(), jar}
}

// goes loads a page.
func (b *browser) goes(address string) *httptest.ResponseRecorder {
	b.v.g.t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		b.v.g.t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(b.v.g.t.Context(), "GET", u.Path, nil)
	r.Host = u.Host
	r.Header.Set("Accept", "text/html")
	for _, c := range b.jar.Cookies(u) {
		r.AddCookie(c)
	}
	w := httptest.NewRecorder()
	b.v.g.h.ServeHTTP(w, r)
	b.jar.SetCookies(u, w.Result().Cookies())
	if path := b.v.g.loads(r, w.Result().Cookies(), w.Header()); path != "" {
		part := *u
		part.Path = path
		b.goes(part.String())
	}
	return w
}

func (b *browser) in(address string) bool {
	return strings.HasPrefix(b.goes(address).Body.String(), "origin")
}

var shops = RoomConfig{Host: "shop.example.com", Path: "/tea", TotalActiveUsers: 1, NewUsersPerMinute: 99,
	SessionDuration: time.Minute, Routes: []Route{{Host: "pay.example.com", Path: "/"}}, CookieSuffix: "abc",
	CookieDomain: "example.com"}

func TestRoutes(t *testing.T) {
	bubble(t, "a place goes along from one route to the next", func(t *testing.T) {
		g := openGate(t, shops)
		a, b := g.browser(), g.browser()
		if !a.in("https://shop.example.com/tea") || !a.in("https://pay.example.com/x") {
			t.Fatal("who is inside on one route waits on the other")
		}
		if b.in("https://pay.example.com/") || b.in("https://shop.example.com/tea/x") {
			t.Fatal("two in a room for one")
		}
		if s := g.room.Status(); s.ActiveUsers != 1 || s.WaitingUsers != 1 {
			t.Errorf("%d inside and %d waiting of two visitors", s.ActiveUsers, s.WaitingUsers)
		}
		time.Sleep(61 * time.Second)
		if !b.in("https://shop.example.com/tea") || !b.in("https://pay.example.com/") {
			t.Error("the place is of one route alone")
		}
		u := &url.URL{Scheme: "https", Host: "pay.example.com", Path: "/"}
		if c := b.jar.Cookies(u); len(c) != 1 || c[0].Name != "__cfwaitingroom_shop_abc" {
			t.Error(c)
		}
	})
	bubble(t, "headgate's own paths are below each route", func(t *testing.T) {
		g := openGate(t, shops)
		g.browser().in("http://shop.example.com/tea")
		b := g.browser()
		for at, base := range map[string]string{"http://shop.example.com/tea/x": "/tea",
			"http://pay.example.com:8080/y": ""} {
			b.v.accept = "application/json"
			u, _ := url.Parse(at)
			r := httptest.NewRequestWithContext(t.Context(), "GET", u.Path, nil)
			r.Host = u.Host
			r.Header.Set("Accept", "application/json")
			w := httptest.NewRecorder()
			g.h.ServeHTTP(w, r)
			if !strings.Contains(w.Body.String(), `"move_url":"`+base+`/.headgate/move"`) {
				t.Errorf("%s: %s", at, w.Body)
			}
			r.URL.Path = base + "/.headgate/served"
			w = httptest.NewRecorder()
			if g.h.ServeHTTP(w, r); w.Header().Get("Cache-Control") != "public, max-age=1" {
				t.Errorf("%s: no shared document: %d", at, w.Code)
			}
		}
	})
	bubble(t, "a change of routes takes no place, and nobody is let in twice", func(t *testing.T) {
		c := shops
		c.Routes, c.CookieSuffix, c.CookieDomain = nil, "", ""
		g := openGate(t, c)
		a, b := g.browser(), g.browser()
		a.in("https://shop.example.com/tea")
		b.in("https://shop.example.com/tea")
		was := b.jar.Cookies(&url.URL{Scheme: "https", Host: "shop.example.com", Path: "/tea"})
		for _, next := range []func(*RoomConfig){
			func(c *RoomConfig) {
				c.Routes, c.CookieSuffix = []Route{{Host: c.Host, Path: "/coffee"}}, "abc"
			},
			func(c *RoomConfig) { c.Routes, c.CookieDomain = shops.Routes, "example.com" },
			func(c *RoomConfig) { c.Routes, c.CookieDomain = []Route{{Host: c.Host, Path: "/tea/x"}}, "" },
		} {
			if err := g.again(next); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Second) // so that a pass says more than the last
			if !a.in("https://shop.example.com/tea") || b.in("https://shop.example.com/tea") {
				t.Fatal("a stay or a place is lost")
			}
		}
		if s := g.room.Status(); s.ActiveUsers != 1 || s.WaitingUsers != 1 || len(was) != 1 {
			t.Errorf("%d inside and %d waiting of two visitors", s.ActiveUsers, s.WaitingUsers)
		}
		time.Sleep(2 * time.Minute) // a's stay is over, and its old cookies are still there
		if !b.in("https://shop.example.com/tea") {
			t.Fatal("not called")
		}
		time.Sleep(2 * time.Minute)
		for range 5 {
			if !a.in("https://shop.example.com/tea") {
				t.Fatal("an old cookie stands for the new one")
			}
			time.Sleep(time.Second)
		}
		if n := g.room.Status().ActiveUsers; n != 1 {
			t.Errorf("one visitor has %d slots", n)
		}
	})
}

func TestPathsByPattern(t *testing.T) {
	bubble(t, "a star and any case", func(t *testing.T) {
		g := openGate(t, RoomConfig{Path: "/*/Buy", IgnoreCase: true, TotalActiveUsers: 1, NewUsersPerMinute: 9})
		if _, ok := g.room.Matches("a.example", "/tea//buy/1"); !ok {
			t.Error("another spelling walks around the room")
		}
		if _, ok := g.room.Matches("a.example", "/buy"); ok {
			t.Error("a star stands for no folder")
		}
		a, b := g.browser(), g.browser()
		if !a.in("http://a.example/tea/buy") || !a.in("http://a.example/COFFEE/BUY/x") ||
			b.in("http://a.example/x/buy") {
			t.Error("a visitor is another one in another folder of the room")
		}
		w := b.goes("http://a.example/tea/bUy/.headgate/leave")
		if w.Header().Get(StateHeader) != string(StateLeft) {
			t.Errorf("no own path below a folder of a pattern: %d %v", w.Code, w.Header())
		}
	})
}

func TestCookieOfRoutes(t *testing.T) {
	_, err := OpenRoom(t.Context(), RoomConfig{Name: "a", TotalActiveUsers: 1, NewUsersPerMinute: 1,
		Routes: []Route{{Host: "a.example", Path: "/"}}})
	if err == nil || !strings.Contains(err.Error(), "suffix") {
		t.Error("further routes without a suffix:", err)
	}
	secure := func(*http.Request) bool { return true }
	for _, x := range []struct {
		cfg  RoomConfig
		want string
	}{
		{RoomConfig{Name: "a", Path: "/"}, "__Host-__cfwaitingroom_a= /"},
		{RoomConfig{Name: "a", Path: "/x"}, "__cfwaitingroom_a= /x"},
		{RoomConfig{Name: "default", Path: "/x", CookieSuffix: "abcd"}, "__cfwaitingroom_abcd= /x"},
		{RoomConfig{Name: "a", Path: "/x", CookieSuffix: "b", Routes: []Route{{Host: "", Path: "/y"}}},
			"__Host-__cfwaitingroom_a_b= /"},
		{RoomConfig{Name: "a", Path: "/", CookieSuffix: "b",
			Routes:       []Route{{Host: "p.example.com", Path: "/"}},
			CookieDomain: "example.com"}, "__cfwaitingroom_a_b=example.com /"},
	} {
		x.cfg.Secure = secure
		c := newFace(x.cfg, nil).newCookie(httptest.NewRequest("GET", "/", nil), "v", 9)
		if got := c.Name + "=" + c.Domain + " " + c.Path; got != x.want {
			t.Errorf("%s, want %s", got, x.want)
		}
	}
}

// While nobody can count them, all visitors pass, after the time that the operator has chosen and
// never before.
func TestFailOpen(t *testing.T) {
	c := RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 99, FailOpenAfter: 30 * time.Second,
		SessionDuration: time.Minute}
	bubble(t, "after a while", func(t *testing.T) {
		g, p := openPlugged(t, c)
		inside, waits := g.visitor(), g.visitor()
		if !inside.in() || waits.in() {
			t.Fatal("two in a room for one")
		}
		time.Sleep(2 * time.Second)
		p.pulled.Store(true)
		time.Sleep(20 * time.Second)
		if waits.in() || g.visitor().in() {
			t.Fatal("let in before its time")
		}
		time.Sleep(40 * time.Second)
		if !waits.in() || !g.visitor().in() || !inside.in() {
			t.Fatal("waits for a store that is down")
		}
		if s := waits.poll().State; s != StateCalled {
			t.Error("the page is not told:", s)
		}
		g.room.SetQueueAll(true)
		if g.visitor().in() {
			t.Error("queue_all is on, and somebody is let in")
		}
		g.room.SetQueueAll(false)
		p.pulled.Store(false)
		time.Sleep(10 * time.Second)
		if first := g.visitor().in(); first && g.visitor().in() {
			t.Error("it counts again, and does not hold")
		}
		if p := waits.poll(); p.State == StateWaiting && p.Position != 1 {
			t.Error("the place is lost", p)
		}
	})
	bubble(t, "not while a full room is asked", func(t *testing.T) {
		g := openGate(t, c)
		g.visitor().in()
		for range 60 {
			if g.visitor().in() {
				t.Fatal("a full room lets in")
			}
			time.Sleep(time.Second / 2)
		}
	})
	bubble(t, "never by default", func(t *testing.T) {
		c := c
		c.FailOpenAfter = 0
		g, p := openPlugged(t, c)
		g.visitor().in()
		g.visitor().in()
		p.pulled.Store(true)
		time.Sleep(time.Hour)
		if g.visitor().in() {
			t.Error("fails open")
		}
	})
}

// A proxy needs time to forward a request that may pass. So the place of a new user in the minute is
// free again a minute and a second after the decision, and the origin sees no minute with more.
func TestTheMinuteOfADecisionBeginsASecondLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t, RoomConfig{TotalActiveUsers: 100, NewUsersPerMinute: 2,
			SessionDuration: time.Minute})
		defer g.stop()
		decide := g.room.Decide(true, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
		}))
		var jar crowd.Jar
		ask := func() bool {
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
			r.Header.Set("Accept", "text/html")
			r.Header.Set("Cookie", jar.String())
			decide.ServeHTTP(w, r)
			jar.Keep(w.Header()["Set-Cookie"])
			return w.Code == http.StatusNoContent
		}
		for range 2 {
			if jar = (crowd.Jar{}); !ask() {
				t.Fatal("a newcomer waits in an empty room")
			}
		}
		began := time.Now()
		for jar = (crowd.Jar{}); !ask(); time.Sleep(250 * time.Millisecond) {
			if time.Since(began) > 5*time.Minute {
				t.Fatal("the third never came in")
			}
		}
		if got := time.Since(began); got < time.Minute+forwarding {
			t.Errorf("the third came in after %v", got)
		} else {
			t.Logf("after %v", got)
		}
	})
}
