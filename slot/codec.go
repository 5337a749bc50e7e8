package slot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrRecord is wrapped by every error about bytes that are no record.
var ErrRecord = errors.New("not a counter's record")

// Bounds on what a record may hold; chosen far above what one ever does, so
// that damaged bytes cannot ask for all memory.
const (
	maxEnds    = 1 << 16
	maxLoans   = 1 << 16
	maxRuns    = 1 << 16
	fewRuns    = 1 << 10 // what a program of before can read too
	maxSkipped = 1 << 20 // bytes
	maxClaimed = 1 << 20
	maxText    = 256
)

// AppendBinary appends the record to b: varints, 1–5 KB however many people
// are inside.
func (r *Record) AppendBinary(b []byte) ([]byte, error) {
	e := encoder{b}
	v := uint64(2) // what a program of before can read too
	if r.MovedTo != "" || r.WasRoot || r.Before != 0 {
		v = 3
	}
	ordered, more := inOrder(r.Skipped, r.Frontier), len(r.Draws)+len(r.Lanes)+len(r.Moved) > 0
	if more && !ordered || !lanesInOrder(r.Lanes) {
		return b, fmt.Errorf("%w: skipped tickets are out of order", ErrRecord)
	} else if more || len(r.Skipped) > fewRuns && ordered {
		v = 4
	}
	if len(r.Lanes) > 0 {
		v = 5
	}
	if len(r.Moved) > 0 {
		v = 6
	}
	if len(r.Left) > 0 {
		v = 7
	}
	if len(r.Lanes) > OwnLanes {
		v = 8
	}
	e.uint(v, r.Name.Life, r.Name.Epoch, r.Name.Writes)
	e.text(r.Host)
	e.int(int64(r.Time))
	e.uint(r.LimitRev, bit(r.Quiet), r.Next, r.Issued, r.Frontier, bit(r.Waiting), bit(r.Up != nil))
	if r.Up != nil {
		e.uint(uint64(r.Up.Loan))
		e.int(append([]int64{r.Up.Granted}, r.Up.Returned[:]...)...)
	}
	e.uint(uint64(len(r.Limits)))
	for i := range r.Limits {
		s := &r.Limits[i]
		e.uint(uint64(s.Kind))
		e.int(s.N, int64(s.Per), s.InForce, int64(s.Longest), int64(s.Since), s.Tokens, int64(s.Refilled))
		e.uint(uint64(len(s.Ends.at)))
		last := Tau(0)
		for _, c := range s.Ends.at {
			e.int(int64(c.End-last), c.N)
			last = c.End
		}
	}
	e.uint(uint64(len(r.Loans)))
	for i := range r.Loans {
		l := &r.Loans[i]
		e.uint(uint64(l.ID), l.Seq.Epoch, l.Seq.N, bit(l.Dead))
		e.text(l.Borrower)
		e.int(l.Granted, l.Opened, int64(l.Over))
		e.int(l.Returned[:]...)
		for _, t := range l.Back {
			e.int(int64(t))
		}
	}
	e.bytes(r.Heads)
	if v > 3 {
		e.bytes(AppendRuns(nil, r.Frontier, r.Skipped))
	} else {
		e.runs(r.Skipped)
	}
	e.runs(r.Unsure)
	e.uint(uint64(len(r.Claimed)))
	for _, c := range r.Claimed {
		e.uint(uint64(c.ID))
		e.int(int64(c.At), int64(c.End))
	}
	e.int(int64(r.Unnamed))
	e.spans(r.Sure)
	if v > 2 {
		e.text(r.MovedTo)
		e.uint(bit(r.WasRoot), r.Before)
	}
	if v > 3 {
		e.draws(r.Draws)
	}
	if v > 4 {
		e.lanes(r.Lanes)
	}
	if v > 5 {
		e.moved(r.Moved)
	}
	if v > 6 {
		e.left(r.Left)
	}
	return e.b, nil
}

// UnmarshalBinary reads a record. Bytes of another version are refused with a
// message that says so.
func (r *Record) UnmarshalBinary(b []byte) error {
	d := decoder{b: b}
	v := d.uint()
	if d.err == nil && (v < 1 || v > Version) {
		return fmt.Errorf("%w: format %d, this program reads %d: run the newer program", ErrRecord, v, Version)
	}
	x := Record{Version: Version, Name: WriteName{d.uint(), d.uint(), d.uint()}}
	x.Host, x.Time = d.text(), Tau(d.int())
	x.LimitRev, x.Quiet = d.uint(), d.uint() == 1
	x.Next, x.Issued, x.Frontier, x.Waiting = d.uint(), d.uint(), d.uint(), d.uint() == 1
	if d.uint() == 1 {
		x.Up = &Upper{Loan: LoanID(d.uint()), Granted: d.int()}
		x.Up.Returned = d.each(v)
	}
	n := d.len(MaxLimits)
	for range n {
		x.Limits = append(x.Limits, d.limit())
	}
	for range d.len(maxLoans) {
		l := Loan{ID: LoanID(d.uint()), Seq: Seq{d.uint(), d.uint()}, Dead: d.uint() == 1}
		l.Borrower = d.text()
		l.Granted = d.int()
		if v == 1 {
			l.Returned = evenly(d.int())
		}
		l.Opened, l.Over = d.int(), Tau(d.int())
		if v > 1 {
			l.Returned = d.each(v)
		}
		for i := range l.Back {
			l.Back[i] = Tau(d.int())
		}
		x.Loans = append(x.Loans, l)
	}
	x.Heads = d.bytes(headPlaces)
	if v > 3 {
		var err error
		if x.Skipped, err = ParseRuns(d.bytes(maxSkipped), x.Frontier); err != nil {
			d.fail()
		}
	} else {
		x.Skipped = d.runs()
	}
	x.Unsure = d.runs()
	for range d.len(maxClaimed) {
		x.Claimed = append(x.Claimed, Claimed{StayID(d.uint()), Tau(d.int()), Tau(d.int())})
	}
	x.Unnamed = Never
	if v > 1 {
		x.Unnamed = Tau(d.int())
	}
	x.Sure = d.spans()
	if v > 2 {
		x.MovedTo, x.WasRoot, x.Before = d.text(), d.uint() == 1, d.uint()
	}
	if v > 3 {
		x.Draws = d.draws()
	}
	if v > 4 {
		x.Lanes = d.lanes()
	}
	if v > 5 {
		x.Moved = d.moved()
	}
	if v > 6 {
		x.Left = d.left()
	}
	if d.err != nil || len(d.b) > 0 || n == 0 {
		return fmt.Errorf("%w: damaged", ErrRecord)
	}
	*r = x
	return nil
}

type encoder struct{ b []byte }

func (e *encoder) uint(vs ...uint64) {
	for _, v := range vs {
		e.b = binary.AppendUvarint(e.b, v)
	}
}

func (e *encoder) int(vs ...int64) {
	for _, v := range vs {
		e.b = binary.AppendVarint(e.b, v)
	}
}

func (e *encoder) text(s string) {
	s = s[:min(len(s), maxText)]
	e.uint(uint64(len(s)))
	e.b = append(e.b, s...)
}

func (e *encoder) bytes(b []byte) {
	e.uint(uint64(len(b)))
	e.b = append(e.b, b...)
}

func (e *encoder) runs(runs []Run) {
	e.uint(uint64(len(runs)))
	for _, s := range runs {
		e.uint(s.First, s.N)
	}
}

func (e *encoder) spans(spans []Span) {
	e.uint(uint64(len(spans)))
	for _, s := range spans {
		e.uint(s.Epoch)
		e.int(int64(s.From), int64(s.To))
	}
}

func bit(yes bool) uint64 {
	if yes {
		return 1
	}
	return 0
}

func (e *encoder) draws(draws []Draw) {
	e.uint(uint64(len(draws)))
	for i := range draws {
		d := &draws[i]
		e.text(d.Event)
		e.int(d.Start)
		e.b = append(e.b, d.Seed[:]...)
		e.uint(d.From, d.To)
	}
}

// decoder reads until the first fault; after it everything reads as zero.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail() { d.b, d.err = nil, ErrRecord }

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail()
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

// len reads a count and refuses one beyond most or beyond what is left.
func (d *decoder) len(most int) int {
	n := d.uint()
	if n > uint64(most) || n > uint64(len(d.b)) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *decoder) runs() (runs []Run) {
	for range d.len(maxRuns) {
		runs = append(runs, Run{d.uint(), d.uint()})
	}
	return runs
}

func (d *decoder) spans() (spans []Span) {
	for range d.len(mostSpans) {
		spans = append(spans, Span{d.uint(), Tau(d.int()), Tau(d.int())})
	}
	return spans
}

func (d *decoder) bytes(most int) []byte {
	n := d.len(most)
	if n == 0 {
		return nil
	}
	b := slices.Clone(d.b[:n])
	d.b = d.b[n:]
	return b
}

func (d *decoder) text() string {
	n := d.len(maxText)
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

// each reads a number for each limit; format 1 had one for all.
func (d *decoder) each(format uint64) (e Each) {
	if format == 1 {
		return evenly(d.int())
	}
	for i := range e {
		e[i] = d.int()
	}
	return e
}

func (d *decoder) limit() (s LimitState) {
	s.Kind = Kind(d.uint())
	s.N, s.Per, s.InForce = d.int(), time.Duration(d.int()), d.int()
	s.Longest, s.Since = time.Duration(d.int()), Tau(d.int())
	s.Tokens, s.Refilled = d.int(), Tau(d.int())
	if s.Check() != nil {
		d.fail()
	}
	last := Tau(0)
	for range d.len(maxEnds) {
		step, n := d.int(), d.int()
		if step <= 0 || n <= 0 || n > 1<<40 {
			d.fail()
			return s
		}
		last += Tau(step)
		s.Ends.Add(last, n)
	}
	return s
}

func (d *decoder) draws() (draws []Draw) {
	for range d.len(2 * mostDraws) {
		x := Draw{Event: d.text(), Start: d.int()}
		if len(d.b) < len(x.Seed) {
			d.fail()
			return nil
		}
		d.b = d.b[copy(x.Seed[:], d.b):]
		x.From, x.To = d.uint(), d.uint()
		if x.To != 0 && (x.From == 0 || x.To <= x.From || x.To-x.From > lineMost) {
			d.fail()
			return nil
		}
		draws = append(draws, x)
	}
	return draws
}
