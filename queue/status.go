package queue

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
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

	// Failing says that all tries fail, or is nil: see Failing.
	Failing *Failing `json:"failing"`

	PausedTenants []string `json:"paused_tenants"` // sorted, at most MaxPausedTenants

	Ended     int    `json:"completions_waiting"` // jobs that have ended and that OnEnd has not got yet
	EndsError string `json:"completions_why"`     // why it does not get them, "" if all is well
}

// A Failing is a queue whose last tries have all failed, at least failingAfter of them. It ends with a job
// that is delivered, and when no job is left that could be.
type Failing struct {
	Since  time.Time `json:"since"` // the first of these tries
	Tries  int       `json:"tries"` // in a row, as far as outcomes are remembered
	Status int       `json:"status,omitempty"`
	Reason string    `json:"why"`
}

// failingAfter is after how many failures in a row a queue is failing. Chosen: a few jobs that a target
// cannot take come one after the other, and a target that is down has as many in seconds.
const failingAfter = 10

// MaxPausedTenants bounds the tenants that are paused. Chosen: they fit into one message.
const MaxPausedTenants = 500

// failed counts a try that failed. A target that asks for fewer jobs is well: beside many such answers it
// takes some jobs, and the queue would be failing by turns. 503 is the answer of one that is down, too. The
// caller holds mu.
func (h *host) failed(e *event) {
	if e.kind == eventBusy && e.code != http.StatusServiceUnavailable {
		return
	}
	f := Failing{Since: time.UnixMilli(e.at).UTC()}
	if h.failing != nil {
		f = *h.failing
	}
	f.Tries++
	f.Status, f.Reason = int(e.code), e.why
	h.failing = &f
}

// wasFailing counts the failures of earlier hosts: a queue does not get well by a handover.
func (h *host) wasFailing() {
	y := &h.index.history
	for i := range y.events[y.head:] {
		switch e := &y.events[y.head+i]; e.kind {
		case eventDelivered:
			h.failing = nil
		case eventRetry, eventBusy:
			h.failed(e)
		case eventDead:
			if e.attempt > 0 && !isUnsent(e.why) {
				h.failed(e)
			}
		}
	}
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
	Ended           int64   `json:"completions"`      // jobs that OnEnd has got
	EndsLost        int64   `json:"completions_lost"` // jobs that OnEnd will not get: too many waited
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
		Ended: t.ended.Load(), EndsLost: t.endsLost.Load(),
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
	s.Ended, s.EndsError = len(x.endings.all), h.endsErr
	s.Tenants, s.Paused, s.Reason, s.LastFailure = len(x.tenants), h.paused, h.waitErr, h.failure
	if j, ok := x.nextLater(); ok {
		s.NextIn = max(0, time.UnixMilli(j.at).Sub(now).Seconds())
	}
	if f := h.failing; f != nil && f.Tries >= failingAfter && s.Depth+s.Dead > 0 {
		s.Failing = f
	}
	s.PausedTenants = slices.Sorted(maps.Keys(x.stopped))
	if len(s.PausedTenants) == 0 {
		s.PausedTenants = []string{}
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

// A TenantStatus is where the jobs of one tenant are.
type TenantStatus struct {
	Tenant string `json:"tenant"`
	Paused bool   `json:"paused"`
	Weight int    `json:"weight"`
	InLine int    `json:"in_line"` // jobs that may go now; canceled ones count until it would be their turn
	Dead   int    `json:"dead"`
	// Jobs are those under way, those in line in the order in which they go, and those that wait for a time,
	// the soonest first. Jobs that wait for others of their order keys are not among them.
	Jobs []JobStatus `json:"jobs"`
}

// Bounds of a TenantStatus. Chosen: it takes some milliseconds in which no job goes.
const (
	tenantJobs    = 1000
	lookedAtLines = 100_000
	lookedAtSent  = 1000 // jobs under way, each read from the log for its tenant
)

// Tenant returns the state of a tenant, with up to count jobs, at most 1000. A tenant without jobs is no
// error.
func (q *Queue) Tenant(ctx context.Context, tenant string, count int) (TenantStatus, error) {
	if err := checkTenant(tenant); err != nil {
		return TenantStatus{}, err
	}
	r, err := q.doInTime(ctx, command{Op: opTenant, Tenant: tenant, Count: count})
	if err == nil && r.Tenant == nil {
		err = ErrNoHost
	}
	if err != nil {
		return TenantStatus{}, err
	}
	return *r.Tenant, nil
}

// tenant returns the state of a tenant.
func (h *host) tenant(ctx context.Context, name string, count int) (*TenantStatus, error) {
	h.mu.Lock()
	var sent []ref
	for r := range h.index.flying {
		if sent = append(sent, r); len(sent) == lookedAtSent {
			break
		}
	}
	h.mu.Unlock()
	jobs := map[ref]*flight{}
	read := func(r ref) (f *flight, err error) {
		jobs[r], err = (&dispatcher{host: h}).load(ctx, r)
		return jobs[r], err
	}
	slices.Sort(sent) // the jobs of a chunk are read together
	for _, r := range sent {
		if _, err := read(r); err != nil {
			return nil, err
		}
	}
	sent = slices.DeleteFunc(sent, func(r ref) bool { return jobs[r] == nil || jobs[r].head.tenant != name })
	count = max(0, min(count, tenantJobs))
	var s *TenantStatus
	unwritten := h.see(ctx, func() { s = h.lookAtTenant(name, sent, count) })
	if unwritten != nil || !h.holds() {
		return nil, ErrNoHost
	}
	for i := range s.Jobs {
		r, _ := parseRef(s.Jobs[i].ID)
		f, err := read(r)
		if err != nil {
			return nil, err
		}
		if f != nil {
			s.Jobs[i].Key = f.job.Key
		}
	}
	return s, nil
}

// lookAtTenant returns the state of a tenant as it is in memory. The caller holds mu.
func (h *host) lookAtTenant(name string, sent []ref, count int) *TenantStatus {
	x := h.index
	s := &TenantStatus{Tenant: name, Weight: max(1, x.weights[name]), Jobs: []JobStatus{}}
	_, s.Paused = x.stopped[name]
	for _, d := range x.dead {
		if d.tenant == name {
			s.Dead++
		}
	}
	if t := x.tenants[name]; t != nil {
		s.InLine = t.inLine()
	}
	for _, r := range append(sent, x.waitingOf(name, count)...) {
		j, err := h.look(&JobName{ID: r.String()})
		if len(s.Jobs) < count && err == nil && !j.HasEnded() {
			s.Jobs = append(s.Jobs, *j)
		}
	}
	return s
}

// waitingOf returns the first jobs of a tenant that wait in lines, and then those that wait for a time.
func (x *index) waitingOf(name string, count int) (all []ref) {
	looked := 0
	if t := x.tenants[name]; t != nil {
		for p := MaxPriority; p >= 0; p-- {
			l := t.lanes[p]
			number := l.popped
			for _, run := range l.runs[l.head:] {
				for i := range run.n {
					r := run.first + ref(i)
					if looked++; looked > lookedAtLines || len(all) == count {
						return all
					}
					if x.waiting(r) && !x.elsewhere(r, place{t.id, number, uint8(p)}) {
						all = append(all, r)
					}
					number++
				}
			}
		}
	}
	var later []laterJob
	for _, j := range x.later[:min(len(x.later), lookedAtLines)] { // the soonest are in front
		if j.tenant == name && x.due[j.ref] == j.at {
			later = append(later, j)
		}
	}
	slices.SortFunc(later, func(a, b laterJob) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.ref, b.ref))
	})
	for _, j := range later[:min(len(later), count-len(all))] {
		all = append(all, j.ref)
	}
	return all
}
