package queue

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/ratelimit"
)

// A LimitUse names one limit that the jobs of a queue use.
type LimitUse struct {
	Limit     string
	Key       string // the key within the limit; "" is the shared key
	PerTenant bool   // each tenant has its own key: the tenant's name replaces Key
	Reserved  string // reserved part to try first (ratelimit.Limit.Reserved); "": none
}

// Limits is the part of a ratelimit.Limiter that a Capacity needs. Hold may block for one round
// trip.
type Limits interface {
	Limit(name string) (*ratelimit.Limit, error)
	Hold(context.Context, ratelimit.Check, ratelimit.Waiters) (ratelimit.Hold, ratelimit.Result, error)
}

// A Capacity takes slots from limits for the jobs of queues. A job holds its slots from the moment
// it is sent until the target answers. They count as used from the time of the answer, because
// until then the target may count the job at any moment. The limits track all usage, so other
// processes may use the same limits. Queues of one process that share a limit must share one
// Capacity: it decides which queue is next and spreads the jobs over time. A Capacity is safe for
// concurrent use.
type Capacity struct {
	limits Limits

	mu      sync.Mutex // never held during a call to limits
	ledgers map[ledgerKey]*ledger
}

type ledgerKey struct{ limit, key string }

// A ledger decides which queue may use one key of a limit next, and when.
type ledger struct {
	of      *ratelimit.Limit
	amount  int64 // per window
	most    int64 // largest cost allowed at once, from the last result; 0: unknown
	window  time.Duration
	paces   bool      // usage is spread over the window
	next    time.Time // time of the next slot when spreading
	waited  bool      // a member had to wait for next and has not caught up yet
	members map[*member]*turn
}

// A turn is what one queue has used of a ledger.
type turn struct {
	used  float64   // cost divided by weight
	wants time.Time // the queue waits for this ledger until then
	asked time.Time // time of the last request
}

// A member is one of the queues that share a Capacity.
type member struct {
	weight float64
	smooth bool
}

// Parameters of capacity. All are chosen: a queue may catch up with its pace by as much as a timer
// is late on a busy machine (mostBehind), and timers shorter than shortPause cost more than they
// gain.
const (
	mostBehind = 50 * time.Millisecond
	shortPause = 500 * time.Microsecond
	wantsFor   = 50 * time.Millisecond
	presentFor = time.Second // a queue counts as present this long after its last request
	shortWait  = time.Millisecond
	longWait   = 250 * time.Millisecond
	longestWin = time.Minute // longest window to wait out after a start (docs/design.md §6)
	idleLedger = 10_000      // number of ledgers above which idle ones are dropped
)

// NewCapacity returns a Capacity that uses limits.
func NewCapacity(limits Limits) *Capacity {
	return &Capacity{limits: limits, ledgers: map[ledgerKey]*ledger{}}
}

// A load is the part of a job that matters to limits.
type load struct {
	tenant string
	cost   int64
	bytes  int64
	more   int64 // further jobs that could go at the same time
}

// costOf returns the cost of the job in unit.
func (ld *load) costOf(unit ratelimit.Unit) int64 {
	switch {
	case unit == ratelimit.Requests:
		return 1
	case unit == ratelimit.RequestBytes, unit == ratelimit.ResponseBytes:
		return max(1, ld.bytes)
	}
	return ld.cost
}

// A taken is what a job holds of its limits.
type taken struct {
	parts []takenPart
	at    time.Time // the job must not leave earlier
}

type takenPart struct {
	l    *ledger
	held ratelimit.Hold
	cost int64
}

// A denial says why there is no capacity now.
type denial struct {
	until  time.Time
	tenant bool   // only the key of this tenant is used up
	never  string // name of the limit that can never allow a job this large
	cost   int64  // cost in the unit of the limit never
}

// take takes what a job costs from all uses, or from none of them.
func (c *Capacity) take(
	ctx context.Context, m *member, uses []LimitUse, ld load,
) (t taken, no *denial, err error) {
	for i := range uses {
		u, part := &uses[i], false
		if u.Reserved != "" {
			// What is reserved for a use comes first. The common part of the limit serves when the
			// reserved one is used up.
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

// reserves reports whether the limit still has the reserved part of u. A key without a reserved
// part could use the whole limit.
func (c *Capacity) reserves(u *LimitUse) (bool, error) {
	cfg, err := c.limits.Limit(u.Limit)
	return err == nil && cfg.Reserved[u.Reserved] > 0, err
}

// hold takes the cost of a job from one key and adds it to t.
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
	l.take(m, cost, now) // before the request: others may take during it
	who := ratelimit.Waiters{Weight: l.weight(now), More: ld.more * min(cost, limit.MaxAmount>>20),
		Spread: l.paces && m.smooth}
	c.mu.Unlock()
	held, v, err := c.limits.Hold(ctx, ratelimit.Check{Limit: k.limit, Key: k.key, Cost: cost}, who)
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
	l.waited = l.paces // a late result may be caught up with
	l.turnOf(m).wants = now.Add(wantsFor)
	no = &denial{until: now.Add(min(max(v.Retry, shortWait), longWait))} // others may return slots earlier
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

// answered marks everything in t as used: the target has answered.
func (c *Capacity) answered(t taken) {
	for i := range t.parts {
		t.parts[i].held.Use(t.parts[i].cost)
	}
}

// giveBack returns what was taken for a job that was not sent.
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

// leave removes a queue from all ledgers.
func (c *Capacity) leave(m *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.ledgers {
		delete(l.members, m)
	}
}

// warmUp returns how long a new host must wait before its first delivery, because jobs of the
// previous host may still count at the target. Only limits that are counted in this process need
// it: warmUp assumes that they had just been used up, and waits until they are full again. Shared
// limits know what the previous host used.
func (c *Capacity) warmUp(ctx context.Context, uses []LimitUse) (wait time.Duration, err error) {
	for _, u := range uses {
		held, v, err := c.limits.Hold(ctx, ratelimit.Check{Limit: u.Limit, Key: u.Key},
			ratelimit.Waiters{})
		if err != nil {
			return 0, err
		}
		if held.IsLocal() && v.Limit.Refuses() {
			if d := wholeAfter(v.Limit.Rule, time.Now()); d <= longestWin {
				wait = max(wait, d)
			}
		}
	}
	return wait, nil
}

// wholeAfter returns how long a limit needs to become fully available again after it has been used
// up.
func wholeAfter(r limit.Rule, now time.Time) time.Duration {
	rules, err := limittable.Compile(r, nil)
	if err != nil || r.Algorithm == limit.Concurrency {
		return 0 // the calls of a process that has ended are over
	}
	var t limittable.Table
	at := limittable.Time(now.UnixNano())
	t.SetRules(at, rules, 1)
	d, err := t.Take(at, 1, "", rules.MaxCost())
	if err != nil {
		return 0
	}
	return d.Reset
}

// ledgerLocked returns the ledger of k. It creates one if there is none.
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

// forgetLocked drops ledgers that nobody uses.
func (c *Capacity) forgetLocked(now time.Time) {
	for k, l := range c.ledgers {
		if now.After(l.next) && l.weight(now) == 0 {
			delete(c.ledgers, k)
		}
	}
}

// learn copies the rule of a limit into the ledger.
func (l *ledger) learn(c *ratelimit.Limit) {
	if l.of != c { // the limit has changed: the wait was for the old pace
		l.of, l.most, l.next = c, 0, time.Time{}
	}
	l.window = c.Window
	if l.amount = l.most; l.most == 0 {
		l.amount = c.Amount
	}
	switch c.Algorithm {
	case limit.SlidingLog, limit.SlidingWindow:
		l.paces = c.Refuses()
	case limit.TokenBucket, limit.LeakyBucket:
		l.paces, l.amount = c.Refuses(), c.Amount
	case limit.FixedWindow:
		l.paces = c.Refuses() && c.Window <= longestWin && c.Align <= limit.FirstHit
	default:
		l.paces = false
	}
}

// spacing returns how long the limit's pace needs for cost.
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
		for _, o := range l.members { // a member that joins late gets no credit for the time before
			if t.used == 0 || o.used < t.used {
				t.used = o.used
			}
		}
		l.members[m] = t
	}
	return t
}

// weight returns the sum of the weights of all members that want capacity.
func (l *ledger) weight(now time.Time) int64 {
	sum := 0.0
	for m, t := range l.members {
		if now.Sub(t.asked) < presentFor {
			sum += m.weight
		}
	}
	return int64(math.Ceil(sum))
}

// deny returns why a member may not have cost now, or nil if the ledger knows no reason.
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

// take records that a member takes cost.
func (l *ledger) take(m *member, cost int64, now time.Time) {
	t := l.turnOf(m)
	t.used += float64(cost) / m.weight
	t.wants = time.Time{}
	if l.paces {
		from := now
		if l.waited { // its timer was late; what others took meanwhile stays theirs
			if from = l.next; from.Before(now.Add(-mostBehind)) {
				from = now.Add(-mostBehind)
			}
		}
		l.next = from.Add(l.spacing(cost))
		l.waited = l.waited && !l.next.After(now)
	}
}

// untake reverts take for a cost that the member did not get.
func (l *ledger) untake(m *member, cost int64) {
	if t := l.members[m]; t != nil { // otherwise it has left
		t.used -= float64(cost) / m.weight
	}
	if l.paces {
		l.next = l.next.Add(-l.spacing(cost))
	}
}
