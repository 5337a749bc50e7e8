package counter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

// This file has the identity of Anywhere and the loop with which a counter borrows from it.
// Anywhere of the room "shop" is itself a room, "@shop". A Handle hosts it among the store nodes of
// its home.

// anywhere returns the name of a room's Anywhere. It cannot be the name of a room: those have
// letters, digits, - and _ only.
func anywhere(room string) string { return "@" + room }

// aboveTry is the timeout after which a Sync to Anywhere is repeated: Anywhere may hold a request
// for the recall wait, and the network distance is long. Chosen.
const aboveTry = time.Second

// ErrMoved reports that Anywhere now lives in another data center.
var ErrMoved = errors.New("it has moved to another data center")

// NewAnywhere returns the handle of a room's Anywhere, from the configuration of the room. Run must
// be called.
func NewAnywhere(cfg Config, bus *store.Bus, m *Members) *Handle {
	cfg.Room = anywhere(cfg.Room)
	cfg.Params = slot.Params{Counters: true, Drift: cfg.Params.Drift, Sigma: cfg.Params.Sigma}
	return NewHandle(cfg, bus, m, func() {})
}

// isAnywhere reports whether this counter lends to counters.
func (c *Counter) isAnywhere() bool { return c.cfg.Params.Counters }

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

// kickUp makes borrow start its next round now.
func (c *Counter) kickUp() {
	select {
	case c.upWake <- struct{}{}:
	default:
	}
}

// borrow borrows slots from Anywhere and returns them, until ctx ends.
func (c *Counter) borrow(ctx context.Context) {
	if c.cfg.Datacenters == nil || c.isAnywhere() {
		return
	}
	moved := make(chan struct{}, 1)
	defer c.cfg.Datacenters.watch(moved)()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for home := ""; ctx.Err() == nil; {
		c.mu.Lock()
		// the new home needs a report of what this counter holds
		if now := c.cfg.Datacenters.Home(); now != home {
			home, c.up.at = now, 0
		}
		x, next := c.upSync(c.cfg.Boot())
		c.mu.Unlock()
		if x == nil {
			timer.Reset(next)
			select {
			case <-ctx.Done():
			case <-timer.C:
			case <-c.upWake:
			case <-moved:
			}
			continue
		}
		a, err := c.cfg.Datacenters.askAnywhere(ctx, c.cfg.Room, x)
		if err != nil { // lost, cut off, or a change of host: retry
			wait(ctx, repeatEvery)
			continue
		}
		c.mu.Lock()
		c.upHeard(a, c.cfg.Boot())
		c.mu.Unlock()
	}
}

// recalledUp handles a recall: Anywhere asks for unused slots.
func (c *Counter) recalledUp() {
	c.mu.Lock()
	if !c.fenced {
		c.upRecall(c.cfg.Boot())
	}
	c.mu.Unlock()
}
