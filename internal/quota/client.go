package quota

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"maps"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/limit"
)

// Parameters of a Client. Chosen: nobody waits longer for a decision than for a page.
const (
	patience   = time.Second            // timeout for a host; then the limit is unreachable
	probe      = 250 * time.Millisecond // interval and timeout of attempts while it is unreachable
	recallWait = 500 * time.Millisecond // wait for units that other borrowers hold
	holdWait   = 20 * time.Millisecond  // the same for callers that try again anyway
	recallEach = 5 * time.Millisecond
	movedEach  = 20 * time.Millisecond
	failEach   = 50 * time.Millisecond
	askTry     = 500 * time.Millisecond
	reportEach = 50 * time.Millisecond  // longest delay until usage is reported
	idleFor    = time.Second            // then unused units are returned
	refuseFor  = time.Second            // longest time a denial is reused
	rateOver   = 250 * time.Millisecond // period of measuring demand and of lending ahead
	busyCalls  = 8                      // calls in two periods that make a key lend ahead
	carriers   = 16                     // messages in flight to one target
	deskParts  = 64
	mostShares = 1 << 20 // keys with an open request or held units
)

// ErrUnreachable is returned when the host of a key does not answer.
var ErrUnreachable = errors.New("the host of the limit is out of reach")

// Errors of requests.
var (
	ErrCost   = errors.New("invalid cost")
	ErrNoHold = errors.New("no such reservation")
)

// A Transport carries requests to the hosts of keys.
type Transport interface {
	// Host returns the process that hosts a shard now, or "" if it is not known.
	Host(shard byte) string
	// Lost reports that a host has not answered, or no longer hosts the shard.
	Lost(shard byte)
	// Request sends a message to a host. name is "at." or "uses." followed by the name of the host.
	Request(ctx context.Context, name string, msg []byte) ([]byte, error)
	// Borrowers returns the known number of processes that borrow, at least 1.
	Borrowers() int
}

// A Client requests units for calls, and holds the units that are lent to it. Run must be called.
type Client struct {
	who   uint64
	way   Transport
	boot  func() time.Duration
	seed  maphash.Seed
	loans atomic.Uint64
	held  atomic.Int64
	wake  chan struct{}
	down  [2 * Shards]atomic.Int64 // by track: own clock of the next attempt; 0: reachable

	mu     sync.Mutex
	queue  [2 * Shards][]errand // by track
	queued int                  // number of errands in queue
	next   int                  // first track for take
	under  map[target]int       // messages in flight
	late   []lateErrand
	open   []*share
	known  map[string]weak.Pointer[LimitClient] // limits of which units are held, or that a caller holds
}

// A target is a destination of messages. Each target has its own carriers, so that a host that
// accepts messages and does not answer delays no other host, and a slow write delays only requests
// that need a write.
type target struct {
	host string
	slow bool
}

// An errand is one request to a host.
type errand interface {
	shardOf() byte
	// slow reports whether the host may have to write before it answers. Other errands do not wait
	// for it.
	slow() bool
	// ask returns the request to send, or nil if it is no longer needed.
	ask(now time.Duration) *request
	// told handles the reply to the request sent at time sent. The reply is nil if there was none.
	told(r *reply, sent, now time.Duration)
}

type lateErrand struct {
	errand
	due time.Duration
}

// NewClient returns a Client. who must be unique to it.
func NewClient(who uint64, way Transport, boot func() time.Duration) *Client {
	return &Client{who: who, way: way, boot: boot, seed: maphash.MakeSeed(),
		wake: make(chan struct{}, 1), under: map[target]int{}, known: map[string]weak.Pointer[LimitClient]{}}
}

// A LimitClient is one limit of a Client.
type LimitClient struct {
	desk  *Client
	name  string
	slow  atomic.Bool // see errand
	def   atomic.Pointer[Definition]
	parts [deskParts]lanePart
}

// under sets the definition of the limit that is in force now.
func (l *LimitClient) under(d *Definition) {
	if l.def.Load() != d {
		l.slow.Store(d.Rules.Long())
		l.def.Store(d)
	}
}

type lanePart struct {
	mu     sync.Mutex
	shares map[string]*share
	_      [48]byte
}

// Limit returns the LimitClient for a limit.
func (d *Client) Limit(name string) *LimitClient {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.known[name].Value()
	if l == nil {
		maps.DeleteFunc(d.known, func(_ string, l weak.Pointer[LimitClient]) bool { return l.Value() == nil })
		l = &LimitClient{desk: d, name: name}
		d.known[name] = weak.Make(l)
	}
	return l
}

// A share is what this process holds of a key, and the calls that wait for more.
type share struct {
	part  *lanePart // its lock guards the share
	lane  *LimitClient
	key   string
	shard byte

	loan              uint64
	given, used, back int64  // of the loan: totals
	held              int64  // lent units that are reserved and cannot be used otherwise
	holding           uint64 // generation: units held under an older one count as used
	saidUsed          int64
	saidHeld          int64 // as in the newest message
	saidAt            time.Duration
	until             time.Duration  // end of the term of the loan
	lastUse           time.Duration  // last time of use or hold
	usedAt            time.Duration  // last time of use
	snap              limit.Decision // the last decision of the host, and its time
	snapAt            time.Duration

	turn    Waiters // of the last call
	calls   []*call
	asked   int   // number of calls in the message in flight
	least   int64 // cost of the first of those calls
	sending bool
	queued  bool
	listed  bool
	closing bool
	wanted  bool          // the message in flight requests units
	unsure  time.Duration // until then the host may have lent units that we do not know of

	refused      limit.Decision // the denial of refusedCost under refusedBy
	refusedBy    *Definition
	askedBy      *Definition // in force when the message in flight was made
	refusedCost  int64
	refusedAt    time.Duration
	refusedUntil time.Duration

	period       int64 // number of the current rateOver period
	cur, prev    int64 // units requested in this period and the previous one
	curN, prevN  int64 // number of calls
	recalledTill time.Duration
}

type call struct {
	cost  int64
	turn  Waiters       // of the caller that holds it
	until time.Duration // end of the wait for units that others hold
	done  chan callAnswer
}

type callAnswer struct {
	limit.Decision
	err error
	at  hold
}

// Take takes cost units of a key, all or none, from the units held here or by a request to the
// host.
func (l *LimitClient) Take(ctx context.Context, key string, cost int64) (limit.Decision, error) {
	a := l.take(ctx, key, call{cost: cost})
	return a.Decision, a.err
}

// take implements Take and Hold. c describes the call; take fills in the rest of it.
func (l *LimitClient) take(ctx context.Context, key string, c call) (a callAnswer) {
	if a.err = ErrCost; c.cost < 0 || c.cost > limit.MaxAmount {
		return a
	}
	d := l.desk
	p := &l.parts[maphash.String(d.seed, key)%deskParts]
	now := d.boot()
	p.mu.Lock()
	s := p.shares[key]
	if s != nil {
		if a, ok := s.local(now, &c); ok {
			p.mu.Unlock()
			return a
		}
	} else {
		if d.held.Load() >= mostShares {
			p.mu.Unlock()
			return callAnswer{err: ErrUnreachable}
		}
		d.held.Add(1)
		s = &share{part: p, lane: l, key: key, shard: shardOf(l.name, key), loan: d.loans.Add(1)}
		if p.shares == nil {
			p.shares = map[string]*share{}
		}
		p.shares[key] = s
		s.count(now, c.cost)
	}
	wait, ok := d.patience(s, now)
	if !ok {
		s.forget()
		p.mu.Unlock()
		return callAnswer{err: ErrUnreachable}
	}
	s.turn = c.turn
	c.until = now + recallWait
	if c.turn.Weight > 0 {
		c.until = now + holdWait
	}
	c.done = make(chan callAnswer, 1)
	s.calls = append(s.calls, &c)
	s.send()
	p.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case a = <-c.done:
		return a
	case <-timer.C:
		a.err = ErrUnreachable
	case <-ctx.Done():
		a.err = ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case a = <-c.done: // the answer has just arrived
		return a
	default:
	}
	s.withdraw(&c)
	if errors.Is(a.err, ErrUnreachable) {
		d.down[trackOf(s)].Store(int64(d.boot() + probe))
	}
	return a
}

// trackOf returns the track of an errand: its shard, plus Shards if it is slow.
func trackOf(e errand) int {
	if e.slow() {
		return Shards + int(e.shardOf())
	}
	return int(e.shardOf())
}

// patience returns how long to wait for the answer to an errand. ok is false while its host is
// unreachable, except for one attempt now and then.
func (d *Client) patience(e errand, now time.Duration) (wait time.Duration, ok bool) {
	down := &d.down[trackOf(e)]
	next := down.Load()
	switch {
	case next == 0:
		return patience, true
	case int64(now) >= next && down.CompareAndSwap(next, int64(now+probe)):
		return probe, true
	}
	return 0, false
}

// local decides from local knowledge if that is sufficient. The caller holds the lock.
func (s *share) local(now time.Duration, c *call) (a callAnswer, ok bool) {
	cost, d := c.cost, &a.Decision
	s.count(now, cost)
	left := s.left()
	switch {
	case len(s.calls) > 0 && cost > 0: // earlier calls go first
		return a, false
	case now < s.until && left >= cost && cost > 0:
		a.at = s.takeOf(now, c)
		if left -= cost; !s.queued && !s.sending && left < s.want(now)/2 {
			s.send()
		}
		s.list()
		*d = s.snap
		d.Allowed, d.Retry, d.Remaining = true, 0, s.snap.Remaining+left
		d.Reset = max(0, d.Reset-(now-s.snapAt))
		return a, true
	case now < s.refusedUntil && cost >= s.refusedCost && cost > 0 && s.refusedBy == s.lane.def.Load():
		*d = s.refused
		past := now - s.refusedAt
		d.Reset = max(0, d.Reset-past)
		if d.Retry > 0 {
			d.Retry = max(1, d.Retry-past)
		}
		return a, true
	}
	return a, false
}

// left returns how many lent units may be used. The caller holds the lock.
func (s *share) left() int64 { return s.given - s.used - s.back - s.held }

// takeOf takes the units of a call from what is left. The caller holds the lock.
func (s *share) takeOf(now time.Duration, c *call) (h hold) {
	if s.lastUse = now; c.turn.Weight == 0 && !c.turn.Momentary {
		s.used, s.usedAt = s.used+c.cost, now
		return h
	}
	if s.held += c.cost; s.holding == 0 {
		s.holding = s.lane.desk.loans.Add(1)
	}
	return hold{s, s.holding}
}

// lapse gives up all units if their term is over: the host counts them as used. The caller holds
// the lock.
func (s *share) lapse(now time.Duration) {
	if s.given > s.used+s.back && now >= s.until {
		s.giveUp(now)
	}
}

// giveUp counts all lent units as used. The caller holds the lock.
func (s *share) giveUp(now time.Duration) {
	if s.used = s.given - s.back; s.held > 0 {
		s.held, s.holding, s.usedAt = 0, 0, now
	}
}

// renew begins a new loan after the old one is over. The caller holds the lock.
func (s *share) renew() {
	s.loan, s.given, s.used, s.back, s.saidUsed = s.lane.desk.loans.Add(1), 0, 0, 0, 0
}

// count measures the demand. The caller holds the lock.
func (s *share) count(now time.Duration, cost int64) {
	switch p := int64(now / rateOver); p - s.period {
	case 0:
	case 1:
		s.prev, s.prevN, s.cur, s.curN, s.period = s.cur, s.curN, 0, 0, p
	default:
		s.prev, s.prevN, s.cur, s.curN, s.period = 0, 0, 0, 0, p
	}
	s.cur, s.curN = min(s.cur+cost, limit.MaxAmount), s.curN+1
}

// want returns how many units to hold in advance: the demand of the last period. The caller holds
// the lock.
func (s *share) want(now time.Duration) int64 {
	s.count(now, 0)
	s.curN--
	if s.curN+s.prevN < busyCalls || now < s.recalledTill {
		return 0
	}
	return max(s.cur, s.prev)
}

// send queues the share for a message to its host. The caller holds the lock.
func (s *share) send() {
	if !s.sending && !s.queued {
		s.queued = true
		s.lane.desk.put(s)
	}
}

// list adds the share to those that report checks regularly. The caller holds the lock.
func (s *share) list() {
	if !s.listed {
		s.listed = true
		d := s.lane.desk
		d.mu.Lock()
		d.open = append(d.open, s)
		d.mu.Unlock()
	}
}

// withdraw removes a call that no longer waits. The caller holds the lock.
func (s *share) withdraw(c *call) {
	for i, x := range s.calls {
		if x == c {
			s.calls = append(s.calls[:i], s.calls[i+1:]...)
			if i < s.asked {
				s.asked--
			}
			break
		}
	}
	s.forget()
}

// forget drops a share that holds nothing and that no call waits for. The caller holds the lock.
func (s *share) forget() {
	if len(s.calls) == 0 && !s.sending && !s.queued && !s.listed && s.given == s.used+s.back &&
		s.part.shares[s.key] == s {
		delete(s.part.shares, s.key)
		s.lane.desk.held.Add(-1)
	}
}

func (s *share) shardOf() byte { return s.shard }
func (s *share) slow() bool    { return s.lane.slow.Load() }

// ask implements errand.
func (s *share) ask(now time.Duration) *request {
	s.part.mu.Lock()
	defer s.part.mu.Unlock()
	s.queued = false
	s.lapse(now)
	q := &request{kind: kindBorrow, shard: s.shard, limit: s.lane.name, key: s.key}
	s.asked = len(s.calls)
	for i, c := range s.calls {
		if q.Need+c.cost > limit.MaxAmount {
			s.asked = i
			break
		}
		q.Need += c.cost
	}
	t := s.turn
	if s.asked > 0 {
		q.Least = s.calls[0].cost
		s.back += max(0, s.left()) // not enough for the first call: return it and request everything anew
		t = turnOf(s.calls[:s.asked])
	}
	q.Weight, q.More, q.Spread = t.Weight, t.More, t.Spread
	q.Want = s.want(now)
	left := s.left()
	if len(s.calls) == 0 && q.Want == 0 && (left == 0 || now-s.lastUse > idleFor) {
		s.back += left
		q.Close = s.held == 0
	}
	q.Loan, q.Used, q.Back, q.Held = s.loan, s.used, s.back, s.held
	if s.used > s.saidUsed {
		q.Age = max(0, now-s.usedAt)
	}
	s.saidUsed, s.saidAt, s.closing, s.sending = s.used, now, q.Close, true
	s.least, s.saidHeld = q.Least, s.held
	s.askedBy = s.lane.def.Load()
	s.wanted = q.Need+q.Want > 0
	return q
}

// turnOf returns the Waiters of the calls, if all of them wait; otherwise the zero value.
func turnOf(calls []*call) (t Waiters) {
	for _, c := range calls {
		if c.turn.Weight == 0 {
			return Waiters{}
		}
		t.Weight, t.More = max(t.Weight, c.turn.Weight), max(t.More, c.turn.More)
		t.Spread = c.turn.Spread
	}
	return t
}

// told implements errand.
func (s *share) told(r *reply, sent, now time.Duration) {
	s.part.mu.Lock()
	defer s.part.mu.Unlock()
	d := s.lane.desk
	s.sending = false
	if r == nil || r.status == moved || r.status == unknown {
		s.asked, s.saidUsed = 0, -1 // the report may not have arrived
		if s.wanted {               // or its answer was lost
			s.unsure = sent + limittable.BorrowTerm
		}
		if r != nil && r.status == unknown && s.given == s.used+s.back {
			s.closing = false
			s.renew() // the limit is gone: there is no loan to close
		}
		if len(s.calls) > 0 || s.given > s.used+s.back || s.closing || now < s.unsure {
			delay := failEach
			if r != nil {
				delay = movedEach
			}
			s.queued = true
			d.putLate(s, now+delay)
		}
		s.closing = false
		s.forget()
		return
	}
	d.down[trackOf(s)].Store(0)
	s.unsure = 0
	s.given, s.until = max(r.given, s.used+s.back), sent+limittable.BorrowTerm
	s.snap, s.snapAt = r.Decision, now
	if s.left() < 0 { // the host does not know what was lent
		s.giveUp(now)
	}
	s.serve(r, sent, now)
	if r.Shared { // counted at once with others: nothing stays held
		s.back += s.given - s.used - s.back
		s.held, s.holding = 0, 0
	}
	if s.closing && s.given == s.used+s.back { // otherwise the host lent units before the report arrived
		s.renew()
	}
	s.closing = false
	switch {
	case len(s.calls) > 0 && s.calls[0].until > now && r.status == again && s.asked == 0:
		s.queued = true
		d.putLate(s, now+recallEach)
	case len(s.calls) > 0:
		s.send()
	case s.given > 0, now < s.refusedUntil:
		s.list()
	default:
		s.forget()
	}
}

// serve answers the calls of a message. The caller holds the lock.
func (s *share) serve(r *reply, sent, now time.Duration) {
	asked, rest := s.calls[:s.asked], s.calls[s.asked:]
	var kept []*call
	for _, c := range asked {
		a := callAnswer{Decision: r.Decision}
		left := s.left()
		switch {
		case c.cost <= left && now < s.until:
			a.at = s.takeOf(now, c)
			a.Allowed, a.Retry, a.Remaining = true, 0, r.Remaining+left-c.cost
		case r.status == again && now < c.until,
			c.cost < s.least: // the decision was about the first call only
			kept = append(kept, c)
			continue
		default:
			a.Allowed = false
			a.Remaining += left
			if a.Retry == 0 { // earlier calls used what there was
				a.Retry = recallEach
			}
			s.refused, s.refusedCost, s.refusedAt = a.Decision, c.cost, now
			s.refusedBy, s.refusedUntil = s.askedBy, sent+refuseFor
			if a.Retry > 0 {
				s.refusedUntil = sent + min(a.Retry, refuseFor)
			}
		}
		c.done <- a
	}
	s.calls, s.asked = append(kept, rest...), 0
}

// Recalled returns the units held of keys that others need, if the message is addressed to this
// Client.
func (d *Client) Recalled(msg []byte) {
	if len(msg) < 8 || binary.LittleEndian.Uint64(msg) != public(d.who) {
		return
	}
	ps, err := parsePlaces(msg[8:])
	if err != nil {
		return
	}
	d.recalled(ps)
}

func (d *Client) recalled(ps []place) {
	now := d.boot()
	for _, x := range ps {
		d.mu.Lock()
		l := d.known[x.limit].Value()
		d.mu.Unlock()
		if l == nil {
			continue
		}
		p := &l.parts[maphash.String(d.seed, x.key)%deskParts]
		p.mu.Lock()
		if s := p.shares[x.key]; s != nil {
			s.back += max(0, s.left())
			s.recalledTill = now + rateOver
			s.send()
		}
		p.mu.Unlock()
	}
}

// holds returns how much this Client holds of a key.
func (l *LimitClient) holds(key string) int64 {
	p := &l.parts[maphash.String(l.desk.seed, key)%deskParts]
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.shares[key]; s != nil && l.desk.boot() < s.until {
		return s.left()
	}
	return 0
}

// len returns the number of keys with a request or held units.
func (l *LimitClient) len() (n int) {
	for i := range l.parts {
		p := &l.parts[i]
		p.mu.Lock()
		n += len(p.shares)
		p.mu.Unlock()
	}
	return n
}

// Borrowers returns the known number of processes that borrow.
func (d *Client) Borrowers() int { return d.way.Borrowers() }

// put queues an errand.
func (d *Client) put(e errand) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.enqueue(e)
}

// enqueue does the work of put. The caller holds mu.
func (d *Client) enqueue(e errand) {
	i := trackOf(e)
	d.queue[i] = append(d.queue[i], e)
	d.queued++
	d.poke()
}

// poke wakes the goroutine that sends the queue.
func (d *Client) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// putLate queues an errand at time due.
func (d *Client) putLate(e errand, due time.Duration) {
	d.mu.Lock()
	d.late = append(d.late, lateErrand{e, due})
	d.mu.Unlock()
}
