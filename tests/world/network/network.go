// Package network is a network in memory that a test owns. It has hosts, listeners and connections.
// Bytes take time, wait while a link is cut, and are lost when a process is killed.
//
// # The promise
//
// The bytes of one connection arrive in order, each after the delay of its link. Bytes of different
// connections may overtake each other. All waiting uses channels and timers, so that a network
// works in a bubble of testing/synctest.
//
// # Concurrency
//
// All methods may be called by many goroutines at once. A write never blocks: unread data is kept
// in memory. No method starts a goroutine.
//
// # What it does not do
//
// It has only loopback addresses and no names: each port belongs to one host of the network, which
// the listener names.
package network

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// firstPort and lastPort limit the ports of outgoing connections, as on Linux. A port is reused
// only when its connection has ended.
const firstPort, lastPort = 32768, 60999

// A Network connects hosts. Make one with New.
type Network struct {
	mu        sync.Mutex
	rng       *rand.Rand
	delay     [2]time.Duration
	listeners map[int]*Listener
	conns     map[*Conn]bool
	held      map[link]bool // bytes wait
	refused   map[link]bool // connections are closed, new ones refused
	frozen    map[string]bool
	dead      map[string]bool
	healed    chan struct{} // closed and replaced at each change
	port      int           // the last port used
	ports     map[int]*Conn // ports of outgoing connections
}

// machine returns the machine of a host: n1#2 is the second process of n1. Links are cut between
// machines, but processes are killed.
func machine(host string) string {
	name, _, _ := strings.Cut(host, "#")
	return name
}

// A link is one direction between two hosts.
type link struct{ from, to string }

// New returns a network whose random choices come from the seed. Bytes take between least and most
// from one host to another, and no time within a host.
func New(seed uint64, least, most time.Duration) *Network {
	return &Network{
		rng: rand.New(rand.NewPCG(seed, 1)), delay: [2]time.Duration{least, most},
		listeners: map[int]*Listener{}, conns: map[*Conn]bool{}, held: map[link]bool{},
		refused: map[link]bool{}, frozen: map[string]bool{}, dead: map[string]bool{},
		healed: make(chan struct{}), port: lastPort, ports: map[int]*Conn{},
	}
}

func (n *Network) changedLocked() {
	close(n.healed)
	n.healed = make(chan struct{})
	for c := range n.conns {
		c.in.wake()
	}
}

func (n *Network) drawLocked(from, to string) time.Duration {
	if machine(from) == machine(to) {
		return 0
	}
	return n.delay[0] + time.Duration(n.rng.Int64N(int64(n.delay[1]-n.delay[0])+1))
}

func (n *Network) heldLocked(from, to string) bool {
	from, to = machine(from), machine(to)
	return from != to && (n.held[link{from, to}] || n.frozen[from] || n.frozen[to])
}

// holds reports whether bytes from one host to another are held now.
func (n *Network) holds(from, to string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.heldLocked(from, to)
}

// Hold holds all bytes from one host to another until Heal: the link is silent in one direction.
func (n *Network) Hold(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held[link{from, to}] = true
}

// Cut closes all connections between two hosts and rejects new ones until Heal.
func (n *Network) Cut(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused[link{a, b}], n.refused[link{b, a}] = true, true
	for c := range n.conns {
		from, to := machine(c.host), machine(c.peer)
		if from == a && to == b || from == b && to == a {
			c.resetLocked()
		}
	}
	n.changedLocked()
}

// Heal ends Hold and Cut between two hosts, in both directions. Held bytes arrive.
func (n *Network) Heal(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range []link{{a, b}, {b, a}} {
		delete(n.held, l)
		delete(n.refused, l)
	}
	n.changedLocked()
}

// Freeze blocks all traffic of a host until Wake.
func (n *Network) Freeze(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.frozen[host] = true
}

// Wake ends Freeze. Held bytes arrive.
func (n *Network) Wake(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.frozen, host)
	n.changedLocked()
}

// Kill ends the process of a host. Its connections break, and nothing that it does later has an
// effect outside. The next process of the machine has another name: n1, n1#2, n1#3.
func (n *Network) Kill(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dead[host] = true
	delete(n.frozen, machine(host))
	for c := range n.conns {
		if c.host == host || c.peer == host {
			c.resetLocked()
		}
	}
	for port, l := range n.listeners {
		if l.host == host {
			delete(n.listeners, port)
			l.shutLocked()
		}
	}
	n.changedLocked()
}

// Listen opens a loopback address for a host. Port 0 selects a free port.
func (n *Network) Listen(host, addr string) (*Listener, error) {
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dead[host] {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Err: syscall.ENETDOWN}
	}
	if port == 0 {
		port = n.portLocked()
	}
	if n.listeners[port] != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Err: syscall.EADDRINUSE}
	}
	l := &Listener{network: n, host: host, addr: loopback(port), changed: make(chan struct{})}
	n.listeners[port] = l
	return l, nil
}

// portLocked returns an unused port. It panics if connections leak.
func (n *Network) portLocked() int {
	for range lastPort - firstPort + 1 {
		if n.port++; n.port > lastPort {
			n.port = firstPort
		}
		if n.listeners[n.port] == nil && !n.conns[n.ports[n.port]] {
			return n.port
		}
	}
	panic("network: no port is free: connections are not closed")
}

func loopback(port int) *net.TCPAddr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}
}

// Dial connects a host to an address. While the link is silent it waits for ctx.
func (n *Network) Dial(ctx context.Context, host, addr string) (net.Conn, error) {
	_, text, _ := net.SplitHostPort(addr)
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("dial %s: no address of this network", addr)
	}
	for {
		c, wait, err := n.try(host, port)
		if c != nil || err != nil {
			return c, err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: loopback(port), Err: ctx.Err()}
		}
	}
}

// try connects, or returns what to wait for.
func (n *Network) try(host string, port int) (net.Conn, <-chan struct{}, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.listeners[port]
	refuse := &net.OpError{Op: "dial", Net: "tcp", Addr: loopback(port), Err: syscall.ECONNREFUSED}
	switch {
	case n.dead[host]:
		return nil, nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ENETDOWN}
	case l == nil || n.refused[link{machine(host), machine(l.host)}]:
		return nil, nil, refuse
	case n.heldLocked(host, l.host) || n.heldLocked(l.host, host):
		return nil, n.healed, nil
	}
	near, far := n.pairLocked(host, l.host, port)
	l.offerLocked(far)
	return near, nil, nil
}

// Pipe makes a connection between two hosts, without a listener. What is said in the instant in
// which it is made takes no time: nats.go holds a lock while it connects, and in a bubble no time
// passes while another goroutine waits for that.
func (n *Network) Pipe(a, b string) (near, far net.Conn, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	cut := n.refused[link{machine(a), machine(b)}] || n.heldLocked(a, b) || n.heldLocked(b, a)
	if n.dead[a] || n.dead[b] || cut {
		return nil, nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	x, y := n.pairLocked(a, b, 0)
	x.opened, y.opened = time.Now(), time.Now()
	return x, y, nil
}

func (n *Network) pairLocked(a, b string, port int) (near, far *Conn) {
	to, back := newHalf(), newHalf()
	from := loopback(n.portLocked())
	at := loopback(port)
	near = &Conn{network: n, host: a, peer: b, local: from, remote: at, in: back, out: to}
	far = &Conn{network: n, host: b, peer: a, local: at, remote: from, in: to, out: back}
	near.other, far.other = far, near
	n.conns[near], n.conns[far] = true, true
	n.ports[from.Port] = near
	return near, far
}

// A Listener accepts the connections of one address.
type Listener struct {
	network *Network
	host    string
	addr    *net.TCPAddr

	waiting []*Conn // guarded by the network's mutex, as what follows
	shut    bool
	changed chan struct{}
}

func (l *Listener) offerLocked(c *Conn) {
	l.waiting = append(l.waiting, c)
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Listener) shutLocked() {
	if l.shut {
		return
	}
	l.shut = true
	for _, c := range l.waiting {
		c.resetLocked()
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		l.network.mu.Lock()
		if l.shut {
			l.network.mu.Unlock()
			return nil, net.ErrClosed
		}
		if len(l.waiting) > 0 {
			c := l.waiting[0]
			l.waiting = l.waiting[1:]
			l.network.mu.Unlock()
			return c, nil
		}
		changed := l.changed
		l.network.mu.Unlock()
		<-changed
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	if l.network.listeners[l.addr.Port] == l {
		delete(l.network.listeners, l.addr.Port)
	}
	l.shutLocked()
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.addr }
