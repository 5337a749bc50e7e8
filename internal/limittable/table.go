package limittable

import (
	"cmp"
	"errors"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/limit"
)

// Bounds of a table. Chosen.
const (
	fewest   = 8      // places of a table
	mostHeld = 10_000 // reservations of one key

	heldAgain = time.Second // by then one of them may have been settled, or a call may have ended

	// Keys are checked for removal in turn: a few with each new key, so that removal keeps up with
	// creation, and some more from time to time.
	lookNew   = 4
	lookEach  = 4 // decisions
	lookOften = 1

	kept = Time(time.Second) // a key that is as good as new stays this long: creating it again costs more
)

// Time is a moment in nanoseconds since 1970. A Table uses the latest moment that it was given.
type Time int64

// Never is later than every moment.
const Never Time = math.MaxInt64

// Errors of a Table.
var (
	ErrCost             = errors.New("invalid cost")
	ErrSettled          = errors.New("no such reservation: it was settled, or its time is over")
	ErrNothingToReserve = errors.New("calls under way are settled one by one")
)

// Rules are a rule and the amounts of keys that have one of their own, compiled for decisions. They
// never change, so many tables can share them.
type Rules struct {
	law  ruled
	over map[string]*ruled // by key, and by the first part of keys of a plan
	rest *ruled            // of all keys beyond the maximum
	rule limit.Rule

	calls, paced bool // Concurrency; Paced
}

// A ruled is a law with the maximum that it allows at once.
type ruled struct {
	law
	most int64
	step Time // between units that are spread over the window; 0: not spread
}

func ruledBy(r limit.Rule) ruled { return ruled{lawOf(r), r.MaxCost(), stepOf(r)} }

// Compile returns the Rules of a rule. overrides are other amounts of keys, or of all keys of a plan
// (PlanKey); the burst changes in proportion.
func Compile(rule limit.Rule, overrides map[string]int64) (*Rules, error) {
	all := []error{rule.Check()}
	for _, amount := range overrides {
		all = append(all, withAmount(rule, amount).Check())
	}
	if err := errors.Join(all...); err != nil {
		return nil, err
	}
	r := &Rules{
		law: ruledBy(rule), over: make(map[string]*ruled, len(overrides)),
		rule: rule.WithDefaults(), calls: rule.Algorithm == limit.Concurrency, paced: rule.Paced,
	}
	for key, amount := range overrides {
		own := ruledBy(withAmount(rule, amount))
		r.over[key] = &own
	}
	// Keys beyond the maximum are counted together, whatever their plans are. So they have the least
	// amount of all plans: more would be over the limit of some. The maximum at once would not tell: a
	// burst of one call is that of many amounts.
	r.rest = r.ofKey("")
	least, ok := overrides[""]
	if !ok {
		least = rule.Amount
	}
	for key, amount := range overrides {
		if IsPlanKey(key) && amount < least {
			r.rest, least = r.over[key], amount
		}
	}
	return r, nil
}

// Divide returns Rules for one of among equal parts of a rule: at least 1, unless the rule allows
// nothing.
func Divide(rule limit.Rule, overrides map[string]int64, among int) (*Rules, error) {
	part := func(amount int64) int64 {
		return max(min(1, amount), amount/int64(max(1, among)))
	}
	own := make(map[string]int64, len(overrides))
	for key, amount := range overrides {
		own[key] = part(amount)
	}
	return Compile(withAmount(rule, part(rule.Amount)), own)
}

// withAmount returns the rule with another amount; the burst changes in proportion.
func withAmount(r limit.Rule, amount int64) limit.Rule {
	if r.Burst > 0 && r.Amount > 0 {
		hi, lo := bits.Mul64(uint64(r.Burst), uint64(max(0, amount)))
		switch {
		case amount <= 0:
			r.Burst = 0
		case hi >= uint64(r.Amount):
			r.Burst = limit.MaxAmount + 1 // Check reports it
		default:
			burst, _ := bits.Div64(hi, lo, uint64(r.Amount))
			r.Burst = int64(max(1, min(burst, limit.MaxAmount+1)))
		}
	}
	r.Amount = amount
	return r
}

// of returns the law of an entry.
func (r *Rules) of(e *entry) *ruled {
	switch {
	case len(r.over) == 0:
		return &r.law
	case e.hash == 0: // no place of the table: the keys beyond the maximum
		return r.rest
	}
	return r.ofKey(e.key)
}

func (r *Rules) ofKey(key string) *ruled {
	if plan := planPart(key); plan != "" {
		key = plan // no key of a plan has an amount of its own
	}
	if l := r.over[key]; l != nil {
		return l
	}
	return &r.law
}

// A Table holds what the keys of one rule have used. Its caller guards it with a lock. Each key
// comes with a hash of 64 good bits that clients cannot predict, such as hash/maphash returns, and
// is identified by it. Two keys of one hash are counted together; among ten million keys this
// happens once in 400,000 processes, and never allows more than the limit. The zero Table is ready
// after SetRules.
type Table struct {
	now     Time // fields that each decision writes come first, next to the caller's lock
	asked   uint // decisions since keys were last checked
	rules   *Rules
	entries []entry // see keys.go
	n       int     // number of entries that are keys
	most    int
	hand    int // next place to check

	ids   uint64
	rest  entry // all keys beyond most
	blank entry // a key that has used nothing

	lending map[uint64]struct{} // hashes of keys with loans
	lostAt  Time                // time as of which lost usage counts
	lost    bool

	forgives bool
}

// StartIDs makes the numbers of reservations begin after from, at most 1<<62, so that a number of
// another table, or of an earlier process, settles nothing here.
func (t *Table) StartIDs(from uint64) { t.ids = from }

// SetForgiving sets whether debts are forgiven: then what a settlement exceeds the remaining amount
// by is not owed. It is meant for a limit that rejects nothing. When such a limit begins to reject,
// no call has to wait because of earlier calls that it would have rejected.
func (t *Table) SetForgiving(all bool) { t.forgives = all }

// SetRules changes the rules from now on, and the maximum number of keys. What a key has used stays
// used. If the algorithm or its window changes, all of it counts as taken now, but never more than
// is allowed at once. Existing keys stay, even if they are more than the maximum.
func (t *Table) SetRules(now Time, rules *Rules, most int) {
	t.most = max(1, most)
	if t.rules == nil {
		t.rules, t.entries = rules, make([]entry, fewest)
		t.step(now)
		return
	}
	old := t.rules
	if t.rules = rules; old.rule.Algorithm != rules.rule.Algorithm {
		t.now = min(now, latest) // it may be on another clock
	}
	now = t.step(now)
	for i := range t.Places() {
		t.renew(&t.entries[i], old, now)
	}
	t.renew(&t.rest, old, now)
}

// renew converts what a key has used from the old rules to the current ones.
func (t *Table) renew(e *entry, old *Rules, now Time) {
	was, next := old.of(e), t.rules.of(e)
	lapse(e, old, now)
	used := min(max(0, was.most-was.spare(e, now)), next.most)
	o, r := &old.rule, &t.rules.rule
	switch {
	case o.Algorithm != r.Algorithm || o.Window != r.Window || o.Parts != r.Parts ||
		o.Align != r.Align || o.Zone.String() != r.Zone.String():
	case r.Algorithm.HasBurst():
		e.b = min(e.b, next.most)
		return
	case r.Algorithm == limit.SlidingLog:
		next.law.(*logLaw).retick(e, was.law.(*logLaw))
		return
	default:
		return
	}
	holds := e.held()
	if t.rules.calls { // only calls are in progress
		holds = slices.DeleteFunc(holds, func(h hold) bool { return !h.call })
	}
	e.blank()
	if len(holds) > 0 {
		e.extra().holds = holds
	}
	if t.rules.calls {
		for _, h := range holds {
			e.b += h.n
		}
		return
	}
	next.spare(e, now)
	next.book(e, now, used)
	for i := range e.held() { // what they took counts as taken now
		e.more.holds[i].at, e.more.holds[i].low = now, used
	}
}

// Len returns the number of keys.
func (t *Table) Len() int { return t.n }

// latest is the last moment that is distinguished from others: the ends of windows lie beyond it.
const latest = Never / 2

// step advances the table to a moment. If the clock steps back, time stands still.
func (t *Table) step(now Time) Time {
	t.now = max(t.now, min(now, latest))
	return t.now
}

// late adds to the times of a decision how long the table's time will stand still.
func (t *Table) late(d *limit.Decision, now Time) {
	if lag := time.Duration(t.now - now); lag > 0 {
		if d.Reset > 0 {
			d.Reset += lag
		}
		if d.Retry > 0 {
			d.Retry += lag
		}
	}
}

// Take takes n at now, all or nothing. 0 only checks; a negative n gives back what was taken last.
// Under Concurrency the decision has the ID of the call, which Settle ends.
func (t *Table) Take(now Time, hash uint64, key string, n int64) (d limit.Decision, err error) {
	err = t.Decide(now, hash, key, n, &d)
	return d, err
}

// Decide is Take with the result in d, which must be blank: copying a Decision is a tenth of the
// cost.
func (t *Table) Decide(now Time, hash uint64, key string, n int64, d *limit.Decision) error {
	if n > limit.MaxAmount || n < -limit.MaxAmount {
		return ErrCost
	}
	ttl := time.Duration(0)
	if t.rules.calls {
		if n < 0 {
			return ErrNothingToReserve
		}
		if n > 0 {
			ttl = t.rules.rule.Lease
		}
	}
	t.take(t.step(now), hash, key, ask{n: n, ttl: ttl}, d)
	t.late(d, now)
	return nil
}

// Reserve takes n as Take does, and Settle replaces it by the real cost within ttl. If it is not
// settled by then, n counts as the cost; under Concurrency it is given back.
func (t *Table) Reserve(
	now Time, hash uint64, key string, n int64, ttl time.Duration,
) (d limit.Decision, err error) {
	if n > limit.MaxAmount || n <= 0 || ttl <= 0 || ttl > limit.MaxWindow {
		return d, ErrCost
	}
	t.take(t.step(now), hash, key, ask{n: n, ttl: ttl}, &d)
	t.late(&d, now)
	return d, nil
}

// repeatFor is how long after a reservation its repeat is recognized. Chosen: callers wait for a second, and
// the cost of a reservation must not grow with the number of all that are not settled.
const repeatFor = Time(3 * time.Second)

// holdsSince reports whether a hold that ends at from or later has an ID.
func (e *entry) holdsSince(id uint64, from Time) bool {
	held := e.held()
	for i := len(held) - 1; i >= 0 && held[i].end >= from; i-- {
		if held[i].id == id {
			return true
		}
	}
	return false
}

// chosen is set in the IDs that callers choose, so that they differ from those of tables.
const chosen = 1 << 62

// ChosenID returns an ID for Repeatable. The random number makes it unique.
func ChosenID(random uint64) uint64 { return random>>2 | chosen }

// Repeatable is Reserve, or under Concurrency Take, with an ID that the caller has chosen. If the ID was
// taken in the last three seconds and is not settled, nothing more is taken, and taken is true: the answer
// was lost.
func (t *Table) Repeatable(
	now Time, hash uint64, key string, n int64, ttl time.Duration, id uint64,
) (d limit.Decision, taken bool, err error) {
	if t.rules.calls && ttl == 0 {
		ttl = t.rules.rule.Lease
	}
	if n > limit.MaxAmount || n <= 0 || ttl <= 0 || ttl > limit.MaxWindow || id&chosen == 0 {
		return d, false, ErrCost
	}
	at := t.step(now)
	_, e := t.slot(hash)
	for _, e := range []*entry{e, &t.rest} {
		if e == nil {
			continue
		}
		lapse(e, t.rules, at)
		if !e.holdsSince(id, at+Time(ttl)-repeatFor) {
			continue
		}
		d = t.Peek(now, hash, key, 0)
		if d.ID = id; t.rules.paced { // not before it is due: later calls may be counted
			d.Wait = max(0, time.Duration(t.rules.of(e).idle(e)-at))
		}
		return d, true, nil
	}
	t.take(at, hash, key, ask{n, ttl, id}, &d)
	t.late(&d, now)
	return d, false, nil
}

// Peek reports whether n would be allowed, and changes nothing.
func (t *Table) Peek(now Time, hash uint64, key string, n int64) (d limit.Decision) {
	at := t.step(now)
	_, e := t.slot(hash)
	shared := false
	if e == nil {
		if e = &t.blank; t.full(key) {
			e, shared = &t.rest, true
		} else {
			e.hash = known(hash)
			t.begin(e, key, at)
		}
	}
	l := t.rules.of(e)
	t.decide(e, l, at, n, &d)
	d.Reset = t.whole(e, l, at)
	d.Shared, t.blank = shared, entry{}
	t.late(&d, now)
	return d
}

// An ask is an amount, and how long it may be settled; 0: not at all. The caller may choose the ID of what
// it takes; 0: the table chooses it.
type ask struct {
	n   int64
	ttl time.Duration
	id  uint64
}

// take decides about a key and books what is allowed.
func (t *Table) take(now Time, hash uint64, key string, a ask, d *limit.Decision) {
	// A few entries are swept each lookEach calls, so that no call pays for all of them.
	if t.asked++; t.asked >= lookEach {
		t.asked = 0
		t.sweep(now, lookOften)
	}
	_, e := t.slot(hash)
	shared := false
	// A key without an entry has nothing to give back, unless the table is full and the key is
	// counted with the rest.
	if e == nil && (a.n == 0 || a.n < 0 && !t.full(key)) {
		*d = t.Peek(now, hash, key, 0)
		return
	}
	if e == nil {
		t.sweep(now, lookNew)
		if e = t.add(hash, key, now); e == nil {
			e, shared = &t.rest, true
		}
	}
	l := t.rules.of(e)
	if a.n < 0 {
		t.giveBack(e, l, now, -a.n)
		a.n = 0
	}
	t.decide(e, l, now, a.n, d)
	d.Shared = shared
	// The number of holds of a key is bounded: each takes memory until it is settled.
	if d.Allowed && a.ttl > 0 && len(e.held()) >= mostHeld && !t.rules.calls {
		d.Allowed, d.Retry = false, heldAgain
	}
	if d.Allowed && a.n > 0 {
		if t.rules.paced { // earlier calls go first
			d.Wait = max(0, time.Duration(l.idle(e)-now))
		}
		l.book(e, now, a.n)
		d.Remaining -= a.n
		if a.ttl > 0 {
			if d.ID = a.id; d.ID == 0 {
				t.ids++
				d.ID = t.ids
			}
			e.hold(hold{
				id: d.ID, at: now, end: now + Time(a.ttl), n: a.n, low: owedMost, call: t.rules.calls})
		}
	}
	d.Reset = t.whole(e, l, now)
}

// decide decides whether n is allowed at now. It does not set Reset.
func (t *Table) decide(e *entry, l *ruled, now Time, n int64, d *limit.Decision) {
	lent := int64(0)
	if e.more != nil { // few keys have any of it
		lapse(e, t.rules, now)
		lent = e.more.lent
	}
	spare := max(0, l.spare(e, now)-lent)
	d.Allowed, d.Amount, d.Remaining = n <= spare, l.most, spare
	if !d.Allowed {
		d.Retry = retry(e, l, now, n)
	}
}

// retry returns the time until n is allowed, if it is not allowed at now, or a negative value if it
// never is. It is called after spare. Calls in progress may end at any moment, so retry does not
// wait for the ends of their leases.
func retry(e *entry, l *ruled, now Time, n int64) time.Duration {
	at := l.when(e, now, n+e.lent())
	_, calls := l.law.(*concurrencyLaw)
	switch {
	case at != Never && calls:
		return max(1, min(time.Duration(at-now), heldAgain))
	case at != Never:
		return max(1, time.Duration(at-now))
	case n <= l.most: // loans come back, or are reported as used
		return lendAgain
	}
	return -1
}

// giveBack gives back n of what was taken last. Settle gives back what is reserved.
func (t *Table) giveBack(e *entry, l *ruled, now Time, n int64) {
	lapse(e, t.rules, now)
	used := l.most - l.spare(e, now)
	for _, h := range e.held() {
		used -= h.n
	}
	if n = min(n, used); n > 0 && !t.rules.paced { // others wait behind this position in the pace
		l.back(e, nil, n)
	}
}

// hold adds a hold, ordered by end.
func (e *entry) hold(h hold) {
	m := e.extra()
	i, _ := slices.BinarySearchFunc(m.holds, h.end+1, func(x hold, end Time) int {
		return cmp.Compare(x.end, end)
	})
	m.holds = slices.Insert(m.holds, i, h)
}

// lapse ends the holds whose time is over.
func lapse(e *entry, rules *Rules, now Time) {
	held, n := e.held(), 0
	for n < len(held) && held[n].end <= now {
		if rules.calls {
			e.b -= min(held[n].n, e.b)
		}
		n++
	}
	if n > 0 {
		e.more.holds = slices.Delete(e.more.holds, 0, n)
	}
}

// Settle replaces a reservation by the real cost n. If the cost is greater, the difference is owed,
// unless the table is forgiving; if it is less, the difference is given back. Under Concurrency it
// ends the call, whatever n is.
func (t *Table) Settle(now Time, hash, id uint64, n int64) error {
	if n < 0 || n > limit.MaxAmount {
		return ErrCost
	}
	now = t.step(now)
	_, e := t.slot(hash)
	for _, e := range []*entry{e, &t.rest} {
		if e == nil {
			continue
		}
		l := t.rules.of(e)
		lapse(e, t.rules, now)
		spare := l.spare(e, now)
		i := slices.IndexFunc(e.held(), func(h hold) bool { return h.id == id })
		if i < 0 {
			continue
		}
		switch h := &e.more.holds[i]; {
		case t.rules.calls:
			l.back(e, h, h.n)
		// of earlier rules; or its position in the pace was given away
		case h.call || t.rules.paced && n < h.n:
		case n < h.n:
			l.back(e, h, h.n-n)
		case n > h.n:
			if n -= h.n; t.forgives {
				n = min(n, max(0, spare-e.lent()))
			}
			l.book(e, now, n)
		}
		e.more.holds = slices.Delete(e.more.holds, i, i+1)
		return nil
	}
	return ErrSettled
}

// Renew restarts the lease of a call in progress, and returns its amount and new duration. If the
// lease has ended, the call is not counted any more, and Renew returns ErrSettled.
func (t *Table) Renew(now Time, hash, id uint64) (n int64, ttl time.Duration, err error) {
	now = t.step(now)
	_, e := t.slot(hash)
	for _, e := range []*entry{e, &t.rest} {
		if e == nil || !t.rules.calls {
			continue
		}
		lapse(e, t.rules, now)
		i := slices.IndexFunc(e.held(), func(h hold) bool { return h.id == id && h.call })
		if i < 0 {
			continue
		}
		h := e.more.holds[i]
		e.more.holds = slices.Delete(e.more.holds, i, i+1)
		h.end = max(h.end, now+Time(t.rules.rule.Lease))
		e.hold(h)
		return h.n, time.Duration(h.end - now), nil
	}
	return 0, 0, ErrSettled
}

// blank makes an entry as good as new, except for its loans.
func (e *entry) blank() {
	var loans []loan
	lent := e.lent()
	if e.more != nil {
		loans = e.more.loans
	}
	if e.a, e.b, e.c, e.more = 0, 0, 0, nil; len(loans) > 0 {
		e.more = &more{loans: loans, lent: lent}
	}
}

// Reset deletes what a key has used, and its calls in progress. Its loans stay.
func (t *Table) Reset(hash uint64) {
	switch i, e := t.slot(hash); {
	case e == nil:
	case e.more != nil && len(e.more.loans) > 0: // loans may still be used
		e.blank()
	default:
		t.remove(i, math.MinInt64) // no other
	}
}

// Usage returns what up to count keys have used, in the order of the low halves of their hashes,
// beginning at from; 0 is the beginning. next is where to continue, or 0 at the end. A key that
// exists all the time is returned once, even if the table changes its size. Keys with the same low
// half are returned together, even if they are more than count.
func (t *Table) Usage(now Time, from, count int) (all []limit.Usage, next int) {
	if from < 0 || from > math.MaxUint32 {
		return nil, 0
	}
	now, count = t.step(now), max(count, 1)
	var found []*entry
	size, at := len(t.entries), t.home(uint64(from))
	for ; ; at++ {
		e := &t.entries[at%size]
		if e.hash == 0 {
			if at >= size || len(found) >= count {
				break // all entries whose home is this place or earlier have been seen
			}
			continue
		}
		// Entries that do not fit at the end of the table stand at its beginning.
		ahead := t.home(e.hash) > at%size
		if low(e) >= from && ahead == (at >= size) && t.anew(e, now) > now {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(a, b *entry) int { return low(a) - low(b) })
	for i, e := range found {
		if i >= count && low(e) > low(found[i-1]) {
			return all, low(e)
		}
		l, used := t.rules.of(e), t.spent(e, now)
		all = append(all, limit.Usage{Key: strings.Clone(e.key), Used: used, Amount: l.most,
			Remaining: max(0, l.most-used), Reset: time.Duration(t.anew(e, now) - now)})
	}
	if at++; at < size {
		next = int((uint64(at)<<32 + uint64(size) - 1) / uint64(size))
	}
	return all, next
}

// low returns the half of an entry's hash that determines its home.
func low(e *entry) int { return int(uint32(e.hash)) }

// Used returns what a key has used of its amount, or what all keys have that share one if it has none.
func (t *Table) Used(now Time, hash uint64) int64 {
	now = t.step(now)
	_, e := t.slot(hash)
	if e == nil {
		e = &t.rest
	}
	lapse(e, t.rules, now)
	return t.spent(e, now)
}

// spent returns what a key has used of its amount.
func (t *Table) spent(e *entry, now Time) int64 {
	l := t.rules.of(e)
	return l.most - l.spare(e, now) + e.lent()
}

// anew returns the time from which a key is as good as new.
func (t *Table) anew(e *entry, now Time) Time {
	lapse(e, t.rules, now)
	return max(t.rules.of(e).idle(e), now+Time(min(1, t.spent(e, now))))
}

// sweep checks about n keys, and removes those that are as good as new. When it removes one, it
// also checks all entries that follow without a gap, because each of them may have to move: one
// pass over them costs the same for one removal as for many.
func (t *Table) sweep(now Time, n int) {
	for range min(2*n, len(t.entries)) { // at most half of the places are empty
		if t.hand >= len(t.entries) {
			t.hand = 0
		}
		if e := &t.entries[t.hand]; e.hash == 0 || t.busy(e) > now-kept {
			t.hand++
			continue
		}
		t.remove(t.hand, now-kept)
	}
}

// busy returns the time until which a key cannot be removed.
func (t *Table) busy(e *entry) Time {
	until := t.rules.of(e).idle(e)
	if e.more == nil {
		return until
	}
	if len(e.more.loans) > 0 {
		return Never
	}
	if held := e.more.holds; len(held) > 0 {
		until = max(until, held[len(held)-1].end)
	}
	return until
}

// Lease returns how long a call of Concurrency may last.
func (r *Rules) Lease() time.Duration { return r.rule.Lease }

// MaxCost returns the greatest cost that can ever be allowed at once, for keys without an amount of
// their own.
func (r *Rules) MaxCost() int64 { return r.law.most }
