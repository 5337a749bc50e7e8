package slot

// Allotment is how much a borrower may hold ahead of need.
type Allotment uint8

// The allotments. All are settings of the same conserving pool: no slot is
// ever lent twice.
const (
	// Demand lends what is wanted, at most ⌈free ÷ (2 × borrowers)⌉: at low use
	// everyone decides locally, near the limit it becomes the exact counter,
	// and nobody sits on more than half of what is left. The default.
	Demand Allotment = iota
	// Even lends free ÷ borrowers.
	Even
	// Counter lends nothing ahead: every newcomer is asked about.
	Counter
)

// grant is how many of free slots go to a borrower that needs and wants some,
// being one of n borrowers.
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

// Split divides free slots among data centres by their traffic of the last
// minutes, each part rounded down; what no data centre earned stays with
// Anywhere. total is all traffic that the parts are measured against, at least
// the sum (Cloudflare, "How Waiting Room makes queueing decisions": 15 and 22
// of 150, Anywhere 113).
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
