package headgate

import (
	"io"
	"net/http"

	"github.com/headgate/headgate/internal/view"
)

// State is the reason why a visitor is on the waiting page.
type State = view.State

// States of a View. Apps read them as headgate.state in the JSON answer.
const (
	StateWaiting   = view.Waiting
	StateFull      = view.Full
	StateQueueAll  = view.QueueAll
	StateClosed    = view.Closed
	StateOpensSoon = view.OpensSoon
	StateDown      = view.Down
	StateNoCookie  = view.NoCookie
	StateCalled    = view.Called
	StateLimited   = view.Limited
	StateLeft      = view.Left
	StateMoved     = view.Moved
	StateMoveHere  = view.MoveHere
	StateMoveAgain = view.MoveAgain
	StateDenied    = view.Denied
	StateMoveOver  = view.MoveOver
)

// A View is everything that a waiting visitor is shown. The page and the JSON answer show the same
// View. Times are wall time and for display only.
type View = view.View

// An Event changes a room for a time. The zero Event is none. During its prequeue nobody is
// admitted. Shuffle says that the order of the visitors who joined before the start is then drawn
// at random.
type Event = view.Event

// A Page renders the waiting page. Many goroutines may call Render at once. Render must not keep v,
// and must block on nothing but w.
type Page interface {
	// Render writes the HTML body of v to w.
	Render(w io.Writer, v *View) error
	// Header returns the headers that belong to the body of v, such as the Content-Security-Policy,
	// under canonical names. The caller must not change them.
	Header(v *View) http.Header
}
