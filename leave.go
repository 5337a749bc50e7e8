package headgate

import (
	"io"
	"net/http"

	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/ticket"
	"github.com/headgate/headgate/internal/wire"
)

// serveLeave gives up the place of a waiting visitor. A form of the waiting page posts to it. It
// answers with a page of its own that can be reloaded without harm.
func (r *Room) serveLeave(q *visitRequest) {
	switch {
	case q.r.Method != http.MethodPost:
		r.serveLeft(q)
		return
	case http.NewCrossOriginProtection().Check(q.r) != nil: // another site must not remove places
		http.Error(q.w, "only the page of this site gives up a place", http.StatusForbidden)
		return
	case q.hasTicket():
		err := q.desk.Leave(q.r.Context(), q.tok.Life, q.tok.ID, q.tok.Key)
		if err != nil { // state unknown: the place stays, and the visitor may try again
			r.wait(q, &counter.PlaceInfo{PollAfter: unreachableRetry}, StateWaiting)
			return
		}
		r.counts.left.Add(1)
	}
	if !q.has || q.tok.Kind != ticket.Pass {
		q.tok = ticket.Token{Kind: ticket.Left}
		r.setCookie(q)
	}
	http.Redirect(q.w, q.r, q.at.Leave, http.StatusSeeOther)
}

// serveLeft shows a visitor that the place is given up.
func (r *Room) serveLeft(q *visitRequest) {
	r.wait(q, &counter.PlaceInfo{PollAfter: q.f.cfg.PollMax}, StateLeft)
}

// serveHere answers the tiny image of the waiting page. Browsers load it at once, even without
// JavaScript, so the cookie of a new ticket comes back as early as possible.
func (r *Room) serveHere(q *visitRequest) {
	if q.hasTicket() {
		_, _ = q.desk.Poll(q.r.Context(), q.tok.Life, q.tok.ID, q.tok.Key) // the next poll returns the state
	}
	h := q.w.Header()
	h["Cache-Control"], h["Content-Type"] = noStore, gifType
	io.WriteString(q.w, wire.TinyImage)
}

var gifType = []string{"image/gif"}
