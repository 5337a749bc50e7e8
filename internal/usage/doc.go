// Package usage records what the keys of limits have used, by hour and by day.
//
// # The promise
//
// A unit is counted once, in the hour in which it was counted by the limit; a reservation when it is
// settled. A closed hour never changes, so a reader that follows the cursor counts no unit twice. What
// could not be recorded for a key is recorded as a sum of its limit.
//
// # How
//
// A Tally counts in memory, for one slot: a part of all keys. What it has counted is cut into batches with
// numbers, which a Keeper merges into the record of the slot and the present hour. The record knows the
// last number, so a batch that is written again, by the same node or by the standby that has taken over,
// changes nothing. When an hour is over, its record is closed, appended to a log, and merged into the
// record of the day, in the same way.
//
// # Concurrency
//
// A Tally is guarded by its caller. A Keeper may be used by many goroutines at once, but one slot only by
// one of them; slots of other processes are written by compare-and-swap.
//
// # The files
//
// From the top down: serve answers requests; read finds rows in the logs; flush writes what is due, and
// keeper has the records and logs; segment is the format of counts; tally counts.
package usage
