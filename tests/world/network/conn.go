package network

import (
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/headgate/headgate/tests/virtual"
)

func newHalf() *half { return &half{changed: make(chan struct{})} }

// wake wakes the reader.
func (h *half) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wakeLocked()
}

func (h *half) wakeLocked() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	for {
		n, wait, until, err := c.tryRead(b)
		if n > 0 || err != nil {
			return n, err
		}
		if until.IsZero() {
			<-wait
			continue
		}
		timer := time.NewTimer(time.Until(until))
		select {
		case <-wait:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// tryRead reads what has arrived, or returns what to wait for, and how long.
func (c *Conn) tryRead(b []byte) (n int, wait <-chan struct{}, until time.Time, err error) {
	held := c.network.holds(c.peer, c.host)
	h := c.in
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	due := len(h.chunks) > 0 && !h.chunks[0].at.After(now)
	switch {
	case h.closed:
		return 0, nil, until, net.ErrClosed
	case len(b) == 0:
		return 0, nil, until, io.ErrNoProgress
	case h.broken && !held:
		return 0, nil, until, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	case due && !held:
		n = copy(b, h.chunks[0].data)
		if h.chunks[0].data = h.chunks[0].data[n:]; len(h.chunks[0].data) == 0 {
			h.chunks = h.chunks[1:]
		}
		return n, nil, until, nil
	case len(h.chunks) == 0 && h.end && !held:
		return 0, nil, until, io.EOF
	case !h.deadline.IsZero() && !now.Before(h.deadline):
		return 0, nil, until, os.ErrDeadlineExceeded
	}
	until = h.deadline
	if len(h.chunks) > 0 && !held && (until.IsZero() || h.chunks[0].at.Before(until)) {
		until = h.chunks[0].at
	}
	return 0, h.changed, until, nil
}

// Write implements net.Conn. It never blocks.
func (c *Conn) Write(b []byte) (int, error) {
	c.network.mu.Lock()
	delay := c.network.drawLocked(c.host, c.peer)
	held := c.network.heldLocked(c.host, c.peer)
	c.network.mu.Unlock()
	h := c.out
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.end:
		return 0, net.ErrClosed
	case h.broken && !held, h.deaf && !held:
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
	}
	if len(b) == 0 {
		return 0, nil
	}
	at := time.Now()
	if at.After(c.opened) { // who connects at once waits for nothing: see Pipe
		at = at.Add(delay)
	}
	if n := len(h.chunks); n > 0 && h.chunks[n-1].at.After(at) {
		at = h.chunks[n-1].at
	}
	virtual.Note(c.host+" > "+c.peer, b)
	h.chunks = append(h.chunks, chunk{slices.Clone(b), at})
	h.wakeLocked()
	return len(b), nil
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.network.mu.Lock()
	delete(c.network.conns, c)
	c.network.mu.Unlock()
	c.out.mu.Lock()
	c.out.end = true
	c.out.wakeLocked()
	c.out.mu.Unlock()
	c.in.mu.Lock()
	c.in.closed, c.in.deaf = true, true
	c.in.wakeLocked()
	c.in.mu.Unlock()
	return nil
}

// resetLocked breaks both directions. Data in flight is lost.
func (c *Conn) resetLocked() {
	for _, h := range []*half{c.in, c.out} {
		h.mu.Lock()
		h.broken, h.chunks = true, nil
		h.wakeLocked()
		h.mu.Unlock()
	}
	delete(c.network.conns, c)
	delete(c.network.conns, c.other)
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn. Writes never wait.
func (c *Conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.in.deadline = t
	c.in.wakeLocked()
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(time.Time) error { return nil }
