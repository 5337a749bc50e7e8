package limit

import (
	"math/rand/v2"
	"testing"
	"time"
)

// After each settlement what remains is what would if the call had cost that from the start.
func TestSettledIsAsIfTakenSo(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 31))
		for _, r := range append(rules(random), Rule{Algorithm: SlidingLog, Amount: 9, Window: 5e6}) {
			if r.leaks() {
				continue
			}
			table := newTable(t, r, nil, 10)
			spare, calls, now := oracle(r), []call{}, Time(1_700_000_000_000_000_000+random.Int64N(1e9))
			type open struct {
				id uint64
				i  int
			}
			var held []open
			for step := range 200 {
				now += Time(random.Int64N(2*int64(r.Window)/max(1, r.Amount) + 1))
				if len(held) > 0 && random.IntN(2) == 0 {
					k := random.IntN(len(held))
					h := held[k]
					held = append(held[:k:k], held[k+1:]...)
					calls[h.i].n = 1 + random.Int64N(calls[h.i].n) // at least 1: a first hit stays one
					if err := table.Settle(now, 7, h.id, calls[h.i].n); err != nil {
						t.Fatal(err)
					}
				} else {
					n := 1 + random.Int64N(4)
					d, _ := table.Reserve(now, 7, "k", n, time.Hour)
					if d.Allowed {
						calls = append(calls, call{now, n})
						held = append(held, open{d.ID, len(calls) - 1})
					}
				}
				d := table.Peek(now, 7, "k", 0)
				if want := max(0, spare(calls, now)); d.Remaining != want {
					t.Fatalf("seed %d step %d, %s: %d remain, want %d", seed, step, name(r), d.Remaining, want)
				}
			}
		}
	}
}

// What a settlement says beyond what is left is owed; of a limit that refuses nobody it is not.
func TestForgivingOwesNothing(t *testing.T) {
	const now, most = Time(1_700_000_000_000_000_000), 9
	for _, r := range rules(rand.New(rand.NewPCG(3, 1))) {
		if r.Algorithm == Concurrency || r.Paced {
			continue
		}
		r.Amount = most
		if r.leaks() {
			r.Burst = most
		}
		for _, forgives := range []bool{false, true} {
			table, want := newTable(t, r, nil, 10), int64(1000)
			if table.Forgive(forgives); forgives {
				want = most
			}
			d, err := table.Reserve(now, 7, "k", 2, time.Hour)
			if err != nil || !d.Allowed {
				t.Fatal(name(r), d, err)
			}
			if err := table.Settle(now, 7, d.ID, 1000); err != nil {
				t.Fatal(name(r), err)
			}
			if all, _ := table.Uses(now, 0, 1); len(all) != 1 || all[0].Used != want {
				t.Errorf("%s, nothing is owed: %v: %+v, want %d to be used", name(r), forgives, all, want)
			}
		}
	}
}
