package headgate

import (
	"io"
	"time"
)

// State says why a visitor is on the waiting page.
type State string

// The states of a View. Apps read them as headgate.state in the JSON answer.
const (
	StateWaiting   State = "waiting"   // in the line, with a place
	StateFull      State = "full"      // max_waiting is reached: no place yet
	StateQueueAll  State = "queue_all" // queue_all is on: the line stands still
	StateClosed    State = "closed"    // the room is shut: View.Message says why
	StateOpensSoon State = "opens_at"  // the room opens at View.OpensAt
	StateDown      State = "down"      // the origin does not answer; nobody is called
	StateNoCookie  State = "no_cookie" // the browser does not send the cookie back
	StateCalled    State = "called"    // it is this visitor's turn: load the page
	StateLimited   State = "limited"   // too many joins from this address
)

// A View is all that a waiting visitor is told. The page and the JSON answer
// show the same View. Times are wall time and for show only.
type View struct {
	Room     string // the room's title, as an operator wrote it
	State    State
	Method   string // queueing method: "fifo"
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
	Message   string        // the operator's message, plain text
	UpdatedAt time.Time
	OpensAt   time.Time // zero unless StateOpensSoon
	QueueAll  bool
	Full      bool
	RoomPath  string // path of the cookie
}

// A Page renders the waiting page. Render must not keep v, may be called by
// many goroutines at once and must not block on anything but w.
type Page interface {
	// Render writes the HTML body of v to w.
	Render(w io.Writer, v *View) error
	// Header gives the headers that belong to the body, such as the
	// Content-Security-Policy. The caller must not change it.
	Header() map[string]string
}
