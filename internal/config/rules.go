package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/challenge"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/slot"
)

func readRules(dst *[]Rule) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		for key, item := range d.items(key, n) {
			r := Rule{Enabled: true}
			d.mapping(key, item, ruleFields(&r))
			*dst = append(*dst, r)
		}
	}
}

func ruleFields(r *Rule) []field {
	return []field{
		required("action", "bypass", word(&r.Action, "bypass", "deny", "lane", actionChallenge)),
		required("expression", `starts_with(http.request.uri.path, "/webhooks/")`,
			text(&r.Expression, anyText)),
		one("description", text(&r.Description, anyText)),
		one("lane", text(&r.Lane, anyText)),
		one("share", whole(&r.Share, 1, 89)),
		one("enabled", truth(&r.Enabled)),
	}
}

func anyText(s string) (string, *mistake) { return s, nil }

func readLists(c *Config) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		for key, item := range d.items(key, n) {
			var l List
			d.mapping(key, item, listFields(&l))
			if item.Kind == yaml.MappingNode && (l.Addresses == nil) == (l.Texts == nil) &&
				d.good(key+".addresses", key+".texts") {
				d.fault(key, item, wrong("write addresses: for addresses and networks, or texts: for texts",
					"needs addresses or texts, and not both"))
			}
			c.Lists = append(c.Lists, l)
		}
	}
}

func listFields(l *List) []field {
	return []field{
		required("name", "office", raw(&l.Name, cleanListName)),
		list("addresses", &l.Addresses, anyText),
		list("texts", &l.Texts, anyText),
	}
}

func cleanListName(s string) (string, *mistake) {
	if rules.CheckListName(s) != nil {
		return "", wrong("take 1 to 50 of a-z, 0-9 and _", "%s is no name of a list", quote(s))
	}
	return s, nil
}

func readCrawlers(c *Config) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		for key, item := range d.items(key, n) {
			var x Crawler
			d.mapping(key, item, crawlerFields(&x))
			c.Crawlers = append(c.Crawlers, x)
		}
	}
}

func crawlerFields(x *Crawler) []field {
	return []field{
		required("name", "mybot", nameText(&x.Name)),
		{name: "agents", read: list("", &x.Agents, anyText).read, example: "[MyBot]"},
		{name: "domains", read: list("", &x.Domains, anyText).read, example: "[bot.example.com]"},
	}
}

// checkRules compiles all lists, crawlers and rules, so that their errors are reported at load
// time.
func checkRules(d *decoder, c *Config) {
	c.lists = map[string]*rules.List{}
	for i := range c.Lists {
		l, k := &c.Lists[i], fmt.Sprintf("lists[%d]", i)
		if !d.good(k, k+".name", k+".addresses", k+".texts") || l.Name == "" {
			continue
		}
		if c.lists[l.Name] != nil {
			d.clash(wrong("give each list a name of its own", "%s is the name of another list",
				quote(l.Name)), k+".name")
			continue
		}
		compiled, err := l.compile()
		if err != nil {
			d.clash(wrong("write 192.0.2.1, 192.0.2.0/24 or 192.0.2.3..192.0.2.7", "%s", firstLine(err)),
				k+".addresses", k+".texts")
		}
		c.lists[l.Name] = compiled
	}
	env := rules.Env{Lists: c.lists}
	var err error
	if env.Crawlers, err = c.NewCrawlers(); err != nil {
		if d.good("crawlers") {
			d.clash(wrong("docs/rules.md says how crawlers are verified", "%s", firstLine(err)), "crawlers")
		}
		env.Crawlers, _ = rules.NewCrawlers(nil, nil)
	}
	for i := range c.Rooms {
		checkRoomRules(d, &c.Rooms[i], fmt.Sprintf("rooms[%d].rules", i), env)
	}
}

// checkRoomRules compiles each rule by itself, and then all rules together.
func checkRoomRules(d *decoder, r *Room, key string, env rules.Env) {
	all, bad := make([]rules.Rule, 0, len(r.Rules)), false
	for i := range r.Rules {
		k := fmt.Sprintf("%s[%d]", key, i)
		x, err := r.Rules[i].Rule()
		if err != nil || !d.good(k, k+".action", k+".expression") {
			bad = true
			continue
		}
		if _, err := rules.New([]rules.Rule{x}, env); err != nil {
			bad = true
			d.ruleFault(err, k)
		}
		all = append(all, x)
	}
	if bad {
		return
	}
	set, err := rules.New(all, env)
	if err != nil {
		d.clash(wrong("docs/rules.md has the bounds", "%s", firstLine(err)), key)
		return
	}
	if r.ChallengesByRules() && r.Challenge.Asked() == "" {
		d.clash(wrong("add challenge: {kind: work} to the room, or another kind",
			"a rule has action: challenge, and the room has no challenge"), key)
	}
	if r.Challenge.On == challenge.Draw && r.JoinLimit.DrawWeight == 0 {
		d.clash(wrong("set join_limit.draw_weight to 1 or more, or write on: join",
			"a challenge before the draw needs a weight for those who do not solve it"),
			strings.TrimSuffix(key, "rules")+"challenge.on")
	}
	groups := r.Identity.GroupLanes()
	for _, x := range set.Lanes() {
		if slices.ContainsFunc(groups, func(g slot.Lane) bool { return g.Name == x.Name }) {
			d.clash(wrong("give the lane another name: only people of a group wait in its lane",
				"the lane %s of a rule is a group of identity", quote(x.Name)), key)
			return
		}
	}
	own := append(groups, set.Lanes()...)
	named := !slices.ContainsFunc(groups, func(g slot.Lane) bool { return g.Name == "" })
	if err := slot.CheckLanes(own); err != nil && len(groups) > 0 && named {
		d.clash(wrong("groups and rules have three lanes together, with 89 of a hundred calls", "%s", firstLine(err)),
			strings.TrimSuffix(key, "rules")+"identity.groups")
		return
	}
	if len(own) > 0 && r.Challenge.Asked() != "" {
		taken := challenge.Lane().Name
		if slices.ContainsFunc(own, func(x slot.Lane) bool { return x.Name == taken }) {
			d.clash(wrong("give the lane of the rule another name", "the challenge has a lane %q of its own", taken), key)
			return
		}
		if err := slot.CheckLanes(append(slices.Clone(own), challenge.Lane())); err != nil {
			d.clash(wrong("a challenge adds the lane unsolved with 10 calls of a hundred: leave groups and rules two lanes, with 79 calls "+
				"together", "%s", firstLine(err)), key)
		}
	}
}

// ruleFault records an error of a rule at the key that caused it. Values that could not be read
// have been reported already.
func (d *decoder) ruleFault(err error, k string) {
	e, field := errors.AsType[*rules.FieldError](err)
	if field {
		if key := k + "." + e.Field; d.good(key) {
			_, at := d.blame(key, k)
			d.faultAt(key, at, wrong("docs/rules.md says how rules are written", "%s", e.Problem))
		}
	}
	if _, ok := errors.AsType[*rules.Error](err); ok || !field {
		d.clash(ruleMistake(err), k+".expression", k)
	}
}

// ruleMistake describes an error of a rule. For an expression it includes the position in it.
func ruleMistake(err error) *mistake {
	e, ok := errors.AsType[*rules.Error](err)
	if !ok {
		return wrong("docs/rules.md says how rules are written", "%s",
			strings.TrimPrefix(firstLine(err), "rule 1: "))
	}
	hint := e.Hint
	if hint == "" {
		hint = "docs/rules.md has the language"
	}
	at := fmt.Sprintf("at character %d", e.Column)
	if e.Line > 1 {
		at = fmt.Sprintf("at line %d, character %d", e.Line, e.Column)
	}
	return wrong(hint, "%s: %s", at, e.Problem)
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
