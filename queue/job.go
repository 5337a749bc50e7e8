package queue

import (
	"context"
	"time"
)

// A Job is one piece of work for the target of a queue.
type Job struct {
	ID       string            // set by the queue
	Queue    string            // set by the queue
	Key      string            // idempotency key, sent to the target; "" is none
	OrderKey string            // jobs of a tenant with the same one go one at a time, in order
	Tenant   string            // tenants get fair shares
	Priority int               // 0 to MaxPriority; higher goes first
	Cost     int64             // cost in the queue's limits; 0 means 1
	At       time.Time         // earliest time of delivery; zero means now
	MaxAge   time.Duration     // the job is dead when older; 0 means the default of the queue
	Headers  map[string]string // sent to the target
	Body     []byte
	Attempt  int       // 1 is the first; set by the queue
	Enqueued time.Time // set by the queue
}

// An Outcome is the result of a delivery.
type Outcome struct {
	Err        error         // nil: delivered
	Retry      bool          // try again; if false, the job is dead at once
	Busy       bool          // the target is overloaded (429, 503)
	RetryAfter time.Duration // the target's Retry-After, 0 if none
	Status     int           // of the target's HTTP answer, 0 if none: shown in JobStatus
}

// A Handler delivers jobs. Deliver must be safe for concurrent use, may block until ctx ends, and
// must not keep or change the job. As long as a Deliver blocks after that, Run does not return and the
// process does not host the queue again. Another node begins 24 s after the end of the ctx of Run.
type Handler interface {
	Deliver(ctx context.Context, j *Job) Outcome
}

type holdsKey struct{}

// MaySend returns ErrNotSent if another node may host the queue now, and may have canceled or sent the job.
// A Handler that needs time before the target sees the job, such as for a connection, calls MaySend after
// that, with the ctx of Deliver. If it returns the error as the Err of its Outcome, the job waits again, and
// no attempt is used up.
func MaySend(ctx context.Context) error {
	if holds, ok := ctx.Value(holdsKey{}).(func() bool); ok && !holds() {
		return ErrNotSent
	}
	return nil
}
