package quota

import (
	"context"
	"errors"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/internal/usage"
	"github.com/headgate/headgate/limit"
)

// Shards is the number of shards of the keys of a limit (docs/design.md §6).
const Shards = 256

// mostTables is the maximum number of limits in a shard. Chosen.
const mostTables = 10_000

// A Definition is a limit as it is in force. A changed limit has a new Definition with the same
// name.
type Definition struct {
	Name    string
	Unit    string // of the count; usage in another unit is ignored
	Rules   *limittable.Rules
	MaxKeys int  // in all shards together
	Wall    bool // windows are aligned to the wall clock
	Lends   bool // the units can be lent: neither calls in progress nor paced units
	Calls   bool // it counts calls in progress
	Lenient bool // a soft limit, or shadow mode: counts, and denies nothing
	Usage   bool // what each key uses is recorded
	Policy  Policy
	// Divide returns the rules for the part of one of several processes.
	Divide func(among int) (*limittable.Rules, error)
}

// A role is the relation of this process to a shard.
type role uint8

const (
	away    role = iota
	copying      // a copy is being received
	stands       // standby: replicates the host, and decides nothing
	takes        // is about to host its copy: it no longer replicates
	hosts
	paused // still the host, and about to hand over
)

// A shard is a part of the keys of all limits.
type shard struct {
	mu        sync.Mutex
	role      role
	epoch     uint64 // of this process alone: incremented each time it begins to host
	tables    map[string]*table
	ahead     time.Duration   // the shard's time minus the own clock
	lost      bool            // the usage of keys before lostAt is unknown
	lostAt    limittable.Time // one term after the loss: loans may be used until then
	lostWall  limittable.Time
	unwritten bool            // and there are no blocks for keys of long windows
	missed    map[string]bool // limits with changes that were not replicated here
	out       []*link         // must replicate changes before they are answered
	blocks    blocks
	tally     usage.Tally     // what was used of limits with Usage, and not written yet
	forgot    map[string]bool // not nil: what was not written is lost; the limits for which that is recorded

	from   uint64 // for copying and stands: the stream from the host
	heard  limittable.Time
	heardA time.Duration // own clock when heard was received
}

type table struct {
	limittable.Table
	def  *Definition
	gave int64 // by the last request that gave units back
}

// A ledger is the state of all shards in one process, as host or standby.
type ledger struct {
	seed   maphash.Seed
	boot   func() time.Duration // own clock, including suspend
	rules  func(name string) *Definition
	recall func(who uint64, ps []place)
	lease  atomic.Int64 // own clock until which this process may host
	shards [Shards]shard

	mu      sync.Mutex
	streams map[uint64]*stream // from other hosts

	dirty chan struct{} // a block must be written
}

func newLedger(
	boot func() time.Duration, rules func(string) *Definition, recall func(uint64, []place),
) *ledger {
	return &ledger{seed: maphash.MakeSeed(), boot: boot, rules: rules, recall: recall,
		streams: map[uint64]*stream{}, dirty: make(chan struct{}, 1)}
}

func (l *ledger) hash(key string) uint64 { return maphash.String(l.seed, key) }

// now returns the shard's time. The caller holds mu.
func (s *shard) now(boot time.Duration) limittable.Time { return limittable.Time(boot + s.ahead) }

// decides reports whether decisions made here are valid: no other process hosts the shard. The
// caller holds mu.
func (s *shard) decides() bool { return s.role == hosts || s.role == paused }

// table returns the table of a limit, with the rules in force. The caller holds mu.
func (s *shard) table(d *Definition, now limittable.Time) *table {
	t := s.tables[d.Name]
	if t != nil && t.def == d {
		return t
	}
	if t != nil && t.def.Unit != d.Unit {
		t = nil
	}
	if t == nil {
		if t = (&table{}); s.tables == nil {
			s.tables = map[string]*table{}
		}
		s.tables[d.Name] = t
		t.StartIDs(rand.Uint64() >> 2)
	}
	fresh := t.def == nil
	t.def = d
	t.SetRules(now, d.Rules, partOf(d.MaxKeys))
	t.SetForgiving(d.Lenient)
	if fresh && s.missed[d.Name] { // its loans may be used for one more term
		t.Presume(s.tableTime(d, now) + limittable.LendTerm)
	} else if fresh && s.lost && (!d.Rules.Long() || s.unwritten) { // the others have blocks
		t.Presume(s.lostTime(d))
	}
	return t
}

// tableTime returns the time by which a limit counts. The caller holds mu.
func (s *shard) tableTime(d *Definition, now limittable.Time) limittable.Time {
	if d.Wall {
		return limittable.Time(time.Now().UnixNano())
	}
	return now
}

// lostTime returns when all unknown usage counts as used, in the time of a limit. The caller holds
// mu.
func (s *shard) lostTime(d *Definition) limittable.Time {
	if d.Wall {
		return s.lostWall
	}
	return s.lostAt
}

// A waiting is what must be replicated before a message is answered.
type waiting struct {
	links []*link
	upTo  []uint64
	also  map[uint64][]place // which units to recall, from which borrower
	wrote []blockAt
}

func (w *waiting) add(k *link, n uint64) {
	for i := range w.links {
		if w.links[i] == k {
			w.upTo[i] = n
			return
		}
	}
	w.links, w.upTo = append(w.links, k), append(w.upTo, n)
}

// answer decides the requests of a message. It returns nil if the message is not valid, if this
// process may not host, or if the answer would come after askTry, when the caller has given up.
func (l *ledger) answer(ctx context.Context, msg []byte) []byte {
	ctx, stop := context.WithTimeout(ctx, askTry)
	defer stop()
	_, rs, err := parseRequests(msg)
	if err != nil {
		return nil
	}
	ptrs := make([]*request, len(rs))
	for i := range rs {
		ptrs[i] = &rs[i]
	}
	replies := l.decide(ctx, ptrs)
	if replies == nil {
		return nil
	}
	return appendReplies(nil, replies)
}

// decide decides requests. It returns nil if this process may not host now.
func (l *ledger) decide(ctx context.Context, rs []*request) []reply {
	replies, epochs := make([]reply, len(rs)), make([]uint64, len(rs))
	var w waiting
	id := uint64(0)
	for i, q := range rs {
		if q.names() {
			id = q.id
			continue
		}
		if q.kind == kindReserve || q.kind == kindTake {
			q.id = id
		}
		replies[i], epochs[i] = l.do(q, &w)
		id = 0
	}
	for who, ps := range w.also {
		l.recall(who, ps)
	}
	repeated := true
	for i, k := range w.links {
		if !k.wait(ctx, w.upTo[i]) {
			return nil
		}
		repeated = repeated && k.reached(w.upTo[i])
	}
	for _, x := range w.wrote {
		if !x.s.awaitBlock(ctx, x.seq, x.epoch) {
			return nil
		}
	}
	if int64(l.boot()) >= l.lease.Load() {
		return nil
	}
	if !repeated || len(w.wrote) > 0 {
		for i, q := range rs { // another host may have taken over without these changes
			s := &l.shards[q.shard]
			s.mu.Lock()
			if !s.decides() || s.epoch != epochs[i] {
				replies[i] = movedAfter(&replies[i])
			}
			s.mu.Unlock()
		}
	}
	return replies
}

// movedAfter returns the reply to a request of a shard that was left after r was decided. The next host
// may have the change, so the request may have been performed. Older nodes do not read that.
func movedAfter(r *reply) reply {
	return reply{status: moved, Decision: limit.Decision{Allowed: r.status != moved}}
}

// do decides one request.
func (l *ledger) do(q *request, w *waiting) (r reply, epoch uint64) {
	s := &l.shards[q.shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.role != hosts {
		return reply{status: moved}, 0
	}
	def := l.rules(q.limit)
	if def == nil || s.tables[q.limit] == nil && len(s.tables) >= mostTables {
		return reply{status: unknown}, s.epoch
	}
	clk := l.boot()
	at := s.now(clk)
	t := s.table(def, s.tableTime(def, at))
	now, hash := s.tableTime(def, at), l.hash(q.key)
	var deed limittable.Entry
	repeated := false // taken by an earlier request whose answer was lost
	but := uint64(0)  // the borrower may hold units itself
	if q.kind == kindBorrow {
		deed, but = t.borrow(q, limitTimes{now, limittable.Time(clk)}, hash, &r), q.Borrower
	} else {
		deed, repeated = t.other(q, now, hash, &r)
		if q.kind == kindBook && deed.Kind != 0 {
			t.Replicate(now, limittable.Time(clk), hash, q.key, &deed)
		}
	}
	if r.status == again {
		if w.also == nil {
			w.also = map[uint64][]place{}
		}
		for _, who := range t.Holders(hash, but) {
			w.also[who] = append(w.also[who], place{q.limit, q.key})
		}
	}
	takes := deed.Kind == limittable.EntryLend || deed.Kind == limittable.EntryTake || repeated
	if takes && def.Rules.Long() {
		seq, ok := s.blockFor(t, hash, q.key)
		if !ok {
			return reply{status: unknown}, s.epoch
		} else if seq > 0 {
			w.wrote = append(w.wrote, blockAt{s, seq, s.epoch})
			select {
			case l.dirty <- struct{}{}:
			default:
			}
		}
	}
	if repeated {
		for _, k := range s.out {
			w.add(k, k.last())
		}
	}
	s.count(t, q, &deed, clk)
	if deed.Kind != 0 {
		for _, k := range s.out {
			upTo := k.put(appendDeed(nil, q, deedTimes{at, now}, &deed))
			if q.renews() { // the call is taken once more, and the old one ends
				over := limittable.Entry{Kind: limittable.EntrySettle, ID: q.id}
				upTo = k.put(appendDeed(nil, q, deedTimes{at, now}, &over))
			}
			w.add(k, upTo)
		}
	}
	return r, s.epoch
}

// A limitTimes is the time of a table and the own clock.
type limitTimes struct{ now, clk limittable.Time }

// borrow processes a report and returns the change that it made.
func (t *table) borrow(q *request, at limitTimes, hash uint64, r *reply) (d limittable.Entry) {
	got := t.Borrow(at.now, at.clk, hash, q.key, &q.Report)
	r.Decision, r.given = got.Decision, got.Given
	some := q.Weight == 0 && got.Given-got.Used-got.Back-q.Held < q.Need // enough for some calls only
	if q.Need > 0 && (!got.Allowed || some) && got.Others > 0 && got.Retry >= 0 {
		r.status = again
	}
	if got.Booked == 0 && got.Given == 0 && got.Closed {
		return d // nothing has changed
	}
	return limittable.Entry{Kind: limittable.EntryLend, N: got.Booked, At: got.At, Borrower: q.Borrower,
		Loan: q.Loan, Given: got.Given, Used: got.Used, Back: got.Back, Want: q.Want, Close: got.Closed}
}

// other decides requests that are not about loans. repeated reports that an earlier request has taken the
// same.
func (t *table) other(
	q *request, now limittable.Time, hash uint64, r *reply,
) (d limittable.Entry, repeated bool) {
	var err error
	switch q.kind {
	case kindPeek:
		// Borrowers are asked to report first: it is allowed once none of them holds units any
		// more.
		if r.Decision = t.Peek(now, hash, q.key, max(0, q.n)); q.gathers() {
			r.Allowed, r.Retry = len(t.Holders(hash, 0)) == 0, 0
		}
	case kindTake:
		before := int64(0)
		if q.n < 0 && t.def.Usage {
			before = t.Used(now, hash)
		}
		if q.id != 0 && t.def.Calls && q.n > 0 {
			r.Decision, repeated, err = t.Repeatable(now, hash, q.key, q.n, 0, q.id)
		} else {
			r.Decision, err = t.Take(now, hash, q.key, q.n)
		}
		switch {
		case repeated:
		case q.n > 0 && r.Allowed:
			d = limittable.Entry{Kind: limittable.EntryTake, N: q.n, ID: r.ID}
			if r.ID != 0 {
				d.TTL = t.def.Rules.Lease()
			}
		// A negative amount gives units back. The entry has them as a positive number.
		case q.n < 0:
			d = limittable.Entry{Kind: limittable.EntryGive, N: -q.n}
			if t.def.Usage {
				t.gave = before - t.Used(now, hash)
			}
		}
	case kindReserve:
		if q.id != 0 {
			r.Decision, repeated, err = t.Repeatable(now, hash, q.key, q.n, q.ttl, q.id)
		} else {
			r.Decision, err = t.Reserve(now, hash, q.key, q.n, q.ttl)
		}
		if r.Allowed && !repeated {
			d = limittable.Entry{Kind: limittable.EntryTake, N: q.n, TTL: q.ttl, ID: r.ID}
		}
	case kindSettle:
		if q.renews() {
			d = limittable.Entry{Kind: limittable.EntryTake, ID: q.id}
			if d.N, d.TTL, err = t.Renew(now, hash, q.id); err == nil {
				r.Decision = t.Peek(now, hash, q.key, 0)
			}
		} else if err = t.Settle(now, hash, q.id, q.n); err == nil {
			d = limittable.Entry{Kind: limittable.EntrySettle, N: q.n, ID: q.id}
			r.Decision = t.Peek(now, hash, q.key, 0)
		}
	case kindBook:
		if q.n <= 0 || q.n > limit.MaxAmount {
			err = limittable.ErrCost
			// Calls in progress leave nothing behind: there is nothing to count when they are over.
		} else if !t.def.Calls {
			d = limittable.Entry{Kind: limittable.EntryTake, N: q.n}
		}
		r.Allowed = true
	case kindReset:
		t.Reset(hash)
		d = limittable.Entry{Kind: limittable.EntryReset}
	}
	switch {
	case errors.Is(err, limittable.ErrSettled):
		r.status = noHold
	case err != nil:
		r.status = impossible
	// What is lent may come back unused: the client asks again before it believes the rejection.
	case !r.Allowed && r.Retry >= 0 && (q.kind == kindTake || q.kind == kindReserve) && t.Lent(hash) > 0:
		r.status = again
	case !r.Allowed && r.Retry >= 0 && q.kind == kindPeek &&
		len(t.Holders(hash, 0)) > 0:
		r.status = again
	}
	// A request that failed has changed nothing, so the standby gets no entry.
	if err != nil {
		return limittable.Entry{}, false
	}
	return d, repeated
}

// expire counts the units of expired borrowers as used, for the shards hosted here. It also informs
// the standby, which would otherwise lend units that have been lent to others since.
func (l *ledger) expire() {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		if s.role == hosts {
			clk := l.boot()
			at := s.now(clk)
			for name, t := range s.tables {
				now := s.tableTime(t.def, at)
				t.Expire(now, limittable.Time(clk), func(key string, d *limittable.Entry) {
					q := &request{shard: byte(i), limit: name, key: key}
					if t.def.Usage && d.N > 0 {
						s.unreported(byte(i), clk, name, d.N)
					}
					for _, k := range s.out {
						k.put(appendDeed(nil, q, deedTimes{at, now}, d))
					}
				})
			}
		}
		s.mu.Unlock()
	}
}

// forget drops the tables of limits that no longer exist.
func (l *ledger) forget() {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		for name := range s.tables {
			if l.rules(name) == nil {
				delete(s.tables, name)
			}
		}
		s.mu.Unlock()
	}
}

// uses returns keys of a limit in a shard hosted here, from a place on.
func (l *ledger) uses(name string, i byte, from, count int) (all []limit.Usage, next int, ok bool) {
	def := l.rules(name)
	s := &l.shards[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.role != hosts || def == nil || from < 0 {
		return nil, 0, false
	}
	if t := s.tables[name]; t != nil {
		all, next = t.Usage(s.tableTime(def, s.now(l.boot())), from, count)
	}
	return all, next, true
}

// cut stops a link from replicating a shard.
func (l *ledger) cut(i int, k *link) {
	s := &l.shards[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.out, k) {
		s.out = without(s.out, k)
		k.put([]byte{recordGone, byte(i)})
	}
}

// only stops all links of a shard except two.
func (l *ledger) only(i int, one, other *link) {
	s := &l.shards[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.out {
		if k != one && k != other {
			s.out = without(s.out, k)
			k.put([]byte{recordGone, byte(i)})
		}
	}
}

func without(all []*link, k *link) (rest []*link) {
	for _, x := range all {
		if x != k {
			rest = append(rest, x)
		}
	}
	return rest
}

// repeats reports whether a link replicates a shard, or is receiving its copy.
func (l *ledger) repeats(i int, k *link) bool {
	s := &l.shards[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.out, k)
}

// pause stops all decisions about a shard. It returns where the decisions end on its link, if there
// is one.
func (l *ledger) pause(i int, k *link) (upTo uint64) {
	s := &l.shards[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.role == hosts {
		s.role = paused
	}
	if k == nil {
		return 0
	}
	return k.last()
}

// own pauses a shard that the shard map assigns to this process. A shard that was handed to this
// process a moment ago may still be a copy: its time continues from the last message.
func (l *ledger) own(i int) {
	if l.take(i) || l.roleOf(i) == takes {
		l.host(i, basis{})
	}
	l.pause(i, nil)
}

// resume continues a shard that was not handed over.
func (l *ledger) resume(i int) {
	s := &l.shards[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.role == paused {
		s.role = hosts
	}
}
