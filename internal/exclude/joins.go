package exclude

import (
	"net/netip"
	"sync"
	"time"
)

// JoinLimit bounds how many tickets one address prefix may draw. Off by default:
// a whole office or a mobile network may share one address.
type JoinLimit struct {
	Amount   int           // 0 is off
	Window   time.Duration // 1 m
	PrefixV4 int           // 24
	PrefixV6 int           // 56
}

// maxPrefixes bounds the limiter's memory; beyond it the oldest window is
// forgotten whole, so a flood of addresses cannot fill memory. Chosen: ~10 MB.
const maxPrefixes = 100_000

// A Joins counts joins in windows from the first join of each.
type Joins struct {
	// Limit is what it was made of, defaults filled in.
	Limit JoinLimit

	mu    sync.Mutex
	since time.Duration
	seen  map[netip.Prefix]int
}

// NewJoins counts from nothing.
func NewJoins(c JoinLimit) *Joins {
	if c.Window == 0 {
		c.Window = time.Minute
	}
	if c.PrefixV4 == 0 {
		c.PrefixV4 = 24
	}
	if c.PrefixV6 == 0 {
		c.PrefixV6 = 56
	}
	return &Joins{Limit: c}
}

// Allow notes a join and reports whether it is within the limit.
func (j *Joins) Allow(a netip.Addr, clk time.Duration) bool {
	if j.Limit.Amount <= 0 || !a.IsValid() {
		return true
	}
	bits := j.Limit.PrefixV4
	if a = a.Unmap(); a.Is6() {
		bits = j.Limit.PrefixV6
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return true
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.seen == nil || clk-j.since >= j.Limit.Window || len(j.seen) >= maxPrefixes {
		j.seen, j.since = map[netip.Prefix]int{}, clk
	}
	if j.seen[p] >= j.Limit.Amount {
		return false
	}
	j.seen[p]++
	return true
}
