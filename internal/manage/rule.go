package manage

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/slot"
)

// A Rule decides what happens to the requests that match its expression.
type Rule struct {
	ID          string         `json:"id"`
	Action      string         `json:"action"`
	Expression  string         `json:"expression"`
	Description string         `json:"description"`
	Enabled     bool           `json:"enabled"`
	LastUpdated time.Time      `json:"last_updated"`
	Version     string         `json:"version"`
	Own         RuleExtensions `json:"headgate"`
}

// RuleExtensions holds the members that headgate adds to Cloudflare's rules.
type RuleExtensions struct {
	Lane  string `json:"lane"`  // the lane in which matching visitors wait
	Share int64  `json:"share"` // percentage of calls for the lane while others wait
}

// The actions of rules. Only the first is Cloudflare's.
const (
	actionBypass = "bypass_waiting_room"
	actionDeny   = "deny"
	actionLane   = "lane"

	actionChallenge = "challenge"
)

type ruleDraft struct {
	*Rule
	env      rules.Env
	position *position
}

// A position is where a rule is put. One of its three fields is set.
type position struct {
	index         *int64
	before, after *string
}

func (d *ruleDraft) fields(placed bool) []field {
	r := d.Rule
	all := []field{
		text("id", new(string), "", 64), ignored("last_updated"), ignored("version"),
		word("action", &r.Action, "", actionBypass, actionDeny, actionLane, actionChallenge).required(),
		text("expression", &r.Expression, "", 16384).required(),
		text("description", &r.Description, "", 500),
		truth("enabled", &r.Enabled, true),
		group("headgate", []field{
			text("lane", &r.Own.Lane, "", slot.MaxLaneName), whole("share", &r.Own.Share, 0, 0, slot.MaxShare),
		}, false),
	}
	if placed {
		var p position
		all = append(all, field{name: "position", std: func() {}, read: func(r *reader, at string, v any) {
			// null is not a position: as a default it would put the rule first.
			places := []field{
				maybe(&p.index, func(n *int64) field { return whole("index", n, 0, 1, mostRules) }),
				maybe(&p.before, func(s *string) field { return text("before", s, "", 64) }),
				maybe(&p.after, func(s *string) field { return text("after", s, "", 64) }),
			}
			for i := range places {
				places[i] = places[i].required()
			}
			r.object(at, v, places)
			if o, ok := v.(*object); ok && len(o.names) != 1 {
				r.wrong(at, CodeConflict, `send one of {"index": 1}, {"before": "ID"} and {"after": "ID"}`,
					"has %d members, not one", len(o.names))
			}
			d.position = &p
		}})
	}
	return all
}

// env returns what expressions may refer to.
func (b *Catalog) env() (rules.Env, error) {
	crawlers, err := b.cfg.NewCrawlers()
	return rules.Env{Lists: b.cfg.RuleLists(), Crawlers: crawlers}, err
}

// forFile converts rules to those of package config.
func forFile(all []*Rule) []config.Rule {
	var list []config.Rule
	for _, r := range all {
		if r.Action == actionLane && r.Own.Lane == "" { // off: an old rule without the name of a lane
			continue
		}
		list = append(list, config.Rule{Action: strings.TrimSuffix(r.Action, "_waiting_room"),
			Expression: r.Expression, Description: r.Description, Enabled: r.Enabled,
			Lane: r.Own.Lane, Share: int(r.Own.Share)})
	}
	return list
}

// read reads a rule at a position of a body.
func (d *ruleDraft) read(r *reader, at string, v any, placed bool) {
	before := len(r.faults)
	r.object(at, v, d.fields(placed))
	if len(r.faults) == before {
		d.check(r, at)
	}
}

// check checks what a rule says, after its members were read.
func (d *ruleDraft) check(r *reader, at string) {
	var wrong *rules.Error
	_, err := rules.Compile(d.Expression, d.env)
	switch {
	case errors.As(err, &wrong):
		r.wrong(at+"/expression", CodeValue, wrong.Hint, "line %d, column %d: %s", wrong.Line, wrong.Column,
			wrong.Problem)
	case err != nil:
		r.wrong(at+"/expression", CodeValue, "docs/rules.md describes the language", "%s", err.Error())
	}
	switch {
	case d.Action != actionLane && d.Own != RuleExtensions{}:
		r.wrong(at+"/headgate", CodeConflict, "leave it out", "only an action lane has a name and a share")
	case d.Action == actionLane && d.Own.Share == 0:
		r.wrong(at+"/headgate/share", CodeRequired, "write a number from 1 to 89: the share of 100 calls", "a lane needs a share")
	case d.Action == actionLane && d.Own.Lane == "":
		r.wrong(at+"/headgate/lane", CodeRequired, "give it a name", "a lane needs a name")
	case d.Action == actionLane && !rules.LaneName(d.Own.Lane):
		r.wrong(at+"/headgate/lane", CodeValue, "use only A-Z, a-z, 0-9, _ and -", "%s is not a valid name of a lane",
			quote(d.Own.Lane))
	}
}

// compile finds older rules that are no longer valid, for example because they refer to a list that
// is no longer in the file. It does not check rules that are in force.
func (b *Catalog) compile(all, inForce []*Rule) error {
	env, err := b.env()
	if err != nil {
		return err
	}
	r := &reader{}
	for i, x := range all {
		old := x.Action == actionLane && x.Own.Lane == "" // see forFile
		if !old && !slices.ContainsFunc(inForce, x.same) {
			(&ruleDraft{Rule: x, env: env}).check(r, item("", i))
		}
	}
	return r.err()
}

func (r *Rule) same(x *Rule) bool {
	return r.Action == x.Action && r.Expression == x.Expression && r.Description == x.Description &&
		r.Enabled == x.Enabled && r.Own == x.Own
}

// parseRules parses a body, and returns what its expressions may refer to.
func (b *Catalog) parseRules(body []byte) (v any, env rules.Env, err error) {
	if v, err = parse(body); err == nil {
		env, err = b.env()
	}
	return v, env, err
}

// replaceRules reads a complete list. A rule that has the id of an existing one, or is the same as
// one, keeps its id.
func (b *Catalog) replaceRules(body []byte, was []*Rule) ([]*Rule, error) {
	v, env, err := b.parseRules(body)
	if err != nil {
		return nil, err
	}
	list, ok := v.([]any)
	if !ok {
		return nil, one("", CodeType, "send a list of rules: [{\"action\": …}]",
			"is "+kind(v)+", not a list")
	}
	if len(list) > mostRules {
		return nil, tooManyRules()
	}
	r := &reader{whole: true}
	left := slices.Clone(was)
	all := []*Rule{}
	for i, x := range list {
		d := &ruleDraft{Rule: &Rule{}, env: env}
		d.read(r, item("", i), x, false)
		all = append(all, d.Rule)
		o, _ := x.(*object)
		id := ""
		if o != nil {
			id, _ = o.members["id"].(string)
		}
		at := slices.IndexFunc(left, func(y *Rule) bool { return y.ID == id || id == "" && y.same(d.Rule) })
		if at < 0 {
			d.ID, d.Version, d.LastUpdated = newID(), "1", b.now
			continue
		}
		d.take(left[at], b.now)
		left = slices.Delete(left, at, at+1)
	}
	checkShares(r, all)
	return all, r.err()
}

// take makes the rule the successor of an existing one.
func (r *Rule) take(was *Rule, now time.Time) {
	r.ID, r.Version, r.LastUpdated = was.ID, was.Version, was.LastUpdated
	if !r.same(was) {
		n, _ := strconv.Atoi(was.Version)
		r.Version, r.LastUpdated = strconv.Itoa(n+1), now
	}
}

func tooManyRules() error {
	return one("", CodeTooMany, "combine some rules with or", "there would be more than "+
		strconv.Itoa(mostRules)+" rules")
}

// checkShares checks the lanes of all rules together: rules may share a lane, and all shares have a
// sum.
func checkShares(r *reader, all []*Rule) {
	var lanes []slot.Lane
	for _, x := range all {
		if !x.Enabled || x.Action != actionLane {
			continue
		}
		is := slot.Lane{Name: x.Own.Lane, Share: int(x.Own.Share)}
		i := slices.IndexFunc(lanes, func(y slot.Lane) bool { return y.Name == is.Name })
		if i < 0 {
			lanes = append(lanes, is)
		} else if lanes[i] != is {
			r.wrong("", CodeConflict, "set the same share in all of them, with one change of the list",
				"the rules of lane %s have different shares, %d and %d", quote(is.Name), lanes[i].Share, is.Share)
		}
	}
	sum := 0
	for _, x := range lanes {
		sum += x.Share
	}
	switch {
	case len(lanes) > slot.OwnLanes:
		r.wrong("", CodeTooMany, "use one lane for several rules", "there would be %d lanes; the maximum is %d",
			len(lanes), slot.OwnLanes)
	case sum > slot.MaxShare:
		r.wrong("", CodeConflict, "lower the shares: of 100 calls, the ordinary line needs 1 and the built-in lane 10",
			"the shares of all lanes add up to %d", sum)
	}
}

// checkChallenge rejects rules about a challenge that their room does not have. Nothing may be accepted
// and have no effect.
func (b *Catalog) checkChallenge(all []*Rule, r *Room, pointer string) error {
	rule := func(x *Rule) bool { return x.Action == actionChallenge }
	if b.isChallenged(r) || !slices.ContainsFunc(all, rule) {
		return nil
	}
	return one(pointer, CodeConflict, "set turnstile_mode or headgate.challenge of the room, or remove the rule",
		"a rule has the action challenge, and the room has no challenge")
}

func (b *Catalog) addRule(body []byte, was []*Rule) ([]*Rule, error) {
	v, env, err := b.parseRules(body)
	if err != nil {
		return nil, err
	}
	if len(was) >= mostRules {
		return nil, tooManyRules()
	}
	r := &reader{whole: true}
	d := &ruleDraft{Rule: &Rule{}, env: env}
	d.read(r, "", v, false)
	d.ID, d.Version, d.LastUpdated = newID(), "1", b.now
	all := append(slices.Clone(was), d.Rule)
	checkShares(r, all)
	return all, r.err()
}

func (b *Catalog) editRule(body []byte, was []*Rule, at int) ([]*Rule, error) {
	v, env, err := b.parseRules(body)
	if err != nil {
		return nil, err
	}
	r := &reader{}
	next := *was[at]
	d := &ruleDraft{Rule: &next, env: env}
	d.read(r, "", v, true)
	d.take(was[at], b.now)
	all := slices.Clone(was)
	all[at] = &next
	if d.position != nil {
		all = d.position.move(r, all, at)
	}
	checkShares(r, all)
	return all, r.err()
}

// move moves the rule to another position. An empty id stands for the first or the last position.
func (p *position) move(r *reader, all []*Rule, at int) []*Rule {
	rule := all[at]
	others := slices.Delete(slices.Clone(all), at, at+1)
	to := 0
	find := func(name, id string) int {
		i := slices.IndexFunc(others, func(x *Rule) bool { return strings.EqualFold(x.ID, id) })
		if i < 0 {
			r.wrong("/position/"+name, CodeValue, "name another rule of this room",
				"there is no other rule %s", quote(id))
		}
		return max(i, 0)
	}
	switch {
	case p.index != nil:
		if to = int(*p.index) - 1; to > len(others) {
			r.wrong("/position/index", CodeRange, "write a position from 1 to the number of rules",
				"is more than the %d rules there are", len(all))
			to = 0
		}
	case p.before != nil && *p.before != "":
		to = find("before", *p.before)
	case p.after != nil && *p.after != "":
		to = find("after", *p.after) + 1
	case p.after != nil:
		to = len(others)
	}
	return slices.Insert(others, min(to, len(others)), rule)
}
