// Package ratelimit limits calls of an API: how often, how many at once, or how many bytes, counted
// separately for each client.
//
// A Limiter holds limits by name. Each Limit has an amount and one of the algorithms of package
// limit, and counts each key separately. A key is what a program chooses: an address, an API key, a
// tenant. Middleware derives it from the request, and answers calls above a limit with status 429
// and the headers RateLimit and Retry-After:
//
//	limiter, err := ratelimit.New(ratelimit.Config{Limits: []ratelimit.Limit{{
//		Name: "api",
//		Rule: limit.Rule{Algorithm: limit.SlidingLog, Amount: 100, Window: time.Minute},
//	}}})
//	…
//	http.ListenAndServe(":8080", ratelimit.Middleware(limiter, []ratelimit.RequestLimit{{
//		Name: "api", Key: []ratelimit.KeyPart{{Kind: ratelimit.KeyClientAddress}},
//	}}, api))
//
// A program that serves no HTTP calls Allow, or AllowAll for several limits of which all or none
// take the cost. If the cost is known only after the call, Reserve takes an estimate, and Settle
// replaces the estimate by the real cost. Peek and Explain take nothing.
//
// # Several processes
//
// With Config.Engine, processes share their limits. One process counts each key and lends amounts
// to the others, so that most calls cost no message, and the limit is exact over all processes.
// Limit.OnUnreachable says what happens while that process does not answer. Without an engine the
// counts are in memory, and a restart begins anew.
//
// # The files
//
//	middleware, key, longkey   requests, and the keys that they have
//	answer                     headers, and the answer 429
//	limiter, limit             the limits and their decisions
package ratelimit
