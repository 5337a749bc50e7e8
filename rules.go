package headgate

import (
	"io"
	"net/http"
	"net/netip"

	"github.com/headgate/headgate/internal/decide"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/wire"
)

// Rules are applied to each request before the room handles it.
type Rules interface {
	// Match returns the action of the first rule that matches. It must not block, and must not keep
	// r.
	Match(r RuleRequest) RuleAction
}

// A RuleRequest is what rules can check of a request.
type RuleRequest struct {
	*http.Request
	Path string     // one reading of the path: Match is called for each reading
	From netip.Addr // address of the visitor, behind trusted proxies
}

// A RuleAction is what happens to a request.
type RuleAction = decide.Action

// Actions of rules. In shadow mode a denied request is only counted.
const (
	RuleNone    = decide.None    // handled as any other request
	RuleBypass  = decide.Bypass  // passes uncounted, in every state of the room
	RuleCrawler = decide.Crawler // a verified crawler: as RuleBypass
	RuleDeny    = decide.Deny    // rejected
	RuleLane    = decide.Lane    // visitors wait in RoomConfig.Lanes[0]; RuleLane + 1: in Lanes[1]
	ruleActions = decide.Lane + 1
)

// A Lane is a line beside the ordinary line. Of any hundred calls it gets at most Share while a
// present visitor waits in the ordinary line. A visitor who joins a lane stays in it.
type Lane = slot.Lane

// ruled carries out the action of a rule, and reports whether the request is answered.
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

// Answers to rejected requests, except the page.
const (
	denied     = "A rule of this site refuses this request."
	deniedJSON = `{"type":"about:blank","title":"Forbidden","status":403,"detail":"` + denied + "\"}\n"
)

// deny rejects a request. Browsers that open a page get a page; clients that prefer JSON get a
// problem document (RFC 9457).
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
