package headgate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/headgate/headgate/internal/challenge"
	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/decide"
	"github.com/headgate/headgate/internal/sessions"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/ticket"
	"github.com/headgate/headgate/internal/wire"
)

// A Session is the time of one visitor inside, as it stands now.
type Session struct {
	ID            string        // the same for all requests of the session, unique among sessions
	Entered       time.Time     // by the wall clock
	Remaining     time.Duration // at least; until it ends if no further request comes
	HardRemaining time.Duration // until its hard end; 0: no hard end
	Confirmed     time.Duration // its slot is held for so long: less, until its cookie comes back

	room *Room
	tok  ticket.Token
}

// Pass returns a sealed text that names the session to EndSession. It has a few hundred characters
// and differs each time.
func (s *Session) Pass() string {
	return string(s.room.keys.Load().Seal(nil, s.room.passName(), &s.tok))
}

// passName returns the name for which a pass is sealed, so that none can be used as a cookie.
func (r *Room) passName() string { return "pass " + r.face.Load().cfg.Name }

// SessionOf returns the session of the request that w answers. w is the writer that a Room passes
// to its handler, or a writer that unwraps to it.
func SessionOf(w http.ResponseWriter) (s Session, ok bool) {
	for {
		switch x := w.(type) {
		case *answer:
			return x.room.session(x.worker, &x.tok)
		case interface{ Unwrap() http.ResponseWriter }:
			w = x.Unwrap()
		default:
			return s, false
		}
	}
}

// PeekSession returns the session of a request, and does not extend it.
func (r *Room) PeekSession(req *http.Request) (s Session, ok bool) {
	q := &visitRequest{f: r.face.Load(), r: req}
	r.open(q)
	r.locate(q)
	if !q.has || !q.worker.visits.Allows(q.from(&sessions.Session{ID: slot.SessionID(q.tok.ID)})) {
		return s, false
	}
	return r.session(q.worker, &q.tok)
}

func (r *Room) session(w *worker, tok *ticket.Token) (s Session, ok bool) {
	if tok.Kind != ticket.Pass || tok.ID == 0 {
		return s, false
	}
	_, hi, life, known := w.clock.Bounds()
	last, gone := w.visits.Peek(slot.SessionID(tok.ID))
	said, hard := w.entitled(tok), slot.Time(tok.Hard)
	end := max(said, last)
	if !known || life != tok.Life || gone || hi >= end || w.beyond(tok, said) {
		return s, false
	}
	s = Session{
		Entered: time.Unix(tok.Accepted, 0), Remaining: r.whole(w, tok, end).Sub(hi),
		Confirmed: end.Sub(hi), room: r, tok: *tok, ID: tok.SessionName(),
	}
	s.tok.End = int64(end)
	if hard > 0 {
		s.HardRemaining = max(1, hard.Sub(hi))
	}
	return s, true
}

// whole returns the end of a session on probation, or until just now, as if its cookie comes back.
func (r *Room) whole(w *worker, tok *ticket.Token, end slot.Time) slot.Time {
	switch {
	case tok.Probation:
		return end.Add(max(0, w.rules.Load().Session-probation))
	case r.face.Load().cfg.Wall().Sub(time.Unix(tok.Accepted, 0)) < 2*probation: // it came back a moment ago
		return max(end, slot.Time(tok.Pending))
	}
	return end
}

// Errors of EndSession: the text is no Pass of this room, or a node may go on serving the session.
var (
	ErrNoPass   = errors.New("no pass of a session of this room")
	ErrNotEnded = errors.New("the session may go on at another node")
)

// Answers of a node to the end of a session: it ends there with its last byte, or a lease is left.
const sessionInFlight, sessionLeased = "in flight", "leased"

// EndSession ends the session of a Pass, as the origin's revoke does. Its slot is free once no
// request of it is in flight and no lease left at any node. Its next request is a newcomer's. ended
// is false if the session was already over.
func (r *Room) EndSession(ctx context.Context, pass string) (ended bool, err error) {
	q := &visitRequest{f: r.face.Load(), has: true}
	if r.keys.Load().Open(&q.tok, r.passName(), pass) != nil || q.tok.ID == 0 {
		return false, ErrNoPass
	}
	if r.locate(q); !q.has { // of a data center that no longer exists
		return false, nil
	}
	id, end := slot.SessionID(q.tok.ID), slot.Time(q.tok.End)
	_, hi, life, known := q.worker.clock.Bounds()
	if _, gone := q.worker.visits.Peek(id); gone || known && life != q.tok.Life {
		return false, nil
	}
	inFlight, leased, err := r.endElsewhere(ctx, &q.tok) // first, so that the caller may try again
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrNotEnded, err)
	}
	from, left := q.worker.visits.End(id, end)
	if hi >= from { // the counter knows the id, or the session is over
		from = 0
	}
	if left && !inFlight { // otherwise it ends with the last byte
		q.worker.leave(id, from, true, leased || r.leases.AreHeld())
	}
	return true, nil
}

// leftHere frees the slot of an ended session that has no request in flight here any more. If
// another node has one in flight, the slot is freed there with the last byte. While that is
// unknown, the slot is held until its end.
func (r *Room) leftHere(ctx context.Context, w *worker, tok ticket.Token, from slot.Time) {
	tok.End = max(tok.End, int64(from))
	r.telling.Run(context.WithoutCancel(ctx), func(ctx context.Context) {
		inFlight, leased, err := r.endElsewhere(ctx, &tok)
		if err != nil {
			r.face.Load().cfg.Log.Warn("a session was ended, and its slot is not free yet", "error", err)
		} else if !inFlight {
			w.leave(slot.SessionID(tok.ID), from, true, leased || r.leases.AreHeld())
		}
	})
}

// sessionName returns the name under which a node answers requests about what is in flight.
func (r *Room) sessionName(node string) string {
	return "session." + r.face.Load().cfg.Name + "/" + node
}

// endElsewhere ends a session at all other nodes. It reports whether one of them has requests of it
// in flight: then the session ends there. leased: one has given a lease, or one that died may have.
func (r *Room) endElsewhere(ctx context.Context, tok *ticket.Token) (inFlight, leased bool, err error) {
	members := r.Config().Engine.members
	if members == nil {
		return false, false, nil
	}
	pass := r.keys.Load().Seal(nil, r.passName(), tok)
	answers, err := members.RequestAll(ctx, r.sessionName, pass)
	for _, a := range answers {
		inFlight, leased = inFlight || string(a) == sessionInFlight, leased || string(a) == sessionLeased
	}
	return inFlight, leased || members.Heard(2*sessions.Lease) > len(answers), err
}

// answerSession ends a session as far as this node knows it. If requests of it are in flight here, it
// ends with the last of them; otherwise the requesting node ends it.
func (r *Room) answerSession(_ context.Context, pass []byte) []byte {
	q := &visitRequest{f: r.face.Load(), has: true}
	if r.keys.Load().Open(&q.tok, r.passName(), string(pass)) != nil {
		return nil
	}
	if r.locate(q); q.has {
		if _, left := q.worker.visits.End(slot.SessionID(q.tok.ID), slot.Time(q.tok.End)); !left {
			return []byte(sessionInFlight)
		}
	}
	if r.leases.AreHeld() {
		return []byte(sessionLeased)
	}
	return []byte("ended")
}

// BeginLease holds the slots of sessions that end early for a while. Not ok: there is no lease, ask.
func (r *Room) BeginLease() (ok bool) { return r.leases.Begin() }

// RenewLease is BeginLease for those who forget the sessions ended, in a room with signed passes.
func (r *Room) RenewLease(signed bool) (ended []string, ok bool) { return r.leases.Renew(signed) }

// serveLeave gives up the place of a waiting visitor. A form of the waiting page posts to it. It
// answers with a page of its own that can be reloaded without harm.
func (r *Room) serveLeave(q *visitRequest) {
	switch {
	case q.r.Method != http.MethodPost:
		r.wait(q, &counter.PlaceInfo{PollAfter: q.f.cfg.PollMax}, StateLeft)
		return
	case http.NewCrossOriginProtection().Check(q.r) != nil: // another site must not remove places
		http.Error(q.w, "only the page of this site gives up a place", http.StatusForbidden)
		return
	case q.hasTicket():
		err := q.counter.Leave(q.r.Context(), q.tok.Life, q.tok.ID, q.tok.Key)
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
	q.redirect(q.at.Leave)
}

// redirect sends the visitor to another page. No cache may store it: it depends on the visitor.
func (q *visitRequest) redirect(to string) {
	q.w.Header()["Cache-Control"] = noStore
	http.Redirect(q.w, q.r, to, http.StatusSeeOther)
}

// serveHere answers the tiny image of the waiting page. Browsers load it at once, even without
// JavaScript, so the cookie of a new ticket comes back as early as possible.
func (r *Room) serveHere(q *visitRequest) {
	if q.hasTicket() {
		_, _ = r.poll(q) // the next poll returns the state
	}
	h := q.w.Header()
	h["Cache-Control"], h["Content-Type"] = noStore, gifType
	io.WriteString(q.w, wire.TinyImage)
}

// serveShared answers a request whose pass is used in too many networks.
func (r *Room) serveShared(q *visitRequest, id slot.SessionID, end slot.Time) {
	if q.f.cfg.PassSharing.Action == sessions.End {
		if from, left := q.worker.visits.End(id, end); left {
			r.leftHere(q.r.Context(), q.worker, q.tok, from)
		}
	}
	q.tok, q.has = ticket.Token{}, false
	r.serveNewcomer(q)
}

// shadowPass lets through a visitor who would have to wait without shadow mode, and counts the visitor once.
func (r *Room) shadowPass(q *visitRequest) {
	r.counts.shadowed.Add(1)
	c := (*challenge.Config)(&q.f.cfg.Challenge)
	r.gate.Count(q.lane == 0 && c.Asks(q.does.Act == decide.Challenge, r.untilDraw(q.f)))
	q.tok = ticket.Token{Kind: ticket.Pass, Accepted: q.f.cfg.Wall().Unix()}
	r.setCookie(q)
	r.pass(q)
}
