package config

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/internal/wire"
)

// Bounds of plans. Chosen.
const (
	maxPlans    = 100 // the same as ratelimit.MaxPlans
	maxPlanName = 32
)

// Plans are amounts of limits for callers with a plan, and where the plan of a caller comes from.
type Plans struct {
	// Header is the request header with the plan, in canonical form. It counts from TrustedProxies
	// only. "" is none.
	Header string

	// JWT is the token whose claim is the plan, by default the claim plan. An empty JWKS is none.
	JWT JWT

	// Holders are those to whom headgate gives keys: then a plan is that of the holder of the key that a
	// call sends. nil is none.
	Holders *Holders

	// Amounts are the amounts of each plan, by the names of limits. Required.
	Amounts map[string]map[string]int64
}

// Holders say how calls send the keys of holders.
type Holders struct {
	// Header is the request header with the key, in canonical form. Default Authorization, with Bearer in
	// front of the key.
	Header string

	// Required refuses calls without a key. Default true. Keys that do not count are refused in any case.
	Required bool

	// Forward sends the key on to the origin. Default false.
	Forward bool

	// StaleAfter is for how long a node that cannot read the holders goes by what it has read. After that
	// it refuses all keys with 503. Default 60s.
	StaleAfter time.Duration
}

// HoldersOf returns how calls send the keys of holders, or nil.
func (c *Config) HoldersOf() *Holders {
	if c.Plans == nil {
		return nil
	}
	return c.Plans.Holders
}

// StaleAfter returns for how long the holders that were read count, or 0 if there are none.
func (c *Config) StaleAfter() time.Duration {
	if h := c.HoldersOf(); h != nil {
		return h.StaleAfter
	}
	return 0
}

// PlanHeader returns the header with the plan of a caller, or "".
func (c *Config) PlanHeader() string {
	if c.Plans == nil {
		return ""
	}
	return c.Plans.Header
}

// SamePlanSource reports whether two configurations take plans from the same header, tokens or keys.
func SamePlanSource(a, b *Config) bool {
	return a.planJWT() == b.planJWT() && a.PlanHeader() == b.PlanHeader() &&
		reflect.DeepEqual(a.HoldersOf(), b.HoldersOf())
}

func (c *Config) planJWT() JWT {
	if c.Plans == nil || c.Plans.JWT.JWKS == "" {
		return JWT{}
	}
	return c.Plans.JWT
}

func readPlans(c *Config) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		c.Plans = &Plans{}
		d.mapping(key, n, plansFields(c.Plans))
		switch p := c.Plans; {
		case p.Header != "" && p.JWT.JWKS != "" && d.good(key+".header", key+".jwt"):
			d.fault(key, n, wrong("keep one of them", "has both header and jwt"))
		case p.Holders != nil && (p.Header != "" || p.JWT.JWKS != ""):
			d.fault(key, n, wrong("keep one of them", "has holders beside header or jwt"))
		}
	}
}

func plansFields(p *Plans) []field {
	return []field{
		one("header", text(&p.Header, cleanIdentityHeader)),
		{name: "jwt", read: func(d *decoder, key string, n *yaml.Node) {
			p.JWT.Claim = "plan"
			d.mapping(key, n, jwtFields(&p.JWT))
		}},
		{name: "holders", read: func(d *decoder, key string, n *yaml.Node) {
			p.Holders = &Holders{Header: authorization, Required: true, StaleAfter: time.Minute}
			d.mapping(key, n, holdersFields(p.Holders))
		}},
		{name: "amounts", read: readPlanAmounts(&p.Amounts), example: "{pro: {api: 5000}}"},
	}
}

const authorization = "Authorization"

func holdersFields(h *Holders) []field {
	return []field{
		one("header", text(&h.Header, cleanHolderHeader)),
		one("required", truth(&h.Required)),
		one("forward", truth(&h.Forward)),
		one("stale_after", span(&h.StaleAfter, 20*time.Second, 24*time.Hour, false)),
	}
}

// cleanHolderHeader parses the name of the header with the key of a holder.
func cleanHolderHeader(s string) (string, *mistake) {
	name, m := cleanHeaderName(s)
	if m == nil && name != authorization && (name == "Cookie" || wire.Owned(name)) {
		m = wrong("write authorization, or a header of your API such as x-api-key", "%s has another meaning", name)
	}
	return name, m
}

// readPlanAmounts reads a group of plans, each a group of amounts.
func readPlanAmounts(dst *map[string]map[string]int64) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		const hint = "write plans and the amounts of their limits, such as {pro: {api: 5000}}"
		switch plans := len(n.Content) / 2; {
		case n.Kind != yaml.MappingNode:
			d.fault(key, n, wrong(hint, "is %s, not a group of plans", kind(n)))
			return
		case plans == 0 || plans > maxPlans:
			d.fault(key, n, wrong(hint, "has %d plans, want 1 to %d", plans, maxPlans))
			return
		}
		all := map[string]map[string]int64{}
		for i := 0; i+1 < len(n.Content) && !d.Stopped; i += 2 {
			k, v := d.Resolve(n.Content[i]), d.Resolve(n.Content[i+1])
			full := under(key, k.Value)
			_, twice := all[k.Value]
			switch {
			case k.Kind != yaml.ScalarNode || k.Tag == "!!merge":
				d.fault(key, k, wrong("write each plan out", "has a plan that is not a word"))
				continue
			case !isPlanName(k.Value):
				d.fault(key, k, notAPlan(k.Value))
				continue
			case twice:
				d.fault(full, k, wrong("keep one of the two", "is there twice"))
				continue
			}
			var amounts map[string]int64
			if before := d.Count(); v.Kind != yaml.MappingNode {
				d.fault(full, v, wrong("write limits and amounts, such as {api: 5000}",
					"is %s, not a group of amounts", kind(v)))
			} else if len(v.Content) == 0 {
				d.fault(full, v, wrong("give it an amount, such as {api: 5000}, or take the plan out",
					"has no amounts"))
			} else if d.read(field{read: readOverrides(&amounts)}, full, v); d.Count() > before {
				amounts = nil
			}
			all[k.Value] = amounts
		}
		*dst = all
	}
}

// readLimitPlans reads the plans of a limit that is made by the API. In the file, plans have their own group.
func readLimitPlans(dst *map[string]int64) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		readOverrides(dst)(d, key, n)
		if len(*dst) > maxPlans {
			d.fault(key, n, wrong("keep at most 100", "has %d plans, more than %d", len(*dst), maxPlans))
		}
		for _, plan := range slices.Sorted(maps.Keys(*dst)) {
			if !isPlanName(plan) {
				d.clash(notAPlan(plan), under(key, plan))
			}
		}
	}
}

// checkLimitPlans checks them.
func (l *Limit) checkLimitPlans(d *decoder) {
	for plan, amount := range l.Plans {
		new(Config).checkPlan(d, under("plans", plan), l, amount)
	}
}

func notAPlan(name string) *mistake {
	return wrong("take 1 to 32 of A-Z a-z 0-9 _ . and -", "%s is no name for a plan", quote(name))
}

func isPlanName(s string) bool {
	return s != "" && len(s) <= maxPlanName && strings.Trim(s,
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-") == ""
}

// checkPlans checks the plans against the limits, and adds their amounts to them.
func checkPlans(d *decoder, c *Config) {
	p := c.Plans
	for i := range c.Limits {
		k := "limits[" + strconv.Itoa(i) + "].key"
		if c.Limits[i].ByHolder() && c.HoldersOf() == nil && d.good("plans", "plans.holders", k) {
			d.clash(wrong("add plans: {holders: {}, amounts: {pro: {"+c.Limits[i].Name+": 5000}}}",
				"nobody has keys without plans.holders"), k)
		}
	}
	if p == nil || !d.good("plans") {
		return
	}
	if p.Header != "" && len(c.TrustedProxies) == 0 && d.good("trusted_proxies", "plans.header") {
		d.clash(wrong("add the address of the proxy that sets it: trusted_proxies: [127.0.0.1]",
			"nobody may send %s without trusted_proxies", p.Header), "plans.header")
	}
	c.checkHolders(d)
	if p.Header == "" && p.JWT.JWKS == "" && p.Holders == nil && d.good("plans.header", "plans.jwt", "plans.holders") {
		c.warn(d, wrong("add header: x-plan, which a trusted proxy sets, jwt, or holders",
			"only clients of /v1/limits can name a plan: requests of rooms have none"), "plans")
	}
	var names []string
	for i := range c.Limits {
		names = append(names, c.Limits[i].Name)
	}
	for _, plan := range slices.Sorted(maps.Keys(p.Amounts)) {
		for _, name := range slices.Sorted(maps.Keys(p.Amounts[plan])) {
			k := under(under("plans.amounts", plan), name)
			at := slices.Index(names, name)
			switch {
			case !d.good("limits", k):
			case at < 0:
				d.clash(wrong(limitHint(d, name, names), "there is no limit %s", quote(name)), k)
			default:
				c.addPlan(d, k, &c.Limits[at], plan, p.Amounts[plan][name])
			}
		}
	}
}

// checkHolders checks the keys of holders against the rest.
func (c *Config) checkHolders(d *decoder) {
	h := c.HoldersOf()
	if h == nil {
		return
	}
	if c.Cluster != nil && len(c.Cluster.Datacenters) > 0 {
		d.clash(wrong("leave holders out, or use one data center",
			"several data centers cannot share holders yet"), "plans.holders")
	}
	if !slices.ContainsFunc(c.Limits, func(l Limit) bool { return l.ByHolder() }) && d.good("limits") {
		c.warn(d, wrong(`write key: ["holder"] in a limit of the rooms that ask for keys`,
			"no limit counts by holder, so no room asks for a key"), "plans.holders")
	}
}

// ByHolder reports whether the limit counts by holder. Rooms with such a limit ask for keys.
func (l *Limit) ByHolder() bool {
	return slices.ContainsFunc(l.Key, func(p KeyPart) bool { return p.Kind == KeyHolder })
}

// addPlan adds an amount of a plan to its limit.
func (c *Config) addPlan(d *decoder, k string, l *Limit, plan string, amount int64) {
	if l.Plans == nil {
		l.Plans = map[string]int64{}
	}
	l.Plans[plan] = amount
	c.checkPlan(d, k, l, amount)
}

// checkPlan checks an amount of a plan against its limit.
func (c *Config) checkPlan(d *decoder, k string, l *Limit, amount int64) {
	const gains = "a caller gains by hiding its plan: raise it, or lower the amount of the limit"
	_, err := limittable.Compile(l.Rule, map[string]int64{limittable.PlanKey("p"): amount})
	switch {
	case l.Auto.Mode != "":
		d.clash(wrong("take it out, or write a number as the amount of the limit",
			"%s has an amount that is found: one number for all calls", l.Name), k)
	case err != nil && l.Check() == nil:
		l.tell(d, k, err)
	case err != nil: // it is told of the limit
	case amount == 0:
		c.warn(d, wrong(gains, "0 refuses every call of the plan, and callers without a plan have %d", l.Amount), k)
	case amount < l.Amount:
		c.warn(d, wrong(gains, "%d is less than callers without a plan have (%d)", amount, l.Amount), k)
	}
}
