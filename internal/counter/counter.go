// Package counter hosts the one counter of a room: it lends slots, keeps the
// line, calls the next and writes before it tells.
//
// # The promise
//
// What docs/protocol.md promises of a host: an answer states only a confirmed
// record, everything that arrives while a write is in flight shares the next,
// and a host that was fenced says nothing more.
//
// # Concurrency
//
// A Counter may be used by many goroutines at once. One mutex guards its state
// and is never held across a write. Run owns the only goroutine.
//
// # What it costs
//
// A poll is a lock, a bitmap and a sum over a Fenwick tree. Writes are grouped:
// at most one each groupGap, none while nothing happens.
//
// # What it does not do
//
// It speaks no HTTP and knows no visitor but by number.
package counter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

// The errors of a Counter.
var (
	// ErrFenced: another host has taken over; ask there.
	ErrFenced = errors.New("another host serves this room")
	// ErrFull: max_waiting people wait already.
	ErrFull = errors.New("the line is full")
	// ErrSlow: the record is not written in time; ask again.
	ErrSlow = errors.New("the record is not written in time")
	// ErrNotCalled: the ticket is not at its turn.
	ErrNotCalled = errors.New("the ticket is not called")
)

// Parameters of the host (docs/protocol.md §5, §8, §12).
const (
	groupGap    = 2 * time.Millisecond // between writes
	fresh       = 2 * time.Second      // a number needs a write no older than this
	idleEnds    = 5 * time.Second      // between writes while stays are inside
	settleGap   = 20 * time.Millisecond
	settleAgain = 50 * time.Millisecond  // a report was lost, or came a moment too early
	lookAgain   = 100 * time.Millisecond // for the end of a grace, while nobody who waits is there
	blockLeast  = 4                      // tickets reserved at least, or those of five seconds:
	blockMost   = 256                    // never issued, they hold up who comes after a crash
	headPoll    = 2 * time.Second        // two head-poll intervals: nobody is called after a takeover
	hideAfter   = 5 * time.Second        // numbers unheard after a takeover count in no position any more
	lineSweep   = 4096                   // holds looked at in one pass
	// provisionalSweep bounds how many tickets without a cookie lapse in one pass: 200,000 a second.
	provisionalSweep = 20_000
	skipBytes        = 64 << 10        // record: late tickets below the frontier
	drawnBytes       = 480 << 10       // the same where tickets are drawn: half of what NATS carries
	storeWait        = 2 * time.Second // a write that takes longer is looked up
	storeRetry       = 250 * time.Millisecond
	issuedSoon       = 250 * time.Millisecond // a number that was issued is in a record so soon
	lastWrite        = 3 * time.Second        // the farewell of a clean stop takes no longer
	unsureRuns       = 4096                   // record: numbers that were reserved and not heard
)

// Config describes the counter of one room.
type Config struct {
	Room   string
	Host   string // name of this process
	Store  store.Store
	Params slot.Params
	Settings
	Plan  Plan         // of the draw of an event
	After uint64       // 1 + revision of the limits that Settings are of; 0: newer than any
	Sites *Datacenters // the data centres whose rooms are one with this; nil: none

	Anywhere *Handle              // of this room, if this node may host it
	Estimate func() slot.Estimate // of the counter's time, as the worker of this process has it; nil: none
	Previous PreviousHost         // what this process knows of the host before; filled in by a Seat
	Boot     func() time.Duration // own clock, counting suspend
	Log      *slog.Logger

	Random func() float64 // of jitter, in [0, 1); nil: math/rand
}

// Settings are what may change while people are inside and wait.
type Settings struct {
	Active      slot.Limit // stays at once
	New         slot.Limit // new users per window
	Spread      bool       // space calls evenly while anyone waits
	RandomOrder bool       // who is next is drawn at random
	AdmitAll    bool       // all are let in: who waits holds nobody up
	Line        LineConfig
	Lanes       []slot.Lane // beside the ordinary line, at most slot.MostLanes
}

// LineConfig describes the waiting line.
type LineConfig struct {
	MaxWaiting int64
	PollMin    time.Duration
	PollMax    time.Duration
	CallHold   time.Duration // 0: max(5 s, 2 × the interval given)
	Hold       time.Duration // the longest hold of any ticket
}

// A Counter is the host of one room.
type Counter struct {
	wake   chan struct{}
	upWake chan struct{} // something may be due upward
	recall func()

	mu sync.Mutex
	desk
	sites     gallery
	off       []string // data centres that an operator has declared off
	revision  uint64
	syncs     map[*slot.Sync]chan slot.Answer
	claims    map[slot.StayID][]chan slot.ClaimReply
	written   chan struct{} // closed with the next confirmed write; nil if nobody waits
	lastTry   time.Duration
	fenced    bool
	suspected bool          // a pass has shown that the record was rolled back
	damaged   error         // the record cannot be read: this host serves nobody
	broken    time.Duration // since when the store refuses; 0 it does not
	latency   time.Duration // of a write, smoothed
}

// Totals count since the start.
type Totals struct {
	Joined, Called, Claimed, Lapsed, Writes int64
	Expired                                 int64         // places whose hold was over
	WriteTime                               time.Duration // all writes together
	CallEmpty                               time.Duration // called slots stood empty this long in all
}

// Open takes the room's record over, or makes the first one, and returns its
// host. Run must be called for anything to be answered. recall is called, with
// no lock held, when borrowers should Sync now; it must not block.
func Open(ctx context.Context, cfg Config, recall func()) (*Counter, error) {
	c := &Counter{
		wake: make(chan struct{}, 1), upWake: make(chan struct{}, 1), recall: recall,
		syncs:  map[*slot.Sync]chan slot.Answer{},
		claims: map[slot.StayID][]chan slot.ClaimReply{},
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
	if err := c.begin(rec, first, cfg.Boot()); err != nil { // it decodes, and makes no sense
		c.refuse(fmt.Errorf("%w: %w", slot.ErrRecord, err))
	}
	return c, nil
}

func (c *Counter) key() string { return recordOf(c.cfg.Room) }

// recordOf is the key of a room's record in the store.
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

// store writes by compare-and-set and finds out what became of a write whose
// answer was lost. It ends when the write is confirmed, when another host has
// written, or with ctx.
func (c *Counter) store(ctx context.Context, wr *slot.Record) error {
	b, err := wr.AppendBinary(nil)
	if err != nil {
		return err
	}
	began := c.cfg.Boot()
	defer c.stayAwake()()
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
			return ctx.Err()
		case lerr == nil && string(got) == string(b):
			// It was written, only the answer was lost; or it is in the engine's memory
			// and the disk refused it. Written again it is surely on the disk.
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
			// A replicated stream may see a write of its own as one in flight for a moment
			// (nats-server, jetstream_batching.go): the same again.
			if wait(ctx, groupGap) {
				continue
			}
		} // a conflict that the store does not explain: an engine may be on its way back
		c.fail(began, err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(storeRetry):
		}
	}
}

// stayAwake notes each second that the process runs, until stop: while it waits for the
// store nothing else may.
func (c *Counter) stayAwake() (stop func()) {
	var timer *time.Timer
	var over atomic.Bool
	timer = time.AfterFunc(time.Hour, func() {
		c.mu.Lock()
		if c.line != nil { // nil: it takes over
			c.awake(c.cfg.Boot())
		}
		c.mu.Unlock()
		if !over.Load() {
			timer.Reset(time.Second)
		}
	})
	timer.Reset(time.Second)
	return func() { over.Store(true); timer.Stop() }
}

// lost reports whether what the store holds is an older write of this host, which
// still has all that it confirmed in memory.
func (c *Counter) lost(got []byte, rev uint64) bool {
	if !c.pool.Serving() || rev == c.revision || !c.cfg.Params.Alone {
		return false // of many hosts, the one that wrote last is right
	}
	var r slot.Record
	now := c.pool.Record()
	return r.UnmarshalBinary(got) == nil && r.Name.Life == now.Name.Life &&
		(r.Host == c.cfg.Host || r.Name.Epoch < now.Name.Epoch)
}

// fail notes that the store refuses, since the write was begun: a store without a
// leader is silent. Whoever needs a write is told at once.
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

// mend notes that the store writes again.
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
	// Not deferred: a panic leaves the lock held, and waiting for it would keep a process alive that hosts
	// the room and answers nobody.
	stop()
	above.Wait()
	c.drop()
	return err
}

// rounds is Run but for its beginning and its end.
func (c *Counter) rounds(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	// A write that is under way when ctx ends is finished first.
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

// kick makes Run look again now.
func (c *Counter) kick() {
	select {
	case c.wake <- struct{}{}:
	default: // it is already about to look
	}
}

// round builds one write, stores it, hands out the answers and calls whoever
// may be called. It returns how long until the next look is due.
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
	c.awake(clk) // it may have stood still in the write
	if wr != nil {
		c.noteWrite(clk - began)
		c.deliver(c.pool.Confirm(clk))
		c.leftFor(wr.MovedTo)
		if rolled { // it was not another host's: what was told is lost
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

// leftFor ends a host whose record has moved: nothing can follow that write.
func (c *Counter) leftFor(site string) {
	if site != "" {
		c.fenced = true
		c.dropSyncs()
		c.kick()
	}
}

// gone reports whether another hosts the room, or surely does. Holds the lock.
func (c *Counter) gone() bool {
	if !c.fenced && !c.stood {
		c.awake(c.cfg.Boot())
		if c.stood {
			c.kick()
		}
	}
	return c.fenced || c.stood
}

// noteWrite counts a write that took d.
func (c *Counter) noteWrite(d time.Duration) {
	c.stats.Writes++
	c.stats.WriteTime += d
	c.latency += (d - c.latency) / 16
}

// deliver hands answers to those who wait for them.
func (c *Counter) deliver(replies []slot.Reply, claims []slot.ClaimReply) {
	for _, r := range replies {
		if ch := c.syncs[r.Sync]; ch != nil {
			delete(c.syncs, r.Sync)
			ch <- r.Answer // has room for one
		}
	}
	for _, r := range claims {
		c.stats.Claimed++
		for _, ch := range c.claims[r.ID] {
			ch <- r // has room for one
		}
		delete(c.claims, r.ID)
	}
}

// drop ends all that waits: this host is fenced or ends.
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

// dropSyncs lets those who wait for an answer ask again, here or elsewhere.
func (c *Counter) dropSyncs() {
	for x, ch := range c.syncs {
		close(ch)
		delete(c.syncs, x)
	}
}

// wroteLocked wakes those who wait for a write.
func (c *Counter) wroteLocked() {
	if c.written != nil {
		close(c.written)
		c.written = nil
	}
}

// Sync answers one Sync of a borrower; it blocks until the answer is written.
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

// Reconfigure takes new settings while people are inside and wait. It blocks
// until the limits are in the record; on an error nothing has changed.
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
	} else if c.fenced { // what needs no record needs no disk: a message, queue_all
		return ErrFenced
	}
	c.cfg.Settings = s
	c.spread()
	c.setLanes()
	c.fore.update(&c.desk, c.cfg.Boot())
	c.kick()
	return nil
}

// limits are those that are in force or about to be, and their revision.
func (c *Counter) limits() (active, fresh slot.Limit, rev uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cfg.Active, c.cfg.New, c.limitRev
}

// Hold stops or resumes calls and admissions: queue_all, a room that is not yet
// open, an origin that does not answer. Those inside stay.
func (c *Counter) Hold(yes bool) {
	c.mu.Lock()
	c.hold(yes, c.cfg.Boot())
	c.mu.Unlock()
	c.kick()
}
