// Package limittable decides by the rules of package limit: a [Table] holds what each key has used.
//
// Take takes an amount and Peek only checks it. Reserve takes an estimate, and Settle replaces the
// estimate by the real cost. Borrow lends to other processes, and Replicate repeats each change at a
// standby.
//
// # Guarantees
//
// Those of the algorithms. The caller supplies the time.
//
// # Concurrency and cost
//
// A Table is one value that its caller guards with a lock. A decision for a known key does not
// allocate. Keys are created on first use and removed when they are as good as new. Each decision
// checks a few keys for removal, so that no pause grows with the number of keys. Memory is limited
// by a number of keys; keys beyond it share the amount of one key. A key is identified by its hash.
//
// # The files
//
//	table, committed      decisions on all limits of a call; the most that can be in use
//	lend, waiters, hold   loans to other processes; who waits for one; slots that are held
//	algorithm, window     the algorithms: buckets, fixed windows, concurrency; sliding windows and logs
//	snapshot, keys        a table in bytes; its keys
//
// # Limits of the package
//
// It knows no names, machines or requests.
package limittable
