package counter

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// A host has just taken over, or its process was suspended; then the store does not answer. All
// visitors of the line poll on time. A visitor that polled in the outage counts as present, and the
// first one is called.
func TestWhoSpeaksInAnOutageAfterATakeoverIsPresent(t *testing.T) {
	for _, how := range []string{"control", "takeover", "alone, nobody asked for 4 s"} {
		takeover, alone := how == "takeover", how[0] == 'a'
		t.Run(fmt.Sprint(how), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := &stalled{}
				start := time.Now()
				open := func(ctx context.Context, name string) *Counter {
					c, err := Open(ctx, Config{
						Room: "shop", Host: name, Store: disk, Params: slot.Params{Alone: alone},
						Settings: Settings{
							Active: slot.Limit{Kind: slot.AtOnce, N: 1, Per: time.Minute},
							New:    slot.Limit{Kind: slot.PerWindow, N: 1000, Per: time.Minute},
							Line:   outageLine(),
						},
						Boot: func() time.Duration { return time.Since(start) + time.Hour },
						Log:  slog.New(slog.DiscardHandler),
					}, nil)
					if err != nil {
						t.Fatal(err)
					}
					return c
				}
				ctx, end := context.WithCancel(t.Context())
				c := open(ctx, "a")
				done := make(chan struct{})
				go func(c *Counter) { c.Run(ctx); close(done) }(c)
				c.Hold(true)
				var n []uint64
				for range 8 {
					n = append(n, join(t, c).Number)
				}
				for range 3 { // all have polled and have an interval
					for _, x := range n {
						c.Poll(t.Context(), lifeOf(c), x, 0)
					}
					time.Sleep(time.Second)
				}
				if takeover {
					end()
					<-done
					ctx, end = context.WithCancel(t.Context())
					c = open(ctx, "b")
					done = make(chan struct{})
					go func(c *Counter) { c.Run(ctx); close(done) }(c)
					c.Hold(true)
				}
				defer func() { end(); <-done }()
				outage := 9 * time.Second
				disk.until.Store(time.Now().Add(outage).UnixNano())
				time.Sleep(2100 * time.Millisecond) // no write is fresh any more
				if alone {
					time.Sleep(2 * time.Second)
				}
				time.AfterFunc(outage-3*time.Second, func() { c.Hold(false) })
				var asking sync.WaitGroup
				for _, x := range slices.Backward(n) {
					asking.Go(func() {
						for i, failed := 0, true; failed && i < 60; i++ {
							p, err := c.Poll(t.Context(), lifeOf(c), x, 0)
							failed = err != nil || time.Now().UnixNano() < disk.until.Load()
							if failed {
								time.Sleep(max(p.PollAfter, time.Second))
							}
						}
					})
					time.Sleep(110 * time.Millisecond)
				}
				asking.Wait()
				c.mu.Lock()
				defer c.mu.Unlock()
				if _, ok := c.called.at[n[0]]; !ok || len(c.called.at) != 1 {
					t.Errorf("called %v, want %d; late %d", c.called.at, n[0], c.line.Late())
				}
			})
		})
	}
}

// A claim is in the write that an outage delays. Its visitor gets an error after 2 s and polls each
// second. When the write is confirmed, nobody waits for the answer, and the place stays.
func TestAClaimConfirmedToNobodyIsKept(t *testing.T) {
	for _, x := range []struct{ stay, outage time.Duration }{
		{time.Minute, 20 * time.Second}, {5 * time.Second, 4800 * time.Millisecond},
		{time.Minute, 31 * time.Second}, {10 * time.Minute, 31 * time.Second},
	} {
		t.Run(fmt.Sprint(x), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := &stalled{}
				start := time.Now()
				ctx, end := context.WithCancel(t.Context())
				c, err := Open(ctx, Config{
					Room: "shop", Host: "a", Store: disk, Settings: Settings{
						Active: slot.Limit{Kind: slot.AtOnce, N: 1, Per: x.stay},
						New:    slot.Limit{Kind: slot.PerWindow, N: 1000, Per: time.Minute},
						Line:   outageLine(),
					},
					Boot: func() time.Duration { return time.Since(start) + time.Hour },
					Log:  slog.New(slog.DiscardHandler),
				}, nil)
				if err != nil {
					t.Fatal(err)
				}
				done := make(chan struct{})
				go func() { c.Run(ctx); close(done) }()
				defer func() { end(); <-done }()
				var wg sync.WaitGroup
				defer wg.Wait()
				defer end()
				wg.Go(func() { // others poll, so that the host is seen to run
					for ctx.Err() == nil {
						c.Poll(ctx, lifeOf(c)+1, 1, 0)
						time.Sleep(500 * time.Millisecond)
					}
				})
				time.Sleep(5 * time.Second)
				p := join(t, c)
				join(t, c) // a visitor behind it
				if p.Status != slot.TicketCalled {
					t.Fatalf("%+v", p)
				}
				disk.until.Store(time.Now().Add(x.outage).UnixNano())
				life := lifeOf(c)
				if r, err := c.Claim(t.Context(), life, p.Number, 0, 0); err == nil {
					t.Fatalf("claimed %+v", r)
				}
				for range 100 {
					time.Sleep(1100 * time.Millisecond)
					p, err := c.Poll(t.Context(), life, p.Number, 0)
					if err != nil {
						continue
					}
					r, err := c.Claim(t.Context(), life, p.Number, 0, 0)
					t.Logf("%v after it writes again: %v, claim %+v %v", time.Since(time.Unix(0, disk.until.Load())), p.Status, r, err)
					if err != nil || r.End == 0 {
						t.Errorf("the place is lost (%v): the visitor was told of no stay, in use %d", err, c.State(0, 0).Active)
					}
					return
				}
			})
		})
	}
}

// The store does not answer for 9 s while one visitor waits and polls on time. The process runs all
// the time: it must not conclude that it was suspended, and must not release the room.
func TestAnOutageIsNotTakenForAFreeze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &stalled{}
		start := time.Now()
		ctx, end := context.WithCancel(t.Context())
		c, err := Open(ctx, Config{
			Room: "shop", Host: "a", Store: disk, Settings: Settings{
				Active: slot.Limit{Kind: slot.AtOnce, N: 1, Per: 10 * time.Second},
				New:    slot.Limit{Kind: slot.PerWindow, N: 1000, Per: time.Minute},
				Line:   outageLine(),
			},
			Boot: func() time.Duration { return time.Since(start) + time.Hour },
			Log:  slog.New(slog.DiscardHandler),
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { c.Run(ctx); close(done) }()
		defer func() { end(); <-done }()
		time.Sleep(5 * time.Second)
		a, b := join(t, c), join(t, c)
		life := lifeOf(c)
		disk.until.Store(time.Now().Add(9 * time.Second).UnixNano())
		_, err = c.Claim(ctx, life, a.Number, 0, 0)
		t.Logf("%v: the claim: %v", time.Since(start), err)
		time.Sleep(1050 * time.Millisecond)
		for range 10 {
			p, err := c.Poll(ctx, life, b.Number, 0)
			t.Logf("%v: %v, ask again in %v", time.Since(start), err, p.PollAfter)
			if err == ErrFenced {
				t.Fatal("the host has let go of the room, and nobody has taken it over")
			}
			time.Sleep(max(p.PollAfter, time.Second))
		}
	})
}

func outageLine() LineConfig {
	return LineConfig{
		MaxWaiting: 1000, PollMin: time.Second, PollMax: 30 * time.Second, Hold: 15 * time.Minute,
	}
}
