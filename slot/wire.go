package slot

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrMessage is wrapped by every error about bytes that are no message of this
// format, and about a message too long for it.
var ErrMessage = errors.New("not a message between machines")

// The formats of a Sync and an Answer: siteFormat has what is said between counters
// beside. Unlike a record a message is never kept, so only these are read.
const (
	wireFormat = 1
	siteFormat = 2
)

// maxItems bounds the items of a Sync, and with them the results of its Answer.
// Chosen: three times the 20,000 renewals of a full worker.
const maxItems = 1 << 16

// AppendBinary appends the Sync to b: about 20 B for each item. One with more items
// or arrivals than a message holds is refused, and b comes back as it was.
func (x *Sync) AppendBinary(b []byte) ([]byte, error) {
	e := encoder{slices.Grow(b, 128+24*len(x.Items))} // usually enough
	site := x.Traffic != 0 || x.Idle != 0 || x.Lapsed
	e.uint(formatOf(site), uint64(x.Loan))
	e.text(x.Borrower)
	e.uint(x.Seq.Epoch, x.Seq.N, x.Seen.Life, x.Seen.Epoch, x.Seen.Writes, x.Est)
	e.int(x.Granted)
	e.int(x.Returned[:]...)
	e.int(x.Opened, int64(x.Settled), x.Need, x.Want)
	e.uint(uint64(len(x.Queue)))
	last := Tau(0)
	for _, t := range x.Queue {
		e.step(&last, t)
	}
	if site {
		e.int(x.Traffic, x.Idle)
		e.uint(bit(x.Lapsed))
	}
	whole := e.items(x.Items) && len(x.Items) <= maxItems
	if !whole || len(x.Queue) > maxQueue || len(x.Borrower) > maxText {
		return b, fmt.Errorf("%w: a Sync of %d items, %d arrivals and a name of %d bytes",
			ErrMessage, len(x.Items), len(x.Queue), len(x.Borrower))
	}
	return e.b, nil
}

// UnmarshalBinary reads a Sync, and leaves x as it was if b is none. Nothing of b is
// kept.
func (x *Sync) UnmarshalBinary(b []byte) error {
	d := decoder{b: b}
	v, err := d.format()
	if err != nil {
		return err
	}
	y := Sync{Loan: LoanID(d.uint()), Borrower: d.text(), Seq: Seq{d.uint(), d.uint()}}
	y.Seen, y.Est = WriteName{d.uint(), d.uint(), d.uint()}, d.uint()
	y.Granted, y.Returned = d.int(), d.each(Version)
	y.Opened, y.Settled, y.Need, y.Want = d.int(), Tau(d.int()), d.int(), d.int()
	n, last := d.len(maxQueue), Tau(0)
	y.Queue = slices.Grow(y.Queue, n)
	for range n {
		y.Queue = append(y.Queue, d.step(&last))
	}
	if v == siteFormat {
		y.Traffic, y.Idle, y.Lapsed = d.int(), d.int(), d.uint() == 1
	}
	y.Items = d.items()
	if err := d.end(); err != nil {
		return err
	}
	*x = y
	return nil
}

// AppendBinary appends the Answer to b: up to 16 B for each result and each stay
// that is gone. One with more of them than a message holds is refused, and b comes
// back as it was.
func (a *Answer) AppendBinary(b []byte) ([]byte, error) {
	if len(a.Results) > maxItems || len(a.Gone) > maxGone || len(a.Sure) > mostSpans {
		return b, fmt.Errorf("%w: an Answer of %d results, %d stays that are gone and %d spans",
			ErrMessage, len(a.Results), len(a.Gone), len(a.Sure))
	}
	e := encoder{slices.Grow(b, 128+16*(len(a.Results)+len(a.Gone)))} // usually enough
	site := a.Part != 0 || a.Plenty != 0
	e.uint(formatOf(site), a.Name.Life, a.Name.Epoch, a.Name.Writes, a.Seq.Epoch, a.Seq.N)
	e.uint(uint64(a.Loan), bit(a.Over)|bit(a.Again)<<1, bit(a.GiveBack), bit(a.Waiting))
	e.int(int64(a.Time), a.Granted, int64(a.Term), int64(a.Latest))
	e.uint(uint64(len(a.Results)))
	last := Tau(0)
	for _, r := range a.Results {
		e.uint(uint64(r.ID))
		e.step(&last, r.End)
	}
	e.uint(uint64(len(a.Gone)))
	for _, g := range a.Gone {
		e.uint(uint64(g.ID))
		e.step(&last, g.End)
	}
	e.spans(a.Sure)
	if site {
		e.int(a.Part)
		e.uint(a.Plenty)
	}
	return e.b, nil
}

// UnmarshalBinary reads an Answer, and leaves a as it was if b is none. Nothing of b
// is kept.
func (a *Answer) UnmarshalBinary(b []byte) error {
	d := decoder{b: b}
	v, err := d.format()
	if err != nil {
		return err
	}
	y := Answer{Name: WriteName{d.uint(), d.uint(), d.uint()}, Seq: Seq{d.uint(), d.uint()}}
	y.Loan = LoanID(d.uint())
	over := d.uint() // programs from before Again read it as an answer that grants nothing
	y.Over, y.Again = over == 1 || over == 3, over == 2 || over == 3
	y.GiveBack, y.Waiting = d.uint() == 1, d.uint() == 1
	y.Time, y.Granted = Tau(d.int()), d.int()
	y.Term, y.Latest = time.Duration(d.int()), Tau(d.int())
	n, last := d.len(maxItems), Tau(0)
	y.Results = slices.Grow(y.Results, n)
	for range n {
		y.Results = append(y.Results, Result{StayID(d.uint()), d.step(&last)})
	}
	n = d.len(maxGone)
	y.Gone = slices.Grow(y.Gone, n)
	for range n {
		y.Gone = append(y.Gone, Gone{StayID(d.uint()), d.step(&last)})
	}
	y.Sure = d.spans()
	if v == siteFormat {
		y.Part, y.Plenty = d.int(), d.uint()
	}
	if err := d.end(); err != nil {
		return err
	}
	*a = y
	return nil
}

// The first byte of an item is its Op and, above it, a bit for each of its times
// that is not 0.
const (
	opBits = 3
	opMask = 1<<opBits - 1
)

// times are the times of an item, in the order of their bits.
func (i *Item) times() [5]*Tau { return [...]*Tau{&i.From, &i.At, &i.End, &i.Use, &i.Hard} }

// items writes a list of items, each time by the way from the last of its kind. It
// reports whether they all have an Op.
func (e *encoder) items(items []Item) bool {
	e.uint(uint64(len(items)))
	var last Item
	before := last.times()
	for i := range items {
		it := &items[i]
		if it.Op < Open || it.Op > Answered {
			return false
		}
		now, head := it.times(), byte(it.Op)
		for k, t := range now {
			if *t != 0 {
				head |= 1 << (opBits + k)
			}
		}
		e.b = append(e.b, head)
		e.uint(uint64(it.ID))
		for k, t := range now {
			if *t != 0 {
				e.step(before[k], *t)
			}
		}
	}
	return true
}

func (d *decoder) items() (items []Item) {
	n := d.len(maxItems)
	items = slices.Grow(items, n)
	var last Item
	before := last.times()
	for range n {
		head := d.byte()
		it := Item{Op: Op(head & opMask), ID: StayID(d.uint())}
		if it.Op < Open || it.Op > Answered {
			d.fail()
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

// step writes a time by the way from the last one that was not 0.
func (e *encoder) step(last *Tau, t Tau) {
	e.int(int64(t - *last))
	if t != 0 {
		*last = t
	}
}

func (d *decoder) step(last *Tau) Tau {
	t := *last + Tau(d.int())
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

// format reads the number that every message begins with.
func (d *decoder) format() (uint64, error) {
	v := d.uint()
	if d.err != nil {
		return 0, d.end()
	}
	if v != wireFormat && v != siteFormat {
		return 0, fmt.Errorf("%w: format %d, this program reads up to %d: upgrade the older program first",
			ErrMessage, v, siteFormat)
	}
	return v, nil
}

// end says what is wrong with the message, if anything is: the whole of it must have
// been read.
func (d *decoder) end() error {
	if d.err != nil || len(d.b) > 0 {
		return fmt.Errorf("%w: damaged", ErrMessage)
	}
	return nil
}
