package proxy

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/signals"
)

// An answer is the ResponseWriter of one client. It watches the context from the first byte on:
// the transport stops reading from the origin when the context ends, but a write to a client that
// has stopped reading would block for ever.
type answer struct {
	http.ResponseWriter
	r    *http.Request
	stop func() bool // unregisters cut; nil before the first byte

	own  []field // headers set before the request went to the origin
	few  [3]field
	told bool // a 1xx answer was sent, and the headers were cleared

	flight signals.Flight // of a session's request

	mu       sync.Mutex // guards the fields below
	conn     net.Conn   // the client's, once hijacked
	released bool       // the handler returns: the ResponseWriter must not be used any more
	cutOff   bool
}

// A field is a header.
type field struct {
	name   string
	values []string
}

// once lists the headers that have a single value. If an answer passes several limits, each with a
// proxy of its own, the headers show what the limit nearest to the client has left. RateLimit is a
// list of all limits.
var once = [...]string{"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset",
	"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}

// keep saves the headers that were set before the request went to the origin, such as the visitor's
// pass.
func (a *answer) keep() {
	a.own = a.few[:0]
	for name, values := range a.Header() {
		a.own = append(a.own, field{name, values})
	}
}

// inform removes the headers of the final answer from an informational one, where browsers ignore
// them.
func (a *answer) inform() {
	h := a.Header()
	dropCommands(h)
	if a.told { // the headers were cleared after the last one
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

// restore adds the saved headers to those of the origin.
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

// WriteHeader sends the headers. 1xx answers come here without a call of modify.
func (a *answer) WriteHeader(code int) {
	if code < 200 {
		a.inform()
	} else {
		a.flight.End(a.r, outcomeOf(code, a.Header()))
		a.restore()
		a.guard()
	}
	a.ResponseWriter.WriteHeader(code)
}

// Hijack returns the client's connection, which is then closed when the context ends.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err == nil {
		a.flight.End(a.r, signals.Answered)
		if a.told { // else ReverseProxy adds to the present headers
			a.restore()
		}
		a.mu.Lock()
		a.conn = conn
		a.mu.Unlock()
		a.guard()
	}
	return conn, rw, err
}

// guard watches writes to a client that has stopped reading, if the context has a deadline. Other
// contexts end together with their connection, and the watch costs each request three allocations.
func (a *answer) guard() {
	ctx := a.r.Context()
	if _, ends := ctx.Deadline(); ends && a.stop == nil {
		a.stop = context.AfterFunc(ctx, a.cut)
	}
}

// cut makes the writes to the client fail, including one in progress.
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
	// Any time in the past will do. A writer without deadlines has no connection that could block.
	http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
}

// release must be called before the handler returns, even after a panic: afterwards the server may
// have given the writer to another request.
func (a *answer) release() {
	a.flight.Cancel()
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

// outcomeOf returns what an answer of the origin says about the origin.
func outcomeOf(code int, h http.Header) signals.Outcome {
	busy := code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable
	switch {
	case busy && len(h["Retry-After"]) > 0:
		return signals.Refused
	case code >= http.StatusInternalServerError:
		return signals.Failed
	}
	return signals.Answered
}

// lost measures a request that the origin has not answered. e is nil if the client is gone.
func (a *answer) lost(e *Error) {
	switch {
	case e == nil:
		a.flight.Gone(a.r)
	case ofDial(e):
		a.flight.End(a.r, signals.Unreachable)
	case e.Status == http.StatusBadGateway, e.Status == http.StatusGatewayTimeout:
		a.flight.End(a.r, signals.Lost)
	}
}

func (a *answer) hijacked() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.conn != nil
}
