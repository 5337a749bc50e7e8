package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// A wire is the connection between two data centers: a proxy on loopback that delays all bytes as a
// real distance would, and keeps them complete and in order. It can be cut. Then nothing arrives
// and neither end gets an error, as with a broken cable. What was under way arrives after the
// repair, if somebody still listens. A wire may be used by many goroutines at once.
type wire struct {
	ends  [2]string // the data centers; the first one dials
	delay time.Duration
	to    string
	ln    net.Listener
	stop  context.CancelFunc
	wg    sync.WaitGroup
	ended error // of accept; read when wg is done

	mu    sync.Mutex
	cut   bool
	whole chan struct{} // closed while the wire works
}

// These constants limit how much a wire carries at once. Chosen: the links carry a few kilobytes a
// second.
const (
	wireChunk  = 32 << 10
	wireChunks = 256 // under way in one direction; then the sender waits
)

// openWire listens on a free loopback port and forwards its connections to an address.
func openWire(ends [2]string, to string, delay time.Duration) (*wire, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open the way from %s to %s: %w", ends[0], ends[1], err)
	}
	w := &wire{ends: ends, delay: delay, to: to, ln: ln, whole: make(chan struct{})}
	close(w.whole)
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	w.wg.Go(func() { w.ended = w.accept(ctx) })
	return w, nil
}

// close ends all connections and waits for them. It may be called again.
func (w *wire) close() error {
	err := w.ln.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	w.stop()
	w.wg.Wait()
	return errors.Join(err, w.ended)
}

// setCut cuts the wire, or mends it.
func (w *wire) setCut(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case cut && !w.cut:
		w.whole = make(chan struct{})
	case !cut && w.cut:
		close(w.whole)
	}
	w.cut = cut
}

// joins reports whether the wire ends at this data center.
func (w *wire) joins(name string) bool { return slices.Contains(w.ends[:], name) }

// other returns the data center at the other end.
func (w *wire) other(name string) string {
	if w.ends[0] == name {
		return w.ends[1]
	}
	return w.ends[0]
}

func (w *wire) accept(ctx context.Context) error {
	for {
		c, err := w.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		w.wg.Go(func() { w.carry(ctx, c) })
	}
}

// carry forwards a connection to the other end until either side closes.
func (w *wire) carry(ctx context.Context, near net.Conn) {
	defer near.Close()
	d := &net.Dialer{Timeout: dialWithin}
	far, err := d.DialContext(ctx, "tcp", w.to)
	if err != nil {
		return // the dialing node notices and retries
	}
	defer far.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	free := context.AfterFunc(ctx, func() { near.Close(); far.Close() }) // unblocks both readers
	defer free()
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		chunks := make(chan chunk, wireChunks)
		wg.Go(func() { w.take(ctx, way[0], chunks) })
		wg.Go(func() { w.bring(ctx, way[1], chunks); stop() })
	}
	wg.Wait()
}

// dialWithin is the dial timeout. Chosen: the other end is on this machine.
const dialWithin = time.Second

// A chunk is a piece of data under way.
type chunk struct {
	due  time.Time
	text []byte
}

// take reads data and sets the time at which it is due.
func (w *wire) take(ctx context.Context, from io.Reader, chunks chan<- chunk) {
	defer close(chunks)
	buf := make([]byte, wireChunk)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			select {
			case chunks <- chunk{time.Now().Add(w.delay), slices.Clone(buf[:n])}:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// bring writes data when it is due.
func (w *wire) bring(ctx context.Context, to io.Writer, chunks <-chan chunk) {
	for c := range chunks {
		if !rest(ctx, time.Until(c.due)) {
			return
		}
		w.mu.Lock()
		whole := w.whole
		w.mu.Unlock()
		select {
		case <-whole:
		case <-ctx.Done():
			return
		}
		if _, err := to.Write(c.text); err != nil {
			return
		}
	}
}
