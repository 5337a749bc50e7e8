// Package limit describes rate limits: how many calls a key may make, and how they are counted.
//
// A [Rule] has an amount and one of six algorithms. The comment of each [Algorithm] states exactly
// what it guarantees, its worst case, and its cost. A [Decision] is the result for one call, and a
// [Usage] is what a key has used. Package ratelimit counts the calls.
//
// # Guarantees
//
// If the clock steps back, time stands still for a limit, so that nothing is given twice. Costs are
// integers, and nothing is rounded in favor of the caller: no decision uses floating-point numbers.
package limit
