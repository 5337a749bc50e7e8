package figure

import (
	"math/rand/v2"
	"time"
)

// A service accepts perSecond units in each second and rejects the rest. Each record costs the
// same.
type service struct {
	perSecond, cost int64
	left            int64 // units left in the second before fresh
	fresh           int64 // the first second with no units used
}

// send offers n records and returns how many were accepted.
func (s *service) send(at time.Duration, n int64) int64 {
	if second := int64(at / time.Second); second >= s.fresh {
		s.fresh, s.left = second+1, s.perSecond
	}
	taken := min(n, s.left/s.cost)
	s.left -= taken * s.cost
	return taken
}

// slice is how often a paced process releases: the document's 200 ms.
const slice = 200 * time.Millisecond

// due returns how many of rate operations a second are released at the start of a slice: whole
// numbers that add up to rate in every second.
func due(rate int64, at time.Duration) int64 {
	in := int64(at % time.Second)
	return rate*(in+int64(slice))/int64(time.Second) - rate*in/int64(time.Second)
}

// A partitions shares a service's capacity among processes that do not know each other, by
// exclusive leases as of a distributed mutex.
type partitions struct {
	each   int64 // operations a second
	term   time.Duration
	leases []lease
}

type lease struct {
	holder string
	until  time.Duration
}

func newPartitions(n int, each int64, term time.Duration) *partitions {
	return &partitions{each, term, make([]lease, n)}
}

// lease tries to get one partition for a term.
func (p *partitions) lease(who string, i int, at time.Duration) bool {
	if l := &p.leases[i]; at >= l.until {
		*l = lease{who, at + p.term}
		return true
	}
	return false
}

// ask tries random partitions until it has n of them or has tried all that it did not hold. It
// returns how many it got and how many it tried.
func (p *partitions) ask(who string, n int, at time.Duration, r *rand.Rand) (got, tried int) {
	for _, i := range r.Perm(len(p.leases)) {
		if got == n {
			break
		}
		if !p.holds(who, i, at) {
			tried++
			if p.lease(who, i, at) {
				got++
			}
		}
	}
	return got, tried
}

func (p *partitions) holds(who string, i int, at time.Duration) bool {
	return p.leases[i].holder == who && at < p.leases[i].until
}

// rate returns what a holder may send a second. The holder itself watches when its leases expire.
func (p *partitions) rate(who string, at time.Duration) int64 {
	var sum int64
	for i := range p.leases {
		if p.holds(who, i, at) {
			sum += p.each
		}
	}
	return sum
}

// ended counts the leases of a holder that expire exactly now.
func (p *partitions) ended(who string, at time.Duration) int {
	n := 0
	for _, l := range p.leases {
		if l == (lease{who, at}) {
			n++
		}
	}
	return n
}

// release returns all partitions of a holder before they expire.
func (p *partitions) release(who string, at time.Duration) {
	for i := range p.leases {
		if p.holds(who, i, at) {
			p.leases[i] = lease{}
		}
	}
}

// free counts the partitions that nobody holds.
func (p *partitions) free(at time.Duration) int {
	n := 0
	for _, l := range p.leases {
		if at >= l.until {
			n++
		}
	}
	return n
}
