package proxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
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

	own  []field // what was to be said before the origin was asked
	few  [3]field
	told bool // an informational answer has gone out: ReverseProxy has cleared the headers

	mu       sync.Mutex // guards the rest
	conn     net.Conn   // the client's, once hijacked
	released bool       // the handler returns: the ResponseWriter is no longer ours
	cutOff   bool
}

// A field is a header.
type field struct {
	name   string
	values []string
}

// once are the headers that have one value: an answer that passes several limits, each with a
// proxy of its own, says what the nearest to the client has left. RateLimit is a list of all.
var once = [...]string{"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset",
	"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}

// keep remembers what is to be said, such as the visitor's pass.
func (a *answer) keep() {
	a.own = a.few[:0]
	for name, values := range a.Header() {
		a.own = append(a.own, field{name, values})
	}
}

// inform leaves what is said of the answer out of an informational one, where browsers pass
// over it.
func (a *answer) inform() {
	h := a.Header()
	dropCommands(h)
	if a.told { // nothing of it is there any more
		return
	}
	a.told = true
	for _, f := range a.own {
		if more := h[f.name]; len(more) > len(f.values) {
			h[f.name] = more[len(f.values):]
		} else {
			delete(h, f.name)
		}
	}
}

// restore says beside the origin's headers what was to be said.
func (a *answer) restore() {
	h := a.Header()
	for _, f := range a.own {
		if a.told {
			h[f.name] = append(slices.Clip(f.values), h[f.name]...)
		}
		if n := len(f.values); len(h[f.name]) > n && slices.Contains(once[:], f.name) {
			h[f.name] = f.values
		}
	}
	a.told, a.own = false, nil
}

// Unwrap lets http.ResponseController reach Flush and the deadlines.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader sends the headers. Informational ones come here straight from the
// origin, past modify.
func (a *answer) WriteHeader(code int) {
	if code < 200 {
		a.inform()
	} else {
		a.restore()
		a.guard()
	}
	a.ResponseWriter.WriteHeader(code)
}

// Hijack hands out the client's connection, which then ends with the context.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err == nil {
		if a.told { // else ReverseProxy adds to what is there
			a.restore()
		}
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
