package quota

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/limit"
)

// Criteria for a crowd of holders.
const (
	crowdAnswer = 5 * time.Millisecond
	crowdSettle = 6 * time.Second
	crowdTime   = 30 * time.Second
	crowdBehind = 50 * time.Millisecond // longest time to catch up with a pace
)

// A holdersCrowd holds units one by one as a queue does, each at the limit's pace.
type holdersCrowd struct {
	*heldWorld
	amount  int64
	mu      sync.Mutex
	passed  []time.Time
	flights sync.WaitGroup
}

// work holds and uses units until end. Without stays the holder leaves now and then.
func (c *holdersCrowd) work(who int, stays bool, end time.Time) {
	random := rand.New(rand.NewPCG(uint64(who), 52))
	here := func() time.Time { return time.Now().Add(4*time.Second + time.Duration(random.Int64N(8e9))) }
	next, leave := time.Now(), here()
	turn := Waiters{Weight: 1, More: 100, Spread: true}
	for time.Now().Before(end) {
		if !stays && time.Now().After(leave) {
			pause(c.ctx, time.Duration(random.Int64N(2e9)))
			leave = here()
		}
		pause(c.ctx, time.Until(next))
		held, v, err := c.keys[who].Hold(c.ctx, c.def, "", 1, turn)
		if err != nil {
			c.t.Error(err)
			return
		}
		if !v.Allowed {
			pause(c.ctx, min(max(v.Retry, time.Millisecond), 250*time.Millisecond))
			continue
		}
		now := time.Now()
		if behind := now.Add(-crowdBehind); next.Before(behind) {
			next = behind
		}
		next = next.Add(time.Second / time.Duration(c.amount))
		c.mu.Lock()
		c.passed = append(c.passed, now)
		c.mu.Unlock()
		c.flights.Go(func() {
			pause(c.ctx, crowdAnswer)
			held.Use(1)
		})
	}
}

// most returns the largest number that passed in any window.
func (c *holdersCrowd) most(window time.Duration) (most int) {
	first := 0
	for i, at := range c.passed {
		for at.Sub(c.passed[first]) >= window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// Processes with more work than the limit allows use all of it, however many they are and while
// half of them come and go: 99 % of what the window and the answers allow. What they take does not
// come all at once, not even at the beginning, when everything is free.
func TestHoldersUseTheWholeLimitAndSpreadIt(t *testing.T) {
	for _, n := range []int{1, 4, 6} {
		for _, amount := range []int64{10, 100, 1000} {
			if testing.Short() && (amount > 100 || n != 4) { // the same with more work
				continue
			}
			t.Run(fmt.Sprintf("%d/%d", n, amount), func(t *testing.T) {
				r := limit.Rule{Algorithm: limit.SlidingLog, Amount: amount, Window: time.Second}
				inHeldWorld(t, r, time.Millisecond/2, func(h *heldWorld) {
					c := &holdersCrowd{heldWorld: h, amount: amount}
					from := h.began.Add(crowdSettle)
					end := from.Add(crowdTime)
					var wg sync.WaitGroup
					for i := range n {
						wg.Go(func() { c.work((i+1)%idealDesks, i <= n/2, end) })
					}
					wg.Wait()
					c.flights.Wait()
					slices.SortFunc(c.passed, time.Time.Compare)
					in := slices.IndexFunc(c.passed, from.Before)
					possible := float64(amount) * crowdTime.Seconds() / (time.Second + crowdAnswer).Seconds()
					part := float64(len(c.passed)-in) / possible
					tenth := c.most(100 * time.Millisecond)
					h.mu.Lock()
					asks := h.asks
					h.mu.Unlock()
					t.Logf("%.2f %%; at most %d in a tenth of a second; %d questions", 100*part, tenth, asks)
					if part < 0.99 {
						t.Errorf("%.2f %% of what is possible, want 99 %%", 100*part)
					}
					if most := c.most(time.Second); most > int(amount) {
						t.Errorf("%d passed in a second", most)
					}
					if n > 1 && tenth > int(amount)*4/10+2 {
						t.Errorf("%d of %d passed in a tenth of a second", tenth, amount)
					}
				})
			})
		}
	}
}
