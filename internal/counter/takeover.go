package counter

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// This file has how a host starts and stops, and how it continues after a suspension in which it
// received nothing.

// refuse makes a host that serves nobody and writes nothing. Its record is unreadable, and a new
// record would take every visitor's place away.
func (c *Counter) refuse(err error) {
	c.cfg.Log.Error("record cannot be read: this room lets nobody in until it is restored",
		"room", c.cfg.Room, "error", err, "hint", "headgate doctor says what to do")
	c.damaged, c.fenced = err, true
	c.pool = slot.NewPool(c.cfg.Params, c.cfg.Host, slot.NewRecord(0, nil, c.cfg.Active, c.cfg.New))
	c.line = slot.NewLines()
	c.pace = newPace(c.cfg.Settings)
}

// Damaged returns why this host serves nobody, nil if it serves.
func (c *Counter) Damaged() error { return c.damaged }

// takeoverTries limits how often a takeover may lose the race against writes of the old host. A
// host that writes every few milliseconds is not dead.
const takeoverTries = 20

// takeOver reads the record and writes it with the next epoch. If the old host still writes, the
// write fails; takeOver then reads and tries again.
func (c *Counter) takeOver(ctx context.Context) (rec *slot.Record, first bool, err error) {
	for range takeoverTries {
		if rec, first, err = c.load(ctx); err != nil {
			return nil, false, err
		}
		c.pool = slot.NewPool(c.cfg.Params, c.cfg.Host, rec)
		err = c.store(ctx, c.pool.Takeover(c.cfg.Boot()))
		if !errors.Is(err, ErrFenced) {
			return rec, first, err
		}
	}
	return nil, false, err
}

// farewell makes the last write of a clean stop. It leaves no number reserved, so that the next
// host knows exactly which tickets wait.
func (c *Counter) farewell(ctx context.Context) {
	c.mu.Lock()
	if c.fenced || c.pool.Writing() {
		c.mu.Unlock()
		return
	}
	c.fenced = true // no more numbers are issued
	clk := c.cfg.Boot()
	c.lapse(clk)
	part := c.linePart(clk)
	c.pool.PutLine(part)
	c.pool.Resign()
	now, wr := c.pool.Begin(clk, true)
	c.deliver(now, nil)
	c.mu.Unlock()
	if wr == nil {
		return
	}
	if err := c.store(ctx, wr); err != nil {
		c.cfg.Log.Warn("last write of a clean stop failed", "room", c.cfg.Room, "error", err)
		return
	}
	c.mu.Lock()
	c.deliver(c.pool.Confirm(c.cfg.Boot()))
	c.mu.Unlock()
}

// grace returns how long an unpolled ticket at a distance from the frontier delays those behind it
// after a takeover: as long as it could have been silent if nothing had happened. If that is not
// recorded for the ticket, grace is two polls of the longest interval, with jitter and some slack.
func (c *desk) grace(lane int, distance uint64) time.Duration {
	if d, ok := slot.HeadGrace(c.heads[lane], distance); ok {
		return d
	}
	return 3 * c.cfg.Line.PollMax
}

// spare returns how many slots may be called, or kept for tickets that have not polled since a
// takeover so that others can be called past them (ADR 0051). Below Anywhere none is kept: a slot
// there is lent to the visitor that has waited longest in any data center, and an unused one is
// returned.
func (c *desk) spare(clk time.Duration) int {
	if c.below() {
		return 1
	}
	return int(min(c.pool.FreeNow(clk), math.MaxInt32))
}

// frozenAfter is the pause after which the process counts as suspended. Chosen: Run looks each
// second.
const frozenAfter = 3 * time.Second

// awake checks whether the process was suspended. During a suspension no poll arrived, so the host
// continues as after a takeover. If there are other hosts, it releases the room: another host has
// certainly taken over, and the places known here would be wrong.
func (c *desk) awake(clk time.Duration) {
	if c.awakeAt > 0 && clk-c.awakeAt > frozenAfter {
		c.cfg.Log.Warn("process stood still", "room", c.cfg.Room,
			"for", (clk - c.awakeAt).Round(time.Millisecond))
		c.unhear(clk)
		c.stood = !c.cfg.Params.Alone
	}
	c.awakeAt = clk
}

// unhear gives all visitors time to poll again before the next call.
func (c *desk) unhear(clk time.Duration) {
	c.tookAt = clk
	for lane := range c.heads {
		if x := c.line.Line(lane); x != nil {
			c.heads[lane] = x.AppendHeads(nil, c.pool.CounterTime(clk))
		}
	}
	c.line.ForgetPolls(c.pool.CounterTime(clk), c.graceOf)
	c.hideAt = clk + hideAfter
}
