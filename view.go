package headgate

import (
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/wire"
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

// An Event changes a room for a time. The zero Event is none. During its prequeue nobody is
// admitted. Shuffle says that the order of the visitors who joined before the start is then drawn
// at random.
type Event struct {
	Name                      string
	Active, Prequeue, Shuffle bool
	StartsAt, EndsAt          time.Time
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

// appendJSON appends the JSON answer: Cloudflare's cfWaitingRoom object with all its keys
// (Cloudflare, "Get JSON response for mobile and other non-browser traffic"), and headgate's own
// object beside it.
func (v *View) appendJSON(b []byte) []byte {
	b = append(b, `{"cfWaitingRoom":{"inWaitingRoom":true,"waitTimeKnown":`...)
	b = strconv.AppendBool(b, v.ETAKnown)
	minutes := int64(0)
	if v.ETAKnown {
		minutes = wire.WholeMinutes(v.ETA)
	}
	b = append(b, `,"waitTime":`...)
	b = strconv.AppendInt(b, minutes, 10)
	low, mid, high, draws := int64(0), int64(0), int64(0), v.ETAKnown && v.Method == "random"
	if draws {
		low, mid, high = wire.WholeMinutes(v.ETALow), minutes, wire.WholeMinutes(v.ETAHigh)
	}
	b = wire.AppendJSONInt(b, "waitTime25Percentile", low)
	b = wire.AppendJSONInt(b, "waitTime50Percentile", mid)
	b = wire.AppendJSONInt(b, "waitTime75Percentile", high)
	b = append(b, `,"waitTimeFormatted":"`...)
	if draws {
		b = append(wire.AppendMinutes(b, low, true), " to "...)
		minutes = high
	}
	b = wire.AppendMinutes(b, minutes, v.ETAKnown)
	b = wire.AppendJSONBool(append(b, '"'), "queueIsFull", v.Full)
	b = wire.AppendJSONBool(b, "queueAll", v.QueueAll)
	b = append(b, `,"lastUpdated":"`...)
	b = wire.AppendMillis(b, v.UpdatedAt)
	updated := b[len(b)-wire.MillisLen:]
	refresh, e := int64((v.PollAfter+time.Second-1)/time.Second), &v.Event
	if !v.Refreshes() {
		refresh = 0
	}
	b = wire.AppendJSONInt(append(b, '"'), "refreshIntervalSeconds", refresh)
	b = wire.AppendJSONString(b, "queueingMethod", v.Method)
	b = wire.AppendJSONBool(b, "isFIFOQueue", v.Method == "fifo")
	b = wire.AppendJSONBool(b, "isRandomQueue", v.Method == "random")
	b = wire.AppendJSONBool(b, "isPassthroughQueue", v.Method == "passthrough")
	b = wire.AppendJSONBool(b, "isRejectQueue", v.Method == "reject")
	b = wire.AppendJSONBool(b, "isEventActive", e.Active)
	b = wire.AppendJSONBool(b, "isEventPrequeueing", e.Prequeue)
	b = wire.AppendJSONMinutes(b, "timeUntilEventStart", e.StartsAt.Sub(v.UpdatedAt), e.Prequeue)
	b = wire.AppendJSONMinutes(b, "timeUntilEventEnd", e.EndsAt.Sub(v.UpdatedAt), e.Active)
	b = wire.AppendJSONBool(b, "shuffleAtEventStart", e.Shuffle)
	b = append(b, `,"turnstile":"","infiniteQueue":false},"headgate":{"state":"`...)
	b = append(b, v.State...)
	b = append(b, '"')
	b = wire.AppendJSONInt(b, "position", v.Position)
	b = wire.AppendJSONInt(b, "ahead", v.Ahead)
	b = wire.AppendJSONInt(b, "waiting", v.Waiting)
	b = wire.AppendJSONInt(b, "joined_position", v.JoinedPosition)
	b = wire.AppendJSONSeconds(b, "eta_seconds", v.ETA, v.ETAKnown)
	b = wire.AppendJSONSeconds(b, "eta_low_seconds", v.ETALow, v.ETAKnown)
	b = wire.AppendJSONSeconds(b, "eta_high_seconds", v.ETAHigh, v.ETAKnown)
	b = wire.AppendJSONString(b, "slower", v.SlowerReason)
	b = wire.AppendJSONString(b, "notice", v.Notice)
	b = append(b, `,"poll_after_seconds":`...)
	b = strconv.AppendFloat(b, v.PollAfter.Seconds(), 'f', 3, 64)
	b = wire.AppendJSONString(b, "method", v.Method)
	b = wire.AppendJSONString(b, "draw", e.Draw)
	b = wire.AppendJSONString(b, "ticket", v.Ticket)
	b = append(b, `,"number":`...)
	b = strconv.AppendUint(b, v.Number, 10)
	b = append(b, `,"served":`...)
	b = strconv.AppendUint(b, v.Served, 10)
	b = wire.AppendJSONString(b, "served_url", v.ServedURL)
	b = wire.AppendJSONString(b, "move_url", v.MoveURL)
	b = wire.AppendJSONString(b, "move_link", v.MoveLink)
	if v.Challenge != "" {
		b = append(append(b, `,"challenge":`...), v.Challenge...)
	}
	b = wire.AppendJSONString(b, "message", v.Message)
	b = append(b, `,"opens_at":`...)
	if v.OpensAt.IsZero() {
		b = append(b, "null"...)
	} else {
		b = append(b, '"')
		b = v.OpensAt.UTC().AppendFormat(b, time.RFC3339)
		b = append(b, '"')
	}
	b = append(append(b, `,"updated_at":"`...), updated...)
	return append(b, "\"}}\n"...)
}
