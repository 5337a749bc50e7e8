package headgate

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/persons"
	"github.com/headgate/headgate/tests/virtual"

	"github.com/nats-io/nats.go"

	"github.com/headgate/headgate/embedded"
)

// connect connects to a link.
func connect(t *testing.T, l *virtual.Link) *nats.Conn {
	t.Helper()
	c, err := nats.Connect("", nats.InProcessServer(l), nats.MaxReconnects(-1),
		nats.ReconnectWait(20*time.Millisecond), nats.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// bubbleBoot is the clock of a process in a bubble, because CLOCK_BOOTTIME is outside it.
func bubbleBoot() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) + time.Hour }
}

// A world is several data centers that share one room.
type world struct {
	t     *testing.T
	conn  *nats.Conn // of twoNodes
	links map[string]*virtual.Link
	gates map[string]*gate
	stop  map[string]func()
}

func newWorld(t *testing.T, cfg RoomConfig, sites ...string) *world {
	t.Helper()
	w := &world{t: t, links: map[string]*virtual.Link{}, gates: map[string]*gate{}, stop: map[string]func(){}}
	start := func(name string) *embedded.Server {
		s, err := embedded.Open(t.Context(), embedded.Config{Dir: filepath.Join(t.TempDir(), name)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	for i, a := range sites {
		for _, b := range sites[i+1:] {
			l := &virtual.Link{To: start(a + b)}
			w.links[a+b], w.links[b+a] = l, l
		}
	}
	keys := drawKeys()
	for _, name := range sites {
		var others []string
		conns := map[string]*nats.Conn{}
		for _, other := range sites {
			if other != name {
				others = append(others, other)
				conns[other] = connect(t, w.links[name+other])
			}
		}
		engine, err := OpenEngine(t.Context(), EngineConfig{
			NATS: start(name).Conn(), Keys: keys, Node: "n1-" + name, CanHost: true, Boot: bubbleBoot(),
			Datacenters: &Datacenters{Own: name, Home: sites[0], Others: others,
				Link: func(other string) *nats.Conn { return conns[other] }},
		})
		if err != nil {
			t.Fatal(err)
		}
		w.open(name, engine, cfg)
	}
	for name, g := range w.gates {
		w.until(name+" lets somebody in or knows that it cannot", 15*time.Second, func() bool {
			st := g.room.Status()
			return st.Datacenters != nil && st.Datacenters.Anywhere.Age >= 0 && g.room.HasCounterTime()
		})
	}
	return w
}

// open runs a data center until it is stopped.
func (w *world) open(name string, engine *Engine, cfg RoomConfig) {
	w.t.Helper()
	cfg.Engine, cfg.Boot = engine, bubbleBoot()
	room, err := OpenRoom(w.t.Context(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := engine.Run(ctx); err != nil {
			w.t.Error(err)
		}
	})
	wg.Go(func() {
		if err := room.Run(ctx); err != nil {
			w.t.Error(err)
		}
	})
	w.stop[name] = sync.OnceFunc(func() { stop(); wg.Wait(); engine.Close() })
	w.t.Cleanup(w.stop[name])
	w.gates[name] = &gate{t: w.t, room: room, h: room.Handler(http.HandlerFunc(
		func(rw http.ResponseWriter, r *http.Request) { fmt.Fprint(rw, "origin ", r.URL.Path) }))}
}

func (w *world) until(what string, most time.Duration, ok func() bool) time.Duration {
	w.t.Helper()
	began := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Since(began) > most {
			for name, g := range w.gates {
				w.t.Logf("%s: %+v %+v", name, g.room.Status(), g.room.Status().Datacenters)
			}
			w.t.Fatalf("%s: not within %v", what, most)
		}
		<-tick.C
	}
	return time.Since(began)
}

// pause lets time pass: the counters have clocks of their own.
func (w *world) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-w.t.Context().Done():
	}
}

// in admits n newcomers in a data center. On a busy machine they may wait a moment; tests/cluster
// measures the speed.
func (w *world) in(name string, n int) (all []*visitor) {
	w.t.Helper()
	for i := range n {
		v := w.gates[name].visitor()
		w.until(fmt.Sprintf("newcomer %d of %d is in at %s", i+1, n, name), 20*time.Second, v.in)
		all = append(all, v)
	}
	return all
}

// Three data centers share ten slots: a slot goes where it is needed, there is never an eleventh,
// and visitors enter in the order of arrival, wherever they are.
func TestDatacentersAreOneRoom(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testDatacentersAreOneRoom)
}

func testDatacentersAreOneRoom(t *testing.T) {
	w := newWorld(t, RoomConfig{
		Name: "shop", TotalActiveUsers: 10, NewUsersPerMinute: 1000, SessionDuration: time.Minute,
		NoSpread: true,
	}, "sjc", "lhr", "del")
	inside := w.in("lhr", 4)
	inside = append(inside, w.in("del", 5)...)
	inside = append(inside, w.in("sjc", 1)...)
	var waiting []*visitor
	for _, name := range []string{"del", "lhr", "sjc"} {
		v := w.gates[name].visitor()
		if v.in() {
			t.Fatalf("an eleventh is inside, by %s", name)
		}
		if p := v.poll(); p.State != StateWaiting || p.Ticket == "" {
			t.Fatalf("%s: %+v", name, p)
		}
		waiting = append(waiting, v)
		w.pause(50 * time.Millisecond) // they come one after the other
	}
	for i, first := range waiting {
		inside[i].do("GET", "/leave")
		w.revoke(inside[i])
		w.until(fmt.Sprintf("number %d is called", i), 30*time.Second, func() bool {
			for _, v := range waiting[i+1:] {
				if v.poll().State == StateCalled {
					t.Fatalf("called before number %d", i)
				}
			}
			return first.poll().State == StateCalled
		})
		if !first.in() {
			t.Fatalf("number %d is called and not let in", i)
		}
	}
	w.until("every picture is there, and new", 5*time.Second, func() bool {
		active := int64(0)
		for _, s := range w.gates["lhr"].room.Status().Datacenters.Datacenters {
			if active += s.Active; s.Age < 0 || s.Age > 2 {
				return false
			}
		}
		return active == 10
	})
}

// revoke ends the session of a visitor as its origin would.
func (w *world) revoke(v *visitor) {
	h := v.g.h
	v.g.h = v.g.room.Handler(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set(CommandHeader, "revoke")
	}))
	v.do("GET", "/")
	v.g.h = h
}

// A pass and a ticket are valid in every data center. When their own is gone, a pass is valid to
// its end and its visitor is then first, and a waiting visitor keeps its place among all.
func TestVisitorsRoam(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testVisitorsRoam)
}

func testVisitorsRoam(t *testing.T) {
	w := newWorld(t, RoomConfig{
		Name: "shop", TotalActiveUsers: 3, NewUsersPerMinute: 1000, SessionDuration: 20 * time.Second,
		PollMin: 400 * time.Millisecond, NoSpread: true,
		JoinLimit: JoinLimit{Amount: 4, Window: time.Hour, Refuse: true},
	}, "sjc", "lhr")
	lhr, sjc := w.gates["lhr"], w.gates["sjc"]
	pass, other := w.in("lhr", 1)[0], w.in("sjc", 2)
	ticket := lhr.visitor()
	if ticket.in() {
		t.Fatal("a fourth is inside")
	}
	pass.g = sjc
	for range 3 {
		if !pass.in() {
			t.Fatal("a pass of lhr is not good at sjc")
		}
	}
	ticket.g = sjc
	if p := ticket.poll(); p.State != StateWaiting || p.Position != 1 {
		t.Fatalf("a ticket of lhr at sjc: %+v", p)
	}
	w.revoke(other[0])
	w.until("the ticket of lhr is called at sjc", 30*time.Second, func() bool {
		return ticket.poll().State == StateCalled
	})
	used := *ticket // a copy of the cookie, for a friend
	if !ticket.in() {
		t.Fatal("called and not let in")
	}
	took := time.Hour
	for range 5 { // each would wait for an answer, if one did
		began := time.Now()
		if !ticket.in() {
			t.Fatal("let in once, and not again")
		}
		took = min(took, time.Since(began))
	}
	if took > 50*time.Millisecond {
		t.Errorf("the next page took %v", took)
	}

	late := lhr.visitor() // waits at lhr when lhr goes
	late.in()
	w.pause(100 * time.Millisecond)
	after := sjc.visitor() // came after
	after.in()
	sjc.visitor().in()       // no more may join from this network
	w.pause(2 * time.Second) // a snapshot of lhr has come since the ticket was used
	late.poll()
	w.links["sjclhr"].SetCut(true)
	gone := time.Now()
	late.g, pass.g, ticket.g = sjc, sjc, sjc
	for time.Since(gone) < 15*time.Second {
		for _, v := range []*visitor{pass, ticket} {
			if !v.in() {
				t.Fatalf("a pass of lhr is not good at sjc %v after lhr was cut off", time.Since(gone))
			}
		}
		if late.in() || after.in() {
			t.Fatal("a fourth is inside")
		}
		after.poll()
		used.poll()
		w.pause(500 * time.Millisecond)
	}
	if p := used.poll(); p.State != StateLimited {
		t.Errorf("a ticket that was used joins like any newcomer, and none may: %+v", p)
	}
	w.revoke(other[1]) // its slot is sjc's own
	w.until("the earlier of two who wait is in, though its data center is gone", 10*time.Second, func() bool {
		if after.in() {
			t.Fatal("who came later is in first")
		}
		if used.in() {
			t.Fatal("a ticket that was used is used again")
		}
		return late.in()
	})
}

// A data center is lost after it has called a visitor who has not received the call. The visitor
// waits elsewhere as a newcomer, keeps the ticket, and has the place again when the data center is
// back.
func TestATicketThatWasCalledWhereNobodyAnswers(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testATicketThatWasCalledWhereNobodyAnswers)
}

func testATicketThatWasCalledWhereNobodyAnswers(t *testing.T) {
	w := newWorld(t, RoomConfig{
		Name: "shop", TotalActiveUsers: 3, NewUsersPerMinute: 1000, SessionDuration: time.Minute,
		PollMin: 400 * time.Millisecond, NoSpread: true,
	}, "sjc", "lhr")
	lhr, sjc := w.gates["lhr"], w.gates["sjc"]
	inside := w.in("lhr", 3)
	waits, after := lhr.visitor(), sjc.visitor()
	if waits.in() {
		t.Fatal("a fourth is inside")
	}
	waits.g = sjc
	name := waits.poll().Ticket
	w.pause(100 * time.Millisecond)
	if after.in() {
		t.Fatal("a fifth is inside")
	}
	w.revoke(inside[0])
	w.until("sjc sees that lhr has called somebody", 10*time.Second, func() bool {
		for _, x := range sjc.room.Status().Datacenters.Datacenters {
			if x.Name == "lhr" && x.Called == 1 {
				return true
			}
		}
		return false
	})
	w.links["sjclhr"].SetCut(true)
	w.until("lhr is out of reach for sjc", 20*time.Second, func() bool {
		_, silent := sjc.room.counter.Reachability("lhr")
		return silent
	})
	for range 5 {
		p := waits.poll()
		if p.State != StateWaiting || p.Ticket != name {
			t.Fatalf("while lhr is out of reach: %+v, had the ticket %s", p, name)
		}
		if p.Position != 0 {
			t.Fatalf("a newcomer at sjc is shown place %d of a line that nobody answers for", p.Position)
		}
		if waits.in() {
			t.Fatal("in on a slot that sjc does not have")
		}
		w.pause(100 * time.Millisecond)
	}
	last := sjc.visitor() // comes when all others wait
	last.in()
	w.links["sjclhr"].SetCut(false)
	w.until("the place at lhr is there again", 20*time.Second, func() bool {
		after.in() // the slot of who was called was not kept for so long
		p := waits.poll()
		return p.Ticket == name && (p.State == StateCalled || p.Position == 1)
	})
	w.revoke(inside[1])
	w.until("it is first in order", 20*time.Second, func() bool {
		if last.in() {
			t.Fatal("who came last is in first")
		}
		after.in()
		return waits.in()
	})
}

// A visitor roams; its data center comes back and has forgotten it; it enters where it roams.
// Another tab, which still has the ticket, is no newcomer: its cookie would replace the pass.
func TestAnotherTabOfWhoRoamedIn(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAnotherTabOfWhoRoamedIn)
}

func testAnotherTabOfWhoRoamedIn(t *testing.T) {
	w := newWorld(t, RoomConfig{
		Name: "shop", TotalActiveUsers: 3, NewUsersPerMinute: 1000, SessionDuration: time.Minute,
		PollMin: 400 * time.Millisecond, PollMax: time.Second, NoSpread: true,
		Hold: 4 * time.Second, HoldPhone: 4 * time.Second,
	}, "sjc", "lhr")
	lhr, sjc := w.gates["lhr"], w.gates["sjc"]
	inside := w.in("sjc", 3)
	roams := lhr.visitor()
	if roams.in() || roams.poll().Position != 1 {
		t.Fatal("a fourth is inside, or has no place")
	}
	w.links["sjclhr"].SetCut(true)
	roams.g = sjc
	w.until("it roams, and lhr has forgotten it", 40*time.Second, func() bool {
		for _, v := range inside {
			v.in()
		}
		return roams.poll().Position == 1 && lhr.room.Status().WaitingUsers == 0
	})
	w.links["sjclhr"].SetCut(false)
	w.until("lhr is back", 40*time.Second, func() bool {
		for _, v := range inside {
			v.in()
		}
		roams.poll()
		late, _ := sjc.room.counter.Reachability("lhr")
		return !late
	})
	w.revoke(inside[0])
	w.until("it is called", 20*time.Second, func() bool { return roams.poll().State == StateCalled })
	tab := *roams
	if !roams.in() {
		t.Fatal("called and not in")
	}
	before := tab.cookie
	if p := tab.poll(); p.State != StateCalled || tab.cookie != before {
		t.Errorf("the other tab is told %s, another cookie: %v", p.State, tab.cookie != before)
	}
	if !roams.in() {
		t.Fatal("its pass is not good")
	}
	w.pause(reported)
	if p := tab.poll(); p.State != StateWaiting || p.Notice != "ticket_used" || tab.cookie != before {
		t.Errorf("after the pass has come back: %+v, another cookie: %v", p, tab.cookie != before)
	}
}

// Anywhere moves while visitors are inside and wait, in both ways: from a home that answers, and on
// an operator's word from one that is gone.
func TestAnywhereMoves(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAnywhereMoves)
}

func testAnywhereMoves(t *testing.T) {
	w := newWorld(t, RoomConfig{
		Name: "shop", TotalActiveUsers: 6, NewUsersPerMinute: 1000, SessionDuration: 8 * time.Second,
		PollMin: 400 * time.Millisecond, NoSpread: true,
	}, "sjc", "lhr", "del")
	inside := append(w.in("sjc", 2), w.in("lhr", 2)...)
	inside = append(inside, w.in("del", 2)...)
	stays := func(of []*visitor) {
		t.Helper()
		for i, v := range of {
			if !v.in() {
				t.Fatalf("visitor %d, who was inside, is not", i)
			}
		}
	}
	nobody := func(at ...string) {
		t.Helper()
		for _, name := range at {
			if w.gates[name].visitor().in() {
				t.Fatalf("a seventh is inside, by %s: %+v", name, w.gates[name].room.Status().Datacenters)
			}
		}
	}
	nobody("sjc", "lhr", "del")
	move := func(at, to string, gone bool) {
		t.Helper()
		room := w.gates[at].room
		if err := room.MoveAnywhere(t.Context(), to, gone); err != nil {
			t.Fatal(err)
		}
		if err := room.Config().Engine.AnnounceAnywhere(t.Context(), to); err != nil {
			t.Fatal(err)
		}
	}
	heard := func(home string, of []*visitor, at ...string) {
		t.Helper()
		w.until("all know that Anywhere is at "+home, 10*time.Second, func() bool {
			stays(of)
			for _, name := range at {
				d := w.gates[name].room.Status().Datacenters
				if d.Home != home || d.Anywhere.Age < 0 || d.Anywhere.Age > 2 {
					return false
				}
			}
			return true
		})
	}
	move("del", "lhr", false) // asked for where it neither was nor goes
	heard("lhr", inside, "sjc", "lhr", "del")
	nobody("sjc", "lhr", "del")
	w.revoke(inside[0])
	inside[0] = w.gates["del"].visitor()
	w.until("the slot that came back at sjc is used at del", 20*time.Second, func() bool {
		stays(inside[1:])
		return inside[0].in()
	})

	// lhr is lost, with the two visitors inside there.
	w.links["sjclhr"].SetCut(true)
	w.links["lhrdel"].SetCut(true)
	soon, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	if err := w.gates["del"].room.MoveAnywhere(soon, "del", false); err == nil {
		t.Fatal("moved from a home that does not answer")
	}
	lost := time.Now()
	mine := append([]*visitor{inside[0], inside[1]}, inside[4:]...)
	move("del", "del", true)
	heard("del", mine, "sjc", "del")
	nobody("sjc", "del")
	missing := []string{"?"}
	w.until("all that are there have said what they hold", 10*time.Second, func() bool {
		var err error
		if missing, err = w.gates["del"].room.MarkDatacentersDown(t.Context(), []string{"lhr"}); err != nil {
			t.Fatal(err)
		}
		stays(mine)
		return len(missing) == 0
	})
	w.until("what lhr held comes back", 25*time.Second, func() bool {
		stays(mine)
		a := w.gates["sjc"].room.Status().Datacenters.Anywhere
		return a.Free == 2 && a.Presumed == 0
	})
	if took := time.Since(lost); took < 8*time.Second || took > 25*time.Second {
		t.Errorf("what lhr held comes back %v after it was lost: its stays last 8 s", took)
	}
	nobody("sjc", "del") // whoever lhr let in within the minute is still counted as new
}

// A person has one place over all data centers, also where two of them are cut off from each other: then
// the people of the other one wait.
func TestAPersonHasOnePlaceOverDatacenters(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAPersonHasOnePlaceOverDatacenters)
}

func testAPersonHasOnePlaceOverDatacenters(t *testing.T) {
	cfg := memberRoom(1, true)
	cfg.SessionDuration, cfg.NewUsersPerMinute, cfg.PollMin = 20*time.Second, 1000, 400*time.Millisecond
	w := newWorld(t, cfg, "sjc", "lhr")
	both := []*gate{w.gates["lhr"], w.gates["sjc"]}
	first := both[0].device("first")
	w.until("inside", 30*time.Second, first.in)
	phone := both[1].device("first")
	w.until("inside with the phone", 30*time.Second, phone.in)
	if a, b := first.enters(), phone.enters(); a != b || a == "" {
		t.Errorf("two sessions, %s and %s", a, b)
	}
	tickets, homes := map[string]string{}, map[string]int{}
	devices := map[string][]*visitor{}
	for i := range 12 {
		name := fmt.Sprint("person ", i)
		homes[both[0].room.people.Home(persons.IDOf("shop", name))]++
		var wg sync.WaitGroup
		two := make([]string, 2)
		for k, g := range both { // in the same moment
			v := g.device(name)
			devices[name] = append(devices[name], v)
			wg.Go(func() { v.in(); two[k] = v.polls().Ticket })
		}
		wg.Wait()
		if two[0] == "" || two[0] != two[1] {
			t.Fatalf("%s has the tickets %q", name, two)
		}
		tickets[name] = two[0]
	}
	if homes["lhr"] == 0 || homes["sjc"] == 0 {
		t.Fatalf("all are at home in one data center: %v", homes)
	}
	w.links["sjclhr"].SetCut(true)
	w.pause(20 * time.Second)
	inside := map[string]string{} // who was seen inside, with which session
	ask := func() {
		for name, all := range devices {
			if inside[name] != "" { // its session ends now
				continue
			}
			for _, v := range all {
				if !v.in() {
					continue
				}
				s := v.enters()
				was := inside[name]
				if was != "" && s != "" && was != s { // "": the time of the other data center is not known yet
					t.Fatalf("%s has two sessions, %s and %s", name, was, s)
				}
				inside[name] = cmp.Or(s, was, "?")
			}
			if n := both[0].room.Status().ActiveUsers; n > 1 {
				t.Fatalf("%d inside of 1", n)
			}
		}
	}
	for range 30 { // the people of each data center find their place there, and nowhere else
		ask()
		for name, all := range devices {
			for _, v := range all {
				if p := v.polls(); p.Ticket != "" && p.Ticket != tickets[name] && inside[name] == "" {
					t.Fatalf("%s has the ticket %s and %s", name, tickets[name], p.Ticket)
				}
			}
		}
		w.pause(time.Second)
	}
	stranger := map[string]bool{} // new people whose home is out of reach
	for i := range 8 {
		name := fmt.Sprint("new ", i)
		v := both[0].device(name)
		v.in()
		home := both[0].room.people.Home(persons.IDOf("shop", name))
		if p := v.polls(); (p.Ticket != "") != (home == "lhr") {
			t.Errorf("%s of %s has the ticket %q at lhr", name, home, p.Ticket)
		}
		stranger[home] = true
	}
	if !stranger["sjc"] {
		t.Fatal("no new person of sjc")
	}
	w.links["sjclhr"].SetCut(false)
	w.until("all came in", 10*time.Minute, func() bool {
		ask()
		w.pause(500 * time.Millisecond)
		return len(inside) == 12
	})
}
