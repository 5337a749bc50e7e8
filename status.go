package headgate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/counter"
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
	st := status.Room{
		OneAddress: r.face.Load().joins.Lone(r.boot()), Provisional: s.Provisional,
		Name: cfg.Name, Host: cfg.Host, Path: cfg.Path, Status: "not_queueing",
		ActiveUsers: s.Active, WaitingUsers: s.Waiting,
		Called: s.Called, NewUsersLastMinute: s.New,
		TotalActiveUsers: limits.Active, NewUsersPerMinute: limits.New, Auto: s.Auto,
		SessionDuration: cfg.SessionDuration.String(), QueueAll: l.queueAll,
		Closed: l.closed, Message: l.message, Method: string(cfg.Method),
		Record: status.Record{
			Age: counter.RoundTenths(s.Age), WriteFailing: counter.RoundTenths(s.Refused),
			Quiet: counter.RoundTenths(s.Quiet), Latency: s.Latency.Seconds(),
			LastHeard: counter.RoundTenths(s.LastHeard),
		},
		Hosted: s.Hosted, Shadow: cfg.Shadow, OriginUp: !l.down, CallsPerSecond: s.Rate, MaxWaitSeconds: -1,
		Datacenters: s.Datacenters.Report(), Event: cfg.statusEvent(), Draw: s.Draw,
		Challenges: r.gate.Report(cfg.Challenge),
		Lanes:      s.Lanes, Lent: s.Lent, Bound: s.Bound,
	}
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
	if s.Head.Known {
		st.MaxWaitSeconds = s.Head.Expect.Seconds()
	}
	t, c := s.Totals, &r.counts
	st.Totals = status.Totals{
		Admitted: c.admitted.Load(), Joined: c.joined.Load(), WaitingAnswers: c.waited.Load(),
		Called: t.Called, Claimed: t.Claimed, CallsLapsed: t.Lapsed, Revoked: c.revoked.Load(),
		Excluded: c.excluded.Load(), Forged: c.forged.Load(), Full: c.full.Load(),
		Limited: c.limited.Load(), InFlightRejected: c.crowded.Load(),
		LeftLine: c.left.Load(), Shadowed: c.shadowed.Load(), Writes: t.Writes,
		Bypassed: c.ruled[RuleBypass].Load(), Crawlers: c.ruled[RuleCrawler].Load(),
		Denied: c.ruled[RuleDeny].Load(), SentToLane: c.ruled[RuleLane].Load(),
		PlacesBack: c.placesBack.Load(), PassesBack: c.passesBack.Load(), Expired: t.Expired,
		PassesShared: r.worker.visits.Shared.Load(), PassesRefused: r.worker.visits.Refused.Load(),
		WriteSeconds:          t.WriteTime.Seconds(),
		CallEmptySeconds:      t.CallEmpty.Round(time.Microsecond).Seconds(),
		CounterRequests:       r.worker.short.Load(),
		CounterRequestSeconds: time.Duration(r.worker.shortTook.Load()).Seconds(),
	}
	return st
}

// durations is what internal/analytics needs of a Room.
type durations = histogram.Durations

// sender is what headgate run needs of a Room.
type sender = signals.Sender

// returns counts a visitor whose place or pass is over and who gets another place.
func (r *Room) returns(q *visitRequest) {
	switch _, hi, life, _ := q.worker.clock.Bounds(); {
	case !q.has || q.tok.ID == 0 || q.tok.Work > 0:
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
	return &status.Event{
		Name: e.Name, Prequeue: e.Prequeue, Shuffle: e.Shuffle, StartsAt: e.StartsAt, EndsAt: e.EndsAt,
	}
}

// ErrNoTicket is returned for an id that is no ticket of this room.
var ErrNoTicket = errors.New("no such ticket in this room")

// FindTicket returns the state of the ticket with the short id that its visitor sees, and the
// reason for it.
func (r *Room) FindTicket(ctx context.Context, id string) (status.Ticket, error) {
	id = strings.ToLower(strings.TrimSpace(id))
	var number uint64
	x, err := r.counter.Trace(ctx, func(life uint64) (n uint64, ok bool) {
		number, ok = ticket.Number(life, id)
		return number, ok
	})
	if err != nil {
		return status.Ticket{}, fmt.Errorf("ticket %q: %w", id, ErrNoTicket)
	}
	w := x.Report(r.whyNobody(), r.Config().Method == MethodRandom)
	w.Room, w.Ticket = r.Config().Name, id
	w.Networks, w.Agents = r.worker.visits.Shown(slot.SessionID(number))
	w.Reason += sessions.SharedText(w.Networks, w.Agents)
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
