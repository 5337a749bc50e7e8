// Package queue keeps jobs and delivers them at the pace that a target can take.
//
// # The promise
//
// A job is on the disk before whoever puts it is answered, and it is delivered at least once.
// No delivery begins that the queue's limits do not allow, and a rate is kept as the target
// counts it: what a job takes comes back one window after the answer. A job that only waits
// for capacity stays where it is and uses up no attempt.
//
// # Concurrency
//
// A [Queue] and a [Capacity] may be used by many goroutines at once. Run owns every goroutine
// and waits for it: who writes what is put, and on the one node that hosts the queue who
// reads the log, sends jobs out, notes outcomes and sweeps.
//
// # What it costs
//
// A bit for each job, 16 bytes for each run of jobs of one tenant and priority, some 50 for
// each idempotency key; 24 MB at most of chunks that were read. A write for all that is put
// at the same time, and one for all outcomes that come while the last is written.
//
// # What it does not do
//
// It keeps no order, and delivers no job exactly once: the key tells the target. It counts no
// limit itself: headgate.Limiter does, for all processes that share it. It knows no HTTP: a
// [Handler] does.
package queue
