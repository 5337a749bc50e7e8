package headgate

import (
	"testing"
	"testing/synctest"
	"time"
)

// held opens a room that knows people, in which one waits, then bob, whose challenge is not solved, and then
// another one. pass lets a second go by.
func held(t *testing.T) (g *gate, p *plug, bob *visitor, pass func()) {
	t.Helper()
	cfg := memberRoom(1, false)
	cfg.Challenge.Kind, cfg.Hold = "work", time.Minute
	g, p = openPlugged(t, cfg)
	time.Sleep(5 * time.Second)
	g.room.SetQueueAll(true)
	one, bob := g.visitor(), g.visitor()
	one.joins()
	one.asks("")
	bob.joins()
	two := g.visitor()
	two.asks(two.joins().solve(t, ""))
	gate := &g
	return g, p, bob, func() {
		time.Sleep(time.Second)
		for _, v := range []*visitor{one, two} {
			v.g = *gate
			v.poll()
		}
	}
}

func (v *visitor) released(id string) {
	v.g.t.Helper()
	if err := v.g.room.ReleaseTicket(v.g.t.Context(), id); err != nil {
		v.g.t.Fatal(err)
	}
}

// Who is released and then signs in has the place of its arrival: on each device, after a kill, and if the
// place had moved to the device before.
func TestWhoIsReleasedSignsIn(t *testing.T) {
	for _, tt := range []struct {
		name         string
		moves, polls bool
	}{
		{"before it asks again", false, false}, {"after it has asked", false, true}, {"on another device", true, true},
	} {
		bubble(t, tt.name, func(t *testing.T) {
			g, plug, bob, pass := held(t)
			for range 30 {
				pass()
				bob.asks("")
			}
			id := bob.asks("").Ticket
			if tt.moves {
				phone := g.visitor()
				if !phone.moved(phone.open(bob.link())) {
					t.Fatal("the place does not move")
				}
				bob = phone
			}
			bob.released(id)
			if tt.polls {
				bob.asks("")
			}
			bob.signIn("bob")
			bob.in()
			if p := bob.polls(); p.Position != 2 || p.Ticket != id {
				t.Errorf("signed in it is %+v, its ticket was %s", p, id)
			}
			again := g.visitor()
			again.joins()
			again.asks("")
			again.signIn("bob")
			again.in()
			for _, v := range []*visitor{bob, again} {
				if p := v.polls(); p.Position != 2 {
					t.Errorf("with a second device it is %+v", p)
				}
			}
			g, _ = g.kill(plug, 0)
			defer g.stop()
			bob.g = g
			for range 8 {
				time.Sleep(time.Second)
				bob.polls()
			}
			if p := bob.polls(); p.Position != 2 {
				t.Errorf("after a kill it is %+v", p)
			}
		})
	}
}

// Who was away for longer than hold has lost its place, and a release gives it back to nobody: otherwise
// tickets taken long before a sale would be worth a release.
func TestAReleaseGivesBackNoPlaceThatHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _, bob, pass := held(t)
		for range 130 {
			pass()
		}
		for range 30 {
			pass()
			bob.asks("")
		}
		m := bob.asks("")
		bob.released(m.Ticket)
		if p := bob.asks(""); p.Position != 3 {
			t.Errorf("it is %+v", p)
		}
		if w, err := g.room.FindTicket(t.Context(), m.Ticket); err != nil || !w.Released {
			t.Errorf("%+v, %v", w, err)
		}
	})
}

// A person who is released has one place, also when another of its devices asks first.
func TestAReleasedPersonHasOnePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _, bob, pass := held(t)
		for range 30 {
			pass()
			bob.asks("")
		}
		id := bob.asks("").Ticket
		bob.signIn("bob")
		bob.in()
		bob.polls()
		bob.released(id)
		other := g.device("bob")
		other.in()
		if p := other.polls(); p.Ticket != id {
			t.Errorf("its second device is %+v, the ticket is %s", p, id)
		}
		if p := bob.polls(); p.Ticket != id || p.Position != 2 || p.Waiting != 3 {
			t.Errorf("it is %+v, the ticket is %s", p, id)
		}
		g.room.SetQueueAll(false)
		pass()
		if !other.comesIn(20*time.Second) || !bob.in() {
			t.Error("it does not come in")
		}
		time.Sleep(time.Second)
		if n := g.room.Status().ActiveUsers; n != 1 {
			t.Errorf("%d are inside", n)
		}
		if w, err := g.room.FindTicket(t.Context(), id); err != nil || w.Status != "used" || w.Agents == 0 {
			t.Errorf("%+v, %v", w, err)
		}
	})
}

// A device whose place has moved to another one does not get it back by a release, however long nobody asks.
func TestAReleasedPlaceStaysWhereItMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _, bob, pass := held(t)
		for range 30 {
			pass()
			bob.asks("")
		}
		id, phone := bob.asks("").Ticket, g.visitor()
		if !phone.moved(phone.open(bob.link())) {
			t.Fatal("the place does not move")
		}
		phone.released(id)
		time.Sleep(2 * time.Hour)
		if m := bob.asks(""); m.State != StateMoved {
			t.Errorf("the device of before is %+v", m)
		}
		if m := phone.asks(""); m.Ticket != id || m.Position == 0 {
			t.Errorf("the device with the place is %+v", m)
		}
	})
}
