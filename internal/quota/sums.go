package quota

import "github.com/headgate/headgate/limit"

// SumCosts adds up the costs of n requests for each object. first[i] is the index of the first
// request with the same object as request i, and sums at that index is the total cost. The totals
// are limited to one more than the maximum amount, and to minus the maximum amount.
func SumCosts[O comparable](n int, of func(i int) (object O, cost int64)) (first []int, sums []int64) {
	const bound = 1 << 62 // half of the maximum int64: the sum of two still fits
	first, sums = make([]int, n), make([]int64, n)
	begun := make(map[O]int, n)
	for i := range n {
		object, cost := of(i)
		j, twice := begun[object]
		if !twice {
			begun[object], j = i, i
		}
		first[i] = j
		sums[j] = max(-bound, min(sums[j]+cost, bound))
	}
	for i, sum := range sums {
		sums[i] = max(-limit.MaxAmount, min(sum, limit.MaxAmount+1))
	}
	return first, sums
}
