package unary

import (
	"net"
	"net/netip"
	"sync"

	"golang.org/x/net/http2"
)

// Bounds of connections. Chosen: Envoy opens one for each of its threads, and an idle one takes
// 50 KB and a file descriptor. Visitors' connections need file descriptors too.
const (
	maxConns   = 10_000
	maxNetwork = 1000 // of them from one IPv4 address or IPv6 /64
)

// places counts connections, so that one client does not take all.
type places struct {
	mostAll, mostNetwork int

	mu  sync.Mutex
	all int
	of  map[netip.Prefix]int
}

// take takes a place for a connection from an address, and returns how to give it back; nil: there
// is none.
func (p *places) take(from net.Addr) (giveBack func()) {
	network := networkOf(from)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all >= p.mostAll || network.IsValid() && p.of[network] >= p.mostNetwork {
		return nil
	}
	p.all++
	p.of[network]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.all--
		if p.of[network]--; p.of[network] == 0 {
			delete(p.of, network)
		}
	}
}

// networkOf is the network that an address belongs to; not valid: it has none.
func networkOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := 32
	if ip.Is6() {
		bits = 64 // a host has all of it (RFC 7421 §1)
	}
	network, _ := ip.Prefix(bits)
	return network
}

// refuse tells a client why it is not served. It never blocks: all of it fits into the buffer of a
// connection that has just begun.
func refuse(nc net.Conn) {
	f := http2.NewFramer(nc, nil)
	if f.WriteSettings() == nil {
		f.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, []byte("too many connections"))
	}
	nc.Close()
}
