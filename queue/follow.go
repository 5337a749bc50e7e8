package queue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// A JobName names one job: by its ID, or by its idempotency key as long as the queue remembers keys.
type JobName struct {
	ID  string `json:"id,omitempty"`
	Key []byte `json:"key,omitempty"` // any bytes; used if ID is ""
}

// NameJob returns the name of a job from text: an ID such as 184-0, and otherwise a key. A key that looks
// like an ID must be named with JobName.Key.
func NameJob(text string) JobName {
	if _, ok := parseRef(text); ok {
		return JobName{ID: text}
	}
	return JobName{Key: []byte(text)}
}

// The states of a job.
const (
	StateWaiting   = "waiting"   // in line, for its time, or for the next try
	StateUnderWay  = "under_way" // sent, and not answered
	StateDelivered = "delivered"
	StateDead      = "dead"
	StateCanceled  = "canceled"
	StatePurged    = "purged" // it was dead, and was purged
)

// A JobStatus is where a job is in its life. All of it is on disk: a status that says how a job has
// ended stays true when the host is killed.
type JobStatus struct {
	ID    string    `json:"id"`
	Key   string    `json:"key,omitempty"` // if the job was named by its key
	State string    `json:"state"`
	Put   time.Time `json:"put_at,omitzero"` // zero if the job is no longer stored

	// Of a waiting job. At is zero if it may go now: then it has a Position.
	At       time.Time `json:"at,omitzero"`
	Tenant   string    `json:"tenant,omitempty"`
	Priority int       `json:"priority,omitempty"`
	// Behind is the job of the same order key whose turn it is. A job that is behind it has no Position: it
	// goes when the jobs of this order key that were put before it have ended.
	Behind string `json:"behind,omitempty"`
	// Position is 1 for the job that is next of its tenant. It counts the jobs of the same tenant that go
	// before as the lines are now: those of a higher priority, and earlier ones. Canceled ones among them
	// count until it would have been their turn, so that it never rises by itself.
	Position int `json:"position,omitempty"`
	// Expected is the time until the job goes, in seconds, if the queue goes on as in the last ten
	// seconds, and all other tenants take their shares; -1: unknown, because nothing was delivered and no
	// rate is set, or the queue is paused.
	Expected *float64 `json:"expected_seconds,omitempty"`
	Paused   bool     `json:"paused,omitempty"` // its queue or its tenant is

	Since    time.Time `json:"since,omitzero"`    // under way since
	Worker   string    `json:"worker,omitempty"`  // that has claimed it
	Until    time.Time `json:"until,omitzero"`    // the end of its lease
	Ended    time.Time `json:"ended_at,omitzero"` // delivered, dead or canceled at
	Attempts int       `json:"attempts"`          // that count, including one under way
	Tries    []Try     `json:"tries"`             // the newest last; as many as are remembered, 50 at most
}

// HasEnded reports whether the job has been delivered, is dead, or was canceled or purged.
func (s *JobStatus) HasEnded() bool { return s.State != StateWaiting && s.State != StateUnderWay }

// A Try is something that has happened to a job, such as a delivery that failed.
type Try struct {
	At      time.Time `json:"at"`
	What    string    `json:"what"`             // delivered, retry, busy, dead, canceled, redriven, changed
	Attempt int       `json:"attempt"`          // 1 is the first; 0: the job was not sent
	Status  int       `json:"status,omitempty"` // of the target's HTTP answer
	Reason  string    `json:"why,omitempty"`
}

const (
	triesShown = 50
	// A node asks for the outcome of a job again and again, because the host may change meanwhile: soon
	// first, because most jobs take moments.
	firstAsk = 20 * time.Millisecond
	mostAsk  = 500 * time.Millisecond
)

// Job returns the state of a job. If wait is not 0, Job returns when the job has ended, or the state
// after this time. The error is ErrNoJob if the queue does not know the job.
//
// The cost does not depend on how many jobs wait. Job reads nothing from disk.
func (q *Queue) Job(ctx context.Context, job JobName, wait time.Duration) (JobStatus, error) {
	end := time.Now().Add(wait)
	for pause := firstAsk; ; pause = min(2*pause, mostAsk) {
		r, err := q.doInTime(ctx, command{Op: opJob, Job: job})
		left := time.Until(end)
		switch {
		case errors.Is(err, ErrNoHost): // another one may begin
		case err != nil:
			return JobStatus{}, err
		case r.Job == nil:
			return JobStatus{}, ErrNoHost
		case r.Job.HasEnded():
			return *r.Job, nil
		}
		if left <= 0 {
			if err != nil {
				return JobStatus{}, err
			}
			return *r.Job, nil
		}
		select {
		case <-time.After(min(pause, left)):
		case <-q.ended:
			return JobStatus{}, ErrClosed
		case <-ctx.Done():
			return JobStatus{}, ctx.Err()
		}
	}
}

// Cancel removes a job that waits. When it returns nil, that is on disk, and no attempt to deliver the job
// begins any more, on any node. A job that was canceled before is no error. The error is ErrUnderWay if the
// job is being delivered, ErrEnded if it was delivered or is dead, ErrNoJob if the queue does not know it,
// and ErrUnsure if it is not certain that the cancellation was written: cancel it again.
func (q *Queue) Cancel(ctx context.Context, job JobName) (JobStatus, error) {
	return q.alter(ctx, command{Op: opCancel, Job: job})
}

// A JobChange says what to change of a waiting job. Nil fields stay.
type JobChange struct {
	At       *time.Time `json:"at,omitempty"` // not before this time; a time in the past means now
	Priority *int       `json:"priority,omitempty"`
}

// Change changes the time or the priority of a job that waits. It then stands behind the other jobs of its
// line; one with an order key keeps its place among those of the key. Its maximum age counts from its new
// time, if that is later. When Change returns nil, the change is on disk. The errors are those of Cancel,
// and ErrJob for a value that no job may have.
func (q *Queue) Change(ctx context.Context, job JobName, to JobChange) (JobStatus, error) {
	check := Job{}
	if to.At != nil {
		check.At = *to.At
	}
	if to.Priority != nil {
		check.Priority = *to.Priority
	}
	if err := check.check(time.Now()); err != nil {
		return JobStatus{}, err
	}
	if to.At == nil && to.Priority == nil {
		return JobStatus{}, fmt.Errorf("%w: neither a time nor a priority to change", ErrJob)
	}
	return q.alter(ctx, command{Op: opChange, Job: job, Change: &to})
}

func (q *Queue) alter(ctx context.Context, c command) (JobStatus, error) {
	r, err := q.doInTime(ctx, c)
	switch {
	case errors.Is(err, errNoAnswer):
		return JobStatus{}, fmt.Errorf("%w: %v", ErrUnsure, err)
	case err != nil:
		return JobStatus{}, err
	case r.Job == nil:
		return JobStatus{}, ErrUnsure
	}
	return *r.Job, nil
}

// doInTime performs a command. It waits no longer for a disk that does not answer than for another node.
func (q *Queue) doInTime(ctx context.Context, c command) (result, error) {
	ctx, stop := context.WithTimeout(ctx, writeWait)
	defer stop()
	return q.do(ctx, c)
}

// job returns the state of a job.
func (h *host) job(ctx context.Context, name *JobName) (*JobStatus, error) {
	if err := h.knows(ctx, name); err != nil {
		return nil, err
	}
	var s *JobStatus
	var err error
	if unwritten := h.see(ctx, func() { s, err = h.look(name) }); unwritten != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoHost, unwritten)
	}
	if !h.holds() { // another host may know better
		return nil, ErrNoHost
	}
	return s, err
}

// knows waits until this host has read the chunk of a job, which another node may have just written.
func (h *host) knows(ctx context.Context, name *JobName) error {
	r, ok := parseRef(name.ID)
	if !ok {
		return nil
	}
	h.mu.Lock()
	read := h.read
	h.mu.Unlock()
	if r.chunk() <= read {
		return nil
	}
	look, stop := context.WithTimeout(ctx, lookFor)
	defer stop()
	size, err := h.q.jobs.Size(look)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoHost, err)
	}
	if r.chunk() > size.Last {
		return ErrNoJob
	}
	if err := h.reaches(ctx, r.chunk()); err != nil {
		return fmt.Errorf("%w: %w", ErrNoHost, err)
	}
	return nil
}

// resolve returns the job of a name. The caller holds mu.
func (h *host) resolve(name *JobName, now time.Time) (ref, bool) {
	if name.ID != "" {
		return parseRef(name.ID)
	}
	return h.index.seen(string(name.Key), now)
}

// look returns the state of a job, as it is in memory. The caller holds mu.
func (h *host) look(name *JobName) (*JobStatus, error) {
	now := time.Now()
	r, ok := h.resolve(name, now)
	if !ok {
		return nil, ErrNoJob
	}
	x := h.index
	s := &JobStatus{ID: r.String(), Key: string(name.Key), Tries: []Try{}}
	if name.ID != "" {
		s.Key = ""
	}
	c := x.chunks[r.chunk()]
	if c != nil {
		s.Put = time.Unix(0, c.at).UTC()
	}
	var last *event // that is not a change
	for e := range x.history.of(r, now.UnixMilli()) {
		if last == nil && e.kind != eventChanged {
			last = e
		}
		s.Tries = append(s.Tries, e.try())
		if len(s.Tries) == triesShown {
			break
		}
	}
	slices.Reverse(s.Tries)
	if c == nil || r.index() >= int(c.n) || c.done(r.index()) {
		return s, s.end(last)
	}
	s.Attempts = x.tries[r].attempt
	if since, ok := x.flying[r]; ok {
		s.State, s.Since, s.Attempts = StateUnderWay, time.UnixMilli(since).UTC(), s.Attempts+1
		if c := x.claims[r]; c != nil {
			s.Worker, s.Until = c.worker, c.until.UTC()
		}
	} else if d, ok := x.dead[r]; ok {
		s.State, s.Ended, s.Attempts = StateDead, time.UnixMilli(d.at).UTC(), d.attempt
		if len(s.Tries) == 0 { // forgotten
			s.Tries = append(s.Tries, Try{At: s.Ended, What: StateDead, Attempt: d.attempt, Reason: d.why})
		}
	} else {
		h.wait(s, r, now)
	}
	return s, nil
}

// end says how a job has ended that is not there any more.
func (s *JobStatus) end(last *event) error {
	if last == nil {
		return ErrNoJob
	}
	s.Ended, s.Attempts = time.UnixMilli(last.at).UTC(), int(last.attempt)
	switch last.kind {
	case eventDelivered:
		s.State = StateDelivered
	case eventCanceled:
		s.State = StateCanceled
	default:
		s.State, s.Ended = StatePurged, time.Time{}
	}
	return nil
}

// wait says for what a job waits. The caller holds mu.
func (h *host) wait(s *JobStatus, r ref, now time.Time) {
	x := h.index
	s.State = StateWaiting
	if at, ok := x.due[r]; ok {
		s.At = time.UnixMilli(at).UTC()
	}
	if of, at := x.waitsBehind(r); of != nil {
		s.Behind, s.Tenant, s.Priority = of.first.String(), of.tenant.name, int(x.rank(r, at.priority))
		s.Paused = h.paused || of.tenant.paused
		return
	}
	if !s.At.IsZero() {
		return
	}
	at, ok := x.placeOf(r)
	t := x.ids[at.tenant]
	if !ok || t == nil {
		return
	}
	own := t.ahead(at)
	s.Tenant, s.Priority, s.Position = t.name, int(at.priority), own+1
	pace := h.q.totals.pace(now)
	if pace == 0 {
		pace = h.rate(h.q.set.Load())
	}
	expected := -1.0
	s.Paused = h.paused || t.paused
	if pace > 0 && !s.Paused {
		expected = math.Round(float64(x.aheadOfAll(t, own)+1)/pace*1000) / 1000
	}
	s.Expected = &expected
}

// try returns an event for people.
func (e *event) try() Try {
	t := Try{At: time.UnixMilli(e.at).UTC(), Attempt: int(e.attempt), Status: int(e.code), Reason: e.why}
	switch e.kind {
	case eventDelivered:
		t.What = StateDelivered
	case eventDead:
		t.What = StateDead
	case eventCanceled:
		t.What = StateCanceled
	case eventRetry:
		t.What = "retry"
	case eventBusy:
		t.What = "busy"
	case eventRedriven:
		t.What = "redriven"
	case eventChanged:
		t.What = "changed"
	default:
		t.What = "unknown" // a later version has written it
	}
	return t
}

// waits returns a job that waits, or an error that says why it does not. The caller holds mu.
func (h *host) waits(name *JobName) (r ref, s *JobStatus, err error) {
	s, err = h.look(name)
	switch {
	case err != nil:
		return 0, nil, err
	case s.State == StateUnderWay:
		return 0, s, ErrUnderWay
	case s.State != StateWaiting:
		return 0, s, fmt.Errorf("%w: it is %s", ErrEnded, s.State)
	}
	r, _ = parseRef(s.ID)
	return r, s, nil
}

// cancel removes a waiting job. From the moment on in which mu is held this host does not send the job,
// and the note says so to the next one. A former host that still believes has stopped sending before this
// host began: see silent.
func (h *host) cancel(ctx context.Context, name *JobName) (*JobStatus, error) {
	var f *flight // what only the log knows of it
	if h.wantsEnd(eventCanceled) {
		h.mu.Lock()
		r, ok := h.resolve(name, time.Now())
		h.mu.Unlock()
		if ok {
			var err error
			if f, err = (&dispatcher{host: h}).load(ctx, r); err != nil {
				return nil, fmt.Errorf("%w: %w", ErrNoHost, err)
			}
		}
	}
	s, err := h.alterJob(ctx, name, func(r ref, s *JobStatus) []note { return h.strike(r, s, f) })
	if errors.Is(err, ErrEnded) && s.State == StateCanceled {
		return s, nil // it was canceled before
	}
	return s, err
}

// strike removes a waiting job. f is the stored job, or nil. The caller holds mu.
func (h *host) strike(r ref, s *JobStatus, f *flight) []note {
	if f == nil || f.ref != r { // its chunk is gone, or its key is of another job since a moment ago
		f = &flight{ref: r}
	}
	x := h.index
	n := note{kind: noteDone, ref: r, done: []int{r.index()}, tried: int32(s.Attempts)}
	if of, _ := x.waitsBehind(r); of != nil {
		x.leaveBehind(of, r)
	} else {
		if s.At.IsZero() {
			x.stale++
		}
		x.finish(r)
		x.tidy()
	}
	s.State, s.Ended = StateCanceled, time.UnixMilli(time.Now().UnixMilli()).UTC()
	s.At, s.Behind, s.Position, s.Expected = time.Time{}, "", 0, nil
	return []note{h.ends(n, eventCanceled, f)}
}

// alterJob makes a change to a waiting job, and returns when it is on disk.
func (h *host) alterJob(
	ctx context.Context, name *JobName, change func(ref, *JobStatus) []note,
) (s *JobStatus, err error) {
	if err := h.knows(ctx, name); err != nil {
		return nil, err
	}
	wrote := h.sayNow(ctx, func() (notes []note) {
		if !h.holds() {
			err = ErrNoHost
			return nil
		}
		var r ref
		if r, s, err = h.waits(name); err == nil {
			notes = change(r, s)
		}
		return notes
	})
	switch {
	case wrote != nil: // one of several entries may be there
		return nil, fmt.Errorf("%w: %v", ErrUnsure, wrote)
	case err != nil:
		return s, err
	case s.State == StateCanceled:
		return s, nil // it may be forgotten already
	}
	if s, err = h.job(ctx, name); errors.Is(err, ErrNoHost) {
		return nil, fmt.Errorf("%w: %v", ErrUnsure, err)
	}
	return s, err
}

// changeJob changes the time or the priority of a waiting job.
func (h *host) changeJob(ctx context.Context, name *JobName, to *JobChange) (*JobStatus, error) {
	if to == nil {
		return nil, fmt.Errorf("%w: nothing to change", ErrJob)
	}
	// The tenant of a job that waits for its time stands only in the log.
	var f *flight
	h.mu.Lock()
	r, ok := h.resolve(name, time.Now())
	h.mu.Unlock()
	if ok {
		var err error
		if f, err = (&dispatcher{host: h}).load(ctx, r); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoHost, err)
		}
	}
	if !ok {
		return nil, ErrNoJob
	}
	s, err := h.alterJob(ctx, &JobName{ID: r.String()}, func(r ref, s *JobStatus) []note {
		if f == nil { // somebody has deleted its chunk
			return nil
		}
		return h.move(f, s, to)
	})
	if f == nil && err == nil {
		return nil, ErrNoJob
	}
	return s, err
}

// move gives a waiting job another place. One that is behind others of its order key stays behind them: its
// time and its priority count when its turn has come. The caller holds mu.
func (h *host) move(f *flight, s *JobStatus, to *JobChange) (notes []note) {
	x, r := h.index, f.ref
	at := x.due[r]
	if s.Behind == "" {
		if s.At.IsZero() {
			x.stale++
		}
		delete(x.moved, r)
	}
	delete(x.due, r)
	if to.Priority != nil {
		x.priorities[r] = uint8(*to.Priority)
		notes = append(notes, note{kind: noteRank, ref: r, rank: uint8(*to.Priority)})
	}
	if to.At != nil {
		t := x.tries[r]
		if at = to.At.UnixMilli(); at <= time.Now().UnixMilli() {
			at = 0
		}
		if at > 0 {
			t.since = max(t.since, at)
		}
		x.tries[r] = t
		notes = append(notes, note{kind: noteTry, ref: r, attempt: t.attempt, since: t.since, at: at})
	}
	switch {
	case s.Behind == "":
		x.again(r, &f.head, at)
		x.tidy()
	case at > 0:
		x.due[r] = at
	}
	if n := len(notes) - 1; n >= 0 {
		notes[n].tried = int32(x.tries[r].attempt)
		notes[n] = h.happens(notes[n], eventChanged)
	}
	return notes
}
