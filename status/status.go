// Package status has the states of rooms, tickets and nodes as operators see them. Their JSON is that
// of the management API.
package status

import (
	"fmt"
	"strings"
	"time"
)

// A Room is the state of a room, for operators.
type Room struct {
	Name               string `json:"name"`
	Host               string `json:"host"`
	Path               string `json:"path"`
	Status             string `json:"status"` // also queueing, event_prequeueing, suspended, damaged
	ActiveUsers        int64  `json:"active_users"`
	WaitingUsers       int64  `json:"waiting_users"`
	Called             int64  `json:"called"`
	Provisional        int64  `json:"provisional_tickets"` // tickets that are not confirmed yet; at the host
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
	Event          *Event      `json:"event,omitempty"`
	Draw           *Draw       `json:"draw,omitempty"`
	Hosted         bool        `json:"hosted"` // this process hosts the room
	Bound          Bound       `json:"bound"`  // above a lowered limit until that is in force
	Auto           *Auto       `json:"auto,omitempty"`
	Shadow         bool        `json:"shadow"`
	OriginUp       bool        `json:"origin_up"`
	CallsPerSecond float64     `json:"calls_per_second"`
	MaxWaitSeconds float64     `json:"max_estimated_wait_seconds"` // -1: unknown
	Record         Record      `json:"record"`
	Totals         Totals      `json:"totals"`
	Lanes          []Lane      `json:"lanes,omitempty"`      // lines beside the ordinary line
	Challenges     *Challenges `json:"challenges,omitempty"` // of this process
	Lent           *Lent       `json:"lent,omitempty"`       // by this data center's counter
	// Datacenters is nil if there is only one.
	Datacenters *Datacenters `json:"datacenters,omitempty"`
}

// Challenges are counts of solutions since the start of the process.
type Challenges struct {
	Issued  int64            `json:"issued"`
	Solved  int64            `json:"solved"`
	Refused map[string]int64 `json:"refused"` // solutions, by reason
}

// Record is the state of a room's record in the store.
type Record struct {
	Age          float64 `json:"age_seconds"`     // since the newest confirmed write was built
	WriteFailing float64 `json:"refused_seconds"` // how long the store has rejected writes; 0: it accepts them
	Quiet        float64 `json:"quiet_seconds"`   // how long newcomers are not admitted because the record was old
	Latency      float64 `json:"write_seconds"`   // mean of the last writes
	Damaged      string  `json:"damaged"`         // why the record cannot be read, or ""
	LastHeard    float64 `json:"heard_seconds"`   // since the host's last message; -1: never
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
	Released              int64   `json:"tickets_released"` // by operators
	PlacesBack            int64   `json:"places_back"`      // expired places whose visitors came back
	PassesBack            int64   `json:"passes_back"`      // expired passes, back within a session of the end
	Shadowed              int64   `json:"shadow_held"`
	Bypassed              int64   `json:"rule_bypass"`
	Crawlers              int64   `json:"rule_crawler"`
	Denied                int64   `json:"rule_deny"`
	SentToLane            int64   `json:"rule_lane"`
	Challenged            int64   `json:"rule_challenge"`
	Writes                int64   `json:"record_writes"`
	WriteSeconds          float64 `json:"record_write_seconds"`
	CallEmptySeconds      float64 `json:"call_empty_seconds"`
	CounterRequests       int64   `json:"newcomers_asked"` // from this process, when its share had no slot
	CounterRequestSeconds float64 `json:"newcomers_asked_seconds"`
}

// An Event describes the event of a room, for operators.
type Event struct {
	Name     string    `json:"name"`
	Prequeue bool      `json:"prequeue"`
	Shuffle  bool      `json:"shuffle"`
	StartsAt time.Time `json:"starts_at"`
	EndsAt   time.Time `json:"ends_at"`

	Early []EarlyGroup `json:"early,omitempty"` // the groups that come in before StartsAt
}

// An EarlyGroup is a group whose people come in before the start of an event.
type EarlyGroup struct {
	Group    string    `json:"group"` // the name of its lane
	StartsAt time.Time `json:"starts_at"`
	Open     bool      `json:"open"` // its people come in now
}

// EarlyIn returns the groups that come in early, which is in a prequeue only, closed if everybody is held.
func EarlyIn(prequeue, held bool, groups []EarlyGroup) (all []EarlyGroup) {
	if !prequeue {
		return nil
	}
	for _, x := range groups {
		x.Open = x.Open && !held
		all = append(all, x)
	}
	return all
}

// WhyHeld returns the reason why nobody of a lane is called in the prequeue, or "". "" is the ordinary line.
func (e *Event) WhyHeld(lane string) string {
	for _, x := range e.Early {
		switch {
		case x.Group == lane && x.Open:
			return ""
		case x.Group == lane:
			return "the group " + lane + " comes in from " + x.StartsAt.Format(time.RFC3339) + " on"
		}
	}
	return "the event starts at " + e.StartsAt.Format(time.RFC3339)
}

// A Draw is what may be published about a draw.
type Draw struct {
	Event    string `json:"event"`
	Hash     string `json:"hash"`              // the SHA-256 of the seed
	Seed     string `json:"seed,omitempty"`    // from when the order is drawn
	From     uint64 `json:"from,omitempty"`    // the first ticket that took part
	To       uint64 `json:"to,omitempty"`      // the first ticket after From that did not
	Finished bool   `json:"drawn,omitempty"`   // the order is drawn
	Weights  string `json:"weights,omitempty"` // the SHA-256 of the weights; "": all tickets weigh the same
	// Last is the previous draw, if visitors of it still wait to be called; nil: none.
	Last *Draw `json:"last,omitempty"`
}

// Text returns the hash, or after the draw all that is needed to check the order.
func (d *Draw) Text() string {
	if d == nil {
		return ""
	}
	if d.Finished {
		return strings.TrimSuffix(fmt.Sprintf("%s/%d/%d/%s", d.Seed, d.From, d.To, d.Weights), "/")
	}
	return d.Hash
}

// Bound is how many slots may be in use now. It is the limits, or earlier and higher limits until
// enough slots have returned; with several data centers it is what this one holds. It belongs to
// the same moment as the usage beside it.
type Bound struct {
	Active int64 `json:"total_active_users"`
	New    int64 `json:"new_users_per_minute"`
}

// An AutoAmount is what headgate has found about the amount of a limit, or the rate of a queue, with `auto`.
// The process that finds it knows it as of now, others as of when it was written last.
type AutoAmount struct {
	Amount int64 `json:"amount"` // in force in the mode on
	// Knee is how many calls a second the origin answers within its target; 0: not known yet.
	Knee    float64 `json:"knee_requests_per_second"`
	P95     float64 `json:"p95_of_target"` // latency as a share of its target; -1: no signal
	InUse   float64 `json:"in_use"`        // mean, over the last seconds
	Signal  string  `json:"signal"`        // what decided
	Reason  string  `json:"reason"`
	Held    bool    `json:"held"`    // the amount does not follow the signals, for that reason
	Senders int     `json:"senders"` // processes whose signals arrive
}

// An AutoLimit finds the limits of a room by what its origin answers. The zero AutoLimit does not, and
// forgets what was learned. While an operator has set a number (mode number), or an event has numbers of
// its own (mode event), what was learned is kept: after an event, the limits are those from before.
type AutoLimit struct {
	Mode     string // on, shadow, frozen; number or event: not now, see below; "" is off
	Min, Max int64  // of users at once
	Start    int64  // of users at once while nothing is learned, and in shadow
	MaxNew   int64  // of new users per minute, which is found too; 0: it is not

	TargetP95    time.Duration // 0: learned
	TargetErrors float64       // share of the requests that may fail; 0: 0.01
}

// Auto is what headgate has found about the limits of a room with `auto`. In a room that several data
// centers share, their home finds it.
type Auto struct {
	Mode string `json:"mode"` // on, shadow, frozen
	// Active and New are the limits that were found. They are in force in the mode on.
	Active int64 `json:"total_active_users"`
	New    int64 `json:"new_users_per_minute"`
	// Knee is how many requests a second the origin answers within its target; 0: not known yet.
	Knee    float64 `json:"knee_requests_per_second"`
	P95     float64 `json:"p95_of_target"` // latency as a share of its target; -1: no signal
	Load    float64 `json:"load"`          // as reported: 1 is full; -1: no report
	Signal  string  `json:"signal"`        // what decided
	Reason  string  `json:"reason"`
	Held    bool    `json:"held"`              // the limits do not follow the signals, for that reason
	Senders int     `json:"senders"`           // nodes or data centers whose signals arrive
	Trouble string  `json:"trouble,omitempty"` // why a load that was asked for is not known
}

// Lane is the state of a lane, for operators.
type Lane struct {
	Name    string `json:"name"`
	Share   int    `json:"share"` // percent of the calls while the ordinary line has somebody to call
	Gone    bool   `json:"gone"`  // no rule leads into the lane any more
	Waiting int64  `json:"waiting"`
	Called  int64  `json:"called"`
	Joined  int64  `json:"joined_total"` // since the takeover
	Calls   int64  `json:"called_total"`
}

// Lent shows where the slots of users at once are, for operators. Its parts and the called
// visitors add up to the limit once all presumed loans have returned.
type Lent struct {
	Inside  int64    `json:"inside"` // sessions that workers have reported
	Called  int64    `json:"called"`
	Free    int64    `json:"free"`    // at the counter
	Workers []Worker `json:"workers"` // those that hold most
	More    int      `json:"more"`    // workers that are not in the list
}

// Worker is what one worker holds.
type Worker struct {
	Name string `json:"name"`
	Held int64  `json:"held"` // slots of users at once: unused, or used and not reported yet
	New  int64  `json:"new"`  // the same for new users
	Gone bool   `json:"gone"` // taken back from it: presumed used for a while
}

// Datacenters is the state of a room that several data centers share, as the data center that
// answers knows it.
type Datacenters struct {
	Own         string       `json:"own"`
	Home        string       `json:"home"`                // data center of the unassigned slots
	Moves       uint64       `json:"moves"`               // how often Anywhere has moved
	Uncertainty float64      `json:"uncertainty_seconds"` // of the order between data centers
	Anywhere    Anywhere     `json:"anywhere"`
	Datacenters []Datacenter `json:"datacenters"` // by name
}

// Anywhere is the part of the limit of users at once that is lent to no data center.
type Anywhere struct {
	Age float64 `json:"age_seconds"` // -1: never received
	AnywhereTotals
}

// Datacenter is the state of one data center.
type Datacenter struct {
	Name       string  `json:"name"`
	Age        float64 `json:"age_seconds"` // of its snapshot; -1: none received
	Active     int64   `json:"active"`
	Waiting    int64   `json:"waiting"`
	Called     int64   `json:"called"`
	Held       int64   `json:"held"`   // slots of users at once lent to it
	Unused     int64   `json:"unused"` // of Held: used by nobody
	New        int64   `json:"new_last_minute"`
	Traffic    []int64 `json:"traffic_by_minute"` // new users, the newest minute first
	Workers    int     `json:"workers"`
	Calls      float64 `json:"calls_per_second"`
	OldestWait float64 `json:"oldest_wait_seconds"`
	RoundTrip  float64 `json:"round_trip_seconds"` // to it; 0: not measured
}

// AnywhereTotals is the state of Anywhere.
type AnywhereTotals struct {
	Limit    int64 `json:"limit"` // of the first limit
	New      int64 `json:"new_users_per_minute"`
	Free     int64 `json:"free"`
	Presumed int64 `json:"presumed"` // lent to counters that do not answer
	Lent     int64 `json:"lent"`     // lent to all counters, including what is presumed
	Bound    int64 `json:"bound"`    // upper limit of Lent, at the same moment
	Auto     *Auto `json:"auto,omitempty"`
}

// Ticket is the state of a ticket, for operators.
type Ticket struct {
	Room      string  `json:"room"`
	Ticket    string  `json:"ticket"`
	Lane      string  `json:"lane"`                  // of the ticket; "" is the ordinary line
	Status    string  `json:"status"`                // waiting, late, called, used, gone
	Position  int64   `json:"position"`              // 1 is next; 0: no place
	Ahead     int64   `json:"ahead"`                 // people in front of it
	Expected  float64 `json:"expected_wait_seconds"` // -1: unknown
	SilentFor float64 `json:"silent_seconds"`        // since its last poll; -1: unknown
	KeptFor   float64 `json:"kept_seconds"`          // how long the place is kept without a poll; -1: not kept
	Released  bool    `json:"released"`              // an operator has released it from its lane
	Reason    string  `json:"why"`

	// Networks and Agents are the number of networks and user agents that have used its pass in
	// this process. 9 stands for more than 8.
	Networks int `json:"networks"`
	Agents   int `json:"agents"`
}

// A Node is a process that shares the engine with other processes.
type Node struct {
	Name      string    `json:"name"`
	CanHost   bool      `json:"store"`
	Alive     bool      `json:"alive"`
	SilentFor float64   `json:"silent_seconds"`
	Version   string    `json:"version"`
	StartedAt time.Time `json:"began"`
	Skew      float64   `json:"clock_seconds"` // its wall clock minus ours; includes the message's travel time
	Rooms     []string  `json:"rooms"`         // hosted by the node
}
