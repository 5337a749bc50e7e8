package headgate

import (
	"io"
	"net/http"

	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/ticket"
	"github.com/headgate/headgate/internal/wire"
)

// serveLeave gives up the place of who waits: a form of the waiting page posts here. It answers
// with a page of its own, which another load does no harm to.
func (r *Room) serveLeave(q *visitRequest) {
	switch {
	case q.r.Method != http.MethodPost:
		r.serveLeft(q)
		return
	case http.NewCrossOriginProtection().Check(q.r) != nil: // another site must not take places away
		http.Error(q.w, "only the page of this site gives up a place", http.StatusForbidden)
		return
	case q.hasTicket():
		err := q.desk.Leave(q.r.Context(), q.tok.Life, q.tok.ID, q.tok.Key)
		if err != nil { // nobody knows: the place stands, and the visitor may say it again
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

// serveLeft tells a visitor that its place is given up.
func (r *Room) serveLeft(q *visitRequest) {
	r.wait(q, &counter.PlaceInfo{PollAfter: q.f.cfg.PollMax}, StateLeft)
}

// serveHere answers the waiting page's tiny picture. It is loaded at once, also without JavaScript, and
// so the cookie of a new ticket comes back before anything else happens.
func (r *Room) serveHere(q *visitRequest) {
	if q.hasTicket() {
		_, _ = q.desk.Poll(q.r.Context(), q.tok.Life, q.tok.ID, q.tok.Key) // the next poll says more
	}
	h := q.w.Header()
	h["Cache-Control"], h["Content-Type"] = noStore, gifType
	io.WriteString(q.w, wire.TinyPicture)
}

var gifType = []string{"image/gif"}
