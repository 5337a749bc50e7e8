package slot

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestUnprovenAgainstAList compares Unproven with a list of all uses.
func TestUnprovenAgainstAList(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		l := Limit{Kind: PerWindow, N: rng.Int64N(60), Per: time.Minute}
		most := int((l.N + 9) / 10)
		bucket := l.Per / 400
		var u Unproven
		var uses, ends []Time
		within := func(now Time, window time.Duration) (n int) {
			for _, use := range uses {
				if now.Sub(use) < window {
					n++
				}
			}
			return n
		}
		now := Time(0)
		for range 300 {
			now = now.Add(time.Duration(rng.Int64N(int64(8 * time.Second))))
			if k := len(uses); k > 0 && rng.IntN(4) == 0 && ends[k-1] > now { // the use did not happen
				u.Return(ends[k-1])
				uses, ends = uses[:k-1], ends[:k-1]
			}
			end, ok := u.Take(l, now)
			switch {
			case ok && within(now, l.Per) >= most:
				t.Fatalf("seed %d: more than %d of %d in a window", seed, most, l.N)
			case !ok && within(now, l.Per+bucket) < most:
				t.Fatalf("seed %d: refused with fewer than %d of %d in a window", seed, most, l.N)
			case ok:
				uses, ends = append(uses, now), append(ends, end)
			}
		}
	}
}
