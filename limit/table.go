package limit

import (
	"cmp"
	"errors"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// Bounds of a table. Chosen.
const (
	fewest   = 8      // places of a table
	mostHeld = 10_000 // reservations of one key

	heldAgain = time.Second // then one of them may have been settled, or a call have ended

	// Whether keys can be forgotten is looked at in turn: a few with each key that is new,
	// so that as many go as come, and now and then some more.
	lookNew   = 4
	lookEach  = 4 // decisions
	lookOften = 1

	kept = Time(time.Second) // a key that is as good as new: to make it again costs more
)

// The errors of a Table.
var (
	ErrCost             = errors.New("impossible cost")
	ErrSettled          = errors.New("no such reservation: it was settled, or its time is over")
	ErrNothingToReserve = errors.New("calls under way are settled one by one")
)

// Rules are a rule and the amounts of keys that have one of their own, made for deciding.
// They never change: many tables share them.
type Rules struct {
	law  ruled
	over map[string]*ruled
	rule Rule

	calls, paced bool // Concurrency; Paced
}

// ruled is a law with the most that it lets pass at once.
type ruled struct {
	law
	most int64
	step Time // of units that are spread over the window; 0: they are not
}

func ruledBy(r Rule) ruled { return ruled{lawOf(r), r.MaxCost(), r.step()} }

// Compile makes Rules. overrides are other amounts of keys; a burst keeps its proportion.
func Compile(rule Rule, overrides map[string]int64) (*Rules, error) {
	all := []error{rule.Check()}
	for _, amount := range overrides {
		all = append(all, rule.of(amount).Check())
	}
	if err := errors.Join(all...); err != nil {
		return nil, err
	}
	r := &Rules{
		law: ruledBy(rule), over: make(map[string]*ruled, len(overrides)),
		rule: rule.withDefaults(), calls: rule.Algorithm == Concurrency, paced: rule.Paced,
	}
	for key, amount := range overrides {
		own := ruledBy(rule.of(amount))
		r.over[key] = &own
	}
	return r, nil
}

// Divide makes Rules of the part that one of so many may have of a rule: 1 at least, unless
// it lets nobody pass.
func Divide(rule Rule, overrides map[string]int64, among int) (*Rules, error) {
	part := func(amount int64) int64 {
		return max(min(1, amount), amount/int64(max(1, among)))
	}
	own := make(map[string]int64, len(overrides))
	for key, amount := range overrides {
		own[key] = part(amount)
	}
	return Compile(rule.of(part(rule.Amount)), own)
}

// of is the rule with another amount; a burst keeps its proportion.
func (r Rule) of(amount int64) Rule {
	if r.Burst > 0 && r.Amount > 0 {
		hi, lo := bits.Mul64(uint64(r.Burst), uint64(max(0, amount)))
		switch {
		case amount <= 0:
			r.Burst = 0
		case hi >= uint64(r.Amount):
			r.Burst = MaxAmount + 1 // Check says so
		default:
			burst, _ := bits.Div64(hi, lo, uint64(r.Amount))
			r.Burst = int64(max(1, min(burst, MaxAmount+1)))
		}
	}
	r.Amount = amount
	return r
}

// of is the law of an entry.
func (r *Rules) of(e *entry) *ruled {
	if len(r.over) > 0 {
		return r.ofKey(e.key)
	}
	return &r.law
}

func (r *Rules) ofKey(key string) *ruled {
	if l := r.over[key]; l != nil {
		return l
	}
	return &r.law
}

// A Table is what the keys of one rule have used. Its caller guards it. A key comes with a
// hash of 64 good bits that nobody can choose, such as hash/maphash gives, and is known by
// that: two keys of one hash are counted together, which among ten million happens once in
// 400,000 processes, and lets nobody over. The zero Table becomes one by SetRules.
type Table struct {
	now     Time // what each decision writes comes first, beside its caller's lock
	asked   uint // decisions since keys were looked at
	rules   *Rules
	entries []entry // see keys.go
	n       int     // of them are keys
	most    int
	hand    int // the place that is looked at next

	ids   uint64
	rest  entry // all keys beyond most
	blank entry // of a key that has used nothing

	lending map[uint64]struct{} // hashes of keys of which somebody holds some
	lostAt  Time                // when what was lost counts as used
	lost    bool

	forgives bool
}

// StartIDs lets the numbers of reservations begin behind from: one of another table, or of
// a process before, must settle nothing here.
func (t *Table) StartIDs(from uint64) { t.ids = from }

// Forgive says whether nothing is owed from now on: what a settlement says beyond what is left
// is forgotten then. So it is of a limit that refuses nobody: when it begins to, nobody is to
// wait for what came of calls that it would not have let pass.
func (t *Table) SetForgiving(all bool) { t.forgives = all }

// SetRules changes the rules from now on, and how many keys are held at most. What a key
// has used stays used: if the algorithm or its window is another, as if all of it had been
// taken now, but never more than may pass at once. Keys that are held stay, however many
// they are.
func (t *Table) SetRules(now Time, rules *Rules, most int) {
	t.most = max(1, most)
	if t.rules == nil {
		t.rules, t.entries = rules, make([]entry, fewest)
		t.step(now)
		return
	}
	old := t.rules
	if t.rules = rules; old.rule.Algorithm != rules.rule.Algorithm {
		t.now = min(now, latest) // it may go by another clock
	}
	now = t.step(now)
	for i := range t.Places() {
		t.renew(&t.entries[i], old, now)
	}
	t.renew(&t.rest, old, now)
}

// renew brings what a key has used from other rules to these.
func (t *Table) renew(e *entry, old *Rules, now Time) {
	was, next := old.of(e), t.rules.of(e)
	lapse(e, old, now)
	used := min(max(0, was.most-was.spare(e, now)), next.most)
	o, r := &old.rule, &t.rules.rule
	switch {
	case o.Algorithm != r.Algorithm || o.Window != r.Window || o.Parts != r.Parts ||
		o.Align != r.Align || o.Zone.String() != r.Zone.String():
	case r.leaks():
		e.b = min(e.b, next.most)
		return
	case r.Algorithm == SlidingLog:
		next.law.(*logLaw).retick(e, was.law.(*logLaw))
		return
	default:
		return
	}
	holds := e.held()
	if t.rules.calls { // only calls are under way
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
	for i := range e.held() { // what they took is taken now
		e.more.holds[i].at, e.more.holds[i].low = now, used
	}
}

// Len is how many keys are held.
func (t *Table) Len() int { return t.n }

// latest is the last moment that is told from others: the ends of windows lie beyond.
const latest = Never / 2

// step takes a moment; a clock that steps back stands still.
func (t *Table) step(now Time) Time {
	t.now = max(t.now, min(now, latest))
	return t.now
}

// late adds how long the clock will stand still to what a decision says of the future.
func (t *Table) late(d *Decision, now Time) {
	if lag := time.Duration(t.now - now); lag > 0 {
		if d.Reset > 0 {
			d.Reset += lag
		}
		if d.Retry > 0 {
			d.Retry += lag
		}
	}
}

// Take takes n at now, all or nothing. 0 asks only; below 0 gives back what was taken last.
// Of Concurrency the decision names the call, which Settle ends.
func (t *Table) Take(now Time, hash uint64, key string, n int64) (d Decision, err error) {
	err = t.Decide(now, hash, key, n, &d)
	return d, err
}

// Decide is Take into a Decision that is blank: copying it is a tenth of what it costs.
func (t *Table) Decide(now Time, hash uint64, key string, n int64, d *Decision) error {
	if n > MaxAmount || n < -MaxAmount {
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
	t.take(t.step(now), hash, key, ask{n, ttl}, d)
	t.late(d, now)
	return nil
}

// Reserve takes n as Take does, for Settle to say within ttl what it came to. Not settled by
// then, it counts as it is; of Concurrency it is given back.
func (t *Table) Reserve(
	now Time, hash uint64, key string, n int64, ttl time.Duration,
) (d Decision, err error) {
	if n > MaxAmount || n <= 0 || ttl <= 0 || ttl > MaxWindow {
		return d, ErrCost
	}
	t.take(t.step(now), hash, key, ask{n, ttl}, &d)
	t.late(&d, now)
	return d, nil
}

// Peek tells whether n would pass, and changes nothing.
func (t *Table) Peek(now Time, hash uint64, key string, n int64) (d Decision) {
	at := t.step(now)
	_, e := t.slot(hash)
	shared := false
	if e == nil {
		if e = &t.blank; t.full(key) {
			e, shared = &t.rest, true
		} else {
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

// ask is how much, and for how long it may be settled; 0: not.
type ask struct {
	n   int64
	ttl time.Duration
}

func (t *Table) take(now Time, hash uint64, key string, a ask, d *Decision) {
	if t.asked++; t.asked >= lookEach {
		t.asked = 0
		t.sweep(now, lookOften)
	}
	_, e := t.slot(hash)
	shared := false
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
	if d.Allowed && a.ttl > 0 && len(e.held()) >= mostHeld && !t.rules.calls {
		d.Allowed, d.Retry = false, heldAgain
	}
	if d.Allowed && a.n > 0 {
		if t.rules.paced { // those before it go first
			d.Wait = max(0, time.Duration(l.idle(e)-now))
		}
		l.book(e, now, a.n)
		d.Remaining -= a.n
		if a.ttl > 0 {
			t.ids++
			d.ID = t.ids
			e.hold(hold{
				id: d.ID, at: now, end: now + Time(a.ttl), n: a.n, low: owedMost, call: t.rules.calls})
		}
	}
	d.Reset = t.whole(e, l, now)
}

// decide tells whether n passes at now; when it is whole again is left to say.
func (t *Table) decide(e *entry, l *ruled, now Time, n int64, d *Decision) {
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

// retry is in how long n passes that does not at now, below 0 if never. It follows spare. Calls
// under way may end at any moment: nobody is told to wait for the ends of their leases.
func retry(e *entry, l *ruled, now Time, n int64) time.Duration {
	at := l.when(e, now, n+e.lent())
	_, calls := l.law.(*concurrencyLaw)
	switch {
	case at != Never && calls:
		return max(1, min(time.Duration(at-now), heldAgain))
	case at != Never:
		return max(1, time.Duration(at-now))
	case n <= l.most: // what is lent comes back, or is said to be used
		return lendAgain
	}
	return -1
}

// giveBack gives back n of what was taken last. What is reserved is for Settle to give back.
func (t *Table) giveBack(e *entry, l *ruled, now Time, n int64) {
	lapse(e, t.rules, now)
	used := l.most - l.spare(e, now)
	for _, h := range e.held() {
		used -= h.n
	}
	if n = min(n, used); n > 0 && !t.rules.paced { // others wait behind a place in the pace
		l.back(e, nil, n)
	}
}

// hold keeps a hold, in the order of ends.
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

// Settle says what a reservation came to: what it was more is owed, but for Forgive, what it was
// less is given back. Of Concurrency it ends the call, whatever n is.
func (t *Table) Settle(now Time, hash, id uint64, n int64) error {
	if n < 0 || n > MaxAmount {
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
		case h.call || t.rules.paced && n < h.n: // of rules before; its place was given
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

// Renew begins the lease of a call under way anew, and tells how much it is and how long it
// may last now. When its lease has ended it is not counted any more: ErrSettled.
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

// blank makes an entry as good as new, but for what others hold of it.
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

// Reset forgets what a key has used. Calls under way are forgotten too; what is lent of it
// is not.
func (t *Table) Reset(hash uint64) {
	switch i, e := t.slot(hash); {
	case e == nil:
	case e.more != nil && len(e.more.loans) > 0: // what is held may still be used
		e.blank()
	default:
		t.remove(i, math.MinInt64) // no other
	}
}

// A Use is what a key has used.
type Usage struct {
	Key       string
	Used      int64 // of Amount; more than it is owed
	Amount    int64
	Remaining int64
	Reset     time.Duration
}

// Uses gives what up to count keys have used, in the order of their hashes' low halves from one
// on: 0 is the beginning. next is where to go on, 0 at the end. A key that is there all the time
// is told once, whatever size the table has meanwhile. (Keys that share that half are told
// together, be they more than count.)
func (t *Table) Usage(now Time, from, count int) (all []Usage, next int) {
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
				break // all whose place is this one or before it have been seen
			}
			continue
		}
		// Those that the end has no place for stand at the beginning.
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
		all = append(all, Usage{strings.Clone(e.key), used, l.most, max(0, l.most-used),
			time.Duration(t.anew(e, now) - now)})
	}
	if at++; at < size {
		next = int((uint64(at)<<32 + uint64(size) - 1) / uint64(size))
	}
	return all, next
}

// low is the half of an entry's hash that its home depends on.
func low(e *entry) int { return int(uint32(e.hash)) }

// spent is what a key has used of its amount.
func (t *Table) spent(e *entry, now Time) int64 {
	l := t.rules.of(e)
	return l.most - l.spare(e, now) + e.lent()
}

// anew is from when a key is as good as new.
func (t *Table) anew(e *entry, now Time) Time {
	lapse(e, t.rules, now)
	return max(t.rules.of(e).idle(e), now+Time(min(1, t.spent(e, now))))
}

// sweep looks at about n keys, and forgets those that are as good as new. Where one is, all that
// stand behind it without a gap are looked at too, for each of them may have to move: one pass
// over them costs as much for one that goes as for all.
func (t *Table) sweep(now Time, n int) {
	for range min(2*n, len(t.entries)) { // half of the places are empty, or fewer
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

// busy is until when a key cannot be forgotten.
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

// Lease is how long a call of Concurrency may last.
func (r *Rules) Lease() time.Duration { return r.rule.Lease }

// Most is the greatest cost that can ever pass at once, of keys without an amount of their
// own.
func (r *Rules) MaxCost() int64 { return r.law.most }
