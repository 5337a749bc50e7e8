package envoy

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/ratelimit"
)

// A Lender lends amounts of limits for longer than a call. [ratelimit.Limiter] implements it.
type Lender interface {
	Limit(name string) (*ratelimit.Limit, error)
	Hold(ctx context.Context, a ratelimit.Check, t ratelimit.Waiters) (
		ratelimit.Hold, ratelimit.Result, error)
}

// A pool shares one key of a limit among the Envoys that ask for it.
type pool struct {
	lender Lender
	ask    ratelimit.Check
	empty  func() // called when no lease may be left

	mu       sync.Mutex
	leases   []*lease
	timer    *time.Timer
	due      time.Time // of the timer; zero: it is not set
	adjusted bool      // an adjustment is running
}

// A lease is what one stream has of a pool. The mutex of the pool guards it.
type lease struct {
	pool   *pool
	stream *quotaStream
	grants []grant // that a window still sees; the last one is in force, unless the lease has ended
	sent   time.Time
	ended  bool
	holds  []ratelimit.Hold
	held   int64
	alone  int64            // of held, counted by this process while the host is out of reach
	strays []ratelimit.Hold // of alone
	lost   []ratelimit.Hold // that the limit has booked as used, while Envoy may still use them
	lostAt time.Time        // when Envoy can use them no longer

	calls  int64 // since the time since
	since  time.Time
	demand float64 // calls in a second; negative: not known
	before float64 // the demand before that
}

// current returns the grant in force, or nil.
func (l *lease) current() *grant {
	if n := len(l.grants); n > 0 && !l.ended && l.grants[n-1].end.After(time.Now().Add(far/2)) {
		return &l.grants[n-1]
	}
	return nil
}

// maxGrants is the maximum number of grants that a window may see. Chosen: reports come each 5 s.
const maxGrants = 16

// demandTime is the shortest time in which demand is measured. Chosen: a new bucket reports its
// first call at once.
const demandTime = time.Second

// report notes what Envoy has reported.
func (l *lease) report(calls int64) {
	p := l.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	l.calls = min(l.calls+calls, limit.MaxAmount)
	past := now.Sub(l.since)
	if past < demandTime {
		return
	}
	l.before, l.demand = max(0, l.demand), float64(l.calls)/past.Seconds()
	l.calls, l.since = 0, now
	p.wake(0)
}

// want returns how much of an amount a lease is to have in a window.
func (l *lease) want(amount int64, window time.Duration) int64 {
	if l.demand < 0 {
		return max(min(1, amount), amount/8) // chosen: until the first report
	}
	// Half as much again as Envoy needs, so that calls at random times are not refused. A pause of one
	// report is no reason to give everything back.
	calls := max(l.demand*window.Seconds(), min(l.before*window.Seconds(), float64(amount))/2)
	return int64(min(1.5*calls+1, float64(amount)))
}

// end ends a lease with its stream. Envoy keeps the grant until it expires.
func (l *lease) end() {
	p := l.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	l.close()
	l.ended = true
	p.wake(0)
}

// close ends the grant in force.
func (l *lease) close() {
	if g := l.current(); g != nil {
		if g.end = l.expiry(); l.sent.IsZero() { // it was never sent
			l.grants = l.grants[:len(l.grants)-1]
		}
	}
	l.sent = time.Time{}
}

// expiry returns when Envoy has stopped to use the grant in force if it is not renewed.
func (l *lease) expiry() time.Time { return l.sent.Add(grantTTL + grantSlack) }

// next returns the grants of l if g is in force from now on.
func (l *lease) next(g grant) []grant {
	all := slices.Clone(l.grants)
	if c := l.current(); c != nil {
		if l.sent.IsZero() {
			all = all[:len(all)-1]
		} else {
			all[len(all)-1].end = l.expiry()
		}
	}
	return append(all, g)
}

// renewed returns the grant to send, or nil. If only is set, a grant that has been sent is not sent
// again.
func (l *lease) renewed(only bool) *grant {
	p := l.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	now, g := time.Now(), l.current()
	switch {
	case g == nil || only && !l.sent.IsZero():
		return nil
	case l.lapsed():
		l.lose()
		p.wake(0)
		return nil
	case !l.sent.IsZero() && now.Sub(l.sent) > grantTTL-grantSlack && g.units > 0:
		// The grant may expire before this message arrives. Envoy would then begin it with its burst
		// once more.
		rule, err := p.lender.Limit(p.ask.Limit)
		again := newGrant(g.units, g.window, now)
		if all := l.next(again); err == nil && len(all) <= maxGrants &&
			neededFor(all, now, windowFor(rule)) <= l.held {
			l.grants = all
			break
		}
		l.close()
		p.wake(0)
		return nil
	}
	l.sent = now
	c := *l.current()
	return &c
}

// lapsed reports whether the limit has booked what l holds as used, because its host was out of
// reach.
func (l *lease) lapsed() bool {
	for i := range l.holds {
		if l.holds[i].Lapsed() {
			return true
		}
	}
	return false
}

// lose ends what l holds after the limit has booked it as used. Envoy may use its grant until that
// expires: then it is booked once more.
func (l *lease) lose() {
	l.close()
	for _, g := range l.grants {
		if g.end.After(l.lostAt) {
			l.lostAt = g.end
		}
	}
	l.lost = append(append(l.lost, l.holds...), l.strays...)
	l.grants, l.holds, l.strays, l.held, l.alone = nil, nil, nil, 0, 0
}

// windowFor returns the longest window of a rule.
func windowFor(l *ratelimit.Limit) time.Duration { return cmp.Or(l.Refill(), limit.MaxWindow) }

// wake lets the pool adjust its leases after d at the latest. The caller holds mu.
func (p *pool) wake(d time.Duration) {
	at := time.Now().Add(d)
	if !p.due.IsZero() && !at.Before(p.due) {
		return
	}
	p.due = at
	if p.timer == nil {
		p.timer = time.AfterFunc(d, p.adjust)
	} else {
		p.timer.Reset(d)
	}
}

// adjust gives back what is not needed any more, and makes the leases follow demand.
func (p *pool) adjust() {
	if p.adjustAll() == 0 {
		p.empty()
	}
}

// adjustAll implements adjust, and returns the number of leases.
func (p *pool) adjustAll() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.due = time.Time{}
	if p.adjusted {
		p.wake(grantEach)
		return 1
	}
	p.adjusted = true
	defer func() { p.adjusted = false }()
	rule, err := p.lender.Limit(p.ask.Limit)
	if err != nil { // it was removed; the streams notice
		rule = &ratelimit.Limit{}
	}
	amount, window := rule.Amount, windowFor(rule)
	if own, ok := rule.Overrides[p.ask.Key]; ok {
		amount = own
	}
	again := p.release(window)
	for _, l := range slices.Clone(p.leases) {
		if l.alone > 0 {
			p.rehome(l)
			again = true
		}
	}
	for _, l := range p.aims(amount, window) {
		if p.aim(l, window) {
			again = true
		}
	}
	if again && len(p.leases) > 0 {
		p.wake(grantEach)
	}
	return len(p.leases)
}

// release gives back what no window sees any more. It reports whether more will be free later.
func (p *pool) release(window time.Duration) (again bool) {
	now := time.Now()
	p.leases = slices.DeleteFunc(p.leases, func(l *lease) bool {
		// A grant that Envoy still uses keeps its lease: what it holds is lost only when nobody
		// uses it.
		if l.current() == nil && l.lapsed() {
			l.lose()
		}
		l.grants = slices.DeleteFunc(l.grants, func(g grant) bool { return g.end.Add(window).Before(now) })
		if spare := l.held - neededFor(l.grants, now, window); spare > 0 {
			l.giveBack(spare)
		}
		if len(l.lost) > 0 && !now.Before(l.lostAt) {
			for i := range l.lost {
				l.lost[i].Use(l.lost[i].Left())
			}
			l.lost = nil
		}
		again = again || len(l.lost) > 0 || len(l.grants) > 1 || len(l.grants) == 1 && l.current() == nil
		return l.ended && len(l.grants) == 0 && len(l.lost) == 0
	})
	return again
}

// giveBack returns n of what l holds.
func (l *lease) giveBack(n int64) {
	here := min(n, l.alone)
	l.held, l.alone = l.held-n, l.alone-here
	l.strays, l.holds = giveBack(l.strays, here), giveBack(l.holds, n-here)
}

// giveBack returns n of what all hold, and what stays.
func giveBack(all []ratelimit.Hold, n int64) []ratelimit.Hold {
	for n > 0 && len(all) > 0 {
		h := &all[len(all)-1]
		part := min(n, h.Left())
		h.Return(part)
		if n -= part; h.Left() == 0 {
			all = all[:len(all)-1]
		}
	}
	return all
}

// A target is how much a lease is to have.
type target struct {
	*lease
	units int64
}

// aims returns what each lease is to have: max-min fair by demand (Bertsekas and Gallager 1992,
// §6.5.2). Leases that are to have less come first.
func (p *pool) aims(amount int64, window time.Duration) (all []target) {
	for _, l := range p.leases {
		if !l.ended {
			all = append(all, target{l, l.want(amount, window)})
		}
	}
	slices.SortFunc(all, func(a, b target) int { return cmp.Compare(a.units, b.units) })
	rest := amount - amount/reservePart
	for i := range all {
		all[i].units = min(all[i].units, rest/int64(len(all)-i))
		rest -= all[i].units
	}
	slices.SortStableFunc(all, func(a, b target) int { return cmp.Compare(a.more(), b.more()) })
	return all
}

// more returns by how much a lease is to grow.
func (t target) more() int64 {
	if c := t.current(); c != nil {
		return t.units - c.units
	}
	return t.units
}

// aim gives a lease what it is to have, or as much of it as there is. It reports whether it is to
// be tried again. It releases mu while it waits for the limit.
func (p *pool) aim(t target, window time.Duration) (again bool) {
	const tries = 3 // chosen
	l, units := t.lease, t.units
	for range tries {
		c := l.current()
		switch {
		case l.ended:
			return false
		case len(l.grants) >= maxGrants:
			return true
		case c != nil && c.window == window && !l.worth(units):
			return again || l.changes(units, smallChange)
		}
		now := time.Now()
		if c != nil && units > c.units && c.units > 0 && now.Sub(c.from) < window/maxGrants {
			return true
		}
		g := newGrant(units, window, now)
		extra := neededFor(l.next(g), now, window) - l.held
		if extra <= 0 {
			l.put(g)
			return again
		}
		left, ok := p.borrow(l, extra)
		switch {
		case ok:
		case c == nil || units <= c.units: // nothing is left for its burst
			again = true
			if units -= max(1, extra-left); c != nil || units < 0 {
				units = 0
			}
		default:
			again = true
			if units -= max(1, extra-left); units <= c.units {
				return again
			}
		}
	}
	return true
}

// Changes that are worth a new grant, which begins with its burst: at any time, and when no earlier
// grant counts any more. Chosen.
const (
	largeChange = 4 // a quarter
	smallChange = 40
)

// worth reports whether a grant of units is worth a change now.
func (l *lease) worth(units int64) bool {
	if len(l.grants) == 1 {
		return l.changes(units, smallChange)
	}
	return l.changes(units, largeChange)
}

// changes reports whether units differ by a part from the grant in force.
func (l *lease) changes(units, part int64) bool {
	n := l.current().units
	return max(units-n, n-units) >= max(1, n/part)
}

// put puts a grant into force.
func (l *lease) put(g grant) {
	l.grants, l.sent = l.next(g), time.Time{}
	l.stream.wake()
}

// borrowWait bounds the wait for the host of a limit.
const borrowWait = 2 * time.Second

// borrow takes n of the limit for a lease. If there is less, it returns what is left.
func (p *pool) borrow(l *lease, n int64) (left int64, ok bool) {
	h, v, err := p.hold(n)
	if err != nil || !v.Allowed {
		return v.Remaining, false
	}
	if l.held += n; v.Local {
		l.strays, l.alone = append(l.strays, h), l.alone+n
	} else {
		l.holds = append(l.holds, h)
	}
	return 0, true
}

// rehome lets the host of the key count what this process counts alone. Without it, a host that is
// back would lend this amount to others too, for as long as the grant is renewed. If the host has
// lent it already, the grant ends.
func (p *pool) rehome(l *lease) {
	n := l.alone
	switch h, v, err := p.hold(n); {
	case err != nil || v.Local || l.alone != n: // out of reach, or ended meanwhile
		h.Return(n)
	case v.Allowed:
		l.strays, l.alone, l.holds = giveBack(l.strays, n), 0, append(l.holds, h)
	default:
		l.lose()
	}
}

// hold takes n of the limit. It releases mu while it waits.
func (p *pool) hold(n int64) (ratelimit.Hold, ratelimit.Result, error) {
	p.mu.Unlock()
	defer p.mu.Lock()
	ctx, stop := context.WithTimeout(context.Background(), borrowWait)
	defer stop()
	ask := p.ask
	ask.Cost = n
	return p.lender.Hold(ctx, ask, ratelimit.Waiters{Momentary: true})
}
