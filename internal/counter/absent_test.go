package counter

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/slot"
)

// TestTicketsThatOnlyPollComeBehindOthers: 50 clients are told to come in, ask again and again, and
// never come. Each keeps a slot of 20 empty once before the people behind them are called.
func TestTicketsThatOnlyPollComeBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := hosted(t, Settings{
			Active: slot.Limit{Kind: slot.AtOnce, N: 20, Per: time.Hour},
			New:    slot.Limit{Kind: slot.PerWindow, N: 3000, Per: time.Minute}, Spread: true,
			Line: LineConfig{MaxWaiting: 1000, PollMin: time.Second, PollMax: 30 * time.Second,
				Hold: time.Hour},
		})
		c.Hold(true)
		absent, people := joins(t, c, 0, 50), joins(t, c, 0, 20)
		c.Hold(false)
		began := time.Now()
		x := newCrowd(t, lifeOf(c), people...)
		for len(x.in) < len(people) && time.Since(began) < time.Minute {
			for _, n := range absent {
				_, _ = c.Poll(t.Context(), lifeOf(c), n, 0)
			}
			x.wait(c, time.Second)
		}
		// Three rounds of 6 s, and the time until the people ask.
		if d := time.Since(began); len(x.in) < len(people) || d > 35*time.Second {
			t.Errorf("%d of %d people are in after %v", len(x.in), len(people), d)
		}
	})
}
