package headgate

import (
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/virtual"
)

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
