package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/store"
)

// A dispatcher sends jobs one after the other, each as soon as it may leave.
type dispatcher struct {
	*host
	flight context.Context // of the deliveries
	noting context.Context // for notes, also about deliveries that were canceled
	wg     *sync.WaitGroup // waits for the deliveries

	set    *Config // the configuration in use
	places int     // number of deliveries at once, free or taken
	held   *flight // has capacity already, and waits for the throttle
}

// A flight is a job that is about to be delivered.
type flight struct {
	ref    ref
	head   head
	job    Job
	taken  taken
	pulled bool // a worker has it
}

// run delivers jobs until ctx ends. A job is chosen only when a place is free: no job waits in a
// channel while one of higher priority arrives.
func (d *dispatcher) run(ctx context.Context, begun bool) error {
	if begin := d.q.set.Load().OnHost; begin != nil {
		begin(ctx)
	}
	defer d.letGo()
	defer d.dismiss(ErrNoHost)
	d.adopt(ctx)
	if begun { // jobs of another host may still count
		d.resumeRate()
		d.warmUp(ctx, d.quiet)
		d.holdAgain(ctx)
	}
	for ctx.Err() == nil {
		d.adopt(ctx)
		if !d.hasPlace(ctx) {
			continue
		}
		f := d.next(ctx)
		switch {
		case f == nil:
			d.free <- struct{}{}
		case !f.pulled:
			d.wg.Go(func() {
				defer func() { d.free <- struct{}{} }()
				d.deliver(f)
			})
		}
	}
	return nil
}

// hasPlace waits until one more job may be under way, and takes its place.
func (d *dispatcher) hasPlace(ctx context.Context) bool {
	select {
	case <-d.free:
	default:
		d.handOver(time.Time{})
		wake := d.wake
		if d.set.Lease == 0 {
			wake = nil
		}
		select {
		case <-d.free:
		case <-wake: // perhaps of a worker that does not wait
			return false
		case <-d.q.changed:
			return false
		case <-ctx.Done():
			return false
		}
	}
	if d.places > d.set.Concurrency {
		d.places--
		return false
	}
	return true
}

// rate returns the maximum jobs per second beside the limits; 0 is no bound. The caller holds mu.
func (h *host) rate(set *Config) float64 {
	if h.paced(set) {
		return set.Pace()
	}
	return h.asked.inForce(set.Rate)
}

// paced reports whether Pace gives the rate. The caller holds mu.
func (h *host) paced(set *Config) bool {
	isAsked := h.asked.is && h.asked.of == set.Rate && h.asked.rate > 0
	return set.Pace != nil && !isAsked
}

// resumeRate continues the rate of the host before: it may have sent a job right before it was quiet.
// A rate of less than one in longestWin is not waited for in full, as with limits.
func (d *dispatcher) resumeRate() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if rate := d.rate(d.set); rate > 0 {
		d.nextAt = d.quiet.Add(min(time.Duration(float64(time.Second)/rate), longestWin))
	}
}

// adopt switches to the configuration that Reconfigure has set.
func (d *dispatcher) adopt(ctx context.Context) {
	set, was := d.q.set.Load(), d.set
	if set == was {
		return
	}
	if was != nil {
		d.handOver(time.Time{})
	}
	if set.Lease == 0 {
		d.dismiss(ErrPush)
	}
	if c := d.q.cfg.Capacity; c != nil && was != nil {
		d.letGo() // its limits may be different now
		c.leave(d.self)
	}
	d.set, d.self = set, &member{weight: float64(set.Weight), smooth: !set.Burst}
	d.mu.Lock()
	d.index.configure(set.Weights, set.KeyWindow)
	d.index.keys.most = set.MaxWaiting
	d.index.history.configure(set.Outcomes, set.OutcomeAge)
	d.mu.Unlock()
	if was != nil && !slices.Equal(set.Uses, was.Uses) {
		d.mu.Lock()
		d.waitErr = "the limits have changed: nothing goes until what is under way has ended"
		d.mu.Unlock()
		d.land(ctx) // new limits do not know about jobs in flight
		d.warmUp(ctx, time.Now())
	}
	for ; d.places < set.Concurrency; d.places++ {
		d.free <- struct{}{}
	}
}

// land waits until no delivery is in flight.
func (d *dispatcher) land(ctx context.Context) {
	n := 0
	for ; n < d.places && ctx.Err() == nil; n++ {
		select {
		case <-d.free:
		case <-ctx.Done():
		}
	}
	for range n {
		d.free <- struct{}{}
	}
}

// warmUp waits until nothing that was sent before from counts at the target any more.
func (d *dispatcher) warmUp(ctx context.Context, from time.Time) {
	c := d.q.cfg.Capacity
	if c == nil {
		return
	}
	for ctx.Err() == nil && slices.Equal(d.set.Uses, d.q.set.Load().Uses) {
		wait, err := c.warmUp(ctx, d.set.Uses)
		if err == nil {
			d.pause(ctx, from.Add(wait), false)
			return
		}
		d.mu.Lock()
		d.waitErr = err.Error()
		d.mu.Unlock()
		d.pause(ctx, time.Now().Add(longWait), false)
	}
}

// leastPause is the shortest pause before a job is due. Nothing ends such a pause early: the queue
// catches up with its pace afterwards, and waking for each of many jobs per second costs more than
// sending them. Chosen: short compared to every window.
const leastPause = time.Millisecond

// pause waits until a time, until the line changes, or until ctx ends.
func (d *dispatcher) pause(ctx context.Context, until time.Time, early bool) {
	var at <-chan time.Time
	if !until.IsZero() {
		wait := max(leastPause, time.Until(until))
		early = early && wait > leastPause
		t := time.NewTimer(wait)
		defer t.Stop()
		at = t.C
	}
	wake := d.wake
	if !early {
		wake = nil
	}
	select {
	case <-at:
	case <-wake:
	case <-ctx.Done():
	}
}

// next waits for a job that may leave now. It returns nil if ctx has ended or the configuration has
// changed.
func (d *dispatcher) next(ctx context.Context) *flight {
	for ctx.Err() == nil && d.set == d.q.set.Load() {
		f, until, why := d.look(ctx)
		d.mu.Lock()
		d.waitErr = why
		d.mu.Unlock()
		if f != nil {
			return f
		}
		d.handOver(until)
		d.pause(ctx, until, true)
	}
	return nil
}

// lookAtClock is how often the dispatcher checks the wall clock, in case somebody has set it
// forward and the time of a job has come. Chosen: a check costs microseconds.
const lookAtClock = 10 * time.Second

// look finds a job that may leave now, or returns when to look again. The zero time means: when the
// line changes. why is the reason for the wait, for people to read.
func (d *dispatcher) look(ctx context.Context) (f *flight, until time.Time, why string) {
	now := time.Now()
	soon := now.Add(longWait)
	d.mu.Lock()
	next := d.index.ripen(now)
	paused, rate, dead := d.paused, d.rate(d.set), len(d.index.dead)
	more, wanted, idle := d.wanted(min(d.index.ready(), len(d.free)))
	r, tenant, ok := d.index.peek()
	if !ok {
		why = d.index.whyStopped()
	}
	d.mu.Unlock()
	// Canceled, or it is another job's turn now, or no worker waits any more.
	if d.held != nil && (paused || !ok || d.held.ref != r || !wanted) {
		d.letGo()
	}
	switch {
	case paused:
		return nil, time.Time{}, ""
	case dead >= maxDead:
		return nil, soon, fmt.Sprintf("%d jobs are dead: redrive or purge them", dead)
	case !d.holds():
		return nil, soon, "the engine does not answer"
	case !wanted && ok:
		return nil, time.Time{}, idle
	case !ok:
		// The times of jobs are wall clock times. A timer does not notice that the clock was set or
		// that the machine was asleep.
		if late := now.Add(lookAtClock); next.After(late) {
			next = late
		}
		return nil, next, why
	}
	f, err := d.load(ctx, r)
	if err != nil {
		return nil, soon, err.Error()
	}
	if f == nil || d.tooOld(f, now) {
		d.drop(tenant, r, f, whyOld)
		return nil, now, ""
	}
	if rate > 0 && now.Before(d.nextAt) {
		return nil, d.nextAt, ""
	}
	if ok, at := d.pass(now, 0); !ok {
		return nil, at, overrun(now, at)
	}
	if until, why = d.capacity(ctx, f, tenant, more); !until.IsZero() {
		return nil, until, why
	}
	if now = time.Now(); now.Before(f.taken.at) { // it has its place in the pace of a limit
		d.held = f
		return nil, f.taken.at, ""
	}
	if ok, at := d.pass(now, 1); !ok { // another queue of the same target was faster
		d.held = f
		return nil, at, overrun(now, at)
	}
	d.held = nil
	if !d.goes(f, tenant) { // purged meanwhile
		d.giveBack(f)
		return nil, now, ""
	}
	if rate > 0 {
		if behind := now.Add(-mostBehind); d.nextAt.Before(behind) {
			d.nextAt = behind
		}
		d.nextAt = d.nextAt.Add(time.Duration(float64(time.Second) / rate))
	}
	return f, until, ""
}

// overrun returns a text that the target is overloaded, with the remaining time if it is long
// enough to matter to a person.
func overrun(now, until time.Time) string {
	if until.Sub(now) < time.Second {
		return "the target is overrun"
	}
	return "the target is overrun: nothing goes to it until " + until.UTC().Format(time.RFC3339)
}

// pass requests n from the throttle of the target, if there is one.
func (d *dispatcher) pass(now time.Time, n int) (ok bool, at time.Time) {
	if d.set.Throttle == nil {
		return true, now
	}
	return d.set.Throttle.Pass(now, n)
}

// capacity takes the cost of a job from the limits, or returns when to look again, and why.
func (d *dispatcher) capacity(
	ctx context.Context, f *flight, t *tenant, more int,
) (until time.Time, why string) {
	c := d.q.cfg.Capacity
	if c == nil {
		return until, ""
	}
	if d.held != nil {
		f.taken = d.held.taken
		return until, ""
	}
	var no *denial
	var err error
	ld := load{tenant: f.head.tenant, cost: f.head.cost, bytes: int64(len(f.job.Body)), more: int64(more)}
	f.taken, no, err = c.take(ctx, d.self, d.set.Uses, ld)
	now := time.Now()
	switch {
	case err != nil:
		return now.Add(longWait), err.Error()
	case no == nil:
		return until, ""
	case no.never != "":
		d.drop(t, f.ref, f, fmt.Sprintf(whyDear+"%d, more than limit %s ever lets pass", no.cost, no.never))
		return now, ""
	case no.tenant:
		d.mu.Lock()
		if _, again, ok := d.index.peek(); ok && again == t {
			d.index.block(t, no.until)
		}
		d.mu.Unlock()
		return now, ""
	}
	return no.until, ""
}

// goes takes a job out of the line, unless it is gone or another job is next.
func (d *dispatcher) goes(f *flight, t *tenant) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, of, ok := d.index.peek()
	if !ok || r != f.ref || of != t {
		return false
	}
	var a *asker
	if d.set.Lease > 0 {
		if a = d.askerFor(f); a == nil { // it has left meanwhile
			return false
		}
	}
	d.index.take(t, f.head.cost, time.Now().UnixMilli())
	f.job.Attempt = d.index.tries[r].attempt + 1
	if a != nil {
		d.hand(a, f)
	}
	return true
}

// letGo gives back what the job holds that waits for the throttle or its pace.
func (d *dispatcher) letGo() {
	if d.held != nil {
		d.giveBack(d.held)
		d.held = nil
	}
}

// giveBack returns what a job has taken and did not use.
func (d *dispatcher) giveBack(f *flight) {
	if c := d.q.cfg.Capacity; c != nil {
		c.giveBack(d.self, f.taken)
	}
}

// tooOld reports whether a job has waited longer than its maximum age.
func (d *dispatcher) tooOld(f *flight, now time.Time) bool {
	most := f.job.MaxAge
	if most == 0 {
		most = d.set.MaxAge
	}
	if most == 0 {
		return false
	}
	since := f.job.Enqueued
	d.mu.Lock()
	if t, ok := d.index.tries[f.ref]; ok && t.since > 0 {
		since = time.UnixMilli(t.since)
	}
	d.mu.Unlock()
	if f.job.At.After(since) {
		since = f.job.At
	}
	return now.Sub(since) > most
}

// Why jobs die without being sent.
const (
	whyOld  = "too old"
	whyDear = "costs "
)

// isUnsent reports whether a job that died was not sent before: its target has not refused it.
func isUnsent(why string) bool { return why == whyOld || strings.HasPrefix(why, whyDear) }

// drop marks a job as dead without sending it. A job that is no longer there is only removed.
func (d *dispatcher) drop(t *tenant, r ref, f *flight, why string) {
	d.mu.Lock()
	now, of, ok := d.index.peek()
	if !ok || now != r || of != t {
		d.mu.Unlock()
		return
	}
	d.index.take(t, 0, 0)
	if f == nil {
		d.index.finish(r)
		d.index.release(r)
		d.mu.Unlock()
		return
	}
	attempt := d.index.tries[r].attempt
	d.mu.Unlock()
	n := note{attempt: attempt, tried: int32(attempt), text: why}
	d.say(d.noting, func() note { return d.bury(f, n) })
}

// load reads a job. It returns nil if the job is not in the log any more.
func (d *dispatcher) load(ctx context.Context, r ref) (*flight, error) {
	c, err := d.q.cache.chunk(ctx, d.q.jobs, r.chunk())
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if r.index() >= len(c.jobs) {
		return nil, nil
	}
	b := c.jobs[r.index()]
	h, _, _, _ := parseHead(b)
	job, ok := parseJob(b)
	if !ok {
		return nil, nil
	}
	job.ID, job.Queue, job.Enqueued = r.String(), d.q.cfg.Name, c.at
	return &flight{ref: r, head: h, job: job}, nil
}

// cacheBytes bounds the chunks in memory. Chosen: enough for the chunks of some hundred tenants and
// priorities at once.
const cacheBytes = 24 << 20

// chunk returns a chunk from the cache, or reads it from the log.
func (c *chunkCache) chunk(ctx context.Context, log *store.Log, seq uint64) (*readChunk, error) {
	c.mu.Lock()
	got := c.all[seq]
	c.mu.Unlock()
	if got != nil {
		return got, nil
	}
	ctx, stop := context.WithTimeout(ctx, writeWait)
	defer stop()
	e, err := log.Get(ctx, seq)
	if err != nil {
		return nil, err
	}
	jobs, err := parseChunk(e.Data)
	if err != nil {
		return nil, fmt.Errorf("entry %d: %w", seq, err)
	}
	got = &readChunk{jobs, e.At, len(e.Data) + 24*len(jobs)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[uint64]*readChunk{}
	}
	if c.all[seq] == nil {
		c.all[seq] = got
		c.order = append(c.order, seq)
		c.bytes += got.bytes
	}
	for c.bytes > cacheBytes && len(c.order) > 1 {
		c.bytes -= c.all[c.order[0]].bytes
		delete(c.all, c.order[0])
		c.order = c.order[1:]
	}
	return got, nil
}
