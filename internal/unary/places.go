package unary

import (
	"net"
	"net/netip"
	"sync"

	"golang.org/x/net/http2"
)

// Limits of connections. Chosen: Envoy opens one for each of its threads, and an idle one costs 50
// KB and a file descriptor. The connections of visitors need file descriptors too.
const (
	maxConns   = 10_000
	maxNetwork = 1000 // from one IPv4 address or IPv6 /64
)

// A places counts connections, so that one client cannot take all of them.
type places struct {
	mostAll, mostNetwork int

	mu  sync.Mutex
	all int
	of  map[netip.Prefix]int
}

// take reserves a place for a connection from an address, and returns the function that releases
// it. It returns nil if there is no place.
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

// networkOf returns the network of an address. The result is not valid if the address has none.
func networkOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := 32
	if ip.Is6() {
		bits = 64 // a host controls all of it (RFC 7421 §1)
	}
	network, _ := ip.Prefix(bits)
	return network
}

// refuse tells a client why its connection is closed. It never blocks: the data fits into the send
// buffer of a new connection.
func refuse(nc net.Conn) {
	f := http2.NewFramer(nc, nil)
	if f.WriteSettings() == nil {
		f.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, []byte("too many connections"))
	}
	nc.Close()
}
