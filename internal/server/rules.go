package server

import (
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide"
	"github.com/headgate/headgate/internal/rules"
)

// roomRules are the rules of a room as the room asks them. They never change.
type roomRules struct {
	set      *rules.Set
	secure   func(*http.Request) bool
	crawlers *rules.Crawlers // nil: crawlers are visitors like others
	anyCase  bool            // the origin may not tell the cases of a path apart
}

// rulesOf compiles the rules of a room, nil if it has none, and says which lanes they lead into.
func (s *Server) rulesOf(all *config.Config, c *config.Room) (headgate.Rules, []headgate.Lane, error) {
	if len(c.Rules) == 0 && !c.CrawlerBypass {
		return nil, nil, nil
	}
	var list []rules.Rule
	for i := range c.Rules {
		r, err := c.Rules[i].Rule()
		if err != nil {
			return nil, nil, err
		}
		list = append(list, r)
	}
	set, err := rules.New(list, rules.Env{Lists: all.RuleLists(), Crawlers: s.crawlers})
	if err != nil {
		return nil, nil, err
	}
	r := &roomRules{set: set, secure: secure(all.TrustedProxies, config.CookieSecureAuto),
		anyCase: !c.PathCaseSensitive && set.ComparesPaths()}
	if c.CrawlerBypass {
		r.crawlers = s.crawlers
	}
	return r, set.Lanes(), nil
}

// Match implements headgate.Rules. A crawler passes by unless it is denied. Where the origin may take
// /Admin for /admin, the stricter action of the two counts: it may as well tell them apart.
func (r *roomRules) Match(q headgate.RuleRequest) headgate.RuleAction {
	asked := rules.Request{Request: q.Request, Path: q.Path, From: q.From, Secure: r.secure(q.Request)}
	act := r.action(q, r.set.Match(asked))
	if r.anyCase {
		act = decide.Stricter(act, r.action(q, r.set.MatchAnyCase(asked)), r.set.Lanes())
	}
	return act
}

func (r *roomRules) action(q headgate.RuleRequest, v rules.Verdict) headgate.RuleAction {
	switch {
	case v.Action == rules.Bypass:
		return headgate.RuleBypass
	case v.Action == rules.Deny:
		return headgate.RuleDeny
	case r.crawlers != nil && r.crawlers.Verified(q.From, q.UserAgent()):
		return headgate.RuleCrawler
	case v.Action == rules.Lane:
		return headgate.RuleLane + headgate.RuleAction(v.Lane)
	}
	return headgate.RuleNone
}

// sameLists tells whether what expressions ask for in $name is the same.
func sameLists(a, b *config.Config) bool {
	return slices.EqualFunc(a.Lists, b.Lists, func(x, y config.List) bool {
		return x.Name == y.Name && slices.Equal(x.Addresses, y.Addresses) && slices.Equal(x.Texts, y.Texts)
	})
}

// rules tells what the rules of a room have decided.
func (c *collector) rules(ch chan<- prometheus.Metric, st *headgate.Status) {
	d := prometheus.NewDesc("headgate_rules_total", "Requests that rules have decided on.",
		[]string{"room", "action"}, nil)
	t := &st.Totals
	for action, n := range map[string]int64{
		"bypass": t.Bypassed, "crawler": t.Crawlers, "deny": t.Denied, "lane": t.SentToLane,
	} {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), st.Name, action)
	}
}

// lanes tells of the lines beside the ordinary one of a room.
func (c *collector) lanes(ch chan<- prometheus.Metric, st *headgate.Status) {
	labels := []string{"room", "lane"}
	say := func(name, help string, kind prometheus.ValueType, n int64, lane string) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, labels, nil), kind, float64(n),
			st.Name, lane)
	}
	for _, x := range st.Lanes {
		say("headgate_lane_waiting", "Visitors in a lane, those called included.", prometheus.GaugeValue,
			x.Waiting, x.Name)
		say("headgate_lane_calls_total", "Calls of a lane since the host took over.",
			prometheus.CounterValue, x.Calls, x.Name)
	}
}
