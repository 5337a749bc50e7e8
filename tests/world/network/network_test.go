package network

import (
	"testing"
	"time"
)

// A network that has dialed more often than there are ports uses them again, but none that is in
// use: an address with a port above 65535 is none, and two connections of one port are one to a
// balancer.
func TestPortsAreUsedAgain(t *testing.T) {
	n := New(1, time.Millisecond, time.Millisecond)
	l, err := n.Listen("server", "127.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	open, err := n.Dial(t.Context(), "client", "127.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	for range 2*(lastPort-firstPort) + 3 {
		c, err := n.Dial(t.Context(), "client", "127.0.0.1:80")
		if err != nil {
			t.Fatal(err)
		}
		switch port := n.port; {
		case c.LocalAddr().String() == open.LocalAddr().String():
			t.Fatalf("two connections from %s", c.LocalAddr())
		case port < firstPort || port > lastPort:
			t.Fatalf("a connection from port %d", port)
		}
		c.Close()
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
