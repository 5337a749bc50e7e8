package slot

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/codec"
)

// ErrMessage is wrapped by every error about bytes that are not a message of this format, and about
// a message too long for it.
var ErrMessage = errors.New("not a message between machines")

// The formats of a Sync and an Answer. siteFormat adds the fields that only counters use. Messages
// are never stored, unlike records, so readers accept only these formats.
const (
	wireFormat = 1
	siteFormat = 2
)

// maxItems bounds the items of a Sync and so the results of its Answer. Chosen: three times the
// 20,000 renewals of a full worker.
const maxItems = 1 << 16

// AppendBinary appends the Sync to b: about 20 B for each item. If it has more items or arrivals
// than a message can hold, AppendBinary returns an error and b unchanged.
func (x *Sync) AppendBinary(b []byte) ([]byte, error) {
	was := b
	b = slices.Grow(b, 128+24*len(x.Items)) // usually enough
	site := x.Traffic != 0 || x.Idle != 0 || x.Lapsed
	b = codec.AppendUint(b, formatOf(site), uint64(x.Loan))
	b = appendName(b, x.Borrower)
	b = codec.AppendUint(b, x.Seq.Epoch, x.Seq.N, x.Seen.Life, x.Seen.Epoch, x.Seen.Writes, x.Est)
	b = codec.AppendInt(b, x.Granted)
	b = codec.AppendInt(b, x.Returned[:]...)
	b = codec.AppendInt(b, x.Opened, int64(x.Settled), x.Need, x.Want)
	b = codec.AppendUint(b, uint64(len(x.Queue)))
	last := Time(0)
	for _, t := range x.Queue {
		b = appendStep(b, &last, t)
	}
	if site {
		b = codec.AppendInt(b, x.Traffic, x.Idle)
		b = codec.AppendUint(b, codec.Bit(x.Lapsed))
	}
	b, ok := appendItems(b, x.Items)
	if !ok || len(x.Items) > maxItems || len(x.Queue) > maxQueue || len(x.Borrower) > maxText {
		return was, fmt.Errorf("%w: a Sync of %d items, %d arrivals and a name of %d bytes",
			ErrMessage, len(x.Items), len(x.Queue), len(x.Borrower))
	}
	return b, nil
}

// UnmarshalBinary reads a Sync. On an error it leaves x unchanged. It keeps no reference to b.
func (x *Sync) UnmarshalBinary(b []byte) error {
	d := decoder{codec.NewReader(b)}
	v, err := d.format()
	if err != nil {
		return err
	}
	y := Sync{Loan: LoanID(d.Uint()), Borrower: d.text(), Seq: Seq{d.Uint(), d.Uint()}}
	y.Seen, y.Est = WriteName{d.Uint(), d.Uint(), d.Uint()}, d.Uint()
	y.Granted, y.Returned = d.Int(), d.each(Version)
	y.Opened, y.Settled, y.Need, y.Want = d.Int(), Time(d.Int()), d.Int(), d.Int()
	n, last := d.Count(maxQueue), Time(0)
	y.Queue = slices.Grow(y.Queue, n)
	for range n {
		y.Queue = append(y.Queue, d.step(&last))
	}
	if v == siteFormat {
		y.Traffic, y.Idle, y.Lapsed = d.Int(), d.Int(), d.Uint() == 1
	}
	y.Items = d.items()
	if err := d.end(); err != nil {
		return err
	}
	*x = y
	return nil
}

// AppendBinary appends the Answer to b: up to 16 B for each result and each early leave. If it has
// more of them than a message can hold, AppendBinary returns an error and b unchanged.
func (a *Answer) AppendBinary(b []byte) ([]byte, error) {
	if len(a.Results) > maxItems || len(a.Gone) > maxGone || len(a.Sure) > mostSpans {
		return b, fmt.Errorf("%w: an Answer of %d results, %d early leaves and %d spans",
			ErrMessage, len(a.Results), len(a.Gone), len(a.Sure))
	}
	b = slices.Grow(b, 128+16*(len(a.Results)+len(a.Gone))) // usually enough
	site := a.Part != 0 || a.Plenty != 0
	b = codec.AppendUint(b, formatOf(site), a.Name.Life, a.Name.Epoch, a.Name.Writes, a.Seq.Epoch, a.Seq.N)
	b = codec.AppendUint(b, uint64(a.Loan), codec.Bit(a.Over)|codec.Bit(a.Again)<<1,
		codec.Bit(a.GiveBack), codec.Bit(a.Waiting))
	b = codec.AppendInt(b, int64(a.Time), a.Granted, int64(a.Term), int64(a.Latest))
	b = codec.AppendUint(b, uint64(len(a.Results)))
	last := Time(0)
	for _, r := range a.Results {
		b = codec.AppendUint(b, uint64(r.ID))
		b = appendStep(b, &last, r.End)
	}
	b = codec.AppendUint(b, uint64(len(a.Gone)))
	for _, g := range a.Gone {
		b = codec.AppendUint(b, uint64(g.ID))
		b = appendStep(b, &last, g.End)
	}
	b = appendSpans(b, a.Sure)
	if site {
		b = codec.AppendInt(b, a.Part)
		b = codec.AppendUint(b, a.Plenty)
	}
	return b, nil
}

// UnmarshalBinary reads an Answer. On an error it leaves a unchanged. It keeps no reference to b.
func (a *Answer) UnmarshalBinary(b []byte) error {
	d := decoder{codec.NewReader(b)}
	v, err := d.format()
	if err != nil {
		return err
	}
	y := Answer{Name: WriteName{d.Uint(), d.Uint(), d.Uint()}, Seq: Seq{d.Uint(), d.Uint()}}
	y.Loan = LoanID(d.Uint())
	over := d.Uint() // versions without Again read it as an answer that grants nothing
	y.Over, y.Again = over == 1 || over == 3, over == 2 || over == 3
	y.GiveBack, y.Waiting = d.Uint() == 1, d.Uint() == 1
	y.Time, y.Granted = Time(d.Int()), d.Int()
	y.Term, y.Latest = time.Duration(d.Int()), Time(d.Int())
	n, last := d.Count(maxItems), Time(0)
	y.Results = slices.Grow(y.Results, n)
	for range n {
		y.Results = append(y.Results, Result{SessionID(d.Uint()), d.step(&last)})
	}
	n = d.Count(maxGone)
	y.Gone = slices.Grow(y.Gone, n)
	for range n {
		y.Gone = append(y.Gone, EarlyLeave{SessionID(d.Uint()), d.step(&last)})
	}
	y.Sure = d.spans()
	if v == siteFormat {
		y.Part, y.Plenty = d.Int(), d.Uint()
	}
	if err := d.end(); err != nil {
		return err
	}
	*a = y
	return nil
}

// The first byte of an item holds its Op and, above it, a bit for each of its times that is not 0.
const (
	opBits = 3
	opMask = 1<<opBits - 1
)

// times returns the times of an item in the order of their bits.
func (i *Item) times() [5]*Time { return [...]*Time{&i.From, &i.At, &i.End, &i.Use, &i.Hard} }

// appendItems appends a list of items, with each time as the difference from the last one of its
// kind. It reports whether all items have an Op.
func appendItems(b []byte, items []Item) ([]byte, bool) {
	b = codec.AppendUint(b, uint64(len(items)))
	var last Item
	before := last.times()
	for i := range items {
		it := &items[i]
		if it.Op < Open || it.Op > Answered {
			return b, false
		}
		now, head := it.times(), byte(it.Op)
		for k, t := range now {
			if *t != 0 {
				head |= 1 << (opBits + k)
			}
		}
		b = append(b, head)
		b = codec.AppendUint(b, uint64(it.ID))
		for k, t := range now {
			if *t != 0 {
				b = appendStep(b, before[k], *t)
			}
		}
	}
	return b, true
}

func (d *decoder) items() (items []Item) {
	n := d.Count(maxItems)
	items = slices.Grow(items, n)
	var last Item
	before := last.times()
	for range n {
		head := d.Byte()
		it := Item{Op: Op(head & opMask), ID: SessionID(d.Uint())}
		if it.Op < Open || it.Op > Answered {
			d.Fail()
			return nil
		}
		for k, t := range it.times() {
			if head&(1<<(opBits+k)) != 0 {
				*t = d.step(before[k])
			}
		}
		items = append(items, it)
	}
	return items
}

// appendStep appends a time as the difference from the last one that was not 0.
func appendStep(b []byte, last *Time, t Time) []byte {
	b = codec.AppendInt(b, int64(t-*last))
	if t != 0 {
		*last = t
	}
	return b
}

func (d *decoder) step(last *Time) Time {
	t := *last + Time(d.Int())
	if t != 0 {
		*last = t
	}
	return t
}

func formatOf(site bool) uint64 {
	if site {
		return siteFormat
	}
	return wireFormat
}

// format reads the number at the start of every message.
func (d *decoder) format() (uint64, error) {
	v := d.Uint()
	if d.Bad() {
		return 0, d.end()
	}
	if v != wireFormat && v != siteFormat {
		return 0, fmt.Errorf("%w: format %d, this program reads up to %d: upgrade the older program first",
			ErrMessage, v, siteFormat)
	}
	return v, nil
}

// end returns an error if the message is invalid or was not read completely.
func (d *decoder) end() error {
	if !d.Done() {
		return fmt.Errorf("%w: damaged", ErrMessage)
	}
	return nil
}
