// Package loopback hands out ports of 127.0.0.1 that a process yet to start can listen
// at. A port asked of the system ("127.0.0.1:0") and closed again may be anybody's a
// moment later: the next one who asks so, or an outgoing connection, which can even
// come to be connected to itself there. These ports lie below those that systems give
// to connections, are each handed out once, and no two processes have the same.
package loopback

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Blocks of ports lie between these two. Linux gives connections those from 32,768 on,
// others from 49,152.
const (
	lowest  = 12_000
	highest = 32_000
	block   = 50 // ports, the first of which is the lock
)

// blocks are those that one process has.
type blocks struct {
	mu         sync.Mutex
	next, last int            // what is left of the newest
	locks      []net.Listener // held until the process ends
}

var own = &blocks{} //nolint:gochecknoglobals // ports belong to the process, not to a part of it

// Ports is the first of n ports in a row where nobody listened just now. n is less
// than 50. Ports fails when the machine has no more of them.
func Ports(n int) (int, error) {
	if n < 1 || n >= block {
		return 0, fmt.Errorf("find %d free ports in a row: from 1 to %d can be had", n, block-1)
	}
	own.mu.Lock()
	defer own.mu.Unlock()
	for {
		for own.next+n <= own.last {
			first, good := own.next, false
			if own.next, good = free(first, n); good {
				return first, nil
			}
		}
		if err := own.another(); err != nil {
			return 0, fmt.Errorf("find %d free ports in a row: %w", n, err)
		}
	}
}

// free reports whether nobody listens at these n ports. next is the port after them, or
// after the first where somebody does.
func free(first, n int) (next int, good bool) {
	for port := first; port < first+n; port++ {
		l, err := net.Listen("tcp", Address(port))
		if err != nil {
			return port + 1, false
		}
		l.Close()
	}
	return first + n, true
}

// another takes a block that no process has.
func (b *blocks) another() (err error) {
	const most = (highest - lowest) / block
	at := rand.IntN(most)
	for range most {
		at = (at + 1) % most
		first := lowest + at*block
		var l net.Listener
		if l, err = net.Listen("tcp", Address(first)); err == nil {
			b.locks = append(b.locks, l)
			b.next, b.last = first+1, first+block
			return nil
		}
	}
	return err
}

// Address is the address of one port.
func Address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// A Test is what a test and a benchmark have in common here.
type Test interface {
	Helper()
	Fatal(args ...any)
}

// Port is Ports for tests.
func Port(t Test, n int) int {
	t.Helper()
	port, err := Ports(n)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// Free is an address where nobody listened just now.
func Free(t Test) string {
	t.Helper()
	return Address(Port(t, 1))
}
