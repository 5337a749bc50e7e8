package unary

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// Limits of a server. All are chosen.
const (
	maxMessage  = 1 << 20 // bytes; a call of Envoy has a few hundred
	maxHeaders  = 16 << 10
	maxBlock    = 64 << 10 // bytes of a frame with its CONTINUATION frames, which may be empty
	maxStreams  = 1024     // open calls per connection: what Envoy opens before it knows this number
	maxReceive  = 4 << 20  // bytes of unanswered calls per connection
	maxUnsent   = 4 << 20  // bytes of answers that wait for the peer's windows
	maxDelayed  = 4 << 10  // bytes of answers that wait for those of other calls
	keptWorkers = 16       // idle workers kept per connection
	keptMemory  = 64 << 10 // bytes of a buffer kept for reuse
	keptMessage = 4 << 10  // bytes of a call kept for reuse
	keptStreams = 32       // streams kept for reuse

	patience   = 10 * time.Second // for a handshake, a partial frame or call, an unread answer
	pingIdle   = 2 * time.Minute  // then a ping checks that the client is there
	pingAnswer = 20 * time.Second // time for the answer to a ping
	drain      = 5 * time.Second  // Envoy waits 20 ms for an answer by default
	linger     = time.Second      // time for the peer to read why its connection ends
)

// Limits of all connections together. If incomplete calls and answers hold more than maxHeld bytes,
// connections that hold more than freeHeld are closed. If more than maxBusy calls are at workers, a
// connection that has more than freeBusy of them gets no more. Chosen: memory that a small machine
// has, and far more than Envoy needs on one connection.
const (
	maxHeld  = 256 << 20
	freeHeld = 64 << 10
	maxBusy  = 20_000
	freeBusy = 10
)

// Limits for frames that carry no call: pings, settings, resets, window updates, priorities, empty
// data and data of streams that are closed. Chosen: a gRPC client sends at most three with each call.
const (
	tolerated    = 1000
	tolerateCall = 4                     // added with each call
	tolerateEach = 30 * time.Millisecond // one is added in this time
	// cost of a ping if no call was answered since the last one: one in 9 s
	idlePing  = 300
	smallData = 128 // bytes; a smaller data frame counts as empty
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
