package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/headgate/headgate/internal/signals"
)

// ErrEnded is the cause with which to cancel a request's context when the visitor's session has
// ended. If an *Error wraps it, the answer had not begun.
var ErrEnded = errors.New("the visitor's session is over")

// StatusClientGone is the status that middleware sees for a client that left before an answer.
// nginx uses the same number. It is never sent.
const StatusClientGone = 499

// An Error is a request that the origin did not answer.
type Error struct {
	// Status is the status to answer with. 502: the origin cannot be reached or broke the
	// connection. 504: it did not answer in time. 503: the session has ended. 413: the client's
	// body exceeds the limit of an http.MaxBytesReader. 408: the client's body came too slowly over
	// HTTP/2 (over HTTP/1 net/http treats such a client as gone).
	Status int
	Err    error
}

// Error describes the failure, for a log and not for a visitor.
func (e *Error) Error() string { return fmt.Sprintf("proxy: answer %d: %v", e.Status, e.Err) }

// Unwrap returns the error of the network or of the hook.
func (e *Error) Unwrap() error { return e.Err }

// judge finds out why a request failed; nil means that the client is gone.
func judge(ctx context.Context, err error) *Error {
	if ctx.Err() != nil {
		// net/http cancels without a cause when the client leaves. Every other cause, a deadline
		// too, was set on purpose.
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

// An upload marks errors of reading the client's body, so that they do not count as failures of the
// origin.
type upload struct {
	io.ReadCloser
	flight *signals.Flight
}

func (u *upload) Read(b []byte) (int, error) {
	n, err := u.ReadCloser.Read(b)
	u.flight.Sent()
	if err != nil && err != io.EOF {
		err = &uploadError{err}
	}
	return n, err
}

type uploadError struct{ err error }

func (e *uploadError) Error() string { return "read the client's body: " + e.err.Error() }

func (e *uploadError) Unwrap() error { return e.err }

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
