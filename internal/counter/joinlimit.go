package counter

import (
	"context"
	"time"
)

// This file has the identity of Anywhere and the loop with which a counter borrows from it.
// Anywhere of the room "shop" is itself a room, "@shop". A Handle hosts it among the store nodes of
// its home.

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
