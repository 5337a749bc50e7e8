package headgate

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/countertime"
	"github.com/headgate/headgate/internal/route"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/ticket"
)

// More security holes, each found in a review.

// pass opens the visitor's cookie.
func (v *visitor) pass() ticket.Token {
	q := &visitRequest{f: v.g.room.face.Load(), r: &http.Request{Header: http.Header{"Cookie": {v.cookie}}}}
	v.g.room.open(q)
	return q.tok
}

// beyondEnd sleeps until d after the end of the visitor's pass.
func (v *visitor) beyondEnd(d time.Duration) {
	_, hi, _, _ := v.g.room.worker.clock.Bounds()
	time.Sleep(slot.Time(max(v.pass().End, v.pass().Pending)).Sub(hi) + d)
}

// judged replaces the origin by one that counts the visitors inside; /slow takes 20 s.
func (g *gate) judged() *atomic.Int32 {
	now, most := new(atomic.Int32), new(atomic.Int32)
	g.h = g.room.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		most.Store(max(most.Load(), now.Add(1)))
		if r.URL.Path == "/slow" {
			time.Sleep(20 * time.Second)
		}
		now.Add(-1)
		fmt.Fprint(w, "origin")
	}))
	return most
}

func TestARequestThatBeginsJustBeforeTheEndKeepsItsSlot(t *testing.T) {
	for _, off := range []time.Duration{150, 350, 550, 750, 950} {
		for _, late := range []time.Duration{20, 200, 400} {
			synctest.Test(t, func(t *testing.T) {
				g := openGate(t, RoomConfig{
					TotalActiveUsers: 1, NewUsersPerMinute: 100, SessionDuration: time.Minute,
				})
				most := g.judged()
				time.Sleep(off * time.Millisecond)
				a, b := g.visitor(), g.visitor()
				a.in() // and then the room is quiet, longer than a term
				a.beyondEnd(-300 * time.Millisecond)
				go a.do("GET", "/slow")
				time.Sleep((300 + late) * time.Millisecond)
				b.in()
				if most.Load() > 1 {
					t.Errorf("offset %d, late %d: %d inside of 1", off, late, most.Load())
				}
				time.Sleep(30 * time.Second)
			})
		}
	}
}

func TestANewcomersQuestionFreesNobodyWhoWasJustSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t, RoomConfig{
			TotalActiveUsers: 2, NewUsersPerMinute: 100, SessionDuration: time.Minute,
		})
		most := g.judged()
		a, b, c, d := g.visitor(), g.visitor(), g.visitor(), g.visitor()
		a.in()
		time.Sleep(50 * time.Second)
		b.in()
		a.beyondEnd(-50 * time.Millisecond)
		go a.do("GET", "/slow")
		go b.do("GET", "/slow")
		time.Sleep(100 * time.Millisecond)
		for range 6 {
			c.in()
			d.in()
			time.Sleep(100 * time.Millisecond)
		}
		if most.Load() > 2 {
			t.Errorf("%d inside of 2", most.Load())
		}
		time.Sleep(30 * time.Second)
	})
}

func TestASlotThatIsDueIsGivenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t, RoomConfig{
			TotalActiveUsers: 2, NewUsersPerMinute: 100, SessionDuration: time.Minute,
		})
		a, b, c := g.visitor(), g.visitor(), g.visitor()
		a.in()
		time.Sleep(59500 * time.Millisecond)
		b.in()
		a.beyondEnd(20 * time.Millisecond)
		if at := time.Now(); !c.in() || time.Since(at) > 200*time.Millisecond {
			t.Errorf("took %v", time.Since(at))
		}
	})
}

func TestTheFirstInLineIsCalledWhenTheSlotIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t, RoomConfig{
			TotalActiveUsers: 1, NewUsersPerMinute: 600, SessionDuration: time.Minute,
		})
		a, b := g.visitor(), g.visitor()
		a.in()
		a.beyondEnd(-300 * time.Millisecond)
		b.in()
		at := time.Now()
		for b.poll().State != StateCalled {
			time.Sleep(5 * time.Millisecond)
		}
		if d := time.Since(at); d > 400*time.Millisecond {
			t.Errorf("called after %v", d)
		}
	})
}

func TestACallWaitsForAVisitorWhoWasToldToComeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t, RoomConfig{
			TotalActiveUsers: 2, NewUsersPerMinute: 1000, SessionDuration: 10 * time.Minute,
		})
		a := g.visitor()
		a.in()
		g.visitor().in()
		time.Sleep(2 * time.Second)
		first, last := g.visitor(), g.visitor()
		first.in()
		last.in()
		time.Sleep(time.Second)
		after := first.poll().After
		if after < 10 {
			t.Fatalf("told to come after %v s: this test needs a long interval", after)
		}
		start := time.Now()
		time.Sleep(time.Second)
		g.header.Set(CommandHeader, "revoke")
		a.do("GET", "/")
		g.header.Del(CommandHeader)
		for time.Since(start).Seconds() < after-1 {
			time.Sleep(500 * time.Millisecond)
			if last.poll().State == StateCalled {
				t.Fatal("overtaken while the first was still to come")
			}
		}
		time.Sleep(time.Duration(after*1e9) - time.Since(start))
		if p := first.poll(); p.State != StateCalled {
			t.Errorf("the first came when it was told to: %+v", p)
		}
	})
}

func TestACallThatGoesByIsNoPlaceLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t, RoomConfig{
			TotalActiveUsers: 1, NewUsersPerMinute: 100, SessionDuration: 10 * time.Second,
		})
		a, b := g.visitor(), g.visitor()
		a.in()
		b.in()
		before := b.pass()
		if !b.until(time.Minute) {
			t.Fatal("not called")
		}
		p, err := g.room.counter.Poll(t.Context(), before.Life, before.ID, 0)
		if err != nil || p.Status != slot.TicketCalled {
			t.Fatal(p, err)
		}
		g.room.SetOriginUp(false) // every call goes by
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/", nil)
		q := &visitRequest{f: g.room.face.Load(), w: w, r: r, tok: before, has: true, at: &route.Match{}}
		g.room.locate(q)
		g.room.claim(q, &p)
		if w.Header().Get("Set-Cookie") != "" {
			t.Error("the ticket was replaced by one at the end of the line")
		}
		g.room.SetOriginUp(true)
		if !b.until(10*time.Second) || b.pass().ID != before.ID || !b.in() {
			t.Error("the place is lost")
		}
	})
}

func TestPathTricksDoNotPassByAnExclusion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t, RoomConfig{Path: "/sale", TotalActiveUsers: 1, NewUsersPerMinute: 60})
		g.visitor().do("GET", "/sale")
		for _, p := range []string{
			"/.well-known/..;/checkout", "/.well-known/..%5ccheckout",
			"/.well-known/%2e%2e/checkout", "/.well-known/..%2fcheckout",
		} {
			if w := g.visitor().do("GET", p); w.Code == 200 {
				t.Errorf("%s passed", p)
			}
		}
		for _, p := range []string{"/sale", "/sale/", "/x/..;/sale", "/x/..\\sale", "//sale;a=b/c"} {
			if _, ok := g.room.Matches("", p); !ok {
				t.Errorf("%s walks around the room", p)
			}
		}
	})
}

func TestACommandIsObeyedHoweverTheAnswerBegins(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter){
		"nothing written": func(http.ResponseWriter) {},
		"flushed first":   func(w http.ResponseWriter) { http.NewResponseController(w).Flush() },
		"flusher":         func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
		"written":         func(w http.ResponseWriter) { fmt.Fprint(w, "x") },
	} {
		bubble(t, name, func(t *testing.T) {
			g := openGate(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 60})
			g.h = g.room.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set(CommandHeader, "revoke")
				answer(w)
			}))
			v := g.visitor()
			v.bare = true
			w := v.do("GET", "/")
			if w.Result().Header.Get(CommandHeader) != "" {
				t.Error("the command reached the visitor")
			}
			if g.room.Status().Totals.Revoked != 1 {
				t.Error("not obeyed")
			}
		})
	}
}

func TestTheRecordDoesNotGrowWithHardEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t, RoomConfig{
			TotalActiveUsers: 5000, NewUsersPerMinute: 100_000,
			SessionDuration: time.Minute, HardEnd: 90 * time.Second,
		})
		var all []*visitor
		for range 1000 {
			v := g.visitor()
			v.in()
			all = append(all, v)
			time.Sleep(2 * time.Millisecond)
		}
		time.Sleep(40 * time.Second)
		for _, v := range all {
			if !v.in() {
				t.Fatal("out")
			}
			time.Sleep(2 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		b, _, err := g.room.face.Load().cfg.Engine.store.Load(t.Context(), "counter.shop")
		if err != nil || len(b) > 5<<10 {
			t.Errorf("%d bytes, %v; want at most 5 KB", len(b), err)
		}
	})
}

func TestShadowHoldsNobodyAndProxiesNoPeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 60, Shadow: true})
		g.visitor().in()
		a := g.visitor()
		a.in() // over the limit: shadow's pass
		n := g.inside
		if a.poll(); g.inside != n {
			t.Error("a peek was proxied")
		}
		c := g.visitor()
		c.cookie = "__cfwaitingroom_shop=x"
		c.poll()
		if !c.in() {
			t.Error("held in shadow mode")
		}
	})
}

func TestACookieForAFolderComesBackToIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 60, Path: "/shop/"})
		w := g.visitor().do("GET", "/shop")
		if c := w.Header().Get("Set-Cookie"); !strings.Contains(c, "Path=/shop;") {
			t.Errorf("%s does not come back to /shop", c)
		}
	})
}

// A visitor goes away before the origin has answered, three seconds after admission. The origin may
// have seen it as late as that, so its window runs from there.
func TestAVisitorWhoDoesNotWaitForTheAnswerIsCountedFromWhenItLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t, RoomConfig{TotalActiveUsers: 9, NewUsersPerMinute: 1})
		h := g.h
		g.h = g.room.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			time.Sleep(3 * time.Second)
			panic(http.ErrAbortHandler) // as a reverse proxy does
		}))
		func() {
			defer func() { _ = recover() }()
			g.visitor().do("GET", "/")
		}()
		g.h = h
		time.Sleep(58500 * time.Millisecond) // 61.5 s after it was let in
		next := g.visitor()
		if next.in() {
			t.Error("two new visitors within a minute of what the origin may have seen")
		}
		time.Sleep(4 * time.Second)
		if next.poll(); !next.in() {
			t.Error("the window never comes back")
		}
	})
}

// Seeds 5, 9 and 37: a visitor whose ticket had expired could not join, because the line was full, and
// every answer named the ticket as if its place were kept.
func TestAnExpiredTicketIsNamedInNoAnswer(t *testing.T) {
	cfg := RoomConfig{Name: "shop", TotalActiveUsers: 1, NewUsersPerMinute: 600, SessionDuration: time.Hour,
		MaxWaiting: 1, Hold: 20 * time.Second, HoldPhone: 20 * time.Second}
	closed, refuses := cfg, cfg
	closed.Closed = true
	refuses.JoinLimit, refuses.MaxWaiting = JoinLimit{Amount: 3, PrefixV4: 24, Refuse: true}, 10
	rooms := map[State]RoomConfig{StateFull: cfg, StateClosed: closed, StateLimited: refuses}
	for state, last := range rooms {
		bubble(t, string(state), func(t *testing.T) {
			first := last
			first.Closed = false
			g := openGate(t, first)
			inside, late, next := g.visitor(), g.visitor(), g.visitor()
			inside.in()
			late.in()
			had := late.poll()
			time.Sleep(cfg.Hold + 2*time.Second)
			next.in()
			next.poll()
			if err := g.room.Reconfigure(t.Context(), last); err != nil {
				t.Fatal(err)
			}
			if p := late.poll(); p.State != state || p.Ticket != "" || p.Notice != "" || had.Ticket == "" {
				t.Errorf("it had %+v and is told %+v", had, p)
			}
		})
	}
	bubble(t, "it joins when it can", func(t *testing.T) {
		g := openGate(t, cfg)
		inside, late := g.visitor(), g.visitor()
		inside.in()
		late.in()
		had := late.poll()
		time.Sleep(cfg.Hold + 2*time.Second)
		p := late.poll()
		if p.State != StateWaiting || p.Ticket == had.Ticket || p.Ticket == "" || p.Notice != "ticket_over" {
			t.Errorf("it had %+v and is told %+v", had, p)
		}
	})
}

// A called visitor came in, an unknown visitor had its slot, and the host was killed while the claim
// waited for the next slot. The place was lost: the record had neither it nor the claim.
func TestAPlaceIsKeptWhileItsClaimWaits(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		g, p := openPlugged(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 600,
			SessionDuration: 30 * time.Second, PollMin: time.Second, PollMax: 2 * time.Second})
		g.visitor().in()
		next := g.visitor()
		if next.in() || !next.until(2*time.Minute) {
			t.Fatal("the second visitor is to wait, and then to be called")
		}
		_, now, _, _ := g.room.worker.clock.Bounds()
		if _, err := g.room.counter.Sync(t.Context(), &slot.Sync{Loan: 5, Borrower: "another node",
			Seq: slot.Seq{N: 1}, Items: []slot.Item{{Op: slot.Renew, ID: 1 << 63,
				From: now.Add(20 * time.Second), At: now}}}); err != nil {
			t.Fatal(err)
		}
		place := next.poll().Ticket
		if next.in() || place == "" {
			t.Fatalf("two are inside, or none was called: ticket %q", place)
		}
		next.g, _ = g.kill(p, 0)
		if got := next.poll(); got.Ticket != place {
			t.Errorf("the place of %s is lost: told %+v", place, got)
		}
	})
}

// Seed 3: the time of an earlier host that answered a moment ago is not the time of the host that
// accepted the claim: on that scale the new session was over, and its visitor was told to wait.
func TestAClaimWaitsForTheTimeOfItsHost(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		g := openGate(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 60})
		w := g.room.worker
		epoch, began := w.epoch(), time.Now()
		_, hi, _, _ := w.clock.Bounds()
		if w.learnEnd(t.Context(), epoch+1, hi.Add(time.Hour)) || time.Since(began) < askWait {
			t.Errorf("after %v the time of an earlier epoch is taken for that of the next", time.Since(began))
		}
		if began = time.Now(); !w.learnEnd(t.Context(), epoch, hi.Add(time.Hour)) || time.Since(began) > 0 {
			t.Errorf("%v for a time that is known", time.Since(began))
		}
	})
}

// Seeds 66 and 84: the answer to a request from before a suspension bounds the counter time from
// above as if the whole suspension had passed. By that bound a session seemed over that had just
// begun, and its visitor was sent to the end of the line.
func TestALateAnswerEndsNoSession(t *testing.T) {
	loosen := func(w *worker) {
		k := *w.clock.Load()
		lo, hi, _, _ := w.clock.Bounds()
		epoch := k.Time.Epoch
		k.Time = slot.Estimate{}
		k.Time.ReceiveBounds(epoch, lo, hi.Add(time.Hour), w.boot(), w.boot(), w.par.Drift)
		w.retime(&k)
	}
	cfg := RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 600, SessionDuration: 30 * time.Second,
		PollMin: time.Second, PollMax: time.Second}
	bubble(t, "a pass", func(t *testing.T) {
		g := openGate(t, cfg)
		a, b := g.visitor(), g.visitor()
		if !a.in() || b.in() {
			t.Fatal("one is to be inside")
		}
		loosen(g.room.worker)
		if !a.in() {
			t.Error("the visitor inside is sent to the line")
		}
	})
	bubble(t, "a claim", func(t *testing.T) {
		g := openGate(t, cfg)
		a, b := g.visitor(), g.visitor()
		if !a.in() || b.in() {
			t.Fatal("one is to be inside")
		}
		for range 100 {
			if time.Sleep(time.Second); b.poll().State == StateCalled {
				break
			}
		}
		loosen(g.room.worker)
		if !b.in() {
			t.Error("the called visitor is not let in")
		}
	})
}

// A node that has just started asks a peer for the time. The peer last heard the counter three minutes
// ago, in epoch 4. If that counted as heard now, a pass of epoch 5 from two minutes ago would seem to
// be of a record that was rolled back since.
func TestATimeThatAPeerHeardLongAgoIsNotTheTimeOfALaterEpoch(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		g := openGate(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 60})
		w := g.room.worker
		w.par.Alone = false
		time.Sleep(5 * time.Minute)
		now := w.boot()
		peer := countertime.New(w.boot, w.par.Drift) // was suspended, or is cut off from the host
		k := &countertime.Known{Life: 7, Heard: now - 3*time.Minute}
		k.Time.ReceiveBounds(4, slot.Time(time.Hour), slot.Time(time.Hour), k.Heard, k.Heard, w.par.Drift)
		peer.Learn(k)
		w.mu.Lock()
		w.clock = countertime.New(w.boot, w.par.Drift) // has just started
		w.clock.Ask = func(ctx context.Context, msg []byte) ([]byte, error) {
			return peer.Answer(ctx, msg), nil
		}
		w.mu.Unlock()
		tok := ticket.Token{Life: 7, Epoch: 5, Checked: time.Now().Add(-2 * time.Minute).Unix()}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		isKnown := func() bool { return w.clock.Load() != nil && !w.behind(&tok) }
		known := w.clock.Await(ctx, func() {}, isKnown)
		if known {
			t.Errorf("epoch %d is taken for the time of a pass of epoch 5", w.epoch())
		}
	})
}
