package ratelimit

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/internal/quota"
	"github.com/headgate/headgate/limit"
)

// A Unit is what the costs of a limit count.
type Unit string

// Units of a limit. The size of a body is known only after it has passed. If it was larger than the
// estimate, the key owes the difference, and the next call waits until the debt is paid.
const (
	Requests      Unit = "requests"
	CostUnits     Unit = "units"
	RequestBytes  Unit = "request_bytes"
	ResponseBytes Unit = "response_bytes"
)

// A Limit describes one limit: how often each key may do something.
type Limit struct {
	Name string // 1 to 64 of A-Z a-z 0-9 _ - and /; unique
	limit.Rule
	// Auto says that something outside this package finds Amount, and calls SetLimit or Update with it.
	Auto      limit.Auto
	Unit      Unit             // default Requests
	Overrides map[string]int64 // other amounts for some keys
	Plans     map[string]int64 // other amounts for callers with a plan; an override of a key wins
	// Soft passes the calls beyond the amount, and marks them: Result.Exceeded, and ExceededHeader of
	// Middleware. Clients see the limit in their headers.
	Soft   bool
	Shadow bool // as Soft, for a trial: clients and handlers see nothing of it
	Usage  bool // the command records what each key uses; not of Concurrency, and not of a soft limit

	// Reserved are parts of the amount of the key "". Each part belongs to a key of its own
	// (limit.ReservedKey). The key "" has what is left.
	Reserved map[string]int64

	Scope         Scope       // which processes share the limit; default ScopeGlobal
	OnUnreachable Unreachable // what happens without the host of a key; default local

	// MaxKeys is the approximate number of keys that are held at once, default DefaultMaxKeys. Keys
	// beyond it share the amount of one key. A million keys of 32 bytes take some 120 MB, longer
	// ones up to 160 MB.
	MaxKeys int
}

// Refuses reports whether the limit refuses calls: it is neither soft nor in shadow mode.
func (c *Limit) Refuses() bool { return !c.Soft && !c.Shadow }

// Scope selects which processes share a limit.
type Scope string

// Scopes of a limit. Without a shared engine each scope is this process.
const (
	ScopeWorker     Scope = "worker"
	ScopeDatacenter Scope = "datacenter"
	ScopeGlobal     Scope = "global" // all data centers
)

// Unreachable selects what happens while the process that counts a key cannot be reached.
type Unreachable string

// Policies for an unreachable host. Local lets each process allow its part of the amount.
const (
	UnreachableLocal Unreachable = "local"
	UnreachableDeny  Unreachable = "deny"
	UnreachableAllow Unreachable = "allow"
)

// DefaultMaxKeys is the default of Limit.MaxKeys. Chosen: some 120 MB for keys of 32 bytes.
const DefaultMaxKeys = 1_000_000

// A definition is a limit with its rules, ready to decide. It never changes.
type definition struct {
	Limit
	quota quota.Definition
	plans map[string]string // first part of the keys of each plan
	over  map[string]int64  // Overrides, by counted key
}

var (
	limitName = regexp.MustCompile(`^[A-Za-z0-9_/-]{1,64}$`)
	planName  = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,32}$`)
)

// MaxPlans is the maximum number of plans of a limit. Chosen.
const MaxPlans = 100

// IsPlan reports whether name is possible as the name of a plan.
func IsPlan(name string) bool { return planName.MatchString(name) }

// define checks a limit, fills in the defaults and makes it ready to decide.
func (c Limit) define() (*definition, error) {
	c.Unit, c.MaxKeys = cmp.Or(c.Unit, Requests), cmp.Or(c.MaxKeys, DefaultMaxKeys)
	c.Scope, c.OnUnreachable = cmp.Or(c.Scope, ScopeGlobal), cmp.Or(c.OnUnreachable, UnreachableLocal)
	var all []error
	if !limitName.MatchString(c.Name) {
		all = append(all, errors.New("a name is 1 to 64 of A-Z a-z 0-9 _ - and /"))
	}
	if c.MaxKeys < 1 || c.MaxKeys > 1<<30 {
		all = append(all, fmt.Errorf("%d keys, want 1 to 2^30", c.MaxKeys))
	}
	if !slices.Contains([]Unit{Requests, CostUnits, RequestBytes, ResponseBytes}, c.Unit) {
		all = append(all, fmt.Errorf("unknown unit %q", c.Unit))
	}
	if !slices.Contains([]Scope{ScopeWorker, ScopeDatacenter, ScopeGlobal}, c.Scope) {
		all = append(all, fmt.Errorf("unknown scope %q", c.Scope))
	}
	policies := []Unreachable{UnreachableLocal, UnreachableDeny, UnreachableAllow}
	policy := slices.Index(policies, c.OnUnreachable)
	if policy < 0 {
		all = append(all, fmt.Errorf("unknown policy %q", c.OnUnreachable))
	}
	switch {
	case c.Soft && c.Shadow:
		all = append(all, errors.New("soft and in shadow mode: a limit is one or the other"))
	case c.Soft && c.Paced:
		all = append(all, errors.New("soft and paced: no call waits for a soft limit"))
	case c.Soft && c.OnUnreachable == UnreachableDeny:
		all = append(all, errors.New("soft, and denies what it cannot count: a soft limit denies nothing"))
	case c.Soft && c.Usage:
		all = append(all, errors.New("soft, with its usage recorded: what is beyond a soft limit is not counted"))
	case c.Soft && c.Auto.Mode != "":
		all = append(all, errors.New("soft, with an amount that is found: that amount is what the origin can take"))
	}
	over, err := keyAmounts(c.Overrides)
	own, err2 := limit.Amounts(c.Amount, over, c.Reserved)
	plans, err3 := c.addPlans(&own)
	rules, err4 := limittable.Compile(c.Rule, own)
	if all = append(all, err, err2, err3, err4); errors.Join(all...) != nil {
		return nil, fmt.Errorf("limit %q: %w", c.Name, errors.Join(all...))
	}
	c.Overrides, c.Reserved, c.Plans = maps.Clone(c.Overrides), maps.Clone(c.Reserved), maps.Clone(c.Plans)
	calls, alone := c.Algorithm == limit.Concurrency, c.Rule
	if c.Auto.IsFound() { // a higher one may not hold any more: who finds it is out of reach
		alone.Amount = min(c.Amount, c.Auto.Min)
	}
	return &definition{Limit: c, plans: plans, over: over, quota: quota.Definition{
		Name: c.Name, Unit: string(c.Unit), Rules: rules, MaxKeys: c.MaxKeys, Lenient: !c.Refuses(),
		Usage:  c.Usage && !calls,
		Policy: quota.Policy(policy),
		Wall:   c.Algorithm == limit.FixedWindow && c.Align != limit.FirstHit,
		Calls:  calls, Lends: !calls && !c.Paced,
		Divide: func(among int) (*limittable.Rules, error) { return limittable.Divide(alone, own, among) },
	}}, nil
}

// addPlans adds the amounts of the plans to those of keys, and returns the first part of the keys of
// each plan.
func (c *Limit) addPlans(own *map[string]int64) (map[string]string, error) {
	if len(c.Plans) == 0 {
		return nil, nil
	}
	if len(c.Plans) > MaxPlans {
		return nil, fmt.Errorf("%d plans, want %d at most", len(c.Plans), MaxPlans)
	}
	if *own == nil {
		*own = map[string]int64{}
	}
	first := make(map[string]string, len(c.Plans))
	for plan, amount := range c.Plans {
		if !IsPlan(plan) {
			return nil, fmt.Errorf("plan %q, want 1 to 32 of A-Z a-z 0-9 _ . and -", plan)
		}
		first[plan] = limittable.PlanKey(plan)
		(*own)[first[plan]] = amount
	}
	return first, nil
}

// planOf returns the plan under which a key is counted: "" if the limit has no amount for the plan, or
// if the key has an amount of its own.
func (d *definition) planOf(plan, counted string) string {
	if d.planPart(plan, counted) == "" {
		return ""
	}
	return plan
}

// planPart returns the first part of a key of that plan.
func (d *definition) planPart(plan, counted string) string {
	if plan == "" {
		return ""
	}
	if _, own := d.over[counted]; own {
		return ""
	}
	return d.plans[plan]
}

// counted returns the key by which a check is counted.
func (d *definition) counted(a *Check) string {
	key := countedKey(a.Key)
	return d.planPart(a.Plan, key) + key
}

// otherKey returns the key by which a check with a plan was counted if it was not counted by key: with the
// plan, or without it.
func otherKey(a *Check, key string) string {
	if limittable.IsPlanKey(key) || !IsPlan(a.Plan) {
		return countedKey(a.Key)
	}
	return limittable.PlanKey(a.Plan) + key
}
