package limit

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"
)

// Bounds of a table. Chosen.
const (
	pageSize = 64     // entries that are allocated at once
	lookAt   = 2      // keys looked at with each decision, whether they can be forgotten
	mostHeld = 10_000 // reservations of one key
)

// The errors of a Table.
var (
	ErrCost      = errors.New("impossible cost")
	ErrSettled   = errors.New("no such reservation: it was settled, or its time is over")
	ErrNothingTo = errors.New("calls under way are settled one by one")
)

// A Table is what the keys of one rule have used. Its caller guards it. Keys come with a
// hash, 32 good bits of it, which must be the same for the same key.
type Table struct {
	rule  Rule
	law   ruled
	over  map[string]ruled // of keys with an amount of their own
	most  int
	now   Time
	ids   uint64
	index []uint32 // open addressing: number of the entry + 1, 0 is empty
	pages [][]entry
	n     int
	hand  int   // the key that is looked at next
	rest  entry // all keys beyond most
	blank entry // of a key that has used nothing
}

// ruled is a law with the most that it lets pass at once.
type ruled struct {
	law
	most int64
}

func ruledBy(r Rule) ruled { return ruled{lawOf(r), r.Most()} }

// NewTable makes a table of at most most keys. overrides are other amounts of keys.
func NewTable(rule Rule, overrides map[string]int64, most int) (*Table, error) {
	t := &Table{most: max(1, most), index: make([]uint32, 8)}
	return t, t.SetRule(0, rule, overrides)
}

// SetRule changes the rule from now on. What a key has used stays used: if the algorithm or
// its window is another, as if all of it had been taken now.
func (t *Table) SetRule(now Time, rule Rule, overrides map[string]int64) error {
	all := []error{rule.Check()}
	over := make(map[string]ruled, len(overrides))
	for key, amount := range overrides {
		r := rule.of(amount)
		all = append(all, r.Check())
		if r.Check() == nil {
			over[key] = ruledBy(r)
		}
	}
	if err := errors.Join(all...); err != nil {
		return err
	}
	now = t.step(now)
	old, was := t.rule, *t
	t.rule, t.law, t.over = rule, ruledBy(rule), over
	for i := range t.n {
		t.renew(t.entry(i), was.lawFor(t.entry(i).key), old, now)
	}
	if t.rest.b != 0 || t.rest.more != nil {
		t.renew(&t.rest, was.law, old, now)
	}
	return nil
}

// SetMost bounds the keys from now on. Those that are held stay.
func (t *Table) SetMost(most int) { t.most = max(1, most) }

// of is the rule with another amount; a burst keeps its proportion.
func (r Rule) of(amount int64) Rule {
	if r.Burst > 0 && r.Amount > 0 {
		r.Burst = max(1, int64(float64(r.Burst)/float64(r.Amount)*float64(amount)))
	}
	r.Amount = amount
	return r
}

// renew brings what a key has used from one rule to another.
func (t *Table) renew(e *entry, was ruled, old Rule, now Time) {
	spare, next := was.spare(e, now), t.lawFor(e.key)
	o, r := old.withDefaults(), t.rule.withDefaults()
	if o.Algorithm == r.Algorithm && o.Window == r.Window && o.Parts == r.Parts && o.Align == r.Align &&
		o.Zone == r.Zone && (r.Algorithm != SlidingLog || was.law.(*logLaw).grid == next.law.(*logLaw).grid) {
		return
	}
	used := max(0, was.most-spare)
	if e.a, e.b, e.c = 0, 0, 0; e.more != nil {
		e.more = &more{holds: e.more.holds, low: e.more.low}
	}
	next.spare(e, now)
	next.book(e, now, used)
}

// Rule is the rule of all keys without an amount of their own.
func (t *Table) Rule() Rule { return t.rule }

// Len is how many keys are held.
func (t *Table) Len() int { return t.n }

func (t *Table) lawFor(key string) ruled {
	if len(t.over) > 0 {
		if l, ok := t.over[key]; ok {
			return l
		}
	}
	return t.law
}

// step takes a moment; a clock that steps back stands still.
func (t *Table) step(now Time) Time {
	t.now = max(t.now, now)
	return t.now
}

// Take takes n at now, all or nothing. 0 asks only; below 0 gives back what was taken last.
// Of Concurrency the decision names the call, which Settle ends.
func (t *Table) Take(now Time, hash uint32, key string, n int64) (Decision, error) {
	if n > MaxAmount || n < -MaxAmount {
		return Decision{}, ErrCost
	}
	if n < 0 && t.rule.Algorithm == Concurrency {
		return Decision{}, ErrNothingTo
	}
	ttl := time.Duration(0)
	if t.rule.Algorithm == Concurrency && n > 0 {
		ttl = t.rule.withDefaults().Lease
	}
	return t.take(t.step(now), hash, key, ask{n, ttl}), nil
}

// Reserve takes n as Take does, for Settle to say within ttl what it came to. Not settled by
// then, it counts as it is; of Concurrency it is given back.
func (t *Table) Reserve(now Time, hash uint32, key string, n int64, ttl time.Duration) (Decision, error) {
	if n > MaxAmount || n <= 0 || ttl <= 0 || ttl > MaxWindow {
		return Decision{}, ErrCost
	}
	return t.take(t.step(now), hash, key, ask{n, ttl}), nil
}

// Peek tells whether n would pass, and changes nothing.
func (t *Table) Peek(now Time, hash uint32, key string, n int64) Decision {
	now = t.step(now)
	e, shared := t.find(hash, key), false
	if e == nil {
		if e, t.blank.key = &t.blank, key; t.n >= t.most {
			e, shared = &t.rest, true
		}
	}
	d := t.decide(e, now, n)
	d.Shared, t.blank = shared, entry{}
	return d
}

// ask is how much, and for how long it may be settled; 0: not.
type ask struct {
	n   int64
	ttl time.Duration
}

func (t *Table) take(now Time, hash uint32, key string, a ask) Decision {
	t.sweep(now)
	e, shared := t.find(hash, key), false
	if e == nil && a.n <= 0 {
		return t.Peek(now, hash, key, 0)
	}
	if e == nil {
		if e = t.add(hash, key); e == nil {
			e, shared = &t.rest, true
		}
	}
	if a.n < 0 {
		l := t.lawFor(e.key)
		l.spare(e, now)
		l.back(e, lately, -a.n)
		a.n = 0
	}
	d := t.decide(e, now, a.n)
	if d.Shared = shared; !d.Allowed || a.n == 0 {
		return d
	}
	if a.ttl > 0 && len(e.held()) >= mostHeld && t.rule.Algorithm != Concurrency {
		d.Allowed, d.Retry = false, time.Duration(e.more.holds[0].end-now)
		return d
	}
	l := t.lawFor(e.key)
	if t.rule.Paced { // those before it go first
		d.Wait = max(0, time.Duration(l.idle(e)-now))
	}
	l.book(e, now, a.n)
	d.Remaining = max(0, d.Remaining-a.n)
	d.Reset = max(0, time.Duration(l.idle(e)-now))
	if a.ttl > 0 {
		t.ids++
		d.ID = t.ids
		e.hold(hold{id: d.ID, at: now, end: now + Time(a.ttl), n: a.n})
		d.Reset = max(0, time.Duration(l.idle(e)-now))
	}
	return d
}

// decide tells whether n passes at now.
func (t *Table) decide(e *entry, now Time, n int64) (d Decision) {
	l := t.lawFor(e.key)
	t.lapse(e, l, now)
	spare := l.spare(e, now)
	d = Decision{
		Allowed: n <= max(0, spare), Amount: l.most, Remaining: max(0, spare),
		Reset: max(0, time.Duration(l.idle(e)-now)),
	}
	if !d.Allowed {
		if at := l.when(e, now, n); at == Never {
			d.Retry = -1
		} else {
			d.Retry = max(1, time.Duration(at-now))
		}
	}
	return d
}

// hold keeps a hold, in the order of ends.
func (e *entry) hold(h hold) {
	m := e.extra()
	if len(m.holds) == 0 {
		m.low = owedMost
	}
	i, _ := slices.BinarySearchFunc(m.holds, h.end+1, func(x hold, end Time) int {
		return cmp.Compare(x.end, end)
	})
	m.holds = slices.Insert(m.holds, i, h)
}

// lapse ends the holds whose time is over.
func (t *Table) lapse(e *entry, l ruled, now Time) {
	held, n := e.held(), 0
	for n < len(held) && held[n].end <= now {
		if t.rule.Algorithm == Concurrency {
			l.back(e, held[n].at, held[n].n)
		}
		n++
	}
	if n > 0 {
		e.more.holds = slices.Delete(e.more.holds, 0, n)
	}
}

// Settle says what a reservation came to: what it was more is owed, what it was less is
// given back. Of Concurrency it ends the call, whatever n is.
func (t *Table) Settle(now Time, hash uint32, key string, id uint64, n int64) error {
	if n < 0 || n > MaxAmount {
		return ErrCost
	}
	now = t.step(now)
	e := t.find(hash, key)
	for _, e := range []*entry{e, &t.rest} {
		if e == nil {
			continue
		}
		l := t.lawFor(e.key)
		t.lapse(e, l, now)
		l.spare(e, now)
		i := slices.IndexFunc(e.held(), func(h hold) bool { return h.id == id })
		if i < 0 {
			continue
		}
		h := e.more.holds[i]
		switch {
		case t.rule.Algorithm == Concurrency:
			l.back(e, h.at, h.n)
		case n < h.n:
			l.back(e, h.at, h.n-n)
		default:
			l.book(e, now, n-h.n)
		}
		e.more.holds = slices.Delete(e.more.holds, i, i+1)
		return nil
	}
	return ErrSettled
}

// Reset forgets what a key has used. Calls under way are forgotten too.
func (t *Table) Reset(hash uint32, key string) {
	if i, ok := t.slot(hash, key); ok {
		t.remove(i)
	}
}

// A Use is what a key has used.
type Use struct {
	Key       string
	Used      int64 // of Amount; more than it is owed
	Amount    int64
	Remaining int64
	Reset     time.Duration
}

// Uses gives what up to count keys have used, from a place on: 0 is the beginning. next is
// where to go on, 0 at the end. Keys that come and go meanwhile may be missed or told twice.
func (t *Table) Uses(now Time, from, count int) (all []Use, next int) {
	now = t.step(now)
	for i := from; i < t.n; i++ {
		if len(all) == count {
			return all, i
		}
		e := t.entry(i)
		d := t.decide(e, now, 0)
		if l := t.lawFor(e.key); d.Reset > 0 {
			used := l.most - l.spare(e, now)
			all = append(all, Use{strings.Clone(e.key), used, d.Amount, d.Remaining, d.Reset})
		}
	}
	return all, 0
}

// sweep looks at a few keys, and forgets those that are as good as new.
func (t *Table) sweep(now Time) {
	for range min(lookAt, t.n) {
		if t.hand >= t.n {
			t.hand = 0
		}
		e := t.entry(t.hand)
		l := t.lawFor(e.key)
		t.lapse(e, l, now)
		l.spare(e, now)
		if len(e.held()) > 0 || l.idle(e) > now {
			t.hand++
			continue
		}
		i, _ := t.slot(e.hash, e.key)
		t.remove(i)
	}
}
