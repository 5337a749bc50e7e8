package headgate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/sessions"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/ticket"
)

// ErrNoTicket is returned for an id that is no ticket of this room.
var ErrNoTicket = errors.New("no such ticket in this room")

// TicketInfo is the state of a ticket, for operators.
type TicketInfo struct {
	Room      string  `json:"room"`
	Ticket    string  `json:"ticket"`
	Lane      string  `json:"lane"`                  // of the ticket; "" is the ordinary line
	Status    string  `json:"status"`                // waiting, late, called, used, gone
	Position  int64   `json:"position"`              // 1 is next; 0: no place
	Ahead     int64   `json:"ahead"`                 // people in front of it
	Expected  float64 `json:"expected_wait_seconds"` // -1: unknown
	SilentFor float64 `json:"silent_seconds"`        // since its last poll; -1: unknown
	KeptFor   float64 `json:"kept_seconds"`          // how long the place is kept without a poll; -1: not kept
	Reason    string  `json:"why"`

	// Networks and Agents are the number of networks and user agents that have used its pass in
	// this process. 9 stands for more than 8.
	Networks int `json:"networks"`
	Agents   int `json:"agents"`
}

// FindTicket returns the state of the ticket with the short id that its visitor sees, and the
// reason for it.
func (r *Room) FindTicket(ctx context.Context, id string) (TicketInfo, error) {
	id = strings.ToLower(strings.TrimSpace(id))
	var number uint64
	x, err := r.counter.Trace(ctx, func(life uint64) (n uint64, ok bool) {
		number, ok = ticket.Number(life, id)
		return number, ok
	})
	if err != nil {
		return TicketInfo{}, fmt.Errorf("ticket %q: %w", id, ErrNoTicket)
	}
	w := TicketInfo{
		Room: r.Config().Name, Ticket: id, Lane: x.Lane, Position: x.Position,
		Ahead: max(0, x.Position-1), Expected: -1, SilentFor: -1, KeptFor: -1,
	}
	if x.Place {
		w.SilentFor, w.KeptFor = counter.RoundTenths(x.Silent), counter.RoundTenths(x.Kept)
	}
	if x.ETA.Known {
		w.Expected = counter.RoundTenths(x.ETA.Expect)
	}
	drawn := r.Config().Method == MethodRandom
	if w.Status, w.Reason = x.Explain(r.whyNobody(), drawn); drawn && w.Status == "waiting" {
		w.Position, w.Ahead = 0, 0
	}
	w.Networks, w.Agents = r.worker.visits.Shown(slot.SessionID(number))
	if w.Networks > 1 {
		w.Reason += "; its pass was used in " + sessions.CountText(w.Networks) + " networks, with " +
			sessions.CountText(w.Agents) + " user agents, as far as this node has seen"
	}
	return w, nil
}

// whyNobody returns the reason why nobody is called, if that is so.
func (r *Room) whyNobody() string {
	switch l := r.live.Load(); {
	case l.closed:
		return "the room is closed"
	case l.prequeue:
		return "the event starts at " + r.Config().Event.StartsAt.Format(time.RFC3339)
	case l.early:
		return "the room opens at " + r.Config().OpensAt.Format(time.RFC3339)
	case l.down:
		return "the origin does not answer"
	case l.queueAll:
		return "queue_all is on"
	}
	return ""
}
