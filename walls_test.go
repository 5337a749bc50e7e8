package headgate

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Each test is a way around the line, or through it, that a review has found.

// ghost returns a client that keeps no cookie.
func (g *gate) ghost() *visitor {
	v := g.visitor()
	v.bare = true
	return v
}

// asBrowser makes the visitor send what a browser sends with a page, or with a part of one.
func (v *visitor) asBrowser(mode, dest string) *visitor {
	v.extra = http.Header{"Sec-Fetch-Mode": {mode}, "Sec-Fetch-Dest": {dest}}
	return v
}

// One address without cookies filled the room: 50 plain GETs held 50 slots for a whole session.
func TestOneAddressWithoutCookiesHoldsNoSlots(t *testing.T) {
	cfg := RoomConfig{TotalActiveUsers: 50, NewUsersPerMinute: 600, SessionDuration: 5 * time.Minute}
	fill := func(t *testing.T) *gate {
		g := openGate(t, cfg)
		for range 50 {
			if !g.ghost().in() {
				t.Fatal("a slot was free")
			}
		}
		return g
	}
	bubble(t, "while nobody waits a slot is theirs for a session", func(t *testing.T) {
		g := fill(t)
		time.Sleep(4 * time.Minute)
		if n := g.room.Status().ActiveUsers; n != 50 {
			t.Errorf("%d inside, want 50", n)
		}
	})
	bubble(t, "who waits has them after their probation", func(t *testing.T) {
		g := fill(t)
		v := g.visitor()
		if v.in() {
			t.Fatal("one more than fit")
		}
		if !v.until(probation+5*time.Second) || !v.in() {
			t.Fatalf("waits for slots that nobody uses: %+v", g.room.Status())
		}
	})
	bubble(t, "who comes when they are long past has one at once", func(t *testing.T) {
		g := fill(t)
		time.Sleep(2 * time.Minute)
		if v := g.visitor(); !v.in() {
			t.Error("no slot")
		}
		if n := g.room.Status().ActiveUsers; n != 50 {
			t.Errorf("%d inside: more than was needed were ended, want 50", n)
		}
	})
	bubble(t, "an old cookie holds no more slots than none", func(t *testing.T) {
		g := openGate(t, cfg)
		v := g.visitor()
		v.in()
		time.Sleep(6 * time.Minute)
		old := v.cookie
		for range 50 {
			w := g.ghost()
			w.cookie = old
			w.in()
		}
		next := g.visitor()
		next.in()
		if !next.until(probation + 5*time.Second) {
			t.Error("copies of a pass that is over hold the room")
		}
	})
}

// A drip is a body of one byte each second, sent in a bubble.
type drip struct{ left int }

// Read blocks in a bubble.
func (d *drip) Read(p []byte) (int, error) {
	time.Sleep(time.Second)
	if d.left--; d.left < 0 {
		return 0, io.EOF
	}
	return copy(p, "x"), nil
}

// slowForms opens a room with five slots in a bubble, and fills it with forms that take a minute to
// arrive. took receives how long each took, in seconds.
func slowForms(t *testing.T, session time.Duration, early bool) (g *gate, took chan int) {
	g, took = openGate(t, RoomConfig{TotalActiveUsers: 5, NewUsersPerMinute: 600,
		SessionDuration: session}), make(chan int, 5)
	g.early = early
	for range 5 {
		go func() {
			start := time.Now()
			g.ghost().send(httptest.NewRequestWithContext(t.Context(), "POST", "/", &drip{60}))
			took <- int(time.Since(start).Seconds())
		}()
	}
	time.Sleep(time.Second)
	if n := g.room.Status().ActiveUsers; n != 5 {
		t.Fatalf("%d inside", n)
	}
	return g, took
}

// Forms of 100 clients, sent byte by byte, held the room for as long as a body may take.
func TestSlowBodiesHoldNoSlots(t *testing.T) {
	bubble(t, "while nobody waits they may be slow", func(t *testing.T) {
		_, took := slowForms(t, 5*time.Minute, false)
		for range 5 {
			if n := <-took; n < 60 {
				t.Errorf("ended after %d s", n)
			}
		}
	})
	bubble(t, "who has an answer is a visitor, and may be slow", func(t *testing.T) {
		g, took := slowForms(t, 5*time.Minute, true)
		if v := g.visitor(); v.in() || v.until(40*time.Second) {
			t.Error("a visitor who had a cookie was sent out")
		}
		for range 5 {
			if n := <-took; n < 60 {
				t.Errorf("ended after %d s", n)
			}
		}
	})
	for _, session := range []time.Duration{6 * time.Second, 5 * time.Minute} {
		bubble(t, fmt.Sprint("who waits has their slots after their probation, of ", session), func(t *testing.T) {
			g, took := slowForms(t, session, false)
			v := g.visitor()
			if v.in() || !v.until(min(session, probation)+2*time.Second) || !v.in() {
				t.Errorf("waits for slow bodies: %+v", g.room.Status())
			}
			for range 5 {
				<-took
			}
		})
	}
}

// A visitor whose session has ended early joins the end of the line, also with the pass of its
// probation. It was taken for one whose slot went to a waiting visitor, and came in before the line.
func TestAnEndedProbationIsNotFirst(t *testing.T) {
	for _, fixed := range []bool{false, true} {
		bubble(t, fmt.Sprint("fixed ", fixed), func(t *testing.T) {
			g := openGate(t, RoomConfig{TotalActiveUsers: 2, NewUsersPerMinute: 600,
				SessionDuration: time.Minute, FixedSession: fixed})
			ended, other, line := g.ghost(), g.visitor(), []*visitor{g.visitor(), g.visitor()}
			if !ended.in() || !other.in() || line[0].in() || line[1].in() {
				t.Fatal("not exactly two are inside")
			}
			line[0].poll()
			line[1].poll()
			first := ended.cookie
			ended.revoked()
			if !line[0].until(5*time.Second) || !line[0].in() {
				t.Fatal("the slot of the ended session is not the next visitor's")
			}
			if ended.cookie = first; ended.in() {
				t.Fatal("three inside of two")
			}
			other.revoked()
			for range 20 {
				time.Sleep(500 * time.Millisecond)
				if ended.cookie = first; ended.in() {
					t.Fatal("it came in before the line")
				}
				if line[1].poll().State == StateCalled && line[1].in() {
					return
				}
			}
			t.Error("the line does not move")
		})
	}
}

// A visitor who reads the first page for longer than the probation gets the next free slot, before
// the line, if others have waited for the slot; but only once.
func TestAReaderIsFirstWhenBack(t *testing.T) {
	for _, fixed := range []bool{false, true} {
		bubble(t, fmt.Sprint("fixed ", fixed), func(t *testing.T) {
			g := openGate(t, RoomConfig{TotalActiveUsers: 2, NewUsersPerMinute: 600,
				SessionDuration: time.Minute, FixedSession: fixed})
			reader, other := g.ghost(), g.visitor()
			other.in()
			time.Sleep(30 * time.Second)
			reader.in()
			line := []*visitor{g.visitor(), g.visitor()}
			for _, v := range line {
				v.in()
			}
			if !line[0].until(probation+5*time.Second) || !line[0].in() {
				t.Fatal("the reader's slot went to nobody")
			}
			time.Sleep(5 * time.Second)
			line[1].poll()
			copies := []*visitor{g.ghost(), g.ghost()}
			for _, v := range append(copies, reader) {
				v.cookie = reader.cookie
				if v.in() {
					t.Fatal("three inside of two")
				}
			}
			for range 60 { // other's session ends
				time.Sleep(time.Second)
				if line[1].poll(); reader.in() {
					break
				}
				if line[1].in() {
					t.Fatal("the line went first")
				}
			}
			if !reader.in() {
				t.Fatal("the reader never came in")
			}
			if n := g.room.Status().ActiveUsers; n != 2 {
				t.Errorf("%d inside", n)
			}
		})
	}
	bubble(t, "while nobody waits a session is as long as ever", func(t *testing.T) {
		for _, fixed := range []bool{false, true} {
			g := openGate(t, RoomConfig{TotalActiveUsers: 2, NewUsersPerMinute: 600,
				SessionDuration: time.Minute, FixedSession: fixed})
			reader := g.ghost()
			reader.in()
			time.Sleep(50 * time.Second)
			if !reader.in() || g.room.Status().Totals.Admitted != 1 {
				t.Errorf("fixed %v: the visit is another one: %+v", fixed, g.room.Status().Totals)
			}
			time.Sleep(15 * time.Second)
			if in := reader.in(); g.room.Status().Totals.Admitted != 1+map[bool]int64{true: 1}[fixed] || !in {
				t.Errorf("fixed %v: after 65 s %+v", fixed, g.room.Status().Totals)
			}
			g.stop()
		}
	})
}

// Tickets whose cookie never comes back flooded the line: the next visitor read "30,050 ahead".
func TestTicketsWithoutCookiesAreNotAhead(t *testing.T) {
	const ghosts = 3000
	bubble(t, "they are not counted, not called, and gone after ten seconds", func(t *testing.T) {
		g := openGate(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 6000,
			SessionDuration: 5 * time.Second, MaxWaiting: 100})
		first := g.visitor()
		first.in()
		for range ghosts {
			g.ghost().in()
		}
		v := g.visitor()
		v.in()
		if p := v.poll(); p.Position != 1 || p.Waiting != 1 {
			t.Errorf("one person waits, and is told %+v", p)
		}
		if s := g.room.Status(); s.Provisional != ghosts || s.WaitingUsers != 1 {
			t.Errorf("%d provisional, %d waiting", s.Provisional, s.WaitingUsers)
		}
		if !v.until(8*time.Second) || !v.in() {
			t.Error("the slot went to tickets that nobody claims")
		}
		time.Sleep(11 * time.Second)
		if s := g.room.Status(); s.Provisional != 0 || s.Totals.Called != 1 {
			t.Errorf("%d provisional, %d called", s.Provisional, s.Totals.Called)
		}
	})
	bubble(t, "a cookie that comes back in time keeps its place before later ones", func(t *testing.T) {
		g := openGate(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 6000,
			SessionDuration: 30 * time.Second})
		g.visitor().in()
		slow, quick := g.ghost(), g.visitor()
		slow.in()
		time.Sleep(time.Second)
		quick.in()
		shown := quick.poll().Position
		time.Sleep(3 * time.Second)
		if p := slow.poll(); p.Position != 1 || p.State != StateWaiting {
			t.Errorf("the first to join is told %+v", p)
		}
		if p := quick.poll(); p.Position > shown {
			t.Errorf("the place rose from %d to %d", shown, p.Position)
		}
		late := g.ghost()
		late.in()
		ticket := late.pass().ID
		time.Sleep(11 * time.Second)
		if p := late.poll(); p.Position != 3 || late.pass().ID == ticket {
			t.Errorf("a cookie that came back too late: %+v", p)
		}
	})
	bubble(t, "a stream of them does not keep people from free slots", func(t *testing.T) {
		g := openGate(t, RoomConfig{TotalActiveUsers: 3, NewUsersPerMinute: 6000,
			SessionDuration: 5 * time.Second})
		stop := time.Now().Add(2 * time.Minute)
		in, idle := 0, time.Duration(0)
		for time.Now().Before(stop) {
			g.ghost().in()
			v := g.visitor()
			v.asBrowser("navigate", "document")
			came := time.Now()
			if v.in() || v.until(30*time.Second) && v.in() {
				in++
				idle += time.Since(came)
			}
		}
		if in < 40 || idle > time.Duration(in)*3*time.Second {
			t.Errorf("%d came in, after %v each", in, idle/time.Duration(max(in, 1)))
		}
	})
}

// Called tickets that only poll blocked the room: 500 of them kept 200 slots empty as long as they
// polled.
func TestTicketsThatOnlyPollLoseTheirCalls(t *testing.T) {
	bubble(t, "three calls that nobody claims are the last", func(t *testing.T) {
		g := openGate(t, RoomConfig{TotalActiveUsers: 2, NewUsersPerMinute: 6000,
			SessionDuration: 10 * time.Second})
		g.visitor().in()
		g.visitor().in()
		var idlers []*visitor
		for range 4 {
			v := g.visitor()
			v.in()
			idlers = append(idlers, v)
		}
		honest := g.visitor()
		honest.in()
		done := false
		for range 120 {
			for _, v := range idlers {
				v.poll()
			}
			if done = honest.poll().State == StateCalled && honest.in(); done {
				break
			}
			time.Sleep(time.Second)
		}
		if !done {
			t.Errorf("%+v", g.room.Status())
		}
	})
	bubble(t, "who comes late once keeps the place", func(t *testing.T) {
		g := openGate(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 6000,
			SessionDuration: 10 * time.Second})
		g.visitor().in()
		v := g.visitor()
		v.in()
		id := v.pass().ID
		for range 2 {
			if !v.until(30 * time.Second) {
				t.Fatal("not called")
			}
			time.Sleep(10 * time.Second) // told, and the page did not load
		}
		if !v.until(30*time.Second) || v.pass().ID != id || !v.in() {
			t.Errorf("the place is lost: %+v", v.pass())
		}
	})
}

// Polls alone kept a pass alive: the origin saw nobody, and the next visitor waited.
func TestPollsKeepNobodyInside(t *testing.T) {
	bubble(t, "a session ends though its page polls", func(t *testing.T) {
		g := openGate(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 600,
			SessionDuration: 20 * time.Second})
		v, next := g.visitor(), g.visitor()
		v.in()
		next.in()
		for range 30 {
			time.Sleep(time.Second)
			v.poll()
			if next.poll().State == StateCalled && next.in() {
				return
			}
		}
		t.Error("the pass of a visitor who only polls is renewed")
	})
}

// Images requested without cookies filled 200 slots and drew 1,000 tickets.
func TestPartsOfPagesTakeNoPlace(t *testing.T) {
	parts := map[string]http.Header{
		"image":    {"Sec-Fetch-Mode": {"no-cors"}, "Accept": {"image/*,*/*;q=0.8"}},
		"script":   {"Sec-Fetch-Mode": {"no-cors"}, "Sec-Fetch-Dest": {"script"}, "Accept": {"*/*"}},
		"prefetch": {"Sec-Purpose": {"prefetch;prerender"}, "Accept": {"text/html"}},
		"old":      {"Accept": {"image/png,image/svg+xml,image/*;q=0.8,*/*;q=0.5"}},
	}
	for name, h := range parts {
		bubble(t, name, func(t *testing.T) {
			g := openGate(t, RoomConfig{TotalActiveUsers: 2, NewUsersPerMinute: 1000})
			for range 20 { // nobody waits: the slot comes back with the answer
				v := g.ghost()
				v.extra = h
				if w := v.do("GET", "/x.png"); w.Code != 200 || w.Header().Get("Set-Cookie") != "" {
					t.Fatalf("%d %v", w.Code, w.Header())
				}
				time.Sleep(time.Second) // it is told with the next report
			}
			if s := g.room.Status(); s.ActiveUsers != 0 || s.Totals.Admitted != 20 {
				t.Fatalf("%+v", s)
			}
			for range 3 {
				g.visitor().in()
			}
			for range 20 { // somebody waits
				v := g.ghost()
				v.extra = h
				w := v.do("GET", "/x.png")
				if w.Code != 503 || w.Header().Get("Set-Cookie") != "" ||
					!strings.Contains(w.Body.String(), "join") {
					t.Fatalf("%d %v %s", w.Code, w.Header(), w.Body)
				}
			}
			if s := g.room.Status(); s.Totals.Joined != 1 || s.Provisional != 0 {
				t.Errorf("tickets were drawn: %+v", s)
			}
		})
	}
	for name, h := range map[string]http.Header{ // in doubt it is a person
		"application": {"Sec-Fetch-Mode": {"cors"}, "Accept": {"application/json"}},
		"curl":        {"Accept": {"*/*"}},
		"nothing":     {"Accept": {""}},
		"old browser": {"Accept": {"text/html,application/xhtml+xml,image/webp,*/*;q=0.8"}},
	} {
		bubble(t, name, func(t *testing.T) {
			g := openGate(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 1000})
			g.visitor().in()
			v := g.ghost()
			v.extra = h
			if w := v.do("GET", "/"); w.Code != 503 || v.pass().ID == 0 {
				t.Errorf("%d, and no ticket: %s", w.Code, w.Body)
			}
		})
	}
}

// A burst of images used up the new users of a minute while nobody waited; so did a burst from one
// network without cookies. Both now get a tenth of the minute; the network also gets its first
// newcomers.
func TestABurstLeavesTheMinuteToPeople(t *testing.T) {
	cfg := RoomConfig{TotalActiveUsers: 1000, NewUsersPerMinute: 200, JoinLimit: JoinLimit{Amount: 60}}
	for _, c := range []struct {
		name    string
		h       http.Header
		refuse  bool
		fromAll bool
		want    int
	}{
		{"images of many networks", http.Header{"Sec-Fetch-Mode": {"no-cors"}}, false, true, 20},
		{"pages of one network", http.Header{"Sec-Fetch-Mode": {"navigate"}}, false, false, 60 + 20},
		{"pages of many networks", http.Header{"Sec-Fetch-Mode": {"navigate"}}, false, true, 200},
		// A network above its limit is not rejected while slots are free.
		{"pages of one network, refused", http.Header{"Sec-Fetch-Mode": {"navigate"}}, true, false, 200},
	} {
		bubble(t, c.name, func(t *testing.T) {
			cfg := cfg
			cfg.JoinLimit.Refuse = c.refuse
			g := openGate(t, cfg)
			in := 0
			for i := range 300 {
				v := g.ghost()
				v.extra, v.addr = c.h, "203.0.113.9:1000"
				if c.fromAll {
					v.addr = fmt.Sprintf("10.%d.%d.1:1000", i/200, i%200)
				}
				if v.in() {
					in++
				}
			}
			if in != c.want {
				t.Errorf("%d of the burst are in, want %d", in, c.want)
			}
			v := g.visitor()
			v.addr = "192.0.2.1:1000"
			if got := v.in(); got != (c.want < 200) {
				t.Errorf("a visitor who comes then is in at once: %v", got)
			}
			time.Sleep(time.Minute + time.Second)
			v = g.visitor()
			if v.extra, v.addr = c.h, "198.51.100.1:1000"; v.in() != (c.want < 200) {
				t.Error("what was used up is not back after a minute")
			}
		})
	}
	bubble(t, "a visitor of such a network is in when its cookie has come back", func(t *testing.T) {
		g := openGate(t, cfg)
		for i := range 150 {
			v := g.visitor()
			if v.addr = "203.0.113.9:1000"; !v.in() && !(v.until(3*time.Second) && v.in()) {
				t.Fatalf("visitor %d waits while slots are free", i)
			}
		}
	})
}

// A network that keeps its cookies gets at most a tenth of the calls once it is above its limit,
// and none of its visitors is rejected.
func TestOneNetworkWaitsInALaneOfItsOwn(t *testing.T) {
	if testing.Short() {
		return // length, and nothing that the race detector could find: make all plays it
	}
	bubble(t, "ten of a hundred calls", func(t *testing.T) {
		g := openGate(t, RoomConfig{TotalActiveUsers: 10, NewUsersPerMinute: 600,
			SessionDuration: time.Second,
			JoinLimit:       JoinLimit{Amount: 6}, PollMin: 100 * time.Millisecond, PollMax: time.Second})
		var bots, people []*visitor
		in := map[bool]int{}
		joins := func(bot bool, n int) {
			for range n {
				v := g.visitor()
				if v.addr = "203.0.113.9:1000"; !bot {
					v.addr = fmt.Sprintf("10.%d.%d.1:1000", len(people)/200, len(people)%200)
				}
				if v.in() {
					continue
				}
				if bot {
					bots = append(bots, v)
				} else {
					people = append(people, v)
				}
			}
		}
		joins(false, 20)
		joins(true, 100) // six are like others
		joins(false, 300)
		for range 300 {
			for _, all := range []*[]*visitor{&bots, &people} {
				left := (*all)[:0]
				for _, v := range *all {
					if v.poll().State == StateCalled && v.in() {
						in[all == &bots]++
						continue
					}
					left = append(left, v)
				}
				*all = left
			}
			if in[true]+in[false] >= 200 {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := in[true]; n > 6+22 || n < 10 || in[false] < 150 {
			t.Errorf("of 200 calls %d went to one network", n)
		}
		if len(bots) == 0 || g.room.Status().Totals.Limited == 0 {
			t.Error("the limit did not bind")
		}
		id := bots[0].poll().Ticket
		if x, err := g.room.FindTicket(t.Context(), id); err != nil || x.Lane != "network" || len(id) != 9 {
			t.Errorf("ticket %s: %+v %v", id, x, err)
		}
	})
	bubble(t, "and all of them while nobody else waits", func(t *testing.T) {
		g := openGate(t, RoomConfig{TotalActiveUsers: 2, NewUsersPerMinute: 600, SessionDuration: time.Second,
			JoinLimit: JoinLimit{Amount: 1}, PollMin: 100 * time.Millisecond, PollMax: time.Second})
		var all []*visitor
		for range 12 {
			v := g.visitor()
			v.in()
			all = append(all, v)
		}
		for i, v := range all {
			if !v.in() && (!v.until(20*time.Second) || !v.in()) {
				t.Fatalf("visitor %d of one network waits for ever: %+v", i, v.poll())
			}
		}
		time.Sleep(2 * crowdedLane)
		if n := len(g.room.Status().Lanes); n != 0 {
			t.Errorf("%d lanes are left", n)
		}
	})
	bubble(t, "a kill keeps their places", func(t *testing.T) {
		g, p := openPlugged(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 600,
			SessionDuration: 20 * time.Second, JoinLimit: JoinLimit{Amount: 1}})
		var all []*visitor
		for range 5 {
			v := g.visitor()
			v.in()
			all = append(all, v)
		}
		time.Sleep(2 * time.Second)
		g, _ = g.kill(p, time.Second)
		for i, v := range all[1:] {
			v.g = g
			if was := v.pass().ID; v.poll().State != StateWaiting || v.pass().ID != was {
				t.Errorf("place %d is lost", i)
			}
		}
	})
}

// crowdedLane is how long the built-in lane is kept for the next newcomer.
const crowdedLane = time.Minute

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
