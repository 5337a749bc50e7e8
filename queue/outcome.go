package queue

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// deliver passes a job to the handler and records the outcome.
func (d *dispatcher) deliver(f *flight) {
	if !d.holds() { // this process may no longer host the queue
		d.takeBack(f)
		return
	}
	set := d.q.set.Load()
	if set.Handler == nil { // workers claim the jobs since a moment ago
		d.takeBack(f)
		d.nudge()
		return
	}
	began := time.Now()
	o := set.Handler.Deliver(d.flight, &f.job)
	if errors.Is(o.Err, ErrNotSent) {
		d.takeBack(f)
		return
	}
	if c := d.q.cfg.Capacity; c != nil {
		c.answered(f.taken)
	}
	now := time.Now()
	d.q.totals.took(now.Sub(began))
	defer d.nudge()
	// The process ends, and nobody knows what the target did. The job stays in flight here: it must not
	// be canceled.
	if o.Err != nil && d.flight.Err() != nil {
		return
	}
	if throttle := set.Throttle; throttle != nil {
		switch {
		case o.Err == nil:
			throttle.Done(now)
		case o.Busy:
			throttle.Busy(now, o.RetryAfter)
		}
	}
	d.say(d.noting, func() note { return d.outcome(f, &o, set) })
}

// outcome changes the index by the outcome of a job that was under way, and returns its note. The caller
// holds mu.
func (h *host) outcome(f *flight, o *Outcome, set *Config) note {
	t, attempt := &h.q.totals, f.job.Attempt
	if o.Err == nil {
		t.delivered.Add(1)
		t.done(time.Now())
		h.failing = nil
		h.index.finish(f.ref)
		return h.ends(note{kind: noteDone, ref: f.ref, done: []int{f.ref.index()},
			tried: int32(attempt), code: statusOf(o)}, eventDelivered, f)
	}
	now, why := time.Now(), shorten(o.Err.Error())
	h.failure = &Failure{ID: f.ref.String(), At: now.UTC(), Reason: why}
	e := event{kind: eventRetry, at: now.UnixMilli(), why: why, code: statusOf(o)}
	if o.Busy {
		e.kind = eventBusy
	}
	h.failed(&e)
	switch {
	case o.Busy:
		t.busy.Add(1)
		return h.retry(f, attempt-1, max(o.RetryAfter, backoff(set, 1)), o) // no attempt is used up
	case !o.Retry || attempt >= set.MaxAttempts:
		return h.bury(f, note{attempt: attempt, tried: int32(attempt), code: statusOf(o),
			text: o.Err.Error()})
	}
	t.retried.Add(1)
	return h.retry(f, attempt, max(o.RetryAfter, backoff(set, attempt)), o)
}

// retry puts a job back into the line, to be sent again after a time. The caller holds mu.
func (h *host) retry(f *flight, attempt int, after time.Duration, o *Outcome) note {
	at := time.Now().Add(min(after, MaxWait)).UnixMilli()
	kind := byte(eventRetry)
	if o.Busy {
		kind = eventBusy
	}
	t := h.index.tries[f.ref]
	t.attempt = attempt
	h.index.tries[f.ref] = t
	h.index.again(f.ref, &f.head, at)
	return h.happens(note{kind: noteTry, ref: f.ref, attempt: attempt, at: at, since: t.since,
		tried: int32(f.job.Attempt), code: statusOf(o), text: h.intern(shorten(o.Err.Error()))}, kind)
}

// bury records that a job is dead. n has the attempts and the reason. The caller holds mu.
func (h *host) bury(f *flight, n note) note {
	n.kind, n.ref, n.at = noteDead, f.ref, time.Now().UnixMilli()
	n.text = h.intern(shorten(n.text))
	delete(h.index.flying, f.ref)
	delete(h.index.tries, f.ref)
	h.index.dead[f.ref] = deadJob{n.attempt, n.at, n.text, f.head.tenant, n.code}
	h.q.totals.dead.Add(1)
	return h.ends(n, eventDead, f)
}

// happens adds an event to a note, and to the history. The caller holds mu.
func (h *host) happens(n note, kind byte) note {
	if h.index.history.most > 0 {
		n.event, n.when = kind, time.Now().UnixMilli()
		h.index.history.add(n.happened())
	}
	return n
}

// intern returns the stored copy of a reason, so that dead jobs share its bytes.
func (h *host) intern(why string) string {
	if h.reasons == nil || len(h.reasons) > 1000 { // chosen: there are few different reasons
		h.reasons = map[string]string{}
	}
	if s, ok := h.reasons[why]; ok {
		return s
	}
	h.reasons[why] = why
	return why
}

// takeBack puts a job that was not sent back into the line.
func (d *dispatcher) takeBack(f *flight) {
	d.giveBack(f)
	d.mu.Lock()
	d.index.again(f.ref, &f.head, 0)
	d.mu.Unlock()
}

// shorten cuts a reason to the size that is stored.
func shorten(why string) string {
	if len(why) <= maxReason {
		return why
	}
	return strings.ToValidUTF8(why[:maxReason], "")
}

// statusOf returns the HTTP status of an answer, 0 if there was none.
func statusOf(o *Outcome) uint16 { return uint16(max(0, min(o.Status, 999))) }

// backoff returns how long to wait after this number of attempts. The wait doubles each time, and
// half of it is random, so that jobs that failed together do not come back together.
func backoff(c *Config, attempt int) time.Duration {
	b := c.MaxBackoff
	if shift := attempt - 1; shift < 40 && c.MinBackoff<<shift>>shift == c.MinBackoff {
		b = min(b, c.MinBackoff<<shift)
	}
	return b/2 + rand.N(b/2+1)
}

// An Ended is a job that has ended, for [Config.OnEnd]. A job that was redriven may end again.
type Ended struct {
	Queue, ID             string
	Key, OrderKey, Tenant string
	State                 string    // StateDelivered, StateDead or StateCanceled
	At                    time.Time // in whole milliseconds
	Attempts              int
	Status                int    // of the target's last HTTP answer, 0 if there was none
	Reason                string // why it is dead
}

// Ends returns the states in which a job ends.
func Ends() []string { return []string{StateDelivered, StateDead, StateCanceled} }

// endState returns the state in which a job is after an event, "" if it has not ended.
func endState(kind byte) string {
	switch kind {
	case eventDelivered:
		return StateDelivered
	case eventDead:
		return StateDead
	case eventCanceled:
		return StateCanceled
	}
	return ""
}

// An ending is a job that has ended and that OnEnd has not got yet.
type ending struct {
	number uint64 // of the jobs that have ended, from 1
	ref    ref
	at     int64 // milliseconds
	kind   byte  // of the event
	code   uint16

	attempt                 int32
	key, order, tenant, why string
}

// endings are the jobs that OnEnd has not got yet. They are in the notes, numbered, so that a number that is
// read twice counts once: the writer of a sum may be killed before it has deleted the notes before.
type endings struct {
	all     []*ending // the oldest first
	newest  uint64    // number of the newest one so far
	passed  uint64    // OnEnd has got those up to this number
	written uint64    // those up to this number are on disk
}

// add adds a job that has ended, and reports whether the oldest one is forgotten for it. A new host
// forgets the same ones, without a note.
func (x *endings) add(e *ending) (lost bool) {
	// A kill may leave some of the notes before a sum: then the sum has older ones than these.
	at, known := slices.BinarySearchFunc(x.all, e.number, func(e *ending, number uint64) int {
		return cmp.Compare(e.number, number)
	})
	if known || e.number <= x.passed {
		return false
	}
	x.newest, x.all = max(x.newest, e.number), slices.Insert(x.all, at, e)
	if lost = len(x.all) > MaxEnded; lost {
		x.pass(x.all[0].number)
	}
	return lost
}

// pass removes the jobs up to a number.
func (x *endings) pass(number uint64) {
	n := 0
	for ; n < len(x.all) && x.all[n].number <= number; n++ {
		x.all[n] = nil
	}
	if x.all = x.all[n:]; len(x.all) == 0 {
		x.all = nil // a burst keeps no memory
	}
	x.passed, x.newest = max(x.passed, number), max(x.newest, number)
}

// wantsEnd reports whether OnEnd gets the jobs that end with an event.
func (h *host) wantsEnd(kind byte) bool {
	set := h.q.set.Load()
	return set.OnEnd != nil && slices.Contains(set.Ends, endState(kind))
}

// ends adds to a note that a job has ended, and the event to the history. The caller holds mu.
func (h *host) ends(n note, kind byte, f *flight) note {
	n = h.happens(n, kind)
	if !h.wantsEnd(kind) {
		return n
	}
	x := &h.index.endings
	n.ended = &ending{number: x.newest + 1, ref: f.ref, at: time.Now().UnixMilli(), kind: kind, code: n.code,
		attempt: n.tried, key: f.job.Key, order: f.job.OrderKey, tenant: f.head.tenant, why: n.text}
	if x.add(n.ended) {
		h.q.totals.endsLost.Add(1)
	}
	return n
}

// endsWritten lets OnEnd get the jobs that have ended by notes that are on disk: what it gets stays true when
// this host is killed. The caller holds mu.
func (h *host) endsWritten(notes []note) {
	x := &h.index.endings
	if x.written == x.newest {
		return
	}
	for i := range notes {
		if e := notes[i].ended; e != nil {
			x.written = max(x.written, e.number)
		}
	}
	select {
	case h.endsDue <- struct{}{}:
	default: // it is about to look
	}
}

const (
	endsAtOnce = 1000        // that OnEnd gets; chosen: a few chunks
	endsAgain  = time.Second // after an error, and for new settings
)

// passEnds calls OnEnd until ctx ends.
func (h *host) passEnds(ctx context.Context) error {
	most, lost := endsAtOnce, h.q.totals.endsLost.Load()
	for {
		var err error
		for n := 1; n > 0 && err == nil; {
			n, err = h.passSome(ctx, most)
			most = min(2*most, endsAtOnce)
		}
		if ctx.Err() != nil {
			return nil
		}
		why := ""
		if err != nil {
			why, most = err.Error(), max(1, most/4) // there may be room for some of them
		}
		h.mu.Lock()
		said := why != "" && h.endsErr == ""
		h.endsErr = why
		h.mu.Unlock()
		now := h.q.totals.endsLost.Load()
		switch log := h.q.cfg.Log.With("queue", h.q.cfg.Name, "error", err); {
		case now > lost:
			log.Error("jobs have ended, and their completions are lost: too many wait", "jobs", now-lost)
		case said:
			log.Warn("completions of jobs cannot be handed over: it is tried again")
		}
		lost = now
		due := h.endsDue
		if err != nil {
			due = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-due:
		case <-time.After(endsAgain):
		}
	}
}

// passSome calls OnEnd with at most so many jobs, and returns their number.
func (h *host) passSome(ctx context.Context, most int) (n int, err error) {
	set := h.q.set.Load()
	var last uint64
	var some []Ended
	h.mu.Lock()
	x := &h.index.endings
	for _, e := range x.all[:min(len(x.all), most)] {
		if e.number > x.written {
			break
		}
		last = e.number
		some = append(some, Ended{Queue: h.q.cfg.Name, ID: e.ref.String(), Key: e.key, OrderKey: e.order,
			Tenant: e.tenant, State: endState(e.kind), At: time.UnixMilli(e.at).UTC(),
			Attempts: int(e.attempt), Status: int(e.code), Reason: e.why})
	}
	h.mu.Unlock()
	if len(some) == 0 {
		return 0, nil
	}
	if set.OnEnd != nil { // otherwise nobody wants them any more
		if err := set.OnEnd(ctx, some); err != nil {
			return 0, err
		}
		h.q.totals.ended.Add(int64(len(some)))
	}
	h.mu.Lock()
	x.pass(last)
	h.queueNotes([]note{{kind: notePassed, ended: &ending{number: last}}}, nil)
	h.mu.Unlock()
	return len(some), nil
}
