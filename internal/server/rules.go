package server

import (
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide"
	"github.com/headgate/headgate/internal/rules"
)

// rulesOf compiles the rules of a room, nil if it has none, and returns the lanes that they use.
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
	var lanes []headgate.Lane
	for _, x := range set.Lanes() {
		lanes = append(lanes, headgate.Lane(x))
	}
	return r, lanes, nil
}

// Match implements headgate.Rules. A verified crawler passes unless a rule denies it. Where the
// origin may treat /Admin as /admin, the stricter action of both spellings counts, because it is
// not known whether the origin does.
func (r *roomRules) Match(q headgate.RuleRequest) headgate.RuleAction {
	asked := rules.Request{Request: q.Request, Path: q.Path, From: q.From, Secure: r.secure(q.Request)}
	act := r.action(q, r.set.Match(asked))
	if r.anyCase {
		other := r.action(q, r.set.MatchAnyCase(asked))
		act = headgate.RuleAction(decide.Stricter(decide.Action(act), decide.Action(other), r.set.Lanes()))
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
	case v.Action == rules.Challenge:
		return headgate.RuleChallenge
	}
	return headgate.RuleNone
}

// sameLists reports whether the lists that expressions refer to as $name are the same.
func sameLists(a, b *config.Config) bool {
	return slices.EqualFunc(a.Lists, b.Lists, func(x, y config.List) bool {
		return x.Name == y.Name && slices.Equal(x.Addresses, y.Addresses) && slices.Equal(x.Texts, y.Texts)
	})
}
