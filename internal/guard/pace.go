package guard

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Pace configures how slow a client may be.
type Pace struct {
	// Body is how long a request's body may keep the handler waiting beyond the time that Rate
	// allows. It is the longest possible pause. Time that a pause has used up is regained as bytes
	// arrive.
	Body time.Duration
	// Rate is the number of bytes per second at which a body may continue without end.
	Rate int64
	// Write is how long one write of an answer may take. One write is at most 32 KiB.
	Write time.Duration
}

// Handler enforces the current pace on the clients of next.
func Handler(next http.Handler, pace func() Pace) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, ok := w.(deadlines)
		if !ok { // no connection, in tests of a handler
			next.ServeHTTP(w, r)
			return
		}
		p := pace()
		c := &client{ResponseWriter: w, d: d, most: p.Write, streams: r.ProtoMajor > 1}
		if r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 {
			b := &body{ReadCloser: r.Body, d: d, most: p.Body, left: p.Body, rate: p.Rate, streams: c.streams}
			r, c.body = withBody(r, b), b
			defer b.end() // after c.end
		}
		defer c.end()
		next.ServeHTTP(c, r)
	})
}

// withBody returns a copy of r that has the body b. The server's request must keep its own body:
// the server checks its type to answer a client that waits for "100 Continue" without reading
// first.
func withBody(r *http.Request, b io.ReadCloser) *http.Request {
	inner := *r
	inner.Body = b
	return &inner
}

type deadlines interface {
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// A client is the ResponseWriter of one client, with deadlines.
type client struct {
	http.ResponseWriter
	d        deadlines
	most     time.Duration
	streams  bool // HTTP/2, where a deadline ends a stream even when nothing is written
	hijacked bool
	sent     int   // bytes of the answer that the handler has written
	body     *body // nil: the request has none

	mu  sync.Mutex // guards cut
	cut bool       // the answer was ended from outside
}

// buffered is how much of an answer net/http keeps before it writes the header and discards the rest of
// the body. Later writes discard nothing: a bound there would end a slow download.
const buffered = 2048

// Unwrap gives http.ResponseController access to the underlying writer.
func (c *client) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// begin sets the deadline of a write. Before the first one, the server discards the rest of the
// body over HTTP/1: that must not take longer than a handler may wait for it.
func (c *client) begin() {
	if c.body != nil && !c.streams && c.sent <= buffered {
		c.body.bound()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.cut {
		c.d.SetWriteDeadline(time.Now().Add(c.most))
	}
}

// rest removes the deadline while nothing is written: the next event of a stream may take long.
func (c *client) rest() {
	if c.body != nil && !c.streams {
		c.body.release()
	}
	if !c.streams { // on a connection of its own the deadline affects only writes
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.cut {
		c.d.SetWriteDeadline(time.Time{})
	}
}

// end sets the deadline of what the server writes after the handler has returned.
func (c *client) end() {
	if !c.hijacked {
		c.sent = 0
		c.begin()
	}
}

// Write writes a part of the body.
func (c *client) Write(p []byte) (int, error) {
	c.begin()
	defer c.rest()
	n, err := c.ResponseWriter.Write(p)
	c.sent += n
	return n, err
}

// FlushError sends the buffered data.
func (c *client) FlushError() error {
	c.begin()
	defer c.rest()
	c.sent = buffered + 1
	return http.NewResponseController(c.ResponseWriter).Flush()
}

// Flush is FlushError for handlers that use http.Flusher.
func (c *client) Flush() { c.FlushError() }

// SetWriteDeadline sets a deadline of the handler's own. A deadline in the past ends the answer for
// good: no later write removes it.
func (c *client) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = c.cut || !t.IsZero() && !t.After(time.Now())
	return c.d.SetWriteDeadline(t)
}

// SetReadDeadline sets a deadline of the handler's own for the rest of the body.
func (c *client) SetReadDeadline(t time.Time) error {
	if c.body == nil {
		return c.d.SetReadDeadline(t)
	}
	c.body.mu.Lock()
	defer c.body.mu.Unlock()
	c.body.own = true
	return c.d.SetReadDeadline(t)
}

// Hijack returns the connection, which then has no deadlines.
func (c *client) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(c.ResponseWriter).Hijack()
	c.hijacked = c.hijacked || err == nil
	return conn, rw, err
}

// A body is the body of a request with a deadline for each read.
type body struct {
	io.ReadCloser
	d       deadlines
	most    time.Duration
	rate    int64
	streams bool

	mu    sync.Mutex    // guards the fields below
	left  time.Duration // time to wait for the client
	reads bool          // a read is in progress
	own   bool          // the handler sets the deadlines
	done  bool          // the body has been read, or the request has ended
	ended bool          // the request has ended
}

// ended reports whether nothing more of a body can be read.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, http.ErrBodyReadAfterClose)
}

// Read waits for the client at most for the time that is left.
func (b *body) Read(p []byte) (int, error) {
	began := time.Now()
	if !b.begin(began) {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reads = false
	b.left -= time.Since(began)
	if n > 0 {
		b.left = min(b.most, b.left+time.Duration(n)*time.Second/time.Duration(b.rate))
	}
	// Over HTTP/1 the server continues to read after the body, to notice that the client leaves: a
	// deadline would end the request while the origin works on its answer.
	if !b.done && (ended(err) || b.streams && err == nil && !b.own) {
		b.d.SetReadDeadline(time.Time{})
	}
	b.done = b.done || ended(err)
	return n, err
}

// begin sets the deadline of a read, unless the request has ended: a reader that is still active
// must not affect the next request of the connection.
func (b *body) begin(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.done {
		b.reads = true
		if !b.own {
			b.d.SetReadDeadline(now.Add(b.left))
		}
	}
	return !b.ended
}

// bound limits how long the server reads what the handler has not read.
func (b *body) bound() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.done && !b.reads && !b.own {
		b.d.SetReadDeadline(time.Now().Add(b.left))
	}
}

// release removes the deadline after a write: an answer may take long.
func (b *body) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.done && !b.reads && !b.own {
		b.d.SetReadDeadline(time.Time{})
	}
}

func (b *body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done, b.ended = true, true
}
