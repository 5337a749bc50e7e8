package headgate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/sessions"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/ticket"
)

// A Stay is the visit of somebody inside, as it stands now.
type Session struct {
	ID            string        // the same for all requests of the visit, and of no other one
	Entered       time.Time     // by the wall clock
	Remaining     time.Duration // until it ends if nothing more is heard of the visitor, at least
	HardRemaining time.Duration // until it ends whatever is heard; 0 is no hard end

	room *Room
	tok  ticket.Token
}

// Pass names the visit to EndStay: sealed, a few hundred characters, and another one each time.
func (s *Session) Pass() string {
	return string(s.room.keys.Load().Seal(nil, s.room.passName(), &s.tok))
}

// passName is what a pass is sealed for, so that none can be used as a cookie.
func (r *Room) passName() string { return "pass " + r.face.Load().cfg.Name }

// StayOf tells which visit the request belongs to that is answered by w: the writer that a
// Room hands to its handler, or one that unwraps to it.
func SessionOf(w http.ResponseWriter) (s Session, ok bool) {
	for {
		switch x := w.(type) {
		case *answer:
			return x.room.stay(x.worker, &x.tok)
		case interface{ Unwrap() http.ResponseWriter }:
			w = x.Unwrap()
		default:
			return s, false
		}
	}
}

// Look tells which visit a request belongs to, and prolongs nothing.
func (r *Room) PeekSession(req *http.Request) (s Session, ok bool) {
	q := &visitRequest{f: r.face.Load(), r: req}
	if r.open(q); !q.has {
		return s, false
	}
	if r.locate(q); !q.worker.visits.Allows(q.from(&sessions.Session{ID: slot.StayID(q.tok.ID)})) {
		return s, false
	}
	return r.stay(q.worker, &q.tok)
}

func (r *Room) stay(w *worker, tok *ticket.Token) (s Session, ok bool) {
	if tok.Kind != ticket.Pass || tok.ID == 0 {
		return s, false
	}
	_, hi, life, known := w.now()
	last, gone := w.visits.Peek(slot.StayID(tok.ID))
	said, hard := w.entitled(tok), slot.Time(tok.Hard)
	end := max(said, last)
	if !known || life != tok.Life || gone || hi >= end || w.beyond(tok, said) {
		return s, false
	}
	s = Session{
		Entered:   time.Unix(tok.Accepted, 0),
		Remaining: r.whole(w, tok, end).Sub(hi),
		room:      r,
		tok:       *tok,
		ID:        tok.Visit(),
	}
	s.tok.End = int64(end)
	if hard > 0 {
		s.HardRemaining = max(1, hard.Sub(hi))
	}
	return s, true
}

// whole is the end of a stay, also of one that is or has just been on probation, as if its cookie came
// back in time.
func (r *Room) whole(w *worker, tok *ticket.Token, end slot.Time) slot.Time {
	switch {
	case tok.Probation:
		return end.Add(max(0, w.rules.Load().Session-probation))
	case r.face.Load().cfg.Wall().Sub(time.Unix(tok.Accepted, 0)) < 2*probation: // it came back a moment ago
		return max(end, slot.Time(tok.Pending))
	}
	return end
}

// The errors of EndStay: a text is no Pass of a visit of this room, or a node may go on serving the visit.
var (
	ErrNoPass   = errors.New("no pass of a visit of this room")
	ErrNotEnded = errors.New("the visit may go on at another node")
)

// stayInFlight is the answer of a node where the visit leaves with the last byte of its requests.
const stayInFlight = "in flight"

// EndStay ends the visit of a Pass as the origin's revoke does: its slot is free once nothing of
// it is in flight any more, at any node, and its next request is a newcomer's. ended is false if it
// was over.
func (r *Room) EndSession(ctx context.Context, pass string) (ended bool, err error) {
	q := &visitRequest{f: r.face.Load(), has: true}
	if r.keys.Load().Open(&q.tok, r.passName(), pass) != nil || q.tok.ID == 0 {
		return false, ErrNoPass
	}
	if r.locate(q); !q.has { // of a data centre that is no more
		return false, nil
	}
	id, end := slot.StayID(q.tok.ID), slot.Time(q.tok.End)
	_, hi, life, known := q.worker.now()
	if _, gone := q.worker.visits.Peek(id); gone || known && life != q.tok.Life {
		return false, nil
	}
	inFlight, err := r.endElsewhere(ctx, &q.tok) // first: who is told of an error may ask again
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrNotEnded, err)
	}
	from, left := q.worker.visits.End(id, end)
	if hi >= from { // known to the counter by its id, or over
		from = 0
	}
	if left && !inFlight { // else it leaves with the last byte
		q.worker.leave(id, from, true)
	}
	return true, nil
}

// leftHere frees the slot of a visit that has ended and has nothing in flight here any more, unless it has
// at another node: then the last byte there does. While nobody knows, its slot is held to its end.
func (r *Room) leftHere(ctx context.Context, w *worker, tok ticket.Token, from slot.Time) {
	tok.End = max(tok.End, int64(from))
	inFlight, err := r.endElsewhere(context.WithoutCancel(ctx), &tok)
	if err != nil {
		r.face.Load().cfg.Log.Warn("a visit was ended, and its slot is not free yet", "error", err)
	} else if !inFlight {
		w.leave(slot.StayID(tok.ID), from, true)
	}
}

// stayName is under which a node is asked for what is in flight.
func (r *Room) stayName(node string) string { return "stay." + r.face.Load().cfg.Name + "/" + node }

// endElsewhere ends a visit at all other nodes. It reports whether requests of it are in flight at one:
// then it leaves there.
func (r *Room) endElsewhere(ctx context.Context, tok *ticket.Token) (inFlight bool, err error) {
	engine := r.Config().Engine
	if engine.members == nil {
		return false, nil
	}
	pass := r.keys.Load().Seal(nil, r.passName(), tok)
	answers, err := engine.members.RequestAll(ctx, r.stayName, pass)
	return slices.ContainsFunc(answers, func(a []byte) bool { return string(a) == stayInFlight }), err
}

// answerStay ends a visit as far as it is known here. If requests of it are in flight it leaves
// here, with the last of them; else whoever asks lets it leave.
func (r *Room) answerStay(_ context.Context, pass []byte) []byte {
	q := &visitRequest{f: r.face.Load(), has: true}
	if r.keys.Load().Open(&q.tok, r.passName(), string(pass)) != nil {
		return nil
	}
	if r.locate(q); q.has {
		if _, left := q.worker.visits.End(slot.StayID(q.tok.ID), slot.Time(q.tok.End)); !left {
			return []byte(stayInFlight)
		}
	}
	return []byte("ended")
}
