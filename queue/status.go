package queue

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A Status is where a queue stands. Counts of what has happened are those of this process
// since it began.
type Status struct {
	Name      string  `json:"name"`
	Node      string  `json:"node,omitempty"` // that hosts it
	Depth     int     `json:"depth"`          // jobs that are not done with and not dead
	Later     int     `json:"later"`          // of them, those that go at a time
	InFlight  int     `json:"in_flight"`
	AtOnce    int     `json:"concurrency"` // the most that are in flight
	Dead      int     `json:"dead"`
	Tenants   int     `json:"tenants"`        // with something to do
	OldestAge float64 `json:"oldest_seconds"` // since the oldest job was put, 0 if there is none
	Paused    bool    `json:"paused"`
	Rate      float64 `json:"rate"`             // jobs a second that it is held to beside its limits, 0: none
	PerSecond float64 `json:"per_second"`       // delivered, over the last ten seconds
	EmptyIn   float64 `json:"empty_in_seconds"` // at this pace; -1: never
	NextIn    float64 `json:"next_seconds"`     // until the next of Later goes, 0 if there is none
	Reason    string  `json:"why"`              // nothing is delivered, "" if all is well
	Bytes     uint64  `json:"bytes"`            // kept on the disk
	Keys      int     `json:"keys"`             // idempotency keys known
	KeysCut   bool    `json:"keys_cut"`         // there were too many, and old ones were forgotten early
	Totals    Totals  `json:"totals"`

	// LastFailure is how the last delivery that failed went, nil if none has since this node
	// hosts the queue. Jobs that are tried again are among Later.
	LastFailure *Failure `json:"last_failure"`
}

// A Failure is a delivery that failed.
type Failure struct {
	ID     string    `json:"id"` // of the job
	At     time.Time `json:"at"`
	Reason string    `json:"why"` // at most a line
}

// Totals count what a queue has done since the process began.
type Totals struct {
	Put             int64   `json:"put"`
	Duplicates      uint64  `json:"duplicates"`
	Delivered       int64   `json:"delivered"`
	Retried         int64   `json:"retried"`
	Busy            int64   `json:"busy"`
	Dead            int64   `json:"dead"`
	DeliverySeconds float64 `json:"delivery_seconds"`
	NotesFailed     int64   `json:"write_failures"`
}

// totals are what a process counts of a queue.
type totals struct {
	put, found, delivered, retried, busy, dead, notesFailed, nanos atomic.Int64

	mu      sync.Mutex
	seconds [pastSeconds]int
	newest  int64 // the second that seconds[newest%pastSeconds] counts
}

const pastSeconds = 11 // ten whole ones, and the present one

func (t *totals) took(d time.Duration) { t.nanos.Add(int64(d)) }

// done counts a delivery.
func (t *totals) done(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turnLocked(now.Unix())
	t.seconds[t.newest%pastSeconds]++
}

func (t *totals) turnLocked(s int64) {
	if s-t.newest > pastSeconds {
		t.newest = s - pastSeconds
		t.seconds = [pastSeconds]int{}
	}
	for t.newest < s {
		t.newest++
		t.seconds[t.newest%pastSeconds] = 0
	}
}

// pace is how many were delivered a second, over ten whole seconds.
func (t *totals) pace(now time.Time) float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turnLocked(now.Unix())
	sum := 0
	for i := range int64(pastSeconds - 1) {
		sum += t.seconds[(t.newest+1+i)%pastSeconds]
	}
	return float64(sum) / (pastSeconds - 1)
}

// Moved is how many jobs this process has taken in, put out or found in the log since it
// began.
func (q *Queue) JobsMoved() int64 {
	t := &q.totals
	return t.put.Load() + t.delivered.Load() + t.found.Load()
}

func (t *totals) read() Totals {
	return Totals{Put: t.put.Load(), Delivered: t.delivered.Load(), Retried: t.retried.Load(),
		Busy: t.busy.Load(), Dead: t.dead.Load(), NotesFailed: t.notesFailed.Load(),
		DeliverySeconds: time.Duration(t.nanos.Load()).Seconds()}
}

// status tells where the queue stands.
func (h *host) status(ctx context.Context) Status {
	now := time.Now()
	s := Status{Name: h.q.cfg.Name, Node: h.q.cfg.Node, Totals: h.q.totals.read(),
		PerSecond: h.q.totals.pace(now)}
	ctx, stop := context.WithTimeout(ctx, lookFor)
	defer stop()
	if size, err := h.q.jobs.Size(ctx); err == nil {
		s.Bytes = size.Bytes
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.index
	s.Depth, s.Later, s.InFlight, s.Dead = x.left-len(x.dead), len(x.later), len(x.flying), len(x.dead)
	s.Tenants, s.Paused, s.Reason, s.LastFailure = len(x.tenants), h.paused, h.waitErr, h.failure
	if s.Later > 0 {
		s.NextIn = max(0, time.UnixMilli(x.later[0].at).Sub(now).Seconds())
	}
	set := h.q.set.Load()
	s.Rate, s.AtOnce = h.asked.inForce(set.Rate), set.Concurrency
	s.Keys, s.KeysCut, s.Totals.Duplicates = x.keys.count, x.keys.cut, x.duplicates
	if at := x.oldest(); !at.IsZero() && s.Depth > 0 {
		s.OldestAge = now.Sub(at).Seconds()
	}
	switch {
	case s.Depth == 0:
	case s.PerSecond > 0 && !s.Paused:
		s.EmptyIn = float64(s.Depth) / s.PerSecond
	default:
		s.EmptyIn = -1
	}
	return s
}
