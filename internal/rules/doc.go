// Package rules decides with expressions what happens to a request: it bypasses the room and is not
// counted, it is denied, or it waits in a lane.
//
// [New] compiles a list of rules to a [Set], once. [Set.Match] returns the first rule that matches
// a request. [Compile] compiles one expression. The language is that of Cloudflare's rules, as far
// as a proxy has the data; docs/rules.md describes it.
//
// # The promise
//
// An expression that compiles has the same meaning as at Cloudflare, apart from the differences in
// docs/rules.md. One that does not compile gives an [Error] with the column and what to write
// instead. The time for each expression and request is bounded: see the limits.
//
// # Concurrency
//
// A Set, an Expression and a List never change: any number of goroutines may use them. [Crawlers]
// may be used by many goroutines; its Run does the lookups.
//
// # What it costs
//
// A rule with a few comparisons costs about ten nanoseconds and allocates nothing. Exceptions that
// allocate are lower and upper of text that changes, a path that must be encoded, the full URI, and
// headers in several lines. matches costs what Go's regexp costs. Verified crawlers cost no
// waiting: an unknown one is looked up after the answer.
//
// # What it does not do
//
// It reads no request body and no response, knows no country and no score, and takes no action.
package rules
