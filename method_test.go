package headgate

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/ticket"
)

// cf returns Cloudflare's object of the JSON answer.
func (v *visitor) cf() (m map[string]any) {
	v.accept = "application/json"
	w := v.do("GET", "/")
	v.accept = "text/html"
	all := struct {
		CfWaitingRoom *map[string]any `json:"cfWaitingRoom"`
	}{&m}
	if err := json.Unmarshal(w.Body.Bytes(), &all); err != nil {
		v.g.t.Fatalf("%d %v: %s", w.Code, err, w.Body)
	}
	return m
}

func TestPassthrough(t *testing.T) {
	one := RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 1, SessionDuration: time.Minute}
	bubble(t, "lets all in and counts them", func(t *testing.T) {
		g := openGate(t, one)
		g.visitor().in()
		line := []*visitor{g.visitor(), g.visitor()}
		for _, v := range line {
			if v.in() {
				t.Fatal("two in a room for one")
			}
		}
		set := func(m Method) {
			if err := g.again(func(c *RoomConfig) { c.Method = m }); err != nil {
				t.Fatal(err)
			}
		}
		set(MethodPassthrough)
		for _, v := range line { // who waited goes in first of all
			if !v.until(2*time.Second) || !v.in() {
				t.Fatal("who waited goes on waiting")
			}
		}
		in := line
		for i := range 60 {
			v := g.visitor()
			if !v.in() {
				t.Fatalf("visitor %d waits", i)
			}
			in = append(in, v)
		}
		absent := g.visitor() // who waits and has gone holds nobody up
		if _, err := g.room.counter.Join(t.Context(), 0, time.Hour, 0); err != nil || !absent.in() {
			t.Fatalf("held up by who is absent: %v", err)
		}
		in = append(in, absent)
		time.Sleep(2 * time.Second)
		if s := g.room.Status(); s.ActiveUsers != 64 || s.TotalActiveUsers != 1 || s.Totals.Excluded > 0 {
			t.Errorf("%d inside of 64, %d uncounted", s.ActiveUsers, s.Totals.Excluded)
		}
		set(MethodFIFO)
		time.Sleep(time.Second) // what was lent ahead comes back
		if last := g.visitor(); last.in() {
			t.Error("the limits are not in force again")
		}
		for _, v := range in {
			if !v.in() {
				t.Fatal("somebody inside was sent away")
			}
		}
	})
	bubble(t, "queue_all holds all the same", func(t *testing.T) {
		c := one
		c.Method, c.QueueAll = MethodPassthrough, true
		g := openGate(t, c)
		v := g.visitor()
		if v.in() || v.pass().ID == 0 {
			t.Error("let in, or without a place")
		}
		if m := v.cf(); m["queueingMethod"] != "passthrough" || m["isPassthroughQueue"] != true {
			t.Errorf("%v", m)
		}
	})
	bubble(t, "a store that is down holds nobody", func(t *testing.T) {
		c := one
		c.Method = MethodPassthrough
		g, p := openPlugged(t, c)
		p.pulled.Store(true)
		time.Sleep(time.Minute)
		for range 5 {
			if !g.visitor().in() {
				t.Fatal("waits for a store that is down")
			}
		}
		if n := g.room.Status().Totals.Excluded; n != 5 {
			t.Errorf("%d told as uncounted, want 5", n)
		}
	})
}

func TestReject(t *testing.T) {
	bubble(t, "nobody new, no place, no refresh", func(t *testing.T) {
		g := openGate(t, RoomConfig{
			TotalActiveUsers: 1, NewUsersPerMinute: 10, SessionDuration: time.Hour, RefreshHeader: true,
		})
		in, waits := g.visitor(), g.visitor()
		in.in()
		waits.in()
		set := func(f func(c *RoomConfig)) {
			if err := g.again(f); err != nil {
				t.Fatal(err)
			}
		}
		set(func(c *RoomConfig) { c.Method = MethodReject })
		v := g.visitor()
		w := v.do("GET", "/")
		if w.Code != 503 || w.Header().Get(StateHeader) != "closed" || w.Header().Get("Refresh") != "" ||
			v.pass().ID != 0 {
			t.Errorf("%d %v, ticket %d", w.Code, w.Header(), v.pass().ID)
		}
		if m := v.cf(); m["refreshIntervalSeconds"] != 0.0 || m["isRejectQueue"] != true {
			t.Errorf("%v", m)
		}
		if !in.in() {
			t.Error("who is inside is sent away")
		}
		if waits.poll().State != StateClosed || waits.pass().ID == 0 {
			t.Error("who waits loses the place")
		}
		set(func(c *RoomConfig) { c.QueueAll = true }) // then all queue, and may ask again
		if v.in(); v.pass().ID == 0 || v.cf()["refreshIntervalSeconds"] == 0.0 {
			t.Error("queue_all gives no place")
		}
	})
	bubble(t, "an unknown method is refused", func(t *testing.T) {
		_, err := OpenRoom(t.Context(), RoomConfig{
			Name: "a", TotalActiveUsers: 1, NewUsersPerMinute: 1, Method: "lifo",
		})
		if !errors.Is(err, ErrConfig) {
			t.Errorf("%v", err)
		}
	})
}

// drawAll, in a bubble, admits all waiting visitors one at a time, and returns the order.
func drawAll(t *testing.T, g *gate, line []*visitor) (order []int) {
	t.Helper()
	for range 3000 {
		for i, v := range line {
			if slices.Contains(order, i) {
				continue
			}
			if v.poll().State == StateCalled {
				if !v.in() {
					t.Fatal("called and not let in")
				}
				order = append(order, i)
				g.header.Set(CommandHeader, "revoke")
				v.in()
				g.header.Del(CommandHeader)
			}
		}
		if len(order) == len(line) {
			return order
		}
		time.Sleep(500 * time.Millisecond)
	}
	t.Fatalf("%d of %d let in", len(order), len(line))
	return nil
}

func TestRandom(t *testing.T) { //nolint:funlen // a list of cases
	room := RoomConfig{
		TotalActiveUsers: 1, NewUsersPerMinute: 600, SessionDuration: time.Minute, Method: MethodRandom,
	}
	fill := func(g *gate, n int) (line []*visitor) {
		g.visitor().in()
		for range n {
			v := g.visitor()
			if v.in() {
				g.t.Fatal("let in by a full room")
			}
			line = append(line, v)
		}
		return line
	}
	bubble(t, "everybody comes in once, not in order, and is told a range", func(t *testing.T) {
		g := openGate(t, room)
		line := fill(g, 40)
		m := line[3].cf()
		if m["isRandomQueue"] != true || m["waitTimeKnown"] != true ||
			m["waitTime25Percentile"].(float64) >= m["waitTime75Percentile"].(float64) ||
			m["waitTime"] != m["waitTime50Percentile"] {
			t.Errorf("%v", m)
		}
		if p := line[3].poll(); p.Position != 0 || p.Waiting != 40 {
			t.Errorf("%+v: a draw has no places", p)
		}
		order := drawAll(t, g, line)
		if slices.IsSorted(order) { // by chance one run in 40!
			t.Errorf("in the order of arrival: %v", order)
		}
	})
	bubble(t, "a kill uses no ticket twice and forgets nobody", func(t *testing.T) {
		g, p := openPlugged(t, room)
		line := fill(g, 12)
		g.room.worker.kick()
		time.Sleep(time.Minute + 10*time.Second)
		var used []ticket.Token
		for round := 0; len(used) < 4 && round < 200; round++ {
			for i, v := range line {
				old, cookie := v.pass(), v.cookie
				if v.poll().State == StateCalled && v.in() {
					used = append(used, old)
					g.header.Set(CommandHeader, "revoke")
					v.in()
					g.header.Del(CommandHeader)
					line[i] = nil
					line[i] = &visitor{g: g, accept: "text/html", cookie: cookie} // a copy of the ticket
					line = append(line[:i:i], line[i+1:]...)
					break
				}
			}
			time.Sleep(300 * time.Millisecond)
		}
		if len(used) != 4 {
			t.Fatalf("%d let in", len(used))
		}
		time.Sleep(time.Second)
		g, p = g.kill(p, time.Second)
		defer p.pulled.Store(false)
		time.Sleep(3 * time.Second)
		for _, tok := range used {
			p, err := g.room.counter.Poll(t.Context(), tok.Life, tok.ID, 0)
			if err != nil || p.Position != 0 {
				t.Errorf("ticket %d has a place again: %+v %v", tok.ID, p, err)
			}
		}
		for _, v := range line {
			v.g = g
		}
		drawAll(t, g, line)
	})
	bubble(t, "back to fifo the order is that of arrival", func(t *testing.T) {
		g := openGate(t, room)
		line := fill(g, 12)
		time.Sleep(55 * time.Second)
		for _, v := range line {
			v.poll()
		}
		time.Sleep(10 * time.Second)
		var rest []*visitor
		in := 0
		for _, v := range line { // some are drawn
			if v.poll().State == StateCalled && v.in() {
				in++
				continue
			}
			rest = append(rest, v)
		}
		if in == 0 {
			t.Fatal("nobody was drawn")
		}
		if err := g.again(func(c *RoomConfig) { c.Method = MethodFIFO }); err != nil {
			t.Fatal(err)
		}
		for _, v := range rest {
			v.poll()
		}
		if order := drawAll(t, g, rest); !slices.IsSorted(order) {
			t.Errorf("order %v", order)
		}
	})
}
