package limittable

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/limit"
)

// Random walks over all rules and calls: nothing panics, and Concurrency never exceeds its amount
// while its rules stay.
func TestWalk(t *testing.T) {
	for seed := range uint64(800) {
		random := rand.New(rand.NewPCG(seed, 77))
		lease := time.Duration(1 + random.Int64N(5e9))
		all := append(rules(random),
			limit.Rule{Algorithm: limit.Concurrency, Amount: 1 + random.Int64N(5), Lease: lease},
			limit.Rule{Algorithm: limit.SlidingLog, Amount: 5000, Window: time.Second},
			limit.Rule{Algorithm: limit.FixedWindow, Amount: 5, Align: limit.Align(2 + random.IntN(6))},
			limit.Rule{Algorithm: limit.LeakyBucket, Amount: 5, Window: time.Second, Paced: true},
			limit.Rule{Algorithm: limit.SlidingWindow, Amount: limit.MaxAmount, Window: limit.MaxWindow,
				Parts: 3600},
			limit.Rule{Algorithm: limit.TokenBucket, Amount: limit.MaxAmount, Window: limit.MaxWindow,
				Burst: 1},
			limit.Rule{Algorithm: limit.TokenBucket, Amount: 1, Window: limit.MaxWindow,
				Burst: limit.MaxAmount})
		table := newTable(t, all[random.IntN(len(all))], nil, 1+random.IntN(3))
		now := Time(random.Int64N(2)) * 1_700_000_000_000_000_000
		var ids []uint64
		for range 200 {
			now += Time(random.Int64N(1 << uint(1+random.IntN(52))))
			k := uint64(random.IntN(5))
			key := string('a' + rune(k))
			n := random.Int64N(6)
			if random.IntN(10) == 0 {
				n = random.Int64N(limit.MaxAmount + 1)
			}
			switch random.IntN(9) {
			case 0, 1:
				table.Take(now, k, key, n)
			case 2:
				table.Take(now, k, key, -n)
			case 3, 4:
				d, _ := table.Reserve(now, k, key, 1+n/2, time.Duration(1+random.Int64N(1e12)))
				if d.ID > 0 {
					ids = append(ids, d.ID)
				}
			case 5:
				if len(ids) > 0 {
					table.Settle(now, k, ids[random.IntN(len(ids))], n)
				}
			case 6:
				table.Peek(now, k, key, n)
			case 7:
				if random.IntN(5) == 0 {
					table.SetRules(now, compiled(t, all[random.IntN(len(all))], nil), 1+random.IntN(3))
				}
				table.Usage(now, 0, 2)
			case 8:
				if random.IntN(5) == 0 {
					table.Reset(k)
				}
			}
			for i := range table.Places() {
				e := &table.entries[i]
				if e.b < 0 || e.b > owedMost+limit.MaxAmount {
					t.Fatalf("seed %d: %+v under %v", seed, e, table.rules.rule)
				}
				if table.rules.rule.Algorithm == limit.SlidingLog {
					sum, zero := int64(0), int64(0)
					for _, u := range e.extra().log[e.more.head:] {
						if sum += u.n; u.n == 0 {
							zero++
						}
					}
					if sum != e.b || zero != e.c {
						t.Fatalf("seed %d: log %v: sum %d zero %d, entry %d %d", seed, e.more.log, sum, zero,
							e.b, e.c)
					}
				}
			}
		}
	}
}
