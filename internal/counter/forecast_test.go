package counter

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

// hosted returns a counter that runs until the test ends.
func hosted(t *testing.T, s Settings) *Counter {
	t.Helper()
	start := time.Now()
	c, err := Open(t.Context(), Config{
		Room: "shop", Host: "a", Store: &store.Memory{}, Settings: s,
		Boot: func() time.Duration { return time.Since(start) + time.Hour },
		Log:  slog.New(slog.DiscardHandler),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { c.Run(t.Context()); close(done) }()
	t.Cleanup(func() { <-done })
	return c
}

// A room was quiet before the crowd came. The few calls from that time do not show how fast the
// line moves. A visitor that is told to poll much too late lets a free slot wait.
func TestAQuietTimeBeforeTheLineIsNoRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := hosted(t, Settings{
			Active: slot.Limit{Kind: slot.AtOnce, N: 6, Per: 3 * time.Second},
			New:    slot.Limit{Kind: slot.PerWindow, N: 6000, Per: time.Minute},
			Line:   LineConfig{MaxWaiting: 1000, PollMin: time.Second, PollMax: 30 * time.Second},
		})
		join(t, c) // called at once
		time.Sleep(20 * time.Second)
		c.Hold(true)
		var last PlaceInfo
		for range 100 {
			last = join(t, c)
		}
		c.Hold(false)
		time.Sleep(1500 * time.Millisecond) // a write has happened since
		last, err := c.Poll(t.Context(), lifeOf(c), last.Number, 0)
		if err != nil || last.PollAfter > 8*time.Second {
			t.Errorf("place %d is told to come after %v, %v: six leave every 3 s", last.Position,
				last.PollAfter, err)
		}
	})
}

// 500 clients use each cookie twice, at once, and never poll again. The room admits one visitor
// every 10 s, so the next visitor waits about 10 s, and not 5,000 s.
func TestTicketsThatNeverAskAgainDoNotLengthenTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := hosted(t, Settings{
			Active: slot.Limit{Kind: slot.AtOnce, N: 1, Per: 10 * time.Second},
			New:    slot.Limit{Kind: slot.PerWindow, N: 6000, Per: time.Minute},
			Line:   LineConfig{MaxWaiting: 1000, PollMin: time.Second, PollMax: 30 * time.Second},
		})
		in, err := c.Join(t.Context(), 0, time.Hour, 0)
		if err != nil {
			t.Fatal(err)
		}
		for in.Status != slot.TicketCalled {
			time.Sleep(in.PollAfter)
			if in, err = c.Poll(t.Context(), lifeOf(c), in.Number, 0); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Claim(t.Context(), lifeOf(c), in.Number, 0, 0); err != nil {
			t.Fatal(err)
		}
		for range 500 {
			p, err := c.Join(t.Context(), 0, time.Hour, 0)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
			if _, err := c.Poll(t.Context(), lifeOf(c), p.Number, 0); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(3 * time.Second)
		synctest.Wait() // what the counter does at this instant
		p, err := c.Join(t.Context(), 0, time.Hour, 0)
		if err != nil || !p.ETA.Known || p.Position != 501 {
			t.Fatalf("%+v, %v", p, err)
		}
		if p.ETA.Expect > 15*time.Second || p.ETA.Expect < 5*time.Second {
			t.Errorf("the wait is expected to be %v, want about 7 s", p.ETA.Expect)
		}
	})
}
