// Package http1 is an HTTP/1.1 client transport for one server, without goroutines of its own.
//
// net/http's Transport has two goroutines for each connection, and passes each request and each
// answer through channels: six switches between goroutines for a request. Here the goroutine that
// calls RoundTrip writes the request and reads the answer itself. Only a request with a body gets a
// second goroutine, because a server may answer before it has read the body.
//
// A Transport sends what [Carries] accepts. For everything else, such as TLS, upgrades and
// "Expect: 100-continue", use net/http's Transport.
//
// Promises. Answers are parsed by net/http. A connection is used for one request at a time, and
// again only if both the request and the answer were complete and nothing followed the answer. Before
// it is used again, it is checked for bytes that nobody asked for and for its end; unasked bytes that
// arrive after the next request cannot be told from its answer, here and in net/http. A request is
// sent again only if it has no body and its connection was kept, and either that took no byte of the
// request, or the server closed it without a byte of an answer and the request is safe to repeat (RFC
// 9110, section 9.2.2; RFC 9112, section 9.3.1).
package http1

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Config configures a Transport. All fields are required.
type Config struct {
	// Dial opens a connection to the server. It must end by itself, because a dial continues after
	// the request that caused it has been canceled.
	Dial func(ctx context.Context) (net.Conn, error)

	// AnswerTimeout is how long the headers of an answer may take, from the end of the request.
	AnswerTimeout time.Duration

	// IdleTimeout is how long an unused connection is kept. It is kept at least half of that.
	IdleTimeout time.Duration

	// MaxIdle is how many unused connections are kept.
	MaxIdle int

	// MaxHeader is the maximum size of the headers of an answer in bytes, together with those of
	// the 1xx answers before it.
	MaxHeader int64
}

// A Transport sends requests to one server. It may be used by many goroutines at once.
type Transport struct {
	cfg  Config
	pool pool
}

// New returns a Transport. It opens no connection.
func New(cfg Config) *Transport {
	t := &Transport{cfg: cfg}
	t.pool.init(&t.cfg)
	return t
}

// Carries reports whether a Transport can send r.
func Carries(r *http.Request) bool {
	h := r.Header
	return Supported && r.URL != nil && r.URL.Scheme == "http" && r.URL.Opaque == "" &&
		r.Method != "" && r.Method != http.MethodConnect && !r.Close && len(r.Trailer) == 0 &&
		len(h["Upgrade"]) == 0 && len(h["Connection"]) == 0 && len(h["Expect"]) == 0 && plainHost(r) &&
		!mayBeEmpty(r)
}

// mayBeEmpty reports whether only reading the body shows whether there is one. net/http reads it
// before it decides on the framing, because servers do not expect a chunked GET.
func mayBeEmpty(r *http.Request) bool {
	if lengthOf(r) >= 0 || len(r.TransferEncoding) > 0 {
		return false
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodDelete, http.MethodOptions, "PROPFIND", "SEARCH":
		return hasBody(r)
	}
	return false
}

// plainHost reports whether the host of r can be sent as it is: valid, in ASCII and without an IPv6
// zone.
func plainHost(r *http.Request) bool {
	host := hostOf(r)
	for i := range len(host) {
		if host[i] == '%' || host[i] >= 0x80 {
			return false
		}
	}
	return httpguts.ValidHostHeader(host)
}

func hostOf(r *http.Request) string {
	if r.Host != "" {
		return r.Host
	}
	return r.URL.Host
}

// RoundTrip implements http.RoundTripper for requests that Carries accepts. It does not close the
// request's body: a server's request is closed by its server.
//
// It calls Got1xxResponse of the context's httptrace.ClientTrace, and no other hook.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	head := t.pool.heads.Get().(*buffer)
	if err := head.head(r); err != nil { // it costs no connection
		t.pool.free(head)
		return nil, err
	}
	if !hasBody(r) {
		defer t.pool.free(head)
	}
	for {
		c, err := t.pool.get(ctx)
		if err != nil {
			return nil, err
		}
		res, err := c.exchange(r, head)
		if err == nil {
			return res, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err == errStale { //nolint:errorlint // it is never wrapped
			continue
		}
		if !c.used || c.seen || !repeatable(r) || errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, err
		}
	}
}

// repeatable reports whether r may be sent again although the server may have got it, as net/http
// decides it.
func repeatable(r *http.Request) bool {
	if hasBody(r) {
		return false
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return len(r.Header["Idempotency-Key"]) > 0 || len(r.Header["X-Idempotency-Key"]) > 0
}

func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

// lengthOf returns the length of the body of r, or -1: it is unknown, which a client may also write
// as 0.
func lengthOf(r *http.Request) int64 {
	if r.ContentLength > 0 {
		return r.ContentLength
	}
	return -1
}

// CloseIdleConnections closes the connections that no request uses now, and those in use as soon as
// they are free, until the next request comes.
func (t *Transport) CloseIdleConnections() { t.pool.closeIdle() }

// errShort reports a request whose body ends before its Content-Length.
var errShort = errors.New("http1: the request's body is shorter than its Content-Length")

// errClosed is returned by the body of an answer that was closed.
var errClosed = errors.New("http1: read from the closed body of an answer")

// errStatus reports an answer with a status that HTTP does not have.
var errStatus = errors.New("http1: malformed answer: its status is below 100")

// errTooLong reports an answer with too many headers.
var errTooLong = errors.New("http1: the headers of the answer are too long")
