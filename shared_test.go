package headgate

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/virtual"
)

// Finding 8: one ticket or one pass, used by any number of people.

// calledWithCopies returns a visitor of a room with one slot whose ticket is called, and n copies
// of it.
func calledWithCopies(t *testing.T, cfg RoomConfig, n int) (p *plug, owner *visitor, copies []*visitor) {
	t.Helper()
	cfg.TotalActiveUsers, cfg.NewUsersPerMinute = 1, 6000
	cfg.PollMin, cfg.PollMax = 100*time.Millisecond, 200*time.Millisecond
	g, p := openPlugged(t, cfg)
	first, owner := g.visitor(), g.visitor()
	owner.addr = "192.0.2.1:1"
	if !first.in() || owner.in() {
		t.Fatal("want one inside and one in the line")
	}
	for i := range n {
		c := *owner
		c.addr = fmt.Sprintf("198.51.%d.1:1", i)
		copies = append(copies, &c)
	}
	first.revoked()
	if !owner.until(10 * time.Second) {
		t.Fatal("not called")
	}
	return p, owner, copies
}

// revoked ends the visitor's session, as an origin does.
func (v *visitor) revoked() {
	v.g.t.Helper()
	pass, _ := v.named()
	if ended, err := v.g.room.EndSession(v.g.t.Context(), pass); !ended || err != nil {
		v.g.t.Fatal(ended, err)
	}
}

// enters loads the page and returns the visitor's session, or "" if it is not admitted.
func (v *visitor) enters() (stay string) {
	v.g.t.Helper()
	h := v.g.h
	defer func() { v.g.h = h }()
	v.g.h = v.g.room.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if s, ok := SessionOf(w); ok {
			stay = s.ID
		}
	}))
	v.do("GET", "/")
	return stay
}

// reported is longer than it takes until the counter knows what a worker has seen.
const reported = 2 * time.Second

func TestOneTicketThatIsCalledLetsTwentyIn(t *testing.T) {
	session := RoomConfig{SessionDuration: time.Hour}
	bubble(t, "nineteen join at the end", func(t *testing.T) {
		_, owner, copies := calledWithCopies(t, session, 19)
		g := owner.g
		last := g.visitor()
		last.in()
		for range 2 { // the page, and its first image
			if !owner.in() {
				t.Fatal("not in")
			}
		}
		time.Sleep(reported)
		for i, c := range copies {
			before := c.cookie
			if c.in() || c.cookie != before {
				t.Fatalf("copy %d of a used ticket is in, or its answer replaces a pass in the same browser", i)
			}
			if p := c.poll(); p.State != StateWaiting || p.After > 5.01 || c.cookie != before ||
				p.Notice != "ticket_used" || p.Slower == "" {
				t.Fatalf("copy %d is told %+v", i, p)
			}
		}
		time.Sleep(30 * time.Second)
		tickets := map[string]bool{last.poll().Ticket: true}
		for i, c := range copies {
			c.accept = "application/json"
			if body := c.do("GET", "/").Body.String(); !strings.Contains(body, `"notice":"ticket_over"`) {
				t.Fatalf("copy %d of a used ticket is in, or not told why it joins: %s", i, body)
			}
			p := c.poll()
			if p.Notice != "" {
				t.Fatalf("copy %d with a place of its own is told %q", i, p.Notice)
			}
			if tickets[p.Ticket] || p.Ahead != int64(i)+1 {
				t.Fatalf("copy %d has ticket %q and %d ahead, want one of its own and %d", i, p.Ticket, p.Ahead, i+1)
			}
			tickets[p.Ticket] = true
		}
		if s := g.room.Status(); s.ActiveUsers != 1 {
			t.Errorf("%d inside of 1", s.ActiveUsers)
		}
	})
	bubble(t, "before the pass has come back there is one stay", func(t *testing.T) {
		_, owner, copies := calledWithCopies(t, session, 19)
		stay := owner.enters()
		for i, c := range copies {
			time.Sleep(500 * time.Millisecond)
			if got := c.enters(); got != stay || stay == "" {
				t.Fatalf("copy %d has the stay %q, the owner %q", i, got, stay)
			}
		}
		time.Sleep(reported)
		if s := owner.g.room.Status(); s.ActiveUsers != 1 || s.NewUsersLastMinute != 2 {
			t.Errorf("%d inside of 1; %d new users, want 2: the first and the owner", s.ActiveUsers,
				s.NewUsersLastMinute)
		}
	})
}

func TestARepeatedClaimGetsTheSameStay(t *testing.T) {
	for _, fixed := range []bool{false, true} {
		cfg := RoomConfig{SessionDuration: time.Hour, FixedSession: fixed}
		name := map[bool]string{false: "renewed", true: "fixed"}[fixed]
		bubble(t, name+": an answer was lost", func(t *testing.T) {
			_, owner, copies := calledWithCopies(t, cfg, 1)
			lost := copies[0] // its answer does not arrive
			stay := lost.enters()
			time.Sleep(25 * time.Second)
			owner.addr = "203.0.113.1:1" // another network
			if got := owner.enters(); got != stay || got == "" {
				t.Errorf("the stay %q, want %q", got, stay)
			}
		})
		bubble(t, name+": a second tab", func(t *testing.T) {
			_, owner, copies := calledWithCopies(t, cfg, 2)
			early, late := copies[0], copies[1]
			stay := owner.enters()
			if got := early.enters(); got != stay || got == "" { // asked before the answer was there
				t.Errorf("the second tab has the stay %q, want %q", got, stay)
			}
			owner.in()
			time.Sleep(reported)
			late.cookie, owner.cookie = owner.cookie, late.cookie // its request left before the pass came
			if owner.in() {
				t.Error("a used ticket is good")
			}
			if got := late.enters(); got != stay {
				t.Errorf("the browser has the stay %q, want %q", got, stay)
			}
		})
	}
}

func TestACopyIsRefusedAfterATakeover(t *testing.T) {
	cfg := RoomConfig{SessionDuration: time.Hour}
	for _, back := range []bool{false, true} {
		bubble(t, map[bool]string{false: "the pass has not come back", true: "the pass has come back"}[back],
			func(t *testing.T) {
				p, owner, copies := calledWithCopies(t, cfg, 1)
				stay, again := owner.enters(), copies[0]
				if back {
					owner.in()
				}
				time.Sleep(reported)
				g, _ := owner.g.kill(p, time.Second)
				again.g, owner.g = g, g
				if got := again.enters(); back && got != "" || !back && got != stay {
					t.Errorf("the copy has the stay %q; the owner's is %q", got, stay)
				}
				if got := owner.enters(); got != stay {
					t.Errorf("the owner has the stay %q, want %q", got, stay)
				}
			})
	}
}

// Operators can see for a ticket how many networks and agents use its pass.
func TestATicketSaysHowManyUseItsPass(t *testing.T) {
	bubble(t, "ticket", func(t *testing.T) {
		_, owner, copies := calledWithCopies(t, RoomConfig{SessionDuration: time.Hour}, 12)
		id := owner.poll().Ticket
		owner.in()
		for i, c := range copies {
			c.cookie = owner.cookie
			c.extra = http.Header{"User-Agent": {fmt.Sprint("agent ", i/6)}}
			if !c.in() {
				t.Fatal("not in")
			}
		}
		w, err := owner.g.room.FindTicket(t.Context(), id)
		if err != nil || w.Status != "used" || w.Networks != 9 || w.Agents != 3 ||
			!strings.Contains(w.Reason, "in more than 8 networks, with 3 user agents") {
			t.Errorf("%+v %v", w, err)
		}
	})
}

// A link that moves a place is bound as the place is.
func TestABoundPlaceMovesToNobodyElse(t *testing.T) {
	bubble(t, "link", func(t *testing.T) {
		cfg := moveRoom()
		cfg.BindHeader = "X-Member"
		g := openGate(t, cfg)
		g.visitor().in()
		ann, phone, eve := g.visitor(), g.visitor(), g.visitor()
		ann.extra = http.Header{"X-Member": {"ann"}}
		phone.extra, eve.extra = ann.extra, http.Header{"X-Member": {"eve"}}
		ann.in()
		link := ann.link()
		form := phone.open(link)
		if m := eve.moving(link); m.State != StateMoveOver {
			t.Errorf("the link of another member answers %+v", m)
		}
		if eve.moved(form) || !phone.moved(form) {
			t.Error("the place is not the member's")
		}
	})
}

// The pass comes back at one node, and the copies of the ticket go to the other.
func TestACopyIsRefusedAtAnyNode(t *testing.T) { virtual.Test(t, testACopyIsRefusedAtAnyNode) }

func testACopyIsRefusedAtAnyNode(t *testing.T) {
	w, a, b := twoNodes(t, RoomConfig{Name: "shop", TotalActiveUsers: 1, NewUsersPerMinute: 6000,
		SessionDuration: time.Hour, PollMin: 100 * time.Millisecond, PollMax: 200 * time.Millisecond})
	for i, g := range []*gate{a, b} {
		other := []*gate{b, a}[i]
		first, owner := g.visitor(), g.visitor()
		w.until("the first is inside", 15*time.Second, first.in)
		owner.in()
		copied := *owner
		copied.g = other
		first.revoked()
		if !owner.until(20*time.Second) || !owner.in() {
			t.Fatal("not in")
		}
		owner.g = other
		stay := owner.enters()
		w.until("the copy is refused", 20*time.Second, func() bool { c := copied; return c.enters() == "" })
		if owner.g = g; owner.enters() != stay || stay == "" {
			t.Error("the owner is not in")
		}
		owner.revoked()
	}
}
