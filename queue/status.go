package queue

import (
	"context"
	"time"
)

// A Status is the state of a queue. Counts of events belong to this process and begin at its start.
type Status struct {
	Name      string  `json:"name"`
	Node      string  `json:"node,omitempty"` // the host
	Depth     int     `json:"depth"`          // unfinished jobs that are not dead
	Later     int     `json:"later"`          // jobs of Depth that wait until a time
	Behind    int     `json:"behind"`         // jobs of Depth that wait for others of their order keys
	InFlight  int     `json:"in_flight"`
	AtOnce    int     `json:"concurrency"` // maximum jobs in flight
	Dead      int     `json:"dead"`
	Tenants   int     `json:"tenants"`        // tenants with jobs
	OldestAge float64 `json:"oldest_seconds"` // age of the oldest job, 0 if there is none
	Paused    bool    `json:"paused"`
	Pulled    bool    `json:"pull"`             // workers claim the jobs
	Workers   int     `json:"workers_waiting"`  // workers that wait for jobs
	Rate      float64 `json:"rate"`             // maximum jobs per second beside the limits, 0: none
	PerSecond float64 `json:"per_second"`       // deliveries per second over the last ten seconds
	EmptyIn   float64 `json:"empty_in_seconds"` // at this pace; -1: never
	NextIn    float64 `json:"next_seconds"`     // until the next job of Later is due, 0 if there is none
	Reason    string  `json:"why"`              // why nothing is delivered, "" if all is well
	Bytes     uint64  `json:"bytes"`            // stored on disk
	Keys      int     `json:"keys"`             // idempotency keys remembered
	KeysCut   bool    `json:"keys_cut"`         // too many keys: old ones were forgotten early
	Totals    Totals  `json:"totals"`

	// LastFailure is the last delivery that failed, or nil if none has failed since this node
	// became the host. Jobs that are tried again are part of Later.
	LastFailure *Failure `json:"last_failure"`
}

// Totals counts what a queue has done since the process began.
type Totals struct {
	Put             int64   `json:"put"`              // jobs stored through this process
	Duplicates      uint64  `json:"duplicates"`       // jobs dropped because their key was known
	Delivered       int64   `json:"delivered"`        // jobs delivered
	Retried         int64   `json:"retried"`          // deliveries to be tried again
	Busy            int64   `json:"busy"`             // deliveries to an overloaded target
	Dead            int64   `json:"dead"`             // jobs that died
	Fired           int64   `json:"fired"`            // times of schedules that have got a job
	Missed          int64   `json:"missed"`           // times of schedules that have none
	DeliverySeconds float64 `json:"delivery_seconds"` // total time of deliveries
	NotesFailed     int64   `json:"write_failures"`   // failed writes of outcomes
}

const pastSeconds = 11 // ten complete seconds and the present one

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

// pace returns deliveries per second over the last ten complete seconds.
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

func (t *totals) read() Totals {
	return Totals{Put: t.put.Load(), Delivered: t.delivered.Load(), Retried: t.retried.Load(),
		Busy: t.busy.Load(), Dead: t.dead.Load(), Fired: t.fired.Load(), Missed: t.missed.Load(),
		NotesFailed: t.notesFailed.Load(), DeliverySeconds: time.Duration(t.nanos.Load()).Seconds()}
}

// status returns the state of the queue.
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
	s.Depth, s.Later, s.InFlight, s.Dead = x.left-len(x.dead), len(x.due), len(x.flying), len(x.dead)
	s.Behind = x.behind
	s.Tenants, s.Paused, s.Reason, s.LastFailure = len(x.tenants), h.paused, h.waitErr, h.failure
	if j, ok := x.nextLater(); ok {
		s.NextIn = max(0, time.UnixMilli(j.at).Sub(now).Seconds())
	}
	set := h.q.set.Load()
	s.Pulled, s.Workers = set.Lease > 0, len(h.askers)
	s.Rate, s.AtOnce = h.rate(set), set.Concurrency
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
