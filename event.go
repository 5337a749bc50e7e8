package headgate

import (
	"time"

	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/slot"
)

// A DrawPlan is a draw that is to come, or has been: at StartsAt the order of all who came since
// the prequeue began is drawn. The zero DrawPlan is none. Who changes it calls Reconfigure when
// the prequeue begins and when it is over.
type DrawPlan struct {
	Event    string // tells this draw from all others of the room
	StartsAt time.Time
	Begun    bool // its prequeue has begun: who joins from now on takes part
	Started  bool // the order is to be drawn now; who joins from now on stands behind
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

// drawn is the hash of the draw's seed, or what the order can be checked by, a second old at most.
func (r *Room) drawn() string {
	return r.draw.Get(r.boot(), func() string { return r.counter.State(r.worker.opened()).Draw.Text() })
}

// event is what a visitor is told of the event that is on.
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

// unordered reports whether a ticket has no place yet: who is next is drawn. A draw of an event
// is over the ordinary line.
func (c *RoomConfig) unordered(ticket uint64) bool {
	return c.Method == MethodRandom ||
		c.Event.Active && c.Event.Prequeue && c.Event.Shuffle && slot.LaneIndex(ticket) == 0
}

// StatusEvent is the event of a room, for operators.
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
