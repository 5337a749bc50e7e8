package headgate

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/headgate/headgate/internal/cors"
	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/decide"
	"github.com/headgate/headgate/internal/exclude"
	"github.com/headgate/headgate/internal/paths"
	"github.com/headgate/headgate/internal/route"
	"github.com/headgate/headgate/internal/sessions"
	"github.com/headgate/headgate/internal/wire"
)

// A Route is an additional location of a room: a host ("" is any host) and a folder with everything
// below it.
type Route = route.Route

// Exclude selects requests that pass without being counted, such as payment webhooks. The zero
// value is the defaults.
type Exclude = exclude.Requests

// A JoinLimit limits how many newcomers one network may send in a window while others wait.
// Newcomers above the limit wait in slot.NetworkLane. The next wider network, which contains 256 or
// 65,536 such networks, may send twice as many. Requests from this machine's own address are not
// limited.
type JoinLimit = exclude.JoinLimit

// PassSharing configures what happens when a pass is used from more than a number of networks, by
// default 3: the session is counted ("mark", the default), the request is handled as a newcomer's
// ("wait"), or the session ends ("end").
type PassSharing = sessions.Sharing

// CORS configures which pages of other origins may send which requests. The room then answers
// preflights itself, in every state, and lets these pages read its own answers. It does not change
// the answers of the handler behind it. Methods defaults to GET, HEAD and POST, and MaxAge to 5 s.
type CORS = cors.Rules

// passBy lets a request through that the configuration excludes from counting. It belongs to no
// session.
func (r *Room) passBy(q *visitRequest) {
	x, from := &q.f.cfg.Exclude, q.f.cfg.ClientAddr(q.r)
	if !r.flights.Enter(from, cmp.Or(x.MaxInFlight, exclude.MaxInFlight),
		cmp.Or(x.MaxPerAddr, exclude.MaxPerAddr)) {
		r.counts.crowded.Add(1)
		q.w.Header().Set("Retry-After", "1")
		wire.WriteShort(q.w, q.r, http.StatusServiceUnavailable, textType, []byte("Too many requests like this one are under way. Try again in a second.\n"))
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
		return cfg.Method == MethodPassthrough || s.Waiting == 0 && s.Active < cfg.TotalActiveUsers &&
			s.New < cfg.NewUsersPerMinute
	})
	if why := r.whyWaiting(); !cfg.Shadow && (!open || why != StateWaiting) {
		r.wait(q, &counter.PlaceInfo{PollAfter: cfg.PollMax}, why)
		return
	}
	q.w, q.r = wire.Bare(q.w, q.r)
	r.counts.excluded.Add(1)
	r.passBy(q)
}

// decide makes the decision for all readings of a request's path, because the origin may use any of
// them. If the readings lead to different decisions, decide answers the request, unless the room
// holds nobody.
func (r *Room) decide(q *visitRequest, l *live) bool {
	p, lenient := paths.Of(q.r.URL), q.f.cfg.AllowAmbiguousPaths || q.f.cfg.Shadow || l.suspended
	refused := p.Malformed() || p.Excessive()
	for i := 0; i < p.Len() && !refused; i++ {
		if d := q.decideOn(p.At(i), l); i == 0 {
			q.does = d
		} else if d != q.does {
			q.does, refused = d.Strictest(q.does, q.f.cfg.Lanes), !lenient
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
		d.Act = f.cfg.Rules.Match(RuleRequest{q.r, path, f.cfg.ClientAddr(q.r)})
		if method := strings.ToUpper(q.r.Method); method != q.r.Method { // some origins ignore its case
			r := *q.r
			r.Method = method
			other := f.cfg.Rules.Match(RuleRequest{&r, path, f.cfg.ClientAddr(q.r)})
			d.Act = decide.Stricter(d.Act, other, f.cfg.Lanes)
		}
	}
	d.Excluded = !l.suspended && f.exclude.Match(q.r, path, f.cfg.ClientAddr)
	return d
}

// overLimit counts a newcomer, once for each request, and reports whether its network has sent too
// many.
func (r *Room) overLimit(q *visitRequest) bool {
	if q.asked {
		return q.above
	}
	over, alone := q.f.joins.Over(q.f.cfg.ClientAddr(q.r), r.boot())
	if alone {
		q.f.cfg.Log.Warn("nearly all newcomers come from one address", "room", q.f.cfg.Name,
			"hint", "if it is that of a proxy, set trusted_proxies: "+
				"else all its visitors count as one network")
	}
	q.asked, q.above = true, over
	return over
}
