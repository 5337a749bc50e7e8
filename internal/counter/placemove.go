package counter

import (
	"slices"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// A place that moves to another device keeps its number and gets a new key. Its ticket is valid
// only with the newest key, so that one of several devices that try at once gets the place, and the
// previous device learns that it has lost it. The key is in the record before any device gets it.

// Parameters of moved places. Chosen: a device that slept for less than movedKept still learns of
// the move.
const (
	movedKept  = time.Hour
	movedSweep = time.Minute
	movedLeast = 2 * time.Minute // when the list is full: longer than a claim may be repeated
)

// move adds a move to the next write. It reports whether the move is already in the record.
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
	c.moved = slices.Clone(c.moved) // records share the slice
	if ok {
		c.moved[at] = now
	} else {
		c.moved = slices.Insert(c.moved, at, now)
	}
	return false, nil
}

// movesMore reports whether one more place may move. One network must not use up all moves: the
// places in its lane may have half of them. When the list is full, places that are over are removed
// first.
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

// places reports whether a number holds a place that has not been used.
func (c *desk) places(number uint64) bool {
	switch c.line.Status(number) {
	case slot.TicketWaiting, slot.TicketLate, slot.TicketCalled:
		return true
	}
	return false
}

// theirs reports whether a ticket with this key is valid. A number without a known move is valid
// with any key: the record may be older than what visitors were told.
func (c *desk) theirs(number, key uint64) bool {
	at, ok := slot.FindMoved(c.moved, number)
	return !ok || c.moved[at].Key == key
}

// moving reports whether a move of the number is not in the record yet.
func (c *desk) moving(number uint64) bool {
	was := c.pool.Record().Moved
	now, ok := slot.FindMoved(c.moved, number)
	then, before := slot.FindMoved(was, number)
	return ok && (!before || was[then].Key != c.moved[now].Key)
}

// sweepMoved removes moved places that were over long ago.
func (c *desk) sweepMoved(clk time.Duration) {
	if len(c.moved) == 0 || clk-c.movedAt < movedSweep {
		return
	}
	c.movedAt = clk
	c.forgetMoved(clk, movedKept)
}

// forgetMoved removes moved places that have been over for after.
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
