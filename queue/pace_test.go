//go:build bench

package queue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/limit"
)

// A handler that answers at once gets what the limit allows, within 1 %.
func TestThePaceIsReached(t *testing.T) {
	for _, amount := range []int64{10, 100, 1000, 5000, 10_000} {
		t.Run(fmt.Sprint(amount), func(t *testing.T) {
			b := newBench(t, func(c *Config) {
				r := rate(amount)
				r.Algorithm = limit.SlidingLog
				c.Capacity, c.Uses = limiter(t, r), []LimitUse{{Limit: "db"}}
			})
			n := int(8 * amount)
			for from := 0; from < n; from += 1000 {
				var jobs []Job
				for i := from; i < min(n, from+1000); i++ {
					jobs = append(jobs, Job{Body: fmt.Append(nil, i)})
				}
				b.put(jobs...)
			}
			until(t, "all delivered", func() bool { return b.target.count() == n })
			at := b.target.at
			slices.SortFunc(at, time.Time.Compare)
			worst := time.Hour
			for i := int(amount); i < n; i++ {
				worst = min(worst, at[i].Sub(at[i-int(amount)]))
			}
			first := 2 * int(amount) // at the beginning jobs are still being put
			rate := float64(n-1-first) / at[n-1].Sub(at[first]).Seconds()
			t.Logf("%.1f a second of %d; the narrowest window is %v", rate, amount, worst)
			if worst < time.Second || rate < 0.99*float64(amount) {
				t.Errorf("%.1f a second of %d, %d within %v", rate, amount, amount+1, worst)
			}
		})
	}
}
