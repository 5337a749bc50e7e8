package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/internal/quota"
	"github.com/headgate/headgate/limit"
)

// A Check requests an amount of one limit for one key.
type Check struct {
	Limit string
	Key   string
	Cost  int64 // 0 takes nothing; a negative cost gives back

	// Plan is the plan of the caller. A limit that has no amount for it counts the key as that of a
	// caller without a plan.
	Plan string
}

// A Result is the answer to a Check.
type Result struct {
	limit.Decision
	Limit    *Limit // in force at that time; must not be changed
	Exceeded bool   // Allowed only because the limit is soft or in shadow mode
}

// Errors of a Limiter.
var (
	ErrNoLimit       = errors.New("there is no such limit")
	ErrKey           = errors.New("invalid key")
	ErrCost          = errors.New("invalid cost")
	ErrUnreachable   = errors.New("the process that counts the key does not answer")
	ErrNoReservation = errors.New("no such reservation: it was settled, or its time is over")
)

// A Checker is the part of a Limiter that Middleware and other front ends use. Many goroutines may call all
// methods at once. Each method blocks for at most one round trip.
type Checker interface {
	// Allow takes a.Cost units of a key, all or none.
	Allow(ctx context.Context, a Check) (Result, error)
	// AllowAll takes from several limits. If all is true, either all checks take their cost or none
	// does, and checks of one limit and key count as their sum. Otherwise each check is
	// independent. The results are in the order of asks.
	AllowAll(ctx context.Context, asks []Check, all bool) ([]Result, error)
	// Reserve takes an estimate, which must be settled within ttl. After ttl the estimate counts as
	// the cost.
	Reserve(ctx context.Context, a Check, ttl time.Duration) (Result, error)
	// Settle replaces the estimate of a reservation by the real cost a.Cost; 0 gives all of it
	// back.
	Settle(ctx context.Context, a Check, id uint64) error
	// Renew restarts the lease of a call in progress.
	Renew(ctx context.Context, a Check, id uint64) error
}

// A Config configures a Limiter.
type Config struct {
	Limits []Limit
	// Engine shares the limits whose scope is wider than this process with the other processes on
	// it. If Engine is nil or not shared, every scope is this process.
	Engine *headgate.Engine
	// CreateMissing, if not nil, creates a limit that is requested but does not exist, from a name
	// that describes it completely. Of several processes that share the limit, a process that has
	// never used it may receive the request. Many goroutines may call it at once.
	CreateMissing func(name string) (Limit, bool)
}

// A Limiter decides whether calls may pass. Many goroutines may call all methods at once. What a
// process counts itself is lost when the process ends.
type Limiter struct {
	usageAccess
	shared *quota.Shared // nil: every scope is this process
	bring  func(name string) (Limit, bool)
	mu     sync.Mutex // one change of the set at a time
	set    atomic.Pointer[map[string]*keyed]
}

// A keyed is one limit with its keys.
type keyed struct {
	quota.Keys
	cfg atomic.Pointer[definition]
}

// usageAccess gives the command the usage of keys.
type usageAccess = quota.Usage

// New returns a Limiter for cfg. The error names everything that is wrong with cfg.
func New(cfg Config) (*Limiter, error) {
	l := &Limiter{bring: cfg.CreateMissing}
	if cfg.Engine != nil {
		l.shared = cfg.Engine.SharedLimits()
	}
	l.usageAccess = quota.NewUsage(l.shared)
	l.set.Store(&map[string]*keyed{})
	var all []error
	for _, c := range cfg.Limits {
		if _, twice := (*l.set.Load())[c.Name]; twice {
			all = append(all, fmt.Errorf("limit %q: there are two of that name", c.Name))
			continue
		}
		all = append(all, l.SetLimit(c))
	}
	l.shared.SetRules(l.sharedDefinition)
	return l, errors.Join(all...)
}

// SetLimit creates a limit, or changes the limit of that name. What its keys have used stays used,
// unless the unit changes.
func (l *Limiter) SetLimit(c Limit) error {
	d, err := c.define()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.putLocked(d)
	return nil
}

// Update changes an existing limit atomically. It calls change with the configuration in force;
// change must not call the Limiter. Update returns an error of change unchanged.
func (l *Limiter) Update(name string, change func(*Limit) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := (*l.set.Load())[name]
	if k == nil {
		return fmt.Errorf("%w: %q", ErrNoLimit, name)
	}
	c := k.cfg.Load().Limit
	c.Overrides, c.Plans = maps.Clone(c.Overrides), maps.Clone(c.Plans)
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

// putLocked puts a definition into force. Usage in another unit is discarded.
func (l *Limiter) putLocked(d *definition) {
	old := *l.set.Load()
	if k := old[d.Name]; k != nil && k.cfg.Load().Unit == d.Unit && k.cfg.Load().Scope == d.Scope {
		k.cfg.Store(d) // each part changes at its next request
		return
	}
	next := maps.Clone(old)
	k := &keyed{}
	k.Init(l.client(d), l.usageAccess)
	k.cfg.Store(d)
	next[d.Name] = k
	l.set.Store(&next)
}

// client returns the client that requests the keys of a limit from their host, or nil if this
// process counts them.
func (l *Limiter) client(d *definition) *quota.LimitClient {
	if d.Scope == ScopeWorker {
		return nil
	}
	return l.shared.Limit(d.Name, d.Scope == ScopeGlobal)
}

// sharedDefinition returns the definition of a limit that is in force here, or nil if the limit is
// not shared.
func (l *Limiter) sharedDefinition(name string) *quota.Definition {
	k := (*l.set.Load())[name]
	if k == nil {
		k = l.brought(name)
	}
	if k == nil || k.cfg.Load().Scope == ScopeWorker {
		return nil
	}
	return &k.cfg.Load().quota
}

// Remove deletes a limit and its keys.
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

// Limits returns all limits, sorted by name.
func (l *Limiter) Limits() (all []*Limit) {
	set := *l.set.Load()
	for _, name := range slices.Sorted(maps.Keys(set)) {
		all = append(all, &set[name].cfg.Load().Limit)
	}
	return all
}

// at returns a limit as it is in force now, and the key under which it counts.
func (l *Limiter) at(a *Check) (*keyed, *definition, string, error) {
	k := (*l.set.Load())[a.Limit]
	if k == nil {
		if k = l.brought(a.Limit); k == nil {
			return nil, nil, "", fmt.Errorf("%w: %q", ErrNoLimit, a.Limit)
		}
	}
	if len(a.Key) > MaxKey {
		return nil, nil, "", fmt.Errorf("%w: %d bytes, want %d at most", ErrKey, len(a.Key), MaxKey)
	}
	d := k.cfg.Load()
	return k, d, d.counted(a), nil
}

// mostBrought is the number of existing limits from which on none is created on request. Chosen.
const mostBrought = 10_000

// brought creates a limit on request. It returns nil if that is not possible.
func (l *Limiter) brought(name string) *keyed {
	if l.bring == nil || len(*l.set.Load()) >= mostBrought {
		return nil
	}
	if c, ok := l.bring(name); !ok || c.Name != name || l.SetLimit(c) != nil {
		return nil
	}
	return (*l.set.Load())[name]
}

// verdict converts a result of the limit.
func (d *definition) verdict(v quota.Result) Result {
	return Result{Decision: v.Decision, Limit: &d.Limit, Exceeded: v.Exceeded}
}

// askErr adds the check to an error.
func askErr(a Check, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, limittable.ErrSettled), errors.Is(err, quota.ErrNoHold):
		return ErrNoReservation
	case errors.Is(err, quota.ErrUnreachable):
		return ErrUnreachable
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return fmt.Errorf("%w: %d", ErrCost, a.Cost)
}

// Allow takes a.Cost units of a key, all or none.
func (l *Limiter) Allow(ctx context.Context, a Check) (v Result, err error) {
	k, d, key, err := l.at(&a)
	if err != nil {
		return v, err
	}
	v.Limit = &d.Limit
	if v.Exceeded, err = k.Take(ctx, &d.quota, key, a.Cost, &v.Decision); err != nil {
		return v, askErr(a, err)
	}
	return v, nil
}

// A Hold is the amount taken by Limiter.Hold. It counts against the limit until Use marks it as
// used, from that moment on, or until Return gives it back. If the process dies, its held units
// count as used some seconds later. The zero Hold holds nothing. The caller must guard a Hold.
type Hold struct{ units quota.Hold }

// IsLocal reports whether only this process counts the key; the count ends with the process.
func (h *Hold) IsLocal() bool { return h.units.IsLocal() }

// Left returns the number of units held.
func (h *Hold) Left() int64 { return h.units.Left() }

// Lapsed reports whether what is held counts as used already, because the process that counts the
// key was out of reach for some seconds.
func (h *Hold) Lapsed() bool { return h.units.Lapsed() }

// Use reports that n of the held units were used, now at the latest. It does not block.
func (h *Hold) Use(n int64) { h.units.Use(n) }

// Return returns n of the held units unused. It does not block.
func (h *Hold) Return(n int64) { h.units.Return(n) }

// Waiters describes which callers in this process wait for an amount of a key. The processes take
// turns.
type Waiters struct {
	Weight int64 // of all waiting callers, at least 1
	More   int64 // units wanted in addition to the present request
	Spread bool  // spread over the window instead of all at once

	// Momentary reports that no caller waits: the units are held during another request and then
	// used or returned at once.
	Momentary bool
}

// Hold takes a.Cost units of a key, all or none. It is for a service that may count the call at any
// moment before it answers.
func (l *Limiter) Hold(ctx context.Context, a Check, t Waiters) (h Hold, v Result, err error) {
	k, d, key, err := l.at(&a)
	if err != nil {
		return h, v, err
	}
	units, told, err := k.Hold(ctx, &d.quota, key, a.Cost, quota.Waiters(t))
	return Hold{units}, d.verdict(told), askErr(a, err)
}

// Limit returns a limit as it is in force. The caller must not change it.
func (l *Limiter) Limit(name string) (*Limit, error) {
	_, d, _, err := l.at(&Check{Limit: name})
	if err != nil {
		return nil, err
	}
	return &d.Limit, nil
}

// Peek reports whether a.Cost would be allowed, and takes nothing. The key may be in the form that
// Keys returns.
func (l *Limiter) Peek(ctx context.Context, a Check) (Result, error) {
	key := findKey(a.Key)
	if a.Plan != "" {
		_, _, counted, err := l.at(&a)
		if err != nil {
			return Result{}, err
		}
		key = counted
	}
	return l.look(ctx, a, a.Cost, key)
}

// look reports whether cost would be allowed in place of a.Cost. a must be valid for the limit.
func (l *Limiter) look(ctx context.Context, a Check, cost int64, key string) (Result, error) {
	k, d, err := l.possible(a)
	if err != nil {
		return Result{}, err
	}
	v, err := k.Peek(ctx, &d.quota, key, max(0, cost))
	if err != nil {
		return Result{Limit: &d.Limit}, askErr(a, err)
	}
	return d.verdict(v), nil
}

// possible returns the limit of a, or an error if the limit can never allow such a cost.
func (l *Limiter) possible(a Check) (*keyed, *definition, error) {
	k, d, _, err := l.at(&a)
	if err == nil && (a.Cost > limit.MaxAmount || a.Cost < -limit.MaxAmount || a.Cost < 0 && d.quota.Calls) {
		err = fmt.Errorf("%w: %d", ErrCost, a.Cost)
	}
	return k, d, err
}

// Explain returns why calls of a key are rejected: the limit, its usage, and when there is more.
func (l *Limiter) Explain(name, key string) (Result, error) {
	return l.Peek(context.Background(), Check{Limit: name, Key: key, Cost: 1})
}

// Reserve takes an estimate, which must be settled within ttl. After ttl the estimate counts as the
// cost.
func (l *Limiter) Reserve(ctx context.Context, a Check, ttl time.Duration) (Result, error) {
	k, d, key, err := l.at(&a)
	if err != nil {
		return Result{}, err
	}
	v, err := k.Reserve(ctx, &d.quota, key, a.Cost, ttl)
	if errors.Is(err, limittable.ErrCost) || errors.Is(err, quota.ErrCost) {
		return Result{}, fmt.Errorf("%w: %d for %v", ErrCost, a.Cost, ttl)
	} else if err != nil {
		return Result{}, askErr(a, err)
	}
	return d.verdict(v), nil
}

// Settle replaces the estimate of a reservation by the real cost, a.Cost. If the cost was less, the
// difference is given back; if it was more, the key owes the difference. For a call in progress
// Settle is the end. An id of 0 belongs to a call beyond a limit that is soft or in shadow mode: there is
// nothing to settle.
func (l *Limiter) Settle(ctx context.Context, a Check, id uint64) error {
	if id == 0 {
		return nil
	}
	k, d, key, err := l.at(&a)
	if err != nil {
		return err
	}
	err = askErr(a, k.Settle(ctx, &d.quota, key, id, a.Cost))
	if a.Plan != "" && errors.Is(err, ErrNoReservation) { // the plans of the limit may have changed since
		err = askErr(a, k.Settle(ctx, &d.quota, otherKey(&a, key), id, a.Cost))
	}
	return err
}

// Renew restarts the lease of a call in progress with its full duration. It returns
// ErrNoReservation if the lease has ended or never existed.
func (l *Limiter) Renew(ctx context.Context, a Check, id uint64) error {
	k, d, key, err := l.at(&a)
	if err != nil || id == 0 {
		return err
	}
	return askErr(a, k.Renew(ctx, &d.quota, key, id))
}

// allAtOnce is how long AllowAll may hold what it has taken while it takes the rest. Chosen.
const allAtOnce = time.Minute

// AllowAll takes from several limits. If all is true, it takes either everything or nothing, and
// Allowed of a result says whether that limit alone would have allowed the call. AllowAll first
// checks all limits, so that a call rejected by one limit delays nobody at the others. Checks of
// one limit and key count as one check of the sum of their costs and get the same result: 3 and -3
// use nothing, and are allowed whatever is left. Calls in progress stay separate, because each ends
// on its own.
func (l *Limiter) AllowAll(
	ctx context.Context, asks []Check, all bool,
) (verdicts []Result, err error) {
	verdicts = make([]Result, len(asks))
	for _, a := range asks { // reject impossible checks before anything is taken
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
	asks = slices.Clone(asks)
	for i := range asks { // plans that count under the same key are one
		if a := &asks[i]; a.Plan != "" {
			if _, d, _, err := l.at(a); err == nil {
				a.Plan = d.planOf(a.Plan, countedKey(a.Key))
			}
		}
	}
	first, sums := quota.SumCosts(len(asks), func(i int) (Check, int64) {
		return Check{Limit: asks[i].Limit, Key: asks[i].Key, Plan: asks[i].Plan}, asks[i].Cost
	})
	for i, a := range asks {
		if _, d, _, err := l.at(&a); err == nil && d.quota.Calls {
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

// takeAll takes everything in asks, or nothing. sums are the amounts that have to fit for each
// check.
func (l *Limiter) takeAll(
	ctx context.Context, asks []Check, sums []int64, verdicts []Result,
) (err error) {
	held := make([]*Hold, len(asks)) // borrowed amounts, often without a message; nil: the rest
	if pass, err := l.lookAll(ctx, asks, sums, verdicts, held); err != nil || !pass {
		l.refuse(asks, verdicts, held)
		return err
	}
	for i, a := range asks {
		switch v := &verdicts[i]; {
		case a.Cost < 0, held[i] != nil: // after all else is taken
		case v.Limit.Algorithm == limit.Concurrency || a.Cost == 0:
			*v, err = l.Allow(ctx, a)
		default:
			*v, err = l.Reserve(ctx, a, allAtOnce)
		}
		if err != nil || !verdicts[i].Allowed { // another caller was faster
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
			_ = l.Settle(ctx, a, v.ID) // to the amount taken; the limit may just have been removed
			v.ID = 0
		}
	}
	return nil
}

// lookAll reports whether everything in asks would be allowed, and holds what is borrowed; it takes
// nothing else. It checks a limit and key that occur twice as one, because together they might
// never be allowed.
func (l *Limiter) lookAll(
	ctx context.Context, asks []Check, sums []int64, verdicts []Result, held []*Hold,
) (pass bool, err error) {
	pass = true
	for i, a := range asks {
		k, d, key, err := l.at(&a)
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

// undo gives back what AllowAll has already taken.
func (l *Limiter) undo(ctx context.Context, asks []Check, verdicts []Result) {
	for i, a := range asks {
		v := &verdicts[i]
		if v.ID == 0 {
			continue
		}
		if k, d, key, err := l.at(&a); err == nil {
			if now, err := k.Undo(ctx, &d.quota, key, v.ID); err == nil {
				v.Remaining, v.Reset = now.Remaining, now.Reset
			}
		}
		v.ID, v.Wait = 0, 0
	}
}

// back gives back what is held.
func back(held []*Hold, verdicts []Result) {
	for i, h := range held {
		if h != nil {
			verdicts[i].Remaining += h.Left()
			h.Return(h.Left())
		}
	}
}

// refuse counts the rejections of a combined check, and takes nothing.
func (l *Limiter) refuse(asks []Check, verdicts []Result, held []*Hold) {
	back(held, verdicts)
	for i, v := range verdicts {
		if v.Limit == nil || v.Allowed || held[i] != nil {
			continue
		}
		if k, _, key, err := l.at(&asks[i]); err == nil {
			k.CountRefusal(key)
		}
	}
}

// Reset deletes what a key has used, and its calls in progress. The key may be in the form that
// Keys returns.
func (l *Limiter) Reset(name, key string) error {
	k, d, _, err := l.at(&Check{Limit: name, Key: key})
	if err != nil {
		return err
	}
	return askErr(Check{}, k.Reset(context.Background(), &d.quota, findKey(key)))
}

// Keys returns up to count keys that have used any of a limit, beginning at from. from is the value
// next of the previous call; "" is the beginning, and a next of "" is the end. Keys that appear or
// disappear between calls may be missed; a key that stays is returned once. A count below 1 is an
// error.
func (l *Limiter) Keys(name, from string, count int) (all []limit.Usage, next string, err error) {
	if count < 1 {
		return nil, "", fmt.Errorf("%w: %d keys at once, want at least 1", ErrKey, count)
	}
	k, d, _, err := l.at(&Check{Limit: name})
	if err != nil {
		return nil, "", err
	}
	part, n, err := quota.ParseCursor(from)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", ErrKey, err)
	}
	all, part, n, err = k.Usage(context.Background(), &d.quota, part, n, count)
	if err != nil {
		return nil, "", askErr(Check{}, err)
	}
	return all, quota.FormatCursor(part, n), nil
}

// Counts are what a limit has decided since the process started.
type Counts struct {
	Passed, Refused, Exceeded uint64
	Unreachable               uint64 // decided without the host of the key
	Keys                      int    // held here
}

// Totals returns what a limit has decided.
func (l *Limiter) Totals(name string) (t Counts, err error) {
	k, _, _, err := l.at(&Check{Limit: name})
	if err != nil {
		return t, err
	}
	return Counts(k.Totals()), nil
}
