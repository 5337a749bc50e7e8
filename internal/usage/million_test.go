package usage

import (
	"context"
	"math/rand/v2"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"
)

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A discarding response counts what it gets.
type discarding struct {
	*httptest.ResponseRecorder
	bytes, lines int
	peak         int64
}

func (d *discarding) Write(b []byte) (int, error) {
	d.bytes += len(b)
	d.lines += strings.Count(string(b), "\n")
	if d.lines%100_000 < 400 {
		d.peak = max(d.peak, heap())
	}
	return len(b), nil
}

// TestAMillionKeys has the budgets of the decision record: 200 MB of memory, 16 bytes of disk for a key and
// hour, and an export that is streamed. Each hour writes all keys in two batches.
func TestAMillionKeys(t *testing.T) {
	million := 1_000_000
	if testing.Short() {
		million = 100_000 // as many keys in each of fewer slots
	}
	const letters = "abcdefghijklmnopqrstuvwxyz234567"
	slots := Slots * million / 1_000_000
	keys := make([]string, million)
	for i := range keys { // IDs of holders: 60 random bits
		var b [12]byte
		for j := range b {
			b[j] = letters[rand.IntN(len(letters))]
		}
		keys[i] = string(b[:])
	}
	r := newRig()
	k := r.keeper()
	before := heap()
	tallies := make([]Tally, slots)
	for i := range tallies {
		tallies[i].Begin()
	}
	hour, memory, total := Hour.Of(time.Now())-1, int64(0), int64(0)
	for range 2 {
		for i, key := range keys {
			y := &tallies[i%slots]
			y.At(nil, hour)
			n := rand.Int64N(10_000)
			y.Spend(nil, "tokens", strings.Clone(key), n)
			total += n
		}
		memory = max(memory, heap()-before)
		for slot := range slots {
			write(t, k, slot, &tallies[slot])
		}
	}
	var all []int
	for slot := range slots {
		all = append(all, slot)
	}
	if err := k.Close(t.Context(), Hour, all, hour+1); err != nil {
		t.Fatal(err)
	}
	size, err := r.logs["usage_hours"].Size(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	disk := float64(size.Bytes) / float64(million)
	q, err := ParseRequest(url.Values{"limit": {"tokens"}}, "csv", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	idle := heap()
	w := &discarding{ResponseRecorder: httptest.NewRecorder()}
	if err := k.Serve(context.Background(), w, q, "csv"); err != nil {
		t.Fatal(err)
	}
	_, sum := rows(t, k, Query{Limit: "tokens"})
	units := int64(0)
	for _, n := range sum {
		units += n
	}
	t.Logf("%d keys: %.1f MB of memory, %.1f bytes of disk each in %d entries; an export of %.1f MB took "+
		"%.1f MB", million, float64(memory)/1e6, disk, size.Count, float64(w.bytes)/1e6, float64(w.peak-idle)/1e6)
	if most := int64(200) * int64(million); memory > most {
		t.Errorf("%d bytes of memory, want at most %d", memory, most)
	}
	if disk > 16 {
		t.Errorf("%.1f bytes of disk for a key and hour, want at most 16", disk)
	}
	if w.lines != million+1 || units != total {
		t.Errorf("%d lines, %d units; want %d keys and a heading, %d units", w.lines, units, million, total)
	}
	if w.peak-idle > 8<<20 {
		t.Errorf("the export took %d bytes of memory, want it streamed", w.peak-idle)
	}
}
