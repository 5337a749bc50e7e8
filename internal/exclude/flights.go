package exclude

import (
	"net/netip"
	"sync"
)

// Flights counts the requests in flight that belong to no session: in total, and for each address.
// The zero value is ready, and many goroutines may use it at once.
type Flights struct {
	mu sync.Mutex
	n  int
	of map[netip.Addr]int
}

// Enter counts a request of the address and returns true. It returns false, without counting, if
// most requests are in flight already, or perAddress of this address. Leave must follow if it was
// counted.
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

// Leave subtracts a request of the address from the count.
func (f *Flights) Leave(from netip.Addr) {
	from = Subscriber(from)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n--
	if f.of[from]--; f.of[from] <= 0 {
		delete(f.of, from)
	}
}

// Subscriber returns the part of an address that identifies one subscriber: an IPv4 address, or the
// first 64 bits of an IPv6 address.
func Subscriber(a netip.Addr) netip.Addr {
	if a = a.Unmap().WithZone(""); a.Is6() {
		p, _ := a.Prefix(64) // 64 bits cause no error
		return p.Addr()
	}
	return a
}
