package analytics

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/headgate/headgate/internal/tally"
)

// A Row is what is known of a series from a time on, for one step.
type Row struct {
	At      int64 // Unix seconds
	Values  []int64
	Tallies [][]Bucket
}

// A Bucket is how many of a histogram there are at one place.
type Bucket struct {
	At uint8
	N  int64
}

// Merge adds up what several nodes know of a series, in steps of step seconds from from to to.
func Merge(kind Kind, from, to, step int64, parts ...[]Row) []Row {
	g := newGrid(kind, from, to, step)
	for _, rows := range parts {
		for i := range rows {
			g.add(&rows[i])
		}
	}
	return g.rows()
}

// count is how many a histogram of the row holds.
func (r *Row) count(i int) (n int64) {
	for _, b := range r.Tallies[i] {
		n += b.N
	}
	return n
}

// quantile is what a part q of a histogram is not above; false if it is empty.
func (r *Row) quantile(i int, q float64) (time.Duration, bool) {
	n := r.count(i)
	if n == 0 {
		return 0, false
	}
	rank, sum := int64(q*float64(n-1)), int64(0)
	for _, b := range r.Tallies[i] {
		if sum += b.N; sum > rank {
			return tally.Value(int(b.At)), true
		}
	}
	return 0, false
}

var errRow = errors.New("what is said of a step makes no sense")

// roomOf is how many histograms a kind may have: in files the columns are numbered behind those.
const roomOf = 8

// appendBody writes values and histograms: a bit for each that is not zero, then those.
func appendBody(b []byte, r *Row) []byte {
	bits := uint64(0)
	for i, v := range r.Values {
		if v != 0 {
			bits |= 1 << (i + roomOf)
		}
	}
	for i, t := range r.Tallies {
		if len(t) > 0 {
			bits |= 1 << i
		}
	}
	b = binary.AppendUvarint(b, bits)
	for _, v := range r.Values {
		if v != 0 {
			b = binary.AppendUvarint(b, uint64(v))
		}
	}
	for _, t := range r.Tallies {
		if len(t) > 0 {
			b = appendBuckets(b, t)
		}
	}
	return b
}

func appendBuckets(b []byte, t []Bucket) []byte {
	b = binary.AppendUvarint(b, uint64(len(t)))
	last := -1
	for _, x := range t {
		b = binary.AppendUvarint(b, uint64(int(x.At)-last-1))
		b = binary.AppendUvarint(b, uint64(x.N))
		last = int(x.At)
	}
	return b
}

// A reader takes numbers off bytes; once one is wrong, all that follows is 0 and bad is set.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || r.bad {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

// most is a number that may not be above a bound.
func (r *reader) most(bound uint64) int {
	v := r.uvarint()
	if v > bound {
		r.bad = true
		return 0
	}
	return int(v)
}

func (r *reader) bytes(n int) []byte {
	if r.bad || n > len(r.b) {
		r.bad = true
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

// buckets gives each bucket of a histogram to f.
func (r *reader) buckets(f func(at int, n int64)) {
	at := -1
	for range r.most(tally.Buckets) {
		at += 1 + r.most(tally.Buckets)
		n := r.most(1 << 62)
		if r.bad || at >= tally.Buckets {
			r.bad = true
			return
		}
		f(at, int64(n))
	}
}

// body adds the row of a time to a grid.
func (r *reader) body(g *grid, at int64) {
	c := g.at(at)
	if c == nil {
		return
	}
	c.known = true
	bits := r.uvarint()
	if bits>>(len(g.columns)+roomOf) != 0 || bits&(1<<roomOf-1)>>g.tallies != 0 {
		r.bad = true
		return
	}
	for i := range g.columns {
		if bits&(1<<(i+roomOf)) != 0 {
			g.put(c, i, int64(r.most(1<<62)))
		}
	}
	for i := range g.tallies {
		if bits&(1<<i) != 0 {
			t := c.tally(i)
			r.buckets(func(at int, n int64) { t[at] += n })
		}
	}
}

// AppendRows writes rows for another node.
func AppendRows(b []byte, rows []Row) []byte {
	var body []byte
	last := int64(0)
	for i := range rows {
		b = binary.AppendVarint(b, rows[i].At-last)
		last = rows[i].At
		body = appendBody(body[:0], &rows[i])
		b = binary.AppendUvarint(b, uint64(len(body)))
		b = append(b, body...)
	}
	return b
}

// ParseRows reads rows of a kind that another node has written, with steps of step seconds.
func ParseRows(kind Kind, from, to, step int64, b []byte) ([]Row, error) {
	g := newGrid(kind, from, to, step)
	at := int64(0)
	for r := (&reader{b: b}); len(r.b) > 0; {
		d, n := binary.Varint(r.b)
		if n <= 0 {
			return nil, errRow
		}
		r.b = r.b[n:]
		at += d
		x := &reader{b: r.bytes(r.most(1 << 20))}
		x.body(g, at)
		if r.bad || x.bad {
			return nil, errRow
		}
	}
	return g.rows(), nil
}
