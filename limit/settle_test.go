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
