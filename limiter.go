package headgate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/callkey"
	"github.com/headgate/headgate/internal/quota"
	"github.com/headgate/headgate/limit"
)

// Unit is what the costs of a limit are counted in.
type Unit string

// The units. Bytes of a body are known when it has passed: what it was more than the estimate
// is owed, and the next call waits for it.
const (
	Requests      Unit = "requests"
	CostUnits     Unit = "units"
	RequestBytes  Unit = "request_bytes"
	ResponseBytes Unit = "response_bytes"
)

// A LimitConfig describes one limit: how often each key may do something.
type LimitConfig struct {
	Name string // 1 to 64 of A-Z a-z 0-9 _ - and /; unique
	limit.Rule
	Unit      Unit             // default Requests
	Overrides map[string]int64 // another amount for a key
	Shadow    bool             // counts, refuses nobody, and what it would have refused is no debt

	// Reserved are parts of the amount of the key "", each of a key of its own
	// (limit.ReservedKey): that key has what is left.
	Reserved map[string]int64

	Scope         Scope       // who shares it, default ScopeGlobal
	OnUnreachable Unreachable // what is done without the host of a key: default local

	// MaxKeys is about how many keys are held at once, default DefaultMaxKeys; those beyond
	// share what one may have. A million keys of 32 bytes take some 120 MB, longer ones up to 160 MB.
	MaxKeys int
}

// Scope says which processes share a limit.
type Scope string

// The scopes. Without an engine that is shared each is this process.
const (
	ScopeWorker     Scope = "worker"
	ScopeDatacenter Scope = "datacenter"
	ScopeGlobal     Scope = "global" // all data centres
)

// Unreachable says what is done while the process that counts a key is out of reach.
type Unreachable string

// The policies. Local lets each process pass its part of the amount.
const (
	UnreachableLocal Unreachable = "local"
	UnreachableDeny  Unreachable = "deny"
	UnreachableAllow Unreachable = "allow"
)

// DefaultMaxKeys bounds the keys of a limit. Chosen: some 120 MB of keys of 32 bytes.
const DefaultMaxKeys = 1_000_000

// MaxKey is the greatest length of a key in bytes. Chosen.
const MaxKey = callkey.Max

// An Ask is one limit, whose key, and how much.
type LimitCheck struct {
	Limit string
	Key   string
	Cost  int64 // 0 asks only; below 0 gives back
}

// A Verdict is what an Ask is told.
type LimitResult struct {
	limit.Decision
	Limit    *LimitConfig // in force then; not to be changed
	Shadowed bool         // Allowed only because the limit is in shadow mode
}

// The errors of a Limiter.
var (
	ErrNoLimit       = errors.New("there is no such limit")
	ErrKey           = errors.New("impossible key")
	ErrCost          = errors.New("impossible cost")
	ErrUnreachable   = errors.New("the process that counts the key does not answer")
	ErrNoReservation = errors.New("no such reservation: it was settled, or its time is over")
)

// LimitRules is what the ways to ask need of a Limiter. All methods may be called by many
// goroutines at once and block for one round trip at most.
type LimitRules interface {
	// Allow takes cost units of a key, all or none.
	Allow(ctx context.Context, a LimitCheck) (LimitResult, error)
	// AllowAll takes from several limits. all says that either all take or none does, and those
	// of one limit and key their sum; else each is for itself. The verdicts are in the order of
	// asks.
	AllowAll(ctx context.Context, asks []LimitCheck, all bool) ([]LimitResult, error)
	// Reserve takes an estimate, to be settled within ttl; afterwards it counts as it is.
	Reserve(ctx context.Context, a LimitCheck, ttl time.Duration) (LimitResult, error)
	// Settle says what a reservation came to: 0 gives all of it back.
	Settle(ctx context.Context, a LimitCheck, id uint64) error
	// Renew begins the lease of a call under way anew.
	Renew(ctx context.Context, a LimitCheck, id uint64) error
}

// KeyUse is what a key has used.
type KeyUsage = limit.Usage

// A LimiterConfig is what a Limiter begins with.
type LimiterConfig struct {
	Limits []LimitConfig
	// Engine shares the limits whose scope is wider than this process with the others on it.
	// Nil, or alone: every scope is this process.
	Engine *Engine
	// Bring makes a limit that is asked for and is not there, of a name that says all of it:
	// of several processes that share it, one may be asked that never met it. Nil: there is
	// none. It may be called by many goroutines at once.
	CreateMissing func(name string) (LimitConfig, bool)
}

// A Limiter answers whether calls may pass. All methods may be called by many goroutines at
// once. What it counts here is gone with the process.
type Limiter struct {
	engine *Engine
	bring  func(name string) (LimitConfig, bool)
	mu     sync.Mutex // one change of the set at a time
	set    atomic.Pointer[map[string]*keyed]
}

// keyed is one limit with its keys.
type keyed struct {
	quota.Keys
	cfg atomic.Pointer[definition]
}

// A definition is a limit with its rules, ready to decide. It never changes.
type definition struct {
	LimitConfig
	quota quota.Definition
}

// NewLimiter makes a Limiter. Its error names all that is wrong.
func NewLimiter(cfg LimiterConfig) (*Limiter, error) {
	l := &Limiter{engine: cfg.Engine, bring: cfg.CreateMissing}
	l.set.Store(&map[string]*keyed{})
	var all []error
	for _, c := range cfg.Limits {
		if _, twice := (*l.set.Load())[c.Name]; twice {
			all = append(all, fmt.Errorf("limit %q: there are two of that name", c.Name))
			continue
		}
		all = append(all, l.Define(c))
	}
	if cfg.Engine != nil {
		cfg.Engine.limiter.Store(l)
	}
	return l, errors.Join(all...)
}

var limitName = regexp.MustCompile(`^[A-Za-z0-9_/-]{1,64}$`)

// define checks a limit, fills in what is not said, and makes it ready.
func (c LimitConfig) define() (*definition, error) {
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
	own, err := limit.Amounts(c.Amount, c.Overrides, c.Reserved)
	own, err2 := callkey.Amounts(own)
	rules, err3 := limit.Compile(c.Rule, own)
	if all = append(all, err, err2, err3); errors.Join(all...) != nil {
		return nil, fmt.Errorf("limit %q: %w", c.Name, errors.Join(all...))
	}
	c.Overrides, c.Reserved = maps.Clone(c.Overrides), maps.Clone(c.Reserved)
	calls := c.Algorithm == limit.Concurrency
	return &definition{c, quota.Definition{
		Name: c.Name, Unit: string(c.Unit), Rules: rules, MaxKeys: c.MaxKeys, Shadow: c.Shadow,
		Policy: quota.Policy(policy),
		Wall:   c.Algorithm == limit.FixedWindow && c.Align != limit.FirstHit,
		Calls:  calls, Lends: !calls && !c.Paced,
		Divide: func(among int) (*limit.Rules, error) { return limit.Divide(c.Rule, own, among) },
	}}, nil
}

// Define makes a limit, or changes the one of that name: what its keys have used stays used,
// unless the unit is another.
func (l *Limiter) Define(c LimitConfig) error {
	d, err := c.define()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.putLocked(d)
	return nil
}

// Update changes a limit that is there, and no other change comes in between: change is
// handed what is in force, and must not call the Limiter. Its error is returned as it is.
func (l *Limiter) Update(name string, change func(*LimitConfig) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := (*l.set.Load())[name]
	if k == nil {
		return fmt.Errorf("%w: %q", ErrNoLimit, name)
	}
	c := k.cfg.Load().LimitConfig
	c.Overrides = maps.Clone(c.Overrides)
	if err := change(&c); err != nil {
		return err
	}
	c.Name = name
	d, err := c.define()
	if err != nil {
		return err
	}
	l.putLocked(d)
	return nil
}

// putLocked puts a definition into force. What was used in another unit says nothing.
func (l *Limiter) putLocked(d *definition) {
	old := *l.set.Load()
	if k := old[d.Name]; k != nil && k.cfg.Load().Unit == d.Unit && k.cfg.Load().Scope == d.Scope {
		k.cfg.Store(d) // each part changes when it is asked next
		return
	}
	next := maps.Clone(old)
	k := &keyed{}
	k.Init(l.engine.lane(d))
	k.cfg.Store(d)
	next[d.Name] = k
	l.set.Store(&next)
}

// Remove forgets a limit and its keys.
func (l *Limiter) Remove(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := maps.Clone(*l.set.Load())
	if next[name] == nil {
		return fmt.Errorf("%w: %q", ErrNoLimit, name)
	}
	delete(next, name)
	l.set.Store(&next)
	return nil
}

// Limits are all limits, by name.
func (l *Limiter) Limits() (all []*LimitConfig) {
	set := *l.set.Load()
	for _, name := range slices.Sorted(maps.Keys(set)) {
		all = append(all, &set[name].cfg.Load().LimitConfig)
	}
	return all
}

// at finds a limit, as it is in force now, and the key by which it counts.
func (l *Limiter) at(name, key string) (*keyed, *definition, string, error) {
	k := (*l.set.Load())[name]
	if k == nil {
		if k = l.brought(name); k == nil {
			return nil, nil, "", fmt.Errorf("%w: %q", ErrNoLimit, name)
		}
	}
	if len(key) > MaxKey {
		return nil, nil, "", fmt.Errorf("%w: %d bytes, want %d at most", ErrKey, len(key), MaxKey)
	}
	return k, k.cfg.Load(), callkey.Counted(key), nil
}

// mostBrought bounds the limits that are there when one more is brought. Chosen.
const mostBrought = 10_000

// brought is a limit that is there only because it was asked for, nil if it cannot be.
func (l *Limiter) brought(name string) *keyed {
	if l.bring == nil || len(*l.set.Load()) >= mostBrought {
		return nil
	}
	if c, ok := l.bring(name); !ok || c.Name != name || l.Define(c) != nil {
		return nil
	}
	return (*l.set.Load())[name]
}

// verdict is what was told of a limit.
func (d *definition) verdict(v quota.Result) LimitResult {
	return LimitResult{Decision: v.Decision, Limit: &d.LimitConfig, Shadowed: v.Shadowed}
}

// askErr is an error of what was asked.
func askErr(a LimitCheck, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, limit.ErrSettled), errors.Is(err, quota.ErrNoHold):
		return ErrNoReservation
	case errors.Is(err, quota.ErrUnreachable):
		return ErrUnreachable
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return fmt.Errorf("%w: %d", ErrCost, a.Cost)
}

// Allow takes a.Cost of a key, all or nothing.
func (l *Limiter) Allow(ctx context.Context, a LimitCheck) (v LimitResult, err error) {
	k, d, key, err := l.at(a.Limit, a.Key)
	if err != nil {
		return v, err
	}
	v.Limit = &d.LimitConfig
	if v.Shadowed, err = k.Take(ctx, &d.quota, key, a.Cost, &v.Decision); err != nil {
		return v, askErr(a, err)
	}
	return v, nil
}

// Held is what was taken by Hold: it counts against the limit until Use says that it was used,
// and then as used at that moment, or until Return gives it back.
type Hold = quota.Hold

// Turn says who waits in this process for some of a key. Processes take turns.
type Waiters = quota.Waiters

// Hold takes a.Cost of a key, all or nothing, for what a service may count at any moment
// before it has answered.
func (l *Limiter) Hold(ctx context.Context, a LimitCheck, t Waiters) (h Hold, v LimitResult, err error) {
	k, d, key, err := l.at(a.Limit, a.Key)
	if err != nil {
		return h, v, err
	}
	h, told, err := k.Hold(ctx, &d.quota, key, a.Cost, t)
	return h, d.verdict(told), askErr(a, err)
}

// Limit is a limit as it is in force, not to be changed.
func (l *Limiter) Limit(name string) (*LimitConfig, error) {
	_, d, _, err := l.at(name, "")
	if err != nil {
		return nil, err
	}
	return &d.LimitConfig, nil
}

// Peek tells whether a.Cost would pass, and takes nothing. The key may be as Keys shows it.
func (l *Limiter) Peek(ctx context.Context, a LimitCheck) (LimitResult, error) {
	return l.look(ctx, a, a.Cost, callkey.Find(a.Key))
}

// look tells whether cost would pass in place of that of a, which must be possible.
func (l *Limiter) look(ctx context.Context, a LimitCheck, cost int64, key string) (LimitResult, error) {
	k, d, err := l.possible(a)
	if err != nil {
		return LimitResult{}, err
	}
	v, err := k.Peek(ctx, &d.quota, key, max(0, cost))
	if err != nil {
		return LimitResult{Limit: &d.LimitConfig}, askErr(a, err)
	}
	return d.verdict(v), nil
}

// possible finds a limit that may be asked for so much.
func (l *Limiter) possible(a LimitCheck) (*keyed, *definition, error) {
	k, d, _, err := l.at(a.Limit, a.Key)
	if err == nil && (a.Cost > limit.MaxAmount || a.Cost < -limit.MaxAmount || a.Cost < 0 && d.quota.Calls) {
		err = fmt.Errorf("%w: %d", ErrCost, a.Cost)
	}
	return k, d, err
}

// Explain tells why a call of a key is refused: what its limit is, what it has used, and
// when there is more.
func (l *Limiter) Explain(name, key string) (LimitResult, error) {
	return l.Peek(context.Background(), LimitCheck{name, key, 1})
}

// Reserve takes an estimate, to be settled within ttl; afterwards it counts as it is.
func (l *Limiter) Reserve(ctx context.Context, a LimitCheck, ttl time.Duration) (LimitResult, error) {
	k, d, key, err := l.at(a.Limit, a.Key)
	if err != nil {
		return LimitResult{}, err
	}
	v, err := k.Reserve(ctx, &d.quota, key, a.Cost, ttl)
	if errors.Is(err, limit.ErrCost) || errors.Is(err, quota.ErrCost) {
		return LimitResult{}, fmt.Errorf("%w: %d for %v", ErrCost, a.Cost, ttl)
	} else if err != nil {
		return LimitResult{}, askErr(a, err)
	}
	return d.verdict(v), nil
}

// Settle says what a reservation came to, a.Cost: what it was less is given back, what it
// was more is owed. Of a call under way it is the end. An id of 0, of one that only shadow
// mode let pass, is nothing to settle.
func (l *Limiter) Settle(ctx context.Context, a LimitCheck, id uint64) error {
	if id == 0 {
		return nil
	}
	k, d, key, err := l.at(a.Limit, a.Key)
	if err != nil {
		return err
	}
	return askErr(a, k.Settle(ctx, &d.quota, key, id, a.Cost))
}

// Renew begins the lease of a call under way anew: it counts for so long from now on.
// ErrNoReservation: its lease has ended, or it was none.
func (l *Limiter) Renew(ctx context.Context, a LimitCheck, id uint64) error {
	k, d, key, err := l.at(a.Limit, a.Key)
	if err != nil || id == 0 {
		return err
	}
	return askErr(a, k.Renew(ctx, &d.quota, key, id))
}

// allAtOnce is how long what AllowAll has taken may wait for the rest. Chosen.
const allAtOnce = time.Minute

// AllowAll takes from several limits. all says that either all is taken or nothing: then
// Allowed of a verdict says whether that limit would have let the call pass. It looks at all
// of them first, so that who is refused by one holds up nobody at the others. Asks of one limit
// and key are then one for the sum of their costs, and are told the same: 3 and -3 use nothing,
// and pass whatever is left. Calls under way stay apart: each has an end of its own.
func (l *Limiter) AllowAll(
	ctx context.Context,
	asks []LimitCheck,
	all bool,
) (verdicts []LimitResult, err error) {
	verdicts = make([]LimitResult, len(asks))
	for _, a := range asks { // who asks for the impossible is told so before anything is taken
		if _, _, err := l.possible(a); err != nil {
			return verdicts, err
		}
	}
	if !all || len(asks) == 1 {
		for i, a := range asks {
			if verdicts[i], err = l.Allow(ctx, a); err != nil {
				return verdicts, err
			}
		}
		return verdicts, nil
	}
	first, sums := quota.SumCosts(len(asks), func(i int) (LimitCheck, int64) {
		return LimitCheck{Limit: asks[i].Limit, Key: asks[i].Key}, asks[i].Cost
	})
	asks = slices.Clone(asks)
	for i, a := range asks {
		if _, d, _, err := l.at(a.Limit, a.Key); err == nil && d.quota.Calls {
			sums[i], first[i] = sums[first[i]], i
		} else {
			asks[i].Cost = min(sums[i], limit.MaxAmount)
		}
	}
	err = l.takeAll(ctx, asks, sums, verdicts)
	for i, j := range first {
		verdicts[i] = verdicts[j]
	}
	return verdicts, err
}

// takeAll takes all of asks, or nothing. sums are what has to fit for each.
func (l *Limiter) takeAll(
	ctx context.Context,
	asks []LimitCheck,
	sums []int64,
	verdicts []LimitResult,
) (err error) {
	held := make([]*Hold, len(asks)) // what is lent, often without a message; nil: the rest
	if pass, err := l.lookAll(ctx, asks, sums, verdicts, held); err != nil || !pass {
		l.refuse(asks, verdicts, held)
		return err
	}
	for i, a := range asks {
		switch v := &verdicts[i]; {
		case a.Cost < 0, held[i] != nil: // when all else is taken
		case v.Limit.Algorithm == limit.Concurrency || a.Cost == 0:
			*v, err = l.Allow(ctx, a)
		default:
			*v, err = l.Reserve(ctx, a, allAtOnce)
		}
		if err != nil || !verdicts[i].Allowed { // somebody else was faster
			l.undo(context.WithoutCancel(ctx), asks[:i], verdicts)
			back(held, verdicts)
			return err
		}
	}
	for i, a := range asks {
		if a.Cost < 0 {
			if verdicts[i], err = l.Allow(ctx, a); err != nil { // the limit has just changed
				l.undo(context.WithoutCancel(ctx), asks, verdicts)
				back(held, verdicts)
				return err
			}
		}
	}
	for i, a := range asks {
		if v := &verdicts[i]; held[i] != nil {
			held[i].Use(a.Cost)
		} else if a.Cost > 0 && v.Limit.Algorithm != limit.Concurrency {
			_ = l.Settle(ctx, a, v.ID) // to what is taken: no matter if the limit has just gone
			v.ID = 0
		}
	}
	return nil
}

// lookAll tells whether all of asks would pass, and holds what is lent; it takes nothing else.
// A limit and key that stands there twice is looked at as one: together they may never pass.
func (l *Limiter) lookAll(
	ctx context.Context, asks []LimitCheck, sums []int64, verdicts []LimitResult, held []*Hold,
) (pass bool, err error) {
	pass = true
	for i, a := range asks {
		k, d, key, err := l.at(a.Limit, a.Key)
		if err != nil {
			return false, err
		}
		if a.Cost > 0 && a.Cost == sums[i] && k.Lent(&d.quota) {
			held[i] = &Hold{}
			*held[i], verdicts[i], err = l.Hold(ctx, a, Waiters{Momentary: true})
		} else {
			verdicts[i], err = l.look(ctx, a, sums[i], key)
		}
		if err != nil {
			return false, err
		}
		pass = pass && verdicts[i].Allowed
	}
	return pass, nil
}

// undo gives back what AllowAll has taken of some.
func (l *Limiter) undo(ctx context.Context, asks []LimitCheck, verdicts []LimitResult) {
	for i, a := range asks {
		v := &verdicts[i]
		if v.ID == 0 {
			continue
		}
		if k, d, key, err := l.at(a.Limit, a.Key); err == nil {
			if now, err := k.Undo(ctx, &d.quota, key, v.ID); err == nil {
				v.Remaining, v.Reset = now.Remaining, now.Reset
			}
		}
		v.ID, v.Wait = 0, 0
	}
}

// back gives back what is held.
func back(held []*Hold, verdicts []LimitResult) {
	for i, h := range held {
		if h != nil {
			verdicts[i].Remaining += h.Left()
			h.Return(h.Left())
		}
	}
}

// refuse counts what a look at all has refused, and takes nothing.
func (l *Limiter) refuse(asks []LimitCheck, verdicts []LimitResult, held []*Hold) {
	back(held, verdicts)
	for i, v := range verdicts {
		if v.Limit == nil || v.Allowed || held[i] != nil {
			continue
		}
		if k, _, key, err := l.at(asks[i].Limit, asks[i].Key); err == nil {
			k.CountRefusal(key)
		}
	}
}

// Reset forgets what a key has used, and its calls under way. The key may be as Keys shows it.
func (l *Limiter) Reset(name, key string) error {
	k, d, _, err := l.at(name, key)
	if err != nil {
		return err
	}
	return askErr(LimitCheck{}, k.Reset(context.Background(), &d.quota, callkey.Find(key)))
}

// Keys are up to count keys that have used any of a limit, from a place on that the call
// before gave; "" is the beginning, and the end. Keys that come or go meanwhile may be
// missed; one that stays is told once. A count below 1 is an error.
func (l *Limiter) Keys(name, from string, count int) (all []KeyUsage, next string, err error) {
	if count < 1 {
		return nil, "", fmt.Errorf("%w: %d keys at once, want 1 at least", ErrKey, count)
	}
	k, d, _, err := l.at(name, "")
	if err != nil {
		return nil, "", err
	}
	part, n, err := quota.ParseCursor(from)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", ErrKey, err)
	}
	all, part, n, err = k.Usage(context.Background(), &d.quota, part, n, count)
	if err != nil {
		return nil, "", askErr(LimitCheck{}, err)
	}
	return all, quota.FormatCursor(part, n), nil
}

// LimitTotals count what a limit has decided since the process began.
type LimitTotals = quota.Totals

// Totals tells what a limit has decided.
func (l *Limiter) Totals(name string) (t LimitTotals, err error) {
	k, _, _, err := l.at(name, "")
	if err != nil {
		return t, err
	}
	return k.Totals(), nil
}
