package quota

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/limit"
)

// Checks SumCosts with numbers of any size.
func TestSums(t *testing.T) {
	costs := []int64{0, 1, -1, 3, -3, limit.MaxAmount, -limit.MaxAmount, limit.MaxAmount - 1}
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 0))
		n := random.IntN(12)
		objects, asked := make([]int, n), make([]int64, n)
		want := map[int]*big.Int{}
		begins := map[int]int{}
		for i := range n {
			objects[i], asked[i] = random.IntN(3), costs[random.IntN(len(costs))]
			if want[objects[i]] == nil {
				want[objects[i]], begins[objects[i]] = new(big.Int), i
			}
			want[objects[i]].Add(want[objects[i]], big.NewInt(asked[i]))
		}
		first, sums := SumCosts(n, func(i int) (int, int64) { return objects[i], asked[i] })
		for i, o := range objects {
			if first[i] != begins[o] {
				t.Fatalf("seed %d: the first of %d is %d", seed, i, first[i])
			}
			sum := want[o]
			if most := big.NewInt(limit.MaxAmount + 1); sum.Cmp(most) > 0 {
				sum = most
			} else if least := big.NewInt(-limit.MaxAmount); sum.Cmp(least) < 0 {
				sum = least
			}
			if first[i] == i && sums[i] != sum.Int64() || first[i] != i && sums[i] != 0 {
				t.Fatalf("seed %d: %d of %v %v, want %v", seed, sums[i], objects, asked, sum)
			}
		}
	}
	many, sums := SumCosts(10_000, func(int) (string, int64) { return "k", limit.MaxAmount })
	if len(many) != 10_000 || sums[0] != limit.MaxAmount+1 {
		t.Errorf("%d", sums[0])
	}
}
