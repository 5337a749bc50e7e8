// Package limit is the arithmetic of rate limits: how many calls a key may make, and when
// the next may go.
//
// A [Rule] says how one key is limited, a [Table] holds what each key has used. Take asks
// for some, Peek asks only, Reserve takes an estimate and Settle says what it was.
//
// # The promise
//
// Each [Algorithm] says in its comment what it promises, exactly and in the worst case, and
// what it costs. Time comes from the caller; a clock that steps back stands still here, so
// nothing is given twice. Costs are whole numbers and nothing is rounded in favour of the
// caller: there is no float in a decision.
//
// # Concurrency and cost
//
// A Table is one value that its caller guards. A decision allocates nothing for a key that
// is known. Keys are created on first use and forgotten when they are as good as new, a few
// looked at with each decision, so that no pause grows with the number of keys. Memory is
// bounded by a number of keys: those beyond it share what one key may have. A key is known
// by its hash.
//
// # What it does not do
//
// It knows no names, machines or requests: package headgate does.
package limit
