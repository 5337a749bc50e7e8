//go:build bench

package holders

import (
	"flag"
	"runtime"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/store"
)

// slack widens the budgets where other work shares the machine.
var slack = flag.Float64("slack", 1, "budgets are multiplied by this")

// best returns the time of an operation in the best of some runs: other work shares the machine.
func best(run func(*testing.B)) time.Duration {
	least := time.Hour
	for range 5 {
		r := testing.Benchmark(run)
		least = min(least, time.Duration(r.NsPerOp()))
	}
	return least
}

// A million holders: what the table takes, what reading it takes, and what a call pays.
func TestAMillionHolders(t *testing.T) {
	const million = 1_000_000
	s := &store.Memory{}
	writer := NewBook(Config{Store: s, Log: discard()})
	writer.Open(time.Minute)
	check(t, writer)
	keys := make([]string, 0, million)
	for len(keys) < million {
		made, err := writer.Add(t.Context(), drafts(MostAtOnce, "pro"), plans())
		if err != nil {
			t.Fatal(err)
		}
		for i := range made {
			keys = append(keys, made[i].Key)
		}
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	b := NewBook(Config{Store: s, Bus: store.NewBus(nil), Log: discard()})
	b.Open(time.Hour)
	began := time.Now()
	check(t, b)
	took := time.Since(began)
	used := heap() - before
	if b.Len() != million {
		t.Fatal(b.Len())
	}
	ids, shards := make([]ID, million), map[int]int{}
	for i, key := range keys {
		ids[i], _ = Parse(key)
		shards[ids[i].shard()]++
	}
	most := 0
	for _, n := range shards {
		most = max(most, n)
	}
	look := best(func(tb *testing.B) {
		for i := range tb.N {
			if _, at := b.look(ids[i*7919%million]); at < 0 {
				tb.Fatal("not found")
			}
		}
	})
	find := best(func(tb *testing.B) {
		for i := range tb.N {
			if _, o := b.Find(keys[i*7919%million]); o != Known {
				tb.Fatal(o)
			}
		}
	})
	t.Logf("%d MB for the table, read in %v; %d in the fullest record; look-up %v, with parsing and SHA-256 %v",
		used>>20, took, most, look, find)
	if used > 60<<20 {
		t.Errorf("the table takes %d bytes, budget 60 MB", used)
	}
	if float64(look) > 200**slack {
		t.Errorf("a look-up takes %v, budget 200 ns × %.1f", look, *slack)
	}
	if most > mostInShard {
		t.Errorf("%d holders in one record, want %d at most", most, mostInShard)
	}
	runtime.KeepAlive(writer)
}
