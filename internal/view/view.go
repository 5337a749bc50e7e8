// Package view is what a waiting visitor is told, as the page and the JSON answer show it.
//
// # The promise
//
// The page and the JSON answer show one [View]: neither says more than the other. The JSON answer has
// all keys of Cloudflare's and ours beside them, in every state.
//
// # Concurrency and cost
//
// A View is a value that one request owns. AppendJSON allocates nothing but what b grows by.
//
// # What it does not do
//
// It decides nothing: the room does.
package view

import "time"

// State says why a visitor is on the waiting page.
type State string

// The states of a View. Apps read them as headgate.state in the JSON answer.
const (
	Waiting   State = "waiting"    // in the line, with a place
	Full      State = "full"       // max_waiting is reached: no place yet
	QueueAll  State = "queue_all"  // queue_all is on: the line stands still
	Closed    State = "closed"     // the room is shut: View.Message says why
	OpensSoon State = "opens_at"   // the room opens at View.OpensAt
	Down      State = "down"       // the origin does not answer; nobody is called
	NoCookie  State = "no_cookie"  // the browser does not send the cookie back
	Called    State = "called"     // it is this visitor's turn: load the page
	Limited   State = "limited"    // too many joins from this address
	Left      State = "left"       // the visitor has given up the place
	Moved     State = "moved"      // the place is on another device now
	MoveHere  State = "move_here"  // a link was opened: is its place to move here?
	MoveAgain State = "move_again" // the same, for its counter has not answered
	Denied    State = "denied"     // a rule refuses the request: no place, no way in
	MoveOver  State = "move_over"  // the link was used, or is too old
)

// A View is all that a waiting visitor is told. The page and the JSON answer
// show the same View. Times are wall time and for show only.
type View struct {
	Room           string // the room's title, as an operator wrote it
	State          State
	Method         string // queueing method: "fifo", "random", "passthrough" or "reject"
	Event          Event  // the event that is on
	Position       int64  // 1 is next; 0 is no place (full, closed without a ticket)
	Ahead          int64  // people before this visitor
	Waiting        int64  // people in the line, this visitor included
	JoinedPosition int64  // position at joining, for the progress bar; 0 unknown

	ETAKnown        bool          // false: say so, never invent one
	ETA             time.Duration // expected wait from now
	ETALow, ETAHigh time.Duration // the honest range around ETA
	SlowerReason    string        // why the expected time rose, or ""
	Notice          string        // the same in a word for apps: "ticket_used", "ticket_over", "visit_over" or ""

	PollAfter time.Duration // ask again after this; the server adds the jitter
	Ticket    string        // short id of the ticket, to name to an operator
	Number    uint64        // ticket number, to compare with Served
	Served    uint64        // tickets below this number have been called
	ServedURL string        // the shared document that carries Served
	LeaveURL  string        // a POST there gives up the place
	HereURL   string        // a tiny picture: loading it shows that the cookie comes back
	MoveURL   string        // makes a link that moves the place to another device
	MoveLink  string        // such a link; of MoveHere what its form posts to MoveURL

	MoveWithin time.Duration // MoveLink is good for so long
	Message    string        // the operator's message, plain text
	UpdatedAt  time.Time
	OpensAt    time.Time // zero unless OpensSoon
	QueueAll   bool
	Full       bool
	RoomPath   string // path of the cookie

	AcceptLanguage, AcceptEncoding string // what the visitor's headers say
}

// Refreshes tells whether asking again may help: not where everybody is refused.
func (v *View) Refreshes() bool {
	return v.Method != "reject" || v.QueueAll || v.Event.Prequeue
}

// An Event changes a room for a time. The zero Event is none. During its prequeue nobody
// is let in; Shuffle says that the order of who came before the start is drawn then.
type Event struct {
	Name                      string
	Active, Prequeue, Shuffle bool
	StartsAt, EndsAt          time.Time
	Draw                      string // the hash of the draw's seed before the start, then the seed
}
