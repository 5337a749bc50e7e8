package headgate

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/countertime"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

// Holes around a takeover, each found once by somebody who looked for one.

// Alone takes loans back at record.Time, but the dead worker admitted later
// than that: its passes outlive the presumption.
func TestADeadWorkerMayHaveLetInUntilItsTermWasOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, p := openPlugged(t, RoomConfig{
			TotalActiveUsers: 40, NewUsersPerMinute: 10000, SessionDuration: time.Minute,
		})
		// steady arrivals build up a share, then a pause of 5 s in which nothing is written.
		keep := g.visitor()
		keep.in()
		for range 6 {
			g.visitor().in()
			time.Sleep(300 * time.Millisecond)
		}
		for range 40 { // wait for the moment just before the periodic write
			if g.room.Status().Record.Age > 4.7 {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		age := g.room.Status().Record.Age
		g.room.worker.mu.Lock()
		held := g.room.worker.share.Held()
		g.room.worker.mu.Unlock()
		var in []*visitor
		for range held {
			v := g.visitor()
			if v.in() {
				in = append(in, v)
			}
		}
		t.Logf("record age %v, share %d, admitted from it %d", age, held, len(in))
		g, _ = g.kill(p, 0)
		// nobody of those comes for nearly a session; fill whatever is free all the time
		inside := map[*visitor]bool{}
		for range 59 {
			time.Sleep(time.Second)
		}
		time.Sleep(2500 * time.Millisecond)
		for {
			v := g.visitor()
			if !v.in() {
				break
			}
			inside[v] = true
		}
		n := 0
		for _, v := range in {
			v.g = g
			if v.in() {
				n++
			}
		}
		t.Logf("newcomers inside %d, old passes honored %d", len(inside), n)
		if len(inside)+n > 40 {
			t.Errorf("%d inside of 40", len(inside)+n)
		}
	})
}

// Each visitor who comes back with an expired pass breaks a sure span; eight
// of them and nobody's pending end is known after a kill.
func TestExpiredPassesEraseNoSureSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, p := openPlugged(t, RoomConfig{
			TotalActiveUsers: 80, NewUsersPerMinute: 10000, SessionDuration: time.Minute,
		})
		var old []*visitor
		for range 30 {
			v := g.visitor()
			v.in()
			old = append(old, v)
		}
		time.Sleep(70 * time.Second) // they have gone
		a := g.visitor()
		a.in()
		time.Sleep(50 * time.Second)
		if !a.in() { // renewed: to 110 s
			t.Fatal("out")
		}
		time.Sleep(2 * time.Second)
		for _, v := range old { // come back with their old cookies
			v.in()
			time.Sleep(1200 * time.Millisecond)
		}
		g, _ = g.kill(p, 0)
		a.g = g
		time.Sleep(time.Second)
		if !a.in() { // seen 40 s ago, session 60 s
			t.Error("was seen 40 s before, has a session of 60 s, and is thrown out by a kill")
		}
	})
}

// After a kill those who poll as they were told are overtaken when the room is
// limited by active users: Grace counts new users per minute only.
func TestOrderAfterAKillInARoomLimitedByActiveUsers(t *testing.T) {
	for _, kill := range []bool{false, true} {
		bubble(t, map[bool]string{false: "control", true: "kill"}[kill], func(t *testing.T) {
			g, p := openPlugged(t, RoomConfig{
				TotalActiveUsers: 10, NewUsersPerMinute: 6000, SessionDuration: 5 * time.Minute,
			})
			for range 10 {
				g.visitor().in()
			}
			type one struct {
				*visitor
				next   time.Time
				ticket string
			}
			var line []*one
			poll := func(v *one) State {
				q := v.poll()
				v.ticket = q.Ticket
				after := time.Duration(q.After * float64(time.Second))
				if after > 20*time.Second { // as the page: every other time the shared document
					after *= 2
				}
				v.next = time.Now().Add(after)
				return q.State
			}
			polls := func(until time.Time, f func()) {
				for time.Now().Before(until) {
					f()
					time.Sleep(20 * time.Millisecond)
				}
			}
			for range 20 {
				v := &one{visitor: g.visitor()}
				v.in()
				line = append(line, v)
				poll(v)
				time.Sleep(100 * time.Millisecond)
			}
			start := time.Now()
			polls(start.Add(297*time.Second), func() {
				for _, v := range line {
					if !time.Now().Before(v.next) {
						poll(v)
					}
				}
			})
			for i, v := range line {
				t.Logf("%d asks again in %v", i, time.Until(v.next).Round(time.Millisecond))
			}
			if kill {
				g, _ = g.kill(p, 0)
				for _, v := range line {
					v.g = g
				}
			}
			var order []int
			in, late := map[int]bool{}, map[int]bool{}
			polls(time.Now().Add(400*time.Second), func() {
				for i, v := range line {
					if !in[i] && !time.Now().Before(v.next) {
						if poll(v) == StateCalled && v.in() {
							in[i] = true
							order = append(order, i)
						}
					}
				}
				for i, v := range line {
					if w, _ := g.room.FindTicket(t.Context(), v.ticket); !in[i] && w.Status == "late" &&
						!late[i] {
						late[i] = true
						t.Errorf("%d was passed over; it asks again in time, in %v", i,
							time.Until(v.next).Round(time.Millisecond))
					}
				}
			})
			t.Log("order", order)
		})
	}
}

// A pass whose visitor left by revoke became valid again: the revocation was kept only until the
// confirmed end, but the pass counted until its pending one.
func TestARevokedPassDoesNotLiveAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := openPlugged(t, RoomConfig{
			TotalActiveUsers: 1, NewUsersPerMinute: 10000, SessionDuration: 5 * time.Minute,
		})
		a := g.visitor()
		a.in()
		time.Sleep(290 * time.Second)
		g.header.Set(CommandHeader, "revoke")
		r := a.do("GET", "/logout") // its answer has the pass and then its deletion
		g.header.Del(CommandHeader)
		for _, c := range r.Result().Cookies() {
			if c.MaxAge > 0 {
				a.cookie = c.Name + "=" + c.Value // a client that keeps it
			}
		}
		time.Sleep(2 * time.Second)
		b := g.visitor()
		if !b.in() {
			t.Fatal("the slot was not freed")
		}
		copied := *a
		for range 20 {
			time.Sleep(10 * time.Second)
			b.in()
			c := copied
			if c.in() && b.in() {
				t.Fatal("two inside of one: a revoked pass is honored")
			}
		}
	})
}

// A clean stop while visitors arrive left slots lent.
func TestACleanStopLeavesNoSlotLent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, p := openPlugged(t, RoomConfig{
			TotalActiveUsers: 1000, NewUsersPerMinute: 60000, SessionDuration: 5 * time.Minute,
		})
		for range 100 {
			g.visitor().in()
			time.Sleep(50 * time.Millisecond)
		}
		g.stop()
		<-g.done
		b, _, _ := p.Memory.Load(context.Background(), "counter.shop")
		rec := &slot.Record{}
		if err := rec.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
		for _, l := range rec.Loans {
			if l.Lent(0) > 0 {
				t.Errorf("%d slots are still lent after a clean stop", l.Lent(0))
			}
		}
	})
}

// Probation rounds down on a grid that is wider than it.
func TestProbationOfALongSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := openPlugged(t, RoomConfig{
			TotalActiveUsers: 1000, NewUsersPerMinute: 20, SessionDuration: 24 * time.Hour,
		})
		bad := 0
		for range 20 {
			v := g.visitor()
			v.accept = "*/*"
			if !v.in() {
				bad++
			}
			time.Sleep(11 * time.Second)
		}
		s := g.room.Status()
		t.Logf("%d of 20 refused, admitted %d, active %d", bad, s.Totals.Admitted, s.ActiveUsers)
		if bad > 0 {
			t.Errorf("%d of 20 were refused in an empty room", bad)
		}
	})
}

// The old opening time passes while opens_at is being postponed.
func TestPostponingOpensAtKeepsTheRoomShut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now().Add(time.Minute)
		g, _ := openPlugged(t, RoomConfig{TotalActiveUsers: 10, NewUsersPerMinute: 1000, OpensAt: at})
		if err := g.again(func(c *RoomConfig) { c.OpensAt = at.Add(time.Hour) }); err != nil {
			t.Fatal(err)
		}
		g.room.change(func(l *live) { l.early = g.room.face.Load().cfg.isEarly() }) // who saw the old moment
		time.Sleep(30 * time.Minute)
		v := g.visitor()
		if v.in() || v.poll().State != StateOpensSoon {
			t.Error("opened too early")
		}
		time.Sleep(31 * time.Minute)
		if !g.visitor().in() {
			t.Error("not opened at all")
		}
	})
}

// After a record was rolled back an hour, passes of that hour stayed valid for an hour after the
// quiet time.
func TestPassesFromBeyondARollbackAreNotHonored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, p := openPlugged(t, RoomConfig{
			TotalActiveUsers: 2, NewUsersPerMinute: 1000, SessionDuration: time.Minute,
		})
		g.visitor().in()
		time.Sleep(20 * time.Second)
		backup, _, _ := p.Memory.Load(t.Context(), "counter.shop")
		var old []*visitor
		time.Sleep(10 * time.Minute)
		for range 10 { // two at a time, for ten minutes
			time.Sleep(70 * time.Second)
			for range 2 {
				v := g.visitor()
				if !v.in() {
					t.Fatal("does not fit")
				}
				old = append(old, v)
			}
		}
		line := make([]*visitor, 300)
		for i := range line {
			line[i] = g.visitor()
			line[i].in()
		}
		time.Sleep(3 * time.Second)
		p.pulled.Store(true)
		_, now, _ := p.Memory.Load(t.Context(), "counter.shop")
		if _, err := p.Memory.CompareAndSwap(t.Context(), "counter.shop", now, backup); err != nil {
			t.Fatal(err)
		}
		g, _ = g.restart(0)
		line[299].g = g
		line[299].poll()
		t.Log("quiet", g.room.Status().Record.Quiet)
		for range 200 {
			time.Sleep(time.Second)
		}
		n := 0
		for _, v := range old {
			v.g = g
			if v.in() {
				n++
			}
		}
		t.Logf("%d of 20 old passes are honored, active %d", n, g.room.Status().ActiveUsers)
		if n > 2 {
			t.Errorf("%d inside of 2", n)
		}
	})
}

// A clean stop while a Sync is in progress had no farewell at all.
func TestACleanStopDuringASyncLeavesNoSlotLent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, p := openPlugged(t, RoomConfig{
			TotalActiveUsers: 1000, NewUsersPerMinute: 60000, SessionDuration: 5 * time.Minute,
		})
		for range 100 {
			g.visitor().in()
			time.Sleep(50 * time.Millisecond)
		}
		p.slow.Store(int64(100 * time.Millisecond)) // a disk that syncs in 100 ms
		defer p.slow.Store(0)
		time.Sleep(time.Second)
		for range 200 { // stop when a write is under way
			synctest.Wait()
			g.room.worker.mu.Lock()
			flying := g.room.worker.share.InFlight() != nil
			g.room.worker.mu.Unlock()
			if flying {
				break
			}
			time.Sleep(10 * time.Millisecond)
			g.visitor().in()
		}
		g.room.worker.mu.Lock()
		g.room.worker.borrower.Forget() // not the fault of R5a
		g.room.worker.mu.Unlock()
		g.stop()
		<-g.done
		b, _, _ := p.Memory.Load(context.Background(), "counter.shop")
		rec := &slot.Record{}
		if err := rec.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
		g.room.worker.mu.Lock()
		items := g.room.worker.share.PendingItems()
		g.room.worker.mu.Unlock()
		for _, l := range rec.Loans {
			t.Logf("lent %d, next %d issued %d, items never sent %d", l.Lent(0), rec.Next, rec.Issued, items)
			if l.Lent(0) > 0 {
				t.Errorf("%d slots are still lent after a clean stop", l.Lent(0))
			}
		}
	})
}

// A session that was long once was assumed forever.
func TestASessionThatWasLongOnceIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, p := openPlugged(t, RoomConfig{
			TotalActiveUsers: 500, NewUsersPerMinute: 60000, SessionDuration: 3 * time.Hour,
		})
		cfg := g.room.Config()
		cfg.SessionDuration = time.Minute
		if err := g.room.Reconfigure(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Hour) // nobody can be inside from before
		for range 60 {
			g.visitor().in()
			time.Sleep(50 * time.Millisecond)
		}
		g, _ = g.kill(p, 0)
		time.Sleep(30 * time.Minute)
		if s := g.room.Status(); s.ActiveUsers > 0 {
			t.Errorf("half an hour after everybody has gone %d slots are taken", s.ActiveUsers)
		}
	})
}

// A crowd as a browser is, told to ask rarely, over a kill: those who stay longer
// than a session make the wait longer than the limits say, and every other look of
// a page that is told to wait long is at the shared document.
func TestNobodyIsPassedOverAfterAKillWhoAsksAsSeldomAsToldTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, p := openPlugged(t, RoomConfig{
			TotalActiveUsers: 10, NewUsersPerMinute: 30, SessionDuration: 20 * time.Second,
		})
		type one struct {
			*visitor
			next, leave time.Time
			asked       time.Time
			ticket      string
			in, late    bool
		}
		var all []*one
		killed := false
		step := func() {
			time.Sleep(20 * time.Millisecond)
			now := time.Now()
			for i, v := range all {
				switch {
				case now.Before(v.next) || v.in && now.After(v.leave):
					continue
				case v.in:
					v.visitor.in()
					v.next = now.Add(5 * time.Second)
					continue
				}
				q := v.poll()
				after := time.Duration(q.After * float64(time.Second))
				if after > 20*time.Second {
					after *= 2
				}
				v.ticket, v.next, v.asked = q.Ticket, now.Add(after), now
				w, err := g.room.FindTicket(t.Context(), v.ticket)
				if !killed && err == nil && w.Status == "late" && !v.late {
					v.late = true
					t.Errorf("%d was passed over though nothing has happened", i)
				}
				if q.State == StateCalled && v.visitor.in() {
					v.in, v.leave = true, now.Add(time.Minute)
				}
			}
		}
		for range 120 {
			v := &one{visitor: g.visitor()}
			v.in = v.visitor.in()
			v.leave, v.next = time.Now().Add(time.Minute), time.Now()
			all = append(all, v)
			step()
		}
		for range 60 * 50 * 3 { // three minutes
			step()
		}
		kill := time.Now()
		killed = true
		g, _ = g.kill(p, 0)
		for _, v := range all {
			v.g = g
		}
		for k := range 60 * 50 * 3 {
			step()
			for i, v := range all {
				if v.in || v.late || v.ticket == "" {
					continue
				}
				if w, err := g.room.FindTicket(t.Context(), v.ticket); err == nil && w.Status == "late" {
					v.late = true
					// At once: it was called when the process died. Told another interval
					// since the last write: the next process cannot know.
					if k > 0 && kill.Sub(v.asked) > 1100*time.Millisecond {
						t.Errorf("%d was passed over, it asks again in %v", i, time.Until(v.next))
					}
				}
			}
		}
	})
}

// A node that cannot reach any host accepts the passes of a later host as long as they cannot have
// expired: it sends no request, and does not seal them by its own counter time.
func TestAPassOfALaterHostIsGoodAtANodeThatIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, p := openPlugged(t, RoomConfig{
			TotalActiveUsers: 2, NewUsersPerMinute: 60, SessionDuration: time.Minute,
		})
		v := g.visitor()
		if !v.in() {
			t.Fatal("the room is empty")
		}
		time.Sleep(20 * time.Second) // far enough to be worth a new cookie
		w := g.room.worker
		p.full.Store(true) // no write, no answer
		if !v.in() {
			t.Fatal("thrown out by a full disk")
		}
		time.Sleep(5 * time.Second)
		w.par.Alone = false
		earlier := *w.clock.Load()
		earlier.Time.Epoch--
		w.retime(&earlier)
		cookie, began := v.cookie, time.Now()
		if !v.in() || time.Since(began) > 0 {
			t.Errorf("inside, and asked about for %v", time.Since(began))
		}
		if v.cookie != cookie {
			t.Error("the pass was sealed by the counter time of an earlier host")
		}
	})
}

// retime makes a worker know this of the counter time and nothing else.
func (w *worker) retime(k *countertime.Known) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock = countertime.New(w.boot, w.par.Drift)
	w.clock.Learn(k)
}

// The store is rolled back by ten minutes: a stream was restored in the operator's own NATS, and
// all processes were restarted. No pass of the lost epoch is accepted, whether its epoch is below
// the new one or above.
func TestRolledBackPassesOfAGreaterEpochAreNotHonored(t *testing.T) {
	greater, lower := 0, 0
	over := []int{}
	for try := 0; try < 40 && (greater < 3 || lower < 3); try++ {
		synctest.Test(t, func(t *testing.T) {
			e, _ := plugged(memoryEngine())
			e.alone = false
			g := openGate(t, RoomConfig{
				TotalActiveUsers: 2, NewUsersPerMinute: 600, SessionDuration: time.Minute, Engine: e,
			})
			time.Sleep(5 * time.Second)
			mem := e.store.(*plug).Memory
			old, _, err := mem.Load(t.Context(), "counter.shop")
			if err != nil {
				t.Fatal(err)
			}
			next := func(down time.Duration) {
				e.store.(*plug).pulled.Store(true)
				g.stop()
				<-g.done
				time.Sleep(down)
				cfg := g.room.Config()
				e2, _ := plugged(e)
				e2.alone = false
				cfg.Engine, e = e2, e2
				g = openGate(t, cfg)
			}
			next(0) // a takeover
			time.Sleep(10 * time.Minute)
			var in []*visitor
			for range 2 {
				v := g.visitor()
				for i := 0; !v.in() && i < 30; i++ {
					time.Sleep(time.Second)
				}
				in = append(in, v)
			}
			lost := in[0].pass()
			back := &store.Memory{}
			if _, err := back.CompareAndSwap(t.Context(), "counter.shop", 0, old); err != nil {
				t.Fatal(err)
			}
			e.store.(*plug).Memory = back
			next(2 * time.Minute) // everybody's stay would be over by now, had the record not gone back
			time.Sleep(90 * time.Second)
			now := g.room.worker.epoch()
			fill := 0
			for range 2 {
				if v := g.visitor(); v.in() {
					fill++
				}
			}
			honored := 0
			for _, v := range in {
				v.g = g
				if v.in() {
					honored++
				}
			}
			quiet := g.room.Status().Record.Quiet
			t.Logf("epoch of the passes %d, now %d: %d newcomers and %d old passes inside of 2; quiet %v",
				lost.Epoch, now, fill, honored, quiet)
			if lost.Epoch > now {
				greater++
			} else {
				lower++
			}
			if fill+honored > 2 {
				over = append(over, fill+honored)
			}
			for i, v := range in { // they come as any newcomer does
				for second := 0; !v.in(); second++ {
					if second > 600 {
						t.Fatalf("visitor %d of epoch %d waits for ever: the room is at %d", i, lost.Epoch, now)
					}
					time.Sleep(time.Second)
				}
			}
			g.stop()
		})
	}
	if len(over) > 0 {
		t.Errorf("%v inside of 2", over)
	}
}
