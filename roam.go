package headgate

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/headgate/headgate/internal/challenge"
	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/ticket"
	"github.com/headgate/headgate/internal/wire"
)

// A visitor who comes to another data center than the first time keeps the session or the place. A session
// and a place belong to one counter for life, and their state is requested from that counter.

// A placeCounter is a counter as a visitor with a ticket or a pass needs it.
type placeCounter interface {
	Poll(ctx context.Context, life, number, key uint64) (counter.PlaceInfo, error)
	PollAs(ctx context.Context, x counter.TicketPoll) (counter.PlaceInfo, error)
	Claim(ctx context.Context, life, number, key uint64, hard time.Duration) (slot.ClaimReply, error)
	Leave(ctx context.Context, life, number, key uint64) error
	SetNetwork(ctx context.Context, life, number uint64, network uint32) error
	Move(ctx context.Context, m counter.Move) error
	ReportSuspectPass(ctx context.Context)
}

// An abroad is the room in another data center: its counter, and a worker that reports to it the
// visitors seen here. The worker admits no newcomers.
type abroad struct {
	counter *counter.RemoteCounter
	worker  *worker
}

// openAbroad creates the connections of the room to the other data centers.
func (r *Room) openAbroad(cfg RoomConfig, c counter.Config) {
	e := cfg.Engine
	if r.people = counter.NewPeople(r.own(), r.counter); e.datacenters == nil {
		return
	}
	r.abroad = map[string]*abroad{}
	for _, name := range e.datacenters.Names() {
		a := &abroad{counter: counter.NewRemoteCounter(c, e.bus, name)}
		a.worker = newWorker(cfg, c.Host, slot.LoanID(rand.Uint64()|1), true)
		a.worker.lender, r.abroad[name] = a.counter, a
		r.people.Add(name, a.counter)
	}
}

// workers returns the room's own worker and those that report to other data centers.
func (r *Room) workers() []*worker {
	all := []*worker{r.worker}
	for _, a := range r.abroad {
		all = append(all, a.worker)
	}
	return all
}

// own returns the name of this data center, or "" if it is the only one.
func (r *Room) own() string {
	if e := r.face.Load().cfg.Engine; e.datacenters != nil {
		return e.datacenters.Own()
	}
	return ""
}

// locate finds the counter of the visitor's session or place. One that was issued before there were
// other data centers belongs to this one.
func (r *Room) locate(q *visitRequest) {
	q.worker, q.counter = r.worker, r.counter
	if !q.has || r.abroad == nil || q.tok.Home == "" || q.tok.Home == r.own() {
		return
	}
	a := r.abroad[q.tok.Home]
	if a == nil { // this data center is no longer configured
		q.has = false
		return
	}
	q.worker, q.counter = a.worker, a.counter
}

// homeOf returns the data center of the visitor's counter.
func (r *Room) homeOf(q *visitRequest) string {
	if r.isAbroad(q) {
		return q.tok.Home
	}
	return r.own()
}

// isAbroad reports whether the visitor's session or place is in another data center.
func (r *Room) isAbroad(q *visitRequest) bool { return q.worker != r.worker }

// silent reports whether the visitor's data center is certainly unreachable.
func (r *Room) silent(q *visitRequest) bool {
	if !r.isAbroad(q) {
		return false
	}
	_, silent := r.counter.Reachability(q.tok.Home)
	return silent
}

// late reports whether the visitor's data center may be unreachable: no request should wait for it.
func (r *Room) late(q *visitRequest) bool {
	if !r.isAbroad(q) {
		return false
	}
	late, _ := r.counter.Reachability(q.tok.Home)
	return late
}

// passesFor reports whether a pass of another data center has certainly not expired, by the time in
// that data center's last snapshots. A request that passes this way is not reported to that data
// center; the next request is, once the connection works.
func (r *Room) passesFor(q *visitRequest) bool {
	if !r.isAbroad(q) {
		return false
	}
	t, err := r.counter.RemoteTime(q.r.Context(), q.tok.Home)
	return err == nil && t.Known && t.Life == q.tok.Life && t.Hi < slot.Time(q.tok.End)
}

// outOfReach answers a visitor whose counter does not answer. If the counter is in this data center, the
// visitor keeps what it has and tries again. If it is in another data center that has not answered for a
// while, a pass is valid until its end. After that, a visitor who was inside is first to enter here. A
// waiting visitor keeps the place in the order of all data centers. A visitor whose ticket was called there,
// used or not, keeps the ticket and waits here as a newcomer.
func (r *Room) outOfReach(q *visitRequest) {
	t, err := r.counter.RemoteTime(q.r.Context(), q.tok.Home)
	c := &q.f.cfg.Challenge
	switch same, open := t.Life == q.tok.Life, c.Kind != "" && (q.tok.Work > 0 || q.tok.Refused); {
	case !r.silent(q) || err != nil || q.tok.Person != [16]byte{}: // no person has two places
		r.wait(q, &counter.PlaceInfo{PollAfter: unreachableRetry}, StateWaiting)
	case q.tok.Kind == ticket.Pass:
		r.roam(q, 0)
	case open && c.On == challenge.Claim && !q.tok.Refused: // it has a place, and waits here when solved
		if q.way == checks || q.r.Header.Get(challenge.Header) == "" || !r.solves(q) {
			r.wait(q, &counter.PlaceInfo{PollAfter: unreachableRetry, Asks: true}, StateWaiting)
			return
		}
		q.tok.Work = 0
		r.setCookie(q)
		r.outOfReach(q)
	case open && (c.On != challenge.Draw || q.tok.Refused): // no place: it joins here, with a challenge
		q.busy = true
		r.serveNewcomer(q)
	case same && t.WasCalled(q.tok.ID), !q.tok.IsOrdered():
		if q.keeps = true; !r.stillRoams(q) {
			r.serveNewcomer(q)
		}
	default:
		r.roam(q, slot.Time(q.tok.Seen))
	}
}

// roam lets a visitor of an unreachable data center wait here. came is the arrival in the time of
// all data centers, or 0 if the visitor was inside. One place or session there gives one place
// here, whichever node of this data center gets the request.
func (r *Room) roam(q *visitRequest, came slot.Time) {
	p, err := r.counter.Roam(q.r.Context(), q.tok.Mix()|counter.RoamerBit, came)
	if err != nil {
		p.PollAfter = max(p.PollAfter, unreachableRetry)
		r.wait(q, &p, StateWaiting)
		return
	}
	q.worker, q.counter = r.worker, r.counter
	r.standing(q, &p)
}

// onlyKnown finds only a roaming visitor who already waits here; comesNow is later than all known times.
const onlyKnown, comesNow slot.Time = -1, 1<<63 - 1

// stillRoams lets a visitor who already roams go on waiting here, even when the other data center is back and
// has given up the place. A roaming visitor who was called and admitted here may send this request from
// another tab; a newcomer's cookie would replace the pass. stillRoams reports whether the visitor roams.
func (r *Room) stillRoams(q *visitRequest) bool {
	if !r.isAbroad(q) || q.tok.Kind != ticket.Ticket {
		return false
	}
	p, err := r.counter.Roam(q.r.Context(), q.tok.Mix()|counter.RoamerBit, onlyKnown)
	if err != nil || p.Status == slot.TicketUnknown {
		return false
	}
	q.worker, q.counter = r.worker, r.counter
	r.standing(q, &p)
	return true
}

const (
	moveField  = "place"          // field name in a link and its form
	moveWithin = 10 * time.Minute // validity of a link. Chosen: long enough to send it to another device
)

// serveMove moves a place to another device. Without a link it makes a link for the visitor's place. Opening
// a link only shows a form, because programs open links to preview them. Submitting the form moves the place.
func (r *Room) serveMove(q *visitRequest) {
	q.w.Header().Set("Referrer-Policy", "no-referrer")
	link := q.r.URL.Query().Get(moveField)
	if q.r.Method == http.MethodPost {
		var same bool
		if link, same = wire.FormValue(q.w, q.r, moveField); !same {
			return
		}
	}
	_, inside := r.session(q.worker, &q.tok)
	switch {
	case q.has && q.tok.Kind == ticket.Moved && link == "":
		r.serveMoved(q)
	case inside, link == "" && (q.tok.Kind != ticket.Ticket || q.tok.ID == 0 || q.tok.Person != [16]byte{}):
		q.redirect(q.at.Path)
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
			q.redirect(q.at.Move)
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
	p, err := r.poll(q)
	switch waits := p.Status == slot.TicketWaiting || p.Status == slot.TicketLate; {
	case p.Moved:
		r.serveMoved(q)
	case err == nil && waits && q.f.cfg.Method != MethodPassthrough:
		q.link = r.keys.Load().SealMove(q.f.sealName(q.r), &q.tok, q.f.cfg.Wall().Add(moveWithin), 0)
		r.wait(q, &p, r.whyWaiting(&p))
	default: // the ticket is called or over, or its state is unknown
		q.redirect(q.at.Path)
	}
}

// openLink asks the visitor to confirm that the place moves here, or moves it.
func (r *Room) openLink(q *visitRequest, link string) {
	own, had, keys := q.tok, q.hasTicket(), r.keys.Load()
	from, old := ticket.Token{}, q.counter
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
		err = q.counter.Move(q.r.Context(),
			counter.Move{Life: from.Life, Number: from.ID, From: from.Key, To: to})
	}
	switch {
	case err == nil:
		if had && (own.Life != from.Life || own.ID != from.ID) { // one device has one place
			// If this fails, the place ends with its hold.
			_ = old.Leave(q.r.Context(), own.Life, own.ID, own.Key)
		}
		q.tok.Key = to
		r.setCookie(q)
		q.redirect(q.at.Path)
	case errors.Is(err, counter.ErrNoTicket):
		q.has = false
		r.wait(q, &counter.PlaceInfo{PollAfter: moveWithin}, StateMoveOver)
	default: // state unknown: the same form may be sent again
		q.link = link
		r.wait(q, &counter.PlaceInfo{PollAfter: unreachableRetry}, StateMoveAgain)
	}
}
