package counter

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

// host opens a counter on a store and runs it until the test ends.
func host(t *testing.T, name string, s store.Store, active int64) *Counter {
	t.Helper()
	c := take(t, name, s, active)
	done := make(chan struct{})
	go func() { c.Run(t.Context()); close(done) }()
	t.Cleanup(func() { <-done })
	return c
}

// take opens a counter on a store, and does not run it.
func take(t *testing.T, name string, s store.Store, active int64) *Counter {
	t.Helper()
	start := time.Now()
	c, err := Open(t.Context(), Config{
		Room: "shop", Host: name, Store: s, Settings: Settings{
			Active: slot.Limit{Kind: slot.AtOnce, N: active, Per: time.Minute},
			New:    slot.Limit{Kind: slot.PerWindow, N: 1000, Per: time.Minute},
			Spread: true,
			Line: LineConfig{
				MaxWaiting: 1000, PollMin: time.Second, PollMax: 30 * time.Second, Hold: 15 * time.Minute,
			},
		},
		Boot: func() time.Duration { return time.Since(start) + time.Hour },
		Log:  slog.New(slog.DiscardHandler),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func join(t *testing.T, c *Counter) PlaceInfo {
	t.Helper()
	p, err := c.Join(t.Context(), 0, 5*time.Minute, 0)
	if err == nil { // its cookie comes back
		p, err = c.Poll(t.Context(), p.Life, p.Number, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCounterCallsInOrderAndClaimsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := host(t, "a", &store.Memory{}, 2)
		var numbers []uint64
		for range 4 {
			numbers = append(numbers, join(t, c).Number)
		}
		time.Sleep(time.Second)
		for i, n := range numbers {
			p, err := c.Poll(t.Context(), lifeOf(c), n, 0)
			if err != nil || (p.Status == slot.TicketCalled) != (i < 2) {
				t.Fatalf("ticket %d: %+v %v, want the first two called", n, p, err)
			}
		}
		first, err := c.Claim(t.Context(), lifeOf(c), numbers[0], 0, 0)
		if err != nil || first.End == 0 {
			t.Fatal(first, err)
		}
		again, err := c.Claim(t.Context(), lifeOf(c), numbers[0], 0, 0)
		if err != nil || again.End != first.End {
			t.Errorf("a repeated claim gives %+v %v, want the same stay", again, err)
		}
		if _, err := c.Claim(t.Context(), lifeOf(c), numbers[3], 0, 0); !errors.Is(err, ErrNotCalled) {
			t.Errorf("a ticket that is not called: %v", err)
		}
		if s := c.State(0, 0); s.Active != 1 || s.Called != 1 || s.Waiting != 3 {
			t.Errorf("%+v", s)
		}
	})
}

func TestSecondHostFencesTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s store.Memory
		old := host(t, "old", &s, 1)
		n := join(t, old)
		waiting := join(t, old)
		if _, err := old.Claim(t.Context(), lifeOf(old), n.Number, 0, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		next := host(t, "next", &s, 1)

		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		x := &slot.Sync{Loan: 9, Borrower: "w", Seq: slot.Seq{N: 1}, Need: 1}
		if a, err := old.Sync(ctx, x); !errors.Is(err, ErrFenced) {
			t.Errorf("the fenced host answers %+v %v", a, err)
		}
		if _, err := old.Join(ctx, 0, time.Minute, 0); !errors.Is(err, ErrFenced) {
			t.Errorf("the fenced host issues a ticket: %v", err)
		}
		// The place stays, the used ticket stays used, and the slot stays in use.
		p, err := next.Poll(ctx, lifeOf(next), waiting.Number, 0)
		if err != nil || p.Status != slot.TicketWaiting && p.Status != slot.TicketLate {
			t.Errorf("the waiting ticket: %+v %v", p, err)
		}
		if p, err := next.Poll(ctx, lifeOf(next), n.Number, 0); err != nil || p.Status != slot.TicketUsed {
			t.Errorf("the used ticket: %+v %v", p, err)
		}
		if got := next.State(0, 0); got.Active != 1 {
			t.Errorf("%d active", got.Active)
		}
		if later := join(t, next); later.Number <= waiting.Number {
			t.Errorf("number %d is issued again", later.Number)
		}
	})
}

// A lower limit that a fenced host takes would be a limit that the room does not have.
func TestFencedHostTakesNoLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s store.Memory
		old := laned(t, "old", &s, nil)
		synctest.Wait()
		laned(t, "next", &s, nil)
		synctest.Wait()
		set := old.cfg.Settings
		set.Active.N = 100
		if err := old.Reconfigure(t.Context(), set); !errors.Is(err, ErrFenced) || old.cfg.Active.N == 100 {
			t.Errorf("the limit is %d, %v", old.cfg.Active.N, err)
		}
	})
}

// The takeover is a write: from then on the former host lends and admits nobody, though the next host
// has written nothing else yet.
func TestATakeoverIsAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s store.Memory
		old := host(t, "old", &s, 2)
		n := join(t, old)
		time.Sleep(time.Second)
		was := old.epoch()
		take(t, "next", &s, 2)
		if _, err := old.Claim(t.Context(), lifeOf(old), n.Number, 0, 0); !errors.Is(err, ErrFenced) {
			t.Errorf("the former host admits a visitor after the takeover: %v", err)
		}
		x := &slot.Sync{Loan: 9, Borrower: "w", Seq: slot.Seq{N: 1}, Need: 1}
		if a, err := old.Sync(t.Context(), x); !errors.Is(err, ErrFenced) {
			t.Errorf("the former host lends after the takeover: %+v %v", a, err)
		}
		var r slot.Record
		b, _, err := s.Load(t.Context(), "counter.shop")
		err = errors.Join(err, r.UnmarshalBinary(b))
		if err != nil || r.Name.Epoch <= was || r.Host != "next" {
			t.Errorf("the record is of epoch %d of %q, want a later one than %d: %v", r.Name.Epoch, r.Host, was, err)
		}
	})
}

func TestAfterATakeoverTheOldTicketIsCalledFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s store.Memory
		old := host(t, "old", &s, 0)
		early := join(t, old)
		time.Sleep(2 * time.Second)
		next := host(t, "next", &s, 1)
		next.mu.Lock()
		next.issueAt = 0 // the previous host is certainly gone
		next.mu.Unlock()
		late := join(t, next)
		if late.Status == slot.TicketCalled {
			t.Fatal("called before those at the head have spoken")
		}
		called := uint64(0)
		for end := time.Now().Add(time.Minute); called == 0 && time.Now().Before(end); {
			for _, n := range []uint64{late.Number, early.Number} {
				p, err := next.Poll(t.Context(), lifeOf(next), n, 0)
				if err == nil && p.Status == slot.TicketCalled {
					called = n
				}
			}
			time.Sleep(500 * time.Millisecond)
		}
		if called != early.Number {
			t.Errorf("ticket %d is called first, want %d", called, early.Number)
		}
	})
}

// A flaky store loses the answer of every third write, and fails every fifth write.
type flaky struct {
	store.Memory
	n atomic.Int64
}

var errFlaky = errors.New("no answer")

func (f *flaky) CompareAndSwap(ctx context.Context, k string, rev uint64, v []byte) (uint64, error) {
	n := f.n.Add(1)
	if n%5 == 0 {
		return 0, errFlaky
	}
	rev, err := f.Memory.CompareAndSwap(ctx, k, rev, v)
	if err == nil && n%3 == 0 {
		return 0, errFlaky
	}
	return rev, err
}

func TestCounterFindsOutWhatBecameOfAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flaky{}
		c := host(t, "a", f, 5)
		for range 20 {
			p := join(t, c)
			time.Sleep(time.Second)
			if p, _ = c.Poll(t.Context(), lifeOf(c), p.Number, 0); p.Status == slot.TicketCalled {
				if _, err := c.Claim(t.Context(), lifeOf(c), p.Number, 0, 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		if s := c.State(0, 0); s.Active != 5 || s.Totals.Claimed != 5 {
			t.Errorf("%+v", s)
		}
		if n := f.n.Load(); n < 10 {
			t.Errorf("only %d writes", n)
		}
	})
}

func TestADamagedRecordServesNobodyAndIsLeftAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store.Memory{}
		if _, err := s.CompareAndSwap(t.Context(), "counter.shop", 0, []byte("garbage")); err != nil {
			t.Fatal(err)
		}
		c := host(t, "a", s, 5)
		if !errors.Is(c.Damaged(), slot.ErrRecord) {
			t.Fatalf("damaged: %v", c.Damaged())
		}
		if _, err := c.Join(t.Context(), 0, time.Minute, 0); !errors.Is(err, ErrFenced) {
			t.Errorf("join: %v", err)
		}
		if _, err := c.Poll(t.Context(), lifeOf(c), 1, 0); !errors.Is(err, ErrFenced) {
			t.Errorf("poll: %v", err)
		}
		if _, err := c.Claim(t.Context(), lifeOf(c), 1, 0, 0); !errors.Is(err, ErrFenced) {
			t.Errorf("claim: %v", err)
		}
		if err := c.Reconfigure(t.Context(), c.cfg.Settings); !errors.Is(err, ErrFenced) {
			t.Errorf("reconfigure: %v", err)
		}
		c.Hold(true)
		if err := c.Leave(t.Context(), lifeOf(c), 1, 0); !errors.Is(err, ErrFenced) {
			t.Errorf("leave: %v", err)
		}
		time.Sleep(time.Minute)
		if b, rev, _ := s.Load(t.Context(), "counter.shop"); string(b) != "garbage" || rev != 1 {
			t.Errorf("%q at %d", b, rev)
		}
	})
}

func TestTheLastOfTwoLimitsCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := host(t, "a", &store.Memory{}, 10)
		time.Sleep(3 * time.Second)
		for _, n := range []int64{20, 5} {
			s := c.cfg.Settings
			s.Active.N = n
			if err := c.Reconfigure(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(3 * time.Second)
		c.mu.Lock()
		defer c.mu.Unlock()
		if n := c.pool.Record().Limits[0].N; n != 5 {
			t.Errorf("limit %d, set to 5", n)
		}
	})
}

func TestNobodyWaitsForAHostThatEndedOrDoesNotWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		c, err := Open(t.Context(), Config{
			Room: "shop", Host: "a", Store: &store.Memory{}, Settings: Settings{
				Active: slot.Limit{Kind: slot.AtOnce, N: 1, Per: time.Minute},
				New:    slot.Limit{Kind: slot.PerWindow, N: 1, Per: time.Minute},
				Line:   LineConfig{MaxWaiting: 10, PollMin: time.Second, PollMax: time.Minute},
			},
			Boot: func() time.Duration { return time.Duration(time.Now().UnixNano()) },
			Log:  slog.New(slog.DiscardHandler),
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second) // without Run, as with a store that does not answer
		at := time.Now()
		if _, err := c.Join(t.Context(), 0, time.Minute, 0); !errors.Is(err, ErrSlow) {
			t.Errorf("no write: %v", err)
		}
		if d := time.Since(at); d > 3*time.Second {
			t.Errorf("waited %v", d)
		}
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(time.Second)
		stop()
		<-done
		if _, err := c.Join(t.Context(), 0, time.Minute, 0); !errors.Is(err, ErrFenced) {
			t.Errorf("after Run: %v", err)
		}
	})
}

func TestPollsAreStretchedUnderLoadAndNeverNearTheHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := host(t, "a", &store.Memory{}, 1)
		time.Sleep(time.Second)
		c.mu.Lock()
		defer c.mu.Unlock()
		want := func(eta, most time.Duration) {
			t.Helper()
			if d := c.interval(eta, c.cfg.Boot()); d != most {
				t.Errorf("expected wait %v: told to come after %v, want %v", eta, d, most)
			}
		}
		want(0, time.Second)
		want(80*time.Second, 10*time.Second)
		want(time.Hour, 30*time.Second)
		for range 10 { // 10,000 polls a second: twice the load of a busy worker
			c.polls.add(c.cfg.Boot(), 10_000)
			c.mu.Unlock()
			time.Sleep(time.Second)
			c.mu.Lock()
		}
		want(time.Hour, time.Minute)
		want(20*time.Second, 2500*time.Millisecond)
		c.polls.add(c.cfg.Boot(), 1)
		for range 10 {
			c.polls.add(c.cfg.Boot(), 1_000_000)
			c.mu.Unlock()
			time.Sleep(time.Second)
			c.mu.Lock()
		}
		want(time.Hour, 2*time.Minute)
	})
}

// answersLost writes, but reports a failure.
type answersLost struct {
	store.Memory
	on atomic.Bool
	n  atomic.Int64
}

func (a *answersLost) CompareAndSwap(ctx context.Context, key string, rev uint64, v []byte) (uint64, error) {
	r, err := a.Memory.CompareAndSwap(ctx, key, rev, v)
	if err == nil && a.on.Load() {
		a.n.Add(1)
		return 0, errors.New("no answer")
	}
	return r, err
}

// If the answer of each write is lost, the host must not write again without a pause, and the
// operator must learn of it.
func TestLostAnswersAreNotAReasonToWriteAllTheTime(t *testing.T) {
	synctest.Test(t, lostAnswers)
}

func lostAnswers(t *testing.T) {
	s := &answersLost{}
	start := time.Now()
	c, err := Open(t.Context(), Config{Room: "x", Host: "h", Store: s,
		Settings: Settings{Active: slot.Limit{Kind: slot.AtOnce, N: 10, Per: time.Minute},
			New: slot.Limit{Kind: slot.PerWindow, N: 100, Per: time.Minute},
			Line: LineConfig{
				MaxWaiting: 100, PollMin: time.Second, PollMax: time.Second, Hold: time.Minute,
			}},
		Boot: func() time.Duration { return time.Since(start) + time.Hour },
		Log:  slog.New(slog.DiscardHandler),
	}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { c.Run(ctx); close(done) }()
	time.Sleep(50 * time.Millisecond)
	s.on.Store(true)
	c.kick()
	p, _ := c.Join(ctx, 0, time.Minute, 0)
	c.Poll(ctx, p.Life, p.Number, 0)
	time.Sleep(time.Second)
	n, refused := s.n.Load(), c.State(0, 0).Refused
	s.on.Store(false)
	stop()
	<-done
	if n > 20 || refused == 0 {
		t.Errorf("%d writes in a second, and the status says refused %v", n, refused)
	}
}

// While all waiting visitors are absent, the host sleeps. A visitor that returns is called by its
// own poll.
func TestNobodyThereCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := host(t, "a", &store.Memory{}, 5)
		c.Hold(true)
		var last PlaceInfo
		for range 20 {
			last = join(t, c)
		}
		c.Hold(false)
		time.Sleep(5 * time.Minute / 2) // the first calls lapse, and all visitors are absent
		c.mu.Lock()
		next, called := c.nextDue(c.cfg.Boot()), c.line.Called()
		c.mu.Unlock()
		if next < lookAgain || called != 0 {
			t.Errorf("looks again in %v while nobody is there, %d called", next, called)
		}
		p, err := c.Poll(t.Context(), lifeOf(c), last.Number, 0)
		if err != nil || p.Status != slot.TicketCalled {
			t.Errorf("%+v %v: a slot is free and nobody else is there", p, err)
		}
	})
}

// A record that decodes but is inconsistent stops only its own room, like a damaged one.
func TestARecordThatMakesNoSenseServesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := slot.NewRecord(7, nil, slot.Limit{Kind: slot.AtOnce, N: 1, Per: time.Minute},
			slot.Limit{Kind: slot.PerWindow, N: 1, Per: time.Minute})
		r.Frontier, r.Next = 9, 5
		b, err := r.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		s := &store.Memory{}
		if _, err := s.CompareAndSwap(t.Context(), "counter.shop", 0, b); err != nil {
			t.Fatal(err)
		}
		if c := host(t, "a", s, 5); !errors.Is(c.Damaged(), slot.ErrRecord) {
			t.Errorf("damaged: %v", c.Damaged())
		}
	})
}

// lifeOf returns the life of the record that a counter serves.
func lifeOf(c *Counter) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pool.Record().Name.Life
}

// Of two requests that claim at once, either one may admit the visitor, because the other may be
// canceled. So each answer names the window entry to move.
func TestEachAnswerToAClaimNamesItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := host(t, "a", &store.Memory{}, 1)
		time.Sleep(time.Second)
		p := join(t, c)
		if p.Status != slot.TicketCalled {
			t.Fatalf("%+v: not called", p)
		}
		var got [2]slot.ClaimReply
		var both sync.WaitGroup
		for i := range got {
			both.Go(func() { got[i], _ = c.Claim(t.Context(), lifeOf(c), p.Number, 0, 0) })
		}
		both.Wait()
		if got[0].Win == 0 || got[0] != got[1] {
			t.Errorf("told %+v and %+v", got[0], got[1])
		}
	})
}

// A panic ends the process, which restarts. If the host waited for the lock that the panic left
// held, the process would stay and answer nobody.
func TestAPanicIsNotHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := Open(t.Context(), Config{Room: "shop", Host: "a", Store: &store.Memory{},
			Settings: Settings{
				Active: slot.Limit{Kind: slot.AtOnce, N: 1, Per: time.Minute},
				New:    slot.Limit{Kind: slot.PerWindow, N: 1000, Per: time.Minute},
			},
			Boot: func() time.Duration { return time.Hour }, Log: slog.New(slog.DiscardHandler),
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		c.line = nil
		_ = c.Run(t.Context())
	})
}
