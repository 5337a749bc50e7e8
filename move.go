package headgate

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/ticket"
	"github.com/headgate/headgate/internal/wire"
)

const (
	moveField  = "place"          // field name in a link and its form
	moveWithin = 10 * time.Minute // validity of a link. Chosen: long enough to send it to another device
)

// serveMove moves a place to another device. Without a link it makes a link for the visitor's
// place. Opening a link only shows a form, because programs open links to preview them. Submitting
// the form moves the place.
func (r *Room) serveMove(q *visitRequest) {
	q.w.Header().Set("Referrer-Policy", "no-referrer")
	link := q.r.URL.Query().Get(moveField)
	if q.r.Method == http.MethodPost {
		var same bool
		if link, same = wire.FormValue(q.w, q.r, moveField); !same {
			return
		}
	}
	_, inside := r.stay(q.worker, &q.tok)
	switch {
	case q.has && q.tok.Kind == ticket.Moved && link == "":
		r.serveMoved(q)
	case inside, link == "" && (q.tok.Kind != ticket.Ticket || q.tok.ID == 0):
		http.Redirect(q.w, q.r, q.at.Path, http.StatusSeeOther)
	case link == "":
		r.serveLink(q)
	default:
		r.openLink(q, link)
	}
}

// serveMoved shows a visitor that the place is now on another device. The visitor joins again only
// by opening the site again.
func (r *Room) serveMoved(q *visitRequest) {
	if !q.peek {
		q.tok = ticket.Token{Kind: ticket.Moved}
		r.setCookie(q)
		if q.does.Own != "move" && Navigates(q.r) {
			http.Redirect(q.w, q.r, q.at.Move, http.StatusSeeOther)
			return
		}
	}
	r.wait(q, &counter.PlaceInfo{PollAfter: q.f.cfg.PollMax}, StateMoved)
}

// serveLink shows a link that moves the visitor's place.
func (r *Room) serveLink(q *visitRequest) {
	if q.peek {
		r.serveTicket(q)
		return
	}
	p, err := q.desk.Poll(q.r.Context(), q.tok.Life, q.tok.ID, q.tok.Key)
	switch waits := p.Status == slot.TicketWaiting || p.Status == slot.TicketLate; {
	case p.Moved:
		r.serveMoved(q)
	case err == nil && waits && q.f.cfg.Method != MethodPassthrough:
		q.link = r.keys.Load().SealMove(q.f.sealName(q.r), &q.tok, q.f.cfg.Wall().Add(moveWithin), 0)
		r.wait(q, &p, r.whyWaiting())
	default: // the ticket is called or over, or its state is unknown
		http.Redirect(q.w, q.r, q.at.Path, http.StatusSeeOther)
	}
}

// openLink asks the visitor to confirm that the place moves here, or moves it.
func (r *Room) openLink(q *visitRequest, link string) {
	own, had, keys := q.tok, q.hasTicket(), r.keys.Load()
	from, desk := ticket.Token{}, q.desk
	to, until, err := keys.OpenMove(&from, q.f.sealName(q.r), link)
	q.tok, q.has = from, err == nil
	r.locate(q)
	post := q.r.Method == http.MethodPost
	switch {
	case !q.has, q.f.cfg.Wall().After(until), post && to == 0:
		err = counter.ErrNoTicket
	case !post:
		q.link = keys.SealMove(q.f.sealName(q.r), &from, until, rand.Uint64()|1)
		r.wait(q, &counter.PlaceInfo{PollAfter: moveWithin}, StateMoveHere)
		return
	default:
		err = q.desk.Move(q.r.Context(),
			counter.Move{Life: from.Life, Number: from.ID, From: from.Key, To: to})
	}
	switch {
	case err == nil:
		if had && (own.Life != from.Life || own.ID != from.ID) { // one device has one place
			// If this fails, the place ends with its hold.
			_ = desk.Leave(q.r.Context(), own.Life, own.ID, own.Key)
		}
		q.tok.Key = to
		r.setCookie(q)
		http.Redirect(q.w, q.r, q.at.Path, http.StatusSeeOther)
	case errors.Is(err, counter.ErrNoTicket):
		q.has = false
		r.wait(q, &counter.PlaceInfo{PollAfter: moveWithin}, StateMoveOver)
	default: // state unknown: the same form may be sent again
		q.link = link
		r.wait(q, &counter.PlaceInfo{PollAfter: unreachableRetry}, StateMoveAgain)
	}
}
