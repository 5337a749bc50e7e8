package headgate

import (
	"io"
	"net/http"
	"time"

	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/status"
)

// State is the reason why a visitor is on the waiting page.
type State string

// States of a View. Apps read them as headgate.state in the JSON answer.
const (
	StateWaiting   State = "waiting"    // in the line, with a place
	StateFull      State = "full"       // max_waiting is reached: no place yet
	StateQueueAll  State = "queue_all"  // queue_all is on: nobody is called
	StateClosed    State = "closed"     // the room is closed: View.Message gives the reason
	StateOpensSoon State = "opens_at"   // the room opens at View.OpensAt
	StateDown      State = "down"       // the origin does not answer; nobody is called
	StateNoCookie  State = "no_cookie"  // the browser does not send the cookie back
	StateCalled    State = "called"     // it is this visitor's turn: load the page
	StateLimited   State = "limited"    // too many joins from this address
	StateLeft      State = "left"       // the visitor has given up the place
	StateMoved     State = "moved"      // the place is on another device now
	StateMoveHere  State = "move_here"  // a link was opened: should its place move here?
	StateMoveAgain State = "move_again" // the same, because its counter has not answered
	StateDenied    State = "denied"     // a rule rejects the request: no place, no way in
	StateSignIn    State = "sign_in"    // the site does not know the visitor: no place before
	StateMoveOver  State = "move_over"  // the link was used, or has expired
)

// A View is everything that a waiting visitor is shown. The page and the JSON answer show the same
// View. Times are wall time and for display only.
type View struct {
	Room           string // the room's title, as an operator wrote it
	State          State
	Method         string // queueing method: "fifo", "random", "passthrough" or "reject"
	Event          Event  // the current event
	Position       int64  // 1 is next; 0: no place (full, or closed without a ticket)
	Ahead          int64  // people before this visitor
	Waiting        int64  // people in the line, this visitor included
	JoinedPosition int64  // position at joining, for the progress bar; 0: unknown

	ETAKnown        bool          // false: show "unknown", never an invented time
	ETA             time.Duration // expected wait from now
	ETALow, ETAHigh time.Duration // the range around ETA
	SlowerReason    string        // why the expected time rose, or ""
	Notice          string        // the same as a word for apps: "ticket_over" and others, or ""

	PollAfter time.Duration // poll again after this; the server adds the jitter
	Ticket    string        // short id of the ticket, to report to an operator
	Number    uint64        // ticket number, to compare with Served
	Served    uint64        // tickets below this number have been called
	ServedURL string        // the shared document that carries Served
	LeaveURL  string        // a POST to it gives up the place
	HereURL   string        // a tiny image: loading it shows that the cookie comes back
	MoveURL   string        // makes a link that moves the place to another device
	SignInURL string        // in state StateSignIn; "" if it is not configured
	MoveLink  string        // such a link; in state MoveHere the value that its form posts to MoveURL

	// Challenge is what the browser has to solve, as JSON: null for nothing, "" in a room without
	// challenges. It belongs to Ticket, and its solution to the next request.
	Challenge string

	MoveWithin time.Duration // validity of MoveLink
	Message    string        // the operator's message, plain text
	UpdatedAt  time.Time
	OpensAt    time.Time // zero unless OpensSoon
	QueueAll   bool
	Full       bool
	RoomPath   string // path of the cookie

	AcceptLanguage, AcceptEncoding string // from the visitor's headers
}

// Refreshes reports whether polling again may help: not where everybody is rejected.
func (v *View) Refreshes() bool {
	return v.Method != "reject" || v.QueueAll || v.Event.Prequeue
}

// An Event changes a room for a time. The zero Event is none. During its prequeue nobody is admitted but the
// groups of Early that are Open. Shuffle says that the order of the others is drawn at random at the start.
type Event struct {
	Name                      string
	Active, Prequeue, Shuffle bool
	StartsAt, EndsAt          time.Time
	Early                     []status.EarlyGroup
	Draw                      string // before the start the hash of the draw's seed, then the seed
}

// A Page renders the waiting page. Many goroutines may call Render at once. Render must not keep v,
// and must block on nothing but w.
type Page interface {
	// Render writes the HTML body of v to w.
	Render(w io.Writer, v *View) error
	// Header returns the headers that belong to the body of v, such as the Content-Security-Policy,
	// under canonical names. The caller must not change them.
	Header(v *View) http.Header
}

// appendJSON appends the JSON answer; see wire.Waiting.
func (v *View) appendJSON(b []byte) []byte {
	e := &v.Event
	return (&wire.Waiting{
		State: string(v.State), Method: v.Method, Position: v.Position, Ahead: v.Ahead, Waiting: v.Waiting,
		JoinedPosition: v.JoinedPosition, ETAKnown: v.ETAKnown, ETA: v.ETA, ETALow: v.ETALow,
		SlowerReason: v.SlowerReason, Notice: v.Notice, PollAfter: v.PollAfter, Refreshes: v.Refreshes(),
		Ticket: v.Ticket, Number: v.Number, Served: v.Served, ServedURL: v.ServedURL, MoveURL: v.MoveURL,
		MoveLink: v.MoveLink, SignInURL: v.SignInURL, Message: v.Message, UpdatedAt: v.UpdatedAt,
		OpensAt: v.OpensAt, QueueAll: v.QueueAll, Full: v.Full, EventActive: e.Active, Prequeue: e.Prequeue,
		Shuffle: e.Shuffle, StartsAt: e.StartsAt, EndsAt: e.EndsAt, Draw: e.Draw, ETAHigh: v.ETAHigh,
		Challenge: v.Challenge,
	}).AppendJSON(b)
}
