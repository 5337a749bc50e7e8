package headgate

import (
	"cmp"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/persons"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/ticket"
	"github.com/headgate/headgate/internal/wire"
)

// Identity configures how a room knows its visitors. A person has one place on all devices.
type Identity struct {
	// Of returns the site's ID of who sent a request, or "", and the name of the lane of the person's group,
	// or "". known is false while that cannot be found out.
	Of func(*http.Request) (id, group string, known bool)
	// Invitation is set if IDs are invitations. Each ID is for one session, each request has to show it, and
	// nobody joins by it after until. So many visitors come in by the IDs of one code as it has uses.
	Invitation func(id string) (code string, uses int, until time.Time)
	Required   bool   // visitors without an ID get neither a place nor a slot
	SignIn     string // where those are sent, with {url}, {reason} of an invitation and {own} replaced
}

// knows is what a room knows of who its visitor is.
type knows struct {
	person                  persons.ID // zero: unknown
	group                   uint64     // id of the lane of the person's group; 0 is none
	proven, needsID, unsure bool       // by the request itself; the room requires it; nobody can tell now
	found, shares, strict   bool       // its place or session was found; each request shows a code
	invitation              persons.Invitation
}

// identify notes who sent the request, as far as the site knows.
func (r *Room) identify(q *visitRequest) {
	if c := &q.f.cfg; c.Identity.Of != nil && !c.Shadow && c.Method != MethodPassthrough {
		id, group, known := c.Identity.Of(q.r)
		q.person, q.strict = persons.IDOf(c.Name, id), c.Identity.Invitation != nil
		q.invitation, q.proven = persons.InvitationOf(c.Name, id, c.Identity.Invitation, c.Wall())
		if q.needsID, q.unsure = c.Identity.Required, !known; q.proven && group != "" { // no ended code
			q.group = slot.Lane{Name: group}.ID()
		}
	}
}

// isOf reports whether a cookie may be of the person who sent the request, not of one who signed out.
func (q *visitRequest) isOf(t *ticket.Token) bool {
	return !q.proven && !q.strict || t.Person == persons.ID{} || t.Person == q.person
}

// opened adds the person of the cookie if the request has no proof, which is often valid for minutes
// only. It reports whether the visitor has joined or entered before it signed in, or waits in another line
// than that of its group, which may come in early.
func (r *Room) opened(q *visitRequest) (adopts bool) {
	if q.f.cfg.Identity.Of == nil || !q.has {
		return false
	}
	if !q.proven {
		q.person = q.tok.Person
	}
	adopts = q.proven && q.tok.ID > 0 && q.does.Own == "" && (q.tok.Person == persons.ID{} && !r.isAbroad(q) ||
		q.tok.Person == q.person && q.group != 0 && r.live.Load().prequeue && q.tok.Kind == ticket.Ticket &&
			slot.LaneIndex(q.tok.ID) == 0)
	if adopts && q.tok.Kind == ticket.Pass {
		_, adopts = r.session(q.worker, &q.tok)
	}
	return adopts && (q.tok.Kind == ticket.Pass || q.tok.Kind == ticket.Ticket)
}

// personJoin returns the request for the place of the person.
func (q *visitRequest) personJoin() counter.PersonJoin {
	x := counter.PersonJoin{Person: q.person, Find: true, Invitation: q.invitation}
	if x.Lane = cmp.Or(q.group, q.lane); q.has && q.tok.Person == (persons.ID{}) && q.tok.ID > 0 {
		x.Life, x.Number, x.Key = q.tok.Life, q.tok.ID, q.tok.Key
	}
	return x
}

// findPerson lets a person go on at its place or in its session, and reports whether there is one.
func (r *Room) findPerson(q *visitRequest) (done bool) {
	if q.person == (persons.ID{}) || q.found {
		return false
	}
	x := q.personJoin()
	switch p, s, err := r.people.JoinPerson(q.r.Context(), x); {
	case err == nil && p.Number == 0, err != nil && x.Number != 0 && q.tok.Kind == ticket.Pass: // next time
		return false
	case err != nil:
		p.PollAfter = max(p.PollAfter, unreachableRetry)
		r.wait(q, &p, r.whyWaiting(&p))
	default:
		r.servePerson(q, &p, s)
	}
	return true
}

// servePerson goes on with the place or the session of a person.
func (r *Room) servePerson(q *visitRequest, p *counter.PlaceInfo, s slot.ClaimReply) {
	now, at := q.f.cfg.Wall().Unix(), uint32(min(p.Position, math.MaxUint32))
	t := ticket.Token{
		Kind: ticket.Ticket, Life: p.Life, ID: p.Number &^ counter.RoamerBit, Arrived: now, Joined: at,
		Home: r.people.Home(q.person), Person: q.person, Shown: at, Seen: int64(p.ArrivedAt), Key: p.Key,
	}
	if x := &q.tok; x.ID == t.ID && x.Kind == ticket.Ticket {
		t.First, t.Arrived, t.Joined, t.Shown = x.First, x.Arrived, x.Joined, min(x.Shown, at)
	}
	if q.f.cfg.unordered(p.Number) {
		t.Joined, t.Shown = 0, 0
	}
	q.found, q.over, q.keeps = true, false, false
	switch {
	case p.Status != slot.TicketUsed:
		q.tok, q.has = t, true
		r.setCookie(q)
		if r.locate(q); p.Called { // perhaps its second comes soon
			r.serveTicket(q)
			return
		}
		r.standing(q, p)
	case s.End == 0 || q.shares: // an earlier host knew the session, or it is about to end
		r.wait(q, &counter.PlaceInfo{PollAfter: max(p.PollAfter, unreachableRetry)}, StateWaiting)
	default: // inside, with another device or since before it signed in: it is the same session
		if q.has && q.tok.Kind == ticket.Pass && q.tok.ID == p.Number {
			t = q.tok
		} else if t.ID, t.Accepted = p.Number, now; q.f.cfg.HardEnd > 0 || q.f.cfg.FixedSession {
			t.Hard = int64(s.End) // this device does not know when the session began
		}
		t.Kind, t.Life, t.End, t.Epoch = ticket.Pass, cmp.Or(p.Now, p.Life), int64(s.End), s.Epoch
		t.Person = q.person
		q.tok, q.has, q.shares = t, true, true
		r.setCookie(q)
		r.locate(q)
		r.servePass(q)
	}
}

// enroll gives a newcomer a place at the end of the line, or a person the one that it has.
func (r *Room) enroll(q *visitRequest, hold time.Duration) (counter.PlaceInfo, slot.ClaimReply, error) {
	ctx, waited := q.r.Context(), r.boot()-q.came
	if q.person == (persons.ID{}) {
		p, err := r.counter.Join(ctx, q.lane, hold, waited)
		return p, slot.ClaimReply{}, err
	}
	x := q.personJoin()
	x.Hold, x.Waited, x.Find = hold, waited, false
	return r.people.JoinPerson(ctx, x)
}

// unproven answers a newcomer who does not show who it is, if the room needs to know, and one whose
// cookie names a person: the person may be inside with another device.
func (r *Room) unproven(q *visitRequest) (done bool) {
	switch {
	case q.shares: // its session has just ended here, and the counter does not know yet
		r.wait(q, &counter.PlaceInfo{PollAfter: time.Second}, StateWaiting)
		return true
	case q.proven:
		return false
	case r.findPerson(q):
		return true
	}
	if q.person = (persons.ID{}); q.needsID {
		r.signIn(q)
	}
	return q.needsID
}

// signIn answers a visitor whom the site does not know, in a room that requires it.
func (r *Room) signIn(q *visitRequest) {
	switch to := q.signInURL(StateSignIn); {
	case !q.needsID: // its invitation was used: it comes as without one
		q.person = persons.ID{}
		r.serveNewcomer(q)
	case q.unsure:
		r.wait(q, &counter.PlaceInfo{PollAfter: unreachableRetry}, StateWaiting)
	case q.refuses():
	case q.peek: // the page loads the address again
		r.wait(q, &counter.PlaceInfo{}, StateCalled)
	case to != "" && Navigates(q.r) && !wire.PrefersJSON(q.r.Header):
		q.redirect(to)
	default:
		r.wait(q, &counter.PlaceInfo{PollAfter: q.f.cfg.PollMax}, StateSignIn)
	}
}

// signInURL returns where a visitor in a state signs in, or shows an invitation before its turn.
func (q *visitRequest) signInURL(s State) string {
	if s != StateSignIn && (q.proven || !q.strict) {
		return ""
	}
	back := "/" + strings.TrimLeft(q.r.URL.RequestURI(), `/\`) // not to another host
	return strings.NewReplacer("{url}", url.QueryEscape(back), "{own}", q.at.OwnURL,
		"{reason}", map[bool]string{true: "used"}[q.proven]).Replace(q.f.cfg.Identity.SignIn)
}
