package headgate

import (
	"io"
	"net/http"
	"net/netip"

	"github.com/headgate/headgate/internal/decide"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/wire"
)

// Rules are asked about each request before the room is.
type Rules interface {
	// Match says what the first rule that matches wants. It must not block, nor keep what it
	// is handed.
	Match(r RuleRequest) RuleAction
}

// A RuleRequest is what rules are asked about.
type RuleRequest struct {
	*http.Request
	Path string     // a reading of the path: the rules are asked about each of them
	From netip.Addr // of the visitor, behind proxies that are trusted
}

// A RuleAction is what becomes of a request.
type RuleAction = decide.Action

// The actions of rules. In shadow mode nobody is refused, only counted.
const (
	RuleNone    = decide.None    // as any other
	RuleBypass  = decide.Bypass  // it passes and is not counted, whatever state the room is in
	RuleCrawler = decide.Crawler // a verified crawler: the same
	RuleDeny    = decide.Deny    // it is refused
	RuleLane    = decide.Lane    // who must wait waits in RoomConfig.Lanes[0]; in [1] with RuleLane + 1
	ruleActions = decide.Lane + 1
)

// A Lane is a line beside the ordinary one: of any hundred calls it gets at most Share while
// somebody who is there waits in the ordinary one. Who joined it stays there.
type Lane = slot.Lane

// ruled does what a rule wants, and reports whether the request is answered.
func (r *Room) ruled(q *visitRequest) bool {
	cfg, act := &q.f.cfg, q.does.Act
	r.counts.ruled[min(act, RuleLane)].Add(1)
	switch {
	case act >= RuleLane:
		if i := int(act - RuleLane); i < len(cfg.Lanes) {
			q.lane = cfg.Lanes[i].ID()
		}
		return false
	case act != RuleDeny:
		r.passBy(q)
	case cfg.Shadow:
		return false
	default:
		r.deny(q)
	}
	return true
}

// The answers to who is refused, but for the page.
const (
	denied     = "A rule of this site refuses this request."
	deniedJSON = `{"type":"about:blank","title":"Forbidden","status":403,"detail":"` + denied + "\"}\n"
)

// deny refuses a request: with a page to who opens one, in JSON to who prefers it (RFC 9457).
func (r *Room) deny(q *visitRequest) {
	wire.BoundBody(q.w, q.r)
	h, kind, body := q.w.Header(), textType, denied+"\n"
	switch {
	case wire.PrefersJSON(q.r.Header) || q.peek:
		kind, body = []string{"application/problem+json"}, deniedJSON
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
