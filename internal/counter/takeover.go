package counter

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// How a host begins, ends, and goes on after a pause in which nobody was heard.

// refuse makes a host that serves nobody and writes nothing: its record cannot be
// read, and to begin a new one would take every place away.
func (c *Counter) refuse(err error) {
	c.cfg.Log.Error("record cannot be read: this room lets nobody in until it is restored",
		"room", c.cfg.Room, "error", err, "hint", "headgate doctor says what to do")
	c.damaged, c.fenced = err, true
	c.pool = slot.NewPool(c.cfg.Params, c.cfg.Host, slot.NewRecord(0, nil, c.cfg.Active, c.cfg.New))
	c.line = slot.NewLines()
	c.pace = newPace(c.cfg.Settings)
}

// Damaged is why this host serves nobody, nil if it serves.
func (c *Counter) Damaged() error { return c.damaged }

// takeoverTries bounds how often a takeover may lose against the old host's
// writes. One that keeps writing every few milliseconds is not dead.
const takeoverTries = 20

// takeOver reads the record and writes it with the next epoch. A host that still
// writes makes that fail; it is read and tried again.
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

// farewell is the last write of a clean stop: no number stays reserved, so that
// the next host knows exactly who waits.
func (c *Counter) farewell(ctx context.Context) {
	c.mu.Lock()
	if c.fenced || c.pool.Writing() {
		c.mu.Unlock()
		return
	}
	c.fenced = true // no number is issued any more
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

// grace is how long a ticket that far from the frontier holds up those behind it
// after a takeover if it does not speak: as long as it might have been silent had
// nothing happened. Beyond those of whom that is known, two polls of the longest
// interval, with their jitter and some slack.
func (c *desk) grace(lane int, distance uint64) time.Duration {
	if d, ok := slot.HeadGrace(c.heads[lane], distance); ok {
		return d
	}
	return 3 * c.cfg.Line.PollMax
}

// spare is how many slots may be called, or kept for tickets that were not heard since a takeover so
// that others may be called past them (ADR 0051). Below Anywhere a slot is lent to whoever has
// waited longest in any data centre, and one that nobody takes goes back: none is kept.
func (c *desk) spare(clk time.Duration) int {
	if c.below() {
		return 1
	}
	return int(min(c.pool.FreeNow(clk), math.MaxInt32))
}

// frozenAfter: Run looks each second. Chosen.
const frozenAfter = 3 * time.Second

// awake notices that the process stood still for a while, with all who asked
// meanwhile unheard: it goes on as after a takeover. Among others it lets go: another
// has surely taken over, and what this one says of places would be wrong.
func (c *desk) awake(clk time.Duration) {
	if c.awakeAt > 0 && clk-c.awakeAt > frozenAfter {
		c.cfg.Log.Warn("process stood still", "room", c.cfg.Room,
			"for", (clk - c.awakeAt).Round(time.Millisecond))
		c.unhear(clk)
		c.stood = !c.cfg.Params.Alone
	}
	c.awakeAt = clk
}

// unhear gives everybody time to speak again before anybody is called.
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
