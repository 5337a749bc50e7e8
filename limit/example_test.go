package limit_test

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/ratelimit"
)

// A bucket of 3 that gets a token each minute. Package ratelimit counts the calls of each key.
func Example() {
	rule := limit.Rule{Algorithm: limit.TokenBucket, Amount: 60, Window: time.Hour, Burst: 3}
	if err := rule.Check(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("at most", rule.MaxCost(), "at once, full after", rule.Refill())

	limiter, err := ratelimit.New(ratelimit.Config{Limits: []ratelimit.Limit{{Name: "api", Rule: rule}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 4 {
		got, err := limiter.Allow(context.Background(), ratelimit.Check{Limit: "api", Key: "ann", Cost: 1})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(got.Allowed, got.Remaining)
	}
	// Output:
	// at most 3 at once, full after 3m0s
	// true 2
	// true 1
	// true 0
	// false 0
}

func ExampleRule_Check() {
	fmt.Println(limit.Rule{Algorithm: limit.Concurrency, Amount: 8, Window: time.Second}.Check())
	// Output: invalid limit: concurrency has no window
}
