//go:build real

package embedded

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/loopback"
)

// A wire is a network path to an address that can be cut, or become silent: it then holds all data
// in transit.
type wire struct {
	t        *testing.T
	addr, to string

	mu    sync.Mutex
	flows *sync.Cond
	still bool
	shut  bool
	ln    net.Listener
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	w := &wire{t: t, addr: loopback.Free(t), to: to, conns: map[net.Conn]bool{}}
	w.flows = sync.NewCond(&w.mu)
	w.open()
	t.Cleanup(func() {
		w.cut()
		w.silence(false)
		w.wg.Wait()
	})
	return w
}

func (w *wire) open() {
	w.t.Helper()
	ln, err := net.Listen("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	w.ln, w.shut = ln, false
	w.mu.Unlock()
	w.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			w.wg.Go(func() { w.carry(c) })
		}
	})
}

// carry connects an incoming connection with the other end.
func (w *wire) carry(c net.Conn) {
	defer c.Close()
	there, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer there.Close()
	w.mu.Lock()
	if w.shut {
		w.mu.Unlock()
		return
	}
	w.conns[c], w.conns[there] = true, true
	w.mu.Unlock()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{c, there}, {there, c}} {
		both.Go(func() {
			_, _ = io.Copy(way[1], held{w, way[0]})
			c.Close()
			there.Close()
		})
	}
	both.Wait()
	w.mu.Lock()
	delete(w.conns, c)
	delete(w.conns, there)
	w.mu.Unlock()
}

// A held is an end from which nothing arrives while the wire is silent.
type held struct {
	w *wire
	net.Conn
}

func (h held) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	for h.w.still {
		h.w.flows.Wait()
	}
	return n, err
}

func (w *wire) silence(still bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.still = still
	w.flows.Broadcast()
}

// cut closes all connections and accepts no more.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shut = true
	w.ln.Close()
	for c := range w.conns {
		c.Close()
	}
}

func (w *wire) heal() {
	w.t.Helper()
	w.silence(false)
	w.mu.Lock()
	shut := w.shut
	w.mu.Unlock()
	if shut {
		w.open()
	}
}
