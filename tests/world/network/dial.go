package network

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"
)

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
	near.number, far.number = n.made, n.made+1
	n.made += 2
	n.conns[near], n.conns[far] = true, true
	n.ports[from.Port] = near
	return near, far
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
