package counter

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// A place that moves to another device keeps its number, and gets a key. Its ticket is good with
// the newest key alone, so that one of many who try at once has it, and whoever had it before is
// told. The key is in the record before anybody is told of it.

// A Move gives a place to another device: its ticket was good with the key From, and is with To.
type Move struct {
	Life, Number uint64
	From, To     uint64 // From is 0 of a place that has not moved; To never is
}

// Parameters of moved places. Chosen: a device that slept for less than movedKept is told.
const (
	movedKept  = time.Hour
	movedSweep = time.Minute
	movedLeast = 2 * time.Minute // when there is no room: longer than a claim may be repeated
)

// Move moves a place. It blocks until that is written, and says the same when it is asked again.
// It is ErrNoTicket for a place that has moved meanwhile, or is none any more.
func (c *Counter) Move(ctx context.Context, m Move) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for began := c.cfg.Boot(); ; {
		if c.gone() {
			return ErrFenced
		}
		if clk := c.cfg.Boot(); c.pool.Fresh(clk, fresh) { // else another host may know better
			written, err := c.desk.move(m, clk)
			if written || err != nil {
				return err
			}
		}
		if err := c.waitWrite(ctx, began); err != nil {
			return err
		}
	}
}

// move notes a move for the next write, and tells whether it is written.
func (c *desk) move(m Move, clk time.Duration) (written bool, err error) {
	at, ok := slot.FindMoved(c.moved, m.Number)
	switch {
	case !c.ofLine(m.Life), m.To == 0:
		return false, ErrNoTicket
	case ok && c.moved[at].Key == m.To:
		return !c.moving(m.Number), nil
	case ok && c.moved[at].Key != m.From, !c.places(m.Number):
		return false, ErrNoTicket
	case !ok && !c.movesMore(m.Number, clk):
		return false, ErrFull
	}
	now := slot.Moved{Number: m.Number, Key: m.To, Held: c.pool.CounterTime(clk)}
	c.moved = slices.Clone(c.moved) // records share it
	if ok {
		c.moved[at] = now
	} else {
		c.moved = slices.Insert(c.moved, at, now)
	}
	return false, nil
}

// movesMore reports whether one more place may move. One network must not use up the moves of all:
// those in its lane have half of them, and places that are over go when there is no room.
func (c *desk) movesMore(number uint64, clk time.Duration) bool {
	most := slot.MaxMoved
	if slot.LaneIndex(number) == slot.MaxLanes { // slot.NetworkLane
		most /= 2
	}
	if len(c.moved) >= most {
		c.forgetMoved(clk, movedLeast)
	}
	return len(c.moved) < most
}

// places reports whether a number holds a place that was not used.
func (c *desk) places(number uint64) bool {
	switch c.line.Status(number) {
	case slot.TicketWaiting, slot.TicketLate, slot.TicketCalled:
		return true
	}
	return false
}

// theirs reports whether a ticket with this key is good. One whose number is not known to have
// moved is: the record may be older than what was told.
func (c *desk) theirs(number, key uint64) bool {
	at, ok := slot.FindMoved(c.moved, number)
	return !ok || c.moved[at].Key == key
}

// moving reports whether a move of the number is not written yet.
func (c *desk) moving(number uint64) bool {
	was := c.pool.Record().Moved
	now, ok := slot.FindMoved(c.moved, number)
	then, before := slot.FindMoved(was, number)
	return ok && (!before || was[then].Key != c.moved[now].Key)
}

// sweepMoved forgets the places that have moved and were over long ago.
func (c *desk) sweepMoved(clk time.Duration) {
	if len(c.moved) == 0 || clk-c.movedAt < movedSweep {
		return
	}
	c.movedAt = clk
	c.forgetMoved(clk, movedKept)
}

// forgetMoved forgets the places that have been over for so long.
func (c *desk) forgetMoved(clk, after time.Duration) {
	now := c.pool.CounterTime(clk)
	var kept []slot.Moved
	for _, m := range c.moved {
		if c.places(m.Number) {
			m.Held = now
		}
		if now.Sub(m.Held) < after {
			kept = append(kept, m)
		}
	}
	c.moved = kept
}
