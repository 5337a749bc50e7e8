package analytics

import (
	"errors"
	"time"

	"github.com/headgate/headgate/internal/codec"
	"github.com/headgate/headgate/internal/histogram"
)

// A Row holds the values of a series for one step that begins at At.
type Row struct {
	At      int64 // Unix seconds
	Values  []int64
	Tallies [][]Bucket
}

// A Bucket is the count of one bucket of a histogram.
type Bucket struct {
	At uint8
	N  int64
}

// Merge adds up the rows of a series from several nodes, in steps of step seconds.
func Merge(kind Kind, from, to, step int64, parts ...[]Row) []Row {
	g := newGrid(kind, from, to, step)
	for _, rows := range parts {
		for i := range rows {
			g.add(&rows[i])
		}
	}
	return g.rows()
}

// count returns the total of a histogram of the row.
func (r *Row) count(i int) (n int64) {
	for _, b := range r.Tallies[i] {
		n += b.N
	}
	return n
}

// quantile returns the q-quantile of a histogram, and false if it is empty.
func (r *Row) quantile(i int, q float64) (time.Duration, bool) {
	n := r.count(i)
	if n == 0 {
		return 0, false
	}
	rank, sum := int64(q*float64(n-1)), int64(0)
	for _, b := range r.Tallies[i] {
		if sum += b.N; sum > rank {
			return histogram.Value(int(b.At)), true
		}
	}
	return 0, false
}

var errRow = errors.New("a row of analytics is invalid")

// roomOf is the maximum number of histograms of a kind. In files the column numbers follow after
// them.
const roomOf = 8

// appendBody writes values and histograms: a bit for each one that is not zero, then those.
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
	b = codec.AppendUint(b, bits)
	for _, v := range r.Values {
		if v != 0 {
			b = codec.AppendUint(b, uint64(v))
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
	b = codec.AppendUint(b, uint64(len(t)))
	last := -1
	for _, x := range t {
		b = codec.AppendUint(b, uint64(int(x.At)-last-1), uint64(x.N))
		last = int(x.At)
	}
	return b
}

// A reader decodes parts of rows and files.
type reader struct{ codec.Reader }

func newReader(b []byte) *reader { return &reader{codec.NewReader(b)} }

// most reads a number up to a limit.
func (r *reader) most(bound uint64) int { return int(r.UpTo(bound)) }

// buckets calls f with each bucket of a histogram.
func (r *reader) buckets(f func(at int, n int64)) {
	at := -1
	for range r.most(histogram.Buckets) {
		at += 1 + r.most(histogram.Buckets)
		n := r.most(1 << 62)
		if r.Bad() || at >= histogram.Buckets {
			r.Fail()
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
	bits := r.Uint()
	if bits>>(len(g.columns)+roomOf) != 0 || bits&(1<<roomOf-1)>>g.tallies != 0 {
		r.Fail()
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

// AppendRows encodes rows for another node.
func AppendRows(b []byte, rows []Row) []byte {
	var body []byte
	last := int64(0)
	for i := range rows {
		b = codec.AppendInt(b, rows[i].At-last)
		last = rows[i].At
		body = appendBody(body[:0], &rows[i])
		b = codec.AppendText(b, body)
	}
	return b
}

// ParseRows decodes rows of a kind from another node, with steps of step seconds.
func ParseRows(kind Kind, from, to, step int64, b []byte) ([]Row, error) {
	g := newGrid(kind, from, to, step)
	at := int64(0)
	for r := newReader(b); r.Len() > 0; {
		at += r.Int()
		x := newReader(r.Bytes(1 << 20))
		x.body(g, at)
		if r.Bad() || x.Bad() {
			return nil, errRow
		}
	}
	return g.rows(), nil
}
