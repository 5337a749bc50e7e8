package headgate

import (
	"time"

	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/slot"
)

// A DrawPlan describes a random draw, planned or past: at StartsAt the engine draws the order of
// all visitors who joined since the prequeue began. The zero DrawPlan is no draw. A program that
// changes it calls Reconfigure when the prequeue begins and when it is over.
type DrawPlan struct {
	Event    string // identifies the draw among all draws of the room
	StartsAt time.Time
	Begun    bool // the prequeue has begun: visitors who join now take part
	Started  bool // the draw is due; visitors who join now stand behind it
}

func (p *DrawPlan) plan() counter.Plan {
	if p.Event == "" {
		return counter.Plan{}
	}
	x := counter.Plan{Event: p.Event, Start: p.StartsAt.Unix()}
	switch {
	case p.Started:
		x.Phase = counter.Started
	case p.Begun:
		x.Phase = counter.Prequeuing
	}
	return x
}

// drawn returns the hash of the draw's seed, or the data with which anyone can check the order. It
// is at most one second old.
func (r *Room) drawn() string {
	return r.draw.Get(r.boot(), func() string { return r.counter.State(r.worker.opened()).Draw.Text() })
}

// event returns what visitors see of the current event.
func (r *Room) event(cfg *RoomConfig) Event {
	e := cfg.Event
	if !e.Active {
		return Event{}
	}
	if e.Shuffle {
		e.Draw = r.drawn()
	}
	return e
}

// unordered reports whether a ticket has no place in an order yet, because the next visitor is
// drawn at random. The draw of an event is for the ordinary line only.
func (c *RoomConfig) unordered(ticket uint64) bool {
	return c.Method == MethodRandom ||
		c.Event.Active && c.Event.Prequeue && c.Event.Shuffle && slot.LaneIndex(ticket) == 0
}

// An EventStatus describes the event of a room, for operators.
type EventStatus struct {
	Name     string    `json:"name"`
	Prequeue bool      `json:"prequeue"`
	Shuffle  bool      `json:"shuffle"`
	StartsAt time.Time `json:"starts_at"`
	EndsAt   time.Time `json:"ends_at"`
}

func (c *RoomConfig) statusEvent() *EventStatus {
	e := &c.Event
	if !e.Active {
		return nil
	}
	return &EventStatus{e.Name, e.Prequeue, e.Shuffle, e.StartsAt, e.EndsAt}
}
