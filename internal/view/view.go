// Package view defines what a waiting visitor is shown, in the page and in the JSON answer.
//
// # Guarantees
//
// The page and the JSON answer show the same [View]: neither contains more than the other. The JSON
// answer has all keys of Cloudflare's and, beside them, headgate's, in every state.
//
// # Concurrency and cost
//
// A View is a value that one request owns. AppendJSON allocates nothing except to grow b.
//
// # Limitations
//
// The package decides nothing: the room does.
package view

import "time"

// State is the reason why a visitor is on the waiting page.
type State string

// States of a View. Apps read them as headgate.state in the JSON answer.
const (
	Waiting   State = "waiting"    // in the line, with a place
	Full      State = "full"       // max_waiting is reached: no place yet
	QueueAll  State = "queue_all"  // queue_all is on: nobody is called
	Closed    State = "closed"     // the room is closed: View.Message gives the reason
	OpensSoon State = "opens_at"   // the room opens at View.OpensAt
	Down      State = "down"       // the origin does not answer; nobody is called
	NoCookie  State = "no_cookie"  // the browser does not send the cookie back
	Called    State = "called"     // it is this visitor's turn: load the page
	Limited   State = "limited"    // too many joins from this address
	Left      State = "left"       // the visitor has given up the place
	Moved     State = "moved"      // the place is on another device now
	MoveHere  State = "move_here"  // a link was opened: should its place move here?
	MoveAgain State = "move_again" // the same, because its counter has not answered
	Denied    State = "denied"     // a rule rejects the request: no place, no way in
	MoveOver  State = "move_over"  // the link was used, or has expired
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
	Notice          string        // the same as a word for apps: "ticket_used", "ticket_over", "session_over" or ""

	PollAfter time.Duration // poll again after this; the server adds the jitter
	Ticket    string        // short id of the ticket, to report to an operator
	Number    uint64        // ticket number, to compare with Served
	Served    uint64        // tickets below this number have been called
	ServedURL string        // the shared document that carries Served
	LeaveURL  string        // a POST to it gives up the place
	HereURL   string        // a tiny image: loading it shows that the cookie comes back
	MoveURL   string        // makes a link that moves the place to another device
	MoveLink  string        // such a link; in state MoveHere the value that its form posts to MoveURL

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

// An Event changes a room for a time. The zero Event is none. During its prequeue nobody is
// admitted. Shuffle says that the order of the visitors who joined before the start is then drawn
// at random.
type Event struct {
	Name                      string
	Active, Prequeue, Shuffle bool
	StartsAt, EndsAt          time.Time
	Draw                      string // before the start the hash of the draw's seed, then the seed
}
