package slot

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/codec"
)

// ErrRecord is wrapped by every error about bytes that are not a record.
var ErrRecord = errors.New("not a counter's record")

// Bounds on what a record may hold, so that damaged bytes cannot make the reader allocate all
// memory. Chosen: far above what real records hold.
const (
	maxEnds    = 1 << 16
	maxLoans   = 1 << 16
	maxRuns    = 1 << 16
	fewRuns    = 1 << 10 // earlier versions can read it too
	maxSkipped = 1 << 20 // bytes
	maxClaimed = 1 << 20
	maxText    = 256
)

// MaxFound is how many bytes Record.Found may have. Chosen: twice what is written.
const MaxFound = 4 << 10

// AppendBinary appends the record to b as varints. It takes 1–5 KB, independent of the number of
// visitors inside.
func (r *Record) AppendBinary(b []byte) ([]byte, error) {
	v, err := r.format()
	if err != nil {
		return b, err
	}
	b = codec.AppendUint(b, v, r.Name.Life, r.Name.Epoch, r.Name.Writes)
	b = appendName(b, r.Host)
	b = codec.AppendInt(b, int64(r.Time))
	b = codec.AppendUint(b, r.LimitRev, codec.Bit(r.Quiet), r.Next, r.Issued, r.Frontier,
		codec.Bit(r.Waiting), codec.Bit(r.Parent != nil))
	if r.Parent != nil {
		b = codec.AppendUint(b, uint64(r.Parent.Loan))
		b = codec.AppendInt(b, append([]int64{r.Parent.Granted}, r.Parent.Returned[:]...)...)
	}
	b = codec.AppendUint(b, uint64(len(r.Limits)))
	for i := range r.Limits {
		s := &r.Limits[i]
		b = codec.AppendUint(b, uint64(s.Kind))
		b = codec.AppendInt(b, s.N, int64(s.Per), s.InForce, int64(s.Longest), int64(s.Since), s.Tokens,
			int64(s.Refilled))
		b = codec.AppendUint(b, uint64(len(s.Ends.at)))
		last := Time(0)
		for _, c := range s.Ends.at {
			// Ends are sorted, so their distances take few bytes.
			b = codec.AppendInt(b, int64(c.End-last), c.N)
			last = c.End
		}
	}
	b = codec.AppendUint(b, uint64(len(r.Loans)))
	for i := range r.Loans {
		l := &r.Loans[i]
		b = codec.AppendUint(b, uint64(l.ID), l.Seq.Epoch, l.Seq.N, codec.Bit(l.Dead))
		b = appendName(b, l.Borrower)
		b = codec.AppendInt(b, l.Granted, l.Opened, int64(l.Over))
		b = codec.AppendInt(b, l.Returned[:]...)
		for _, t := range l.Back {
			b = codec.AppendInt(b, int64(t))
		}
	}
	b = codec.AppendText(b, r.Heads)
	if v > 3 {
		b = codec.AppendText(b, AppendRuns(nil, r.Frontier, r.Skipped))
	} else {
		b = appendRunList(b, r.Skipped)
	}
	b = appendRunList(b, r.Unconfirmed)
	b = codec.AppendUint(b, uint64(len(r.Claimed)))
	for _, c := range r.Claimed {
		b = codec.AppendUint(b, uint64(c.ID))
		b = codec.AppendInt(b, int64(c.At), int64(c.End))
	}
	b = codec.AppendInt(b, int64(r.Unnamed))
	b = appendSpans(b, r.Sure)
	if v > 2 {
		b = appendName(b, r.MovedTo)
		b = codec.AppendUint(b, codec.Bit(r.WasRoot), r.Before)
	}
	if v > 3 {
		b = appendDraws(b, r.Draws)
	}
	if v > 4 {
		b = appendLanes(b, r.Lanes)
	}
	if v > 5 {
		b = appendMoved(b, r.Moved)
	}
	if v > 6 {
		b = appendLeft(b, r.Left)
	}
	if v > 8 {
		b = codec.AppendText(b, r.Found)
	}
	if v > 9 {
		for i := range r.Draws {
			b = codec.AppendText(b, r.Draws[i].Weights)
		}
	}
	if v > 10 {
		b = appendReleased(b, r.Released)
	}
	return b, nil
}

// format returns the format to write, the first one that has what the record has: so the previous
// program can take a room over while nobody uses what is new.
func (r *Record) format() (uint64, error) {
	v := uint64(2) // earlier versions can read it too
	if r.MovedTo != "" || r.WasRoot || r.Before != 0 {
		v = 3
	}
	ordered := inOrder(r.Skipped, r.Frontier)
	more := len(r.Draws)+len(r.Lanes)+len(r.Moved)+len(r.Released) > 0
	if more && !ordered || !lanesInOrder(r.Lanes) {
		return 0, fmt.Errorf("%w: skipped tickets are out of order", ErrRecord)
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
	if len(r.Found) > 0 {
		v = 9
	}
	if slices.ContainsFunc(r.Draws, func(d Draw) bool { return d.Weights != "" }) {
		v = 10
	}
	if len(r.Released) > 0 {
		v = 11
	}
	return v, nil
}

// UnmarshalBinary reads a record. For another version of the format it returns an error that names
// the version.
func (r *Record) UnmarshalBinary(b []byte) error {
	d := decoder{codec.NewReader(b)}
	v := d.Uint()
	if !d.Bad() && (v < 1 || v > Version) {
		return fmt.Errorf("%w: format %d, this program reads %d: run the newer program", ErrRecord, v, Version)
	}
	// Read into a new record: a damaged one must leave r as it is.
	x := Record{Version: Version, Name: WriteName{d.Uint(), d.Uint(), d.Uint()}}
	x.Host, x.Time = d.text(), Time(d.Int())
	x.LimitRev, x.Quiet = d.Uint(), d.Uint() == 1
	x.Next, x.Issued, x.Frontier, x.Waiting = d.Uint(), d.Uint(), d.Uint(), d.Uint() == 1
	if d.Uint() == 1 {
		x.Parent = &ParentLoan{Loan: LoanID(d.Uint()), Granted: d.Int()}
		x.Parent.Returned = d.each(v)
	}
	n := d.Count(MaxLimits)
	for range n {
		x.Limits = append(x.Limits, d.limit())
	}
	for range d.Count(maxLoans) {
		l := Loan{ID: LoanID(d.Uint()), Seq: Seq{d.Uint(), d.Uint()}, Dead: d.Uint() == 1}
		l.Borrower = d.text()
		l.Granted = d.Int()
		if v == 1 {
			// The first format had one number for both limits.
			l.Returned = evenly(d.Int())
		}
		l.Opened, l.Over = d.Int(), Time(d.Int())
		if v > 1 {
			l.Returned = d.each(v)
		}
		for i := range l.Back {
			l.Back[i] = Time(d.Int())
		}
		x.Loans = append(x.Loans, l)
	}
	x.Heads = d.bytes(headPlaces)
	if v > 3 {
		var err error
		if x.Skipped, err = ParseRuns(d.bytes(maxSkipped), x.Frontier); err != nil {
			d.Fail()
		}
	} else {
		x.Skipped = d.runs()
	}
	x.Unconfirmed = d.runs()
	for range d.Count(maxClaimed) {
		x.Claimed = append(x.Claimed, Claimed{SessionID(d.Uint()), Time(d.Int()), Time(d.Int())})
	}
	x.Unnamed = Never
	if v > 1 {
		x.Unnamed = Time(d.Int())
	}
	x.Sure = d.spans()
	if v > 2 {
		x.MovedTo, x.WasRoot, x.Before = d.text(), d.Uint() == 1, d.Uint()
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
	if v > 8 {
		x.Found = d.bytes(MaxFound)
	}
	for i := 0; v > 9 && i < len(x.Draws); i++ {
		y := &x.Draws[i]
		y.Weights = d.Text(maxWeights)
		if y.Weights != "" && (y.To == 0 || y.runs(func(uint64, Run) {}) != nil) {
			d.Fail()
		}
	}
	if v > 10 {
		x.Released = d.released()
	}
	if !d.Done() || n == 0 {
		return fmt.Errorf("%w: damaged", ErrRecord)
	}
	*r = x
	return nil
}

// appendName appends a text, cut to the longest that a reader accepts.
func appendName(b []byte, s string) []byte { return codec.AppendText(b, s[:min(len(s), maxText)]) }

func appendRunList(b []byte, runs []Run) []byte {
	b = codec.AppendUint(b, uint64(len(runs)))
	for _, s := range runs {
		b = codec.AppendUint(b, s.First, s.N)
	}
	return b
}

func appendSpans(b []byte, spans []Span) []byte {
	b = codec.AppendUint(b, uint64(len(spans)))
	for _, s := range spans {
		b = codec.AppendUint(b, s.Epoch)
		b = codec.AppendInt(b, int64(s.From), int64(s.To))
	}
	return b
}

func appendDraws(b []byte, draws []Draw) []byte {
	b = codec.AppendUint(b, uint64(len(draws)))
	for i := range draws {
		d := &draws[i]
		b = appendName(b, d.Event)
		b = codec.AppendInt(b, d.Start)
		b = append(b, d.Seed[:]...)
		b = codec.AppendUint(b, d.From, d.To)
	}
	return b
}

// A decoder reads the parts of records and messages.
type decoder struct{ codec.Reader }

func (d *decoder) runs() (runs []Run) {
	for range d.Count(maxRuns) {
		runs = append(runs, Run{d.Uint(), d.Uint()})
	}
	return runs
}

func (d *decoder) spans() (spans []Span) {
	for range d.Count(mostSpans) {
		spans = append(spans, Span{d.Uint(), Time(d.Int()), Time(d.Int())})
	}
	return spans
}

// bytes returns a copy, because the result is used after the message is gone.
func (d *decoder) bytes(most int) []byte {
	b := d.Bytes(most)
	if len(b) == 0 {
		return nil
	}
	return slices.Clone(b)
}

func (d *decoder) text() string { return d.Text(maxText) }

// each reads one number for each limit. Format 1 had one number for all limits.
func (d *decoder) each(format uint64) (e PerLimit) {
	if format == 1 {
		return evenly(d.Int())
	}
	for i := range e {
		e[i] = d.Int()
	}
	return e
}

func (d *decoder) limit() (s LimitState) {
	s.Kind = Kind(d.Uint())
	s.N, s.Per, s.InForce = d.Int(), time.Duration(d.Int()), d.Int()
	s.Longest, s.Since = time.Duration(d.Int()), Time(d.Int())
	s.Tokens, s.Refilled = d.Int(), Time(d.Int())
	if s.Check() != nil {
		d.Fail()
	}
	last := Time(0)
	for range d.Count(maxEnds) {
		step, n := d.Int(), d.Int()
		if step <= 0 || n <= 0 || n > 1<<40 {
			d.Fail()
			return s
		}
		last += Time(step)
		s.Ends.Add(last, n)
	}
	return s
}

func (d *decoder) draws() (draws []Draw) {
	for range d.Count(2 * mostDraws) {
		x := Draw{Event: d.text(), Start: d.Int()}
		copy(x.Seed[:], d.Take(len(x.Seed)))
		x.From, x.To = d.Uint(), d.Uint()
		if x.To != 0 && (x.From == 0 || x.To <= x.From || x.To-x.From > lineMost) {
			d.Fail()
			return nil
		}
		draws = append(draws, x)
	}
	return draws
}
