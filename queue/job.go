package queue

import (
	"context"
	"time"
)

// A Job is one piece of work for the target of a queue.
type Job struct {
	ID       string            // given by the queue
	Queue    string            // given by the queue
	Key      string            // idempotency key, passed on; "" is none
	Tenant   string            // who it is for: tenants get fair shares
	Priority int               // 0 to 9, the greater goes first
	Cost     int64             // what it takes of the queue's limits; 0 is 1
	At       time.Time         // not before; zero is now
	MaxAge   time.Duration     // dead when it is older; 0 is what the queue says
	Headers  map[string]string // passed on
	Body     []byte
	Attempt  int       // 1 is the first; given by the queue
	Enqueued time.Time // given by the queue
}

// An Outcome says how a delivery went.
type Outcome struct {
	Err        error         // nil: done
	Retry      bool          // worth another attempt; else the job is dead at once
	Busy       bool          // the target says that it is overrun (429, 503)
	RetryAfter time.Duration // what the target said in Retry-After, 0 if nothing
}

// A Handler delivers jobs. Deliver is called by many goroutines at once, may block until ctx
// ends, and must not keep or change the job.
type Handler interface {
	Deliver(ctx context.Context, j *Job) Outcome
}
