package analytics

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/histogram"
)

// Rows that travel to another node arrive as they were, and add up there as here.
func TestRowsTravel(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var a, b []Row
	for i := range 300 {
		r := busyMinute(rng, 50, float64(i))
		if r.At = int64(i * 60); i%3 != 0 {
			a = append(a, r)
		}
		if i%2 == 0 {
			b = append(b, r)
		}
	}
	got, err := ParseRows(Room, 0, 300*60, 60, AppendRows(nil, a))
	if d := cmp.Diff(a, got); err != nil || d != "" {
		t.Fatal(err, d)
	}
	whole := Merge(Room, 0, 300*60, 300*60, a, b)
	if len(whole) != 1 {
		t.Fatal(whole)
	}
	for col := range roomColumns {
		sum, most := int64(0), int64(0)
		for _, r := range slices.Concat(a, b) {
			sum, most = sum+r.Values[col], max(most, r.Values[col])
		}
		want := sum
		switch col {
		case RoomActiveMax, RoomWaitingMax, RoomActiveLimit, RoomNewLimit:
			want = most
		}
		if whole[0].Values[col] != want {
			t.Errorf("column %d: %d, want %d", col, whole[0].Values[col], want)
		}
	}
	if _, err := ParseRows(Room, 0, 60, 60, []byte{0, 3, 1, 2}); err == nil {
		t.Error("nonsense is taken for rows")
	}
}

// Percentiles against a sorted list.
func TestQuantiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for n := 1; n < 3000; n = n*3 + 1 {
		var h histogram.Histogram
		var all []time.Duration
		for range n {
			d := time.Duration(rng.Int64N(int64(time.Hour) >> rng.IntN(20)))
			all = append(all, d)
			h.Add(d)
		}
		slices.Sort(all)
		counts := h.Read()
		r := Row{Tallies: [][]Bucket{sparse(&counts)}}
		for _, q := range []float64{0, 0.5, 0.9, 0.99, 1} {
			want := all[int(q*float64(n-1))]
			got, ok := r.quantile(0, q)
			if off := (got - want).Abs(); !ok || off > want/8+histogram.Unit {
				t.Errorf("%v of %d: %v, want %v", q, n, got, want)
			}
		}
	}
	if _, ok := (&Row{Tallies: [][]Bucket{nil}}).quantile(0, 0.5); ok {
		t.Error("of nothing there is a percentile")
	}
}

// Whatever is in a file, reading it ends and breaks nothing.
func FuzzLog(f *testing.F) {
	path := filepath.Join(f.TempDir(), "log")
	l, _, err := openLog(path)
	if err != nil {
		f.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 3 {
		r := busyMinute(rng, 5, 0)
		if err := l.append(int64(i), []seriesRow{{Series{Room, "a"}, r}}); err != nil {
			f.Fatal(err)
		}
	}
	l.close()
	b, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)-5])
	f.Fuzz(func(t *testing.T, b []byte) {
		x := &logReader{b: b, file: "fuzz"}
		x.skip()
		if x.good > int64(len(b)) {
			t.Fatal("more is good than there is")
		}
		g := newGrid(Room, 0, 6000, 60)
		newReader(b).body(g, 0)
		_, _ = ParseRows(Room, 0, 6000, 60, b)
	})
}

// The same of columns, whose checksums are right.
func FuzzDay(f *testing.F) {
	g := newGrid(Room, 0, daySeconds, 60)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 10 {
		r := busyMinute(rng, 5, 0)
		r.At = int64(i) * 180
		g.add(&r)
	}
	w := newDayWriter()
	if err := w.series("a", g); err != nil {
		f.Fatal(err)
	}
	b := slices.Clone(w.end(0, 60, nil))
	f.Add(b, 5, byte(1))
	path := filepath.Join(f.TempDir(), "day")
	f.Fuzz(func(t *testing.T, b []byte, at int, x byte) {
		if at >= 0 && at < len(b) {
			b = bytes.Clone(b)
			b[at] ^= x
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := openDay(path)
		if err != nil {
			return
		}
		defer d.close()
		for i := range d.all {
			d.all[i].crc = blockCRC(d, i) // what is behind the checksum must not be trusted either
			_ = d.add(newGrid(d.all[i].Kind, 0, daySeconds, 60), d.all[i].Series)
		}
	})
}

func blockCRC(d *dayReader, i int) uint32 {
	b := make([]byte, d.all[i].size)
	if _, err := d.f.ReadAt(b, d.all[i].at); err != nil {
		return 0
	}
	return crc(b)
}
