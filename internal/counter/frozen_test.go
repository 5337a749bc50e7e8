package counter

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

// The process gets SIGSTOP for 8 s: the boot clock continues, and no poll arrives. When it runs
// again, the first visitor that polls must not be called ahead of those that poll a moment later.
func TestFrozenProcessKeepsTheOrder(t *testing.T) {
	for name, writing := range map[string]bool{"between two writes": false, "in a write": true} {
		t.Run(name, func(t *testing.T) { frozenKeepsTheOrder(t, writing) })
	}
}

const people = 400 // the last ones have an interval of more than 8 s

// A sleeper is a store whose next write takes as long as the process is frozen.
type sleeper struct {
	store.Memory
	armed atomic.Bool
	sleep func()
}

func (s *sleeper) CompareAndSwap(
	ctx context.Context, key string, revision uint64, value []byte,
) (uint64, error) {
	if s.armed.CompareAndSwap(true, false) {
		s.sleep()
	}
	return s.Memory.CompareAndSwap(ctx, key, revision, value)
}

func frozenKeepsTheOrder(t *testing.T, writing bool) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var frozen atomic.Int64
		// a session is over, and some visitors are not late yet
		freeze := func() { frozen.Store(int64(8 * time.Second)) }
		disk := &sleeper{}
		c, err := Open(t.Context(), Config{
			Room: "shop", Host: "a", Store: disk, Settings: Settings{
				Active: slot.Limit{Kind: slot.AtOnce, N: 3, Per: 6 * time.Second},
				New:    slot.Limit{Kind: slot.PerWindow, N: 1000, Per: time.Minute},
				Line: LineConfig{
					MaxWaiting: 1000, PollMin: time.Second, PollMax: 30 * time.Second,
					Hold: 15 * time.Minute,
				},
			},
			Boot: func() time.Duration {
				return time.Since(start) + time.Hour + time.Duration(frozen.Load())
			},
			Log: slog.New(slog.DiscardHandler),
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { c.Run(t.Context()); close(done) }()
		t.Cleanup(func() { <-done })
		c.Hold(true)
		var n []uint64
		for range people {
			n = append(n, join(t, c).Number)
		}
		time.Sleep(3 * time.Second)
		c.Hold(false)
		waiting := n
		for range 20 { // all poll on time, and the rate is known
			time.Sleep(time.Second)
			waiting = slices.DeleteFunc(waiting, func(x uint64) bool {
				p, err := c.Poll(t.Context(), lifeOf(c), x, 0)
				if err != nil || p.Status != slot.TicketCalled {
					return false
				}
				_, err = c.Claim(t.Context(), lifeOf(c), x, 0, 0)
				return err == nil
			})
		}
		first := waiting[0]
		if writing {
			disk.sleep = func() { // a slot becomes free a moment earlier
				if err := c.Leave(t.Context(), lifeOf(c), first, 0); err != nil {
					t.Error(err)
				}
				freeze()
			}
			disk.armed.Store(true)
		} else {
			freeze()
		}
		for writing && disk.armed.Load() { // the next write happens without a request
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond)
		for _, x := range slices.Backward(waiting[2:]) { // the last visitor of the line polls first
			p, err := c.Poll(t.Context(), lifeOf(c), x, 0)
			if err == nil && p.Status == slot.TicketCalled {
				t.Errorf("ticket %d is called, %d is waiting", x, waiting[1])
			}
			time.Sleep(time.Millisecond)
		}
	})
}

// A stalled store delays its writes until it is released.
type stalled struct {
	store.Memory
	until atomic.Int64 // in nanoseconds since 1970
}

func (s *stalled) CompareAndSwap(
	ctx context.Context, name string, revision uint64, b []byte,
) (uint64, error) {
	wait := time.Until(time.Unix(0, s.until.Load()))
	select {
	case <-time.After(wait):
		return s.Memory.CompareAndSwap(ctx, name, revision, b)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// The store does not write for longer than any visitor may be silent. All poll on time and get no
// answer. When the store writes again, the first visitor is called, whichever poll arrives first.
func TestAnOutageOfTheStoreMakesNobodyLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &stalled{}
		c := host(t, "a", disk, 1)
		c.Hold(true)
		var n []uint64
		for range 5 {
			n = append(n, join(t, c).Number)
		}
		outage := 15 * time.Second
		disk.until.Store(time.Now().Add(outage).UnixNano())
		time.AfterFunc(outage-time.Second, func() { c.Hold(false) })
		var asking sync.WaitGroup
		for _, x := range slices.Backward(n) {
			asking.Go(func() {
				for failed := true; failed; { // each waits without success, then for its interval
					p, err := c.Poll(t.Context(), lifeOf(c), x, 0)
					failed = err != nil || time.Now().UnixNano() < disk.until.Load()
					if failed {
						time.Sleep(max(p.PollAfter, time.Second))
					}
				}
			})
			time.Sleep(100 * time.Millisecond)
		}
		asking.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		if _, ok := c.called.at[n[0]]; !ok || len(c.called.at) != 1 {
			t.Errorf("called %v, want %d", c.called.at, n[0])
		}
	})
}

// A silent store answers no write from a moment on.
type silent struct {
	store.Memory
	off atomic.Bool
}

func (s *silent) CompareAndSwap(
	ctx context.Context, name string, revision uint64, b []byte,
) (uint64, error) {
	if s.off.Load() {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return s.Memory.CompareAndSwap(ctx, name, revision, b)
}

// A suspended host was suspended during a write, whose answer is lost, and has just woken up. Another
// process hosts the room now.
type suspended struct {
	*Counter
	ended   chan error // what Run returned
	syncing chan error // what a borrower got whose sync was in the write
	woke    time.Time
}

func suspendInAWrite(t *testing.T) *suspended {
	t.Helper()
	start := time.Now()
	var frozen atomic.Int64
	disk := &silent{}
	c, err := Open(t.Context(), Config{
		Room: "shop", Host: "a", Store: disk, Settings: Settings{
			Active: slot.Limit{Kind: slot.AtOnce, N: 3, Per: time.Minute},
			New:    slot.Limit{Kind: slot.PerWindow, N: 1000, Per: time.Minute},
			Line:   LineConfig{MaxWaiting: 1000, PollMin: time.Second, PollMax: 30 * time.Second},
		},
		Boot: func() time.Duration {
			return time.Since(start) + time.Hour + time.Duration(frozen.Load())
		},
		Log: slog.New(slog.DiscardHandler),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(stop)
	h := &suspended{Counter: c, ended: make(chan error, 1), syncing: make(chan error, 1)}
	go func() { h.ended <- c.Run(ctx) }()
	time.Sleep(time.Second)
	disk.off.Store(true)
	go func() {
		_, err := c.Sync(ctx, &slot.Sync{Borrower: "w", Loan: 1, Seq: slot.Seq{Epoch: 1, N: 1}, Want: 1})
		h.syncing <- err
	}()
	time.Sleep(500 * time.Millisecond)
	frozen.Store(int64(8 * time.Second))
	h.woke = time.Now()
	return h
}

// stopsAtOnce checks that the host stops before its write fails, and its borrowers ask elsewhere.
func (h *suspended) stopsAtOnce(t *testing.T) {
	t.Helper()
	if err := <-h.ended; !errors.Is(err, ErrFenced) || time.Since(h.woke) > time.Second {
		t.Errorf("the host ended with %v, %v after it woke up", err, time.Since(h.woke))
	}
	if err := <-h.syncing; !errors.Is(err, ErrFenced) {
		t.Errorf("the borrower got %v: it asks nobody else", err)
	}
}

// A visitor inside must not wait until the write of a host that was suspended has failed.
func TestAFrozenHostGivesUpItsWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { suspendInAWrite(t).stopsAtOnce(t) })
}

// The same holds if the first event after the suspension is that Anywhere takes slots back: then that,
// and not the host's own look at its clock, finds the gap.
func TestAFrozenHostGivesUpItsWriteWhenSlotsAreTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := suspendInAWrite(t)
		h.recalledUp()
		h.stopsAtOnce(t)
	})
}
