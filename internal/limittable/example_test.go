package limittable_test

import (
	"fmt"
	"hash/maphash"
	"time"

	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/limit"
)

// Two calls in a second for each key, by a clock of the caller. Package ratelimit has a limiter with
// a clock, which many goroutines may use.
func ExampleTable() {
	rules, err := limittable.Compile(limit.Rule{
		Algorithm: limit.SlidingLog, Amount: 2, Window: time.Second,
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	var table limittable.Table
	table.SetRules(0, rules, 1000) // 1,000 keys at most
	seed := maphash.MakeSeed()

	for _, at := range []time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond, time.Second} {
		d, err := table.Take(limittable.Time(at), maphash.String(seed, "ann"), "ann", 1)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(at, d.Allowed, d.Remaining, d.Retry)
	}
	// Output:
	// 0s true 1 0s
	// 100ms true 0 0s
	// 200ms false 0 800ms
	// 1s true 0 0s
}
