package config

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/limittable"
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

	// Amounts are the amounts of each plan, by the names of limits. Required.
	Amounts map[string]map[string]int64
}

// PlanHeader returns the header with the plan of a caller, or "".
func (c *Config) PlanHeader() string {
	if c.Plans == nil {
		return ""
	}
	return c.Plans.Header
}

// SamePlanSource reports whether two configurations take plans from the same header or tokens.
func SamePlanSource(a, b *Config) bool {
	return a.planJWT() == b.planJWT() && a.PlanHeader() == b.PlanHeader()
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
		if c.Plans.Header != "" && c.Plans.JWT.JWKS != "" && d.good(key+".header", key+".jwt") {
			d.fault(key, n, wrong("keep one of them", "has both header and jwt"))
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
		{name: "amounts", read: readPlanAmounts(&p.Amounts), example: "{pro: {api: 5000}}"},
	}
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
	if p == nil || !d.good("plans") {
		return
	}
	if p.Header != "" && len(c.TrustedProxies) == 0 && d.good("trusted_proxies", "plans.header") {
		d.clash(wrong("add the address of the proxy that sets it: trusted_proxies: [127.0.0.1]",
			"nobody may send %s without trusted_proxies", p.Header), "plans.header")
	}
	if p.Header == "" && p.JWT.JWKS == "" && d.good("plans.header", "plans.jwt") {
		c.warn(d, wrong("add header: x-plan, which a trusted proxy sets, or jwt",
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
