package headgate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/ticket"
	"github.com/headgate/headgate/slot"
)

// ErrNoTicket: the id is not one of a ticket of this room.
var ErrNoTicket = errors.New("no such ticket in this room")

// Where is where the visitor of a ticket stands, for operators.
type Where struct {
	Room      string  `json:"room"`
	Ticket    string  `json:"ticket"`
	Lane      string  `json:"lane"`                  // that it waits in, "" for the ordinary line
	Status    string  `json:"status"`                // waiting, late, called, used, gone
	Position  int64   `json:"position"`              // 1 is next, 0 none
	Ahead     int64   `json:"ahead"`                 // people before it
	Expected  float64 `json:"expected_wait_seconds"` // -1 unknown
	SilentFor float64 `json:"silent_seconds"`        // since it last asked, -1 unknown
	KeptFor   float64 `json:"kept_seconds"`          // its place, if it stays silent; -1 not at all
	Why       string  `json:"why"`
}

// Where finds a ticket by the short id that its visitor sees, and says where it
// stands and why.
func (r *Room) Where(ctx context.Context, id string) (Where, error) {
	id = strings.ToLower(strings.TrimSpace(id))
	x, err := r.counter.Trace(ctx, func(life uint64) (uint64, bool) { return ticket.Number(life, id) })
	if err != nil {
		return Where{}, fmt.Errorf("ticket %q: %w", id, ErrNoTicket)
	}
	w := Where{
		Room: r.Config().Name, Ticket: id, Lane: x.Lane, Status: "gone", Position: x.Position,
		Ahead: max(0, x.Position-1), Expected: -1, SilentFor: -1, KeptFor: -1,
	}
	if x.Place {
		w.SilentFor, w.KeptFor = roundSeconds(x.Silent), roundSeconds(x.Kept)
	}
	if x.ETA.Known {
		w.Expected = roundSeconds(x.ETA.Expect)
	}
	silent := "its visitor asked " + x.Silent.Round(time.Second).String() + " ago"
	before := fmt.Sprintf("%d people are before it; ", w.Ahead)
	if r.Config().Method == MethodRandom && (x.Status == slot.TicketWaiting || x.Status == slot.TicketLate) {
		x.Status, w.Position, w.Ahead = slot.TicketWaiting, 0, 0
		before = "who is next is drawn among all who are there; "
	}
	switch x.Status {
	case slot.TicketWaiting:
		w.Status, w.Why = "waiting", before+silent
		if why := r.whyNobody(); why != "" {
			w.Why += "; nobody is called: " + why
		}
	case slot.TicketLate:
		w.Status = "late"
		w.Why = "its turn came while its visitor was silent; it is called first when it asks again; " + silent
	case slot.TicketCalled:
		w.Status, w.Why = "called", "its turn has come and a slot is reserved; its page goes in by itself; "+silent
	case slot.TicketUsed:
		w.Status, w.Why = "used", "it let its visitor in; the stay has ended"
		if x.Left > 0 {
			w.Why = "it let its visitor in, who is inside for another " +
				x.Left.Round(time.Second).String() + " at least"
		}
	default:
		w.Why = "its visitor was silent for longer than hold, or gave the place up"
	}
	return w, nil
}

func roundSeconds(d time.Duration) float64 { return math.Round(d.Seconds()*10) / 10 }

// whyNobody says why nobody is called, if so.
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
