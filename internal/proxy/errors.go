package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
)

// ErrEnded is the cause to cancel a request's context with when the visitor's
// stay is over. An *Error that wraps it means the answer had not begun.
var ErrEnded = errors.New("the visitor's stay is over")

// StatusClientGone is the status that middleware sees for a client that left
// before an answer. It is nginx's; nobody receives it.
const StatusClientGone = 499

// An Error is a request that the origin did not answer.
type Error struct {
	// Status is what to answer: 502 the origin cannot be reached or broke off,
	// 504 it did not answer in time, 503 the stay is over, 413 the client's body
	// is over a http.MaxBytesReader's limit, 408 it came too slowly over HTTP/2
	// (over HTTP/1 net/http takes such a client for gone).
	Status int
	Err    error
}

// Error says what happened, for a log and not for a visitor.
func (e *Error) Error() string { return fmt.Sprintf("proxy: answer %d: %v", e.Status, e.Err) }

// Unwrap gives the error of the network or of the hook.
func (e *Error) Unwrap() error { return e.Err }

// fail is ReverseProxy's ErrorHandler: w is our answer, and nothing but 1xx
// has been written to it unless it was hijacked.
func (p *Proxy) fail(w http.ResponseWriter, _ *http.Request, err error) {
	a := w.(*answer)
	if a.hijacked() {
		return // a WebSocket that broke while it opened: nowhere to write to
	}
	e := judge(a.r.Context(), err)
	if e == nil {
		a.ResponseWriter.WriteHeader(StatusClientGone)
		return
	}
	// Past the answer's watch: when the stay is over, its page must still pass.
	p.onError(a.ResponseWriter, a.r, e)
}

// judge finds what stopped a request; nil is a client that has gone.
func judge(ctx context.Context, err error) *Error {
	if ctx.Err() != nil {
		// net/http cancels plainly when the client leaves. Every other cause,
		// a deadline too, is somebody's decision.
		cause := context.Cause(ctx)
		if cause == context.Canceled { //nolint:errorlint // a wrapped one is somebody's decision
			return nil
		}
		if !errors.Is(cause, ErrEnded) {
			cause = fmt.Errorf("%w: %w", ErrEnded, cause)
		}
		return &Error{Status: http.StatusServiceUnavailable, Err: cause}
	}
	if up, ok := errors.AsType[*uploadError](err); ok {
		if _, ok := errors.AsType[*http.MaxBytesError](up); ok {
			return &Error{Status: http.StatusRequestEntityTooLarge, Err: err}
		}
		if timedOut(up) {
			return &Error{Status: http.StatusRequestTimeout, Err: err}
		}
		return nil
	}
	if timedOut(err) {
		return &Error{Status: http.StatusGatewayTimeout, Err: err}
	}
	return &Error{Status: http.StatusBadGateway, Err: err}
}

func timedOut(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return ok && ne.Timeout()
}

func plainError(w http.ResponseWriter, _ *http.Request, err error) {
	status := http.StatusBadGateway
	if e, ok := errors.AsType[*Error](err); ok {
		status = e.Status
	}
	text := "The site does not answer right now. Please try again in a moment."
	switch status {
	case http.StatusServiceUnavailable:
		text = "Your time on this site is over."
	case http.StatusRequestEntityTooLarge:
		text = "The request is too large."
	case http.StatusRequestTimeout:
		text = "The request came too slowly."
	}
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, text, status)
}
