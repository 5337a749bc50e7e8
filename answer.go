package headgate

import (
	"bytes"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/challenge"
	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/persons"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/ticket"
	"github.com/headgate/headgate/internal/wire"
)

// Headers of the wire contract.
const (
	// PollHeader marks the poll of the waiting page: a GET of the same address. Headgate never
	// admits it and always answers it in JSON.
	PollHeader = "Headgate-Poll"
	// StateHeader distinguishes an answer of headgate from an answer of the origin.
	StateHeader = "Headgate-State"
	// CommandHeader in an origin's answer is a command to headgate: "revoke" ends the visitor's
	// session. CloudflareCommandHeader does the same.
	CommandHeader           = "Headgate-Command"
	CloudflareCommandHeader = "Cf-Waiting-Room-Command"
)

// ticketLife is how long the browser keeps a ticket's cookie. The room holds the place itself.
const ticketLife = 24 * time.Hour

// openingPoll spreads the polls of the visitors who wait for an opening: 5,000 polls a second. Chosen.
const openingPoll = 200 * time.Microsecond

// Navigates reports whether the request opens a page, so that a page may be the answer.
func Navigates(r *http.Request) bool { return wire.Navigates(r) }

// newCookie makes the room's cookie. age is in seconds; a negative age deletes the cookie. The __Host-
// prefix requires Secure.
func (f *face) newCookie(r *http.Request, value string, age int) *http.Cookie {
	return wire.Partition(&http.Cookie{
		Name: f.cookieNames(r)[0], Value: value, Path: f.places.CookiePath(), Domain: f.cfg.CookieDomain,
		MaxAge: age, HttpOnly: true, Secure: f.cfg.Secure(r), SameSite: f.cfg.SameSite,
	})
}

// setCookie seals the request's token into the visitor's cookie.
func (r *Room) setCookie(q *visitRequest) {
	age := ticketLife
	if q.tok.Kind == ticket.Pass {
		age = max(ticketLife, 2*q.f.cfg.SessionDuration) // the token's end is in counter time, not wall time
	}
	q.tok.Checked = q.f.cfg.Wall().Unix()
	var buf [ticket.MaxLen]byte
	sealed := string(r.keys.Load().Seal(buf[:0], q.f.sealName(q.r), &q.tok))
	c := q.f.newCookie(q.r, sealed, int(age.Seconds()))
	h := q.w.Header()
	h["Set-Cookie"] = append(slices.DeleteFunc(h["Set-Cookie"], func(old string) bool {
		return strings.HasPrefix(old, c.Name+"=")
	}), c.String())
}

// wait answers a request whose visitor has to wait.
func (r *Room) wait(q *visitRequest, p *counter.PlaceInfo, s State) {
	if s == StateWaiting && r.anyway(q) || q.refuses() {
		return
	}
	v := r.view(q, p, s)
	r.show(q, &v)
	wire.BoundBody(q.w, q.r)
	h := q.w.Header()
	h["Cache-Control"], h["Vary"], h["X-Robots-Tag"] = noStore, vary, noIndex
	secs := strconv.FormatInt(int64((v.PollAfter+time.Second-1)/time.Second), 10)
	both := []string{string(s), secs} // one allocation
	h[StateHeader], h["Retry-After"] = both[:1:1], both[1:]
	code := wire.WaitStatus(q.r, q.f.cfg.StatusCode)
	r.counts.waited.Add(1) // before the answer: its reader may query the count at once
	switch {
	case q.peek:
		r.waitJSON(q, &v, http.StatusOK)
	case Navigates(q.r) && !wire.PrefersJSON(q.r.Header) && (q.has || !wire.Part(q.r)):
		shown := v // a page may be any type: this copy lets v stay on the stack otherwise
		buf := r.page(q, &shown)
		h["Content-Type"] = htmlType
		if q.f.cfg.RefreshHeader && v.Refreshes() {
			h.Set("Refresh", secs)
		}
		h["Content-Length"] = []string{strconv.Itoa(buf.Len())}
		q.w.WriteHeader(code)
		q.w.Write(buf.Bytes())
		r.bufs.Put(buf)
	case wire.PrefersJSON(q.r.Header):
		r.waitJSON(q, &v, code)
	default: // a script, an image or a form must not mistake the page for its own answer
		wire.WriteWhy(q.w, code, string(s), secs)
	}
}

// page renders the waiting page for v and sets its headers.
func (r *Room) page(q *visitRequest, v *View) *bytes.Buffer {
	maps.Copy(q.w.Header(), q.f.cfg.Page.Header(v))
	buf := r.buffer()
	if err := q.f.cfg.Page.Render(buf, v); err != nil {
		q.f.cfg.Log.Error("waiting page not rendered", "room", q.f.cfg.Name, "error", err)
	}
	return buf
}

// show makes sure that no visitor ever reads a higher position than before: the cookie remembers
// the lowest one. Headgate sets a new cookie only when the position fell.
func (r *Room) show(q *visitRequest, v *View) {
	if v.Number == 0 || v.Position <= 0 {
		return
	}
	if least := int64(q.tok.Shown); least > 0 && v.Position >= least {
		v.Position, v.Ahead = least, least-1
		return
	}
	q.tok.Shown = uint32(min(v.Position, math.MaxUint32))
	r.setCookie(q)
}

// Shared header values. They are assigned to headers and never changed.
var (
	noStore  = []string{"no-store"}
	vary     = []string{"Cookie, Accept, Accept-Encoding, Accept-Language, Origin, Sec-Fetch-Mode"}
	noIndex  = []string{"noindex"}
	htmlType = []string{"text/html; charset=utf-8"}
	textType = []string{"text/plain; charset=utf-8"}
	jsonType = []string{"application/json"}
	gifType  = []string{"image/gif"}
)

func (r *Room) waitJSON(q *visitRequest, v *View, code int) {
	buf := r.buffer()
	buf.Write(v.appendJSON(buf.AvailableBuffer()))
	h := q.w.Header()
	h["Content-Type"] = jsonType
	h["Content-Length"] = []string{strconv.Itoa(buf.Len())}
	q.w.WriteHeader(code)
	q.w.Write(buf.Bytes())
	r.bufs.Put(buf)
}

// buffer returns an empty buffer. With it each answer is one write of a known length.
func (r *Room) buffer() *bytes.Buffer {
	if buf, ok := r.bufs.Get().(*bytes.Buffer); ok {
		buf.Reset()
		return buf
	}
	return new(bytes.Buffer)
}

// view returns what the answer shows the visitor.
func (r *Room) view(q *visitRequest, p *counter.PlaceInfo, s State) (v View) {
	l := r.live.Load()
	v = View{
		Room: q.f.cfg.Title, State: s, Method: string(q.f.cfg.Method),
		Position: p.Position, Ahead: p.Ahead, Waiting: p.Waiting, Served: p.Served,
		PollAfter: p.PollAfter, ServedURL: q.at.Served, LeaveURL: q.at.Leave, MoveURL: q.at.Move,
		HereURL: q.at.ConfirmPath, RoomPath: q.at.Path, Message: l.message, UpdatedAt: q.f.cfg.Wall(),
		QueueAll: l.queueAll, Full: s == StateFull, SignInURL: q.signInURL(s),
		AcceptLanguage: q.r.Header.Get("Accept-Language"),
		AcceptEncoding: q.r.Header.Get("Accept-Encoding"),
	}
	if p.ETA.Known && (s == StateWaiting || !l.holds()) {
		v.ETAKnown, v.ETA, v.ETALow, v.ETAHigh = true, p.ETA.Expect, p.ETA.Low, p.ETA.High
	}
	v.Notice, v.SlowerReason = p.Notice(q.again)
	if v.Event = r.event(&q.f.cfg); p.StartsAt > 0 {
		v.Event.StartsAt, v.Event.Prequeue = time.Unix(p.StartsAt, 0), !p.HasStarted(v.UpdatedAt)
	}
	if s == StateOpensSoon {
		if v.OpensAt = q.f.cfg.OpensAt; !l.early {
			v.OpensAt = v.Event.StartsAt
		}
		if left := v.OpensAt.Sub(v.UpdatedAt); left < v.PollAfter { // visitors see soon that it has opened
			v.PollAfter = max(0, left) + rand.N(time.Second+time.Duration(v.Waiting)*openingPoll)
		}
	}
	c := (*challenge.Config)(&q.f.cfg.Challenge)
	due := q.hasTicket() && !q.over && c.Due(&q.tok, p.Asks, r.untilDraw(q.f))
	v.Challenge = c.JSON(q.f.cfg.Name, &q.tok, due)
	if q.hasTicket() && !q.over {
		v.Number, v.JoinedPosition = q.tok.ID, int64(q.tok.Joined)
		v.Ticket = ticket.ShortID(q.tok.Life, q.tok.ID)
		if v.MoveLink, v.MoveWithin = q.link, moveWithin; q.tok.Person != (persons.ID{}) {
			v.MoveURL = "" // the place is on each device
		}
		if q.link != "" && s != StateMoveHere && s != StateMoveAgain {
			origin := wire.Origin(q.r, q.f.cfg.Secure(q.r))
			v.MoveLink = origin + q.at.Move + "?" + moveField + "=" + q.link
		}
	}
	// A visitor of a lane takes no part in the draw, one from abroad in that of another data center.
	if lane := slot.LaneIndex(v.Number) > 0; lane || r.isAbroad(q) {
		v.Event.Shuffle, v.Event.Draw = v.Event.Shuffle && !lane, ""
	}
	drawn := q.f.cfg.unordered(v.Number)
	if drawn {
		v.Position, v.Ahead, v.JoinedPosition = 0, 0, 0
	}
	if drawn || v.Event.Shuffle || len(q.f.lanes) > 0 { // ticket numbers do not show the order
		v.ServedURL = ""
	}
	if v.PollAfter <= 0 {
		v.PollAfter = q.f.cfg.PollMin
	}
	return v
}

// plainPage is the default page of a program that uses the library without a Page.
type plainPage struct{}

func (plainPage) Header(*View) http.Header {
	return http.Header{"Content-Security-Policy": {"default-src 'none'"}}
}

func (plainPage) Render(w io.Writer, v *View) error {
	return wire.WritePlainPage(w, string(v.State), v.Position, v.Ahead, v.PollAfter, v.Refreshes())
}

// served returns the document of the called tickets, the same for all waiting visitors.
func (r *Room) served() []byte {
	s, why := r.counter.State(r.worker.opened()), string(r.whyWaiting(nil))
	return wire.ServedDocument(s.Served, s.Waiting, why, r.live.Load().message, s.Rate*60)
}

// An answer watches the origin's answer to an admitted request. It executes commands to headgate
// and removes them, so that they never reach the visitor.
type answer struct {
	wire.Begun
	room   *Room   // nil: of no session
	worker *worker // of the session
	f      *face
	req    *http.Request
	tok    ticket.Token // a copy, so that the visitRequest can stay on the stack
	id     slot.SessionID
	win    slot.Time // end of the window entry of a new session
	way    way
}

// InSession reports whether the request belongs to a session.
func (a *answer) InSession() bool { return a.room != nil }

// SessionName returns the id of the request's session for the key of a limit, "" for none.
func (a *answer) SessionName() string {
	if a.room == nil {
		return ""
	}
	return a.tok.SessionName()
}

// PersonName returns the name of the session's person, "" for nobody that the site knows.
func (a *answer) PersonName() string { return a.tok.PersonName() }

// Begin executes and removes the commands.
func (a *answer) Begin() {
	h := a.Header()
	revoke := wire.TakesRevoke(h, CommandHeader)
	revoke = wire.TakesRevoke(h, CloudflareCommandHeader) || revoke
	// The window of a new user starts with the origin's answer.
	if a.room != nil && a.win > 0 && a.worker.visits.Answered(a.id) {
		if _, hi, _, ok := a.worker.clock.Bounds(); ok {
			if a.way != forwards {
				hi = hi.Add(forwarding)
			}
			a.worker.note(slot.Item{Op: slot.Answered, From: a.win, Use: hi})
		}
	}
	if a.room != nil && revoke {
		a.room.counts.revoked.Add(1)
		a.worker.visits.Revoke(a.id)
		if a.tok.Kind != 0 { // otherwise the request has no cookie
			http.SetCookie(a, a.f.newCookie(a.req, "", -1))
		}
	}
	if len(h["Set-Cookie"]) > 0 && wire.SetsCookie(h, a.f.cookieNames(a.req)[0]) {
		wire.MakePrivate(h)
	}
}
