package proxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// An answer is the way back to one client. It watches over the context from the
// first byte on: ReverseProxy stops reading from the origin when the context
// ends, but a write to a client that has stopped reading would block for ever.
type answer struct {
	http.ResponseWriter
	r    *http.Request
	stop func() bool // unregisters cut; nil before the first byte

	mu       sync.Mutex // guards the rest
	conn     net.Conn   // the client's, once hijacked
	released bool       // the handler returns: the ResponseWriter is no longer ours
	cutOff   bool
}

// Unwrap lets http.ResponseController reach Flush and the deadlines.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader sends the headers. Informational ones come here straight from the
// origin, past modify.
func (a *answer) WriteHeader(code int) {
	if code < 200 {
		dropCommands(a.Header())
	} else {
		a.guard()
	}
	a.ResponseWriter.WriteHeader(code)
}

// Hijack hands out the client's connection, which then ends with the context.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err == nil {
		a.mu.Lock()
		a.conn = conn
		a.mu.Unlock()
		a.guard()
	}
	return conn, rw, err
}

func (a *answer) guard() {
	if ctx := a.r.Context(); a.stop == nil && ends(ctx) {
		a.stop = context.AfterFunc(ctx, a.cut)
	}
}

type endsKey struct{}

// Ending marks a context that somebody may cancel while its client is still
// there. Only then, or if it has a deadline, is a write to a client that has
// stopped reading watched over: the others end with their connection, and the
// watch costs each request three allocations.
func Ending(ctx context.Context) context.Context { return context.WithValue(ctx, endsKey{}, true) }

func ends(ctx context.Context) bool {
	_, deadline := ctx.Deadline()
	return deadline || ctx.Value(endsKey{}) != nil
}

// cut fails the writes to the client, the one in progress included.
func (a *answer) cut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.released {
		return
	}
	a.cutOff = true
	if a.conn != nil {
		a.conn.Close()
		return
	}
	// Any time in the past will do. Without support for deadlines there is no
	// connection behind the writer that could block.
	http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
}

// release must come before the handler returns, also by a panic: afterwards
// the server may have given the writer to another request.
func (a *answer) release() {
	if a.stop == nil || a.stop() {
		return
	}
	a.mu.Lock()
	a.released = true
	a.mu.Unlock()
}

// cutShort reports whether the context ended while a body was being written.
func (a *answer) cutShort() bool {
	if a.stop == nil || a.r.Context().Err() == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cutOff && a.conn == nil
}

func (a *answer) hijacked() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.conn != nil
}

// dropCommandTrailers removes commands that came after the body. modify has taken
// back their announcement, so that ReverseProxy has put them under net/http's
// prefix into the header map, which the server reads when the handler ends.
func (a *answer) dropCommandTrailers() {
	h := a.Header()
	delete(h, http.TrailerPrefix+commandHeader)
	delete(h, http.TrailerPrefix+cfCommandHeader)
}

// An upload marks the errors of reading the client's body, so that they are not
// laid to the origin.
type upload struct{ io.ReadCloser }

func (u *upload) Read(b []byte) (int, error) {
	n, err := u.ReadCloser.Read(b)
	if err != nil && err != io.EOF {
		err = &uploadError{err}
	}
	return n, err
}

type uploadError struct{ err error }

func (e *uploadError) Error() string { return "read the client's body: " + e.err.Error() }
func (e *uploadError) Unwrap() error { return e.err }
