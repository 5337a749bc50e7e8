package queue

import (
	"errors"
	"math/rand/v2"
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
		return h.happens(note{kind: noteDone, ref: f.ref, done: []int{f.ref.index()},
			tried: int32(attempt), code: statusOf(o)}, eventDelivered)
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
		return h.bury(f.ref, f.head.tenant, note{attempt: attempt, tried: int32(attempt), code: statusOf(o),
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
func (h *host) bury(r ref, tenant string, n note) note {
	n.kind, n.ref, n.at = noteDead, r, time.Now().UnixMilli()
	n.text = h.intern(shorten(n.text))
	delete(h.index.flying, r)
	delete(h.index.tries, r)
	h.index.dead[r] = deadJob{n.attempt, n.at, n.text, tenant, n.code}
	h.q.totals.dead.Add(1)
	return h.happens(n, eventDead)
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
