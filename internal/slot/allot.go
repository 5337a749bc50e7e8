package slot

// An Allotment is the rule for how many slots a borrower may hold before it needs them.
type Allotment uint8

// The allotments. All are settings of the same pool. No slot is ever lent twice.
const (
	// Demand lends what is wanted, at most ⌈free ÷ (2 × borrowers)⌉. At low use each borrower
	// decides locally. Near the limit the pool acts as an exact counter, and no borrower holds more
	// than half of what is left. Demand is the default.
	Demand Allotment = iota
	// Even lends free ÷ borrowers.
	Even
	// Counter lends nothing ahead: the borrower sends a request for every newcomer.
	Counter
)

// grant returns how many of the free slots one of n borrowers gets, given the slots that it needs
// and wants.
func (a Allotment) grant(free, need, want, n int64) int64 {
	need, n = min(need, free), max(1, n)
	switch a {
	case Even:
		return min(free, max(need, min(need+want, free/n)))
	case Counter:
		return need
	}
	return min(free, max(need, min(need+want, (free+2*n-1)/(2*n))))
}

// Split divides free slots among data centers in proportion to their traffic of the last minutes.
// Each part is rounded down. The rest, which no data center has earned, stays with Anywhere. total
// is the traffic that the parts are measured against and is at least the sum of traffic
// (Cloudflare, "How Waiting Room makes queueing decisions": 15 and 22 of 150, Anywhere 113).
func Split(free, total int64, traffic []int64) (parts []int64, anywhere int64) {
	parts, anywhere = make([]int64, len(traffic)), max(0, free)
	if free <= 0 || total <= 0 {
		return parts, anywhere
	}
	var sum int64
	for _, t := range traffic {
		sum += max(0, t)
	}
	total = max(total, sum)
	for i, t := range traffic {
		parts[i] = mulDiv(free, max(0, t), total)
		anywhere -= parts[i]
	}
	return parts, anywhere
}
