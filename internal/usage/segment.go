package usage

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/headgate/headgate/internal/codec"
)

// A segment has the counts of one slot in one hour or day: the limits by name, with their sums, and the
// keys of each in order, without what a key has in common with the one before. So a key of a dozen letters
// takes some 14 bytes, and less when it is compressed.

// mostSegment is the maximum size of a segment, apart from sums: it must fit into a record. Chosen.
const mostSegment = 900 << 10

var errSegment = errors.New("damaged usage of keys")

// A cell is one entry of a segment: the sums of a limit, or the units of a key of the same limit.
type cell struct {
	limit string
	sums  *Sums  // nil: a key
	key   []byte // valid until the next cell
	n     int64
}

// less orders cells as a segment has them.
func (c *cell) compare(x *cell) int {
	switch {
	case c.limit != x.limit:
		return bytes.Compare([]byte(c.limit), []byte(x.limit))
	case (c.sums == nil) != (x.sums == nil):
		if c.sums != nil {
			return -1
		}
		return 1
	}
	return bytes.Compare(c.key, x.key)
}

// A writer appends cells, which come in order.
type writer struct {
	b    []byte
	last []byte
	open bool
}

func (w *writer) add(c *cell) {
	if c.sums != nil {
		if w.open {
			w.b = append(w.b, 0)
		}
		w.b = codec.AppendText(w.b, c.limit)
		w.b = codec.AppendInt(w.b, c.sums.Unreported, c.sums.Dropped, c.sums.Lost)
		w.open, w.last = true, w.last[:0]
		return
	}
	same := 0
	for same < len(w.last) && same < len(c.key) && w.last[same] == c.key[same] {
		same++
	}
	w.b = codec.AppendText(codec.AppendUint(w.b, uint64(same)+1), c.key[same:])
	w.b = codec.AppendInt(w.b, c.n)
	w.last = append(w.last[:0], c.key...)
}

func (w *writer) end() []byte {
	if w.open {
		w.b = append(w.b, 0)
	}
	return w.b
}

// A scanner reads the cells of a segment.
type scanner struct {
	d     codec.Reader
	limit string
	key   []byte
	in    bool
	cell  cell
	ok    bool // cell is one
}

func newScanner(b []byte) *scanner {
	s := &scanner{d: codec.NewReader(b)}
	s.next()
	return s
}

func (s *scanner) next() {
	s.ok = false
	for s.d.Len() > 0 {
		if !s.in {
			s.limit = s.d.Text(mostName)
			x := Sums{s.d.Int(), s.d.Int(), s.d.Int()}
			s.in, s.key = true, s.key[:0]
			s.cell, s.ok = cell{limit: s.limit, sums: &x}, !s.d.Bad()
			return
		}
		same := s.d.UpTo(mostKey + 1)
		if same == 0 {
			s.in = false
			continue
		}
		if same--; int(same) > len(s.key) {
			s.d.Fail()
			return
		}
		s.key = append(s.key[:same], s.d.Bytes(mostKey)...)
		n := s.d.Int()
		s.cell, s.ok = cell{limit: s.limit, key: s.key, n: n}, !s.d.Bad()
		return
	}
}

// bad reports whether the segment was damaged or cut off.
func (s *scanner) bad() bool { return s.d.Bad() || s.in }

// isSegment reports whether b can be read to its end.
func isSegment(b []byte) bool {
	s := newScanner(b)
	for s.ok {
		s.next()
	}
	return !s.bad()
}

// segment returns the counts of a bucket.
func (x *bucket) segment() []byte {
	var w writer
	for _, limit := range slices.Sorted(maps.Keys(x.limits)) {
		c := x.limits[limit]
		w.add(&cell{limit: limit, sums: &c.Sums})
		for _, key := range slices.Sorted(maps.Keys(c.keys)) {
			if n := c.keys[key]; n != 0 {
				w.add(&cell{limit: limit, key: []byte(key), n: n})
			}
		}
	}
	return w.end()
}

// merge adds up two segments. The units of b for whose key there is no room count as dropped.
func merge(a, b []byte) ([]byte, error) {
	x, y := newScanner(a), newScanner(b)
	w := writer{b: make([]byte, 0, len(a)+len(b))}
	dropped := droppedOf(a, b)
	fits := room(len(a))
	put := func(c *cell) {
		if c.sums != nil {
			c.sums.Dropped += dropped[c.limit]
		}
		w.add(c)
	}
	for x.ok || y.ok {
		order := -1
		switch {
		case !x.ok:
			order = 1
		case y.ok:
			order = x.cell.compare(&y.cell)
		}
		switch c := &x.cell; {
		case order < 0:
			put(c)
			x.next()
			continue
		case order > 0:
			if fits(nil, &y.cell) {
				put(&y.cell)
			}
			y.next()
			continue
		case c.sums != nil:
			c.sums.add(*y.cell.sums)
		case fits(c, &y.cell):
			c.n += y.cell.n
		}
		put(&x.cell)
		x.next()
		y.next()
	}
	if x.bad() || y.bad() {
		return nil, errSegment
	}
	return w.end(), nil
}

// room returns a function that reports whether a cell fits into a segment of that size. old is the cell to
// which it is added, or nil. Cells must come in their order. A larger number takes more bytes too: a record
// that is too long could never be written again.
func room(size int) func(old, c *cell) bool {
	left := mostSegment - size
	return func(old, c *cell) bool {
		need := 0
		switch {
		case c.sums != nil: // there are few
			left -= len(c.limit) + 8
			return true
		case old != nil:
			need = intLen(old.n+c.n) - intLen(old.n)
		default:
			need = len(c.key) + 4 + intLen(c.n)
		}
		if left < need {
			return false
		}
		left -= need
		return true
	}
}

// intLen returns the length of a number in a segment.
func intLen(n int64) int {
	var b [binary.MaxVarintLen64]byte
	return len(codec.AppendInt(b[:0], n))
}

// droppedOf returns the units of the keys of b, by limit, for which there is no room in a.
func droppedOf(a, b []byte) map[string]int64 {
	dropped, old, fits := map[string]int64{}, newScanner(a), room(len(a))
	for n := newScanner(b); n.ok; n.next() {
		for old.ok && old.cell.compare(&n.cell) < 0 {
			old.next()
		}
		var to *cell
		if old.ok && old.cell.compare(&n.cell) == 0 {
			to = &old.cell
		}
		if (to == nil || to.sums == nil) && !fits(to, &n.cell) {
			dropped[n.cell.limit] += n.cell.n
		}
	}
	return dropped
}

// pack compresses a segment.
func pack(b []byte) []byte {
	var to bytes.Buffer
	w, err := flate.NewWriter(&to, flate.DefaultCompression)
	if err != nil {
		panic(err) // impossible: the level is valid
	}
	_, _ = w.Write(b) // a Buffer accepts everything
	_ = w.Close()
	return to.Bytes()
}

// unpack decompresses a segment.
func unpack(b []byte) ([]byte, error) {
	all, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(b)), 2*mostSegment))
	if err != nil {
		return nil, errors.Join(errSegment, err)
	}
	return all, nil
}
