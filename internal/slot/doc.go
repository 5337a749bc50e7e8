// Package slot lends slots and gets them back: the arithmetic of headgate.
//
// A slot is the right for one thing to be inside until a time. A Limit says
// how many there are. A Pool is the lender's side of one counter, a Share the
// borrower's; Anywhere lends to counters exactly as a counter lends to
// workers. A Line is the waiting line of a room, Lines are it and its lanes.
//
// # The promise
//
// At every instant slots used ≤ the limit, whatever is lost, repeated, late,
// reordered, paused or killed. One rule carries it: what was lent and not heard
// back from is presumed used. The package follows docs/protocol.md; its
// invariants I1–I6 are checked after each step of a random walk with faults
// that runs this very code (walk_test.go).
//
// # Concurrency
//
// None. No goroutine, lock, I/O or clock: the caller passes its own monotonic
// clock (time.Duration since boot, counting suspend) and guards each value.
//
// # What it costs
//
// A Pool's record is a few KB however many people are inside; a Line takes
// less than 16 bytes a ticket. Admission from a share touches no record.
//
// # What it does not do
//
// It does not store the record, carry messages or choose a host: see
// internal/counter. It does not know cookies or HTTP: see the root package.
package slot
