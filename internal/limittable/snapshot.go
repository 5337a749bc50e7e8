package limittable

import (
	"errors"
	"time"

	"github.com/headgate/headgate/internal/codec"
	"github.com/headgate/headgate/limit"
)

// An Entry is one change of a table, which a second table can repeat (Replicate).
type Entry struct {
	Kind     EntryKind
	N        int64         // taken, given back, or the real cost of a reservation
	At       Time          // EntryLend: time as of which N was used
	TTL      time.Duration // of a reservation; 0: none
	ID       uint64        // of a reservation or a call
	Borrower uint64        // EntryLend: the loan after it
	Loan     uint64
	Given    int64
	Used     int64
	Back     int64
	Want     int64
	Close    bool
}

// EntryKind is the kind of a change.
type EntryKind uint8

// The kinds of changes.
const (
	EntryLend EntryKind = iota + 1 // by Borrow
	EntryTake                      // by Take or Reserve
	EntryGive                      // by Take of a negative amount
	EntrySettle
	EntryReset
)

// Replicate repeats the change of another table at a moment of that table's clock, regardless of
// the rules here. clk is this process's own clock, which is never stepped.
func (t *Table) Replicate(now, clk Time, hash uint64, key string, d *Entry) {
	at := t.step(now)
	switch d.Kind {
	case EntryReset:
		t.Reset(hash)
		return
	case EntrySettle:
		_ = t.Settle(now, hash, d.ID, d.N) // it may have ended there and here
		return
	}
	_, e := t.slot(hash)
	if e == nil {
		t.sweep(at, lookNew)
		if e = t.add(hash, key, at); e == nil {
			e = &t.rest
		}
	}
	law := t.rules.of(e)
	lapse(e, t.rules, at)
	law.spare(e, at)
	switch d.Kind {
	case EntryGive:
		t.giveBack(e, law, at, d.N)
	case EntryTake:
		law.book(e, at, d.N)
		if d.ID&chosen == 0 {
			t.ids = max(t.ids, d.ID)
		}
		if d.TTL > 0 {
			e.hold(hold{id: d.ID, at: at, end: at + Time(d.TTL), n: d.N, low: owedMost, call: t.rules.calls})
		}
	case EntryLend:
		if d.N > 0 {
			law.book(e, min(d.At, at), d.N)
		}
		if d.Borrower != 0 && e != &t.rest {
			t.repeatLoan(e, clk, d)
		}
	}
}

func (t *Table) repeatLoan(e *entry, clk Time, d *Entry) {
	x := e.loan(&Report{Borrower: d.Borrower, Loan: d.Loan})
	if x == nil {
		return
	}
	e.more.lent -= x.out()
	*x = loan{
		who: d.Borrower, id: d.Loan, given: d.Given, used: d.Used, back: d.Back, want: d.Want, heard: clk,
	}
	e.more.lent += x.out()
	if d.Close {
		t.drop(e, x)
	} else {
		t.lends(e)
	}
}

// RenewBorrowers treats all borrowers as having reported now: a table that takes over does not know
// when they last did.
func (t *Table) RenewBorrowers(clk Time) {
	for hash := range t.lending {
		if _, e := t.slot(hash); e != nil {
			for i := range e.more.loans {
				e.more.loans[i].heard = clk
			}
		}
	}
}

// ErrCopy is returned for a copy of a key that cannot be read.
var ErrCopy = errors.New("damaged copy of a key")

// mostCopied limits the lists of one key in a copy. Chosen: more than any key has.
const mostCopied = 1 << 20

// ErrRules is returned for a copy of a table whose rules are of another kind. Its usage means
// nothing under the rules here.
var ErrRules = errors.New("copy under other rules")

// shape returns what the format of a key's state depends on.
func (r *Rules) shape() [4]int64 {
	return [4]int64{int64(r.rule.Algorithm), int64(r.rule.Window), int64(r.rule.Parts), int64(r.rule.Align)}
}

// AppendHeader appends what a copy of the table needs besides its keys.
func (t *Table) AppendHeader(b []byte) []byte {
	lost := int64(-1)
	if t.lost {
		lost = int64(t.lostAt)
	}
	shape := t.rules.shape()
	b = codec.AppendInt(b, shape[:]...)
	b = codec.AppendInt(b, int64(t.now), int64(t.ids), lost)
	return appendEntry(b, &t.rest)
}

// ReadHeader reads what AppendHeader wrote. SetRules must be called before it, and the table must
// have no keys.
func (t *Table) ReadHeader(b []byte) error {
	d := reader{codec.NewReader(b)}
	if [4]int64{d.Int(), d.Int(), d.Int(), d.Int()} != t.rules.shape() && !d.Bad() {
		return ErrRules
	}
	now, ids, lost := Time(d.Int()), uint64(d.Int()), d.Int()
	var rest entry
	d.entry(&rest)
	if err := d.end(); err != nil {
		return err
	}
	if now < 0 || now > latest || Time(lost) > latest || !rest.sound(t.rules.rest.law) {
		return ErrCopy
	}
	t.now, t.ids, t.rest = max(t.now, now), ids, rest
	t.lostAt, t.lost = Time(max(0, lost)), lost >= 0
	return nil
}

// AppendKey appends the key at one of Places.
func (t *Table) AppendKey(b []byte, i int) []byte {
	e := &t.entries[i]
	return appendEntry(codec.AppendText(b, e.key), e)
}

// ReadKey reads what AppendKey wrote; hash returns the hash of a key. All borrowers of the key
// count as having reported at clk.
func (t *Table) ReadKey(b []byte, clk Time, hash func(key string) uint64) error {
	d := reader{codec.NewReader(b)}
	key := d.Text(len(b))
	var got entry
	d.entry(&got)
	if err := d.end(); err != nil {
		return err
	}
	if !got.sound(t.rules.ofKey(key).law) {
		return ErrCopy
	}
	h := hash(key)
	_, e := t.slot(h)
	if e == nil {
		most := t.most
		t.most = mostCopied << 10 // it was held there
		e = t.add(h, key, t.now)
		t.most = most
	}
	e.a, e.b, e.c, e.more = got.a, got.b, got.c, got.more
	if e.more != nil && len(e.more.loans) > 0 {
		for i := range e.more.loans {
			e.more.loans[i].heard = clk
		}
		t.lends(e)
	}
	return nil
}

// appendEntry appends the usage of a key.
func appendEntry(b []byte, e *entry) []byte {
	b = codec.AppendInt(b, e.a, e.b, e.c)
	m := e.more
	if m == nil {
		return append(b, 0)
	}
	b = append(b, 1)
	b = codec.AppendInt(b, int64(len(m.cells)))
	b = codec.AppendInt(b, m.cells...)
	log := m.log[m.head:]
	b = codec.AppendInt(b, int64(len(log)))
	last := Time(0)
	for _, u := range log {
		b = codec.AppendInt(b, int64(u.at-last), u.n)
		last = u.at
	}
	b = codec.AppendInt(b, int64(len(m.holds)))
	for _, h := range m.holds {
		b = codec.AppendInt(b, int64(h.id), int64(h.at), int64(h.end), h.n, h.low, int64(codec.Bit(h.call)))
	}
	b = codec.AppendInt(b, int64(len(m.loans)))
	for i := range m.loans {
		x := &m.loans[i]
		b = codec.AppendInt(b, int64(x.who), int64(x.id), x.given, x.used, x.back, x.want)
	}
	return b
}

// A reader reads the parts of a copy.
type reader struct{ codec.Reader }

// count returns the number of entries that follow.
func (d *reader) count() int { return d.CountInt(mostCopied) }

func (d *reader) end() error {
	if !d.Done() {
		return ErrCopy
	}
	return nil
}

// entry reads what appendEntry has written.
func (d *reader) entry(e *entry) {
	e.a, e.b, e.c = d.Int(), d.Int(), d.Int()
	switch d.Byte() {
	case 0:
		return
	case 1:
	default:
		d.Fail()
		return
	}
	m := e.extra()
	for range d.count() {
		m.cells = append(m.cells, d.Int())
	}
	last := Time(0)
	for range d.count() {
		last += Time(d.Int())
		m.log = append(m.log, used{last, d.Int()})
	}
	for range d.count() {
		m.holds = append(m.holds, hold{id: uint64(d.Int()), at: Time(d.Int()), end: Time(d.Int()),
			n: d.Int(), low: d.Int(), call: d.Int() == 1})
	}
	for range d.count() {
		x := loan{who: uint64(d.Int()), id: uint64(d.Int()), given: d.Int(), used: d.Int(),
			back: d.Int(), want: d.Int()}
		m.loans, m.lent = append(m.loans, x), m.lent+x.out()
	}
}

// sound reports whether a law can work with what was read, and computes the sums.
func (e *entry) sound(l law) bool {
	m := e.more
	if m == nil {
		m = &more{}
	}
	// The bounds keep later sums from an overflow. A snapshot can be damaged, or come from a newer
	// program.
	ok := e.a >= 0 && e.b >= 0 && e.b <= owedMost && e.c >= 0 && m.soundLists()
	switch l := l.(type) {
	case *slidingLaw:
		ok = ok && e.a <= int64(latest/l.sub)
		if l.parts == 1 {
			return ok && e.c <= owedMost
		}
		if ok = ok && (len(m.cells) == 0 || int64(len(m.cells)) == l.parts+1); !ok {
			return false
		}
		// The sum is computed again instead of believed, so that it cannot differ from its parts.
		e.b = 0
		for i, n := range m.cells {
			if n < 0 || n > owedMost {
				return false
			}
			if int64(i) != (e.a+1)%(l.parts+1) { // all but the oldest
				e.b = min(e.b+n, owedMost)
			}
		}
	case *logLaw:
		last := Time(0)
		e.b, e.c = 0, 0
		for _, u := range m.log {
			if ok = ok && u.at >= last && u.at <= Never-l.window && u.n >= 0 && u.n <= owedMost-e.b; !ok {
				return false
			}
			if last, e.b = u.at, e.b+u.n; u.n == 0 {
				e.c++
			}
		}
	case *bucketLaw:
		ok = ok && e.c < int64(l.window)
	case *concurrencyLaw:
		e.b = 0
		for i := range m.holds {
			e.b = min(e.b+m.holds[i].n, owedMost)
		}
	}
	return ok
}

// soundLists reports whether holds and loans are consistent.
func (m *more) soundLists() bool {
	// Holds are sorted by their ends.
	end := Time(0)
	for i := range m.holds {
		h := &m.holds[i]
		if h.at < 0 || h.end < end || h.n < 0 || h.n > limit.MaxAmount || h.low < 0 {
			return false
		}
		end = h.end
	}
	if len(m.loans) > mostLoans {
		return false
	}
	seen, lent := make(map[uint64]bool, len(m.loans)), int64(0)
	for i := range m.loans {
		x := &m.loans[i]
		if seen[x.who] || x.used < 0 || x.back < 0 || x.used > owedMost || x.back > owedMost ||
			x.given < x.used+x.back || x.out() > owedMost-lent || x.want < 0 || x.want > limit.MaxAmount {
			return false
		}
		seen[x.who], lent = true, lent+x.out()
	}
	return true
}
