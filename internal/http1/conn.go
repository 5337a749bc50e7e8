package http1

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync/atomic"
	"syscall"
	"time"
)

// bufferSize is how much of an answer is read ahead. It is the same as net/http's own.
const bufferSize = 4 << 10

// A conn is a connection to the server. One request at a time uses it.
type conn struct {
	net.Conn
	pool *pool
	br   *bufio.Reader // from limited

	limited limited
	used    bool        // it has carried a request before, or was kept: the server may have closed it
	seen    bool        // a byte of the answer has come
	stop    func() bool // the watch of the request's context; nil: it cannot end
	abort   func()      // closes the connection; made once, because a method value allocates
	since   uint64      // pool.swept when it became idle

	raw   syscall.RawConn
	peek  func(fd uintptr) bool // made once
	still bool                  // the result of peek
}

func newConn(raw net.Conn, p *pool) (*conn, error) {
	c := &conn{Conn: raw, pool: p}
	c.limited = limited{conn: raw}
	c.br = bufio.NewReaderSize(&c.limited, bufferSize)
	c.abort = func() { raw.Close() }
	err := c.prepare()
	return c, err
}

// limited reads from a connection until so many bytes have come.
type limited struct {
	conn net.Conn
	left int64
	err  error // of the connection
}

// Read implements io.Reader.
func (l *limited) Read(b []byte) (int, error) {
	if l.left <= 0 {
		return 0, errTooLong
	}
	if int64(len(b)) > l.left {
		b = b[:l.left]
	}
	n, err := l.conn.Read(b)
	l.left -= int64(n)
	l.err = err
	return n, err
}

// exchange sends r and returns the answer as soon as its headers have come. After an error, the
// connection is closed. A context that ends closes it as well, which ends reads and writes.
func (c *conn) exchange(r *http.Request, head *buffer) (*http.Response, error) {
	if err := c.ready(r); err != nil {
		c.Close()
		return nil, err
	}
	c.seen, c.limited.left = false, c.pool.cfg.MaxHeader
	c.stop = nil
	if ctx := r.Context(); ctx.Done() != nil {
		c.stop = context.AfterFunc(ctx, c.abort)
	}
	s, err := c.write(r, head)
	var res *http.Response
	if err == nil {
		res, err = c.read(r, s)
	}
	if err != nil {
		c.drop()
		if s != nil {
			if cause := s.cause.Load(); cause != nil {
				err = *cause
			}
		}
		return nil, err
	}
	c.limited.left = math.MaxInt64
	keep := !res.Close && res.StatusCode >= http.StatusOK
	if res.Body == nil || res.Body == http.NoBody {
		c.finish(keep, s)
		return res, nil
	}
	res.Body = &body{conn: c, src: res.Body, keep: keep, sending: s, ctx: r.Context()}
	return res, nil
}

// errStale reports a kept connection that cannot be used again.
var errStale = errors.New("http1: the server has closed a kept connection, or answered before it was asked")

// ready sets the time for the answer, which begins now or when a body has been sent, and checks a
// connection that was kept.
func (c *conn) ready(r *http.Request) error {
	var until time.Time
	if !hasBody(r) {
		until = time.Now().Add(c.pool.cfg.AnswerTimeout)
	}
	if err := c.SetReadDeadline(until); err != nil {
		return err
	}
	if c.used && !c.quiet() {
		return errStale
	}
	return nil
}

// write sends a request without a body, and begins to send one with a body, which then owns head.
func (c *conn) write(r *http.Request, head *buffer) (*sending, error) {
	if hasBody(r) {
		return c.send(r, head), nil
	}
	n, err := c.Write(head.b)
	if err != nil && n == 0 && c.used {
		err = errStale // after the check; nothing was sent
	}
	return nil, err
}

// read reads the headers of the final answer.
func (c *conn) read(r *http.Request, s *sending) (*http.Response, error) {
	for {
		if _, err := c.br.Peek(1); err != nil {
			return nil, err
		}
		c.seen = true
		res, err := http.ReadResponse(c.br, r)
		if err != nil {
			switch broken := c.limited.err; {
			case c.limited.left <= 0:
				err = errTooLong
			case broken != nil && broken != io.EOF: //nolint:errorlint // it comes from the connection
				err = broken // half a line is called malformed
			}
			return nil, err
		}
		if res.StatusCode < 100 {
			return nil, errStatus // a server's WriteHeader would panic
		}
		if code := res.StatusCode; code >= 200 || code == http.StatusSwitchingProtocols {
			return res, c.answered(res, s)
		}
		trace := httptrace.ContextClientTrace(r.Context())
		if trace == nil || trace.Got1xxResponse == nil {
			continue
		}
		if err := trace.Got1xxResponse(res.StatusCode, textproto.MIMEHeader(res.Header)); err != nil {
			return nil, err
		}
	}
}

// answered ends the time for the answer. A body that has come as a whole needs no call: the next
// request sets a time of its own.
func (c *conn) answered(res *http.Response, s *sending) error {
	if s != nil {
		return s.answered()
	}
	if n := res.ContentLength; n >= 0 && n <= int64(c.br.Buffered()) {
		return nil
	}
	return c.SetReadDeadline(time.Time{})
}

// finish ends a request whose answer has come as a whole.
func (c *conn) finish(keep bool, s *sending) {
	if s != nil {
		keep = s.ended() && keep
	}
	// If stop is too late, abort runs now or soon.
	if c.stop != nil && !c.stop() || !keep || c.br.Buffered() > 0 {
		c.Close()
		return
	}
	c.used = true
	c.pool.put(c)
}

// drop ends a request that has failed.
func (c *conn) drop() {
	if c.stop != nil {
		c.stop()
	}
	c.Close()
}

// A body is that of an answer. Close may be called during Read.
type body struct {
	conn    *conn
	src     io.Reader
	keep    bool
	sending *sending
	ctx     context.Context //nolint:containedctx // of the request, which the body is a part of
	state   atomic.Int32
}

// States of a body. In all but the first, the connection is no longer the body's.
const (
	open int32 = iota
	whole
	closed
)

// Read implements io.Reader. At the end it gives the connection back.
func (b *body) Read(p []byte) (int, error) {
	switch b.state.Load() {
	case whole:
		return 0, io.EOF
	case closed:
		return 0, errClosed
	}
	n, err := b.src.Read(p)
	if err == io.EOF { //nolint:errorlint // a wrapped one is no end
		if b.state.CompareAndSwap(open, whole) {
			b.conn.finish(b.keep, b.sending)
		}
	} else if err != nil {
		b.Close()
		if b.ctx.Err() != nil {
			err = context.Cause(b.ctx)
		}
	}
	return n, err
}

// Close closes the connection, unless the answer has been read to its end.
func (b *body) Close() error {
	if b.state.CompareAndSwap(open, closed) {
		b.conn.drop()
	}
	return nil
}

// Ready reports whether a part of the answer has been read ahead, so that Read returns at once, unless
// that part is the beginning of a chunk only.
func (b *body) Ready() bool { return b.state.Load() != open || b.conn.br.Buffered() > 0 }
