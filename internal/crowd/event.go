package crowd

import "time"

// Never is the time of what did not happen.
const Never time.Duration = -1

// An Ask is what a request asked for.
type Ask string

// What visitors ask for.
const (
	AskPage   Ask = "page"   // a navigation
	AskPoll   Ask = "poll"   // the page's own poll: Headgate-Poll: 1
	AskServed Ask = "served" // the document that all share
	AskJSON   Ask = "json"   // as an app asks
)

// An Outcome is where a visitor was when the run ended.
type Outcome string

// The outcomes.
const (
	OutcomeAbsent   Outcome = "absent"    // had not come yet
	OutcomeWaiting  Outcome = "waiting"   // had come, was not let in yet
	OutcomeInside   Outcome = "inside"    // was let in and still there
	OutcomeLeft     Outcome = "left"      // had been inside and left
	OutcomeGaveUp   Outcome = "gave up"   // closed the page while waiting
	OutcomeSentBack Outcome = "sent back" // was inside and got a waiting answer
)

// A Poll is one request made while waiting, and what it was told. Times count
// from Result.StartedAt.
type Poll struct {
	Ask      Ask
	DueAt    time.Duration // when the visitor was told to ask
	SentAt   time.Duration
	AnswerAt time.Duration // Never when there was none

	State     string // "" when there was no answer, or the origin's
	Number    uint64 // 0: not told
	Position  int64
	Ahead     int64
	Served    uint64
	ETAKnown  bool
	ETA       time.Duration // the expected wait, between the two ends of the range
	ETALow    time.Duration
	ETAHigh   time.Duration
	PollAfter time.Duration
	Err       string // kind of the error, or ""
}

// A Visitor is the log of one visitor. Times count from Result.StartedAt and
// are Never for what did not happen.
type Visitor struct {
	ID         int
	Outcome    Outcome
	Number     uint64 // of its ticket; 0: none, or not told
	Renumbered bool   // it was told two numbers
	ArrivedAt  time.Duration
	CalledAt   time.Duration // answer of the first poll that said called
	AdmittedAt time.Duration // the origin's first answer
	LeftAt     time.Duration
	Polls      []Poll         // all requests up to the one that let it in
	Requests   int            // requests made inside, that one not counted
	Revoked    bool           // it left by LeavePath
	Errors     map[string]int // by kind; nil when there were none
}

func newVisitor(id int) Visitor {
	return Visitor{ID: id, Outcome: OutcomeAbsent,
		ArrivedAt: Never, CalledAt: Never, AdmittedAt: Never, LeftAt: Never}
}

// Admitted reports whether the visitor was let in.
func (v *Visitor) Admitted() bool { return v.AdmittedAt != Never }

// Waited reports whether the visitor was ever told to wait.
func (v *Visitor) Waited() bool { return v.firstWaiting() != nil }

func (v *Visitor) firstWaiting() *Poll {
	for i := range v.Polls {
		if v.Polls[i].State != "" {
			return &v.Polls[i]
		}
	}
	return nil
}

// missedBy is how late an answer may be, counted from when the visitor was
// told to ask, before the visitor no longer counts as one who polls on time.
// Chosen: the shortest polling interval.
const missedBy = time.Second

// OnTime reports whether the visitor missed no poll of its own: each was
// answered, within a second of when it was due. Only such visitors can complain of the order.
func (v *Visitor) OnTime() bool {
	for i := range v.Polls {
		p := &v.Polls[i]
		if p.Ask == AskServed {
			continue // it tells the server nothing
		}
		if p.Err != "" || p.AnswerAt == Never || p.AnswerAt-p.DueAt > missedBy {
			return false
		}
	}
	return true
}

// A What is the kind of an Event.
type What string

// What happens to visitors.
const (
	EventArrived  What = "arrived"
	EventPolled   What = "polled" // Poll says what was told, or the error
	EventCalled   What = "called"
	EventAdmitted What = "admitted"
	EventLeft     What = "left"
	EventGaveUp   What = "gave up"
	EventSentBack What = "sent back"
	EventError    What = "error"
)

// An Event is one thing that happened to one visitor.
type Event struct {
	What    What
	Visitor int
	Number  uint64        // of its ticket; 0: none, or not told
	At      time.Duration // from the start of the run
	Poll    Poll          // of EventPolled
	Err     string        // kind of the error, of EventError
}
