//go:build cluster

package cluster

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/loopback"
)

// far makes a port that leads from one data center to another's own port: all that
// goes through it, either way, is late.
func (l *links) far(from, to string, delay time.Duration, port, own int) {
	l.t.Helper()
	l.mu.Lock()
	l.real[own] = to
	l.mu.Unlock()
	l.lead(port, own, func(net.Conn) link { return link{from: from, to: to, delay: delay} })
}

// part cuts two data centers off from each other.
func (l *links) part(p pair, how cutHow) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.apart[p] = how
	n := 0
	for k := range l.open {
		if between(k.from, k.to) == p {
			n++
			if how == closed {
				k.shut()
			}
		}
	}
	if n == 0 {
		l.t.Errorf("%v have no link to cut", p)
	}
}

// join lets two data centers reach each other again.
func (l *links) join(p pair) {
	l.mu.Lock()
	delete(l.apart, p)
	l.wake.Broadcast()
	l.mu.Unlock()
}

// A chunk is what was read at once.
type chunk struct {
	bytes []byte
	due   time.Time
}

// onTheWay is how many chunks may be under way in one direction. Chosen: far more than
// these rooms send in the time of any delay.
const onTheWay = 4096

// late copies as copy does, each chunk after the link's delay. That an end has closed
// is told as late, and not at all while the link is silenced.
func (l *links) late(k *link, to io.Writer, from io.Reader) {
	defer k.shut()
	way := make(chan chunk, onTheWay)
	l.wg.Go(func() {
		defer close(way)
		for {
			buf := make([]byte, 16<<10)
			n, err := from.Read(buf)
			way <- chunk{buf[:n], time.Now().Add(k.delay)}
			if err != nil {
				return
			}
		}
	})
	ok := true
	for c := range way {
		timer := time.NewTimer(time.Until(c.due))
		<-timer.C
		if ok = ok && l.pass(k); !ok {
			continue // the reader must end
		}
		if len(c.bytes) == 0 {
			ok = false
		} else if _, err := to.Write(c.bytes); err != nil {
			ok = false
		}
		if !ok {
			k.shut()
		}
	}
}

// TestLateLinks: what goes between data centers is late by the delay, keeps its order,
// and can be cut for one pair alone.
func TestLateLinks(t *testing.T) {
	const delay = 40 * time.Millisecond
	l := newLinks(t, func() map[int]string { return nil })
	dial := map[string]int{}
	for _, name := range []string{"lhr", "del"} {
		own, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer own.Close()
		go echo(own)
		dial[name] = loopback.Port(t, 1)
		l.far("sjc", name, delay, dial[name], own.Addr().(*net.TCPAddr).Port)
	}
	open := func(name string) net.Conn {
		c, err := net.Dial("tcp", loopback.Address(dial[name]))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	want := func(what string, c net.Conn, alive bool) {
		t.Helper()
		c.SetDeadline(time.Now().Add(10 * delay))
		began := time.Now()
		_, err := c.Write([]byte("abc"))
		got := make([]byte, 3)
		if err == nil {
			_, err = io.ReadFull(c, got)
		}
		switch took := time.Since(began); {
		case (err == nil) != alive:
			t.Errorf("%s: %v", what, err)
		case alive && (took < 2*delay || string(got) != "abc"):
			t.Errorf("%s: %q after %v, want abc after %v", what, got, took, 2*delay)
		}
	}
	lhr, del := open("lhr"), open("del")
	want("lhr", lhr, true)
	want("del", del, true)
	l.part(between("sjc", "lhr"), silenced)
	want("lhr is silent", lhr, false)
	want("del is not", del, true)
	l.join(between("lhr", "sjc"))
	lhr.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.ReadFull(lhr, make([]byte, 3)); err != nil {
		t.Errorf("what was sent in silence does not arrive afterwards: %v", err)
	}
	l.part(between("sjc", "del"), closed)
	want("del is cut", del, false)
	want("lhr is not", lhr, true)
}
