package server

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/deliver"
	"github.com/headgate/headgate/limit"
)

func TestASharedTargetsPaceFollowsItsLimit(t *testing.T) {
	limits, err := headgate.NewLimiter(headgate.LimiterConfig{Limits: []headgate.LimitConfig{{
		Name: "db", Rule: limit.Rule{Algorithm: limit.SlidingLog, Amount: 10, Window: time.Second}}}})
	if err != nil {
		t.Fatal(err)
	}
	pace := deliver.Pace{Amount: 10, Window: time.Second, Shared: true}
	slow, err := deliver.NewThrottle(pace)
	if err != nil {
		t.Fatal(err)
	}
	th := &throttle{Throttle: slow, rules: limits, limit: "db", pace: pace}
	now := time.Now()
	apart := func(want time.Duration) {
		t.Helper()
		now = now.Add(time.Second)
		ok, at := th.Pass(now, 1)
		for ok { // what was late, and then the next
			ok, at = th.Pass(now, 1)
		}
		if at.Sub(now) != want {
			t.Errorf("the next in %v, want %v", at.Sub(now), want)
		}
	}
	amount := func(n int64) {
		t.Helper()
		err := limits.Update("db", func(c *headgate.LimitConfig) error {
			c.Amount = n
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	apart(100 * time.Millisecond)
	amount(100)
	apart(10 * time.Millisecond)
	amount(0) // the limit itself lets nothing pass
	apart(10 * time.Millisecond)
	amount(5)
	apart(200 * time.Millisecond)
}
