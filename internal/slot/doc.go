// Package slot lends slots and takes them back. It is the arithmetic of headgate.
//
// A slot is the right for one thing to be inside until a time. A Limit defines how many slots there
// are. A Pool is the lender's side of one counter, a Share the borrower's. Anywhere lends to
// counters exactly as a counter lends to workers. A Line is the waiting line of a room; Lines are
// that line and its lanes.
//
// # The promise
//
// At every instant, slots used ≤ the limit, whatever messages are lost, duplicated, late or
// reordered, and whatever process pauses or dies. One rule ensures this: slots that were lent and
// not reported back are presumed used. The package follows docs/protocol.md. A random walk with
// faults runs this code and checks the invariants I1–I6 after each step (walk_test.go).
//
// # Concurrency
//
// None. The package has no goroutine, lock, I/O or clock. Callers pass their own monotonic clock
// (time.Duration since boot, including suspend) and guard each value.
//
// # Cost
//
// A Pool's record is a few KB, independent of the number of visitors inside. A Line takes less than
// 16 bytes a ticket. Admission from a share touches no record.
//
// # The files
//
// From the top down:
//
//	check                       the invariants, for tests and simulations
//	build, wire                 the next record of a Pool, and messages between nodes
//	items, parent, parentloans  claims and sessions; a counter's loan from Anywhere, and its loans
//	share                       the borrower's side
//	pool, probation             the lender's side; first admissions and what probably no person sent
//	lines, order                the line and its lanes; the order of a draw
//	codec, record               the record in bytes, and its types
//	line_call, line_kept        who is called next, by order or at random; slots kept for silent places
//	line_record                 what a record keeps of a line
//	line_provisional, line      tickets whose cookie has not come back; places, polls, positions
//	message, limit              Sync and Answer; Limit, and Params: T and other defaults of the protocol
//	draw, ends, line_chunk, clock  types that all use
//
// # Limits of the package
//
// It does not store the record, carry messages or choose a host: see internal/counter. It does not
// handle cookies or HTTP: see the root package.
package slot
