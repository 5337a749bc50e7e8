package network

import (
	"cmp"
	"maps"
	"slices"
)

// inOrderLocked returns the connections in the order in which they were made.
func (n *Network) inOrderLocked() []*Conn {
	return slices.SortedFunc(maps.Keys(n.conns), func(a, b *Conn) int {
		return cmp.Compare(a.number, b.number)
	})
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
	for _, c := range n.inOrderLocked() {
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
	for _, c := range n.inOrderLocked() {
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

func (n *Network) changedLocked() {
	close(n.healed)
	n.healed = make(chan struct{})
	for _, c := range n.inOrderLocked() {
		c.in.wake()
	}
}
