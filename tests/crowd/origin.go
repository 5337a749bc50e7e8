package crowd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/crowd"
)

// An Origin is a web server that records who was there and when. The header crowd.VisitorHeader
// identifies a visitor.
//
// It takes the time of a request's first byte where it is read from the socket, and the time of the
// last byte when the handler returns: the answer is small enough that the server sends all of it
// only after that. So a logged request never begins too late, and ends too early by less than one
// system call.
type Origin struct {
	URL string // its base URL, without a slash at the end

	server   *http.Server
	stopped  chan error
	mu       sync.Mutex
	requests []Request
	nobody   int
}

// LeavePath is the page whose answer contains a command to revoke the pass.
const LeavePath = "/leave"

// StartOrigin listens on a free loopback port.
func StartOrigin() (*Origin, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start origin: %w", err)
	}
	return ServeOrigin(ln)
}

// ServeOrigin is StartOrigin with the caller's listener.
func ServeOrigin(ln net.Listener) (*Origin, error) {
	o := &Origin{URL: "http://" + ln.Addr().String(), stopped: make(chan error, 1)}
	o.server = &http.Server{
		Handler:           o,
		ReadHeaderTimeout: time.Minute,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	go func() { o.stopped <- o.server.Serve(&stampListener{ln}) }()
	return o, nil
}

// Close stops the origin and waits for it.
func (o *Origin) Close() error {
	err := o.server.Close()
	if served := <-o.stopped; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// Requests returns a copy of the log, in order of the last byte out.
func (o *Origin) Requests() []Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]Request(nil), o.requests...)
}

// Strangers returns the number of requests that no visitor of the crowd made, such as probes.
func (o *Origin) Strangers() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.nobody
}

func (o *Origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	from := time.Now()
	conn, _ := r.Context().Value(connKey{}).(*stampConn)
	if conn != nil {
		from = conn.firstByte(from)
	}
	_, _ = io.Copy(io.Discard, r.Body) // reads a form to its end, or to the end of its connection
	leaves := strings.HasSuffix(r.URL.Path, LeavePath)
	if leaves {
		w.Header().Set("Headgate-Command", "revoke")
	}
	w.Header().Set("Cache-Control", "no-store")
	fmt.Fprintln(w, "<!doctype html><title>Inside</title><p>You are inside.")
	id := r.Header.Get(crowd.VisitorHeader)
	o.mu.Lock()
	defer o.mu.Unlock()
	if conn != nil {
		conn.rearm()
	}
	if id == "" {
		o.nobody++
		return
	}
	o.requests = append(o.requests, Request{id, Span{from, time.Now()}, leaves})
}

type connKey struct{}

type stampListener struct{ net.Listener }

func (l *stampListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &stampConn{Conn: c, opened: time.Now()}, nil
}

// A stampConn records when the first byte of each request was read. It requires one request at a
// time per connection, which is HTTP/1.1 without pipelining.
type stampConn struct {
	net.Conn
	opened time.Time
	first  atomic.Int64 // since opened, in ns, at least 1; 0: none yet
}

func (c *stampConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.first.CompareAndSwap(0, max(1, int64(time.Since(c.opened))))
	}
	return n, err
}

func (c *stampConn) firstByte(otherwise time.Time) time.Time {
	if ns := c.first.Load(); ns != 0 {
		return c.opened.Add(time.Duration(ns))
	}
	return otherwise
}

func (c *stampConn) rearm() { c.first.Store(0) }
