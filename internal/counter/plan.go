package counter

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// A Plan says which event with a draw is to come, or is on. The zero Plan is none.
type Plan struct {
	Event string // tells this draw from all others
	Start int64  // seconds of Unix time
	Phase Phase
}

// A Phase is how far an event is.
type Phase uint8

// The phases of an event with a draw.
const (
	Announced  Phase = iota // the seed is drawn
	Prequeuing              // who joins from now on takes part
	Started                 // the order is drawn; who joins stands behind
)

// A DrawState is what may be told of a draw.
type DrawState struct {
	Event    string `json:"event"`
	Hash     string `json:"hash"`            // the SHA-256 of the seed
	Seed     string `json:"seed,omitempty"`  // once the order is drawn
	From     uint64 `json:"from,omitempty"`  // the first ticket that took part
	To       uint64 `json:"to,omitempty"`    // and the first that did not
	Finished bool   `json:"drawn,omitempty"` // the order is drawn
	// Last is the draw before this one, of which those are called who still wait: nil for none.
	Last *DrawState `json:"last,omitempty"`
}

// Text is the hash, or what the order can be checked by.
func (d *DrawState) Text() string {
	if d == nil {
		return ""
	}
	if d.Finished {
		return fmt.Sprintf("%s/%d/%d", d.Seed, d.From, d.To)
	}
	return d.Hash
}

// drawn are the draws by which places lie.
func drawn(all []slot.Draw) []slot.Draw {
	return slices.DeleteFunc(slices.Clone(all), func(d slot.Draw) bool { return d.To == 0 })
}

// drawing reports whether a draw has gone a step that no write has confirmed: who asks for a
// number or a place waits for it.
func (c *desk) drawing() bool { return !slices.Equal(c.draws, c.pool.Record().Draws) }

// follow does what the plan says and the draws do not have yet: the seed, then the first number
// that takes part, then the last. Each step is told when it is written.
func (c *desk) follow(clk time.Duration) {
	c.forget()
	if c.plan.Event == "" || c.cfg.Params.Counters {
		return
	}
	d := c.planned()
	if c.plan.Phase >= Prequeuing && d.From == 0 && d.Start == 0 {
		d.From = c.line.Ordinary().End()
	}
	if c.plan.Phase < Started || d.Start != 0 {
		return
	}
	for n := range c.called.all() { // nobody can be: the prequeue holds all
		c.pool.Uncall()
		c.line.Lapse(n, c.pool.CounterTime(clk))
		delete(c.called.at, n)
	}
	c.awakeAt = 0 // a draw of millions takes longer than a look
	x := *d
	line := c.line.Ordinary() // who waits in a lane takes no part
	x.Start, x.From, x.To = c.plan.Start, max(d.From, line.Frontier()), line.End()
	for _, before := range line.Draws() { // of an event that overlaps: who is drawn keeps that place
		x.From = max(x.From, before.To)
	}
	if d.From == 0 || !line.Shuffle(x, c.pool.CounterTime(clk)) {
		c.cfg.Log.Warn("nobody takes part in the draw", "room", c.cfg.Room, "event", x.Event)
		x.From, x.To = 0, 0
	}
	*d = x
}

// planned is the draw of the plan, made if there is none: one that is over and of another start
// was of another time.
func (c *desk) planned() *slot.Draw {
	for i := range c.draws {
		if d := &c.draws[i]; d.Event == c.plan.Event && (d.Start == 0 || d.Start == c.plan.Start) {
			return d
		}
	}
	d := slot.Draw{Event: c.plan.Event}
	rand.Read(d.Seed[:]) // never fails
	c.draws = append(c.draws, d)
	return &c.draws[len(c.draws)-1]
}

// mostPlanned is how many draws a record has that no place needs: those to come, and the last,
// whose seed is still shown. Chosen.
const mostPlanned = 4

// putOff is how long a prequeue that had begun must be to come again until it is believed. A new host
// whose clock is behind says so too, and who joined in between would stand before all. Chosen: clocks
// of machines that keep time agree better.
const putOff = 10 * time.Second

// take takes a plan over, to be followed. Who came while an event was put off waits before its prequeue.
func (c *desk) take(p Plan, clk time.Duration) {
	if p == c.plan {
		return
	}
	if c.plan.Phase == Announced && clk-c.planAt >= putOff {
		for i := range c.draws {
			if d := &c.draws[i]; d.Event == c.plan.Event && d.Start == 0 {
				d.From = 0
			}
		}
	}
	c.plan, c.planAt = p, clk
}

// forget drops draws that nobody needs, the oldest first.
func (c *desk) forget() {
	needed := c.line.Ordinary().Draws()
	spare := 0
	for i := len(c.draws) - 1; i >= 0; i-- {
		d := &c.draws[i]
		if d.To != 0 && slices.Contains(needed, *d) {
			continue
		}
		if spare++; spare > mostPlanned {
			c.draws = slices.Delete(c.draws, i, i+1)
		}
	}
}

// drawState is what the confirmed record says of the draw of the plan, and of the last one before: where
// nothing is planned, of that alone, so that a draw can be checked when its event is over.
func (c *desk) drawState() *DrawState {
	var planned, last *slot.Draw
	all := c.pool.Record().Draws
	for i := range all {
		switch d := &all[i]; {
		case c.plan.Event != "" && d.Event == c.plan.Event && (d.Start == 0 || d.Start == c.plan.Start):
			planned = d
		case d.To != 0 && (last == nil || d.Start >= last.Start):
			last = d
		}
	}
	s := told(planned)
	if s == nil {
		return told(last)
	}
	s.Last = told(last)
	return s
}

// told is what may be told of a draw.
func told(d *slot.Draw) *DrawState {
	if d == nil {
		return nil
	}
	sum := d.Commitment()
	s := &DrawState{Event: d.Event, Hash: hex.EncodeToString(sum[:])}
	if d.Start != 0 {
		s.Seed, s.From, s.To, s.Finished = hex.EncodeToString(d.Seed[:]), d.From, d.To, true
	}
	return s
}

// Follow takes a plan over. It blocks until what it asks for is in the record.
func (c *Counter) SetPlan(ctx context.Context, p Plan) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	clk := c.cfg.Boot()
	c.desk.take(p, clk)
	if c.fenced {
		return ErrFenced
	}
	c.desk.follow(clk)
	for c.drawing() {
		if err := c.awaitWrite(ctx); err != nil {
			return err
		}
	}
	return nil
}

// setPlan takes a plan over and does not wait for it.
func (c *Counter) setPlan(p Plan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.desk.take(p, c.cfg.Boot())
}

// Follow takes a plan over, where the room is hosted here and for when it will be.
func (s *Handle) SetPlan(ctx context.Context, p Plan) error {
	s.mu.Lock()
	s.plan = p
	c := s.host.Load()
	s.mu.Unlock()
	if c == nil {
		return nil
	}
	err := c.SetPlan(ctx, p)
	if errors.Is(err, ErrFenced) { // the next host follows its own
		return nil
	}
	s.tellState()
	return err
}
