package queue

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A claim is a job that a worker has, until its lease ends.
type claim struct {
	flight
	secret secret
	worker string
	since  time.Time
	until  time.Time
	by     *member // that holds its capacity; nil: none
}

// note returns the note of a claim. since is that of the tries of its job.
func (c *claim) note(since int64) note {
	return note{kind: noteClaim, ref: c.ref, attempt: c.job.Attempt, at: c.since.UnixMilli(), since: since,
		until: c.until.UnixMilli(), secret: c.secret, text: c.worker}
}

// restored returns a claim of an earlier host.
func restored(n *note, h *head) *claim {
	return &claim{flight: flight{ref: n.ref, pulled: true,
		job:  Job{Attempt: n.attempt, Key: string(h.key), OrderKey: string(h.order)},
		head: head{tenant: h.tenant, priority: h.priority, cost: h.cost}},
		secret: n.secret, worker: n.text, since: time.UnixMilli(n.at), until: time.UnixMilli(n.until)}
}

// An asker is a worker that waits for jobs.
type asker struct {
	Want
	claims []*claim // not handed over yet: their leases have not begun
	bytes  int
	since  time.Time // the first of claims, or the request
	got    []Claimed
	done   chan error // capacity 1: what it got is on disk, or there is nothing
}

// claimFor claims jobs for a worker of another node.
func (h *host) claimFor(ctx context.Context, w *Want) ([]sentClaim, error) {
	if w == nil {
		return nil, ErrClaim
	}
	if err := w.check(); err != nil {
		return nil, err
	}
	jobs, err := h.claim(ctx, *w)
	all := make([]sentClaim, len(jobs))
	for i := range jobs {
		j := &jobs[i]
		all[i] = sentClaim{j.Receipt, appendJob(nil, &j.Job), j.Attempt, j.Enqueued, j.Until}
	}
	return all, err
}

// claim waits for jobs.
func (h *host) claim(ctx context.Context, w Want) ([]Claimed, error) {
	a := &asker{Want: w, since: time.Now(), done: make(chan error, 1)}
	h.mu.Lock()
	usual := h.q.set.Load().Lease
	a.Lease = cmp.Or(w.Lease, usual)
	switch {
	case usual == 0:
		h.mu.Unlock()
		return nil, ErrPush
	case len(h.askers) >= maxAskers:
		h.mu.Unlock()
		return nil, ErrBusy
	}
	h.askers = append(h.askers, a)
	h.mu.Unlock()
	h.nudge()
	wait := w.Wait
	if wait <= 0 {
		wait = claimNow
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	var why error
	select {
	case err := <-a.done:
		return h.got(ctx, a, err)
	case <-late.C:
	case <-h.left:
		why = ErrNoHost
	case <-ctx.Done():
		why = context.Cause(ctx)
	}
	h.mu.Lock()
	if i := slices.Index(h.askers, a); i >= 0 {
		h.askers = slices.Delete(h.askers, i, i+1)
		if why != nil || len(a.claims) == 0 {
			h.putBack(a)
			h.mu.Unlock()
			h.giveBackAll(a.claims)
			h.nudge()
			return nil, why
		}
		h.serveAsker(a)
	}
	h.mu.Unlock()
	return h.got(ctx, a, h.written(ctx, a.done))
}

// got returns what a worker got, or puts it back if the worker has left.
func (h *host) got(ctx context.Context, a *asker, err error) ([]Claimed, error) {
	if ctx.Err() == nil {
		if err != nil && !errors.Is(err, ErrPush) {
			err = fmt.Errorf("%w: %w", ErrNoHost, err)
		}
		if err != nil {
			return nil, err
		}
		return a.got, nil
	}
	h.mu.Lock()
	var ended []*claim
	for _, c := range a.claims {
		if h.index.claims[c.ref] == c {
			ended = append(ended, c)
			h.queueNotes([]note{h.end(c, opNack, &Nack{Untried: true})}, nil)
		}
	}
	h.mu.Unlock()
	h.giveBackAll(ended)
	h.nudge()
	return nil, context.Cause(ctx)
}

// putBack puts jobs that were not handed over back into the line. The caller holds mu.
func (h *host) putBack(a *asker) {
	for _, c := range a.claims {
		h.index.again(c.ref, &c.head, 0)
		h.free <- struct{}{}
	}
}

// giveBackAll returns the capacity of jobs that no worker has begun.
func (h *host) giveBackAll(claims []*claim) {
	if capacity := h.q.cfg.Capacity; capacity != nil {
		for _, c := range claims {
			if c.by != nil {
				capacity.giveBack(c.by, c.taken)
			}
		}
	}
}

// useAll counts the capacity of jobs as used.
func (h *host) useAll(claims []*claim) {
	if capacity := h.q.cfg.Capacity; capacity != nil {
		for _, c := range claims {
			capacity.answered(c.taken)
		}
	}
}

// wanted returns how many jobs, at most, could go now beside the next one, whether a worker wants that one,
// and if not, why, for people to read. The caller holds mu.
func (d *dispatcher) wanted(most int) (more int, wanted bool, idle string) {
	if d.set.Lease == 0 {
		return most, true, ""
	}
	for _, a := range d.askers {
		if more += a.Max - len(a.claims); more > most {
			break
		}
	}
	if len(d.askers) == 0 && len(d.index.flying) == 0 {
		idle = "no worker claims jobs"
	}
	return max(0, min(more-1, most)), len(d.askers) > 0, idle
}

// askerFor returns the worker that gets a job. One whose answer has no room for it is served. The caller
// holds mu.
func (d *dispatcher) askerFor(f *flight) *asker {
	for len(d.askers) > 0 {
		a := d.askers[0]
		if len(a.claims) == 0 || a.bytes+sizeOf(&f.job) <= claimBytes {
			return a
		}
		d.askers = d.askers[1:]
		d.serveAsker(a)
	}
	return nil
}

// sizeOf returns about how many bytes a job has in an answer.
func sizeOf(j *Job) int {
	n := 128 + len(j.Key) + len(j.OrderKey) + len(j.Tenant) + len(j.Body)
	for name, value := range j.Headers {
		n += len(name) + len(value)
	}
	return n
}

// hand gives a job to a worker, which is served when no other job comes soon. The caller holds mu.
func (d *dispatcher) hand(a *asker, f *flight) {
	f.pulled = true
	c := &claim{flight: *f, worker: a.Worker, by: d.self}
	rand.Read(c.secret[:]) // never fails
	now := time.Now()
	if len(a.claims) == 0 {
		a.since = now
	}
	a.claims = append(a.claims, c)
	// Jobs may come without a pause for long, each after a round trip to the host of a limit.
	if a.bytes += sizeOf(&f.job); len(a.claims) == a.Max || now.Sub(a.since) > 2*gather {
		d.askers = d.askers[1:]
		d.serveAsker(a)
	}
}

// handOver serves the workers that have jobs, and those that do not wait for any. next is when the next job
// goes, if it is known: those to come soon are gathered.
func (h *host) handOver(next time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	soon := !next.IsZero() && next.Sub(now) <= gather
	h.askers = slices.DeleteFunc(h.askers, func(a *asker) bool {
		if soon && now.Sub(a.since) < gather || len(a.claims) == 0 && a.Wait > 0 {
			return false
		}
		h.serveAsker(a)
		return true
	})
}

// serveAsker begins the leases of a worker's jobs, and answers when they are on disk. The caller holds mu.
func (h *host) serveAsker(a *asker) {
	now := time.Now()
	notes := make([]note, 0, len(a.claims))
	a.got = make([]Claimed, 0, len(a.claims))
	for _, c := range a.claims {
		c.since, c.until = time.UnixMilli(h.index.flying[c.ref]), now.Add(a.Lease)
		a.got = append(a.got, Claimed{c.job, receipt(c.ref, &c.secret), c.until.UTC().Round(0)})
		// The chunk need not stay in memory.
		c.job = Job{Attempt: c.job.Attempt, Key: c.job.Key, OrderKey: c.job.OrderKey}
		c.head.key, c.head.order = nil, nil
		h.index.claims[c.ref] = c
		notes = append(notes, c.note(h.index.tries[c.ref].since))
	}
	if len(notes) == 0 {
		a.done <- nil
		return
	}
	h.queueNotes(notes, a.done)
}

// dismiss sends all workers away.
func (d *dispatcher) dismiss(why error) {
	d.mu.Lock()
	all := d.askers
	d.askers = nil
	for _, a := range all {
		d.putBack(a)
		a.done <- why
	}
	d.mu.Unlock()
	for _, a := range all {
		d.giveBackAll(a.claims)
	}
}

// settleAll performs Ack, Nack or Extend. All receipts share a write.
func (h *host) settleAll(ctx context.Context, c *command) (all []Settled, err error) {
	var used, unused []*claim
	now := time.Now()
	// A queue that has a target by now has no lease of its own any more.
	lease := cmp.Or(c.Lease, h.q.set.Load().Lease, MinLease)
	wrote := h.sayNow(ctx, func() (notes []note) {
		if !h.holds() {
			err = ErrNoHost
			return nil
		}
		for _, text := range c.Receipts {
			one, cl := h.holderOf(text, now)
			switch {
			case cl == nil:
			case c.Op == opExtend:
				cl.until = now.Add(lease)
				one = Settled{ID: one.ID, Until: cl.until.UTC().Round(0)}
				notes = append(notes, cl.note(h.index.tries[cl.ref].since))
			default:
				one = Settled{ID: one.ID}
				h.q.totals.took(now.Sub(cl.since))
				notes = append(notes, h.end(cl, c.Op, &c.Nack))
				if c.Op == opNack && c.Nack.Untried {
					unused = append(unused, cl)
				} else {
					used = append(used, cl)
				}
			}
			all = append(all, one)
		}
		return notes
	})
	h.useAll(used)
	h.giveBackAll(unused)
	h.nudge() // now there is capacity
	if wrote != nil {
		return nil, fmt.Errorf("%w: %v", ErrUnsure, wrote)
	}
	return all, err
}

// holderOf returns the claim of a receipt, nil if there is none, and the answer if it does not count. The
// caller holds mu.
func (h *host) holderOf(text string, now time.Time) (Settled, *claim) {
	r, s, ok := parseReceipt(text)
	if !ok {
		return Settled{Code: CodeReceipt}, nil
	}
	one := Settled{ID: r.String(), Code: CodeLease}
	c := h.index.claims[r]
	if c != nil && subtle.ConstantTimeCompare(s[:], c.secret[:]) == 1 && now.Before(c.until) {
		return one, c
	}
	if is, err := h.look(&JobName{ID: one.ID}); err == nil {
		one.State = is.State
	}
	return one, nil
}

// end takes a job from its worker, and returns the note that says what becomes of it. The caller holds mu.
func (h *host) end(c *claim, op string, n *Nack) note {
	delete(h.index.claims, c.ref)
	h.free <- struct{}{} // it has room for all: each claim has taken its place from it
	switch {
	case op == opAck:
		return h.outcome(&c.flight, &Outcome{}, h.q.set.Load())
	case n.Untried:
		t, at := h.index.tries[c.ref], int64(0)
		if n.Delay > 0 {
			at = time.Now().Add(n.Delay).UnixMilli()
		}
		h.index.tries[c.ref] = t // restate writes it from here
		h.index.again(c.ref, &c.head, at)
		return note{kind: noteTry, ref: c.ref, attempt: t.attempt, since: t.since, at: at}
	}
	why := n.Reason
	if why == "" {
		why = "the worker has given it back"
	}
	return h.outcome(&c.flight, &Outcome{Err: errors.New(why), Retry: !n.Dead, RetryAfter: n.Delay},
		h.q.set.Load())
}

// endLeases ends leases when their time has come, until ctx ends.
func (h *host) endLeases(ctx context.Context) error {
	for {
		next := time.NewTimer(h.endLate(time.Now()))
		select {
		case <-next.C:
		case <-ctx.Done():
			next.Stop()
			return nil
		}
	}
}

// endLate ends the leases that are over, and returns when to look again. Nobody has to wake it for a new
// lease: MinLease is the shortest.
func (h *host) endLate(now time.Time) time.Duration {
	var late []*claim
	next := MinLease
	h.mu.Lock()
	for _, c := range h.index.claims {
		if left := c.until.Sub(now); left > 0 {
			next = min(next, left)
			continue
		}
		late = append(late, c)
	}
	slices.SortFunc(late, byRef)
	notes := make([]note, 0, len(late))
	for _, c := range late {
		why := "the lease ended before the worker answered"
		if c.worker != "" {
			why = "the lease ended before the worker " + c.worker + " answered"
		}
		notes = append(notes, h.end(c, opNack, &Nack{Reason: why}))
	}
	if len(notes) > 0 {
		h.queueNotes(notes, nil)
	}
	h.mu.Unlock()
	if len(late) > 0 {
		h.useAll(late)
		h.nudge()
	}
	return max(next, time.Millisecond)
}

func byRef(a, b *claim) int { return cmp.Compare(a.ref, b.ref) }

// countClaims counts the jobs that workers still have as used: this process cannot know when they are done.
func (h *host) countClaims() {
	h.mu.Lock()
	var all []*claim
	for _, c := range h.index.claims {
		all = append(all, c)
	}
	h.mu.Unlock()
	h.useAll(all)
}

// holdAgain takes the capacity of jobs that workers have claimed from an earlier host, before any other job
// goes: the target may still count them.
func (d *dispatcher) holdAgain(ctx context.Context) {
	c := d.q.cfg.Capacity
	if c == nil || len(d.set.Uses) == 0 {
		return
	}
	d.mu.Lock()
	var all []*claim
	for _, c := range d.index.claims {
		all = append(all, c)
	}
	d.mu.Unlock()
	slices.SortFunc(all, byRef)
	for _, cl := range all {
		for ctx.Err() == nil && d.has(cl) {
			until := d.holdOne(ctx, cl)
			if until.IsZero() {
				break
			}
			d.pause(ctx, until, false)
		}
	}
}

// has reports whether a worker still has a job.
func (h *host) has(c *claim) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.index.claims[c.ref] == c
}

// holdOne takes the capacity of one job, or returns when to try again.
func (d *dispatcher) holdOne(ctx context.Context, cl *claim) (again time.Time) {
	f, err := d.load(ctx, cl.ref)
	switch {
	case err != nil:
		return time.Now().Add(longWait)
	case f == nil:
		return again
	}
	c := d.q.cfg.Capacity
	t, no, err := c.take(ctx, d.self, d.set.Uses, load{tenant: f.head.tenant, cost: f.head.cost,
		bytes: int64(len(f.job.Body))})
	switch {
	case err != nil:
		return time.Now().Add(longWait)
	case no != nil && no.never != "": // the limit was changed meanwhile
		return again
	case no != nil:
		return no.until
	}
	d.mu.Lock()
	has := d.index.claims[cl.ref] == cl
	if has {
		cl.taken, cl.by = t, d.self
	}
	d.mu.Unlock()
	if !has {
		c.answered(t)
	}
	return again
}
