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
//
// # The files
//
// From the top down; the files of one line call each other.
//
//	handle, remote            every process: finds or becomes the host, and asks it
//	remotecounter             the same across data centers
//	anywheremove, state       moves Anywhere, the top counter; what operators see
//	host                      the loop of the host: takes over, writes, answers
//	line, snapshot, joinlimit requests of visitors; pictures and slots between data centers
//	counter                   the mutex, the record, writes in flight and writes that fail
//	core, calls               under the mutex: who is called, when, and how often visitors poll
//	forecast, outlook, parent expected waits; slots from Anywhere
//	plan, lanes, placemove    draws, lanes, and places that change devices
//	signals                   what nodes have measured of the origin
//	desk, pace                the state under the mutex, and its rates
//	wire, datacenters         messages, and who hosts Anywhere
//	types                     configuration and the types that all use
//
// open has the core alone, without goroutine and store, for simulations.
package counter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/chanmutex"
	"github.com/headgate/headgate/internal/persons"
	"github.com/headgate/headgate/internal/signals"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/status"
)

// A Counter is the host of one room.
type Counter struct {
	wake   chan struct{}
	upWake chan struct{} // a Sync to Anywhere may be due
	recall func()

	mu sync.Mutex
	desk
	sites     gallery
	persons   *persons.Registry
	signals   signals.Collector // of the origin
	setting   chanmutex.Mutex   // one change of the settings at a time; locked before mu
	auto      *status.Auto      // what was found; nil: nothing is sought
	off       []string          // data centers that an operator has declared down
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

// kick makes Run start its next round now.
func (c *Counter) kick() {
	select {
	case c.wake <- struct{}{}:
	default: // the next round is already due
	}
}

// gone reports whether another process hosts the room, or must be presumed to. The caller holds the
// lock.
func (c *Counter) gone() bool {
	if !c.fenced && !c.stood {
		c.awake(c.cfg.Boot())
	}
	if c.stood && c.abandon != nil { // whoever noticed it: a recall of Anywhere may be the first
		c.kick()
		c.abandon()
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

// limits returns the limits that are in force or are being written, and their revision.
func (c *Counter) limits() (active, fresh slot.Limit, rev uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cfg.Active, c.cfg.New, c.limitRev
}

// waitWrite waits, without the lock, for the next confirmed write, and at most until writeWait
// after began.
func (c *Counter) waitWrite(ctx context.Context, began time.Duration) error {
	left := began + writeWait - c.cfg.Boot()
	if left <= 0 {
		return ErrSlow
	}
	ctx, stop := context.WithTimeoutCause(ctx, left, ErrSlow)
	defer stop()
	return c.awaitWrite(ctx)
}

// awaitWrite waits, without the lock, for the next confirmed write.
func (c *Counter) awaitWrite(ctx context.Context) error {
	if c.fenced {
		return ErrFenced
	}
	if c.broken > 0 {
		return ErrSlow
	}
	c.kickWrite()
	ch := c.written
	c.mu.Unlock()
	defer c.mu.Lock()
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// writeWait is how long a visitor waits for writes at most: for one, or under load for several. A
// store that takes longer is electing a leader, and the visitor must not see a blank page for that
// long.
const writeWait = 2 * time.Second

// firstRecord makes the first record of a room. If the room has already admitted visitors in the
// home of Anywhere, the record of Anywhere begins with all slots presumed lent.
func (c *Counter) firstRecord(ctx context.Context) (*slot.Record, error) {
	r := slot.NewRecord(rand.Uint64()|1, nil, c.cfg.Active, c.cfg.New)
	switch {
	case c.cfg.Datacenters == nil:
		return r, nil
	case !c.isAnywhere():
		r.Parent = &slot.ParentLoan{Loan: slot.LoanID(rand.Uint64() | 1)}
		return r, nil
	}
	of, err := c.recordOfRoom(ctx)
	if err != nil {
		return nil, err
	}
	alone := of != nil && (of.Parent == nil || of.WasRoot) // until now, so nobody can have moved it
	if err := c.cfg.Datacenters.ConfirmHome(ctx, !alone); err != nil {
		return nil, err
	}
	if of != nil && (alone || of.Parent.Granted > 0) {
		for i := range r.Limits { // the configuration may have changed them
			r.Limits[i].Longest = max(r.Limits[i].Longest, of.Limits[i].Longest)
		}
		r.Presume(c.cfg.Params, slot.WriteName{Life: r.Name.Life, Epoch: 1}, 1)
	}
	return r, nil
}

// fitRecord adapts a record to this counter: a room that was independent borrows from now on.
func (c *Counter) fitRecord(ctx context.Context, r *slot.Record) error {
	switch below := c.cfg.Datacenters != nil && !c.isAnywhere(); {
	case r.MovedTo != "":
		return fmt.Errorf("%w: to %s", ErrMoved, r.MovedTo)
	case c.isAnywhere():
		return c.cfg.Datacenters.ConfirmHome(ctx, false)
	case below && r.Parent == nil:
		r.JoinParent(slot.LoanID(rand.Uint64()|1), c.cfg.Datacenters.Home() == c.cfg.Datacenters.Own())
		c.cfg.Log.Info("room is shared with other data centers from now on", "room", c.cfg.Room)
	case !below && r.Parent != nil:
		return fmt.Errorf("%w: its slots are lent by Anywhere of several data centers: "+
			"set cluster.datacenters and cluster.home as they were", slot.ErrRecord)
	}
	return nil
}

// recordOfRoom returns the record of the room to which this Anywhere belongs, nil if there is none
// here.
func (c *Counter) recordOfRoom(ctx context.Context) (*slot.Record, error) {
	b, _, err := c.cfg.Store.Load(ctx, recordOf(c.cfg.Room[1:]))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	r := &slot.Record{}
	if err == nil {
		err = r.UnmarshalBinary(b)
	}
	if err == nil && len(r.Limits) != slot.MaxLimits {
		err = slot.ErrRecord
	}
	if err != nil {
		return nil, fmt.Errorf("read how many the room has admitted before: %w", err)
	}
	return r, nil
}

// isAnywhere reports whether this counter lends to counters.
func (c *Counter) isAnywhere() bool { return c.cfg.Params.Counters }
