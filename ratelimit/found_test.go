package ratelimit

import (
	"testing"
	"time"

	"github.com/headgate/headgate/limit"
)

// A process that does not reach the one that finds the amount divides the least: what it knows of the
// amount may be too high by now.
func TestAFoundAmountOutOfReachIsTheLeast(t *testing.T) {
	for _, c := range []struct {
		mode   string
		amount int64
		want   int64
	}{
		{limit.AutoOn, 300, 20}, {limit.AutoFrozen, 300, 20}, {limit.AutoOn, 30, 10},
		{limit.AutoShadow, 300, 100}, {"", 300, 100},
	} {
		d, err := Limit{Name: "api", Auto: limit.Auto{Mode: c.mode, Min: 60, Max: 500},
			Rule: limit.Rule{Algorithm: limit.Concurrency, Amount: c.amount, Lease: time.Minute}}.define()
		if err != nil {
			t.Fatal(err)
		}
		part, err := d.quota.Divide(3)
		if err != nil {
			t.Fatal(err)
		}
		if got, whole := part.MaxCost(), d.quota.Rules.MaxCost(); got != c.want || whole != c.amount {
			t.Errorf("mode %q: %d of %d alone, want %d", c.mode, got, whole, c.want)
		}
	}
}
