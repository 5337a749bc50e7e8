package headgate

import (
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/histogram"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/ticket"
)

// counts are the room's totals since its start.
type counts struct {
	admitted, joined, waited, revoked, excluded atomic.Int64
	forged, full, limited, shadowed, left       atomic.Int64
	crowded                                     atomic.Int64
	placesBack, passesBack                      atomic.Int64
	ruled                                       [ruleActions]atomic.Int64
	waits                                       histogram.Histogram // of visitors admitted from the line
}

// Status is the state of a room, for operators.
type Status struct {
	Name               string `json:"name"`
	Host               string `json:"host"`
	Path               string `json:"path"`
	Status             string `json:"status"` // also queueing, event_prequeueing, suspended, damaged
	ActiveUsers        int64  `json:"active_users"`
	WaitingUsers       int64  `json:"waiting_users"`
	Called             int64  `json:"called"`
	Provisional        int64  `json:"provisional_tickets"` // tickets whose cookie has not come back; at the host
	OneAddress         bool   `json:"one_address"`         // nearly all newcomers have the same address
	NewUsersLastMinute int64  `json:"new_users_last_minute"`
	TotalActiveUsers   int64  `json:"total_active_users"`
	NewUsersPerMinute  int64  `json:"new_users_per_minute"`
	SessionDuration    string `json:"session_duration"`
	Method             string `json:"method"`
	QueueAll           bool   `json:"queue_all"`
	Closed             bool   `json:"closed"`
	Message            string `json:"message"`
	// Event is the current event, and Draw is the planned or past draw; nil for none.
	Event          *EventStatus        `json:"event,omitempty"`
	Draw           *counter.DrawState  `json:"draw,omitempty"`
	Hosted         bool                `json:"hosted"` // this process hosts the room
	Bound          counter.Bound       `json:"bound"`  // above a lowered limit until that is in force
	Shadow         bool                `json:"shadow"`
	OriginUp       bool                `json:"origin_up"`
	CallsPerSecond float64             `json:"calls_per_second"`
	MaxWaitSeconds float64             `json:"max_estimated_wait_seconds"` // -1: unknown
	Record         Record              `json:"record"`
	Totals         Totals              `json:"totals"`
	Lanes          []counter.LaneState `json:"lanes,omitempty"` // lines beside the ordinary line
	Lent           *counter.LentState  `json:"lent,omitempty"`  // by this data center's counter
	// Datacenters is nil if there is only one.
	Datacenters *counter.DatacentersReport `json:"datacenters,omitempty"`
}

// Record is the state of a room's record in the store.
type Record struct {
	Age          float64 `json:"age_seconds"`     // since the newest confirmed write was built
	WriteFailing float64 `json:"refused_seconds"` // how long the store has rejected writes; 0: it accepts them
	Quiet        float64 `json:"quiet_seconds"`   // how long newcomers are not admitted because the record was old
	Latency      float64 `json:"write_seconds"`   // mean of the last writes
	Damaged      string  `json:"damaged"`         // why the record cannot be read, or ""
	LastHeard    float64 `json:"told_seconds"`    // since the host's last message; -1: never
}

// Totals are counts since the start of the process.
type Totals struct {
	Admitted              int64   `json:"admitted"`
	Joined                int64   `json:"joined"`
	WaitingAnswers        int64   `json:"waiting_answers"`
	Called                int64   `json:"called"`
	Claimed               int64   `json:"claimed"`
	CallsLapsed           int64   `json:"calls_lapsed"`
	Revoked               int64   `json:"revoked"`
	Excluded              int64   `json:"excluded"`
	Forged                int64   `json:"forged_cookies"`
	Full                  int64   `json:"refused_full"`
	Limited               int64   `json:"refused_join_limit"`
	InFlightRejected      int64   `json:"refused_excluded"` // too many were in flight
	LeftLine              int64   `json:"given_up"`         // places given up
	PassesShared          int64   `json:"passes_shared"`
	PassesRefused         int64   `json:"refused_pass_sharing"` // requests
	Expired               int64   `json:"places_expired"`
	PlacesBack            int64   `json:"places_back"` // expired places whose visitors came back
	PassesBack            int64   `json:"passes_back"` // expired passes, back within a session of the end
	Shadowed              int64   `json:"shadow_held"`
	Bypassed              int64   `json:"rule_bypass"`
	Crawlers              int64   `json:"rule_crawler"`
	Denied                int64   `json:"rule_deny"`
	SentToLane            int64   `json:"rule_lane"`
	Writes                int64   `json:"record_writes"`
	WriteSeconds          float64 `json:"record_write_seconds"`
	CallEmptySeconds      float64 `json:"call_empty_seconds"`
	CounterRequests       int64   `json:"newcomers_asked"` // from this process, when its share had no slot
	CounterRequestSeconds float64 `json:"newcomers_asked_seconds"`
}

// Status returns the state of the room.
func (r *Room) Status() Status {
	s := r.counter.State(r.worker.opened())
	l, cfg := r.live.Load(), &r.face.Load().cfg
	st := Status{
		OneAddress: r.face.Load().joins.Lone(r.boot()), Provisional: s.Provisional,
		Name: cfg.Name, Host: cfg.Host, Path: cfg.Path, Status: "not_queueing",
		ActiveUsers: s.Active, WaitingUsers: s.Waiting,
		Called: s.Called, NewUsersLastMinute: s.New,
		TotalActiveUsers: cfg.TotalActiveUsers, NewUsersPerMinute: cfg.NewUsersPerMinute,
		SessionDuration: cfg.SessionDuration.String(), QueueAll: l.queueAll,
		Closed: l.closed, Message: l.message, Method: string(cfg.Method),
		Record: Record{
			Age: counter.RoundTenths(s.Age), WriteFailing: counter.RoundTenths(s.Refused),
			Quiet: counter.RoundTenths(s.Quiet), Latency: s.Latency.Seconds(),
			LastHeard: counter.RoundTenths(s.LastHeard),
		},
		Hosted: s.Hosted, Shadow: cfg.Shadow, OriginUp: !l.down, CallsPerSecond: s.Rate, MaxWaitSeconds: -1,
		Datacenters: s.Datacenters.Report(), Event: cfg.statusEvent(), Draw: s.Draw,
		Lanes: s.Lanes, Lent: s.Lent, Bound: s.Bound,
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
	st.Totals = Totals{
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

// Durations are histograms of how long things took in this process since its start.
type Durations struct {
	Waited *histogram.Histogram // from joining the line to admission, of admitted visitors
	Inside *histogram.Histogram // of sessions that began here and ended: first request to last byte
	Silent *histogram.Histogram // of the same sessions: longest time between two requests
}

// Durations returns the histograms of the room.
func (r *Room) Durations() Durations {
	return Durations{
		Waited: &r.counts.waits, Inside: &r.worker.visits.Inside, Silent: &r.worker.visits.Silent,
	}
}

// returns counts a visitor whose place or pass is over and who gets another place.
func (r *Room) returns(q *visitRequest) {
	switch _, hi, life, _ := q.worker.clock.Bounds(); {
	case !q.has || q.tok.ID == 0:
	case q.tok.Kind == ticket.Ticket:
		r.counts.placesBack.Add(1)
	case q.tok.Kind == ticket.Pass && life == q.tok.Life &&
		hi.Sub(slot.Time(q.tok.End)) < q.f.cfg.SessionDuration:
		r.counts.passesBack.Add(1)
	}
}
