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

	"github.com/headgate/headgate/limit"
)

// Policy says what is done while the host of a key is out of reach.
type Policy uint8

// The policies.
const (
	PolicyLocal Policy = iota // this process counts, a part of the amount
	PolicyDeny
	PolicyAllow
)

// denied is when to come again when nobody can be asked. Chosen.
const denied = time.Second

// countedHere marks reservations that this process keeps, of a key whose host was out of
// reach.
const countedHere = 1 << 63

// Told is what a call is told.
type Result struct {
	limit.Decision
	Shadowed bool // Allowed only because the limit refuses nobody
}

// Totals count what a limit has decided in this process.
type Totals struct {
	Passed, Refused, Shadowed uint64
	Unreachable               uint64 // decided without the host of the key
	Keys                      int    // held here
}

// Keys are the keys of one limit: counted here, or wherever each has its host. Init must
// come first.
type Keys struct {
	parts [Shards]part // first: at the beginning of cache lines
	lane  *LimitClient // nil: counted here
	seed  maphash.Seed
	began time.Time
	epoch limit.Time // began

	unreachable atomic.Uint64
	alone       atomic.Pointer[alone]
}

// alone is a limit of which this process counts a part.
type alone struct {
	of     *Definition
	among  int
	limits *Definition
}

// part is some of the keys of a limit. It takes whole cache lines, and what each decision
// writes lies together in the first.
type part struct {
	mu sync.Mutex

	passed, refused, shadowed uint64

	def   *Definition // that table is under; nil: no key yet
	table limit.Table
}

// Init readies the keys of a limit; lane is where those are asked for that are not counted
// here.
func (k *Keys) Init(lane *LimitClient) {
	k.lane, k.seed, k.began = lane, maphash.MakeSeed(), time.Now()
	k.epoch = limit.Time(k.began.UnixNano())
}

// now is the time by which a limit counts: that of the wall for windows that are aligned to
// it, else one that no clock step moves.
func (k *Keys) now(d *Definition) limit.Time {
	if d.Wall {
		return limit.Time(time.Now().UnixNano())
	}
	return k.epoch + limit.Time(time.Since(k.began))
}

// at finds the part of a key, locked, with its table under the rules of d.
func (k *Keys) at(d *Definition, key string) (p *part, hash uint64, now limit.Time) {
	h := maphash.String(k.seed, key)
	p = &k.parts[h>>56]
	p.mu.Lock()
	now = k.now(d)
	if p.def != d {
		p.define(d, now)
	}
	return p, h, now
}

// define brings a part to the rules that are in force. Holds mu.
func (p *part) define(d *Definition, now limit.Time) {
	if p.def == nil {
		// Random: whoever ends a call of before a restart, or of before the limit was
		// removed and made again, must not end one of now.
		p.table.StartIDs(rand.Uint64() >> 1)
	}
	p.def = d
	p.table.SetRules(now, d.Rules, partOf(d.MaxKeys))
	p.table.SetForgiving(d.Shadow)
}

// partOf is how many of a limit's keys one part holds at most: keys fall into parts as by a
// Poisson law, and six of its standard deviations more than the mean, and one, are not
// reached before the whole is about full.
func partOf(keys int) int {
	mean := float64(keys) / Shards
	return int(math.Ceil(mean + 6*math.Sqrt(mean) + 1))
}

// count counts what is told, and lets shadow mode pass it. Holds mu.
func (p *part) count(d *Definition, v *limit.Decision, counts bool) (shadowed bool) {
	if d.Shadow {
		v.Wait = 0
	}
	switch {
	case v.Allowed:
		if counts {
			p.passed++
		}
	case d.Shadow:
		v.Allowed = true
		if counts {
			p.shadowed++
		}
		return true
	case counts:
		p.refused++
	}
	return false
}

// Take takes n of a key, all or nothing, and decides into v. Shadowed says that it is allowed
// only because the limit refuses nobody.
func (k *Keys) Take(
	ctx context.Context, d *Definition, key string, n int64, v *limit.Decision,
) (shadowed bool, err error) {
	if k.lane != nil {
		t, err := k.takeShared(ctx, d, key, n)
		*v = t.Decision
		return t.Shadowed, err
	}
	p, hash, now := k.at(d, key)
	if err = p.table.Decide(now, hash, key, n, v); err == nil {
		shadowed = p.count(d, v, n > 0)
	}
	p.mu.Unlock()
	return shadowed, err
}

func (k *Keys) takeShared(ctx context.Context, d *Definition, key string, n int64) (v Result, err error) {
	k.lane.under(d)
	switch {
	case n > limit.MaxAmount || n < -limit.MaxAmount:
		return v, limit.ErrCost
	case n < 0 && d.Calls:
		return v, limit.ErrNothingToReserve
	case n == 0:
		v.Decision, err = k.lane.Peek(ctx, key, 0)
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

// note counts what was decided elsewhere.
func (k *Keys) note(d *Definition, key string, v *Result, counts bool) {
	p := &k.parts[maphash.String(k.seed, key)>>56]
	p.mu.Lock()
	v.Shadowed = p.count(d, &v.Decision, counts)
	p.mu.Unlock()
}

// decideAlone decides without the host of a key, by the limit's policy.
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
	if v.Retry < 0 && v.Amount > 0 { // more than this part has; the whole may have it
		v.Retry = denied
	}
	if v.Local = true; v.ID != 0 {
		v.ID |= countedHere
	}
	return v, err
}

// Peek tells whether n would pass, and takes nothing.
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
	v.Shadowed = p.count(d, &v.Decision, false)
	return v, nil
}

// Reserve takes an estimate, to be settled within ttl.
func (k *Keys) Reserve(
	ctx context.Context, d *Definition, key string, n int64, ttl time.Duration,
) (v Result, err error) {
	here := func(x *Definition) (limit.Decision, error) {
		p, hash, now := k.at(x, key)
		defer p.mu.Unlock()
		return p.table.Reserve(now, hash, key, n, ttl)
	}
	if k.lane == nil {
		v.Decision, err = here(d)
	} else if v.Decision, err = k.lane.Reserve(ctx, key, n, ttl); errors.Is(err, ErrUnreachable) {
		v.Decision, err = k.decideAlone(d, here)
	}
	if err == nil {
		k.note(d, key, &v, true)
	}
	return v, err
}

// Settle says what a reservation came to, or ends a call.
func (k *Keys) Settle(ctx context.Context, d *Definition, key string, id uint64, n int64) error {
	if k.lane != nil && id&countedHere == 0 {
		_, err := k.lane.Settle(ctx, key, id, n)
		return err
	}
	p, hash, now := k.at(d, key)
	defer p.mu.Unlock()
	return p.table.Settle(now, hash, id&^countedHere, n)
}

// Undo gives a reservation back as if it had never been, and tells what there is then.
func (k *Keys) Undo(ctx context.Context, d *Definition, key string, id uint64) (v Result, err error) {
	if err = k.Settle(ctx, d, key, id, 0); err != nil {
		return v, err
	}
	k.unpass(key)
	return k.Peek(ctx, d, key, 0)
}

// unpass counts one less that has passed.
func (k *Keys) unpass(key string) {
	p := &k.parts[maphash.String(k.seed, key)>>56]
	p.mu.Lock()
	p.passed--
	p.mu.Unlock()
}

// Refused counts a refusal that nothing was asked for.
func (k *Keys) CountRefusal(key string) {
	p := &k.parts[maphash.String(k.seed, key)>>56]
	p.mu.Lock()
	p.refused++
	p.mu.Unlock()
}

// Reset forgets what a key has used, and its calls under way.
func (k *Keys) Reset(ctx context.Context, d *Definition, key string) error {
	p, hash, _ := k.at(d, key)
	p.table.Reset(hash)
	p.mu.Unlock()
	if k.lane != nil {
		return k.lane.Reset(ctx, key)
	}
	return nil
}

// Uses are up to count keys that have used any, from a part and a place in it on; the next
// ones are said, Shards at the end.
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

// Totals tells what was decided.
func (k *Keys) Totals() (t Totals) {
	for i := range k.parts {
		p := &k.parts[i]
		p.mu.Lock()
		t.Passed, t.Refused, t.Shadowed = t.Passed+p.passed, t.Refused+p.refused, t.Shadowed+p.shadowed
		t.Keys += p.table.Len()
		p.mu.Unlock()
	}
	t.Unreachable = k.unreachable.Load()
	if k.lane != nil {
		t.Keys = k.lane.len()
	}
	return t
}
