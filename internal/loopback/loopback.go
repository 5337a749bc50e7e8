// Package loopback provides ports of 127.0.0.1 for processes that are about to start. A port
// requested from the system ("127.0.0.1:0") and closed again may be taken a moment later: by the
// next such request, or by an outgoing connection, which can even connect to itself there. The
// ports of this package lie below those that systems use for connections. Each is handed out once,
// and no two processes get the same.
package loopback

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The blocks of ports lie between these two. Linux uses ports from 32,768 for connections, other
// systems from 49,152.
const (
	lowest  = 12_000
	highest = 32_000
	block   = 50 // ports, the first of which is the lock
)

// A blocks holds the blocks of one process.
type blocks struct {
	mu         sync.Mutex
	next, last int            // rest of the newest block
	locks      []net.Listener // held until the process ends
}

var own = &blocks{} //nolint:gochecknoglobals // ports belong to the process, not to a part of it

// Ports returns the first of n consecutive ports without a listener. n must be less than 50. Ports
// fails when the machine has no more of them.
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

// free reports whether nobody listens on these n ports. next is the port after them, or after the
// first one in use.
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

// Address returns the address of a port.
func Address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// A Test is the common part of *testing.T and *testing.B that is used here.
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

// Free returns an address without a listener.
func Free(t Test) string {
	t.Helper()
	return Address(Port(t, 1))
}
