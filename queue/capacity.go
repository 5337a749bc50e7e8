package queue

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/limit"
)

// A Use is one limit that a queue's jobs take from.
type LimitUse struct {
	Limit     string
	Key       string // whose part of it; "" is the one of all
	PerTenant bool   // each tenant has a part of its own: Key is the tenant's name
	Reserved  string // a part of the limit that is tried first (headgate.LimitConfig.Reserved); "": none
}

// Limits is what a Capacity needs of a headgate.Limiter. Hold may block for a round trip.
type Limits interface {
	Limit(name string) (*headgate.LimitConfig, error)
	Hold(context.Context, headgate.LimitCheck, headgate.Waiters) (headgate.Hold, headgate.LimitResult, error)
}

// Capacity is what queues may take from limits. What a job takes is held from its departure
// to its answer, and used as of the answer: until then the target may have counted it at any
// moment. The limits know it, so it does not matter who else uses them, and where. Queues of
// one process that share a limit must share one Capacity: it says whose turn it is, and
// spreads what goes out. It may be used by many goroutines at once.
type Capacity struct {
	limits Limits

	mu      sync.Mutex // never held while the limits are asked
	ledgers map[ledgerKey]*ledger
}

type ledgerKey struct{ limit, key string }

// A ledger is whose turn it is for one key of a limit, and when.
type ledger struct {
	of      *headgate.LimitConfig
	amount  int64 // in a window
	most    int64 // that passes at once, as was last said; 0: nothing was
	window  time.Duration
	paces   bool      // what is taken is spread over the window
	next    time.Time // of what is spread
	waited  bool      // somebody was told to wait for next, and has not caught up yet
	members map[*member]*turn
}

// A turn is how much one queue has had of a ledger.
type turn struct {
	used  float64   // cost by weight
	wants time.Time // it waits for this ledger, and says so until then
	asked time.Time // when it did last
}

// A member is a queue among those that share.
type member struct {
	weight float64
	smooth bool
}

// Parameters of capacity. Chosen: a pace may be caught up with for as long as a timer is late
// on a busy machine, and timers that are nearer than shortPause cost more than they are worth.
const (
	mostBehind = 50 * time.Millisecond
	shortPause = 500 * time.Microsecond
	wantsFor   = 50 * time.Millisecond
	presentFor = time.Second // since a queue has asked last
	shortWait  = time.Millisecond
	longWait   = 250 * time.Millisecond
	longestWin = time.Minute // that a queue waits for after a start (docs/design.md §6)
	idleLedger = 10_000      // ledgers of keys; beyond it those that nobody asks for go
)

// NewCapacity makes a Capacity of limits.
func NewCapacity(limits Limits) *Capacity {
	return &Capacity{limits: limits, ledgers: map[ledgerKey]*ledger{}}
}

// A load is a job as limits see it.
type load struct {
	tenant string
	cost   int64
	bytes  int64
	more   int64 // jobs that could go beside it
	units  bool  // cost is in the unit of each limit
}

// costOf is what it takes of a limit.
func (ld *load) costOf(unit headgate.Unit) int64 {
	switch {
	case ld.units:
	case unit == headgate.Requests:
		return 1
	case unit == headgate.RequestBytes, unit == headgate.ResponseBytes:
		return max(1, ld.bytes)
	}
	return ld.cost
}

// A taken is what a job has of limits.
type taken struct {
	parts []takenPart
	at    time.Time // it must not go before
}

type takenPart struct {
	l    *ledger
	held headgate.Hold
	cost int64
}

// A denial says why there is no capacity now.
type denial struct {
	until  time.Time
	tenant bool   // only this tenant's part is used up
	never  string // the limit of which no job so large ever passes
	cost   int64  // of that limit, in its unit
}

// take takes from all uses, or from none.
func (c *Capacity) take(
	ctx context.Context, m *member, uses []LimitUse, ld load,
) (t taken, no *denial, err error) {
	for i := range uses {
		u, part := &uses[i], false
		if u.Reserved != "" {
			if part, err = c.reserves(u); part {
				no, err = c.hold(ctx, &t, m, ledgerKey{u.Limit, limit.ReservedKey(u.Reserved)}, &ld)
			}
		}
		if err == nil && (!part || no != nil) {
			k, own := ledgerKey{u.Limit, u.Key}, no
			if u.PerTenant {
				k.key = ld.tenant
			}
			if no, err = c.hold(ctx, &t, m, k, &ld); no != nil && own != nil && own.never == "" {
				if no.never = ""; own.until.Before(no.until) {
					no.until = own.until
				}
			}
		}
		if no != nil {
			no.tenant = u.PerTenant
		}
		if no != nil || err != nil {
			c.giveBack(m, t)
			return taken{}, no, err
		}
	}
	return t, nil, nil
}

// reserves reports whether a part is reserved still: the key of one that is not has all.
func (c *Capacity) reserves(u *LimitUse) (bool, error) {
	cfg, err := c.limits.Limit(u.Limit)
	return err == nil && cfg.Reserved[u.Reserved] > 0, err
}

// hold takes from one key into t.
func (c *Capacity) hold(
	ctx context.Context, t *taken, m *member, k ledgerKey, ld *load,
) (no *denial, err error) {
	cfg, err := c.limits.Limit(k.limit)
	if err != nil {
		return nil, err
	}
	cost, now := ld.costOf(cfg.Unit), time.Now()
	c.mu.Lock()
	l := c.ledgerLocked(k, now)
	l.learn(cfg)
	if no = l.deny(m, cost, now); no != nil {
		c.mu.Unlock()
		return no, nil
	}
	l.take(m, cost, now) // before it is asked for: others may ask meanwhile
	who := headgate.Waiters{Weight: l.weight(now), More: ld.more * min(cost, limit.MaxAmount>>20),
		Spread: l.paces && m.smooth}
	c.mu.Unlock()
	held, v, err := c.limits.Hold(ctx, headgate.LimitCheck{Limit: k.limit, Key: k.key, Cost: cost}, who)
	if err == nil && v.Allowed {
		c.mu.Lock()
		l.most = v.Amount
		c.mu.Unlock()
		t.parts = append(t.parts, takenPart{l, held, cost})
		if v.Wait > 0 {
			t.at = later(t.at, now.Add(v.Wait))
		}
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l.untake(m, cost)
	if err != nil {
		return nil, err
	}
	l.most, now = v.Amount, time.Now()
	l.waited = l.paces // what comes back late is caught up with
	l.turnOf(m).wants = now.Add(wantsFor)
	no = &denial{until: now.Add(min(max(v.Retry, shortWait), longWait))} // others may give back before
	if v.Retry < 0 {
		if no.until = now.Add(longWait); v.Amount > 0 && cost > v.Amount {
			no.never, no.cost = k.limit, cost
		}
	}
	return no, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// answered says that the target has answered.
func (c *Capacity) answered(t taken) {
	for i := range t.parts {
		t.parts[i].held.Use(t.parts[i].cost)
	}
}

// giveBack gives back what was never sent.
func (c *Capacity) giveBack(m *member, t taken) {
	if len(t.parts) == 0 {
		return
	}
	for i := range t.parts {
		t.parts[i].held.Return(t.parts[i].cost)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range t.parts {
		t.parts[i].l.untake(m, t.parts[i].cost)
	}
}

// leave forgets a queue.
func (c *Capacity) leave(m *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.ledgers {
		delete(l.members, m)
	}
}

// warmUp is how long whoever begins after another host must wait, for what that one has sent
// may still count at the target: until limits that only a process counts are whole, if all of
// them had just been used. Those that many share know what the other one had.
func (c *Capacity) warmUp(ctx context.Context, uses []LimitUse) (wait time.Duration, err error) {
	for _, u := range uses {
		held, v, err := c.limits.Hold(
			ctx,
			headgate.LimitCheck{Limit: u.Limit, Key: u.Key},
			headgate.Waiters{},
		)
		if err != nil {
			return 0, err
		}
		if held.IsLocal() && !v.Limit.Shadow {
			if d := wholeAfter(v.Limit.Rule, time.Now()); d <= longestWin {
				wait = max(wait, d)
			}
		}
	}
	return wait, nil
}

// wholeAfter is how long it takes until all may be taken after all was.
func wholeAfter(r limit.Rule, now time.Time) time.Duration {
	rules, err := limit.Compile(r, nil)
	if err != nil || r.Algorithm == limit.Concurrency {
		return 0 // calls of a process that is gone are over
	}
	var t limit.Table
	at := limit.Time(now.UnixNano())
	t.SetRules(at, rules, 1)
	d, err := t.Take(at, 1, "", rules.MaxCost())
	if err != nil {
		return 0
	}
	return d.Reset
}

// ledgerLocked finds a ledger.
func (c *Capacity) ledgerLocked(k ledgerKey, now time.Time) *ledger {
	l := c.ledgers[k]
	if l == nil {
		if len(c.ledgers) >= idleLedger {
			c.forgetLocked(now)
		}
		l = &ledger{members: map[*member]*turn{}}
		c.ledgers[k] = l
	}
	return l
}

// forgetLocked lets go of ledgers that nobody asks for.
func (c *Capacity) forgetLocked(now time.Time) {
	for k, l := range c.ledgers {
		if now.After(l.next) && l.weight(now) == 0 {
			delete(c.ledgers, k)
		}
	}
}

// learn takes over the rule of a limit.
func (l *ledger) learn(c *headgate.LimitConfig) {
	if l.of != c { // it was changed: a long wait was for a pace that is no more
		l.of, l.most, l.next = c, 0, time.Time{}
	}
	l.window = c.Window
	if l.amount = l.most; l.most == 0 {
		l.amount = c.Amount
	}
	switch c.Algorithm {
	case limit.SlidingLog, limit.SlidingWindow:
		l.paces = !c.Shadow
	case limit.TokenBucket, limit.LeakyBucket:
		l.paces, l.amount = !c.Shadow, c.Amount
	case limit.FixedWindow:
		l.paces = !c.Shadow && c.Window <= longestWin && c.Align <= limit.FirstHit
	default:
		l.paces = false
	}
}

// spacing is how long a cost takes at the limit's pace.
func (l *ledger) spacing(cost int64) time.Duration {
	if l.amount <= 0 {
		return longWait
	}
	return time.Duration(math.Min(float64(cost)*float64(l.window)/float64(l.amount), float64(time.Hour)))
}

func (l *ledger) turnOf(m *member) *turn {
	t := l.members[m]
	if t == nil {
		t = &turn{}
		for _, o := range l.members { // who comes late has no more to come than the others
			if t.used == 0 || o.used < t.used {
				t.used = o.used
			}
		}
		l.members[m] = t
	}
	return t
}

// weight is that of all who ask.
func (l *ledger) weight(now time.Time) int64 {
	sum := 0.0
	for m, t := range l.members {
		if now.Sub(t.asked) < presentFor {
			sum += m.weight
		}
	}
	return int64(math.Ceil(sum))
}

// deny says why a member may not have cost now, nil if it may as far as is known here.
func (l *ledger) deny(m *member, cost int64, now time.Time) *denial {
	mine := l.turnOf(m)
	mine.asked = now
	slack := 2 * float64(cost) / m.weight
	for o, t := range l.members {
		if o != m && t.wants.After(now) && mine.used > t.used+slack {
			mine.wants = now.Add(wantsFor)
			return &denial{until: now.Add(shortWait)}
		}
	}
	if l.paces && m.smooth && now.Before(l.next) && cost <= max(l.most, l.amount) {
		l.waited = true
		mine.wants = now.Add(wantsFor)
		return &denial{until: later(l.next, now.Add(shortPause))}
	}
	return nil
}

// take notes what a member takes.
func (l *ledger) take(m *member, cost int64, now time.Time) {
	t := l.turnOf(m)
	t.used += float64(cost) / m.weight
	t.wants = time.Time{}
	if l.paces {
		from := now
		if l.waited { // its timer was late, and what others took meanwhile is theirs
			if from = l.next; from.Before(now.Add(-mostBehind)) {
				from = now.Add(-mostBehind)
			}
		}
		l.next = from.Add(l.spacing(cost))
		l.waited = l.waited && !l.next.After(now)
	}
}

// untake notes that a member has not taken what it was about to.
func (l *ledger) untake(m *member, cost int64) {
	l.turnOf(m).used -= float64(cost) / m.weight
	if l.paces {
		l.next = l.next.Add(-l.spacing(cost))
	}
}
