package quota

import (
	"context"
	"errors"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/limit"
)

// lateEach is the interval of checks for errands that are due. Chosen.
const lateEach = 5 * time.Millisecond

// Run sends requests to the hosts until ctx ends.
func (d *Client) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { d.carryAll(ctx, &wg) })
	tick, reports := time.NewTicker(lateEach), time.Duration(0)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := d.boot()
		d.due(now)
		if now-reports >= reportEach {
			reports = now
			d.report(now)
		}
	}
}

// due queues late errands whose time has come.
func (d *Client) due(now time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rest := d.late[:0]
	for _, x := range d.late {
		if x.due > now {
			rest = append(rest, x)
			continue
		}
		d.enqueue(x.errand)
	}
	clear(d.late[len(rest):])
	d.late = rest
}

// report sends reports of usage, renews loans in use, and returns units that are idle.
func (d *Client) report(now time.Duration) {
	d.mu.Lock()
	open := d.open
	d.open = nil
	d.mu.Unlock()
	kept := open[:0]
	for _, s := range open {
		s.part.mu.Lock()
		left, idle := s.left(), now-s.lastUse
		switch {
		case s.given == 0 && len(s.calls) == 0 && now < s.refusedUntil:
			kept = append(kept, s) // its denial answers other calls
		case s.given == 0 && len(s.calls) == 0:
			s.listed = false
			s.forget()
		case s.used > s.saidUsed, s.held == 0 && (left == 0 && idle > rateOver || idle > idleFor),
			left > 0 && idle > idleFor, s.until-now < limittable.BorrowTerm/2:
			s.send()
			kept = append(kept, s)
		default:
			kept = append(kept, s)
		}
		s.part.mu.Unlock()
	}
	clear(open[len(kept):])
	d.mu.Lock()
	d.open = append(kept, d.open...)
	d.mu.Unlock()
}

// giveBack returns all held units and waits until the hosts have confirmed that and all usage. The
// wait is short, because a host may be gone.
func (d *Client) giveBack() {
	deadline := d.boot() + recallWait
	tick := time.NewTicker(lateEach)
	defer tick.Stop()
	for d.boot() < deadline {
		if d.settleAll(deadline) == 0 {
			return
		}
		<-tick.C
	}
}

// settleAll ensures that nothing is held until a time, and returns the number of keys that are not
// yet settled with their host.
func (d *Client) settleAll(until time.Duration) (open int) {
	d.mu.Lock()
	lanes := slices.Collect(maps.Values(d.known))
	d.mu.Unlock()
	for _, w := range lanes {
		l := w.Value()
		if l == nil {
			continue
		}
		for i := range l.parts {
			p := &l.parts[i]
			p.mu.Lock()
			for _, s := range p.shares {
				left := s.left() // held units may be on their way
				if left > 0 || s.used > s.saidUsed {
					s.back, s.recalledTill = s.back+max(0, left), until
					s.send()
				}
				if s.sending || s.queued {
					open++
				}
			}
			p.mu.Unlock()
		}
	}
	return open
}

// carryAll sends the queue until ctx ends.
func (d *Client) carryAll(ctx context.Context, wg *sync.WaitGroup) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		}
		for {
			to, es := d.take()
			if len(es) == 0 {
				break
			}
			wg.Go(func() {
				d.carry(ctx, to.host, es)
				d.carried(to)
			})
		}
	}
}

// take returns errands for one target with a free carrier, and takes that carrier.
func (d *Client) take() (to target, got []errand) {
	d.mu.Lock()
	defer d.mu.Unlock()
	first := d.next
	for n := 0; n < len(d.queue) && d.queued > 0 && len(got) < mostAsks; n++ {
		i := (first + n) % len(d.queue)
		q := d.queue[i]
		if len(q) == 0 {
			continue
		}
		at := target{d.way.Host(byte(i % Shards)), i >= Shards}
		if len(got) == 0 && d.under[at] < carriers {
			to, d.next = at, i+1
		} else if len(got) == 0 || at != to {
			continue
		}
		more := min(len(q), mostAsks-len(got))
		got = append(got, q[:more]...)
		d.queue[i] = slices.Delete(q, 0, more)
		d.queued -= more
	}
	if len(got) > 0 {
		d.under[to]++
	}
	return to, got
}

// carried frees the carrier of a message.
func (d *Client) carried(to target) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.under[to]--; d.under[to] == 0 {
		delete(d.under, to)
	}
	if d.queued > 0 {
		d.poke()
	}
}

// carry sends errands to one host and passes on the replies.
func (d *Client) carry(ctx context.Context, host string, es []errand) {
	sent := d.boot()
	qs, asked := make([]*request, 0, len(es)), make([]errand, 0, len(es)) // nil: the reply means nothing
	for _, e := range es {
		q := e.ask(sent)
		if q == nil {
			continue
		}
		q.Borrower = d.who
		if q.id != 0 && q.kind != kindSettle {
			name := &request{kind: kindSettle, shard: q.shard, limit: q.limit, n: naming, id: q.id}
			qs, asked = append(qs, name), append(asked, nil)
		}
		qs, asked = append(qs, q), append(asked, e)
	}
	if len(qs) == 0 {
		return
	}
	var replies []reply
	if host != "" {
		try, stop := context.WithTimeout(ctx, askTry)
		b, err := d.way.Request(try, "at."+host, appendRequests(nil, d.who, qs))
		stop()
		if err == nil {
			replies, err = parseReplies(b)
		}
		if err != nil || len(replies) != len(asked) {
			replies = nil
		}
		if errors.Is(err, store.ErrNoResponder) { // it did not arrive: a repeat is safe
			host = ""
		}
	}
	if host == "" {
		replies = make([]reply, len(asked))
		for i := range replies {
			replies[i].status = moved
		}
	}
	now := d.boot()
	lost := map[byte]bool{}
	for i, e := range asked {
		if e == nil {
			continue
		}
		var r *reply
		if replies != nil {
			r = &replies[i]
		}
		if (r == nil || r.status == moved) && !lost[e.shardOf()] {
			lost[e.shardOf()] = true
			d.way.Lost(e.shardOf())
		}
		e.told(r, sent, now)
	}
}

// An op is a request that is not about a loan.
type op struct {
	desk  *Client
	lane  *LimitClient
	q     request
	began time.Duration
	done  chan reply // capacity 1
	mu    sync.Mutex
	over  bool          // nobody waits for it any more
	again bool          // an earlier attempt may have succeeded
	until time.Duration // end of the attempts; 0: when nobody waits
}

func (o *op) shardOf() byte { return o.q.shard }
func (o *op) slow() bool    { return o.lane.slow.Load() }

// ask implements errand.
func (o *op) ask(now time.Duration) *request {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over || o.until > 0 && now > o.until {
		o.revoke()
		return nil
	}
	q := o.q
	return &q
}

// told implements errand. A request without an answer may have been performed, and is sent again. A
// reservation has an ID, so the host recognizes it. Other units may be taken twice: then one caller has too
// many until they expire, but the limit is never exceeded.
func (o *op) told(r *reply, _, now time.Duration) {
	if r != nil && r.status == moved && r.Allowed { // see movedAfter
		r = nil
	}
	switch {
	case r == nil && o.q.n < 0: // a second return would exceed the limit
		o.done <- reply{status: lastStatus}
	case r == nil && o.q.kind == kindSettle:
		o.again = true
		o.desk.putLate(o, now+movedEach)
	case r == nil && o.q.kind == kindBook:
		o.desk.putLate(o, now+failEach)
	case r != nil && r.status == noHold && o.again: // an earlier attempt settled it; its answer was lost
		o.done <- reply{}
	case r == nil, r.status == moved, r.status == unknown:
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.again = o.again || r == nil; o.over {
			o.revoke()
			return
		}
		o.desk.putLate(o, now+movedEach)
	case r.status == again && now-o.began < recallWait:
		o.desk.putLate(o, now+recallEach)
	default:
		o.desk.down[trackOf(o)].Store(0)
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.over {
			o.undo(r)
			return
		}
		o.done <- *r
	}
}

// revoke reverts a request whose caller no longer waits, and whose answer was lost. The caller of revoke
// holds mu.
func (o *op) revoke() {
	if o.again && o.q.id != 0 && o.q.kind != kindSettle {
		o.again = false
		o.lane.say(request{kind: kindSettle, key: o.q.key, id: o.q.id}, sayFor)
	}
}

// undo reverts a request whose caller no longer waits. The caller of undo holds mu.
func (o *op) undo(r *reply) {
	if (o.q.kind == kindTake || o.q.kind == kindReserve) && r.Allowed && r.ID != 0 {
		o.lane.say(request{kind: kindSettle, key: o.q.key, id: r.ID}, sayFor)
	}
}

// ask sends one request that is not about a loan.
func (l *LimitClient) ask(ctx context.Context, q request) (limit.Decision, error) {
	d := l.desk
	q.limit, q.shard = l.name, shardOf(l.name, q.key)
	now := d.boot()
	o := &op{desk: d, lane: l, q: q, began: now, done: make(chan reply, 1)}
	wait, ok := d.patience(o, now)
	if q.kind == kindSettle { // no other process can settle it
		wait, ok = patience, true
	}
	if !ok {
		return limit.Decision{}, ErrUnreachable
	}
	d.put(o)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case r := <-o.done:
		switch r.status {
		case impossible:
			return r.Decision, ErrCost
		case noHold:
			return r.Decision, ErrNoHold
		case lastStatus:
			return r.Decision, ErrUnreachable
		}
		return r.Decision, nil
	case <-ctx.Done():
	case <-timer.C:
		d.down[trackOf(o)].Store(int64(d.boot() + probe))
	}
	o.mu.Lock()
	o.over = true
	select {
	case r := <-o.done: // the answer has just arrived
		o.undo(&r)
	default:
	}
	o.mu.Unlock()
	if ctx.Err() != nil {
		return limit.Decision{}, ctx.Err()
	}
	return limit.Decision{}, ErrUnreachable
}

// sayFor is how long past usage is reported to the host of a key. Chosen: after that time a window
// of a limit counted by answers is over.
const sayFor = 2 * time.Minute

// say reports something to the host of a key. It retries for up to the given time, and does not
// block.
func (l *LimitClient) say(q request, long time.Duration) {
	q.limit, q.shard = l.name, shardOf(l.name, q.key)
	now := l.desk.boot()
	l.desk.put(&op{desk: l.desk, lane: l, q: q, began: now, done: make(chan reply, 1), until: now + long})
}

// Peek returns the decision for n units without taking them.
func (l *LimitClient) Peek(ctx context.Context, key string, n int64) (limit.Decision, error) {
	v, err := l.ask(ctx, request{kind: kindPeek, key: key, n: max(0, n)})
	if held := l.holds(key); err == nil && held > 0 {
		if v.Remaining += held; n <= v.Remaining {
			v.Allowed, v.Retry = true, 0
		}
	}
	return v, err
}

// gather asks all borrowers of a key to report their usage and to return the rest. It does not wait
// long for a borrower that does not answer.
func (l *LimitClient) gather(ctx context.Context, key string) (limit.Decision, error) {
	return l.ask(ctx, request{kind: kindPeek, key: key, n: gathered})
}

// TakeAtHost takes n units from the host directly, out of those that are not lent. A negative n
// returns units, even if they were used a moment ago.
func (l *LimitClient) TakeAtHost(ctx context.Context, key string, n int64) (limit.Decision, error) {
	if n < 0 {
		if d, err := l.gather(ctx, key); err != nil {
			return d, err
		}
	}
	q := request{kind: kindTake, key: key, n: n}
	if d := l.def.Load(); n > 0 && d != nil && d.Calls {
		q.id = limittable.ChosenID(rand.Uint64())
	}
	return l.ask(ctx, q)
}

// Reserve takes n units, to be settled within ttl.
func (l *LimitClient) Reserve(
	ctx context.Context, key string, n int64, ttl time.Duration,
) (limit.Decision, error) {
	id := limittable.ChosenID(rand.Uint64())
	return l.ask(ctx, request{kind: kindReserve, key: key, n: n, ttl: ttl, id: id})
}

// Settle reports the actual cost of a reservation, or ends a call. If the host of the key does not answer,
// it is told again until it does, or another one has taken over.
func (l *LimitClient) Settle(ctx context.Context, key string, id uint64, n int64) (limit.Decision, error) {
	q := request{kind: kindSettle, key: key, id: id, n: n}
	d, err := l.ask(ctx, q)
	if errors.Is(err, ErrUnreachable) {
		l.say(q, sayFor)
	}
	return d, err
}

// Reset clears the usage of a key, including the most recent usage. Other processes may still deny
// the key for up to a second.
func (l *LimitClient) Reset(ctx context.Context, key string) error {
	_, err := l.gather(ctx, key)
	if err == nil {
		_, err = l.ask(ctx, request{kind: kindReset, key: key})
	}
	p := &l.parts[maphash.String(l.desk.seed, key)%deskParts]
	p.mu.Lock()
	if s := p.shares[key]; s != nil {
		s.refusedUntil = 0
	}
	p.mu.Unlock()
	return err
}
