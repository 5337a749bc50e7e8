package headgate

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/status"
)

// again applies a changed configuration.
func (g *gate) again(change func(*RoomConfig)) error {
	cfg := g.room.Config()
	change(&cfg)
	return g.room.Reconfigure(g.t.Context(), cfg)
}

// A called visitor is admitted, even if visitors who were called later came earlier and used this
// second's share: the answer waits for the next second, and the visitor is not sent away.
func TestNobodyWhoWasCalledIsSentAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t, RoomConfig{
			TotalActiveUsers: 1, NewUsersPerMinute: 120, SessionDuration: time.Minute,
		})
		var line []*visitor
		for range 6 {
			if v := g.visitor(); !v.in() {
				line = append(line, v)
			}
		}
		if err := g.again(func(c *RoomConfig) { c.TotalActiveUsers = 100 }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2200 * time.Millisecond) // one is called each half second
		began := time.Now()
		for i, v := range slices.Backward(line) {
			if !v.in() {
				t.Errorf("visitor %d was called and is sent away", i+1)
			}
		}
		if d := time.Since(began); len(line) != 5 || d < time.Second || d > 2*time.Second {
			t.Errorf("%d came in within %v, three a second", len(line), d)
		}
	})
}

func TestLimitsChangeWhilePeopleAreInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t, RoomConfig{
			TotalActiveUsers: 4, NewUsersPerMinute: 1000, SessionDuration: time.Minute, NoSpread: true,
		})
		var in, line []*visitor
		for range 10 {
			if v := g.visitor(); v.in() {
				in = append(in, v)
			} else {
				line = append(line, v)
			}
		}
		if len(in) != 4 {
			t.Fatalf("%d of 4 are inside", len(in))
		}
		if err := g.again(func(c *RoomConfig) { c.TotalActiveUsers = 6 }); err != nil {
			t.Fatal(err)
		}
		for _, v := range line[:2] { // at once
			if !v.until(3 * time.Second) {
				t.Fatal("a higher limit does not count")
			}
			v.in()
			in = append(in, v)
		}
		line = line[2:]
		if err := g.again(func(c *RoomConfig) { c.TotalActiveUsers = 3 }); err != nil {
			t.Fatal(err)
		}
		for _, v := range in {
			if !v.in() {
				t.Fatal("a lower limit sends somebody away")
			}
		}
		if s := g.room.Status(); s.ActiveUsers != 6 || s.TotalActiveUsers != 3 {
			t.Fatalf("%+v", s)
		}
		in = in[:2] // four leave: it drains to two, then fills up to three
		most := int64(6)
		for range 80 {
			for _, v := range in {
				v.in()
			}
			for _, v := range line {
				v.poll()
			}
			n := g.room.Status().ActiveUsers
			if n > most {
				t.Fatalf("%d inside after %d while it drains to 3", n, most)
			}
			most = max(min(most, n), 3)
			time.Sleep(time.Second)
		}
		if !line[0].until(20*time.Second) || !line[0].in() { // others may have been called and be silent
			t.Error("nobody is called after it has drained")
		}
		if n := g.room.Status().ActiveUsers; n != 3 {
			t.Errorf("%d inside, want 3", n)
		}
	})
}

func TestSessionsChangeWhilePeopleAreInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, p := openPlugged(t, RoomConfig{
			TotalActiveUsers: 2, NewUsersPerMinute: 1000, SessionDuration: 20 * time.Second,
		})
		a, b := g.visitor(), g.visitor()
		a.in()
		b.in()
		time.Sleep(2 * time.Second) // both are reported
		if err := g.again(func(c *RoomConfig) { c.SessionDuration = time.Minute }); err != nil {
			t.Fatal(err)
		}
		a.in() // a minute from here
		time.Sleep(30 * time.Second)
		if n := g.room.Status().ActiveUsers; n != 1 || !a.in() {
			t.Errorf("%d inside: a longer session counts from the next request on", n)
		}
		time.Sleep(10 * time.Second)
		if err := g.again(func(c *RoomConfig) { c.SessionDuration = 20 * time.Second }); err != nil {
			t.Fatal(err)
		}
		// The pass keeps the end that it had, also after a kill.
		g, _ = g.kill(p, 0)
		a.g = g
		time.Sleep(35 * time.Second)
		if !a.in() {
			t.Error("a shorter session has taken from a pass")
		}
		time.Sleep(time.Minute + 21*time.Second)
		if s := g.room.Status(); s.ActiveUsers > 1 {
			t.Errorf("%d inside, all have left", s.ActiveUsers)
		}
	})
}

func TestAClosedRoomKeepsPlacesAndGivesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t, RoomConfig{
			TotalActiveUsers: 1, NewUsersPerMinute: 1000, SessionDuration: 20 * time.Second,
		})
		a, b, c := g.visitor(), g.visitor(), g.visitor()
		a.in()
		b.in()
		shut := func(c *RoomConfig) { c.Closed, c.Message = true, "sold out" }
		if err := g.again(shut); err != nil {
			t.Fatal(err)
		}
		if !a.in() {
			t.Error("who is inside is sent away")
		}
		w := c.do("GET", "/")
		if state := w.Header().Get(StateHeader); w.Code != 503 || c.pass().ID != 0 || state != "closed" {
			t.Errorf("%d %q %q: want no place", w.Code, c.cookie, state)
		}
		time.Sleep(40 * time.Second)
		if q := b.poll(); q.State != StateClosed || q.Position != 1 || q.Message != "sold out" {
			t.Errorf("%+v", q)
		}
		if n := g.room.Status(); n.WaitingUsers != 1 || !n.Closed || n.Message != "sold out" {
			t.Errorf("%+v", n)
		}
		if err := g.again(func(c *RoomConfig) { c.Closed, c.Message = false, "" }); err != nil {
			t.Fatal(err)
		}
		if !b.until(5*time.Second) || !b.in() {
			t.Error("the place was not kept")
		}
	})
}

func TestAConfigurationThatCannotBeTakenChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, p := openPlugged(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 1000, Message: "old"})
		g.visitor().in()
		b := g.visitor()
		b.in()
		time.Sleep(5 * time.Second)
		for what, change := range map[string]func(*RoomConfig){
			"another name":    func(c *RoomConfig) { c.Name = "blog" },
			"an odd hard end": func(c *RoomConfig) { c.HardEnd = time.Second },
			"below zero":      func(c *RoomConfig) { c.TotalActiveUsers = -1 },
		} {
			err := g.again(func(c *RoomConfig) { c.Message = "new"; change(c) })
			if !errors.Is(err, ErrConfig) {
				t.Errorf("%s: %v", what, err)
			}
		}
		p.full.Store(true)
		start := time.Now()
		if g.again(func(c *RoomConfig) { c.TotalActiveUsers, c.Message = 5, "new" }) == nil {
			t.Error("taken without a record")
		}
		if wait := time.Since(start); wait > reconfigureWait+time.Second {
			t.Errorf("told after %v", wait)
		}
		p.full.Store(false)
		time.Sleep(5 * time.Second)
		if s := g.room.Status(); s.TotalActiveUsers != 1 || s.Message != "old" {
			t.Errorf("%+v", s)
		}
		if b.poll(); g.visitor().in() || b.in() {
			t.Error("a limit that was not taken counts")
		}
	})
}

func TestWhereATicketStandsAndWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t, RoomConfig{
			TotalActiveUsers: 1, NewUsersPerMinute: 1000, SessionDuration: 20 * time.Second,
			Hold: time.Minute,
		})
		g.visitor().in()
		b, c := g.visitor(), g.visitor()
		b.in()
		c.in()
		first, second := b.poll().Ticket, c.poll().Ticket
		want := func(id, status, why string) status.Ticket {
			t.Helper()
			w, err := g.room.FindTicket(t.Context(), id)
			if err != nil || w.Status != status || !strings.Contains(w.Reason, why) || w.Room != "shop" {
				t.Fatalf("%+v %v, want %s because %q", w, err, status, why)
			}
			return w
		}
		w := want(first, "waiting", "0 people are before it")
		if w.Position != 1 || w.SilentFor > 0.1 || w.KeptFor < 59 {
			t.Errorf("%+v", w)
		}
		want(strings.ToUpper(" "+second+" "), "waiting", "1 people are before it")
		g.room.SetQueueAll(true)
		want(first, "waiting", "queue_all is on")
		g.room.SetQueueAll(false)
		for range 30 {
			if c.poll(); b.poll().State == StateCalled {
				break
			}
			time.Sleep(time.Second)
		}
		want(first, "called", "a slot is reserved")
		time.Sleep(7 * time.Second) // it is not claimed
		want(first, "late", "called first when it asks again")
		for range 10 {
			if c.poll().State == StateCalled {
				break
			}
			time.Sleep(time.Second)
		}
		c.in()
		want(second, "used", "is inside for another")
		time.Sleep(2 * time.Minute)
		want(second, "used", "the stay has ended")
		want(first, "used", "the stay has ended") // dropped: nothing is kept of the dead
		for _, id := range []string{
			"", "x", "zzzzzzzz", "........", first[:7], first + "a", strings.Repeat("\x00", 8),
		} {
			if w, err := g.room.FindTicket(t.Context(), id); !errors.Is(err, ErrNoTicket) {
				t.Errorf("%q: %+v %v", id, w, err)
			}
		}
	})
}
