package headgate

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/route"
)

// sale changes a room as its events do.
func (g *gate) sale(begun, started bool) {
	g.t.Helper()
	start := time.Now().Add(time.Hour).Truncate(time.Second)
	if old := g.room.Config().Draw; old.Event != "" {
		start = old.StartsAt
	}
	if err := g.again(func(c *RoomConfig) {
		c.Draw = DrawPlan{Event: "sale", StartsAt: start, Begun: begun, Started: started}
		c.Event = Event{}
		if begun {
			c.Event = Event{Name: "sale", Active: true, Prequeue: !started, Shuffle: true,
				StartsAt: start, EndsAt: start.Add(time.Hour)}
		}
	}); err != nil {
		g.t.Fatal(err)
	}
}

// TestAShuffledEvent runs an event from its announcement to its first visitors, with a kill in
// between.
func TestAShuffledEvent(t *testing.T) {
	room := RoomConfig{TotalActiveUsers: 10, NewUsersPerMinute: 600, SessionDuration: 30 * time.Second}
	bubble(t, "prequeue, start, who comes late, a kill", func(t *testing.T) {
		g, p := openPlugged(t, room)
		g.sale(false, false)
		in := g.visitor()
		if !in.in() {
			t.Fatal("an event that is to come holds visitors")
		}
		hash := g.room.Status().Draw.Hash
		g.sale(true, false)
		var line []*visitor
		for range 30 {
			v := g.visitor()
			if v.in() {
				t.Fatal("let in during the prequeue")
			}
			line = append(line, v)
		}
		if !in.in() {
			t.Error("who was inside is sent away")
		}
		if s := line[7].poll(); s.State != StateOpensSoon || s.Position != 0 {
			t.Errorf("%+v, want no place before the draw", s)
		}
		m := line[7].cf()
		if m["isEventPrequeueing"] != true || m["isEventActive"] != true || m["waitTimeKnown"] != false ||
			m["shuffleAtEventStart"] != true || m["timeUntilEventStart"].(float64) < 59 {
			t.Errorf("%v", m)
		}
		line[7].accept = "application/json"
		if w := line[7].do("GET", "/"); !strings.Contains(w.Body.String(), `"draw":"`+hash+`"`) {
			t.Errorf("no hash in %s", w.Body)
		}
		if st := g.room.Status(); st.Status != "event_prequeueing" || st.Draw.Hash != hash ||
			st.Draw.Seed != "" || st.Event.Name != "sale" {
			t.Errorf("%+v %+v", st, st.Draw)
		}
		time.Sleep(time.Second)
		g, p = g.kill(p, time.Second) // the new process knows the same events
		defer p.pulled.Store(false)
		for _, v := range line {
			v.g = g
		}
		time.Sleep(3 * time.Second)
		g.sale(true, true)
		late := g.visitor()
		late.in()
		st := g.room.Status()
		if st.Draw.Hash != hash || st.Draw.Seed == "" || !st.Draw.Finished {
			t.Fatalf("%+v, want the hash %s", st.Draw, hash)
		}
		order := drawSome(t, g, line, 12)
		if slices.IsSorted(order) {
			t.Errorf("called in the order of arrival: %v", order)
		}
		called := g.room.counter.State(0, 0).Called
		if p := late.poll(); p.Position+called+int64(len(order)) < 30 {
			t.Errorf("who came late is at %d when %d are in and %d called", p.Position, len(order), called)
		}
	})
	bubble(t, "the page commits to the draw and then shows it", func(t *testing.T) {
		c := room
		c.TotalActiveUsers = 1
		g := openGate(t, c)
		g.sale(false, false)
		g.visitor().in()
		g.sale(true, false)
		q := func() View {
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
			q := &visitRequest{
				f: g.room.face.Load(), r: r, at: &route.Match{Path: "/"}, worker: g.room.worker,
			}
			return g.room.view(q, &counter.PlaceInfo{}, StateWaiting)
		}
		v := g.visitor()
		v.in()
		hash := q().Event.Draw
		g.sale(true, true)
		time.Sleep(time.Second)
		if shown := q().Event.Draw; len(hash) != 64 || strings.Count(shown, "/") != 2 {
			t.Errorf("before %q, after %q", hash, shown)
		}
	})
	bubble(t, "a prequeue holds though the store is down", func(t *testing.T) {
		g, p := openPlugged(t, room)
		p.pulled.Store(true)
		err := g.again(func(c *RoomConfig) {
			c.TotalActiveUsers, c.Event = 5, Event{Name: "sale", Active: true, Prequeue: true}
		})
		if err == nil || g.visitor().in() {
			t.Errorf("let in: %v", err)
		}
	})
}

// drawSome, in a bubble, lets people poll until at least n have been admitted, and returns which.
func drawSome(t *testing.T, g *gate, line []*visitor, n int) (order []int) {
	t.Helper()
	for range 600 {
		for i, v := range line {
			if !slices.Contains(order, i) && v.poll().State == StateCalled && v.in() {
				order = append(order, i)
			}
		}
		if len(order) >= n {
			return order
		}
		time.Sleep(250 * time.Millisecond)
	}
	t.Fatalf("%d let in, want %d", len(order), n)
	return nil
}
