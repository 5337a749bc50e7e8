package limittable

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/headgate/headgate/limit"
)

var seed = maphash.MakeSeed()

func hashOf(key string) uint64 { return maphash.String(seed, key) }

// entryOf returns the entry of the only key of a table.
func entryOf(table *Table, key string) *entry {
	for _, hash := range []uint64{1, 7} {
		if _, e := table.slot(hash); e != nil {
			return e
		}
	}
	return nil
}

func compiled(t testing.TB, r limit.Rule, overrides map[string]int64) *Rules {
	t.Helper()
	rules, err := Compile(r, overrides)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func newTable(t testing.TB, r limit.Rule, overrides map[string]int64, most int) *Table {
	t.Helper()
	table := &Table{}
	table.SetRules(0, compiled(t, r, overrides), most)
	return table
}

// The keys equal those of a map, whatever is added and removed.
func TestKeysAgainstAMap(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	r := limit.Rule{Algorithm: limit.FixedWindow, Amount: 1000, Window: time.Second, Align: limit.FirstHit}
	table, want, now := newTable(t, r, nil, 1000), map[string][2]int64{}, Time(5e18/4)
	for range 50_000 {
		now += Time(random.Int64N(5e6))
		key := fmt.Sprint(random.IntN(700))
		hash := hashOf(key) % 97 // many keys compete for the same places: the first ones, and the last
		if hash%2 == 0 {
			hash = math.MaxUint32 - hash
		}
		hash |= hashOf(key) << 32
		if random.IntN(20) == 0 {
			table.Reset(hash)
			delete(want, key)
			continue
		}
		w := want[key]
		if int64(now) >= w[0] {
			w = [2]int64{int64(now) + 1e9, 0}
		}
		d, err := table.Take(now, hash, key, 1)
		if err != nil || d.Shared {
			t.Fatalf("%+v %v with %d keys", d, err, table.Len())
		}
		w[1]++
		want[key] = w
		if d.Remaining != 1000-w[1] {
			t.Fatalf("key %s: %d remain, want %d", key, d.Remaining, 1000-w[1])
		}
	}
	seen := map[string]bool{}
	for from := 0; ; {
		uses, next := table.Usage(now, from, 7)
		for _, u := range uses {
			if w := want[u.Key]; seen[u.Key] || u.Used != w[1] || int64(now) >= w[0] {
				t.Fatalf("%+v, want %v; twice: %v", u, w, seen[u.Key])
			}
			seen[u.Key] = true
		}
		if from = next; next == 0 {
			break
		}
	}
	for key, w := range want {
		if int64(now) < w[0] && w[1] > 0 && !seen[key] {
			t.Errorf("key %s is not among those told", key)
		}
	}
}

// Listing continues where it was, even if so many keys are added or removed that the table changes
// its size.
func TestKeysAreListedWhileOthersComeAndGo(t *testing.T) {
	r := limit.Rule{Algorithm: limit.TokenBucket, Amount: 10, Window: time.Hour}
	table, now := newTable(t, r, nil, 100_000), Time(1e18)
	take := func(from, to int) {
		for i := from; i < to; i++ {
			key := fmt.Sprint(i)
			table.Take(now, hashOf(key), key, 1)
		}
	}
	take(0, 1000)
	told, size := map[string]int{}, len(table.entries)
	for page, from := 0, 0; page == 0 || from > 0; page++ {
		var uses []limit.Usage
		uses, from = table.Usage(now, from, 100)
		for _, u := range uses {
			told[u.Key]++
		}
		switch page {
		case 4:
			take(1000, 5000)
		case 20:
			for i := 1000; i < 5000; i++ {
				table.Reset(hashOf(fmt.Sprint(i)))
			}
		}
		if len(table.entries) == size && page == 4 {
			t.Fatalf("%d places, as before", size)
		}
	}
	for i := range 1000 {
		if n := told[fmt.Sprint(i)]; n != 1 {
			t.Errorf("a key that stayed is told %d times, want once", n)
		}
	}
}

// Unused keys are removed by the calls of others.
func TestIdleKeysAreForgotten(t *testing.T) {
	for _, r := range rules(rand.New(rand.NewPCG(3, 3))) {
		table, now := newTable(t, r, nil, 10_000), Time(1e18)
		for i := range 5000 {
			key := fmt.Sprint(i)
			table.Take(now, hashOf(key), key, 1)
		}
		if table.Len() != 5000 {
			t.Fatalf("%d keys", table.Len())
		}
		now += kept + Time(20*r.Window*20)
		for range 25_000 {
			table.Take(now, hashOf("x"), "x", 1)
		}
		if table.Len() > 2 || len(table.entries) > 2*fewest {
			t.Errorf("%s: %d keys in %d places", name(r), table.Len(), len(table.entries))
		}
	}
}

// Too many keys: those beyond the maximum share the amount of one key; known keys work as before.
func TestAFloodOfKeysIsBounded(t *testing.T) {
	r := limit.Rule{Algorithm: limit.SlidingLog, Amount: 5, Window: time.Minute}
	table, now := newTable(t, r, nil, 1000), Time(1e18)
	passed, shared := 0, 0
	for i := range 10_000 {
		key := fmt.Sprint(i)
		d, _ := table.Take(now, hashOf(key), key, 1)
		if d.Allowed {
			passed++
		}
		if d.Shared {
			shared++
		}
	}
	if table.Len() != 1000 || passed != 1000+5 || shared != 9000 {
		t.Errorf("%d keys, %d passed, %d shared; want 1000, 1005 and 9000", table.Len(), passed, shared)
	}
	if d, _ := table.Take(now, hashOf("3"), "3", 4); !d.Allowed || d.Shared {
		t.Errorf("a key that was known: %+v", d)
	}
	if d := table.Peek(now, hashOf("new"), "new", 1); d.Allowed || !d.Shared {
		t.Errorf("a look at a key beyond: %+v", d)
	}
}

func TestConcurrencyIsReleasedOrLapses(t *testing.T) {
	r := limit.Rule{Algorithm: limit.Concurrency, Amount: 3, Lease: time.Second}
	table, now := newTable(t, r, nil, 10), Time(1e18)
	var ids []uint64
	for range 3 {
		d, _ := table.Take(now, 1, "k", 1)
		ids = append(ids, d.ID)
		now += 100e6
	}
	if d, _ := table.Take(now, 1, "k", 1); d.Allowed || d.Retry != 700*time.Millisecond {
		t.Errorf("a fourth: %+v, want to be told of the end of the first lease in 700 ms", d)
	}
	if err := table.Settle(now, 1, ids[1], 0); err != nil {
		t.Error(err)
	}
	if err := table.Settle(now, 1, ids[1], 0); !errors.Is(err, ErrSettled) {
		t.Errorf("settled twice: %v", err)
	}
	if d, _ := table.Take(now, 1, "k", 1); !d.Allowed || d.Remaining != 0 {
		t.Errorf("one has ended: %+v", d)
	}
	now += 750e6 // the first lease is over, the third and the last are not
	if d, _ := table.Take(now, 1, "k", 2); d.Allowed || d.Remaining != 1 {
		t.Errorf("%+v, want one to be free", d)
	}
	if err := table.Settle(now, 1, ids[0], 0); !errors.Is(err, ErrSettled) {
		t.Errorf("a call that outlived its lease: %v", err)
	}
	if _, err := table.Take(now, 1, "k", -1); !errors.Is(err, ErrNothingToReserve) {
		t.Errorf("given back without saying which: %v", err)
	}
}

// If an estimate was too high, others can use the difference at once.
func TestAnEstimateIsSettled(t *testing.T) {
	for _, r := range []limit.Rule{
		{Algorithm: limit.TokenBucket, Amount: 10_000, Window: time.Minute},
		{Algorithm: limit.SlidingLog, Amount: 10_000, Window: time.Minute},
		{Algorithm: limit.SlidingWindow, Amount: 10_000, Window: time.Minute, Parts: 6},
		{Algorithm: limit.FixedWindow, Amount: 10_000, Window: time.Minute},
	} {
		table, now := newTable(t, r, nil, 10), Time(1.2e18)
		table.Take(now, 1, "k", 6000)
		a, err := table.Reserve(now, 1, "k", 4000, time.Minute)
		if err != nil || !a.Allowed || a.Remaining != 0 {
			t.Fatalf("%s: %+v %v", name(r), a, err)
		}
		if err := table.Settle(now, 1, a.ID, 1000); err != nil {
			t.Fatal(err)
		}
		if d := table.Peek(now, 1, "k", 0); d.Remaining != 3000 {
			t.Errorf("%s: %d remain of what was reserved, want 3000", name(r), d.Remaining)
		}
		a, _ = table.Reserve(now, 1, "k", 1000, time.Minute)
		table.Settle(now, 1, a.ID, 9000)
		if d, _ := table.Take(now, 1, "k", 1); d.Allowed || d.Remaining != 0 || d.Retry <= 0 {
			t.Errorf("%s: eight times the estimate is not owed: %+v", name(r), d)
		}
		if a, _ = table.Reserve(now, 2, "j", 10, time.Second); a.ID == 0 {
			t.Fatalf("%s: %+v", name(r), a)
		}
		if err := table.Settle(now+1e9, 2, a.ID, 0); !errors.Is(err, ErrSettled) {
			t.Errorf("%s: settled too late: %v", name(r), err)
		}
	}
}

// A bucket that was empty in between has already got back part of a reservation with time.
func TestWhatComesBackByItselfIsNotGivenBackTwice(t *testing.T) {
	r := limit.Rule{Algorithm: limit.TokenBucket, Amount: 60, Window: time.Minute, Burst: 10}
	table, now := newTable(t, r, nil, 10), Time(1e18)
	a, _ := table.Reserve(now, 1, "k", 10, time.Hour)
	now += 30e9
	if got := take2(table, now, 20); got != 10 {
		t.Fatalf("%d pass", got)
	}
	table.Settle(now, 1, a.ID, 0)
	if got := take2(table, now, 20); got != 0 {
		t.Errorf("%d more pass at once than the burst", got)
	}
}

func take2(table *Table, now Time, n int) (passed int) {
	for range n {
		if d, _ := table.Take(now, 1, "k", 1); d.Allowed {
			passed++
		}
	}
	return passed
}

// Limits change while they are in use: what was used stays used.
func TestRulesChangeUnderUse(t *testing.T) {
	all := append(rules(rand.New(rand.NewPCG(9, 9))), limit.Rule{Algorithm: limit.Concurrency, Amount: 9})
	for _, a := range all {
		for _, b := range all {
			a.Amount, b.Amount = 10, 20
			if a.Burst > 0 {
				a.Burst = 10
			}
			if b.Burst > 0 {
				b.Burst = 20
			}
			table, now := newTable(t, a, nil, 10), Time(1.3e18)
			if d, _ := table.Take(now, 1, "k", 7); !d.Allowed {
				t.Fatalf("%s: %+v", name(a), d)
			}
			table.SetRules(now, compiled(t, b, nil), 10)
			d := table.Peek(now, 1, "k", 0)
			if a.Algorithm != limit.Concurrency && b.Algorithm != limit.Concurrency && d.Remaining != 13 {
				t.Errorf("from %s to %s: %d remain of 20 after 7, want 13", name(a), name(b), d.Remaining)
			}
		}
	}
	table := newTable(t, all[0], map[string]int64{"big": 1000}, 10)
	if d := table.Peek(1e18, 1, "big", 1000); !d.Allowed || d.Amount != 1000 {
		t.Errorf("a key with an amount of its own: %+v", d)
	}
	burst := limit.Rule{Algorithm: limit.TokenBucket, Amount: 10, Window: time.Second, Burst: 25}
	table = newTable(t, burst, map[string]int64{"none": 0, "half": 5}, 10)
	if d := table.Peek(1e18, 1, "half", 1); d.Amount != 12 {
		t.Errorf("a burst of 25 for 10 is %d for 5, want 12", d.Amount)
	}
	if d := table.Peek(1e18, 2, "none", 1); d.Allowed {
		t.Errorf("an amount of 0 lets pass: %+v", d)
	}
	if burst.Burst = limit.MaxAmount; withAmount(burst, limit.MaxAmount).Check() == nil {
		t.Error("a burst that is too great with another amount is taken")
	}
	_, err := Compile(limit.Rule{}, nil)
	_, err2 := Compile(all[0], map[string]int64{"x": -1})
	if err == nil || err2 == nil {
		t.Error("a rule that makes no sense is taken")
	}
}

// A clock that steps back gives nothing twice.
func TestAClockThatStepsBackStandsStill(t *testing.T) {
	for _, r := range rules(rand.New(rand.NewPCG(4, 4))) {
		table, now := newTable(t, r, nil, 10), Time(1e18)
		for n := range r.MaxCost() {
			table.Take(now-Time(n)*1e9, 1, "k", 1)
		}
		if d, _ := table.Take(now-3600e9, 1, "k", 1); d.Allowed {
			t.Errorf("%s: one more than %d passes an hour before", name(r), r.MaxCost())
		}
	}
}

func TestBadCosts(t *testing.T) {
	table := newTable(t, limit.Rule{Algorithm: limit.TokenBucket, Amount: 5, Window: time.Second}, nil, 10)
	for _, n := range []int64{math.MaxInt64, math.MinInt64, limit.MaxAmount + 1} {
		if _, err := table.Take(1, 1, "k", n); !errors.Is(err, ErrCost) {
			t.Errorf("%d: %v", n, err)
		}
	}
	if d, err := table.Take(1, 1, "k", limit.MaxAmount); err != nil || d.Allowed || d.Retry >= 0 {
		t.Errorf("more than ever passes: %+v %v", d, err)
	}
	if d, err := table.Take(1, 1, "k", -5); err != nil || d.Remaining != 5 || table.Len() > 1 {
		t.Errorf("given back before anything is taken: %+v %v", d, err)
	}
	for _, n := range []int64{0, -1, limit.MaxAmount + 1} {
		if _, err := table.Reserve(1, 1, "k", n, time.Second); !errors.Is(err, ErrCost) {
			t.Errorf("reserve %d: %v", n, err)
		}
	}
}

// Calendar windows, over a change to summer time.
func TestCalendarWindows(t *testing.T) {
	paris, err := time.LoadLocation("Europe/Paris")
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []struct {
		align      limit.Align
		when, ends string
	}{
		{limit.Minute, "2026-03-29 12:34:56", "2026-03-29 12:35:00"},
		{limit.Hour, "2026-03-29 01:30:00", "2026-03-29 03:00:00"}, // there is no 02:00
		{limit.Day, "2026-03-29 01:30:00", "2026-03-30 00:00:00"},  // of 23 hours
		{limit.Week, "2026-03-29 23:00:00", "2026-03-30 00:00:00"}, // a Sunday
		{limit.Month, "2026-02-03 04:05:06", "2026-03-01 00:00:00"},
		{limit.Year, "2026-02-03 04:05:06", "2027-01-01 00:00:00"},
	} {
		table := newTable(t, limit.Rule{Algorithm: limit.FixedWindow, Amount: 1, Align: of.align,
			Zone: paris}, nil, 10)
		parse := func(s string) Time {
			at, err := time.ParseInLocation(time.DateTime, s, paris)
			if err != nil {
				t.Fatal(err)
			}
			return Time(at.UnixNano())
		}
		now := parse(of.when)
		table.Take(now, 1, "k", 1)
		if d, _ := table.Take(now, 1, "k", 1); d.Allowed || now+Time(d.Retry) != parse(of.ends) {
			t.Errorf("%v at %s: %+v ends %v, want %s", of.align, of.when, d,
				time.Unix(0, int64(now+Time(d.Retry))).In(paris), of.ends)
		}
	}
}

// Taking and giving back does not make a log longer.
func TestGivingBackLeavesNothingBehind(t *testing.T) {
	r := limit.Rule{Algorithm: limit.SlidingLog, Amount: 100, Window: time.Hour}
	table, now := newTable(t, r, nil, 10), Time(1e18)
	last, _ := table.Reserve(now, 1, "k", 1, time.Hour)
	for range 10_000 {
		now += 1000
		next, _ := table.Reserve(now, 1, "k", 1, time.Hour)
		if err := table.Settle(now, 1, last.ID, 0); err != nil {
			t.Fatal(err)
		}
		last = next
	}
	if m := entryOf(table, "k").more; len(m.log) > 20 || len(m.holds) > 1 {
		t.Errorf("a log of %d and %d reservations for one call", len(m.log), len(m.holds))
	}
}

// A decision for a known key allocates nothing; a key costs at most 100 bytes plus its length.
func TestKeysAreSmall(t *testing.T) {
	for _, r := range []limit.Rule{
		{Algorithm: limit.TokenBucket, Amount: 100, Window: time.Minute},
		{Algorithm: limit.SlidingWindow, Amount: 100, Window: time.Minute},
	} {
		const keys, length = 400_000, 16
		heap := func() uint64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		before, table, now := heap(), newTable(t, r, nil, keys), Time(1e18)
		for i := range keys {
			key := fmt.Sprintf("%016d", i)
			table.Take(now, hashOf(key), key, 1)
		}
		each := float64(heap()-before)/keys - length
		t.Logf("%v: %.1f bytes a key and its length", r.Algorithm, each)
		if each > 100 {
			t.Errorf("%v: %.1f bytes a key and its length, want 100 at most", r.Algorithm, each)
		}
		key, hash := "0000000000000007", hashOf("0000000000000007")
		if n := testing.AllocsPerRun(1000, func() { now++; table.Take(now, hash, key, 1) }); n > 0 {
			t.Errorf("%v: %v allocations a decision", r.Algorithm, n)
		}
		runtime.KeepAlive(table)
	}
}

// No call panics, and no more passes than the guarantee allows.
func FuzzTable(f *testing.F) {
	f.Add([]byte{1, 10, 6, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Add([]byte{4, 200, 1, 255, 128, 9, 0, 0, 77, 2})
	f.Fuzz(func(t *testing.T, ops []byte) {
		if len(ops) < 4 {
			return
		}
		r := limit.Rule{Algorithm: limit.Algorithm(1 + ops[0]%6), Amount: int64(ops[1])}
		r.Window = time.Duration(1+int(ops[2])) * 37e5
		if r.Algorithm == limit.Concurrency {
			r.Window = 0
		}
		table := newTable(t, r, nil, 3)
		now, ids := Time(1e18), []uint64{}
		for i := 3; i+1 < len(ops); i += 2 {
			op, x := ops[i], int64(ops[i+1])
			now += Time(x * x * 1e4)
			key := string('a' + rune(x%5))
			switch op % 6 {
			case 0, 1:
				n := x - 40
				if r.Algorithm == limit.Concurrency {
					n = max(0, n)
				}
				d, err := table.Take(now, uint64(x%5), key, n)
				if err != nil || d.Remaining < 0 || d.Remaining > d.Amount || d.Allowed && n > d.Amount {
					t.Fatalf("%+v %v", d, err)
				}
			case 2:
				d, _ := table.Reserve(now, uint64(x%5), key, 1+x, time.Duration(x+1)*1e7)
				ids = append(ids, d.ID)
			case 3:
				if len(ids) > 0 {
					table.Settle(now, uint64(x%5), ids[int(x)%len(ids)], x)
				}
			case 4:
				table.Peek(now-Time(x*1e9), uint64(x%5), key, x)
			case 5:
				r.Amount = x
				table.SetRules(now, compiled(t, r, nil), 3)
			}
		}
	})
}

func BenchmarkTake(b *testing.B) {
	for _, a := range []limit.Algorithm{limit.SlidingLog, limit.SlidingWindow, limit.FixedWindow,
		limit.TokenBucket} {
		b.Run(a.String(), func(b *testing.B) {
			table := newTable(b, limit.Rule{Algorithm: a, Amount: 100, Window: time.Second}, nil, 1000)
			var keys [512]string
			for i := range keys {
				keys[i] = fmt.Sprint("client ", i)
			}
			b.ReportAllocs()
			now, i := Time(1e18), 0
			for b.Loop() {
				now += 50_000
				key := keys[i%512]
				i++
				table.Take(now, hashOf(key), key, 1)
			}
		})
	}
}
