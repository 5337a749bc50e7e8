package limittable

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/limit"
)

// copyRules returns rules that together need everything that a copy can contain.
func copyRules() []limit.Rule {
	return append(lendRules(rand.New(rand.NewPCG(1, 1))),
		limit.Rule{Algorithm: limit.Concurrency, Amount: 5, Lease: time.Minute},
		limit.Rule{Algorithm: limit.SlidingWindow, Amount: 9, Window: time.Minute, Parts: 6},
		limit.Rule{Algorithm: limit.LeakyBucket, Amount: 5, Window: time.Second, Paced: true})
}

// inUse returns a table in which units are taken, reserved and lent.
func inUse(t testing.TB, r limit.Rule) (table *Table, now Time) {
	table, now = newTable(t, r, map[string]int64{"c": 3}, 100), lendBegan
	for i := range 12 {
		now += Time(r.Window) / 9
		k := uint64(i%3) + 1
		table.Take(now, k, lendKey(i%3), 1)
		if i%4 == 0 {
			table.Reserve(now, k, lendKey(i%3), 1, time.Hour)
		}
		r := Report{Borrower: uint64(i % 2), Loan: 1, Need: 1, Least: 1, Want: 2}
		table.Borrow(now, now, k, lendKey(i%3), &r)
	}
	return table, now
}

func copyHash(key string) uint64 { return uint64(key[0]-'a') + 1 }

// A copy decides as the table itself does, and copying it gives the same bytes.
func TestACopyDecidesAsTheTable(t *testing.T) {
	for _, r := range copyRules() {
		table, now := inUse(t, r)
		twin := newTable(t, r, map[string]int64{"c": 3}, 1) // full, but all keys are accepted
		if err := twin.ReadHeader(table.AppendHeader(nil)); err != nil {
			t.Fatalf("%s: %v", name(r), err)
		}
		for i := range table.Places() {
			if err := twin.ReadKey(table.AppendKey(nil, i), now, copyHash); err != nil {
				t.Fatalf("%s: key %d: %v", name(r), i, err)
			}
		}
		for i := range table.Places() {
			if got, want := string(twin.AppendKey(nil, i)), string(table.AppendKey(nil, i)); got != want {
				t.Errorf("%s: key %d is copied as %q, then as %q", name(r), i, want, got)
			}
		}
		for k := range lendKeys {
			for range 40 {
				now += Time(r.Window) / 31
				n := int64(k + 1)
				got, _ := twin.Take(now, uint64(k)+1, lendKey(k), n)
				want, _ := table.Take(now, uint64(k)+1, lendKey(k), n)
				if got != want {
					t.Fatalf("%s: %+v, want %+v", name(r), got, want)
				}
			}
			if got, want := twin.Lent(uint64(k)+1), table.Lent(uint64(k)+1); got != want {
				t.Errorf("%s: %d lent, want %d", name(r), got, want)
			}
		}
	}
}

// A copy made under other rules is rejected: its numbers mean something else here.
func TestACopyOfOtherRulesIsRefused(t *testing.T) {
	one := limit.Rule{Algorithm: limit.SlidingWindow, Amount: 9, Window: time.Minute, Parts: 6}
	for _, other := range []limit.Rule{
		{Algorithm: limit.SlidingWindow, Amount: 9, Window: time.Minute, Parts: 5},
		{Algorithm: limit.SlidingWindow, Amount: 9, Window: time.Hour, Parts: 6},
		{Algorithm: limit.TokenBucket, Amount: 9, Window: time.Minute},
	} {
		table, _ := inUse(t, one)
		if err := newTable(t, other, nil, 9).ReadHeader(table.AppendHeader(nil)); !errors.Is(err, ErrRules) {
			t.Errorf("%s takes in a copy of %s: %v", name(other), name(one), err)
		}
	}
	table, _ := inUse(t, one)
	one.Amount = 100
	if err := newTable(t, one, nil, 9).ReadHeader(table.AppendHeader(nil)); err != nil {
		t.Errorf("another amount: %v", err)
	}
}

// A copy that no table has written is rejected.
func TestADamagedCopyIsRefused(t *testing.T) {
	r := limit.Rule{Algorithm: limit.SlidingWindow, Amount: 9, Window: time.Minute, Parts: 3}
	log := limit.Rule{Algorithm: limit.SlidingLog, Amount: 9, Window: time.Minute}
	bucket := limit.Rule{Algorithm: limit.TokenBucket, Amount: 9, Window: time.Minute}
	at := Time(lendBegan)
	for what, c := range map[string]struct {
		r limit.Rule
		e entry
	}{
		"too few sub-windows":      {r, entry{more: &more{cells: []int64{1, 2}}}},
		"less than nothing":        {r, entry{more: &more{cells: []int64{1, -2, 0, 0}}}},
		"used less than nothing":   {bucket, entry{b: -1}},
		"more than a part":         {bucket, entry{b: 1, c: 1 << 60}},
		"calls in no order":        {log, entry{more: &more{log: []used{{at, 1}, {at - 1, 1}}}}},
		"a call of -1":             {log, entry{more: &more{log: []used{{at, -1}}}}},
		"a call after all windows": {log, entry{more: &more{log: []used{{Never - 1, 1}}}}},
		"holds in no order":        {log, entry{more: &more{holds: []hold{{end: at}, {end: at - 1}}}}},
		"a hold of -1":             {log, entry{more: &more{holds: []hold{{end: at, n: -1}}}}},
		"used more than given":     {log, entry{more: &more{loans: []loan{{who: 1, given: 1, used: 2}}}}},
		"more given than there is": {log, entry{more: &more{loans: []loan{{given: 1 << 61}}}}},
		"one borrower twice":       {log, entry{more: &more{loans: []loan{{who: 1}, {who: 1}}}}},
		"wants less than nothing":  {log, entry{more: &more{loans: []loan{{who: 1, want: -1}}}}},
	} {
		b := appendEntry([]byte{1, 'a'}, &c.e)
		if err := newTable(t, c.r, nil, 9).ReadKey(b, 0, copyHash); !errors.Is(err, ErrCopy) {
			t.Errorf("%s: taken in: %v", what, err)
		}
	}
}

// FuzzCopy reads copies of arbitrary bytes, and uses the accepted ones.
func FuzzCopy(f *testing.F) {
	for i, r := range copyRules() {
		table, _ := inUse(f, r)
		f.Add(uint8(i), table.AppendHeader(nil), table.AppendKey(nil, 0))
	}
	f.Fuzz(func(t *testing.T, i uint8, head, key []byte) {
		rules := copyRules()
		r := rules[int(i)%len(rules)]
		table := newTable(t, r, nil, 2)
		_ = table.ReadHeader(head) // rejected or not, what follows must not panic
		if table.ReadKey(key, lendBegan, func(string) uint64 { return 1 }) != nil && table.Len() > 0 {
			t.Fatal("refused, and taken in")
		}
		now := lendBegan
		for n := range 4 {
			now += Time(n) * Time(max(r.Window, time.Second)) / 3
			table.Take(now, 1, "a", 1)
			table.Take(now, 1, "a", -1)
			d, _ := table.Reserve(now, 1, "a", 2, time.Second)
			_ = table.Settle(now, 1, d.ID, 1)
			table.Peek(now, 9, "new", 3)
			table.Borrow(now, now, 1, "a", &Report{Borrower: 3, Loan: 1, Need: 2, Least: 1, Want: 5})
			table.Expire(now, now+2*LendTerm, nil)
			table.Usage(now, 0, 9)
			table.Holders(1, 0)
		}
		table.SetRules(now, compiled(t, rules[(int(i)+1)%len(rules)], nil), 2)
		table.Take(now, 1, "a", 1)
		table.Take(now, 7, "other", 1)
		for i := range table.Places() {
			table.AppendKey(nil, i)
		}
	})
}
