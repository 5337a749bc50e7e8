package limittable

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/limit"
)

// Paced calls leave w/N apart and none waits longer than B·w/N, whatever arrives when.
func TestPacedCallsStayApart(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 5))
		r := limit.Rule{Algorithm: limit.LeakyBucket, Amount: 1 + random.Int64N(9), Paced: true,
			Window: time.Duration(1e6 + random.Int64N(1e7)), Burst: 1 + random.Int64N(9)}
		table, now, free := newTable(t, r, nil, 10), Time(1e18), Time(0)
		for range 300 {
			now += Time(random.Int64N(2 * int64(r.Window) / r.Amount))
			n := 1 + random.Int64N(2)
			d, _ := table.Take(now, 1, "k", n)
			if !d.Allowed {
				continue
			}
			goes := now + Time(d.Wait)
			if goes < free-1 {
				t.Fatalf("seed %d: %v too early", seed, time.Duration(free-goes))
			}
			if float64(d.Wait) > float64(r.Burst)*float64(r.Window)/float64(r.Amount)+1 {
				t.Fatalf("waits %v", d.Wait)
			}
			free = goes + Time(n)*Time(r.Window)/Time(r.Amount)
		}
	}
}

// A log above 4,096 calls is never over the limit, and counts at most w/4096 too long.
func TestLogWithGrid(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 6))
		w := Time(1e6 + random.Int64N(1e9))
		r := limit.Rule{Algorithm: limit.SlidingLog, Amount: 4097 + random.Int64N(5000),
			Window: time.Duration(w)}
		table, now := newTable(t, r, nil, 10), Time(1e18)
		var calls []call
		for range 3000 {
			now += Time(random.Int64N(int64(w) / 700))
			n := 1 + random.Int64N(60)
			sum, late := int64(0), int64(0)
			for i := len(calls) - 1; i >= 0 && calls[i].at > now-w-w/4096-1; i-- {
				if late += calls[i].n; calls[i].at > now-w {
					sum += calls[i].n
				}
			}
			d, _ := table.Take(now, 1, "k", n)
			if d.Allowed && sum+n > r.Amount || !d.Allowed && late+n <= r.Amount {
				t.Fatalf("seed %d: %v with %d and %d of %d", seed, d, sum, late, r.Amount)
			}
			if d.Allowed {
				calls = append(calls, call{now, n})
			} else if p := table.Peek(now, 1, "k", n); p.Retry != d.Retry {
				t.Fatal(p, d)
			}
		}
	}
}

// With overrides, reservations and the rest, the total that passes in every window is limited by
// the number of keys plus one.
func TestConcurrencyNeverOver(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 8))
		r := limit.Rule{Algorithm: limit.Concurrency, Amount: 1 + random.Int64N(6)}
		r.Lease = time.Duration(1 + random.Int64N(1e9))
		table, now := newTable(t, r, nil, 1+random.IntN(3)), Time(random.Int64N(1e18))
		type lease struct {
			id, k, n uint64
			end      Time
			shared   bool
		}
		var open []lease
		for range 400 {
			now += Time(random.Int64N(int64(r.Lease)))
			keep := open[:0]
			for _, o := range open {
				if o.end > now {
					keep = append(keep, o)
				}
			}
			open = keep
			k := uint64(random.IntN(5))
			if random.IntN(3) == 0 && len(open) > 0 {
				i := random.IntN(len(open))
				if err := table.Settle(now, open[i].k, open[i].id, random.Int64N(9)); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				open = append(open[:i], open[i+1:]...)
				continue
			}
			n := uint64(1 + random.IntN(2))
			d, _ := table.Take(now, k, string('a'+rune(k)), int64(n))
			sum := uint64(0)
			for _, o := range open {
				if o.shared == d.Shared && (d.Shared || o.k == k) {
					sum += o.n
				}
			}
			if d.Allowed != (sum+n <= uint64(r.Amount)) {
				t.Fatalf("seed %d: %+v with %d under way", seed, d, sum)
			}
			if d.Allowed {
				open = append(open, lease{d.ID, k, n, now + Time(r.Lease), d.Shared})
			}
		}
	}
}
