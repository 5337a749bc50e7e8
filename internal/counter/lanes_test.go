package counter

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

var members = slot.Lane{Name: "members", Share: 25}

// laned opens the host of a room with lanes and runs it.
func laned(t *testing.T, name string, s store.Store, change func(*Config), lanes ...slot.Lane) *Counter {
	t.Helper()
	start := time.Now()
	cfg := Config{
		Room: "shop", Host: name, Store: s, Settings: Settings{
			Active: slot.Limit{Kind: slot.AtOnce, N: 10000, Per: time.Minute},
			New:    slot.Limit{Kind: slot.PerWindow, N: 600, Per: time.Minute},
			Spread: true, Lanes: lanes,
			Line: LineConfig{
				MaxWaiting: 5000, PollMin: time.Second, PollMax: 30 * time.Second, Hold: 15 * time.Minute,
			},
		},
		Boot: func() time.Duration { return time.Since(start) + time.Hour },
		Log:  slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg)
	}
	c, err := Open(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { c.Run(t.Context()); close(done) }()
	t.Cleanup(func() { <-done })
	return c
}

// joins adds n visitors to a lane; lane 0 is the ordinary line.
func joins(t *testing.T, c *Counter, lane uint64, n int) (tickets []uint64) {
	t.Helper()
	for range n {
		p, err := c.Join(t.Context(), lane, 5*time.Minute, 0)
		if err == nil { // its cookie comes back
			_, err = c.Poll(t.Context(), p.Life, p.Number, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		tickets = append(tickets, p.Number)
	}
	return tickets
}

// A crowd is visitors that poll on time and come in when they are called.
type crowd struct {
	t     *testing.T
	life  uint64
	due   map[uint64]time.Time
	shown map[uint64]int64
	in    []uint64
}

func newCrowd(t *testing.T, life uint64, tickets ...uint64) *crowd {
	x := &crowd{t: t, life: life, due: map[uint64]time.Time{}, shown: map[uint64]int64{}}
	for _, n := range tickets {
		x.due[n] = time.Now()
	}
	return x
}

// wait lets some time pass.
func (x *crowd) wait(c *Counter, d time.Duration) {
	x.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for _, n := range slices.Sorted(maps.Keys(x.due)) {
			if time.Now().Before(x.due[n]) {
				continue
			}
			p, err := c.Poll(x.t.Context(), x.life, n, 0)
			if err != nil {
				x.t.Fatal(err)
			}
			x.due[n] = time.Now().Add(p.PollAfter)
			switch p.Status {
			case slot.TicketCalled:
				if r, err := c.Claim(x.t.Context(), x.life, n, 0, 0); err != nil || r.End == 0 {
					x.t.Fatalf("called ticket %d is not let in: %+v, %v", n, r, err)
				}
				delete(x.due, n)
				x.in = append(x.in, n)
			case slot.TicketWaiting, slot.TicketLate:
			default:
				x.t.Fatalf("ticket %d of line %d has lost its place: %v", n, slot.LaneIndex(n), p.Status)
			}
			if was := x.shown[n]; was > 0 && p.Position > was {
				x.t.Errorf("ticket %d of line %d was at %d and is at %d", n, slot.LaneIndex(n), was,
					p.Position)
			}
			x.shown[n] = p.Position
		}
	}
}

// A lane gets its share of the calls, the answers to its visitors show that, and records survive
// the crash of hosts.
func TestALaneGetsItsShareOfTheCalls(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"fifo": nil, "random": func(c *Config) { c.RandomOrder = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &store.Memory{}
				c := laned(t, "a", s, change, members)
				c.Hold(true)
				tickets := joins(t, c, 0, 300)
				tickets = append(tickets, joins(t, c, members.ID(), 100)...)
				life := lifeOf(c)
				p, err := c.Poll(t.Context(), life, tickets[320], 0)
				if err != nil || slot.LaneIndex(p.Number) != 1 || p.Position != 21+63 || p.Waiting != 400 {
					t.Errorf("the 21st of the lane is told %+v, %v", p, err)
				}
				x := newCrowd(t, life, tickets...)
				c.Hold(false)
				x.shown = map[uint64]int64{}
				x.wait(c, 12*time.Second)
				shares(t, x, 60, 25)
				c = laned(t, "b", s, change, members) // the other host is fenced
				x.shown = map[uint64]int64{}
				before := len(x.in)
				x.wait(c, 15*time.Second)
				if got := len(x.in) - before; got < 60 {
					t.Fatalf("%d were let in after the takeover", got)
				}
				x.in = x.in[before:]
				shares(t, x, 60, 25)
				for _, n := range joins(t, c, members.ID(), 3) {
					if slices.Contains(tickets, n) || slot.LaneIndex(n) != 1 {
						t.Errorf("number %d is issued again, or of another line", n)
					}
				}
				st := c.State(0, 0)
				if len(st.Lanes) != 1 || st.Lanes[0].Name != "members" || st.Lanes[0].Joined != 3 ||
					st.Lanes[0].Calls == 0 || st.Lanes[0].Waiting == 0 || st.Lanes[0].Gone {
					t.Errorf("operators are told %+v", st.Lanes)
				}
			})
		})
	}
}

// shares checks how many of the first admitted visitors were of the lane. Calls are in order, but a
// called visitor comes in when it polls.
func shares(t *testing.T, x *crowd, first, share int) {
	t.Helper()
	if len(x.in) < first {
		t.Fatalf("%d have come in, want %d", len(x.in), first)
	}
	got := 0
	for _, n := range x.in[:first] {
		if slot.LaneIndex(n) == 1 {
			got++
		}
	}
	if want := first * share / 100; got < want-5 || got > want+5 {
		t.Errorf("of the first %d who came in %d are of the lane, want %d", first, got, want)
	}
}

// A lane without a rule is served, also by a host that never knew of it. A visitor that is sent
// into an unknown lane joins the ordinary line.
func TestALaneThatNoRuleLeadsIntoIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store.Memory{}
		c := laned(t, "a", s, nil, members)
		c.Hold(true)
		tickets := joins(t, c, 0, 100)
		tickets = append(tickets, joins(t, c, members.ID(), 40)...)
		x := newCrowd(t, lifeOf(c), tickets...)
		x.wait(c, 2*time.Second)
		c = laned(t, "b", s, nil)
		if got := joins(t, c, members.ID(), 1); slot.LaneIndex(got[0]) != 0 {
			t.Errorf("ticket %d is of a lane that nobody leads into", got[0])
		}
		x.shown = map[uint64]int64{}
		x.wait(c, 10*time.Second)
		shares(t, x, 40, 25)
		if st := c.State(0, 0).Lanes; len(st) != 1 || !st[0].Gone || st[0].Name != "members" {
			t.Errorf("operators are told %+v", st)
		}
		x.wait(c, 15*time.Second)
		if len(x.in) != len(tickets) {
			t.Errorf("%d of %d have come in", len(x.in), len(tickets))
		}
		time.Sleep(2 * time.Second)
		if st := c.State(0, 0).Lanes; len(st) != 0 {
			t.Errorf("the empty lane is there still: %+v", st)
		}
		set := c.cfg.Settings
		set.Lanes = []slot.Lane{{Name: "vip", Share: 9}}
		if err := c.Reconfigure(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		c.Hold(true)
		got := joins(t, c, set.Lanes[0].ID(), 1)[0]
		if slot.LaneIndex(got) == 0 || slices.Contains(tickets, got) {
			t.Errorf("the new lane goes on with ticket %d", got)
		}
	})
}

// A ticket keeps its place even if the record does not know its lane, as after a restore from an
// old backup.
func TestATicketOfALaneTheRecordDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store.Memory{}
		c := laned(t, "a", s, nil)
		time.Sleep(time.Second)
		p, err := c.Poll(t.Context(), lifeOf(c), 2<<38+17, 0)
		if err != nil || p.Status != slot.TicketWaiting || p.Position == 0 {
			t.Errorf("it is told %+v, %v", p, err)
		}
		p, err = c.Poll(t.Context(), lifeOf(c), 9<<38+17, 0)
		if err != nil || p.Status != slot.TicketUnknown {
			t.Errorf("a ticket that no line can have is told %+v, %v", p, err)
		}
		c = laned(t, "b", s, nil)
		time.Sleep(3 * time.Second)
		if p, err = c.Poll(t.Context(), lifeOf(c), 2<<38+17, 0); err != nil || p.Position == 0 {
			t.Errorf("by the next host it is told %+v, %v", p, err)
		}
	})
}

// What another data center has called is known for each line.
func TestWhatADatacenterHasCalled(t *testing.T) {
	x := RemoteTime{Served: 10, Lanes: []uint64{1<<38 + 5}, Passed: []uint64{7}}
	for number, want := range map[uint64]bool{
		7: false, 9: true, 10: false, 1<<38 + 4: true, 1<<38 + 5: false, 2<<38 + 1: false,
	} {
		if x.WasCalled(number) != want {
			t.Errorf("ticket %d: %v", number, !want)
		}
	}
}

// A number of a lane is issued only when the record knows the lane. Otherwise the next host would
// have its visitors in a lane without a name, or in another lane.
func TestANumberOfALaneIsToldWhenTheRecordKnowsTheLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &refusing{}
		c := laned(t, "a", s, nil)
		c.Hold(true)
		joins(t, c, 0, 1)
		for _, lane := range []slot.Lane{members, {Name: "vip", Share: 5}} {
			time.Sleep(10 * time.Second)
			s.down.Store(true)
			set := c.cfg.Settings
			set.Lanes = []slot.Lane{lane}
			if err := c.Reconfigure(t.Context(), set); err != nil {
				t.Fatal(err)
			}
			if p, err := c.Join(t.Context(), lane.ID(), time.Minute, 0); err == nil {
				t.Errorf("%s: ticket %d is told, and nothing is written", lane.Name, p.Number)
			}
			s.down.Store(false)
			time.Sleep(time.Second)
			n := joins(t, c, lane.ID(), 1)[0]
			if slot.LaneIndex(n) != 1 {
				t.Errorf("%s: ticket %d", lane.Name, n)
			}
			// the line is free for the next lane
			if err := c.Leave(t.Context(), lifeOf(c), n, 0); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Absent visitors of a lane must not change the forecast of the ordinary line: its visitors were
// told seconds and waited for minutes.
func TestAbsentPeopleOfALaneAreNotThoseOfTheLine(t *testing.T) {
	if testing.Short() {
		return // long, and nothing for the race detector: make all runs it
	}
	synctest.Test(t, func(t *testing.T) {
		c := laned(t, "a", &store.Memory{}, nil, members)
		c.Hold(true)
		joins(t, c, members.ID(), 3000) // none of them polls again
		tickets := joins(t, c, 0, 500)
		last := tickets[len(tickets)-1]
		x := newCrowd(t, lifeOf(c), tickets...)
		x.wait(c, time.Minute) // visitors of the line poll on time
		c.Hold(false)
		x.wait(c, 10*time.Second)
		p, err := c.Poll(t.Context(), lifeOf(c), last, 0)
		start := time.Now()
		for len(x.due) > 0 {
			x.wait(c, time.Second)
		}
		truth := time.Since(start)
		if err != nil || p.ETA.Expect < truth*2/3 || p.ETA.Expect > truth*3/2 {
			t.Errorf("place %d is told %v (%v), and waits for %v", p.Position, p.ETA.Expect, err, truth)
		}
		t.Logf("place %d is told %v, and waits for %v", p.Position, p.ETA.Expect, truth)
	})
}

// waitReleased is wait with released tickets: first is the first ordinary number of each. All poll all the
// time, so they come in as they are called.
func (x *crowd) waitReleased(c *Counter, d time.Duration, first map[uint64]uint64) {
	x.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for _, n := range slices.Sorted(maps.Keys(x.due)) {
			p, err := c.PollAs(x.t.Context(), TicketPoll{Life: x.life, Number: n, First: first[n]})
			if err != nil {
				x.t.Fatal(err)
			}
			if p.Status == slot.TicketCalled {
				if r, err := c.Claim(x.t.Context(), x.life, p.Number, 0, 0); err != nil || r.End == 0 {
					x.t.Fatalf("called ticket %d is not let in: %+v, %v", n, r, err)
				}
				delete(x.due, n)
				x.in = append(x.in, n)
			} else if p.Position == 0 {
				x.t.Fatalf("ticket %d has no place: %+v", n, p)
			}
		}
	}
}

func releases(c *Counter, number uint64) error {
	life := lifeOf(c)
	return c.Release(context.Background(), func(l uint64) (uint64, bool) { return number, l == life })
}

// A released ticket stands where the first ticket of its visitor would: it comes in after those before it
// and before those behind it, also when the host is killed at any moment, and it lets in once.
func TestAReleasedTicketStandsWhereItsFirstOneWould(t *testing.T) {
	unsolved := slot.Lane{Name: slot.UnsolvedLane, Share: 10}
	for _, kills := range []int{0, 1, 2} {
		synctest.Test(t, func(t *testing.T) {
			s := &store.Memory{}
			c := laned(t, "a", s, nil, unsolved, members)
			c.Hold(true)
			life := lifeOf(c)
			before := joins(t, c, 0, 10)
			own, err := c.Join(t.Context(), 0, 5*time.Minute, 0) // its challenge is not solved: it lapses
			if err != nil {
				t.Fatal(err)
			}
			behind := joins(t, c, 0, 10)
			others := joins(t, c, unsolved.ID(), 3)
			slow := joins(t, c, unsolved.ID(), 1)[0]
			member := joins(t, c, members.ID(), 1)[0]
			fresh, err := c.Join(t.Context(), unsolved.ID(), 5*time.Minute, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := releases(c, fresh.Number); err != nil {
				t.Errorf("a ticket that was not seen again: %v", err)
			}
			if err := c.Leave(t.Context(), life, fresh.Number, 0); err != nil {
				t.Fatal(err)
			}
			first := map[uint64]uint64{slow: own.Number}
			x := newCrowd(t, life, slices.Concat(before, behind, others, []uint64{slow})...)
			x.waitReleased(c, 12*time.Second, first)
			for number, want := range map[uint64]error{
				1 << 50: ErrNoTicket, own.Number: ErrNoTicket, before[0]: ErrNotHeldBack,
				member: ErrNotHeldBack, slow: nil,
			} {
				if err := releases(c, number); !errors.Is(err, want) {
					t.Errorf("%d: %v, want %v", number, err, want)
				}
			}
			if kills > 0 { // before its visitor has asked again
				c = laned(t, "b", s, nil, unsolved, members)
				c.Hold(true)
			}
			if err := releases(c, slow); err != nil || kills == 0 && c.State(0, 0).Totals.Released != 2 {
				t.Errorf("again: %v, %+v", err, c.State(0, 0).Totals)
			}
			x.waitReleased(c, 12*time.Second, first)
			p, err := c.PollAs(t.Context(), TicketPoll{Life: life, Number: slow, First: own.Number})
			c.mu.Lock()
			want := 11 + c.line.Beside(0, 11)
			c.mu.Unlock()
			if err != nil || p.Position != want {
				t.Errorf("%+v, %v", p, err)
			}
			tr, err := c.Trace(t.Context(), func(uint64) (uint64, bool) { return slow, true })
			if err != nil || !tr.Released || tr.Position != p.Position || tr.Status != slot.TicketWaiting {
				t.Errorf("%+v, %v", tr, err)
			}
			c.Hold(false)
			if kills > 1 { // while they come in
				x.waitReleased(c, 600*time.Millisecond, first)
				c = laned(t, "c", s, nil, unsolved, members)
			}
			x.waitReleased(c, 20*time.Second, first)
			if len(x.in) != 24 {
				t.Fatalf("%d came in: %v", len(x.in), x.in)
			}
			at := slices.Index(x.in, slow)
			for i, n := range x.in {
				if slices.Contains(before, n) && i > at || slices.Contains(behind, n) && i < at {
					t.Errorf("%d (its first was %d) came in as number %d: %v", slow, own.Number, at, x.in)
				}
			}
			for range 2 { // the cookie of before, at once, and much later with another host
				p, err = c.PollAs(t.Context(), TicketPoll{Life: life, Number: slow, First: own.Number})
				if err != nil {
					t.Fatal(err)
				}
				if p.Status == slot.TicketCalled || p.Position != 0 {
					t.Errorf("a used ticket is %+v", p)
				}
				time.Sleep(time.Minute)
				c = laned(t, "d", s, nil, unsolved, members)
				time.Sleep(5 * time.Second)
			}
			if p.Status != slot.TicketGone {
				t.Errorf("%+v", p)
			}
		})
	}
}

// A visitor that is released and only polls holds no slot for ever: after some calls it stands behind all
// others. Who gives the place up has none.
func TestAReleasedVisitorThatDoesNotComeBlocksNobody(t *testing.T) {
	unsolved := slot.Lane{Name: slot.UnsolvedLane, Share: 10}
	synctest.Test(t, func(t *testing.T) {
		c := laned(t, "a", &store.Memory{}, func(c *Config) { c.Active.N, c.Spread = 1, false }, unsolved)
		c.Hold(true)
		life, own := lifeOf(c), joins(t, c, 0, 1)[0]
		slow := joins(t, c, unsolved.ID(), 2)
		people := joins(t, c, 0, 1)
		for _, n := range slow {
			if err := releases(c, n); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Leave(t.Context(), life, own, 0); err != nil {
			t.Fatal(err)
		}
		poll := func(n uint64) PlaceInfo {
			p, err := c.PollAs(t.Context(), TicketPoll{Life: life, Number: n, First: own})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		if p := poll(slow[1]); p.Position != 2 { // the other one is in the lane until it polls
			t.Errorf("%+v", p)
		}
		if err := c.Leave(t.Context(), life, slow[1], 0); err != nil {
			t.Fatal(err)
		}
		if p := poll(slow[1]); p.Position != 0 || p.Status != slot.TicketGone {
			t.Errorf("it was given up, and is %+v", p)
		}
		if p := poll(slow[0]); p.Position != 1 {
			t.Errorf("%+v", p)
		}
		c.Hold(false)
		for i := 0; ; i++ {
			time.Sleep(time.Second)
			poll(slow[0])
			if p, err := c.Poll(t.Context(), life, people[0], 0); err != nil || i > 120 {
				t.Fatalf("%+v, %v", p, err)
			} else if p.Status == slot.TicketCalled {
				break
			}
		}
		if calls := c.State(0, 0).Totals.Called; calls != mostStrikes+1 {
			t.Errorf("%d calls", calls)
		}
	})
}

// slowStore takes its time for each write.
type slowStore struct{ store.Memory }

func (s *slowStore) CompareAndSwap(ctx context.Context, k string, rev uint64, v []byte) (uint64, error) {
	time.Sleep(50 * time.Millisecond)
	return s.Memory.CompareAndSwap(ctx, k, rev, v)
}

// A release is on disk before it is answered, also to whoever repeats it meanwhile.
func TestAReleaseIsWrittenBeforeItIsAnswered(t *testing.T) {
	unsolved := slot.Lane{Name: slot.UnsolvedLane, Share: 10}
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{}
		c := laned(t, "a", s, nil, unsolved)
		slow := joins(t, c, unsolved.ID(), 1)[0]
		for range 3 {
			go func() {
				if err := releases(c, slow); err != nil {
					t.Error(err)
				}
				b, _, err := s.Load(t.Context(), c.key())
				var r slot.Record
				if err == nil {
					err = r.UnmarshalBinary(b)
				}
				if _, ok := slot.FindReleased(r.Released, slow); err != nil || !ok {
					t.Errorf("it is answered and not written: %v", err)
				}
			}()
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
	})
}

// A ticket that is called in its lane while it is released lets in once: not by its lane, and once by its
// new place, also with a copy of its cookie.
func TestACallDuringAReleaseLetsInOnce(t *testing.T) {
	unsolved := slot.Lane{Name: slot.UnsolvedLane, Share: 10}
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{}
		c := laned(t, "a", s, nil, unsolved)
		own := joins(t, c, 0, 1)[0]
		slow, life := joins(t, c, unsolved.ID(), 1)[0], lifeOf(c)
		time.Sleep(5 * time.Second)
		p, err := c.Poll(t.Context(), life, slow, 0)
		if err != nil || p.Status != slot.TicketCalled {
			t.Fatalf("%+v, %v", p, err)
		}
		done := make(chan error)
		go func() { done <- releases(c, slow) }()
		synctest.Wait() // it is not written
		if r, err := c.Claim(t.Context(), life, slow, 0, 0); !errors.Is(err, ErrNotCalled) {
			t.Errorf("its lane lets it in: %+v, %v", r, err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		in := 0
		for range 200 {
			time.Sleep(50 * time.Millisecond)
			x := TicketPoll{Life: life, Number: slow}
			if x.First = own; in == 0 { // a poll that does not know it: see Counter.JoinPerson
				x.First = 0
			}
			p, err = c.PollAs(t.Context(), x)
			if err != nil {
				t.Fatal(err)
			}
			if p.Status == slot.TicketCalled {
				if _, err := c.Claim(t.Context(), life, p.Number, 0, 0); err != nil {
					t.Fatal(err)
				}
				in++
			}
		}
		if in != 1 {
			t.Errorf("it has let in %d", in)
		}
	})
}

// A visitor that was found by who it is has its place when its first ticket is known.
func TestAFirstTicketIsKnownLate(t *testing.T) {
	unsolved := slot.Lane{Name: slot.UnsolvedLane, Share: 10}
	synctest.Test(t, func(t *testing.T) {
		s := &store.Memory{}
		c := laned(t, "a", s, nil, unsolved)
		c.Hold(true)
		life, before := lifeOf(c), joins(t, c, 0, 5)
		own, err := c.Join(t.Context(), 0, 5*time.Minute, 0) // it lapses
		if err != nil {
			t.Fatal(err)
		}
		joins(t, c, 0, 5)
		slow := joins(t, c, unsolved.ID(), 1)[0]
		if err := releases(c, slow); err != nil {
			t.Fatal(err)
		}
		time.Sleep(12 * time.Second)
		for _, x := range []struct {
			first uint64
			at    int64
		}{{0, 11}, {own.Number, 6}, {0, 6}, {before[0], 6}} {
			p, err := c.PollAs(t.Context(), TicketPoll{Life: life, Number: slow, First: x.first})
			if err != nil || p.Ahead != x.at-1 {
				t.Errorf("with %d: %+v, %v", x.first, p, err)
			}
		}
		if err := c.Leave(t.Context(), life, slow, 0); err != nil {
			t.Fatal(err)
		}
		other := joins(t, c, unsolved.ID(), 1)[0]
		if err := releases(c, other); err != nil {
			t.Fatal(err)
		}
		if err := c.Leave(t.Context(), life, other, 0); err != nil { // before it has asked again
			t.Fatal(err)
		}
		for range 2 { // also with the next host
			for _, n := range []uint64{slow, other} {
				p, err := c.PollAs(t.Context(), TicketPoll{Life: life, Number: n, First: own.Number})
				if err != nil || p.Position != 0 || p.Status != slot.TicketGone {
					t.Errorf("it was given up, and is %+v, %v", p, err)
				}
			}
			time.Sleep(5 * time.Second)
			c = laned(t, "b", s, nil, unsolved)
			time.Sleep(5 * time.Second)
		}
	})
}

// In a draw a released ticket has the rank that was drawn for its first one. In a room that calls at random
// it is next.
func TestAReleasedTicketInADraw(t *testing.T) {
	unsolved := slot.Lane{Name: slot.UnsolvedLane, Share: 10}
	synctest.Test(t, func(t *testing.T) {
		s, plan := &store.Memory{}, Plan{Event: "sale", Start: 1000, Phase: Prequeuing}
		next := func(name string) *Counter {
			c := laned(t, name, s, nil, unsolved)
			c.Hold(true)
			if err := c.SetPlan(t.Context(), plan); err != nil {
				t.Fatal(err)
			}
			return c
		}
		c := next("a")
		var tickets []uint64
		var own []PlaceInfo
		for i := range 60 {
			if i%2 == 1 { // its challenge is not solved
				p, err := c.Join(t.Context(), 0, 5*time.Minute, 0)
				if err != nil {
					t.Fatal(err)
				}
				own = append(own, p)
				continue
			}
			tickets = append(tickets, joins(t, c, 0, 1)...)
		}
		slow := joins(t, c, unsolved.ID(), len(own))
		time.Sleep(11 * time.Second)
		if plan.Phase = Started; c.SetPlan(t.Context(), plan) != nil {
			t.Fatal("the draw fails")
		}
		k, err := newChecker(c.State(0, 0).Draw.Hash, c.State(0, 0).Draw.Text())
		if err != nil {
			t.Fatal(err)
		}
		life := lifeOf(c)
		for i, n := range slow {
			if err := releases(c, n); err != nil {
				t.Fatal(err)
			}
			for _, m := range tickets { // they are present
				if _, err := c.Poll(t.Context(), life, m, 0); err != nil {
					t.Fatal(err)
				}
			}
			want := int64(0)
			for _, m := range tickets {
				if k.rank(m) < k.rank(own[i].Number) {
					want++
				}
			}
			p, err := c.PollAs(t.Context(), TicketPoll{Life: life, Number: n, First: own[i].Number})
			c.mu.Lock()
			ahead := c.line.Ordinary().Before(own[i].Number)
			c.mu.Unlock()
			if err != nil || ahead != want || p.Status != slot.TicketWaiting {
				t.Errorf("%d are ahead of it, by the draw %d: %+v, %v", ahead, want, p, err)
			}
		}
		c = next("b")
		c.Hold(false)
		first := map[uint64]uint64{}
		for i, n := range slow {
			first[n] = own[i].Number
		}
		x := newCrowd(t, life, slices.Concat(tickets, slow)...)
		x.waitReleased(c, 30*time.Second, first)
		if len(x.in) != len(tickets)+len(slow) {
			t.Fatalf("%d came in", len(x.in))
		}
		for i, n := range x.in {
			// A released visitor learns of its call at once, one of the line with its next poll.
			for _, m := range x.in[:max(0, i-2)] {
				if k.rank(cmp.Or(first[m], m)) > k.rank(cmp.Or(first[n], n)) {
					t.Errorf("%d came in before %d, which is number %d: %d", m, n, i, x.in)
				}
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := laned(t, "a", &store.Memory{}, func(c *Config) { c.RandomOrder = true }, unsolved)
		c.Hold(true)
		people := joins(t, c, 0, 50)
		slow := joins(t, c, unsolved.ID(), 1)[0]
		if err := releases(c, slow); err != nil {
			t.Fatal(err)
		}
		x := newCrowd(t, lifeOf(c), append(people, slow)...)
		x.waitReleased(c, 5*time.Second, map[uint64]uint64{slow: people[40]})
		c.Hold(false)
		x.waitReleased(c, 10*time.Second, map[uint64]uint64{slow: people[40]})
		if len(x.in) != 51 || !slices.Contains(x.in[:2], slow) {
			t.Errorf("%d came in, the released one as number %d", len(x.in), slices.Index(x.in, slow))
		}
	})
}
