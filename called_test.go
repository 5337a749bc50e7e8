package headgate

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/tests/virtual"
)

// In a review, five suspended phones were told "your turn", and only one of them got in.

// next polls once. If the answer is "called", the visitor loads the page and must get in.
func (v *visitor) next() (state State, notice string) {
	v.g.t.Helper()
	p := v.poll()
	if p.State == StateCalled && !v.in() {
		v.g.t.Errorf("told called, and the page says %s", v.poll().State)
	}
	return p.State, p.Notice
}

// Visitors whose devices were suspended are told "called" only if they hold a slot: the next page
// admits them.
func TestCalledMeansIn(t *testing.T) {
	for name, sleep := range map[string]time.Duration{
		"longer than a call is kept":  time.Minute,
		"longer than a place is kept": 10 * time.Minute,
	} {
		for _, others := range []int{0, 3} { // that enter meanwhile, ahead of the suspended ones
			bubble(t, fmt.Sprint(name, ", passed by ", others), func(t *testing.T) {
				g := openGate(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 600,
					SessionDuration: 10 * time.Second, Hold: 5 * time.Minute, PollMax: 5 * time.Second})
				inside := g.visitor()
				inside.in()
				var phones, awake []*visitor
				for range 5 {
					v := g.visitor()
					v.in()
					v.poll()
					phones = append(phones, v)
				}
				for range others {
					v := g.visitor()
					v.in()
					awake = append(awake, v)
				}
				for slept := time.Duration(0); slept < sleep; slept += time.Second {
					time.Sleep(time.Second)
					if len(awake) == 0 {
						inside.in() // the room is full when the phones wake
						continue
					}
					for i, v := range awake {
						if s, _ := v.next(); s == StateCalled {
							inside, awake = v, slices.Delete(awake, i, i+1)
							break
						}
					}
				}
				if len(awake) > 0 || !inside.in() {
					t.Fatalf("%d who polled still wait", len(awake))
				}
				over := sleep > 5*time.Minute
				for i, v := range phones {
					s, notice := v.next()
					if s == StateCalled || (notice == "ticket_over") != over {
						t.Errorf("the room is full, and phone %d is told %s and %q", i, s, notice)
					}
				}
				for range 120 {
					left := phones[:0]
					for _, v := range phones {
						if s, _ := v.next(); s != StateCalled {
							left = append(left, v)
						}
					}
					if phones = left; len(phones) == 0 {
						return
					}
					time.Sleep(time.Second)
				}
				t.Errorf("%d of five never came in", len(phones))
			})
		}
	}
}

// The answer to a poll with a pass agrees with what the next page does.
func TestCalledWithAPassMeansIn(t *testing.T) {
	cfg := RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 600, SessionDuration: 10 * time.Second}
	bubble(t, "a session that is over, in a room where others wait", func(t *testing.T) {
		g := openGate(t, cfg)
		v, other := g.visitor(), g.visitor()
		v.in()
		if s, _ := v.next(); s != StateCalled {
			t.Fatalf("inside, and told %s", s)
		}
		other.in()
		if !other.until(30*time.Second) || !other.in() {
			t.Fatal("not called")
		}
		if s, _ := v.next(); s != StateWaiting {
			t.Errorf("the session is over, and told %s", s)
		}
		if !v.until(30*time.Second) || !v.in() {
			t.Error("never called")
		}
	})
	for _, action := range []string{"wait", "end"} {
		bubble(t, "a pass in one network too many: "+action, func(t *testing.T) {
			cfg := cfg
			cfg.PassSharing = PassSharing{Networks: 1, Action: action}
			g := openGate(t, cfg)
			v := g.visitor()
			v.addr = "192.0.2.1:1"
			v.in()
			g.visitor().in()
			other := *v
			other.addr = "198.51.100.1:1"
			if s, _ := other.next(); s != StateWaiting {
				t.Errorf("told %s", s)
			}
		})
	}
	bubble(t, "a shadow room", func(t *testing.T) {
		cfg := cfg
		cfg.Shadow = true
		g := openGate(t, cfg)
		for range 3 {
			v := g.visitor()
			v.in()
			for range 3 {
				if s, _ := v.next(); s != StateCalled {
					t.Errorf("told %s", s)
				}
				time.Sleep(8 * time.Second)
			}
		}
	})
}

// A second tab polls with the ticket while the first tab's claim is written. It is not a newcomer,
// whose cookie would replace the pass.
func TestAPollDuringAClaimIsNoNewcomer(t *testing.T) {
	bubble(t, "a write takes half a second", func(t *testing.T) {
		p, owner, copies := calledWithCopies(t, RoomConfig{SessionDuration: time.Hour}, 1)
		p.slow.Store(int64(500 * time.Millisecond))
		in := make(chan bool)
		go func() { in <- owner.in() }()
		time.Sleep(100 * time.Millisecond)
		before := copies[0].cookie
		if s := copies[0].poll().State; s != StateCalled || copies[0].cookie != before {
			t.Errorf("told %s, another cookie: %v", s, copies[0].cookie != before)
		}
		if !<-in || !copies[0].in() {
			t.Error("not in")
		}
	})
}

// A visitor whose pass is over and who must wait is told why, once, by the poll and by the page.
func TestAVisitThatIsOverIsTold(t *testing.T) {
	for name, end := range map[string]func(v *visitor){
		"expired":               func(*visitor) {}, // while the other one waits
		"ended by the operator": (*visitor).revoked,
		"revoked by the site": func(v *visitor) {
			kept := v.cookie // a browser deletes it
			v.g.header.Set(CommandHeader, "revoke")
			v.do("GET", "/done")
			v.g.header.Del(CommandHeader)
			v.cookie = kept
		},
	} {
		for _, page := range []bool{false, true} {
			bubble(t, fmt.Sprint(name, ", page ", page), func(t *testing.T) {
				g := openGate(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 600,
					SessionDuration: 10 * time.Second})
				v, other, newcomer := g.visitor(), g.visitor(), g.visitor()
				v.in()
				other.in()
				if p := other.poll(); p.Notice != "" || p.Slower != "" {
					t.Errorf("a newcomer is told %q, %q", p.Notice, p.Slower)
				}
				end(v)
				if !other.until(30*time.Second) || !other.in() {
					t.Fatal("not called")
				}
				newcomer.in()
				if page {
					v.accept = "application/json"
					if body := v.do("GET", "/").Body.String(); !strings.Contains(body, `"notice":"session_over"`) {
						t.Errorf("the page is %s", body)
					}
				} else if p := v.poll(); p.Notice != "session_over" || p.Slower == "" {
					t.Errorf("told %+v", p)
				}
				if p := v.poll(); p.State != StateWaiting || p.Notice != "" || p.Slower != "" {
					t.Errorf("with a place of its own it is told %+v", p)
				}
			})
		}
	}
}

// Places in front whose visitors solve nothing hold up nobody for long, however seldom they poll: while slots
// wait, those behind are asked earlier. One of them that comes in from time to time does not change that.
func TestPlacesInFrontThatSolveNothing(t *testing.T) {
	for _, every := range []int{0, 5, 60, 200} { // seconds between the polls of each; 0: it polls once
		synctest.Test(t, func(t *testing.T) {
			g, _, _ := claiming(t, func(c *RoomConfig) { c.NewUsersPerMinute = 60 }, 0)
			defer g.stop()
			time.Sleep(10 * time.Second)
			var front, behind []*visitor
			for i := range 1000 + 20 {
				v := g.visitor()
				v.addr = fmt.Sprintf("203.0.%d.%d:1", i/200, i%200+1)
				v.joins()
				if v.asks(""); i < 1000 {
					front = append(front, v)
				} else {
					behind = append(behind, v)
				}
			}
			g.room.SetQueueAll(false)
			last := 0
			for n := 1; len(behind) > 0; n++ {
				time.Sleep(time.Second)
				i := 0
				front = slices.DeleteFunc(front, func(v *visitor) bool {
					i++
					polls := every > 0 && (i+n)%every == 0
					return polls && v.asks("").State == StateCalled && v.in()
				})
				behind = slices.DeleteFunc(behind, func(v *visitor) bool {
					m := v.asks("")
					if m.Challenge != nil {
						m = v.asks("good" + v.addr)
					}
					if m.State == StateCalled && v.in() {
						last = n
						return true
					}
					return false
				})
				if n-last > 30 {
					t.Fatalf("polls each %d s: nobody of %d who solve it came in from %d to %d s", every, len(behind), last, n)
				}
			}
		})
	}
}

// A phone that sleeps while it is asked keeps its place, once.
func TestAPhoneSleepsWhileItIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _, all := claiming(t, func(c *RoomConfig) { c.Hold = 10 * time.Minute }, 30)
		defer g.stop()
		g.room.SetQueueAll(false)
		time.Sleep(4 * time.Minute)
		if m := all[0].asks(""); m.Challenge == nil || m.Position != 1 {
			t.Fatalf("after its sleep: %+v", m)
		}
		if time.Sleep(5 * time.Second); all[0].asks("good").Position != 1 || !all[0].until(5*time.Second) {
			t.Error("it is not called first")
		}
		all[1].asks("")
		time.Sleep(4 * time.Minute)
		if m := all[1].asks(""); m.Notice != "unsolved" {
			t.Errorf("it sleeps for a second time: %+v", m)
		}
	})
}

// Whoever has solved it at the turn is called after a takeover as before it, before everybody behind, and
// nobody who has not is called meanwhile. All keep their places.
func TestATakeoverWhileTheyAreAsked(t *testing.T) { virtual.Test(t, testATakeoverWhileTheyAreAsked) }

func testATakeoverWhileTheyAreAsked(t *testing.T) {
	p := &thirdParty{spent: map[string]bool{}}
	c := p.challenge()
	c.On = "claim"
	w, a, b := twoNodes(t, RoomConfig{Name: "shop", TotalActiveUsers: 1, NewUsersPerMinute: 600, Challenge: c,
		SessionDuration: time.Hour, PollMin: time.Second, PollMax: 2 * time.Second})
	first := a.visitor()
	w.until("one is inside", 15*time.Second, first.in)
	pass, _ := first.named()
	var line []*visitor
	for i := range 8 { // 0, 2, 5 and 7 solve it, 5 and 7 after the takeover
		v := []*gate{a, b}[i%2].visitor()
		v.joins()
		w.until("it is asked", 15*time.Second, func() bool {
			m := v.asks("")
			return m.Position == int64(i+1) && m.Challenge != nil
		})
		line = append(line, v)
	}
	for _, i := range []int{2, 0} {
		if line[i].asks(fmt.Sprint("good", i)).Challenge != nil {
			t.Fatal("a right token does not count")
		}
	}
	host, other := "n1", b
	for _, n := range a.room.Config().Engine.Nodes() {
		if n.Name == "n2" && len(n.Rooms) > 0 {
			host, other = "n2", a
		}
	}
	w.pause(40 * time.Second)
	w.stop[host]()
	first.g = other
	for i, v := range line {
		v.g = other
		w.until("it has its place", 30*time.Second, func() bool { return v.asks("").Position == int64(i+1) })
	}
	for _, i := range []int{7, 5} {
		w.until("it is asked again", 15*time.Second, func() bool { return line[i].asks("").Challenge != nil })
		if line[i].asks(fmt.Sprint("good", i)).Challenge != nil {
			t.Fatal("a right token does not count after a takeover")
		}
	}
	w.until("inside", 30*time.Second, first.in)
	var in []int
	for len(in) < 4 {
		if ended, err := other.room.EndSession(t.Context(), pass); !ended || err != nil {
			t.Fatal(ended, err)
		}
		w.until("the next one comes in", 30*time.Second, func() bool {
			called := -1
			for i, v := range line {
				if v != nil && v.asks("").State == StateCalled {
					if called >= 0 {
						t.Fatalf("%d and %d are called for one slot", called, i)
					}
					called = i
				}
			}
			if called < 0 || !line[called].in() {
				return false
			}
			in = append(in, called)
			pass, _ = line[called].named()
			line[called] = nil
			return true
		})
	}
	if fmt.Sprint(in) != "[0 2 5 7]" {
		t.Errorf("%v came in", in)
	}
}

// While its data center is out of reach, a ticket that was not asked yet keeps its place there. With a token
// it waits here as well, and the place at home then needs no other one. With on: draw it needs none.
func TestAnUnsolvedPlaceRoamsWithItsToken(t *testing.T) {
	t.Parallel()
	for _, on := range []string{"claim", "draw"} {
		virtual.Test(t, func(t *testing.T) { testAnUnsolvedPlaceRoams(t, on) })
	}
}

func testAnUnsolvedPlaceRoams(t *testing.T, on string) {
	p := &thirdParty{spent: map[string]bool{}}
	c := p.challenge()
	c.On = on
	w := newWorld(t, RoomConfig{Name: "shop", TotalActiveUsers: 3, NewUsersPerMinute: 1, Hold: time.Hour,
		SessionDuration: time.Hour, Challenge: c, Method: map[string]Method{"draw": MethodRandom}[on],
		QueueAll: true}, "sjc", "lhr")
	lhr, sjc := w.gates["lhr"], w.gates["sjc"]
	for range 10 {
		v := lhr.visitor()
		v.joins()
		v.asks("")
	}
	v := lhr.visitor()
	v.joins()
	own := v.asks("").Ticket
	if m := v.asks(""); own == "" || on == "claim" && m.Challenge != nil {
		t.Fatalf("%+v", m)
	}
	w.links["sjclhr"].SetCut(true)
	v.g = sjc
	asked := 0
	w.until("it waits at sjc", 30*time.Second, func() bool {
		m := v.asks("")
		if m.Challenge != nil {
			asked++
			m = v.asks("good")
		}
		if m.Position > 0 && on == "claim" && asked == 0 {
			t.Fatalf("a place without a token: %+v", m)
		}
		return m.Position > 0 || on == "draw" && sjc.room.Status().WaitingUsers == 1
	})
	w.links["sjclhr"].SetCut(false)
	w.until("it has its place at lhr", 60*time.Second, func() bool {
		v.g = lhr
		m := v.asks("")
		if m.Ticket != "" && m.Ticket != own {
			t.Fatalf("its place at home is lost: %+v, was %s", m, own)
		}
		return m.Ticket == own && lhr.room.Status().WaitingUsers == 11
	})
}

// A hundred who solve it and a hundred who do not share slots that come back. Those who solve it come in
// first, no slot waits while anybody can be called, and all come in.
func TestHundredSolveAtTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _, all := claiming(t, func(c *RoomConfig) {
			c.NewUsersPerMinute, c.TotalActiveUsers, c.SessionDuration = 300, 5, 10*time.Second
		}, 0)
		defer g.stop()
		for i := range 200 {
			v := g.visitor()
			v.addr = fmt.Sprintf("203.0.113.%d:1", i+1)
			v.joins()
			v.asks("")
			all = append(all, v)
		}
		g.room.SetQueueAll(false)
		var in []int
		for n, idle := 0, 0; len(in) < 200; n++ {
			time.Sleep(time.Second)
			for i, v := range all {
				if v == nil || (n+i)%2 > 0 {
					continue
				}
				m := v.asks("")
				if m.Challenge != nil && i%4 < 2 {
					m = v.asks("good" + v.addr)
				}
				if m.State == StateCalled && v.in() {
					in, all[i] = append(in, i), nil
				}
			}
			s := g.room.Status()
			if idle++; s.ActiveUsers+s.Called == 5 {
				idle = 0
			}
			if s.ActiveUsers > 5 || idle > 10 && len(in) < 190 {
				t.Fatalf("after %d s and %d visitors: %d inside of 5, a slot waits for %d s", n, len(in), s.ActiveUsers, idle)
			}
		}
		solved := slices.DeleteFunc(slices.Clone(in), func(i int) bool { return i%4 >= 2 })
		for k, i := range solved { // of each four numbers two solve it
			if late := k - (i/4*2 + i%4); late < -5 || late > 5 {
				t.Errorf("visitor %d came in as number %d of those who solve it", i, k)
			}
		}
	})
}

// After a restart the line waits for those in front to poll. That is no reason to ask those far behind.
func TestNobodyIsAskedEarlierAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := (&thirdParty{spent: map[string]bool{}}).challenge()
		c.On = "claim"
		g, p := openPlugged(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 6, Challenge: c,
			SessionDuration: time.Hour})
		first := g.visitor()
		if !first.in() {
			t.Fatal("the first one is not in")
		}
		time.Sleep(10 * time.Second)
		var all []*visitor
		for i := range 60 {
			v := g.visitor()
			v.addr = fmt.Sprintf("203.0.113.%d:1", i+1)
			v.joins()
			if v.asks(""); i < 5 {
				v.asks("good" + v.addr)
			}
			all = append(all, v)
		}
		time.Sleep(20 * time.Second)
		g, _ = g.kill(p, time.Second)
		defer g.stop()
		first.g = g
		first.revoked()
		for n := range 60 {
			time.Sleep(time.Second)
			for i, v := range all[40:] {
				if v.g = g; v.asks("").Challenge != nil {
					t.Fatalf("visitor %d is asked after %d s", i+40, n)
				}
			}
		}
	})
}

// A program that proves nothing fills half of a room, however many networks and tickets it has, and whenever
// its tickets come back. Visitors who solve the challenge get a place meanwhile.
func TestTheRoomIsNotFullOfUnsolvedPlaces(t *testing.T) {
	for _, on := range []string{"", "claim"} {
		bubble(t, "on "+on, func(t *testing.T) {
			g := openGate(t, RoomConfig{TotalActiveUsers: 10, NewUsersPerMinute: 600, QueueAll: true,
				MaxWaiting: 40, JoinLimit: JoinLimit{Amount: 5}, Challenge: Challenge{Kind: "work", On: on}})
			var flood []*visitor
			for i := range 200 { // of 50 networks, some of which are above join_limit
				v := g.visitor()
				v.addr = fmt.Sprintf("192.0.%d.2:1", i%50)
				v.joins()
				flood = append(flood, v)
			}
			for range 60 {
				time.Sleep(time.Second)
				for _, v := range flood {
					v.asks("")
				}
			}
			if n := g.room.Status().WaitingUsers; n > 20+1 { // in an empty line one needs no solution
				t.Fatalf("%d places for nothing", n)
			}
			people := 18
			if testing.Short() {
				people = 2 // the race detector slows the solving tenfold
			}
			for i := range people {
				v := g.visitor()
				v.addr = fmt.Sprintf("198.51.%d.2:1", i)
				w := v.joins()
				if w == nil {
					t.Fatal("no challenge in a room that is half full")
				}
				if m := v.asks(w.solve(t, "")); m.Position == 0 || m.Challenge != nil {
					t.Fatalf("solved, and %+v", m)
				}
			}
		})
	}
}

// Tickets without a place, held over a restart, do not fill the room either.
func TestARestartDoesNotFillTheRoom(t *testing.T) {
	for _, on := range []string{"", "claim"} {
		bubble(t, "on "+on, func(t *testing.T) {
			g := openGate(t, RoomConfig{TotalActiveUsers: 10, NewUsersPerMinute: 600, QueueAll: true,
				MaxWaiting: 40, JoinLimit: JoinLimit{Amount: 5}, Challenge: Challenge{Kind: "work", On: on}})
			var flood []*visitor
			for i := range 120 {
				v := g.visitor()
				v.addr = fmt.Sprintf("192.0.%d.2:1", i%10)
				v.joins()
				flood = append(flood, v)
			}
			for range 2 {
				time.Sleep(2 * time.Second)
				g, _ = g.restart(0)
				for _, v := range flood {
					v.g = g
					v.asks("")
				}
			}
			for range 15 {
				time.Sleep(time.Second)
				for _, v := range flood {
					v.asks("")
				}
			}
			if n := g.room.Status().WaitingUsers; n > 20+1 {
				t.Errorf("%d places for nothing", n)
			}
			g.stop()
		})
	}
}

// Where the challenge is asked at the claim, a cookie that comes back too late is no turn that passed: its
// visitor joins the ordinary line again.
func TestALateFirstPollBeforeTheTurn(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		g, _, all := claiming(t, nil, 20)
		v := g.visitor()
		v.bare = true
		v.joins()
		time.Sleep(15 * time.Second)
		for _, x := range all {
			x.poll()
		}
		if m := v.asks(""); m.Notice != "new_challenge" || m.Ticket == "" {
			t.Errorf("%+v", m)
		}
		if m := v.asks(""); m.Position != 21 {
			t.Errorf("%+v", m)
		}
		if lanes := g.room.Status().Lanes; lanes[0].Waiting != 0 {
			t.Errorf("%+v", lanes)
		}
	})
}

// askedBy puts a proxy in front of a gate that asks about each request, and forwards it itself. One that
// relays no answers sends what may not pass to the room.
func (g *gate) askedBy(relays bool) {
	room := g.h
	origin := func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "origin", r.URL.Path) }
	g.h = g.room.Decide(true, http.HandlerFunc(origin))
	if relays {
		return
	}
	asks := g.room.Decide(false, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	g.h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said := httptest.NewRecorder()
		if asks.ServeHTTP(said, r); said.Code == http.StatusUnauthorized {
			room.ServeHTTP(w, r)
			return
		}
		maps.Copy(w.Header(), said.Header())
		origin(w, r)
	})
}

// Behind a proxy that asks, apps read their challenge in the answer when their turn comes, and come in with
// the solution, in the order of arrival. A visitor of a lane has none.
func TestAChallengeAtTheTurnBehindAProxy(t *testing.T) {
	if testing.Short() {
		return // the race detector slows the solving tenfold: make all plays it
	}
	for on, n := range map[string]int{"join": 5, "claim": 13} {
		for _, relays := range []bool{true, false} {
			bubble(t, fmt.Sprintf("on %s, relays %t", on, relays), func(t *testing.T) {
				c := Challenge{Kind: "work"}
				if on == "claim" {
					c.On = on
				}
				g := openGate(t, RoomConfig{TotalActiveUsers: 100, NewUsersPerMinute: 6, QueueAll: true,
					Challenge: c, SessionDuration: time.Hour, Rules: byPath{"/slow": RuleLane}, Lanes: []Lane{{Name: "slow", Share: 20}}})
				g.askedBy(relays)
				slow := g.visitor()
				slow.bare, slow.accept = true, "application/json"
				slow.do("GET", "/slow")
				if x := g.room.Status().Lanes[0]; x.Name != "slow" || x.Joined != 1 {
					t.Fatalf("%+v", x)
				}
				var all []*visitor
				solved, asked := 0, 0
				for i := range n {
					v := g.visitor()
					all = append(all, v)
					w := v.joins()
					if i == 0 && on == "join" {
						w = nil // it waits alone
					}
					if m := v.asks(""); m.Challenge != nil && w != nil && on == "join" {
						if solved++; v.asks(w.solve(t, "")).Challenge != nil {
							t.Fatalf("visitor %d: a right solution does not count", i)
						}
					} else if m.Challenge != nil {
						asked++
					}
				}
				if on == "claim" && asked != n-1 || on == "join" && solved != n-1 {
					t.Fatalf("%d are asked at once, %d have solved theirs", asked, solved)
				}
				g.room.SetQueueAll(false)
				var came []int
				for second := 0; len(came) < len(all); second++ {
					if time.Sleep(time.Second); second > 600 {
						t.Fatalf("%v came in", came)
					}
					if m := slow.asks(""); m.Challenge != nil {
						t.Fatalf("a visitor of a lane is asked: %+v", m)
					} else if m.State == StateCalled {
						slow.in()
					}
					for i, v := range all {
						if slices.Contains(came, i) {
							continue
						}
						m := v.asks("")
						if m.Challenge != nil {
							solved++
							m = v.asks(m.Challenge.solve(t, ""))
						}
						if m.State == StateCalled && v.in() {
							came = append(came, i)
						}
					}
				}
				st := g.room.Status().Challenges
				if !slices.IsSorted(came) || solved < n-1 || st.Solved < int64(solved) ||
					st.Refused["wrong"]+st.Refused["foreign"] > 0 {
					t.Errorf("%v came in, %d solved, %+v", came, solved, st)
				}
			})
		}
	}
}

// In shadow mode a room asks nobody, whenever its challenge is asked, and counts those that it would ask.
func TestShadowAsksNobody(t *testing.T) {
	for on, want := range map[string]int64{"": 3, "claim": 3, "draw": 0} { // there is no draw
		bubble(t, "on "+on, func(t *testing.T) {
			g := openGate(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 60, Shadow: true,
				Challenge: Challenge{Kind: "work", On: on}})
			for range 4 { // the first has a slot
				v := g.visitor()
				if v.accept = "application/json"; !strings.HasPrefix(v.do("GET", "/").Body.String(), "origin") {
					t.Error("a visitor waits")
				}
				if m := v.asks(""); m.Challenge != nil || m.State != StateCalled {
					t.Errorf("%+v", m)
				}
			}
			if n := g.room.Status().Challenges.Issued; n != want {
				t.Errorf("%d would have a challenge, want %d", n, want)
			}
		})
	}
}
