package headgate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/histogram"
	"github.com/headgate/headgate/internal/sessions"
	"github.com/headgate/headgate/internal/signals"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/ticket"
	"github.com/headgate/headgate/status"
)

// counts are the room's totals since its start.
type counts struct {
	admitted, joined, waited, revoked, excluded atomic.Int64
	forged, full, limited, shadowed, left       atomic.Int64
	crowded                                     atomic.Int64
	placesBack, passesBack                      atomic.Int64
	ruled                                       [ruleActions]atomic.Int64
}

// Status returns the state of the room.
func (r *Room) Status() status.Room {
	s := r.counter.State(r.worker.opened())
	l, cfg := r.live.Load(), &r.face.Load().cfg
	limits := s.InForce(cfg.TotalActiveUsers, cfg.NewUsersPerMinute)
	st := s.Report()
	st.Name, st.Host, st.Path, st.Event = cfg.Name, cfg.Host, cfg.Path, cfg.statusEvent()
	st.TotalActiveUsers, st.NewUsersPerMinute, st.Status = limits.Active, limits.New, "not_queueing"
	st.SessionDuration, st.QueueAll, st.Closed = cfg.SessionDuration.String(), l.queueAll, l.closed
	st.Message, st.Method, st.Shadow, st.OriginUp = l.message, string(cfg.Method), cfg.Shadow, !l.down
	st.OneAddress = r.face.Load().joins.Lone(r.boot())
	st.Challenges = r.gate.Report(cfg.Challenge.Kind)
	if s.Waiting > 0 || l.holds() {
		st.Status = "queueing"
	}
	if l.prequeue {
		st.Status = "event_prequeueing"
	}
	if l.suspended {
		st.Status = "suspended"
	}
	if err := r.counter.Damaged(); err != nil {
		st.Status, st.Record.Damaged = "damaged", err.Error()
	}
	t, c := &st.Totals, &r.counts
	t.Admitted, t.Joined, t.WaitingAnswers = c.admitted.Load(), c.joined.Load(), c.waited.Load()
	t.Revoked, t.Excluded, t.Forged = c.revoked.Load(), c.excluded.Load(), c.forged.Load()
	t.Full, t.Limited, t.InFlightRejected = c.full.Load(), c.limited.Load(), c.crowded.Load()
	t.LeftLine, t.Shadowed = c.left.Load(), c.shadowed.Load()
	t.Bypassed, t.Crawlers = c.ruled[RuleBypass].Load(), c.ruled[RuleCrawler].Load()
	t.Denied, t.Challenged = c.ruled[RuleDeny].Load(), c.ruled[RuleChallenge].Load()
	t.SentToLane, t.PlacesBack = c.ruled[RuleLane].Load(), c.placesBack.Load()
	t.PassesShared, t.PassesRefused = r.worker.visits.Shared.Load(), r.worker.visits.Refused.Load()
	t.PassesBack, t.CounterRequests = c.passesBack.Load(), r.worker.short.Load()
	t.CounterRequestSeconds = time.Duration(r.worker.shortTook.Load()).Seconds()
	return st
}

// durations is what internal/analytics needs of a Room.
type durations = histogram.Durations

// sender is what headgate run needs of a Room.
type sender = signals.Sender

// returns counts a visitor whose place or pass is over and who gets another place.
func (r *Room) returns(q *visitRequest) {
	switch _, hi, life, _ := q.worker.clock.Bounds(); {
	case !q.has || q.tok.ID == 0 || q.tok.Work > 0 || q.tok.Refused:
	case q.tok.Kind == ticket.Ticket:
		r.counts.placesBack.Add(1)
	case q.tok.Kind == ticket.Pass && life == q.tok.Life &&
		hi.Sub(slot.Time(q.tok.End)) < q.f.cfg.SessionDuration:
		r.counts.passesBack.Add(1)
	}
}

func (c *RoomConfig) statusEvent() *status.Event {
	e := &c.Event
	if !e.Active {
		return nil
	}
	return &status.Event{Name: e.Name, Prequeue: e.Prequeue, Shuffle: e.Shuffle, StartsAt: e.StartsAt,
		EndsAt: e.EndsAt, Early: e.Early}
}

// ErrNoTicket is returned for an id that is no ticket of this room.
var ErrNoTicket = errors.New("no such ticket in this room")

// FindTicket returns the state of the ticket with the short id that its visitor sees, and why.
func (r *Room) FindTicket(ctx context.Context, id string) (status.Ticket, error) {
	x, err := r.counter.Trace(ctx, ticket.Finder(id))
	if err != nil {
		return status.Ticket{}, fmt.Errorf("ticket %q: %w", id, ErrNoTicket)
	}
	w := x.Report(r.whyNobody(x.Lane), r.Config().Method == MethodRandom)
	w.Room, w.Ticket = r.Config().Name, strings.ToLower(strings.TrimSpace(id))
	w.Networks, w.Agents = r.worker.visits.Shown(x.Session())
	w.Reason += sessions.SharedText(w.Networks, w.Agents)
	return w, nil
}

// ReleaseTicket gives a visitor whose challenge is not solved the place of its arrival, by its short id.
func (r *Room) ReleaseTicket(ctx context.Context, id string) error {
	return r.counter.Release(ctx, ticket.Finder(id))
}

// whyNobody returns the reason why nobody of a lane is called, if that is so.
func (r *Room) whyNobody(lane string) string {
	switch l := r.live.Load(); {
	case l.closed:
		return "the room is closed"
	case l.early:
		return "the room opens at " + r.Config().OpensAt.Format(time.RFC3339)
	case l.down:
		return "the origin does not answer"
	case l.queueAll:
		return "queue_all is on"
	case l.prequeue:
		return r.face.Load().cfg.statusEvent().WhyHeld(lane)
	}
	return ""
}
