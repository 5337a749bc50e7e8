//go:build cluster

package cluster

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/loopback"
)

// TestLinksAreCut: the proxies know whose link is whose, and cut all of one node's:
// else the scenarios that cut links prove nothing.
func TestLinksAreCut(t *testing.T) {
	l := newLinks(t, func() map[int]string { return map[int]string{os.Getpid(): "n1"} })
	ways := map[string]int{"n2": loopback.Port(t, 1), "n3": loopback.Port(t, 1)}
	for name, port := range ways {
		own, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer own.Close()
		go echo(own)
		l.way(name, port, own.Addr().(*net.TCPAddr).Port)
	}
	dial := func(name string) net.Conn {
		c, err := net.Dial("tcp", loopback.Address(ways[name]))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	two, three := dial("n2"), dial("n3")
	want := func(what string, c net.Conn, alive bool) {
		t.Helper()
		c.SetDeadline(time.Now().Add(300 * time.Millisecond))
		_, err := c.Write([]byte("x"))
		if err == nil {
			_, err = io.ReadFull(c, make([]byte, 1))
		}
		if (err == nil) != alive {
			t.Errorf("%s: %v", what, err)
		}
	}
	want("whole", two, true)
	want("whole", three, true)
	l.sever("n2", closed)
	want("the link to n2 is cut", two, false)
	want("a new one is, too", dial("n2"), false)
	want("that of the others is not", three, true)
	l.heal()
	want("healed", dial("n2"), true)
	l.sever("n1", silenced)
	want("the link from n1 is silent", three, false)
	l.heal()
	three.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.ReadFull(three, make([]byte, 1)); err != nil {
		t.Errorf("what was sent in silence does not arrive afterwards: %v", err)
	}
	before := len(l.bypassed()) // this process is node and proxy at once
	for own, name := range l.real {
		c, err := net.Dial("tcp", loopback.Address(own))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if past := l.bypassed(); len(past) != before+1 {
			t.Errorf("a connection to %s past the harness is not seen: %v", name, past)
		}
		break
	}
}

// echo sends back what it reads.
func echo(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			io.Copy(c, c)
		}()
	}
}
