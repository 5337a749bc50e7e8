package analytics

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/headgate/headgate/internal/codec"
	"github.com/headgate/headgate/internal/histogram"
)

// A column file holds a day in equal steps, with one block per series. A block has the rows that
// exist, then one column after the other, each as differences and compressed. An index of the
// blocks follows, and a footer of fixed size with the position of the index.
const (
	footSize    = 16
	mostIndex   = 64 << 20
	mostInflate = 8 << 20 // of a column: 1,440 rows of 128 buckets are less
	mostIDs     = 64
)

// A daySeries is the position of a series in a column file.
type daySeries struct {
	Series
	at, size int64
	crc      uint32
	rows     int
	parts    []part
}

// A part is a column within a block. Number 0 holds the times, the numbers up to roomOf the
// histograms, and the rest the columns.
type part struct {
	column   int
	at, size int
}

// A dayReader reads a column file.
type dayReader struct {
	f        *os.File
	file     string
	from     int64
	step     int64
	ids      [][idSize]byte // the logs that are included
	all      []daySeries
	inflater io.ReadCloser
}

// openDay reads the index. The caller must close the reader.
func openDay(path string) (*dayReader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	d := &dayReader{f: f, file: path}
	if err := d.index(); err != nil {
		f.Close()
		return nil, err
	}
	return d, nil
}

func (d *dayReader) close() { d.f.Close() }

func (d *dayReader) damaged(what string) error { return &fileError{d.file, what} }

// index reads the index at the end of the file. A reader needs it first: the columns are found by
// it.
func (d *dayReader) index() error {
	info, err := d.f.Stat()
	if err != nil {
		return err
	}
	foot, head := make([]byte, footSize), make([]byte, len(dayHead)+1)
	size := info.Size()
	if size < int64(len(head)+footSize) {
		return d.damaged("it is truncated")
	}
	if _, err := d.f.ReadAt(head, 0); err != nil {
		return err
	}
	switch {
	case string(head[:len(dayHead)]) != dayHead:
		return d.damaged("it is not an analytics file")
	case head[len(dayHead)] != format:
		return fmt.Errorf("%s: %w", d.file, errNewer)
	}
	if _, err := d.f.ReadAt(foot, size-footSize); err != nil {
		return err
	}
	at := int64(binary.LittleEndian.Uint64(foot))
	n := int64(binary.LittleEndian.Uint32(foot[8:]))
	// The foot is checked before it is believed: a wrong length would allocate gigabytes.
	if at < 0 || n > mostIndex || at+n != size-footSize {
		return d.damaged("its end is damaged")
	}
	b := make([]byte, n)
	if _, err := d.f.ReadAt(b, at); err != nil {
		return err
	}
	if crc(b) != binary.LittleEndian.Uint32(foot[12:]) {
		return d.damaged("the index of its columns is damaged")
	}
	return d.parse(newReader(b), at)
}

// parse reads the index of the columns. Places and sizes are checked against the file before they
// are used.
func (d *dayReader) parse(r *reader, end int64) error {
	d.from, d.step = int64(r.most(1<<50)), int64(r.most(86400))
	for range r.most(mostIDs) {
		var id [idSize]byte
		copy(id[:], r.Take(idSize))
		d.ids = append(d.ids, id)
	}
	for range r.most(mostRows) {
		var s daySeries
		s.Kind, s.Name = Kind(r.Byte()), r.Text(mostName)
		s.at, s.crc, s.rows = int64(r.most(uint64(end))), uint32(r.most(1<<32-1)), r.most(86400)
		columns, tallies := s.Kind.columns()
		for range r.most(uint64(len(columns) + tallies + 1)) {
			p := part{column: r.most(uint64(len(columns) + roomOf)), at: int(s.size), size: r.most(1 << 30)}
			s.size += int64(p.size)
			s.parts = append(s.parts, p)
		}
		if r.Bad() || s.at+s.size > end || len(columns) == 0 {
			return d.damaged("the index of its columns is invalid")
		}
		d.all = append(d.all, s)
	}
	if !r.Done() || d.step == 0 {
		return d.damaged("the index of its columns is invalid")
	}
	return nil
}

// add adds the rows of a series to a grid of its kind.
func (d *dayReader) add(g *grid, of Series) error {
	i := slices.IndexFunc(d.all, func(s daySeries) bool { return s.Series == of })
	if i < 0 {
		return nil
	}
	s := &d.all[i]
	b := make([]byte, s.size)
	if _, err := d.f.ReadAt(b, s.at); err != nil {
		return err
	}
	if crc(b) != s.crc {
		return d.damaged(fmt.Sprintf("the columns of %s %q are damaged", s.Kind, s.Name))
	}
	var cells []*cell
	for _, p := range s.parts {
		raw, err := d.inflate(b[p.at : p.at+p.size])
		if err != nil {
			return err
		}
		r := newReader(raw)
		switch {
		case p.column == 0:
			cells = d.times(g, r, s.rows)
		// The times come first. Without them no other column can be placed, and a column beyond
		// those of this kind is damaged.
		case len(cells) != s.rows, p.column > g.tallies && p.column <= roomOf:
			r.Fail()
		case p.column > roomOf:
			numbers(g, r, cells, p.column-roomOf-1)
		default:
			histograms(r, cells, p.column-1)
		}
		if !r.Done() {
			return d.damaged(fmt.Sprintf("a column of %s %q is invalid", s.Kind, s.Name))
		}
	}
	return nil
}

// inflate decompresses a column.
func (d *dayReader) inflate(b []byte) ([]byte, error) {
	if d.inflater == nil {
		d.inflater = flate.NewReader(bytes.NewReader(b))
	} else if err := d.inflater.(flate.Resetter).Reset(bytes.NewReader(b), nil); err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(d.inflater, mostInflate))
	if err != nil {
		return nil, d.damaged("a column cannot be decompressed")
	}
	return raw, nil
}

// times returns the cells of the rows, nil outside the grid.
func (d *dayReader) times(g *grid, r *reader, rows int) []*cell {
	cells := make([]*cell, 0, rows)
	at := d.from - d.step
	for range rows {
		at += d.step * int64(1+r.most(86400))
		c := g.at(at)
		if c != nil {
			c.known = true
		}
		cells = append(cells, c)
	}
	return cells
}

func numbers(g *grid, r *reader, cells []*cell, col int) {
	v := int64(0)
	for _, c := range cells {
		v += r.Int()
		if c != nil && v != 0 {
			g.put(c, col, v)
		}
	}
}

// histograms reads which rows have a histogram and which buckets are used, and then for each bucket
// the counts of all those rows. This order puts similar numbers together.
func histograms(r *reader, cells []*cell, i int) {
	rows := make([]*[histogram.Buckets]int64, r.most(uint64(len(cells))))
	at := -1
	for n := range rows {
		if at += 1 + r.most(uint64(len(cells))); r.Bad() || at >= len(cells) {
			r.Fail()
			return
		}
		if c := cells[at]; c != nil {
			rows[n] = c.tally(i)
		}
	}
	bucket := -1
	for range r.most(histogram.Buckets) {
		if bucket += 1 + r.most(histogram.Buckets); r.Bad() || bucket >= histogram.Buckets {
			r.Fail()
			return
		}
		for _, t := range rows {
			n := int64(r.most(1 << 62))
			if t != nil {
				t[bucket] += n
			}
		}
	}
}

// A dayWriter writes a column file.
type dayWriter struct {
	b       bytes.Buffer
	index   []byte
	count   int
	packer  *flate.Writer
	scratch []byte
}

func newDayWriter() *dayWriter {
	w := &dayWriter{}
	w.b.WriteString(dayHead)
	w.b.WriteByte(format)
	w.packer, _ = flate.NewWriter(io.Discard, flate.DefaultCompression) // the level is valid: no error
	return w
}

// series writes the block of a series. It leaves out columns of zeros.
func (w *dayWriter) series(name string, g *grid) error {
	var known []*cell
	at := w.b.Len()
	w.scratch = w.scratch[:0]
	last := -1
	for i := range g.cells {
		if g.cells[i].known {
			known = append(known, &g.cells[i])
			w.scratch = codec.AppendUint(w.scratch, uint64(i-last-1))
			last = i
		}
	}
	if len(known) == 0 {
		return nil
	}
	parts, n := []byte{}, 0
	put := func(column int) error {
		size, err := w.pack()
		parts = codec.AppendUint(parts, uint64(column), uint64(size))
		n++
		return err
	}
	if err := put(0); err != nil {
		return err
	}
	for col := range g.columns {
		if !w.number(known, col) {
			continue
		}
		if err := put(1 + roomOf + col); err != nil {
			return err
		}
	}
	for i := range g.tallies {
		if !w.histogram(known, i) {
			continue
		}
		if err := put(1 + i); err != nil {
			return err
		}
	}
	w.index = append(w.index, byte(g.kind))
	w.index = codec.AppendUint(w.index, uint64(len(name)))
	w.index = append(w.index, name...)
	for _, v := range []int{at, int(crc(w.b.Bytes()[at:])), len(known), n} {
		w.index = codec.AppendUint(w.index, uint64(v))
	}
	w.index = append(w.index, parts...)
	w.count++
	return nil
}

func (w *dayWriter) number(known []*cell, col int) (any bool) {
	w.scratch = w.scratch[:0]
	last := int64(0)
	for _, c := range known {
		any = any || c.values[col] != 0
		w.scratch = codec.AppendInt(w.scratch, c.values[col]-last)
		last = c.values[col]
	}
	return any
}

// histogram writes the histograms of one column to scratch, and reports whether there is any.
func (w *dayWriter) histogram(known []*cell, i int) (any bool) {
	w.scratch = w.scratch[:0]
	// Most buckets are empty in every row. Only those that any row uses are written.
	var used [histogram.Buckets]bool
	var rows []*[histogram.Buckets]int64
	var gaps []int
	last := -1
	for at, c := range known {
		t := c.tallies[i]
		if t == nil {
			continue
		}
		some := false
		for b, n := range t {
			if n != 0 {
				some, used[b] = true, true
			}
		}
		if some {
			rows, gaps, last = append(rows, t), append(gaps, at-last-1), at
		}
	}
	w.scratch = codec.AppendUint(w.scratch, uint64(len(rows)))
	for _, gap := range gaps {
		w.scratch = codec.AppendUint(w.scratch, uint64(gap))
	}
	buckets := 0
	for _, u := range used {
		if u {
			buckets++
		}
	}
	w.scratch = codec.AppendUint(w.scratch, uint64(buckets))
	last = -1
	for b, u := range used {
		if !u {
			continue
		}
		w.scratch = codec.AppendUint(w.scratch, uint64(b-last-1))
		last = b
		for _, t := range rows {
			w.scratch = codec.AppendUint(w.scratch, uint64(t[b]))
		}
	}
	return len(rows) > 0
}

// pack appends the content of scratch, compressed.
func (w *dayWriter) pack() (size int, err error) {
	before := w.b.Len()
	w.packer.Reset(&w.b)
	if _, err = w.packer.Write(w.scratch); err == nil {
		err = w.packer.Close()
	}
	return w.b.Len() - before, err
}

// end returns the finished file.
func (w *dayWriter) end(from, step int64, ids [][idSize]byte) []byte {
	if len(ids) > mostIDs {
		ids = ids[len(ids)-mostIDs:]
	}
	at := w.b.Len()
	head := codec.AppendUint(nil, uint64(from), uint64(step), uint64(len(ids)))
	for _, id := range ids {
		head = append(head, id[:]...)
	}
	head = codec.AppendUint(head, uint64(w.count))
	head = append(head, w.index...)
	w.b.Write(head)
	foot := codec.AppendFixed(nil, uint64(at))
	foot = binary.LittleEndian.AppendUint32(foot, uint32(len(head)))
	foot = binary.LittleEndian.AppendUint32(foot, crc(head))
	w.b.Write(foot)
	return w.b.Bytes()
}
