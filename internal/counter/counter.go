// Package counter hosts the counter of a room. The counter lends slots, keeps the line and calls
// the next visitors. It writes each change to the store before it answers.
//
// # The promise
//
// docs/protocol.md states what a host promises. An answer contains only what a confirmed record
// says. All requests that arrive while a write is in flight share the next write. A fenced host
// answers nothing more.
//
// # Concurrency
//
// A Counter may be used by many goroutines at once. One mutex guards its state and is never held
// during a write. Run owns the only goroutine.
//
// # Cost
//
// A poll costs a lock, a bitmap and a sum over a Fenwick tree. Writes are grouped: at most one each
// groupGap, and none while nothing happens.
//
// # Limits
//
// The package does not speak HTTP and knows a visitor only by its number.
package counter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

// The errors of a Counter.
var (
	// ErrFenced reports that another host has taken over; send the request there.
	ErrFenced = errors.New("another host serves this room")
	// ErrFull reports that max_waiting visitors already wait.
	ErrFull = errors.New("the line is full")
	// ErrSlow reports that the record was not written in time; retry.
	ErrSlow = errors.New("the record is not written in time")
	// ErrNotCalled reports that the ticket is not called yet.
	ErrNotCalled = errors.New("the ticket is not called")
)

// Parameters of the host (docs/protocol.md §5, §8, §12).
const (
	groupGap    = 2 * time.Millisecond // between writes
	fresh       = 2 * time.Second      // issuing a number needs a write no older than this
	idleEnds    = 5 * time.Second      // between writes while sessions are open
	settleGap   = 20 * time.Millisecond
	settleAgain = 50 * time.Millisecond  // before asking again: a report was lost or came a moment too early
	lookAgain   = 100 * time.Millisecond // while all who wait are absent: for the end of a grace
	blockLeast  = 4                      // numbers reserved ahead, at least
	blockMost   = 256                    // at most: after a crash, unused ones delay later tickets
	headPoll    = 2 * time.Second        // two head-poll intervals: no calls after a takeover
	// after a takeover: from then on unpolled numbers count in no position
	hideAfter = 5 * time.Second
	lineSweep = 4096 // holds checked in one pass
	// provisionalSweep limits how many tickets without a cookie lapse in one pass: 200,000 a
	// second.
	provisionalSweep = 20_000
	skipBytes        = 64 << 10        // of the record: late tickets below the frontier
	drawnBytes       = 480 << 10       // the same with random order: half of the most that NATS carries
	storeWait        = 2 * time.Second // timeout of one store operation
	storeRetry       = 250 * time.Millisecond
	issuedSoon       = 250 * time.Millisecond // an issued number is in the record after this time
	lastWrite        = 3 * time.Second        // limit of the last write at a clean stop
	unsureRuns       = 4096                   // of the record: reserved numbers that nobody has polled with
)

// Config describes the counter of one room.
type Config struct {
	Room   string
	Host   string // name of this process
	Store  store.Store
	Params slot.Params
	Settings
	Plan        Plan         // for the draw of an event
	After       uint64       // 1 + revision of the limits in Settings; 0: newer than any
	Datacenters *Datacenters // the data centers that share this room; nil: one data center

	Anywhere *Handle              // of this room, if this node may host it
	Estimate func() slot.Estimate // of the counter time, from this process's worker; nil: none
	Previous PreviousHost         // what this process knows of the previous host; set by a Handle
	Boot     func() time.Duration // own clock, which includes suspend
	Log      *slog.Logger

	Random func() float64 // for jitter and random order, in [0, 1); nil: math/rand
}

// Settings can change while visitors are inside or wait.
type Settings struct {
	Active      slot.Limit // sessions at once
	New         slot.Limit // new users per window
	Spread      bool       // space calls evenly while anyone waits
	RandomOrder bool       // the next visitor is chosen at random
	AdmitAll    bool       // everybody is admitted: the line delays nobody
	Line        LineConfig
	Lanes       []slot.Lane // beside the ordinary line, at most slot.MaxLanes
}

// LineConfig describes the waiting line.
type LineConfig struct {
	MaxWaiting int64
	PollMin    time.Duration
	PollMax    time.Duration
	CallHold   time.Duration // 0: computed from the poll interval, at least 5 s
	Hold       time.Duration // the longest hold of any ticket
}

// A Counter is the host of one room.
type Counter struct {
	wake   chan struct{}
	upWake chan struct{} // a Sync to Anywhere may be due
	recall func()

	mu sync.Mutex
	desk
	sites     gallery
	off       []string // data centers that an operator has declared down
	revision  uint64
	syncs     map[*slot.Sync]chan slot.Answer
	claims    map[slot.SessionID][]chan slot.ClaimReply
	written   chan struct{} // closed at the next confirmed write; nil if nobody waits
	abandon   func()        // ends the write in flight; nil: there is none
	lastTry   time.Duration
	fenced    bool
	suspected bool          // a pass showed that the record was rolled back
	damaged   error         // the record is unreadable: this host serves nobody
	broken    time.Duration // since when the store rejects writes; 0: it accepts them
	latency   time.Duration // of a write, smoothed
}

// Totals are counted since this host started.
type Totals struct {
	Joined, Called, Claimed, Lapsed, Writes int64
	Expired                                 int64         // places whose hold has expired
	WriteTime                               time.Duration // all writes together
	CallEmpty                               time.Duration // total time that called slots stayed empty
}

// Open takes over the record of the room, or makes the first one, and returns the room's host. It
// answers nothing until Run is called. It calls recall, with no lock held, when the borrowers
// should Sync now; recall must not block.
func Open(ctx context.Context, cfg Config, recall func()) (*Counter, error) {
	c := &Counter{
		wake: make(chan struct{}, 1), upWake: make(chan struct{}, 1), recall: recall,
		syncs:  map[*slot.Sync]chan slot.Answer{},
		claims: map[slot.SessionID][]chan slot.ClaimReply{},
	}
	c.cfg, c.desk.again = cfg, c.kick
	rec, first, err := c.takeOver(ctx)
	if errors.Is(err, slot.ErrRecord) || errors.Is(err, store.ErrDamaged) {
		c.refuse(err)
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("take over room %q: %w", cfg.Room, err)
	}
	c.sites.began = cfg.Boot()
	if err := c.begin(rec, first, cfg.Boot()); err != nil { // it decodes but is inconsistent
		c.refuse(fmt.Errorf("%w: %w", slot.ErrRecord, err))
	}
	return c, nil
}

func (c *Counter) key() string { return recordOf(c.cfg.Room) }

// recordOf returns the key of a room's record in the store.
func recordOf(room string) string { return "counter." + room }

// load reads the record, or makes the first one of a new life.
func (c *Counter) load(ctx context.Context) (r *slot.Record, first bool, err error) {
	b, rev, err := c.cfg.Store.Load(ctx, c.key())
	if errors.Is(err, store.ErrNotFound) {
		c.revision = 0
		r, err = c.firstRecord(ctx)
		return r, true, err
	}
	if err != nil {
		return nil, false, fmt.Errorf("load the record: %w", err)
	}
	r = &slot.Record{}
	if err := r.UnmarshalBinary(b); err != nil {
		return nil, false, err
	}
	c.revision = rev
	return r, false, c.fitRecord(ctx, r)
}

// store writes a record by compare-and-set. When the answer to a write is lost, it reads the store
// to find out whether the write succeeded. It returns when the write is confirmed, when another
// host has written, or when ctx ends.
func (c *Counter) store(ctx context.Context, wr *slot.Record) error {
	b, err := wr.AppendBinary(nil)
	if err != nil {
		return err
	}
	began := c.cfg.Boot()
	ctx, abandon := context.WithCancelCause(ctx)
	defer c.stayAwake(func() { abandon(ErrFenced) })()
	for tries := 0; ; tries++ {
		rev, err := c.tryStore(ctx, b)
		if err == nil {
			c.revision = rev
			c.mend()
			return nil
		}
		got, rev, lerr := c.tryLoad(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case lerr == nil && string(got) == string(b):
			// The write succeeded and only the answer was lost, or the engine has it in memory and
			// the disk rejected it. A second write makes sure that it is on disk.
			if c.revision = rev; tries == 0 {
				continue
			}
		case errors.Is(lerr, store.ErrNotFound) && c.pool.Serving(), lerr == nil && c.lost(got, rev):
			c.cfg.Log.Error("store has lost what it had confirmed: it is written again",
				"room", c.cfg.Room, "revision", c.revision, "found", rev)
			if c.revision = rev; tries == 0 {
				continue
			}
		case lerr == nil && rev != c.revision:
			return ErrFenced
		case lerr == nil && errors.Is(err, store.ErrConflict) && tries < 3:
			// For a moment a replicated stream may treat its own write as one in flight
			// (nats-server, jetstream_batching.go). Retry.
			if wait(ctx, groupGap) {
				continue
			}
		} // an unexplained conflict: the engine may be recovering
		c.fail(began, err)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(storeRetry):
		}
	}
}

// stayAwake notes each second that the process runs, until stop is called: while a host waits for
// the store, nothing else notes it. If the process was suspended and another one hosts the room
// now, abandon is called: the answer to the write may be lost, and visitors inside must not wait
// for it.
func (c *Counter) stayAwake(abandon func()) (stop func()) {
	var timer *time.Timer
	over := false // guarded by mu
	timer = time.AfterFunc(time.Hour, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if over {
			return
		}
		if c.line != nil { // nil: during the takeover
			c.gone()
		}
		timer.Reset(time.Second)
	})
	timer.Reset(time.Second)
	c.mu.Lock()
	c.abandon = abandon
	c.mu.Unlock()
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		over, c.abandon = true, nil
		timer.Stop()
		abandon()
	}
}

// lost reports whether the store holds an older write of this host. This host still has everything
// that it confirmed in memory.
func (c *Counter) lost(got []byte, rev uint64) bool {
	if !c.pool.Serving() || rev == c.revision || !c.cfg.Params.Alone {
		return false // with several hosts, the last writer is right
	}
	var r slot.Record
	now := c.pool.Record()
	return r.UnmarshalBinary(got) == nil && r.Name.Life == now.Name.Life &&
		(r.Host == c.cfg.Host || r.Name.Epoch < now.Name.Epoch)
}

// fail notes that the store rejects writes since began. A store without a leader does not answer at
// all. fail wakes all callers that wait for a write.
func (c *Counter) fail(began time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken == 0 {
		c.broken = max(1, began)
		c.cfg.Log.Error("record cannot be written: passes stand to their end, new visitors wait",
			"room", c.cfg.Room, "error", err)
	}
	c.wroteLocked()
}

// mend notes that the store accepts writes again.
func (c *Counter) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken > 0 {
		c.cfg.Log.Info("record is written again", "room", c.cfg.Room,
			"after", (c.cfg.Boot() - c.broken).Round(time.Millisecond))
		c.broken = 0
	}
}

func (c *Counter) tryStore(ctx context.Context, b []byte) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	return c.cfg.Store.CompareAndSwap(ctx, c.key(), c.revision, b)
}

func (c *Counter) tryLoad(ctx context.Context) ([]byte, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	return c.cfg.Store.Load(ctx, c.key())
}

// Run writes, answers and calls until ctx ends or the host is fenced.
func (c *Counter) Run(ctx context.Context) error {
	if c.damaged != nil {
		<-ctx.Done()
		return nil
	}
	var above sync.WaitGroup
	up, stop := context.WithCancel(ctx)
	above.Go(func() { c.borrow(up) })
	above.Go(func() { c.show(up) })
	err := c.rounds(ctx)
	// Not deferred: a panic leaves the lock held. Waiting for the lock would keep a process alive
	// that hosts the room and answers nobody.
	stop()
	above.Wait()
	c.drop()
	return err
}

// rounds is the loop of Run.
func (c *Counter) rounds(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	// A write in flight is completed even if ctx ends.
	writing, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastWrite, giveUp) })()
	for {
		select {
		case <-ctx.Done():
			c.farewell(writing)
			return nil
		case <-c.wake:
		case <-timer.C:
		}
		next, err := c.round(writing)
		if err != nil {
			return fmt.Errorf("room %q: %w", c.cfg.Room, err)
		}
		timer.Reset(next)
	}
}

// kick makes Run start its next round now.
func (c *Counter) kick() {
	select {
	case c.wake <- struct{}{}:
	default: // the next round is already due
	}
}

// round builds and stores one write, delivers the answers and calls the visitors that may be
// called. It returns how long until the next round is due.
func (c *Counter) round(ctx context.Context) (time.Duration, error) {
	c.mu.Lock()
	clk := c.cfg.Boot()
	if wait := c.lastTry + groupGap - clk; wait > 0 && c.lastTry > 0 {
		c.mu.Unlock()
		return wait, nil
	}
	c.lastTry = clk
	if c.gone() {
		c.mu.Unlock()
		c.drop()
		return 0, ErrFenced
	}
	c.goOn(clk)
	rolled := c.pool.RolledBack()
	now, wr := c.build(clk, c.written != nil || rolled)
	c.deliver(now, nil)
	if c.pool.IsCold(clk) {
		c.dropSyncs()
	}
	c.mu.Unlock()

	began := clk
	if wr != nil {
		if err := c.store(ctx, wr); err != nil {
			c.drop()
			if ctx.Err() != nil {
				return 0, nil
			}
			return 0, err
		}
	}

	c.mu.Lock()
	clk = c.cfg.Boot()
	c.awake(clk) // the process may have been suspended during the write
	if wr != nil {
		c.noteWrite(clk - began)
		c.deliver(c.pool.Confirm(clk))
		c.leftFor(wr.MovedTo)
		if rolled { // no other host wrote: confirmed writes are lost
			c.quarantine(clk)
		}
		c.wroteLocked()
		c.fore.update(&c.desk, clk)
	}
	recall, next := c.look(clk)
	if c.pool.IsCold(clk) && c.cfg.Previous.Term != nil {
		next = min(next, lookEvery)
	}
	c.mu.Unlock()
	c.kickUp()
	if recall && c.recall != nil {
		c.recall()
	}
	return next, nil
}

// leftFor ends this host when its record has moved to another data center: no write can follow.
func (c *Counter) leftFor(site string) {
	if site != "" {
		c.fenced = true
		c.dropSyncs()
		c.kick()
	}
}

// gone reports whether another process hosts the room, or must be presumed to. The caller holds the
// lock.
func (c *Counter) gone() bool {
	if !c.fenced && !c.stood {
		c.awake(c.cfg.Boot())
		if c.stood {
			c.kick()
			if c.abandon != nil {
				c.abandon()
			}
		}
	}
	return c.fenced || c.stood
}

// noteWrite records that a write took d.
func (c *Counter) noteWrite(d time.Duration) {
	c.stats.Writes++
	c.stats.WriteTime += d
	c.latency += (d - c.latency) / 16
}

// deliver sends answers to the callers that wait for them.
func (c *Counter) deliver(replies []slot.Reply, claims []slot.ClaimReply) {
	for _, r := range replies {
		if ch := c.syncs[r.Sync]; ch != nil {
			delete(c.syncs, r.Sync)
			ch <- r.Answer // never blocks: buffered
		}
	}
	for _, r := range claims {
		c.stats.Claimed++
		for _, ch := range c.claims[r.ID] {
			ch <- r // never blocks: buffered
		}
		delete(c.claims, r.ID)
	}
}

// drop ends all waiting calls, because this host is fenced or stops.
func (c *Counter) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fenced = true
	c.pool.Fail()
	c.dropSyncs()
	for id, chs := range c.claims {
		for _, ch := range chs {
			close(ch)
		}
		delete(c.claims, id)
	}
	c.wroteLocked()
}

// dropSyncs ends the waiting Syncs, so that their callers retry, here or elsewhere.
func (c *Counter) dropSyncs() {
	for x, ch := range c.syncs {
		close(ch)
		delete(c.syncs, x)
	}
}

// wroteLocked wakes all callers that wait for a write.
func (c *Counter) wroteLocked() {
	if c.written != nil {
		close(c.written)
		c.written = nil
	}
}

// Sync answers one Sync of a borrower. It blocks until the record with the answer is written.
func (c *Counter) Sync(ctx context.Context, x *slot.Sync) (slot.Answer, error) {
	ch := make(chan slot.Answer, 1)
	c.mu.Lock()
	if c.gone() {
		c.mu.Unlock()
		return slot.Answer{}, ErrFenced
	}
	c.syncs[x] = ch
	c.put(x, c.cfg.Boot())
	c.mu.Unlock()
	c.kick()
	select {
	case a, ok := <-ch:
		if !ok {
			return a, ErrFenced
		}
		return a, nil
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.syncs, x)
		c.mu.Unlock()
		return slot.Answer{}, ctx.Err()
	}
}

// Reconfigure applies new settings while visitors are inside or wait. It blocks until the limits
// are in the record. On an error nothing has changed.
func (c *Counter) Reconfigure(ctx context.Context, s Settings) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.cfg.Settings
	if s.Active != old.Active || s.New != old.New {
		rev := c.setLimits(s.Active, s.New)
		for c.pool.Record().LimitRev < rev {
			if err := c.awaitWrite(ctx); err != nil {
				c.setLimits(old.Active, old.New)
				return err
			}
		}
	} else if c.fenced { // settings that are not in the record need no write: a message, queue_all
		return ErrFenced
	}
	c.cfg.Settings = s
	c.spread()
	c.setLanes()
	c.fore.update(&c.desk, c.cfg.Boot())
	c.kick()
	return nil
}

// limits returns the limits that are in force or are being written, and their revision.
func (c *Counter) limits() (active, fresh slot.Limit, rev uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cfg.Active, c.cfg.New, c.limitRev
}

// Hold stops or resumes calls and admissions: for queue_all, for a room that is not open yet, or
// while the origin does not answer. Open sessions continue.
func (c *Counter) Hold(yes bool) {
	c.mu.Lock()
	c.hold(yes, c.cfg.Boot())
	c.mu.Unlock()
	c.kick()
}
