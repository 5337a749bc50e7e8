package exclude

import (
	"net/netip"
	"sync"
)

// Flights counts requests in flight that no stay accounts for: in all, and of each address. The
// zero value is ready, for many goroutines at once.
type Flights struct {
	mu sync.Mutex
	n  int
	of map[netip.Addr]int
}

// Enter counts a request of the address, or reports that there are most of them already, or most
// of that address. Leave must follow if it was counted.
func (f *Flights) Enter(from netip.Addr, most, perAddress int) bool {
	from = Subscriber(from)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n >= most || f.of[from] >= perAddress {
		return false
	}
	if f.of == nil {
		f.of = map[netip.Addr]int{}
	}
	f.n++
	f.of[from]++
	return true
}

// Leave takes a request of the address off the count.
func (f *Flights) Leave(from netip.Addr) {
	from = Subscriber(from)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n--
	if f.of[from]--; f.of[from] <= 0 {
		delete(f.of, from)
	}
}

// Subscriber is what one subscriber has: an IPv4 address, or the first 64 bits of an IPv6 address.
func Subscriber(a netip.Addr) netip.Addr {
	if a = a.Unmap().WithZone(""); a.Is6() {
		p, _ := a.Prefix(64) // 64 bits are no error
		return p.Addr()
	}
	return a
}
