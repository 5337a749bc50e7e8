package headgate

import (
	"io"
	"net/http"
	"time"
)

// State says why a visitor is on the waiting page.
type State string

// The states of a View. Apps read them as headgate.state in the JSON answer.
const (
	StateWaiting   State = "waiting"    // in the line, with a place
	StateFull      State = "full"       // max_waiting is reached: no place yet
	StateQueueAll  State = "queue_all"  // queue_all is on: the line stands still
	StateClosed    State = "closed"     // the room is shut: View.Message says why
	StateOpensSoon State = "opens_at"   // the room opens at View.OpensAt
	StateDown      State = "down"       // the origin does not answer; nobody is called
	StateNoCookie  State = "no_cookie"  // the browser does not send the cookie back
	StateCalled    State = "called"     // it is this visitor's turn: load the page
	StateLimited   State = "limited"    // too many joins from this address
	StateLeft      State = "left"       // the visitor has given up the place
	StateMoved     State = "moved"      // the place is on another device now
	StateMoveHere  State = "move_here"  // a link was opened: is its place to move here?
	StateMoveAgain State = "move_again" // the same, for its counter has not answered
	StateDenied    State = "denied"     // a rule refuses the request: no place, no way in
	StateMoveOver  State = "move_over"  // the link was used, or is too old
)

// A View is all that a waiting visitor is told. The page and the JSON answer
// show the same View. Times are wall time and for show only.
type View struct {
	Room     string // the room's title, as an operator wrote it
	State    State
	Method   string // queueing method: "fifo", "random", "passthrough" or "reject"
	Event    Event  // the event that is on
	Position int64  // 1 is next; 0 is no place (full, closed without a ticket)
	Ahead    int64  // people before this visitor
	Waiting  int64  // people in the line, this visitor included
	JoinedAt int64  // position at joining, for the progress bar; 0 unknown

	ETAKnown        bool          // false: say so, never invent one
	ETA             time.Duration // expected wait from now
	ETALow, ETAHigh time.Duration // the honest range around ETA
	Slower          string        // why the expected time rose, or ""

	PollAfter time.Duration // ask again after this; the server adds the jitter
	Ticket    string        // short id of the ticket, to name to an operator
	Number    uint64        // ticket number, to compare with Served
	Served    uint64        // tickets below this number have been called
	ServedURL string        // the shared document that carries Served
	LeaveURL  string        // a POST there gives up the place
	MoveURL   string        // makes a link that moves the place to another device
	MoveLink  string        // such a link; of StateMoveHere what its form posts to MoveURL

	MoveWithin time.Duration // MoveLink is good for so long
	Message    string        // the operator's message, plain text
	UpdatedAt  time.Time
	OpensAt    time.Time // zero unless StateOpensSoon
	QueueAll   bool
	Full       bool
	RoomPath   string // path of the cookie

	AcceptLanguage, AcceptEncoding string // what the visitor's headers say
}

// refreshes tells whether asking again may help: not where everybody is refused.
func (v *View) refreshes() bool {
	return v.Method != string(MethodReject) || v.QueueAll || v.Event.Prequeue
}

// An Event changes a room for a time. The zero Event is none. During its prequeue nobody
// is let in; Shuffle says that the order of who came before the start is drawn then.
type Event struct {
	Name                      string
	Active, Prequeue, Shuffle bool
	StartsAt, EndsAt          time.Time
	Draw                      string // the hash of the draw's seed before the start, then the seed
}

// A Page renders the waiting page. Render must not keep v, may be called by
// many goroutines at once and must not block on anything but w.
type Page interface {
	// Render writes the HTML body of v to w.
	Render(w io.Writer, v *View) error
	// Header gives the headers that belong to the body of v, such as the
	// Content-Security-Policy, under canonical names. The caller must not change them.
	Header(v *View) http.Header
}
