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

// A Plan is the next or current event with a draw. The zero Plan means none.
type Plan struct {
	Event string // distinguishes this draw from all others
	Start int64  // seconds of Unix time
	Phase Phase
}

// A Phase is the phase of an event.
type Phase uint8

// The phases of an event with a draw.
const (
	Announced  Phase = iota // the seed is drawn
	Prequeuing              // visitors that join from now on take part
	Started                 // the order is drawn; visitors that join are behind it
)

// A DrawState is what may be published about a draw.
type DrawState struct {
	Event    string `json:"event"`
	Hash     string `json:"hash"`            // the SHA-256 of the seed
	Seed     string `json:"seed,omitempty"`  // from when the order is drawn
	From     uint64 `json:"from,omitempty"`  // the first ticket that took part
	To       uint64 `json:"to,omitempty"`    // the first ticket after From that did not
	Finished bool   `json:"drawn,omitempty"` // the order is drawn
	// Last is the previous draw, if visitors of it still wait to be called; nil: none.
	Last *DrawState `json:"last,omitempty"`
}

// Text returns the hash, or after the draw all that is needed to check the order.
func (d *DrawState) Text() string {
	if d == nil {
		return ""
	}
	if d.Finished {
		return fmt.Sprintf("%s/%d/%d", d.Seed, d.From, d.To)
	}
	return d.Hash
}

// drawn returns the draws that have put places in order.
func drawn(all []slot.Draw) []slot.Draw {
	return slices.DeleteFunc(slices.Clone(all), func(d slot.Draw) bool { return d.To == 0 })
}

// drawing reports whether a draw has made a step that no write has confirmed. Joins and polls wait
// for that write.
func (c *desk) drawing() bool { return !slices.Equal(c.draws, c.pool.Record().Draws) }

// follow brings the draws in line with the plan, step by step: the seed, then the first number that
// takes part, then the last. Each step is published only when it is written.
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
	for n := range c.called.all() { // none should be called: nobody is called in a prequeue
		c.pool.Uncall()
		c.line.Lapse(n, c.pool.CounterTime(clk))
		delete(c.called.at, n)
	}
	c.awakeAt = 0 // a draw of millions takes longer than a round
	x := *d
	line := c.line.Ordinary() // visitors in a lane take no part
	x.Start, x.From, x.To = c.plan.Start, max(d.From, line.Frontier()), line.End()
	for _, before := range line.Draws() { // overlapping events: drawn places stay as they are
		x.From = max(x.From, before.To)
	}
	if d.From == 0 || !line.Shuffle(x, c.pool.CounterTime(clk)) {
		c.cfg.Log.Warn("nobody takes part in the draw", "room", c.cfg.Room, "event", x.Event)
		x.From, x.To = 0, 0
	}
	*d = x
}

// planned returns the draw of the plan, and makes it if there is none. A finished draw with another
// start belongs to another date of the event.
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

// mostPlanned is how many draws a record keeps that no place needs: the coming ones, and the last
// one, whose seed is still shown. Chosen.
const mostPlanned = 4

// putOff is how long a prequeue that had begun must be announced again before it counts as
// postponed. A new host whose clock is behind announces it again too, and visitors that joined in
// between would be ahead of all. Chosen: synchronized clocks differ by less.
const putOff = 10 * time.Second

// take sets the plan to follow. Visitors that came before an event was postponed wait ahead of its
// new prequeue.
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

// forget removes draws that nobody needs, the oldest first.
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

// drawState returns the state of the planned draw and of the last one, from the confirmed record.
// If nothing is planned it returns the last one alone, so that a draw can be checked after its
// event.
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

// told returns what may be published about a draw.
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

// SetPlan sets the plan. It blocks until the required step is in the record.
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

// setPlan sets the plan and does not wait.
func (c *Counter) setPlan(p Plan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.desk.take(p, c.cfg.Boot())
}

// SetPlan sets the plan, for the room if it is hosted here and for later takeovers by this process.
func (s *Handle) SetPlan(ctx context.Context, p Plan) error {
	s.mu.Lock()
	s.plan = p
	c := s.host.Load()
	s.mu.Unlock()
	if c == nil {
		return nil
	}
	err := c.SetPlan(ctx, p)
	if errors.Is(err, ErrFenced) { // the next host has its own plan
		return nil
	}
	s.tellState()
	return err
}
