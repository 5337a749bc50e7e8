package headgate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/internal/sessions"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/ticket"
	"github.com/headgate/headgate/tests/virtual"
)

// named returns the Pass of the visitor's session, as a handler behind the room sees it.
func (v *visitor) named() (pass string, s Session) {
	v.g.t.Helper()
	h := v.g.h
	v.g.h = v.g.room.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var ok bool
		if s, ok = SessionOf(w); ok {
			pass = s.Pass()
		}
		fmt.Fprintln(w, "origin")
	}))
	v.in()
	v.g.h = h
	return pass, s
}

func TestStays(t *testing.T) {
	cfg := RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 600, SessionDuration: time.Minute,
		PollMin: 100 * time.Millisecond, PollMax: 200 * time.Millisecond}
	bubble(t, "a stay says how long it lasts, and looking prolongs nothing", func(t *testing.T) {
		cfg := cfg
		cfg.HardEnd = 90 * time.Second
		g := openGate(t, cfg)
		v := g.visitor()
		_, s := v.named() // of the very first request
		if s.ID == "" || s.Remaining < 59*time.Second || s.Remaining > time.Minute+time.Second ||
			s.HardRemaining < 89*time.Second || s.HardRemaining > 90*time.Second {
			t.Fatalf("%+v", s)
		}
		look := func() (Session, bool) {
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
			r.Header.Set("Cookie", v.cookie)
			return g.room.PeekSession(r)
		}
		for range 55 {
			time.Sleep(time.Second)
			if got, ok := look(); !ok || got.ID != s.ID {
				t.Fatalf("%+v %v", got, ok)
			}
		}
		if got, _ := look(); got.Remaining > 6*time.Second {
			t.Errorf("prolonged by looking: %v", got.Remaining)
		}
		if !v.in() {
			t.Fatal("over")
		}
		time.Sleep(2 * time.Second) // until it is confirmed
		if got, _ := look(); got.Remaining > got.HardRemaining || got.Remaining < 30*time.Second ||
			got.ID != s.ID {
			t.Errorf("%+v", got)
		}
		time.Sleep(time.Minute)
		if got, ok := look(); ok {
			t.Errorf("still inside: %+v", got)
		}
	})
	bubble(t, "an ended stay frees its slot when nothing of it is in flight", func(t *testing.T) {
		g := openGate(t, cfg)
		v, next := g.visitor(), g.visitor()
		pass, _ := v.named()
		next.in()
		if _, err := g.room.EndSession(t.Context(), v.cookie); !errors.Is(err, ErrNoPass) {
			t.Errorf("a cookie: %v", err)
		}
		g.slow = 10 * time.Second
		done := make(chan bool)
		go func() { done <- v.in() }()
		time.Sleep(time.Second)
		for _, want := range []bool{true, false} {
			if ended, err := g.room.EndSession(t.Context(), pass); ended != want || err != nil {
				t.Errorf("%v %v, want %v", ended, err, want)
			}
		}
		if next.until(8 * time.Second) {
			t.Error("two at once: a request of the ended stay is in flight")
		}
		<-done
		if !next.until(3*time.Second) || v.in() {
			t.Error("the slot did not come back, or the stay goes on")
		}
	})
	bubble(t, "a stay that is over frees nobody else's slot", func(t *testing.T) {
		g := openGate(t, cfg)
		pass, _ := g.visitor().named()
		time.Sleep(70 * time.Second)
		v := g.visitor()
		if !v.in() {
			t.Fatal("not over")
		}
		if _, err := g.room.EndSession(t.Context(), pass); err != nil {
			t.Error(err)
		}
		time.Sleep(5 * time.Second)
		if g.visitor().in() || !v.in() {
			t.Error("the slot of another one was freed")
		}
	})
}

// The first request after a restart belongs to the same session as before, also if the pass is
// still that of the earlier process and the session continues beyond all ends in it.
func TestAStayIsTheSameAfterARestart(t *testing.T) {
	bubble(t, "killed", func(t *testing.T) {
		g, p := openPlugged(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 600,
			SessionDuration: 10 * time.Minute})
		v := g.visitor()
		_, was := v.named()
		for range 3 {
			g, p = g.kill(p, 10*time.Second)
			v.g = g
			for range 6 { // its end moves by less than a tenth of the session: no new pass
				time.Sleep(4 * time.Second)
				if _, now := v.named(); now.ID != was.ID || now.Remaining < 9*time.Minute {
					t.Fatalf("was %+v, is %+v", was, now)
				}
			}
		}
	})
}

// A visitor who has left presents the old pass after all processes were replaced: the record knows
// that the session has ended.
func TestWhoHasLeftStaysOutAfterARestart(t *testing.T) {
	for _, killed := range []bool{true, false} {
		bubble(t, fmt.Sprint("killed ", killed), func(t *testing.T) {
			g, p := openPlugged(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 600,
				SessionDuration: time.Hour, PollMin: 100 * time.Millisecond, PollMax: 200 * time.Millisecond})
			v, next := g.visitor(), g.visitor()
			pass, _ := v.named()
			next.in()
			if ended, err := g.room.EndSession(t.Context(), pass); !ended || err != nil {
				t.Fatal(ended, err)
			}
			old := v.cookie
			if !next.until(5*time.Second) || !next.in() {
				t.Fatal("the slot did not come back")
			}
			for range 3 {
				if killed {
					g, p = g.kill(p, time.Second)
				} else {
					g, p = g.restart(time.Second)
				}
				v.g, next.g, v.cookie = g, g, old
				if v.in() || !next.in() {
					t.Fatal("who has left is inside again, or who came is not")
				}
				time.Sleep(time.Minute)
				if v.cookie = old; v.in() || !next.in() {
					t.Fatal("who has left is inside again a minute later, or who came is not")
				}
			}
			time.Sleep(2 * time.Hour)
			g.visitor().in() // a write
			time.Sleep(5 * time.Second)
			var rec slot.Record
			b, _, err := p.Memory.Load(t.Context(), "counter.shop")
			if err = cmp.Or(err, rec.UnmarshalBinary(b)); err != nil || len(rec.Left) > 0 {
				t.Errorf("%v are kept whose passes are over, %v", rec.Left, err)
			}
		})
	}
}

// twoNodes opens a room at two nodes of one engine.
func twoNodes(t *testing.T, cfg RoomConfig) (w *world, a, b *gate) {
	t.Helper()
	s, err := embedded.Open(t.Context(), embedded.Config{Dir: filepath.Join(t.TempDir(), "engine")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	w = &world{t: t, conn: s.Conn(), gates: map[string]*gate{}, stop: map[string]func(){}}
	keys := drawKeys()
	for _, node := range []string{"n1", "n2"} {
		e, err := OpenEngine(t.Context(), EngineConfig{NATS: s.Conn(), Keys: keys, Node: node, CanHost: true,
			Boot: bubbleBoot()})
		if err != nil {
			t.Fatal(err)
		}
		w.open(node, e, cfg)
	}
	for _, g := range w.gates {
		w.until("all know the time", 15*time.Second, g.room.HasCounterTime)
	}
	return w, w.gates["n1"], w.gates["n2"]
}

// A session can be ended at any node: its requests may be in flight at another node, or at none.
func TestAStayEndsAtAnyNode(t *testing.T) { virtual.Test(t, testAStayEndsAtAnyNode) }

func testAStayEndsAtAnyNode(t *testing.T) {
	cfg := RoomConfig{Name: "shop", TotalActiveUsers: 1, NewUsersPerMinute: 600, SessionDuration: time.Hour,
		PollMin: 100 * time.Millisecond, PollMax: 200 * time.Millisecond}
	w, a, b := twoNodes(t, cfg)
	v, next := a.visitor(), b.visitor()
	w.until("inside", 15*time.Second, v.in)
	pass, _ := v.named()
	next.in()
	began, release := make(chan struct{}), make(chan struct{})
	h := a.h
	a.h = a.room.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(began)
		<-release
	}))
	done := make(chan *httptest.ResponseRecorder)
	go func() { done <- v.do("GET", "/pay") }()
	<-began
	if ended, err := b.room.EndSession(t.Context(), pass); !ended || err != nil {
		t.Fatal(ended, err)
	}
	if next.until(2 * time.Second) {
		t.Error("two at once: a request is in flight at the other node")
	}
	close(release)
	<-done
	a.h = h
	if !next.until(15 * time.Second) {
		t.Fatalf("the slot did not come back: %+v", b.room.Status())
	}
	if body := next.do("GET", "/").Body.String(); !strings.HasPrefix(body, "origin") {
		t.Fatalf("called and not let in: %s", body)
	}
	if v.in() {
		t.Error("the ended visit goes on")
	}
	pass, was := next.named() // at n2; nothing is in flight
	came := make(chan bool)
	go func() { came <- v.until(15*time.Second) && v.in() }()
	if ended, err := a.room.EndSession(t.Context(), pass); !ended || err != nil {
		t.Fatal(ended, err)
	}
	if _, now := next.named(); now.ID == was.ID {
		t.Error("the ended visit goes on at the other node")
	}
	if !<-came {
		t.Error("the slot of an idle visit did not come back")
	}
}

// A visitor leaves while a node lives and does not answer, as one that is suspended does. The handler
// ends all the same, for the next request on its connection waits for that: it took 6 s. The slot
// comes back when that node has answered.
func TestTheEndOfASessionDoesNotWaitForASilentNode(t *testing.T) {
	virtual.Test(t, testTheEndOfASessionDoesNotWaitForASilentNode)
}

func testTheEndOfASessionDoesNotWaitForASilentNode(t *testing.T) {
	w, a, b := twoNodes(t, RoomConfig{Name: "shop", TotalActiveUsers: 1, NewUsersPerMinute: 600,
		SessionDuration: time.Hour, PollMin: 100 * time.Millisecond, PollMax: 200 * time.Millisecond})
	e, err := OpenEngine(t.Context(), EngineConfig{NATS: w.conn, Node: "n3", Boot: bubbleBoot()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var lives sync.WaitGroup
	lives.Go(func() { _ = e.Run(ctx) })
	t.Cleanup(func() { stop(); lives.Wait(); e.Close() })
	answers := make(chan struct{})
	deaf, err := e.bus.Serve(a.room.sessionName("n3"), func(ctx context.Context, _ []byte) []byte {
		select {
		case <-answers:
			return []byte("ended")
		case <-ctx.Done():
			return nil
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(deaf)
	w.until("n3 is known", 15*time.Second, func() bool { return len(a.room.Config().Engine.Nodes()) == 3 })
	v, next := a.visitor(), b.visitor()
	w.until("inside", 15*time.Second, v.in)
	next.in()
	a.h = a.room.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(CommandHeader, "revoke")
	}))
	began := time.Now()
	v.do("GET", "/bye")
	if took := time.Since(began); took > 2*sessions.RequestWait {
		t.Errorf("the request that ended the session took %v, want %v at most", took, 2*sessions.RequestWait)
	}
	if next.until(2 * time.Second) {
		t.Error("the slot came back before all nodes have answered")
	}
	close(answers)
	if !next.until(15 * time.Second) {
		t.Error("the slot did not come back")
	}
}

// taken returns how many slots are taken according to the record, once it holds everything that the
// room has reported.
func (g *gate) taken() (n int64) {
	g.t.Helper()
	ctx, stop := context.WithTimeout(g.t.Context(), time.Minute)
	defer stop()
	for err := errUnreachable; err != nil; { // what was to be said before is in the same message
		if _, err = g.room.worker.ask(ctx, 1<<63+1, 0, time.Second, 0); ctx.Err() != nil {
			g.t.Fatal(err)
		}
	}
	var rec slot.Record
	b, _, err := g.room.Config().Engine.store.Load(ctx, "counter.shop")
	if err = cmp.Or(err, rec.UnmarshalBinary(b)); err != nil {
		g.t.Fatal(err)
	}
	for _, c := range rec.Limits[0].Ends.All() {
		n += c.N
	}
	return n
}

// flight begins a visitor's request at a node; it lasts until land is called.
func (g *gate) flight(cookie string) (land func()) {
	g.t.Helper()
	began, release, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	r := httptest.NewRequestWithContext(g.t.Context(), "GET", "/pay", nil)
	r.Header.Set("Cookie", cookie)
	go func() {
		defer close(done)
		g.room.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			close(began)
			<-release
		})).ServeHTTP(httptest.NewRecorder(), r)
	}()
	select {
	case <-began:
	case <-done:
		g.t.Fatal("the request was not let through")
	}
	return func() { close(release); <-done }
}

// A session has requests in flight at two nodes, and is ended by a program or by its origin. No
// node lets any more of its requests through, and its slot is free after the last byte, wherever
// that is.
func TestAnEndedStayLeavesWithItsLastByteAtAnyNode(t *testing.T) {
	cfg := RoomConfig{Name: "shop", TotalActiveUsers: 1, NewUsersPerMinute: 600, SessionDuration: time.Hour}
	for _, ends := range []string{"where it is in flight", "by its origin"} {
		t.Run(ends, func(t *testing.T) {
			w, a, b := twoNodes(t, cfg)
			v := a.visitor()
			w.until("inside", 15*time.Second, v.in)
			pass, _ := v.named()
			if n := a.taken(); n != 1 { // and the counter knows the visit before another node reports it
				t.Fatalf("%d slots are taken, want 1", n)
			}
			landA, landB := a.flight(v.cookie), b.flight(v.cookie)
			if ends == "by its origin" {
				b.room.worker.visits.Revoke(stayOf(t, b, pass))
				landB()
			} else if ended, err := b.room.EndSession(t.Context(), pass); !ended || err != nil {
				t.Fatal(ended, err)
			}
			for name, g := range w.gates {
				again := &visitor{g: g, cookie: v.cookie, accept: "text/html", bare: true}
				if again.in() {
					t.Errorf("the ended visit goes on at %s", name)
				}
			}
			if ends != "by its origin" {
				landB()
			}
			if n := b.taken(); n != 1 {
				t.Errorf("%d slots are taken while a request of the visit is in flight, want 1", n)
			}
			landA()
			if n := a.taken(); n != 0 {
				t.Errorf("%d slots are taken after the last byte, want 0", n)
			}
		})
	}
}

// stayOf returns the session of a pass.
func stayOf(t *testing.T, g *gate, pass string) slot.SessionID {
	t.Helper()
	var tok ticket.Token
	if err := g.room.keys.Load().Open(&tok, g.room.passName(), pass); err != nil {
		t.Fatal(err)
	}
	return slot.SessionID(tok.ID)
}

// A request that is not reported yet when sessions become fixed, or shorter, is reported by the
// earlier rules, because passes already contain the result.
func TestWhatWasSeenBeforeAChangeOfSessionsIsReported(t *testing.T) {
	pay := Grace{Paths: []string{"/pay/*"}, For: 30 * time.Second} // the longest is the same
	for name, change := range map[string]func(*RoomConfig){
		"fixed":   func(c *RoomConfig) { c.FixedSession = true },
		"shorter": func(c *RoomConfig) { c.SessionDuration = 8 * time.Second },
	} {
		bubble(t, name, func(t *testing.T) {
			g := openGate(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 600, Grace: pay,
				SessionDuration: 20 * time.Second})
			a, b := g.visitor(), g.visitor()
			if !a.in() {
				t.Fatal("the room is empty")
			}
			b.in()
			time.Sleep(18*time.Second + 300*time.Millisecond) // between two reports
			a.in()
			cfg := g.room.Config()
			change(&cfg)
			if err := g.room.Reconfigure(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			if !b.until(40*time.Second) || !b.in() {
				t.Fatal("the second is not let in")
			}
			for range 6 { // what a pass says counts once the record surely has all of that time
				if friend := *a; friend.in() {
					t.Fatalf("two are inside of one: %+v", g.room.Status())
				}
				time.Sleep(time.Second)
			}
		})
	}
}

func (v *visitor) at(path string) bool {
	return strings.HasPrefix(v.do("GET", path).Body.String(), "origin")
}

func TestGrace(t *testing.T) { //nolint:funlen // a list of cases
	cfg := RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 600, SessionDuration: time.Minute,
		PollMin: 100 * time.Millisecond, PollMax: 200 * time.Millisecond,
		Grace: Grace{Paths: []string{"/pay/"}, For: 10 * time.Minute}}
	fixed := cfg
	fixed.FixedSession = true
	bubble(t, "elsewhere a session is as long as without", func(t *testing.T) {
		for _, c := range []RoomConfig{cfg, fixed} {
			g := openGate(t, c)
			v, next := g.visitor(), g.visitor()
			if !v.at("/") || next.at("/") {
				t.Fatal("not one")
			}
			_, s := v.named()
			if s.Remaining < 59*time.Second || s.Remaining > 64*time.Second {
				t.Errorf("left %v", s.Remaining)
			}
			if !c.FixedSession { // a renewal is no longer either
				time.Sleep(10 * time.Second)
				v.at("/")
			}
			if next.until(55 * time.Second) {
				t.Error("too short")
			}
			if !next.until(12*time.Second) || !next.at("/") { // one who was called
				t.Error("too long")
			}
			if _, s = next.named(); s.Remaining < 58*time.Second || s.Remaining > 67*time.Second {
				t.Errorf("of a call: left %v", s.Remaining)
			}
			if next.until(time.Second); v.at("/") {
				t.Error("two")
			}
			g.stop()
			<-g.done
		}
	})
	bubble(t, "on its paths no visit ends in the middle", func(t *testing.T) {
		for _, c := range []RoomConfig{cfg, fixed} {
			g := openGate(t, c)
			v, next := g.visitor(), g.visitor()
			v.at("/")
			next.at("/")
			time.Sleep(55 * time.Second)
			if !v.at("/pay/card") {
				t.Fatal("over")
			}
			if next.until(10*time.Minute - time.Second) {
				t.Fatal("the slot was given away")
			}
			if !v.at("/pay/done") {
				t.Fatal("thrown out while paying")
			}
			g.stop()
			<-g.done
		}
	})
	bubble(t, "a fixed session gets grace once, and others wait no longer", func(t *testing.T) {
		g := openGate(t, fixed)
		v, next := g.visitor(), g.visitor()
		began := time.Now()
		v.at("/pay/")
		next.at("/")
		for time.Since(began) < 10*time.Minute+30*time.Second {
			if !v.at("/pay/") {
				t.Fatalf("thrown out after %v", time.Since(began))
			}
			time.Sleep(20 * time.Second)
		}
		if !next.until(time.Minute) || time.Since(began) > 11*time.Minute+10*time.Second || v.at("/pay/") {
			t.Errorf("after %v it goes on", time.Since(began))
		}
	})
	bubble(t, "what is in flight past a fixed end holds its slot no longer than that", func(t *testing.T) {
		g := openGate(t, fixed)
		v, next := g.visitor(), g.visitor()
		v.at("/")
		time.Sleep(50 * time.Second)
		next.at("/")
		g.slow = 30 * time.Second
		done := make(chan bool)
		go func() { done <- v.at("/") }()
		if next.until(29 * time.Second) {
			t.Error("two")
		}
		if <-done; !next.until(10 * time.Second) {
			t.Error("held for longer")
		}
	})
	bubble(t, "the hard end is the hard end", func(t *testing.T) {
		c := cfg
		c.HardEnd = 3 * time.Minute
		g := openGate(t, c)
		v, next := g.visitor(), g.visitor()
		v.at("/pay/")
		next.at("/")
		if next.until(170*time.Second) || !v.at("/pay/") {
			t.Error("too short")
		}
		if !next.until(15*time.Second) || v.at("/pay/") {
			t.Error("beyond the hard end")
		}
	})
	bubble(t, "a kill takes no grace away", func(t *testing.T) {
		for _, c := range []RoomConfig{cfg, fixed} {
			c.NewUsersPerMinute = 60
			g, p := openPlugged(t, c)
			v := g.visitor()
			v.at("/pay/")
			next, _ := g.kill(p, 10*time.Second)
			v.g = next
			time.Sleep(9 * time.Minute)
			if w := next.visitor(); w.at("/") {
				t.Error("the slot was given away")
			}
			if !v.at("/pay/") {
				t.Error("thrown out by a kill")
			}
			next.stop()
			<-next.done
		}
	})
	bubble(t, "grace is taken back and given while people are inside", func(t *testing.T) {
		g := openGate(t, cfg)
		v := g.visitor()
		v.at("/pay/")
		for _, grace := range []Grace{{}, cfg.Grace, {}} {
			if err := g.again(func(c *RoomConfig) { c.Grace = grace }); err != nil {
				t.Fatal(err)
			}
			for range 100 {
				time.Sleep(time.Second)
				if !v.at("/pay/") {
					t.Fatal("thrown out")
				}
				if g.visitor().at("/") {
					t.Fatal("two")
				}
			}
		}
	})
}
