package ratelimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/ratelimit"
)

// Each client may call twice a minute.
func Example() {
	limiter, err := ratelimit.New(ratelimit.Config{Limits: []ratelimit.Limit{{
		Name: "api",
		Rule: limit.Rule{Algorithm: limit.FixedWindow, Align: limit.FirstHit, Amount: 2, Window: time.Minute},
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	api := ratelimit.Middleware(limiter, []ratelimit.RequestLimit{{
		Name: "api",
		Key:  []ratelimit.KeyPart{{Kind: ratelimit.KeyHeader, Name: "X-Client"}},
	}}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "welcome")
	}))

	for _, client := range []string{"ann", "ann", "ann", "bob"} {
		call := httptest.NewRequest("GET", "/", nil)
		call.Header.Set("X-Client", client)
		w := httptest.NewRecorder()
		api.ServeHTTP(w, call)
		fmt.Println(client, w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// ann 200 "api";r=1;t=60
	// ann 200 "api";r=0;t=60
	// ann 429 "api";r=0;t=60
	// bob 200 "api";r=1;t=60
}

// A call by one key of an organization to a route is checked against three limits. Either all take
// its cost or none does, and the results show which one rejected it.
func ExampleLimiter_AllowAll() {
	perMinute := func(name string, amount int64) ratelimit.Limit {
		return ratelimit.Limit{Name: name, Rule: limit.Rule{
			Algorithm: limit.SlidingLog, Amount: amount, Window: time.Minute}}
	}
	limiter, err := ratelimit.New(ratelimit.Config{Limits: []ratelimit.Limit{
		perMinute("organization", 1000), perMinute("key", 100), perMinute("route", 2)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	call := []ratelimit.Check{{Limit: "organization", Key: "acme", Cost: 1}, {Limit: "key", Key: "k1", Cost: 1},
		{Limit: "route", Key: "k1 POST /pay", Cost: 1}}
	for range 3 {
		verdicts, err := limiter.AllowAll(context.Background(), call, true)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, v := range verdicts {
			fmt.Printf("%s: %v, %d left; ", v.Limit.Name, v.Allowed, v.Remaining)
		}
		fmt.Println("that was all")
	}
	// Output:
	// organization: true, 999 left; key: true, 99 left; route: true, 1 left; that was all
	// organization: true, 998 left; key: true, 98 left; route: true, 0 left; that was all
	// organization: true, 998 left; key: true, 98 left; route: false, 0 left; that was all
}

// Some costs, such as the tokens of a language model, are known only after the call.
func ExampleLimiter_Reserve() {
	limiter, err := ratelimit.New(ratelimit.Config{Limits: []ratelimit.Limit{{
		Name: "tokens", Unit: ratelimit.CostUnits,
		Rule: limit.Rule{Algorithm: limit.SlidingLog, Amount: 10_000, Window: time.Minute}}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, ask := context.Background(), ratelimit.Check{Limit: "tokens", Key: "ann", Cost: 4000}
	for _, came := range []int64{2500, 0} { // the second call failed and costs nothing
		v, err := limiter.Reserve(ctx, ask, time.Minute)
		if err != nil || !v.Allowed {
			fmt.Println(v.Retry, err)
			return
		}
		fmt.Println("while it is under way:", v.Remaining)
		spent := ask
		spent.Cost = came
		if err := limiter.Settle(ctx, spent, v.ID); err != nil {
			fmt.Println(err)
			return
		}
		v, err = limiter.Peek(ctx, ask)
		fmt.Println("afterwards:", v.Remaining, err)
	}
	// Output:
	// while it is under way: 6000
	// afterwards: 7500 <nil>
	// while it is under way: 3500
	// afterwards: 7500 <nil>
}
