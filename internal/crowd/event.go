package crowd

import "time"

// Never is the time of an event that did not happen.
const Never time.Duration = -1

// An Ask is the kind of a request.
type Ask string

// These are the kinds of requests.
const (
	AskPage   Ask = "page"   // a navigation
	AskPoll   Ask = "poll"   // the page's own poll: Headgate-Poll: 1
	AskServed Ask = "served" // the document shared by all visitors
	AskJSON   Ask = "json"   // a request of an app
)

// An Outcome is the state of a visitor at the end of the run.
type Outcome string

// These are the outcomes.
const (
	OutcomeAbsent   Outcome = "absent"    // had not come yet
	OutcomeWaiting  Outcome = "waiting"   // had come, not yet admitted
	OutcomeInside   Outcome = "inside"    // was admitted and still there
	OutcomeLeft     Outcome = "left"      // had been inside and left
	OutcomeGaveUp   Outcome = "gave up"   // closed the page while waiting
	OutcomeSentBack Outcome = "sent back" // was inside and got a waiting answer
	OutcomeRefused  Outcome = "refused"   // its invitation does not count
)

// A Poll is one request made while waiting, and its answer. Times count from Result.StartedAt.
type Poll struct {
	Ask      Ask
	DueAt    time.Duration // when the visitor was due to poll
	SentAt   time.Duration
	AnswerAt time.Duration // Never when there was none

	State     string // "" when there was no answer, or it was the origin's
	Number    uint64 // 0: unknown
	Position  int64
	Ahead     int64
	Served    uint64
	ETAKnown  bool
	ETA       time.Duration // the expected wait, between the two ends of the range
	ETALow    time.Duration
	ETAHigh   time.Duration
	PollAfter time.Duration
	Err       string // kind of error, or ""
}

// A Visitor is the log of one visitor. Times count from Result.StartedAt, and are Never for what
// did not happen.
type Visitor struct {
	ID         int
	Outcome    Outcome
	Number     uint64 // of its ticket; 0: none, or unknown
	Renumbered bool   // it received two different numbers; with challenges it may
	ArrivedAt  time.Duration
	CalledAt   time.Duration // the first answer "called"
	AdmittedAt time.Duration // the origin's first answer
	LeftAt     time.Duration
	Polls      []Poll         // all requests including the one that admitted it
	Challenges int            // proofs of work that it was to solve
	Solutions  int            // of these, that it sent a solution of
	Requests   int            // requests inside, without the admitting one
	Revoked    bool           // left by LeavePath
	Errors     map[string]int // by kind; nil when there were none
}

func newVisitor(id int) Visitor {
	return Visitor{ID: id, Outcome: OutcomeAbsent,
		ArrivedAt: Never, CalledAt: Never, AdmittedAt: Never, LeftAt: Never}
}

// Admitted reports whether the visitor was admitted.
func (v *Visitor) Admitted() bool { return v.AdmittedAt != Never }

// Waited reports whether the visitor ever had to wait.
func (v *Visitor) Waited() bool { return v.firstWaiting() != nil }

func (v *Visitor) firstWaiting() *Poll {
	for i := range v.Polls {
		if v.Polls[i].State != "" {
			return &v.Polls[i]
		}
	}
	return nil
}

// missedBy is how late an answer may be, counted from when the poll was due, before the visitor no
// longer counts as polling on time. Chosen: the shortest polling interval.
const missedBy = time.Second

// Missed reports whether the poll was not answered on time.
func (p *Poll) Missed() bool {
	return p.Err != "" || p.AnswerAt == Never || p.AnswerAt-p.DueAt > missedBy
}

// OnTime reports whether the visitor missed none of its own polls: each was answered within a
// second of when it was due. Only such visitors have a claim to the order of the line.
func (v *Visitor) OnTime() bool {
	for i := range v.Polls {
		p := &v.Polls[i]
		if p.Ask == AskServed {
			continue // does not reach the server's records
		}
		if p.Missed() {
			return false
		}
	}
	return true
}

// A What is the kind of an Event.
type What string

// These are the kinds of events.
const (
	EventArrived  What = "arrived"
	EventPolled   What = "polled" // Poll holds the answer or the error
	EventCalled   What = "called"
	EventAdmitted What = "admitted"
	EventLeft     What = "left"
	EventGaveUp   What = "gave up"
	EventSentBack What = "sent back"
	EventError    What = "error"
)

// An Event is an event of one visitor.
type Event struct {
	What    What
	Visitor int
	Number  uint64        // of its ticket; 0: none, or unknown
	At      time.Duration // from the start of the run
	Poll    Poll          // of EventPolled
	Err     string        // kind of error, of EventError
}
