package counter

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/status"
)

// The phases of an event with a draw.
const (
	Announced  Phase = iota // the seed is drawn
	Prequeuing              // visitors that join from now on take part
	Started                 // the order is drawn; visitors that join are behind it
)

// NewPlan returns the plan of an event, or none without an event.
func NewPlan(event string, start time.Time, begun, started bool) Plan {
	x := Plan{Event: event, Start: start.Unix()}
	switch {
	case event == "":
		return Plan{}
	case started:
		x.Phase = Started
	case begun:
		x.Phase = Prequeuing
	}
	return x
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
	for n := range c.called.all() { // none should be called: only lanes are called in a prequeue
		if slot.LaneIndex(n) == 0 {
			c.pool.Uncall()
			c.line.Lapse(n, c.pool.CounterTime(clk))
			c.called.take(n)
		}
	}
	c.awakeAt = 0 // a draw of millions takes longer than a round
	x := *d
	line := c.line.Ordinary() // visitors in a lane take no part
	x.Start, x.From, x.To = c.plan.Start, max(d.From, line.Frontier()), line.End()
	for _, before := range line.Draws() { // overlapping events: drawn places stay as they are
		x.From = max(x.From, before.To)
	}
	if d.From > 0 && x.To > x.From {
		x.Weights = line.Weights(x.From, x.To)
	}
	if c.weighs(len(x.Weights)) > mostWeights {
		c.cfg.Log.Warn("a record has no room for the weights of one more draw: all tickets weigh the same",
			"room", c.cfg.Room, "event", x.Event)
		x.Weights = ""
	}
	if d.From == 0 || !line.Shuffle(x, c.pool.CounterTime(clk)) {
		c.cfg.Log.Warn("nobody takes part in the draw", "room", c.cfg.Room, "event", x.Event)
		x.From, x.To, x.Weights = 0, 0, ""
	}
	*d = x
}

// asksNetwork reports whether the network of a ticket's visitor is needed for a draw.
func (c *desk) asksNetwork(number uint64) bool {
	line := c.line.Line(slot.LaneIndex(number))
	if line == nil || line.Network(number) != 0 && line.Network(number) != slot.NoProof {
		return false
	}
	return c.cfg.DrawWeight > 0 &&
		(c.cfg.RandomOrder || c.plan.Phase == Prequeuing && c.plan.Event != "" && line == c.line.Ordinary())
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

// mostWeights bounds the weights of all draws in a record: with drawnBytes it leaves an eighth of the most
// that NATS carries to the rest, and one draw has two thirds of it at most. Chosen.
const mostWeights = 384 << 10

// weighs returns how many bytes n more make with the weights of all draws.
func (c *desk) weighs(n int) int {
	for i := range c.draws {
		n += len(c.draws[i].Weights)
	}
	return n
}

// forget removes draws that nobody needs, the oldest first, and the weights of all of them but the last,
// which is still shown.
func (c *desk) forget() {
	needed := c.line.Ordinary().Draws()
	spare, last := 0, int64(0)
	for i := range c.draws {
		last = max(last, c.draws[i].Start)
	}
	for i := len(c.draws) - 1; i >= 0; i-- {
		d := &c.draws[i]
		if d.To != 0 && slices.Contains(needed, *d) {
			continue
		}
		if d.Start < last && !c.pool.Claims(d.From, d.To) { // else a record may need them to find a place
			d.Weights = ""
		}
		if spare++; spare > mostPlanned {
			c.draws = slices.Delete(c.draws, i, i+1)
		}
	}
}

// drawState returns the state of the planned draw and of the last one, from the confirmed record.
// If nothing is planned it returns the last one alone, so that a draw can be checked after its
// event.
func (c *desk) drawState() *status.Draw {
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
func told(d *slot.Draw) *status.Draw {
	if d == nil {
		return nil
	}
	sum := d.Commitment()
	s := &status.Draw{Event: d.Event, Hash: hex.EncodeToString(sum[:])}
	if d.Start != 0 {
		s.Seed, s.From, s.To, s.Finished = hex.EncodeToString(d.Seed[:]), d.From, d.To, true
	}
	if d.Weights != "" {
		sum = sha256.Sum256([]byte(d.Weights))
		s.Weights = hex.EncodeToString(sum[:])
	}
	return s
}

// drawPolls is how many polls a second a crowd makes in random order, until each visitor polls once
// per PollMax. Chosen: a called slot stays empty until its visitor polls.
const drawPolls = 2000

// drawInterval returns the poll interval of each visitor in random order.
func (c *desk) drawInterval() time.Duration {
	d := time.Duration(c.line.Len()) * (time.Second / drawPolls)
	return min(max(d, c.cfg.Line.PollMin), c.cfg.Line.PollMax)
}

// drawETA returns the wait of any visitor in random order: half of them wait less than Expect, a
// quarter less than Low and a quarter more than High. Let n visitors wait, and let 1+a newcomers
// join per call. Then a visitor still waits after k calls with the probability (1+k·a/n)^(-1/a).
func (c *desk) drawETA(number uint64, clk time.Duration) ETA {
	lane := slot.LaneIndex(number)
	own := max(1, int64(c.line.Line(lane).Drawable()))
	n := float64(own + c.line.Beside(lane, own)) // approximate in a lane
	a := -1.0                                    // no newcomers
	if calls, _ := c.left.over(clk, 60); calls > 0 {
		joins := 0.0
		for i := range c.joins {
			in, _ := c.joins[i].over(clk, 60)
			joins += in
		}
		a = min(joins/calls-1, 1)
	}
	after := func(share float64) ETA {
		k := -n * math.Log(1-share)
		if math.Abs(a) > 0.01 {
			k = n / a * (math.Pow(1-share, -a) - 1)
		}
		return c.fore.eta(lane, c.pool.Called()+int64(k)+1, clk)
	}
	e := after(0.5)
	if e.Known {
		e.Exact, e.Low, e.High = false, after(0.25).Expect, after(0.75).Expect
	}
	return e
}

// served returns the number below which no ticket of a line waits for its first call.
func (c *desk) served(lane int) uint64 {
	line := c.line.Line(lane)
	switch {
	case line == nil:
		return 0
	case c.cfg.RandomOrder:
		return line.First()
	}
	return line.Served()
}

// skipped returns how many bytes of a record the places below the frontier may take: those of the
// ordinary line, and those of each lane.
func (c *desk) skipped() (own, lane int) {
	switch {
	case !c.cfg.RandomOrder:
		return skipBytes, skipBytes
	case c.line.Line(1) == nil && c.line.Line(slot.MaxLanes) == nil:
		return drawnBytes, 0
	}
	return drawnBytes / 2, drawnBytes / (2 * slot.MaxLanes)
}
