package counter

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/slot"
)

// SIGSTOP for 30 s: the boot clock runs on, nobody can be heard. On waking the
// first who asks must not be called past those who ask a moment later.
func TestFrozenProcessKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var frozen atomic.Int64
		c, err := Open(t.Context(), Config{
			Room: "shop", Host: "a", Store: &store.Memory{}, Settings: Settings{
				Active: slot.Limit{Kind: slot.AtOnce, N: 2, Per: 6 * time.Second},
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
		for range 10 {
			n = append(n, join(t, c).Number)
		}
		time.Sleep(3 * time.Second)
		c.Hold(false)
		for i := range 2 { // fill the room
			c.Poll(t.Context(), n[i])
			c.Claim(t.Context(), n[i], 0)
		}
		for range 3 { // all poll on time
			time.Sleep(time.Second)
			for _, x := range n[2:] {
				c.Poll(t.Context(), x)
			}
		}
		frozen.Store(int64(30 * time.Second))
		time.Sleep(100 * time.Millisecond)
		for i := 9; i >= 2; i-- { // they ask within 100 ms, the last of the line first
			p, err := c.Poll(t.Context(), n[i])
			if err == nil && p.Status == slot.TicketCalled && i > 3 {
				t.Errorf("ticket %d is called, %d is waiting", n[i], n[2])
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}
