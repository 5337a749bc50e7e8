package headgate

import (
	"cmp"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/challenge"
	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/decide"
	"github.com/headgate/headgate/internal/exclude"
	"github.com/headgate/headgate/internal/paths"
	"github.com/headgate/headgate/internal/persons"
	"github.com/headgate/headgate/internal/sessions"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/ticket"
	"github.com/headgate/headgate/internal/wire"
)

// Rules are applied to each request before the room handles it.
type Rules interface {
	// Match returns the action of the first rule that matches. It must not block or keep r.
	Match(r RuleRequest) RuleAction
}

// A RuleRequest is what rules can check of a request.
type RuleRequest struct {
	*http.Request
	Path string     // one reading of the path: Match is called for each reading
	From netip.Addr // address of the visitor, behind trusted proxies
}

// A RuleAction is what happens to a request.
type RuleAction uint8

// Actions of rules. In shadow mode a denied request is only counted.
const (
	RuleNone      RuleAction = iota // handled as any other request
	RuleBypass                      // passes uncounted, in every state of the room
	RuleCrawler                     // a verified crawler: as RuleBypass
	RuleDeny                        // rejected
	RuleChallenge                   // newcomers have a challenge, if RoomConfig.Challenge has any
	RuleLane                        // visitors wait in RoomConfig.Lanes[0]; RuleLane + 1: in Lanes[1]
	ruleActions   = RuleLane + 1
)

// ruled carries out the action of a rule, and reports whether the request is answered.
func (r *Room) ruled(q *visitRequest) bool {
	cfg, act := &q.f.cfg, RuleAction(q.does.Act)
	r.counts.ruled[min(act, RuleLane)].Add(1)
	switch {
	case act >= RuleLane:
		if i := int(act - RuleLane); i < len(q.f.lanes) {
			q.lane = q.f.lanes[i].ID()
		}
		return false
	case act == RuleChallenge, act == RuleDeny && cfg.Shadow: // join asks for the challenge
		return false
	case act == RuleDeny:
		r.deny(q)
	default:
		r.passBy(q)
	}
	return true
}

// deny rejects a request. Browsers that open a page get a page; clients that prefer JSON get a
// problem document (RFC 9457).
func (r *Room) deny(q *visitRequest) {
	wire.BoundBody(q.w, q.r)
	h, kind, body := q.w.Header(), textType, wire.Denied+"\n"
	switch {
	case wire.PrefersJSON(q.r.Header) || q.peek:
		kind, body = []string{"application/problem+json"}, wire.DeniedJSON
	case Navigates(q.r):
		kind, body = htmlType, r.page(q, &View{Room: q.f.cfg.Title, State: StateDenied,
			RoomPath: q.at.Path, AcceptLanguage: q.r.Header.Get("Accept-Language"),
			AcceptEncoding: q.r.Header.Get("Accept-Encoding")}).String()
	}
	h["Content-Type"], h["Cache-Control"], h["Vary"] = kind, noStore, vary
	h["X-Robots-Tag"], h[StateHeader] = noIndex, []string{string(StateDenied)}
	q.w.WriteHeader(http.StatusForbidden)
	io.WriteString(q.w, body)
}

// serveExcluded lets a preflight or an excluded request through. A proxy that asks does not let
// preflights through: it would forward cookies and a body, and return the origin's page.
func (r *Room) serveExcluded(q *visitRequest, preflight bool) {
	if preflight && !q.does.Excluded && q.way != forwards {
		if !q.refuses() {
			wire.WriteShort(q.w, q.r, http.StatusServiceUnavailable, textType, []byte(
				"headgate forwards preflights itself. Let the proxy send OPTIONS requests to listen.\n"))
		}
		return
	}
	if preflight {
		q.w, q.r = wire.Bare(q.w, q.r)
	}
	r.counts.excluded.Add(1)
	r.passBy(q)
}

// passBy lets a request through that the configuration excludes from counting. It belongs to no session.
func (r *Room) passBy(q *visitRequest) {
	x, from := &q.f.cfg.Exclude, q.f.cfg.ClientAddr(q.r)
	if !r.flights.Enter(from, cmp.Or(x.MaxInFlight, exclude.MaxInFlight),
		cmp.Or(x.MaxPerAddr, exclude.MaxPerAddr)) {
		r.counts.crowded.Add(1)
		q.w.Header().Set("Retry-After", "1")
		wire.WriteShort(q.w, q.r, http.StatusServiceUnavailable, textType,
			[]byte("Too many requests like this one are under way. Try again in a second.\n"))
		return
	}
	defer r.flights.Leave(from)
	q.r = wire.WithoutOverrides(q.r)
	if !x.Upgrade { // traffic inside a tunnel is neither read nor counted
		q.r = wire.WithoutUpgrade(q.r)
	}
	r.pass(q)
}

// serveHead answers a HEAD request of a client that is not inside, such as a monitor. It takes
// neither a slot nor a place, and shows whether the room admits newcomers.
func (r *Room) serveHead(q *visitRequest) {
	cfg := &q.f.cfg
	open := r.lets.Get(r.boot(), func() bool {
		s := r.counter.State(r.worker.opened())
		in := s.InForce(cfg.TotalActiveUsers, cfg.NewUsersPerMinute)
		return cfg.Method == MethodPassthrough || s.Waiting == 0 && s.Active < in.Active && s.New < in.New
	})
	cookies := q.way != forwards && q.r.Header["Cookie"] != nil // only headgate removes them
	if why := r.whyWaiting(nil); !cfg.Shadow && (!open || why != StateWaiting || cookies) {
		r.wait(q, &counter.PlaceInfo{PollAfter: cfg.PollMax}, why)
		return
	}
	q.w, q.r = wire.Bare(q.w, q.r)
	r.counts.excluded.Add(1)
	r.passBy(q)
}

// decide makes the decision for all readings of a request's path, because the origin may use any of them. If
// the readings lead to different decisions, decide answers the request, unless the room holds nobody.
func (r *Room) decide(q *visitRequest, l *live) bool {
	p, lenient := paths.Of(q.r.URL), q.f.cfg.AllowAmbiguousPaths || q.f.cfg.Shadow || l.suspended
	refused := p.Malformed() || p.Excessive()
	for i := 0; i < p.Len() && !refused; i++ {
		if d := q.decideOn(p.At(i), l); i == 0 {
			q.does = d
		} else if d != q.does {
			q.does, refused = d.Strictest(q.does, q.f.lanes), !lenient
		}
	}
	if refused {
		p.Refuse(q.w, q.r)
		return false
	}
	q.at = q.f.places.At(q.r.Host, p.Clean())
	return true
}

func (q *visitRequest) decideOn(path string, l *live) (d decide.Decision) {
	f := q.f
	_, d.In = f.places.Match(paths.Hostname(q.r.Host), path)
	if own, ok := strings.CutPrefix(path, f.places.At(q.r.Host, path).Own); ok {
		d.Own = own
	}
	if d.Own == "served" { // the same for all visitors
		return d
	}
	d.Grace = f.cfg.Grace.For > 0 && f.grace.Match(q.r, path, f.cfg.ClientAddr)
	if f.cfg.Rules != nil && !l.suspended {
		d.Act = decide.Action(f.cfg.Rules.Match(RuleRequest{q.r, path, f.cfg.ClientAddr(q.r)}))
		if method := strings.ToUpper(q.r.Method); method != q.r.Method { // some origins ignore its case
			r := *q.r
			r.Method = method
			other := f.cfg.Rules.Match(RuleRequest{&r, path, f.cfg.ClientAddr(q.r)})
			d.Act = decide.Stricter(d.Act, decide.Action(other), f.lanes)
		}
	}
	d.Excluded = !l.suspended && f.exclude.Match(q.r, path, f.cfg.ClientAddr)
	return d
}

// overLimit counts a newcomer, once for each request, and reports whether its network has sent too many.
func (r *Room) overLimit(q *visitRequest) bool {
	if q.asked {
		return q.above
	}
	over, alone := q.f.joins.Over(q.f.cfg.ClientAddr(q.r), r.boot())
	if alone {
		q.f.cfg.Log.Warn("nearly all newcomers come from one address", "room", q.f.cfg.Name, "hint",
			"if it is that of a proxy, set trusted_proxies: else all its visitors count as one network")
	}
	q.asked, q.above = true, over
	return over
}

// poll polls with the visitor's ticket. Without a solution of its challenge the ticket stays provisional
// while others wait, and lapses. The token of a third party is not spent on one that has lapsed, nor on the
// question of a proxy that relays no answers: it sends the request to Handler, and would not wait so long.
func (r *Room) poll(q *visitRequest) (p counter.PlaceInfo, err error) {
	t, c := &q.tok, (*challenge.Config)(&q.f.cfg.Challenge)
	x, was := counter.TicketPoll{Life: t.Life, Number: t.ID, Key: t.Key}, *t
	comes := q.way != checks && q.r.Header.Get(challenge.Header) != ""
	open := t.Work > 0 && c.Kind != "" // the challenge is not solved
	if x.Unproven = open && c.On != challenge.Draw; open && !t.Refused {
		proven := !c.Remote()
		if !proven && comes {
			p, err = q.counter.PollAs(q.r.Context(), x)
			proven = err == nil && (p.Status == slot.TicketProvisional || c.On != "" && p.Position > 0)
		}
		proven = proven && r.solves(q)
		open, x.Unproven = !proven, !proven && c.On != challenge.Draw
	}
	fresh := t.Refresh(q.f.cfg.Wall(), max(q.f.cfg.Hold, q.f.cfg.HoldPhone)) && (c.Endless || t.Refused)
	x.Refused, x.First = t.Refused, cmp.Or(t.FirstIn(t.Life), t.First)
	p, err = q.counter.PollAs(q.r.Context(), x)
	held := p.Position > 0 && p.Status != slot.TicketProvisional
	switch out := p.Number >= counter.RoamerBit; { // out: an operator has released it
	case err != nil, t.Work == 0 && (!t.Refused || q.person == persons.ID{}):
	case out && held:
		t.Refuse(true)
	case t.Refused && !out && (comes || q.person != (persons.ID{})): // with another ticket it counts
		p.Status = slot.TicketGone
	case !t.Refused && (held && !(open && c.On != "") || p.Status == slot.TicketUsed):
		t.Work, t.First = 0, 0
	}
	r.weigh(q, &p)
	held = held || t.Refused && p.Status != slot.TicketUsed // else the cookie might replace the pass
	if held && (fresh && p.Status == slot.TicketWaiting || *t != was) && q.does.Own != "here.gif" {
		r.setCookie(q)
	}
	return p, err
}

// solves reports whether the request has the solution of the challenge of its ticket.
func (r *Room) solves(q *visitRequest) (proven bool) {
	proven, q.busy = r.gate.Solves(q.r, (*challenge.Config)(&q.f.cfg.Challenge), q.f.cfg.Name, &q.tok,
		q.f.cfg.Wall, func() bool {
			over, _ := q.f.solutions.Over(q.f.cfg.ClientAddr(q.r), r.boot())
			return !over
		})
	return proven
}

// untilDraw returns how long it is until places are drawn.
func (r *Room) untilDraw(f *face) time.Duration {
	return challenge.UntilDraw(r.live.Load().prequeue, f.cfg.Event.Shuffle, f.cfg.Method == MethodRandom,
		f.cfg.Event.StartsAt.Sub(f.cfg.Wall()))
}

// weigh tells the host of a draw from which network a visitor comes. If that fails, the next poll does.
// The site vouches for people.
func (r *Room) weigh(q *visitRequest, p *counter.PlaceInfo) {
	if !p.AsksNetwork || q.person != (persons.ID{}) {
		return
	}
	c, n := (*challenge.Config)(&q.f.cfg.Challenge), q.f.joins.Network(q.f.cfg.ClientAddr(q.r), p.Life)
	if c.Lacks(&q.tok) {
		n = slot.NoProof
	}
	if n > 0 || c.On == challenge.Draw {
		_ = q.counter.SetNetwork(q.r.Context(), p.Life, p.Number, n)
	}
}

// slack is the extra time that a request gets beyond its need, so that not every request has to
// extend the session.
func (g *Grace) slack() time.Duration { return min(g.For/10, 30*time.Second) }

// longest returns the longest time between a visitor's request and the end of the session.
func (c *RoomConfig) longest() time.Duration {
	return max(c.SessionDuration, c.Grace.For+c.Grace.slack())
}

// rules returns the rules for the length of sessions.
func (c *RoomConfig) rules(par *slot.Params) *sessions.Rules {
	return &sessions.Rules{Session: c.SessionDuration, Longest: c.longest(),
		Grid: par.Grid(c.limits()[0]), Fixed: c.FixedSession}
}

// restOf returns how long the session of a pass lasts from the visitor's current request.
func (c *RoomConfig) restOf(t *ticket.Token, now slot.Time) time.Duration {
	return t.Rest(c.SessionDuration, probation, c.FixedSession, int64(now))
}

// grace extends a session whose request is on a path of Grace if the session might end too soon. It
// requests the later end from the counter, because the end must be in the record. While the counter
// does not answer, the end stays as it is.
func (r *Room) grace(q *visitRequest, id slot.SessionID, last slot.Time) slot.Time {
	g, w := &q.f.cfg.Grace, q.worker
	if !q.does.Grace {
		return last
	}
	lo, _, _, ok := w.clock.Bounds()
	need := lo.Add(g.For)
	want := need.Add(g.slack())
	if q.f.cfg.FixedSession {
		most := slot.Time(q.tok.End).Add(g.For - time.Duration(q.tok.Joined)*time.Millisecond)
		need, want = min(need, most), min(want, most)
	}
	hard := slot.Time(q.tok.Hard)
	if hard > 0 {
		need, want = min(need, hard), min(want, hard)
	}
	// An end lies on the grid: an extension shorter than one step has no effect.
	if !ok || need-last <= w.rules.Load().Grid || w.cutOff() {
		return last
	}
	got, err := w.ask(q.r.Context(), id, last, want.Sub(lo), hard)
	if err != nil || got <= last {
		return last
	}
	w.visits.Learn(id, got)
	return got
}
