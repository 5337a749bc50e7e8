package headgate

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/headgate/headgate/internal/challenge"
	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/decide"
	"github.com/headgate/headgate/internal/guard"
	"github.com/headgate/headgate/internal/persons"
	"github.com/headgate/headgate/internal/route"
	"github.com/headgate/headgate/internal/sessions"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/ticket"
	"github.com/headgate/headgate/internal/wire"
)

// probation is how long the pass of a newcomer lasts who was admitted without waiting, until the
// cookie comes back. Without it one address that sends no cookies could fill the room. Chosen: a
// browser that loads a page sends its cookie within a second or two.
const probation = 10 * time.Second

// Times until the next attempt. Chosen.
const (
	unreachableRetry = time.Second      // the counter does not answer
	closedRetry      = 30 * time.Second // a closed room may have opened
	damagedRetry     = 10 * time.Second // the record must be restored
)

// A visitRequest is one request while the room handles it.
type visitRequest struct {
	f       *face // the configuration, the same one for the whole request
	w       http.ResponseWriter
	r       *http.Request
	next    http.Handler
	at      *route.Match    // location in the room
	does    decide.Decision // for all readings of the path
	peek    bool            // the page's own poll: never admitted, never proxied
	came    time.Duration   // arrival, own clock
	tok     ticket.Token
	has     bool         // tok was sealed by this room
	sent    bool         // the request has a cookie of this name
	twice   bool         // this is a repeated claim
	keeps   bool         // the ticket is of another data center and may be valid there
	lane    uint64       // id of the lane to wait in; 0 is none
	over    bool         // the ticket in tok is over: no answer names it
	again   ticket.Kind  // kind of the expired ticket or pass that the visitor had on joining
	above   bool         // its network has sent too many newcomers; valid if asked
	asked   bool         // overLimit has counted this request
	busy    bool         // a solution of the challenge could not be checked
	link    string       // link that moves the place
	way     way          // how the request is forwarded
	knows                // who the visitor is
	worker  *worker      // of the data center of the visitor's session or place, now or in future
	counter placeCounter // of the same data center
}

// hasTicket reports whether the visitor's cookie names a place in a line.
func (q *visitRequest) hasTicket() bool {
	return q.has && q.tok.Kind == ticket.Ticket && q.tok.ID > 0
}

// Handler returns a handler that puts the room in front of next.
func (r *Room) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.serve(w, req, next, forwards)
	})
}

// A way is how the requests that a room lets in reach the origin.
type way uint8

const (
	forwards way = iota // the next handler forwards them
	relays              // a proxy asks, and forwards the request or relays the answer
	checks              // a proxy asks, and relays no answer
)

// Decide returns a handler for a proxy that asks whether a request may pass, and that forwards it or relays
// the answer to the visitor. It calls next for a request that may pass; next answers the proxy. Without relay
// the proxy relays no answers: then a request that may not pass gets 401 without a body, and its visitor gets
// no place in the line from it. Such a proxy forwards these requests to [Room.Handler], which answers them.
//
// The window of a new user begins a second after the decision, because the proxy needs time to forward the
// request. A session ends SessionDuration after its last decision, whatever of it is still in flight.
func (r *Room) Decide(relay bool, next http.Handler) http.Handler {
	by := checks
	if relay {
		by = relays
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { r.serve(w, req, next, by) })
}

// forwarding is how long a proxy may take from a decision until the origin has the request. Chosen.
const forwarding = time.Second

// refuses answers a proxy that relays no answers, and reports whether the request comes from one.
func (q *visitRequest) refuses() bool {
	if q.way != checks {
		return false
	}
	if q.asked { // the proxy sends the same request to Handler, which counts it
		q.f.joins.Forget(q.f.cfg.ClientAddr(q.r))
	}
	q.w.Header()["Cache-Control"] = noStore
	q.w.WriteHeader(http.StatusUnauthorized)
	return true
}

// serve answers a request. What needs no cookie and no counter comes first: it works without a record.
func (r *Room) serve(w http.ResponseWriter, req *http.Request, next http.Handler, by way) {
	q := &visitRequest{f: r.face.Load(), w: w, r: req, next: next, came: r.boot(), way: by}
	q.peek = req.Header.Get(PollHeader) != ""
	l := r.live.Load()
	if !r.decide(q, l) {
		return
	}
	if q.f.cors != nil {
		if wire.IsPreflight(req) {
			q.f.cors.ServeHTTP(w, req)
			return
		}
		q.f.cors.Share(w.Header(), req)
		q.next = q.f.cors.Origin(next)
	}
	if (q.does.Own != "" || q.peek) && q.refuses() {
		return
	}
	if q.does.Own == "served" {
		wire.ServeShared(w, req, func() []byte { return r.doc.Get(r.boot(), r.served) })
		return
	}
	if q.does.Act != decide.None && r.ruled(q) {
		return
	}
	if l.suspended {
		r.counts.excluded.Add(1)
		r.pass(q)
		return
	}
	if pre := wire.IsPreflight(req); pre || q.does.Excluded {
		r.serveExcluded(q, pre)
		return
	}
	if l.damaged && r.anyway(q) {
		return
	}
	if l.damaged { // the visitor keeps what it has and tries again
		r.wait(q, &counter.PlaceInfo{PollAfter: max(q.f.cfg.PollMin, damagedRetry)}, StateDown)
		return
	}
	r.open(q)
	r.locate(q)
	switch {
	case r.opened(q) && r.findPerson(q):
	case q.does.Own == "leave":
		r.serveLeave(q)
	case q.does.Own == "here.gif":
		r.serveHere(q)
	case q.does.Own == "move":
		r.serveMove(q)
	case q.has && q.tok.Kind == ticket.Pass:
		r.servePass(q)
	case q.has && q.tok.ID > 0 && (req.Method != http.MethodHead || q.peek): // ID 0: see remember
		r.serveTicket(q)
	case q.has && q.tok.Kind == ticket.Left && q.peek: // another tab: it joins no line
		r.wait(q, &counter.PlaceInfo{PollAfter: q.f.cfg.PollMax}, StateLeft)
	case q.has && q.tok.Kind == ticket.Moved && q.peek:
		r.serveMoved(q)
	default:
		r.serveNewcomer(q)
	}
}

// open reads the cookie. Over https a visitor may still have the cookie of an http session, or the
// cookie from before the room had a suffix. Such a cookie counts when there is no other; otherwise
// a waiting visitor would lose the place.
func (r *Room) open(q *visitRequest) {
	r.identify(q)
	for _, name := range q.f.cookieNames(q.r) {
		if r.openNamed(q, name); q.has {
			return
		}
	}
}

// openNamed reads the cookies of one name. A room whose routes have changed may have more: the newest counts.
func (r *Room) openNamed(q *visitRequest, name string) {
	keys, bound := r.keys.Load(), q.f.sealName(q.r)
	for _, line := range q.r.Header["Cookie"] {
		for line != "" {
			var value string
			if value, line = wire.Cookie(line, name); line == "" && value == "" {
				break
			}
			q.sent = true
			var tok ticket.Token
			if keys.OpenBound(&tok, q.f.cfg.Name, bound, value) != nil {
				r.counts.forged.Add(1)
			} else if q.isOf(&tok) && (!q.has || tok.Checked >= q.tok.Checked) {
				q.tok, q.has = tok, true
			}
		}
	}
}

// servePass lets in a visitor who was admitted before. It checks the pass in this process, without
// a message. If the sealed end has passed, it requests the end from the counter.
func (r *Room) servePass(q *visitRequest) {
	q.worker.learnLife(q.r.Context(), q.tok.Life)
	_, hi, life, ok := q.worker.clock.Bounds()
	id, hard := slot.SessionID(q.tok.ID), slot.Time(q.tok.Hard)
	switch {
	case id == 0 && q.f.cfg.Shadow && q.peek:
		r.wait(q, &counter.PlaceInfo{}, StateCalled)
		return
	case id == 0 && q.f.cfg.Shadow:
		r.pass(q)
		return
	case life == q.tok.Life && hi < slot.Time(q.tok.End) && q.worker.behind(&q.tok) &&
		q.worker.cutOff():
		// A later host issued the pass, and this process cannot receive messages from that host.
		// Counter time may stand still but never runs ahead: a pass that has not expired by the
		// time of an earlier host has not expired.
	case !ok && id != 0 && r.passesFor(q):
		q.worker.kick()
		if q.peek {
			r.wait(q, &counter.PlaceInfo{}, StateCalled)
			return
		}
		r.pass(q)
		return
	case (!ok || life == q.tok.Life && q.worker.behind(&q.tok)) && id != 0:
		// This process has just started and does not know the counter time yet, or it was suspended
		// and knows the time of an earlier host.
		if r.late(q) && !ok || !q.worker.learnTime(q.r.Context(), &q.tok) {
			if life == q.tok.Life && hi < slot.Time(q.tok.End) && q.worker.cutOff() {
				break // as above
			}
			r.outOfReach(q)
			return
		}
		_, hi, life, ok = q.worker.clock.Bounds()
	}
	if !ok || life != q.tok.Life || hard > 0 && hi >= hard {
		r.serveNewcomer(q)
		return
	}
	end := q.worker.entitled(&q.tok)
	if q.worker.beyond(&q.tok, end) {
		q.counter.ReportSuspectPass(q.r.Context())
		r.serveNewcomer(q)
		return
	}
	known, gone := q.worker.visits.Peek(id)
	if q.peek && !gone && max(known, end) > hi && q.worker.visits.Allows(q.from(&sessions.Session{ID: id})) {
		r.wait(q, &counter.PlaceInfo{}, StateCalled) // a poll keeps nobody inside
		return
	}
	last, seen, how := r.enter(q, sessions.Session{ID: id, End: end, Hard: hard})
	trial, fixed, rest := q.tok.Probation, q.f.cfg.FixedSession, q.f.cfg.restOf(&q.tok, hi)
	if q.peek {
		rest = time.Millisecond // the poll requests the state and extends nothing
	}
	if over := how == sessions.Over; over && !fixed || how != sessions.Beyond && trial && fixed {
		got, err := q.worker.ask(q.r.Context(), id, last, rest, hard)
		_, hi, _, _ = q.worker.clock.Bounds() // the answer may have brought it down
		switch {
		case err != nil && over: // the end is unknown
			r.outOfReach(q)
			return
		case got > hi && q.peek:
			r.wait(q, &counter.PlaceInfo{}, StateCalled)
			return
		case got > hi:
			q.worker.visits.Learn(id, got)
		}
		if got > hi && over {
			last, seen, how = r.enter(q, sessions.Session{ID: id, End: got, Hard: hard})
		}
		last = max(last, got)
	}
	switch {
	case how == sessions.Beyond:
		r.serveShared(q, id, end)
	case how == sessions.Over && trial && !gone && q.f.cfg.restOf(&q.tok, hi) > 0 && !r.isAbroad(q):
		r.roam(q, 0) // its slot went to a waiting visitor; this one is next
	case how == sessions.Over:
		r.serveNewcomer(q)
	default:
		if !q.worker.behind(&q.tok) { // a pass must not mix two time scales
			if q.tok.Probation = false; trial && fixed {
				q.tok.End = int64(last)
			}
			end := r.grace(q, id, last)
			r.renewCookie(q, end, seen, end > last || trial)
		}
		r.inside(q, id, hard, 0)
	}
}

// renewCookie gives the visitor a newer pass. A cookie in each answer would make answers
// uncacheable. So it sets one only when the new pass gains at least a tenth of a session, or when
// less than half a session is confirmed, as after a probation.
func (r *Room) renewCookie(q *visitRequest, last, seen slot.Time, grace bool) {
	said := max(q.tok.End, q.tok.Pending)
	next := q.tok
	next.ExtendTo(int64(last), q.f.cfg.FixedSession)
	q.worker.asked(&next, seen)
	_, hi, _, _ := q.worker.clock.Bounds()
	step := min(q.f.cfg.SessionDuration/10, 30*time.Second)
	short := slot.Time(q.tok.End).Sub(hi) < q.f.cfg.SessionDuration/2 &&
		slot.Time(next.End).Sub(slot.Time(q.tok.End)) > step
	if grace || short || time.Duration(max(next.End, next.Pending)-said) > step {
		q.tok = next
		r.setCookie(q)
	}
}

// serveTicket shows a waiting visitor the place in the line, or lets in a visitor whose ticket is
// called: then this request is the claim.
func (r *Room) serveTicket(q *visitRequest) {
	if q.f.cfg.Shadow {
		r.serveNewcomer(q)
		return
	}
	if r.late(q) {
		r.outOfReach(q)
		return
	}
	p, err := r.poll(q)
	if err == nil && p.AwaitTurn(q.r.Context()) {
		p, err = r.poll(q)
	}
	if err != nil {
		p.PollAfter = max(p.PollAfter, unreachableRetry)
		r.wait(q, &p, StateWaiting)
		return
	}
	r.standing(q, &p)
}

// standing acts on the state of a ticket.
func (r *Room) standing(q *visitRequest, p *counter.PlaceInfo) {
	switch p.Status {
	case slot.TicketCalled, slot.TicketUsed:
		if p.Status == slot.TicketUsed && r.findPerson(q) { // by another device
			return
		}
		if p.UsedUp { // no cookie: the browser may have the pass by now
			r.wait(q, p, StateWaiting)
			return
		}
		if q.peek {
			r.wait(q, p, StateCalled)
			return
		}
		r.claim(q, p)
	case slot.TicketWaiting, slot.TicketLate, slot.TicketProvisional:
		if q.keeps { // the visitor waits as a newcomer: the ticket has no place here
			p.Position, p.Ahead = 0, 0
		}
		r.wait(q, p, r.whyWaiting(p))
	default:
		q.keeps = false // no roaming visitor fits in any more: this one joins the line
		if p.Moved {
			r.serveMoved(q)
		} else if !r.stillRoams(q) {
			r.serveNewcomer(q)
		}
	}
}

// whyWaiting returns why newcomers wait, or the visitor of a place.
func (r *Room) whyWaiting(p *counter.PlaceInfo) State {
	switch l := r.live.Load(); {
	case l.closed, l.reject && !l.queueAll && !l.prequeue: // then all wait
		return StateClosed
	case l.early, l.prequeue && (p == nil || !p.HasStarted(r.face.Load().cfg.Wall())):
		return StateOpensSoon
	case l.down:
		return StateDown
	case l.queueAll:
		return StateQueueAll
	}
	return StateWaiting
}

// claim turns a called ticket into a session and lets the visitor in.
func (r *Room) claim(q *visitRequest, p *counter.PlaceInfo) {
	c, err := q.personJoin().Claim(q.r.Context(), r.people, q.counter, p, q.tok.Key,
		sessions.Claims(q.f.cfg.SessionDuration, q.f.cfg.longest(), q.f.cfg.HardEnd))
	if err != nil || c.End == 0 {
		r.notClaimed(q, p, err)
		return
	}
	life := cmp.Or(p.Now, p.Life)
	if !q.worker.learnEnd(q.r.Context(), c.Epoch, c.End) {
		p.PollAfter = unreachableRetry // the visitor repeats the claim then
		r.wait(q, p, StateWaiting)
		return
	}
	r.counts.admitted.Add(1)
	r.Waited.Add(q.f.cfg.Wall().Sub(time.Unix(q.tok.Arrived, 0)))
	q.tok.ID = p.Number
	r.letIn(q, slot.Session{End: c.End, Win: c.Win}, life)
}

// notClaimed answers a visitor whose claim failed. If the call expired meanwhile, the visitor keeps
// the place; a used ticket has none.
func (r *Room) notClaimed(q *visitRequest, p *counter.PlaceInfo, err error) {
	if p.Number < counter.RoamerBit && (err == nil || errors.Is(err, counter.ErrNotCalled)) {
		now, perr := r.poll(q)
		switch {
		case perr != nil:
		case now.Moved:
			r.serveMoved(q)
			return
		case now.UsedUp:
			r.wait(q, &now, StateWaiting)
			return
		case now.Status == slot.TicketUsed && !q.twice: // another host accepted the claim meanwhile
			q.twice = true
			r.claim(q, &now)
			return
		case now.Status == slot.TicketUsed || now.Position == 0:
			r.serveNewcomer(q)
			return
		default:
			*p = now
		}
	}
	p.PollAfter = max(p.PollAfter, 20*time.Millisecond)
	r.wait(q, p, r.whyWaiting(p))
}

// letIn makes the pass of a new session and lets its first request through.
func (r *Room) letIn(q *visitRequest, o slot.Session, life uint64) {
	now := q.f.cfg.Wall().Unix()
	var hard slot.Time
	if q.f.cfg.HardEnd > 0 { // on the grid of ends, or each visitor would have a different end
		lo, _, _, _ := q.worker.clock.Bounds()
		hard = q.worker.par.FloorEnd(q.f.cfg.limits()[0], lo.Add(q.f.cfg.HardEnd))
	}
	q.tok = ticket.Token{
		Kind: ticket.Pass, Life: life, ID: q.tok.ID, End: int64(o.End), Hard: int64(hard),
		Arrived: cmp.Or(q.tok.Arrived, now), Accepted: now, Epoch: q.worker.epoch(), Home: r.homeOf(q),
		Probation: o.Full > o.End, Person: q.person,
	}
	y := sessions.Session{ID: slot.SessionID(q.tok.ID), End: o.End, Hard: hard, Probe: o.Full > o.End,
		Brief: o.Full == o.End, New: true}
	switch _, _, how := r.enter(q, y); how {
	case sessions.Beyond: // the ticket was claimed before
		r.serveShared(q, y.ID, o.End)
		return
	case sessions.Over:
		r.wait(q, &counter.PlaceInfo{PollAfter: time.Second}, StateWaiting) // the claim took a whole session
		return
	}
	if !q.tok.Probation {
		q.tok.ExtendTo(int64(r.grace(q, y.ID, o.End)), q.f.cfg.FixedSession)
	}
	r.setCookie(q)
	r.inside(q, y.ID, hard, o.Win)
}

// letOnce lets through a part of a page, such as an image, that came without a visitor's cookie.
// The request gets no cookie, and its slot is free again after the answer.
func (r *Room) letOnce(q *visitRequest, id slot.SessionID, o slot.Session) {
	q.tok, q.has = ticket.Token{}, false
	y := sessions.Session{ID: id, End: o.End, Probe: true} // not counted as a session
	if _, _, how := q.worker.visits.Enter(&y); how == sessions.In {
		q.worker.visits.Revoke(id)
		r.inside(q, id, 0, o.Win)
		return
	}
	r.wait(q, &counter.PlaceInfo{PollAfter: time.Second}, StateWaiting) // the Sync took a whole probation
}

// serveNewcomer handles a visitor without a pass and without a place. It gives the visitor a slot
// if one is free and due, or else a place at the end of the line.
func (r *Room) serveNewcomer(q *visitRequest) {
	q.worker, q.counter = r.worker, r.counter
	q.over = q.hasTicket() && !q.keeps
	if q.r.Method == http.MethodHead && !q.peek {
		r.serveHead(q)
		return
	}
	if q.peek && !q.sent { // our own page polls, and its cookie does not come back
		r.wait(q, &counter.PlaceInfo{PollAfter: 10 * time.Second}, StateNoCookie)
		return
	}
	ctx, why := q.r.Context(), r.whyWaiting(nil)
	if why == StateWaiting && r.failsOpen(q) && r.anyway(q) {
		return
	}
	if q.f.cfg.Identity.Of != nil && r.unproven(q) {
		return
	}
	part := !q.peek && wire.Part(q.r)
	if why == StateWaiting && !q.peek && q.person == (persons.ID{}) {
		id := slot.SessionID(rand.Uint64() | 1<<63) // never a ticket number
		trial, last := min(probation, q.f.cfg.SessionDuration), time.Duration(0)
		admit := r.worker.admit
		if part {
			last = trial
		}
		if part || r.overLimit(q) && !q.f.cfg.JoinLimit.Refuse {
			admit = r.worker.admitUnproven
		}
		if o, ok := admit(ctx, id, last, q.f.cfg.HardEnd); ok {
			var stop func()
			q.r, stop = guard.EndBody(q.w, q.r, trial, func() bool { return r.worker.yields(id) })
			defer stop()
			r.counts.admitted.Add(1)
			if part {
				r.letOnce(q, id, o)
				return
			}
			r.returns(q)
			_, _, life, _ := r.worker.clock.Bounds()
			q.tok.ID = uint64(id)
			r.letIn(q, o, life)
			return
		}
	}
	if q.f.cfg.Shadow {
		if q.peek {
			r.wait(q, &counter.PlaceInfo{}, StateCalled)
			return
		}
		r.shadowPass(q)
		return
	}
	if why == StateWaiting && r.anyway(q) {
		return
	}
	if part { // it neither waits nor takes a place
		r.wait(q, &counter.PlaceInfo{PollAfter: q.f.cfg.PollMax}, why)
		return
	}
	r.join(q, why)
}

// enter notes a request of a session, and its source.
func (r *Room) enter(q *visitRequest, y sessions.Session) (last, seen slot.Time, how sessions.Entry) {
	y.Claimed = !counter.IsNewcomer(uint64(y.ID)) || r.abroad != nil
	return q.worker.visits.Enter(q.from(&y))
}

// from adds the source of the request to a session.
func (q *visitRequest) from(y *sessions.Session) *sessions.Session {
	y.Source = q.worker.visits.Source(q.f.cfg.ClientAddr(q.r), q.r.UserAgent())
	y.Sharing = sessions.Sharing(q.f.cfg.PassSharing)
	return y
}

func (r *Room) join(q *visitRequest, why State) {
	if q.refuses() || why == StateClosed && r.findPerson(q) {
		return
	}
	if why == StateClosed { // newcomers get no place
		r.remember(q)
		r.wait(q, &counter.PlaceInfo{PollAfter: max(q.f.cfg.PollMax, closedRetry)}, why)
		return
	}
	c, endless := (*challenge.Config)(&q.f.cfg.Challenge), false
	if r.overLimit(q) {
		r.counts.limited.Add(1)
		if q.f.cfg.JoinLimit.Refuse {
			r.remember(q)
			r.wait(q, &counter.PlaceInfo{PollAfter: q.f.joins.Limit.Window / 2}, StateLimited)
			return
		}
		if endless = q.lane == 0 && c.Endless; q.lane == 0 { // no way around the challenge
			q.lane = slot.NetworkLane().ID()
		}
	}
	if q.keeps {
		r.roam(q, comesNow)
		return
	}
	hold := q.f.cfg.Hold
	if wire.Phone(q.r) {
		hold = q.f.cfg.HoldPhone
	}
	q.tok.Forget(q.f.cfg.Wall().Add(-hold - time.Minute))
	tries, known := uint64(0), q.person != (persons.ID{})
	if (q.lane == 0 || endless) && !known && q.hasTicket() && c.Had(&q.tok) {
		if tries, q.again = c.Again(&q.tok, q.busy, q.f.cfg.Wall()); q.again == 0 { // it has no place
			q.over = false
			r.setCookie(q)
			r.serveTicket(q)
			return
		} else if q.again == ticket.Unsolved {
			q.lane = challenge.Lane().ID()
		}
	}
	p, s, err := r.enroll(q, hold)
	switch {
	case errors.Is(err, counter.ErrUsed):
		r.signIn(q)
		return
	case errors.Is(err, counter.ErrFull):
		r.counts.full.Add(1)
		r.remember(q)
		p.PollAfter = q.f.cfg.PollMax
		r.wait(q, &p, StateFull)
		return
	case err != nil: // no number can be issued: try again, spread over time
		p.PollAfter = unreachableRetry + rand.N(unreachableRetry)
		r.remember(q)
		r.wait(q, &p, why)
		return
	}
	r.counts.joined.Add(1)
	r.returns(q)
	if known {
		r.servePerson(q, &p, s)
		return
	}
	if q.again == 0 && q.has && q.tok.ID > 0 { // ID 0: see remember, shadowPass
		q.again = q.tok.Kind
	}
	q.over = false
	q.tok = ticket.Token{
		Kind: ticket.Ticket, Life: p.Life, Home: r.own(), Joined: uint32(min(p.Position, math.MaxUint32)),
		ID: p.Number, First: q.tok.FirstIn(p.Life), Arrived: q.f.cfg.Wall().Unix(), Seen: int64(p.ArrivedAt),
	}
	if q.f.cfg.unordered(p.Number) {
		q.tok.Joined = 0
	}
	q.tok.Shown, q.has = q.tok.Joined, true
	may := endless || slot.LaneIndex(p.Number) == 0 // a lane may not fit in yet
	if may && c.Asks(tries > 0 || q.does.Act == decide.Challenge, r.untilDraw(q.f)) {
		q.tok.Work = r.gate.Draw(q.f.cfg.Wall(), p.Waiting, q.f.cfg.NewUsersPerMinute,
			q.f.joins.Rate(q.f.cfg.ClientAddr(q.r), r.boot()), q.f.joins.Limit.Amount, tries)
	}
	r.weigh(q, &p)
	r.setCookie(q)
	// A visitor who comes from our own page without a cookie accepts no cookies and can never advance.
	if !q.sent && q.r.Header.Get("Sec-Fetch-Site") == "same-origin" && Navigates(q.r) {
		why = StateNoCookie
	}
	r.wait(q, &p, why)
}

// remember gives a visitor without a place an empty cookie. When the page polls again with it, the
// browser has shown that it returns cookies, and the visitor may join.
func (r *Room) remember(q *visitRequest) {
	if !q.sent {
		q.tok = ticket.Token{Kind: ticket.Ticket}
		r.setCookie(q)
	}
}

// inside lets a request of a session through and keeps the session alive while the request runs.
func (r *Room) inside(q *visitRequest, id slot.SessionID, hard, win slot.Time) {
	a := &answer{room: r, worker: q.worker, f: q.f, id: id, win: win, req: q.r, tok: q.tok, way: q.way}
	a.ResponseWriter, a.On = q.w, a
	defer r.finish(a)
	req := q.r
	if hard > 0 { // a hard end closes requests in flight
		lo, _, _, _ := q.worker.clock.Bounds()
		ctx, stop := context.WithTimeout(req.Context(), max(0, hard.Sub(lo)))
		defer stop()
		req = req.WithContext(ctx)
	}
	q.next.ServeHTTP(a, req)
}

// finish notes the last byte. It is deferred, because a proxy panics when the client is gone.
func (r *Room) finish(a *answer) {
	a.Once() // the origin may have seen a visitor who did not wait for its answer
	switch from, left := a.worker.visits.Leave(a.id); {
	case left && a.tok.Kind != 0:
		r.leftHere(a.req.Context(), a.worker, a.tok, from)
	case left: // no visitor has a pass of it
		a.worker.leave(a.id, from, false, false)
	}
}

// pass lets a request through that belongs to no session.
func (r *Room) pass(q *visitRequest) {
	a := &answer{f: q.f, req: q.r}
	a.ResponseWriter, a.On = q.w, a
	q.next.ServeHTTP(a, q.r)
	a.Once()
}
