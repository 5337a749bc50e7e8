package quota

import (
	"context"
	"errors"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/limit"
)

// A Policy says what to do while the host of a key is unreachable.
type Policy uint8

// The policies.
const (
	PolicyLocal Policy = iota // this process counts, with a part of the amount
	PolicyDeny
	PolicyAllow
)

// denied is the retry time when no host can be reached. Chosen.
const denied = time.Second

// countedHere is set in the IDs of reservations that this process counts itself, because the host
// of the key was unreachable.
const countedHere = 1 << 63

// A Result is the result of a decision.
type Result struct {
	limit.Decision
	Exceeded bool // Allowed only because the limit is lenient
}

// Totals counts the decisions about a limit in this process.
type Totals struct {
	Passed, Refused, Exceeded uint64
	Unreachable               uint64 // decided without the host of the key
	Keys                      int    // held here
}

// Keys are the keys of one limit, counted in this process or at the host of each key. Init must be
// called first.
type Keys struct {
	parts [Shards]part // first: aligned to cache lines
	lane  *LimitClient // nil: counted here
	own   *ownUsage    // nil: not recorded here
	seed  maphash.Seed
	began time.Time
	epoch limittable.Time // time of the start

	unreachable atomic.Uint64
	alone       atomic.Pointer[alone]
}

// An alone is a limit of which this process counts a part.
type alone struct {
	of     *Definition
	among  int
	limits *Definition
}

// A part holds some keys of a limit. It fills whole cache lines, and the fields that each decision
// writes are together in the first one.
type part struct {
	mu sync.Mutex

	passed, refused, exceeded uint64

	def   *Definition // the definition of table; nil: no key yet
	table limittable.Table
}

// Init prepares the keys of a limit. lane sends requests for the keys that are not counted here.
func (k *Keys) Init(lane *LimitClient, u Usage) {
	if lane == nil {
		k.own = u.own
	}
	k.lane, k.seed, k.began = lane, maphash.MakeSeed(), time.Now()
	k.epoch = limittable.Time(k.began.UnixNano())
}

// now returns the time by which a limit counts: the wall clock for windows aligned to it, otherwise
// a clock that steps of the wall clock do not affect.
func (k *Keys) now(d *Definition) limittable.Time {
	if d.Wall {
		return limittable.Time(time.Now().UnixNano())
	}
	return k.epoch + limittable.Time(time.Since(k.began))
}

// at returns the part of a key, locked, with its table set to the rules of d.
func (k *Keys) at(d *Definition, key string) (p *part, hash uint64, now limittable.Time) {
	h := maphash.String(k.seed, key)
	p = &k.parts[h>>56]
	p.mu.Lock()
	now = k.now(d)
	if p.def != d {
		p.define(d, now)
	}
	return p, h, now
}

// define sets a part to the rules in force. The caller holds mu.
func (p *part) define(d *Definition, now limittable.Time) {
	if p.def == nil {
		// Random, so that the end of a call from before a restart, or from before the limit was
		// removed and created again, does not end a present call.
		p.table.StartIDs(rand.Uint64() >> 2)
	}
	p.def = d
	p.table.SetRules(now, d.Rules, partOf(d.MaxKeys))
	p.table.SetForgiving(d.Lenient)
}

// partOf returns the maximum number of a limit's keys in one part. Keys are distributed over the
// parts by a Poisson law. Six standard deviations above the mean, plus one, are not reached before
// the whole limit is nearly full.
func partOf(keys int) int {
	mean := float64(keys) / Shards
	return int(math.Ceil(mean + 6*math.Sqrt(mean) + 1))
}

// count counts a decision. A lenient limit allows what it would reject, and count reports true. The caller
// holds mu.
func (p *part) count(d *Definition, v *limit.Decision, counts bool) (exceeded bool) {
	if d.Lenient {
		v.Wait = 0
	}
	switch {
	case v.Allowed:
		if counts {
			p.passed++
		}
	case d.Lenient:
		v.Allowed = true
		if counts {
			p.exceeded++
		}
		return true
	case counts:
		p.refused++
	}
	return false
}

// Take takes n units of a key, all or none, and stores the decision in v. Exceeded reports that it
// is allowed only because the limit is lenient.
func (k *Keys) Take(
	ctx context.Context, d *Definition, key string, n int64, v *limit.Decision,
) (exceeded bool, err error) {
	if k.lane != nil {
		t, err := k.takeShared(ctx, d, key, n)
		*v = t.Decision
		return t.Exceeded, err
	}
	p, hash, now := k.at(d, key)
	before := int64(0)
	if n < 0 && d.Usage {
		before = p.table.Used(now, hash)
	}
	if err = p.table.Decide(now, hash, key, n, v); err == nil {
		switch {
		case n > 0 && v.Allowed:
			k.own.spend(d, key, n)
		case n < 0 && d.Usage:
			k.own.spend(d, key, p.table.Used(now, hash)-before)
		}
		exceeded = p.count(d, v, n > 0)
	}
	p.mu.Unlock()
	return exceeded, err
}

// takeShared takes from a limit that several nodes share. If its host is out of reach, the rule of
// the limit for that case decides.
func (k *Keys) takeShared(ctx context.Context, d *Definition, key string, n int64) (v Result, err error) {
	k.lane.under(d)
	switch {
	case n > limit.MaxAmount || n < -limit.MaxAmount:
		return v, limittable.ErrCost
	// A call in progress ends by its hold, not by giving back a number of calls.
	case n < 0 && d.Calls:
		return v, limittable.ErrNothingToReserve
	case n == 0:
		v.Decision, err = k.lane.Peek(ctx, key, 0)
	// Only what is taken can come from units lent to this process.
	case n > 0 && d.Lends:
		v.Decision, err = k.lane.Take(ctx, key, n)
	default:
		v.Decision, err = k.lane.TakeAtHost(ctx, key, n)
	}
	if errors.Is(err, ErrUnreachable) {
		v.Decision, err = k.decideAlone(d, func(x *Definition) (limit.Decision, error) {
			p, hash, now := k.at(x, key)
			defer p.mu.Unlock()
			return p.table.Take(now, hash, key, n)
		})
	}
	if err == nil {
		k.note(d, key, &v, n > 0)
	}
	return v, err
}

// note counts a decision made elsewhere.
func (k *Keys) note(d *Definition, key string, v *Result, counts bool) {
	p := &k.parts[maphash.String(k.seed, key)>>56]
	p.mu.Lock()
	v.Exceeded = p.count(d, &v.Decision, counts)
	p.mu.Unlock()
}

// decideAlone decides without the host of a key, according to the limit's policy.
func (k *Keys) decideAlone(
	d *Definition, here func(*Definition) (limit.Decision, error),
) (v limit.Decision, err error) {
	k.unreachable.Add(1)
	switch d.Policy {
	case PolicyDeny:
		return limit.Decision{Amount: d.Rules.MaxCost(), Retry: denied, Local: true}, nil
	case PolicyAllow:
		return limit.Decision{Allowed: true, Amount: d.Rules.MaxCost(), Local: true}, nil
	}
	among := k.lane.desk.Borrowers()
	x := k.alone.Load()
	if x == nil || x.of != d || x.among != among {
		rules, err := d.Divide(among)
		if err != nil {
			return v, err
		}
		part := *d
		part.Rules = rules
		x = &alone{d, among, &part}
		k.alone.Store(x)
	}
	v, err = here(x.limits)
	if v.Retry < 0 && v.Amount > 0 { // more than this part; the whole limit may have it
		v.Retry = denied
	}
	if v.Local = true; v.ID != 0 {
		v.ID |= countedHere
	}
	return v, err
}

// Peek returns the decision for n units without taking them.
func (k *Keys) Peek(ctx context.Context, d *Definition, key string, n int64) (v Result, err error) {
	if k.lane != nil {
		v.Decision, err = k.lane.Peek(ctx, key, n)
		if errors.Is(err, ErrUnreachable) {
			v.Decision, err = k.decideAlone(d, func(x *Definition) (limit.Decision, error) {
				p, hash, now := k.at(x, key)
				defer p.mu.Unlock()
				return p.table.Peek(now, hash, key, n), nil
			})
		}
		if err == nil {
			k.note(d, key, &v, false)
		}
		return v, err
	}
	p, hash, now := k.at(d, key)
	defer p.mu.Unlock()
	v.Decision = p.table.Peek(now, hash, key, n)
	v.Exceeded = p.count(d, &v.Decision, false)
	return v, nil
}

// Reserve takes an estimated cost, to be settled within ttl.
func (k *Keys) Reserve(
	ctx context.Context, d *Definition, key string, n int64, ttl time.Duration,
) (v Result, err error) {
	here := func(x *Definition) (limit.Decision, error) {
		p, hash, now := k.at(x, key)
		defer p.mu.Unlock()
		return p.table.Reserve(now, hash, key, n, ttl)
	}
	if k.lane == nil {
		if v.Decision, err = here(d); err == nil && v.Allowed {
			k.own.hold(d, key, v.ID, n, ttl)
		}
	} else if v.Decision, err = k.lane.Reserve(ctx, key, n, ttl); errors.Is(err, ErrUnreachable) {
		v.Decision, err = k.decideAlone(d, here)
	}
	if err == nil {
		k.note(d, key, &v, true)
	}
	return v, err
}

// Settle reports the actual cost of a reservation, or ends a call.
func (k *Keys) Settle(ctx context.Context, d *Definition, key string, id uint64, n int64) error {
	if n < 0 || n > limit.MaxAmount { // some of them mean something else to the host: renewal, naming
		return limittable.ErrCost
	}
	if k.lane != nil && id&countedHere == 0 {
		_, err := k.lane.Settle(ctx, key, id, n)
		return err
	}
	p, hash, now := k.at(d, key)
	defer p.mu.Unlock()
	err := p.table.Settle(now, hash, id&^countedHere, n)
	if err == nil {
		k.own.settle(d, key, id, n)
	}
	return err
}

// Undo returns a reservation as if it had never been made, and returns the state after that.
func (k *Keys) Undo(ctx context.Context, d *Definition, key string, id uint64) (v Result, err error) {
	if err = k.Settle(ctx, d, key, id, 0); err != nil {
		return v, err
	}
	k.unpass(key)
	return k.Peek(ctx, d, key, 0)
}

// unpass reverts the count of one allowed decision.
func (k *Keys) unpass(key string) {
	p := &k.parts[maphash.String(k.seed, key)>>56]
	p.mu.Lock()
	p.passed--
	p.mu.Unlock()
}

// CountRefusal counts a denial that was made without a request.
func (k *Keys) CountRefusal(key string) {
	p := &k.parts[maphash.String(k.seed, key)>>56]
	p.mu.Lock()
	p.refused++
	p.mu.Unlock()
}

// Reset clears the usage of a key and its calls in progress.
func (k *Keys) Reset(ctx context.Context, d *Definition, key string) error {
	p, hash, _ := k.at(d, key)
	p.table.Reset(hash)
	p.mu.Unlock()
	if k.lane != nil {
		return k.lane.Reset(ctx, key)
	}
	return nil
}

// Usage returns up to count keys with usage, from a part and a place in it. It also returns where
// the next page begins; Shards means the end.
func (k *Keys) Usage(
	ctx context.Context, d *Definition, part, from, count int,
) (all []limit.Usage, nextPart, next int, err error) {
	if k.lane != nil {
		return k.lane.desk.uses(ctx, d.Name, usesAt{part, from, count})
	}
	for i := part; i < Shards; i, from = i+1, 0 {
		if len(all) >= count {
			return all, i, 0, nil
		}
		p := &k.parts[i]
		p.mu.Lock()
		n := 0
		if p.def != nil {
			var some []limit.Usage
			some, n = p.table.Usage(k.now(p.def), from, count-len(all))
			all = append(all, some...)
		}
		p.mu.Unlock()
		if n > 0 {
			return all, i, n, nil
		}
	}
	return all, Shards, 0, nil
}

// Totals returns the counts of decisions.
func (k *Keys) Totals() (t Totals) {
	for i := range k.parts {
		p := &k.parts[i]
		p.mu.Lock()
		t.Passed, t.Refused, t.Exceeded = t.Passed+p.passed, t.Refused+p.refused, t.Exceeded+p.exceeded
		t.Keys += p.table.Len()
		p.mu.Unlock()
	}
	t.Unreachable = k.unreachable.Load()
	if k.lane != nil {
		t.Keys = k.lane.len()
	}
	return t
}
