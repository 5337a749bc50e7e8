// Package limit computes rate limits: how many calls a key may make, and when the next call may be
// made.
//
// A [Rule] says how one key is limited, and a [Table] holds what each key has used. Take takes an
// amount and Peek only checks it. Reserve takes an estimate, and Settle replaces the estimate by
// the real cost.
//
// # Guarantees
//
// The comment of each [Algorithm] states exactly what it guarantees, its worst case, and its cost.
// The caller supplies the time. If the clock steps back, time in the table stands still, so that
// nothing is given twice. Costs are integers, and nothing is rounded in favor of the caller: no
// decision uses floating-point numbers.
//
// # Concurrency and cost
//
// A Table is one value that its caller guards with a lock. A decision for a known key does not
// allocate. Keys are created on first use and removed when they are as good as new. Each decision
// checks a few keys for removal, so that no pause grows with the number of keys. Memory is limited
// by a number of keys; keys beyond it share the amount of one key. A key is identified by its hash.
//
// # Limitations
//
// The package knows no names, machines or requests: package headgate does.
package limit
