package headgate

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/virtual"
)

const movePath = "/.headgate/move"

// link returns the link that moves the visitor's place, as its page or app gets it.
func (v *visitor) link() string {
	v.g.t.Helper()
	return v.moving(movePath).MoveLink
}

type moving struct {
	State    State  `json:"state"`
	MoveURL  string `json:"move_url"`
	MoveLink string `json:"move_link"`
}

// moving returns the JSON answer at a path.
func (v *visitor) moving(path string) (m moving) {
	v.g.t.Helper()
	v.accept = "application/json"
	w := v.do("GET", path)
	v.accept = "text/html"
	decodeHeadgate(v.g.t, w, &m)
	return m
}

// open opens a link and returns the value in its form.
func (v *visitor) open(link string) (form string) {
	v.g.t.Helper()
	m := v.moving(link)
	if m.State != StateMoveHere || m.MoveLink == "" {
		v.g.t.Fatalf("the link answers %+v", m)
	}
	return m.MoveLink
}

// redeem sends the form.
func (v *visitor) redeem(form string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(v.g.t.Context(), "POST", movePath,
		strings.NewReader(url.Values{"place": {form}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", v.accept)
	maps.Copy(r.Header, v.extra)
	return v.send(r)
}

// moved reports whether the form moved its place here.
func (v *visitor) moved(form string) bool {
	w := v.redeem(form)
	return w.Code == http.StatusSeeOther && w.Header().Get("Location") == "/"
}

func moveRoom() RoomConfig {
	return RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 600, SessionDuration: time.Minute,
		PollMin: 100 * time.Millisecond, PollMax: 200 * time.Millisecond}
}

func TestAPlaceMovesToAnotherDevice(t *testing.T) { //nolint:funlen // a list of cases
	line := func(t *testing.T, cfg RoomConfig) (g *gate, a, b *visitor) {
		t.Helper()
		g = openGate(t, cfg)
		if !g.visitor().in() {
			t.Fatal("the room is empty")
		}
		a, b = g.visitor(), g.visitor()
		for i, v := range []*visitor{a, b} {
			v.in()
			if p := v.poll(); p.Position != int64(i+1) {
				t.Fatalf("position %d", p.Position)
			}
		}
		return g, a, b
	}
	bubble(t, "with its place, once, and the old one is told", func(t *testing.T) {
		g, a, b := line(t, moveRoom())
		link := a.link()
		if !strings.HasPrefix(link, "http://example.com"+movePath+"?place=") {
			t.Fatalf("link %q", link)
		}
		phone, late := g.visitor(), g.visitor()
		form, other := phone.open(link), late.open(link)
		if p := a.poll(); p.Position != 1 {
			t.Fatalf("opening a link moves nothing, but %+v", p)
		}
		tab := *a
		if !phone.moved(form) {
			t.Fatal("not moved")
		}
		if p := phone.poll(); p.State != StateWaiting || p.Position != 1 {
			t.Errorf("the new device: %+v", p)
		}
		if late.moved(other) {
			t.Error("moved twice")
		}
		if late.redeem(other); late.cookie != "" {
			t.Errorf("the second device has %q", late.cookie)
		}
		if !phone.moved(form) || phone.poll().Position != 1 { // its answer may have been lost
			t.Error("the same form says something else the second time")
		}
		if p := a.poll(); p.State != StateMoved || p.Position != 0 {
			t.Errorf("the old device: %+v", p)
		}
		if w := a.do("GET", "/item"); w.Code != 303 || w.Header().Get("Location") != movePath {
			t.Errorf("a reload of the old device: %d %v", w.Code, w.Header())
		}
		for range 2 {
			if w := a.do("GET", movePath); w.Header().Get(StateHeader) != string(StateMoved) {
				t.Errorf("the old device is told %q", w.Header().Get(StateHeader))
			}
		}
		if p := tab.poll(); p.State != StateMoved {
			t.Errorf("another tab of it: %+v", p)
		}
		if s := g.room.Status(); s.WaitingUsers != 2 || b.poll().Position != 2 {
			t.Errorf("%d wait, who was behind is at %d", s.WaitingUsers, b.poll().Position)
		}
		a.in() // goes to the site again, and knows why
		if p := a.poll(); p.Position != 3 {
			t.Errorf("the old device joins at %d", p.Position)
		}
		old := tab
		if !phone.until(2*time.Minute) || old.in() || !phone.in() || old.in() {
			t.Error("the new device goes in, and the old one does not")
		}
	})
	bubble(t, "and back", func(t *testing.T) {
		g, a, _ := line(t, moveRoom())
		phone, first := g.visitor(), *a
		link := a.link()
		phone.moved(phone.open(link))
		if form := a.open(phone.link()); !a.moved(form) || a.poll().Position != 1 {
			t.Errorf("%+v", a.poll())
		}
		if p := phone.poll(); p.State != StateMoved {
			t.Errorf("%+v", p)
		}
		if third := g.visitor(); third.moved(third.open(link)) || first.poll().State != StateMoved {
			t.Error("what was good before it moved is good again")
		}
	})
	bubble(t, "not after ten minutes, and no forged one", func(t *testing.T) {
		g, a, _ := line(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 600, HardEnd: time.Hour,
			SessionDuration: time.Hour, Hold: time.Hour})
		link, phone := a.link(), g.visitor()
		form := phone.open(link)
		time.Sleep(moveWithin + time.Second)
		for _, bad := range []string{link, movePath + "?place=AAAA", movePath + "?place=" + a.cookie} {
			if m := phone.moving(bad); m.State != StateMoveOver {
				t.Errorf("%s answers %+v", bad, m)
			}
		}
		_, text, _ := strings.Cut(a.link(), "place=")
		for _, bad := range []string{form, text, "", a.cookie[strings.Index(a.cookie, "=")+1:]} {
			if phone.moved(bad) && bad != "" || phone.cookie != "" {
				t.Errorf("%q moved a place", bad)
			}
		}
		if p := a.poll(); p.Position != 1 {
			t.Errorf("%+v", p)
		}
	})
	bubble(t, "not by another site's form", func(t *testing.T) {
		g, a, _ := line(t, moveRoom())
		phone := g.visitor()
		form := phone.open(a.link())
		phone.extra = http.Header{"Sec-Fetch-Site": {"cross-site"}, "Origin": {"https://evil.example"}}
		if w := phone.redeem(form); w.Code != http.StatusForbidden || a.poll().Position != 1 {
			t.Errorf("%d", w.Code)
		}
	})
	bubble(t, "not of who is inside, nor to who is", func(t *testing.T) {
		g, a, b := line(t, moveRoom())
		form, link := g.visitor().open(a.link()), b.link()
		if !a.until(2*time.Minute) || !a.in() {
			t.Fatal("not in")
		}
		if w := a.do("GET", movePath); w.Code != 303 || w.Header().Get("Location") != "/" {
			t.Errorf("who is inside gets %d", w.Code)
		}
		if g.visitor().moved(form) {
			t.Error("a ticket that was used moved")
		}
		if w := a.do("GET", link); w.Code != 303 || !a.in() || b.poll().Position != 1 {
			t.Errorf("who is inside opens a link: %d", w.Code)
		}
	})
	bubble(t, "called or not", func(t *testing.T) {
		g, a, b := line(t, moveRoom())
		form := g.visitor().open(a.link())
		if !a.until(2 * time.Minute) {
			t.Fatal("not called")
		}
		phone := g.visitor()
		if !phone.moved(form) || a.in() || !phone.in() {
			t.Error("the call did not move")
		}
		if b.poll().State == StateCalled {
			t.Error("one slot, two calls")
		}
	})
	bubble(t, "which gives up its own", func(t *testing.T) {
		g, a, b := line(t, moveRoom())
		c := g.visitor()
		c.in()
		if !b.moved(b.open(a.link())) || b.poll().Position != 1 {
			t.Errorf("%+v", b.poll())
		}
		if p := c.poll(); p.Position != 2 || g.room.Status().WaitingUsers != 2 {
			t.Errorf("who was behind is at %d", p.Position)
		}
	})
	bubble(t, "of many at once one", func(t *testing.T) {
		g, a, _ := line(t, moveRoom())
		link, devices := a.link(), make([]*visitor, 20)
		forms := make([]string, len(devices))
		for i := range devices {
			devices[i] = g.visitor()
			forms[i] = devices[i].open(link)
		}
		won := make([]bool, len(devices))
		var wg sync.WaitGroup
		for i, v := range devices {
			wg.Go(func() { won[i] = v.moved(forms[i]) })
		}
		wg.Wait()
		n := 0
		for i, v := range devices {
			if won[i] {
				n++
				if v.poll().Position != 1 {
					t.Errorf("%+v", v.poll())
				}
			}
		}
		if n != 1 {
			t.Errorf("%d have it", n)
		}
	})
}

// The record has the move before the answer: after a kill the same device has the place.
func TestAMoveSurvivesAKill(t *testing.T) {
	bubble(t, "kill", func(t *testing.T) {
		g, p := openPlugged(t, moveRoom())
		g.visitor().in()
		a, phone := g.visitor(), g.visitor()
		a.in()
		form := phone.open(a.link())
		if !phone.moved(form) {
			t.Fatal("not moved")
		}
		g, _ = g.kill(p, 3*time.Second)
		a.g, phone.g = g, g
		if s := a.poll(); s.State != StateMoved {
			t.Errorf("the old device: %+v", s)
		}
		if !phone.moved(form) { // its answer may have been lost with the process
			t.Error("the same form says something else to the next host")
		}
		if !phone.until(2*time.Minute) || !phone.in() || a.in() {
			t.Error("the place is lost")
		}
	})
}

// One of the two nodes hosts the room, and the other sends requests to it.
func TestAPlaceMovesAtAnyNode(t *testing.T) { virtual.Test(t, testAPlaceMovesAtAnyNode) }

func testAPlaceMovesAtAnyNode(t *testing.T) {
	cfg := moveRoom()
	cfg.Name, cfg.SessionDuration = "shop", time.Hour
	_, a, b := twoNodes(t, cfg)
	a.visitor().in()
	for i, g := range []*gate{a, b} {
		v, phone := g.visitor(), a.visitor()
		v.in()
		was := v.poll().Position
		link := v.link()
		phone.g = []*gate{b, a}[i]
		if !phone.moved(phone.open(link)) || phone.poll().Position != was {
			t.Errorf("node %d: %+v, was at %d", i, phone.poll(), was)
		}
		for _, v.g = range []*gate{a, b} {
			if p := v.poll(); p.State != StateMoved {
				t.Errorf("node %d: the old device: %+v", i, p)
			}
		}
	}
}

// A place stays in its data center, wherever its device is. If that is unreachable, nothing moves,
// and the visitor is told so.
func TestAPlaceMovesBetweenDatacenters(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAPlaceMovesBetweenDatacenters)
}

func testAPlaceMovesBetweenDatacenters(t *testing.T) {
	w := newWorld(t, RoomConfig{Name: "shop", TotalActiveUsers: 1, NewUsersPerMinute: 1000,
		SessionDuration: time.Hour, PollMin: 400 * time.Millisecond, NoSpread: true}, "sjc", "lhr")
	lhr, sjc := w.gates["lhr"], w.gates["sjc"]
	w.in("lhr", 1)
	a, phone, third := lhr.visitor(), sjc.visitor(), sjc.visitor()
	a.in()
	link := a.link()
	w.until("the place has moved", 10*time.Second, func() bool { return phone.moved(phone.open(link)) })
	if p := phone.poll(); p.State != StateWaiting || p.Position != 1 {
		t.Errorf("the new device: %+v", p)
	}
	if p := a.poll(); p.State != StateMoved {
		t.Errorf("the old device: %+v", p)
	}
	form := third.open(phone.link())
	w.links["sjclhr"].SetCut(true)
	third.extra = http.Header{"Sec-Fetch-Mode": {"navigate"}} // a browser's form
	if r := third.redeem(form); r.Header().Get(StateHeader) != string(StateMoveAgain) || third.cookie != "" {
		t.Errorf("a counter that is out of reach: %d %v", r.Code, r.Header())
	}
	w.links["sjclhr"].SetCut(false)
	w.until("the same form moves it", 20*time.Second, func() bool { return third.moved(form) })
}

func TestAPlaceIsGivenUp(t *testing.T) {
	cfg := RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 600, SessionDuration: time.Minute,
		PollMin: 100 * time.Millisecond, PollMax: 200 * time.Millisecond, Path: "/"}
	line := func(t *testing.T) (g *gate, a, b, c *visitor) {
		t.Helper()
		g = openGate(t, cfg)
		if !g.visitor().in() {
			t.Fatal("the room is empty")
		}
		a, b, c = g.visitor(), g.visitor(), g.visitor()
		for i, v := range []*visitor{a, b, c} {
			v.in()
			if p := v.poll(); p.Position != int64(i+1) {
				t.Fatalf("position %d", p.Position)
			}
		}
		return g, a, b, c
	}
	const leave = "/.headgate/leave"
	bubble(t, "who is behind moves up at once", func(t *testing.T) {
		g, a, b, c := line(t)
		tab := *b // another tab of the same browser, which has the cookie of before for a moment
		w := b.do("POST", leave)
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != leave {
			t.Fatalf("%d %v", w.Code, w.Header())
		}
		if p := c.poll(); p.Position != 2 {
			t.Errorf("who was behind is at %d", p.Position)
		}
		for _, v := range []*visitor{b, b} { // a reload does nothing
			w = v.do("GET", leave)
			if w.Header().Get(StateHeader) != string(StateLeft) || w.Code != 503 {
				t.Errorf("%d %s", w.Code, w.Header().Get(StateHeader))
			}
		}
		if p := b.poll(); p.State != StateLeft { // a tab that still polls joins no line
			t.Errorf("polls %+v", p)
		}
		if n := g.room.Status().WaitingUsers; n != 2 {
			t.Errorf("%d wait", n)
		}
		tab.do("POST", leave) // again
		if n := g.room.Status(); n.WaitingUsers != 2 || n.Totals.LeftLine != 2 {
			t.Errorf("%d wait, %d left", n.WaitingUsers, n.Totals.LeftLine)
		}
		b.in() // lines up again: behind the others
		if p := b.poll(); p.Position != 3 {
			t.Errorf("joined at %d", p.Position)
		}
		if p := a.poll(); p.Position != 1 {
			t.Errorf("the first is at %d", p.Position)
		}
	})
	bubble(t, "the slot of a call goes to the next", func(t *testing.T) {
		_, a, b, _ := line(t)
		if !a.until(2 * time.Minute) {
			t.Fatal("not called")
		}
		a.do("POST", leave)
		if !b.until(time.Second) || !b.in() {
			t.Error("the slot was held for nobody")
		}
	})
	bubble(t, "another site takes no place away, and who is inside stays", func(t *testing.T) {
		_, a, _, _ := line(t)
		a.extra = http.Header{"Sec-Fetch-Site": {"cross-site"}, "Origin": {"https://evil.example"}}
		if w := a.do("POST", leave); w.Code != http.StatusForbidden {
			t.Errorf("%d", w.Code)
		}
		a.extra = nil
		if p := a.poll(); p.Position != 1 {
			t.Errorf("position %d", p.Position)
		}
		a.until(2 * time.Minute)
		if !a.in() {
			t.Fatal("not in")
		}
		if a.do("POST", leave); !a.in() {
			t.Error("thrown out")
		}
	})
	bubble(t, "a forged or missing cookie harms nobody", func(t *testing.T) {
		g, _, _, _ := line(t)
		v := g.visitor()
		for _, v.cookie = range []string{"", "__cfwaitingroom_shop=AAAA"} {
			if w := v.do("POST", leave); w.Code != http.StatusSeeOther {
				t.Errorf("%d", w.Code)
			}
		}
		if n := g.room.Status().WaitingUsers; n != 3 {
			t.Errorf("%d wait", n)
		}
	})
}

// One of the two nodes hosts the room, and the other sends requests to it.
func TestAPlaceIsGivenUpAtAnyNode(t *testing.T) { virtual.Test(t, testAPlaceIsGivenUpAtAnyNode) }

func testAPlaceIsGivenUpAtAnyNode(t *testing.T) {
	_, a, b := twoNodes(t, RoomConfig{Name: "shop", TotalActiveUsers: 1, NewUsersPerMinute: 600,
		SessionDuration: time.Hour, PollMin: 100 * time.Millisecond, PollMax: 200 * time.Millisecond})
	a.visitor().in()
	for i, g := range []*gate{a, b} {
		v, last := g.visitor(), a.visitor()
		v.in()
		last.in()
		was := last.poll().Position
		if w := v.do("POST", "/.headgate/leave"); w.Code != http.StatusSeeOther {
			t.Fatalf("node %d: %d", i, w.Code)
		}
		if now := last.poll().Position; now != was-1 {
			t.Errorf("node %d: position %d, then %d", i, was, now)
		}
	}
}
