// Package queue stores jobs and delivers them at the pace that a target can take, or hands them to workers
// that claim them.
//
// # Guarantees
//
// A job is on disk before Put returns, and it is delivered at least once. No delivery begins unless
// the limits of the queue allow it. Rates are kept as the target counts them: the slots of a job
// become free one window after the answer. A job that only waits for capacity stays in the line and
// uses no attempt.
//
// A queue with a [Config.Lease] has no Handler: workers call [Queue.Claim], and then [Queue.Ack] or
// [Queue.Nack]. All the above holds for the time between the two.
//
// # Concurrency
//
// A [Queue] and a [Capacity] are safe for concurrent use. [Queue.Run] owns all goroutines and waits
// for them to end: one writes new jobs. On the node that hosts the queue, others read the log, send
// jobs, record outcomes and delete finished jobs.
//
// # Cost
//
// Memory: one bit per job, 28 bytes for each run of jobs of one tenant and priority, about 50 bytes
// per idempotency key, and at most 24 MB for chunks that were read. Disk: one write for all jobs
// that are put at the same time, and one write for all outcomes that arrive during the write
// before.
//
// # The files
//
// From the top down:
//
//	run                        opens a queue and runs it
//	export, reconfigure, json  jobs in and out of files; new settings of a running queue
//	command, dead, duplicates  what other nodes ask the host; dead jobs; keys
//	follow                     the state of one job; cancel and change it
//	pull, leases               workers that claim jobs; what the host knows of them
//	put, status                jobs of any node; totals
//	schedule                   jobs that the host puts at their times
//	host, dispatch, outcome    the host's loop and its notes; which job goes when; what becomes of it
//	queue                      the types such as Job, and Config
//	replay, index              what the notes say; jobs in memory
//	place, history             where a job waits; what has happened to it
//	note                       bytes of outcomes
//	chunk                      bytes and bounds of a job, such as MaxPriority
//	capacity                   limits
//
// # Limits of the package
//
// The queue does not keep jobs in order, and it does not deliver a job exactly once: the target
// must use the idempotency key to detect duplicates. The package does not count limits;
// ratelimit.Limiter does, for all processes that share them. It does not speak HTTP; a [Handler]
// does.
package queue
