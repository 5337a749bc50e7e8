package quota

import "github.com/headgate/headgate/limit"

// Sums adds up what n asks cost, by their objects. first says which ask is the first of the same
// object, and sums, at the first, what all of it cost: more than any limit is one more than that,
// less than all that may be given back is that.
func SumCosts[O comparable](n int, of func(i int) (object O, cost int64)) (first []int, sums []int64) {
	const bound = 1 << 62 // half of what an int64 holds: two of them still fit
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
