// Package rules decides by expressions what happens to a request: it passes by a room and is
// not counted, it is refused, or it gets into a lane of its own.
//
// [New] compiles a list of rules to a [Set], once. [Set.Match] says of a request which rule is
// the first to match. [Compile] compiles one expression. The language is that of Cloudflare's
// rules, as far as a proxy can know what is asked; docs/rules.md describes it.
//
// # The promise
//
// An expression that compiles means here what it means there, but for what docs/rules.md lists.
// One that does not is an [Error] that points at the column and says what to write instead.
// No expression and no request takes more than a bounded time: see the limits.
//
// # Concurrency
//
// A Set, an Expression and a List never change: any number of goroutines may use them.
// [Crawlers] may be asked by many goroutines; its lookups are those of its Run.
//
// # What it costs
//
// A rule with a few comparisons costs some ten nanoseconds and allocates nothing, but for lower
// and upper of text that is not so already, a path that has to be encoded, the full URI, and
// headers that came in several lines. matches costs what Go's regexp costs. Verified crawlers
// cost no message: who is not known yet is looked up behind the answer.
//
// # What it does not do
//
// It reads no body and no answer, knows no country and no score, and does not act.
package rules
