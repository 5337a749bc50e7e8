package guard

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Pace is how slow a client may be.
type Pace struct {
	// Body is how long a request's body may keep the handler waiting beyond what Rate allows it:
	// the longest silence, and what is left after one grows back with what arrives.
	Body time.Duration
	// Rate is the bytes a second that a body needs to go on for ever.
	Rate int64
	// Write is how long one write of an answer may take, which is 32 KiB at most.
	Write time.Duration
}

// Handler holds the clients of next to the pace that is in force.
func Handler(next http.Handler, pace func() Pace) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, ok := w.(deadlines)
		if !ok { // no connection, as in a test of a handler
			next.ServeHTTP(w, r)
			return
		}
		p := pace()
		c := &client{ResponseWriter: w, d: d, most: p.Write, streams: r.ProtoMajor > 1}
		if r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 {
			b := &body{ReadCloser: r.Body, d: d, most: p.Body, left: p.Body, rate: p.Rate, streams: c.streams}
			r = withBody(r, b)
			defer b.end()
		}
		defer c.end()
		next.ServeHTTP(c, r)
	})
}

// withBody returns a copy of r that has the body b. The request of the server must keep its own body:
// the server checks its type to answer a client that waits for "100 Continue" without reading first.
func withBody(r *http.Request, b io.ReadCloser) *http.Request {
	inner := *r
	inner.Body = b
	return &inner
}

type deadlines interface {
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// A client is the way to one.
type client struct {
	http.ResponseWriter
	d        deadlines
	most     time.Duration
	streams  bool // HTTP/2, whose deadlines also end what does not write
	hijacked bool

	mu  sync.Mutex // guards cut
	cut bool       // somebody has ended the answer
}

// Unwrap lets http.ResponseController find the rest.
func (c *client) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// begin lets a write take as long as it may.
func (c *client) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.cut {
		c.d.SetWriteDeadline(time.Now().Add(c.most))
	}
}

// rest takes the deadline back while nothing is written: an event may be long in coming.
func (c *client) rest() {
	if !c.streams { // on a connection of its own it bounds nothing but writes
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.cut {
		c.d.SetWriteDeadline(time.Time{})
	}
}

// end bounds what the server writes when the handler has returned.
func (c *client) end() {
	if !c.hijacked {
		c.begin()
	}
}

// Write sends a part of the body.
func (c *client) Write(p []byte) (int, error) {
	c.begin()
	defer c.rest()
	return c.ResponseWriter.Write(p)
}

// FlushError sends what there is.
func (c *client) FlushError() error {
	c.begin()
	defer c.rest()
	return http.NewResponseController(c.ResponseWriter).Flush()
}

// Flush is FlushError for handlers that look for a http.Flusher.
func (c *client) Flush() { c.FlushError() }

// SetWriteDeadline sets a deadline of the handler's own. One that is past ends the answer: no
// later write undoes that.
func (c *client) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = c.cut || !t.IsZero() && !t.After(time.Now())
	return c.d.SetWriteDeadline(t)
}

// Hijack hands out the connection, which then has no deadlines.
func (c *client) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(c.ResponseWriter).Hijack()
	c.hijacked = c.hijacked || err == nil
	return conn, rw, err
}

// A body is that of a request.
type body struct {
	io.ReadCloser
	d          deadlines
	most, left time.Duration // to wait for the client
	rate       int64
	streams    bool

	mu    sync.Mutex // guards ended
	ended bool
}

// Read waits for the client no longer than is left.
func (b *body) Read(p []byte) (int, error) {
	began := time.Now()
	if !b.set(began.Add(b.left)) {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= time.Since(began)
	if n > 0 {
		b.left = min(b.most, b.left+time.Duration(n)*time.Second/time.Duration(b.rate))
	}
	if b.streams && err == nil {
		b.set(time.Time{})
	}
	return n, err
}

// set sets the deadline of reading, unless the request is over: what reads on then must not touch
// the next one of the connection.
func (b *body) set(t time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.d.SetReadDeadline(t)
	}
	return !b.ended
}

func (b *body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
}
