package deliver

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/queue"
)

// Headers that each delivery sets itself, besides Idempotency-Key. A job cannot set them
// (queue.CheckHeaders).
const (
	idHeader        = "Webhook-Id"
	timestampHeader = "Webhook-Timestamp"
	signatureHeader = "Webhook-Signature"
	attemptHeader   = "Headgate-Attempt"
	orderHeader     = "Headgate-Order-Key"
	scheduleHeader  = "Headgate-Schedule"
)

// HTTP delivers jobs to a target. It implements queue.Handler.
type HTTP struct {
	method string
	url    *url.URL
	host   string // "": that of the URL
	fixed  http.Header
	// fixedNames are the names of the fixed headers in the form of queue.HeaderName.
	fixedNames []string
	keys       [][]byte
	keyIsID    bool
	timeout    time.Duration
	transport  *http.Transport
	carrier    http.RoundTripper // the transport and its wrapper
}

// Close closes idle connections.
func (h *HTTP) Close() error {
	h.transport.CloseIdleConnections()
	return nil
}

// Deliver sends a job once and returns the outcome. It blocks until the target answers, its timeout
// expires, or ctx ends.
func (h *HTTP) Deliver(ctx context.Context, j *queue.Job) queue.Outcome {
	r, err := h.request(j)
	if err != nil {
		return queue.Outcome{Err: err}
	}
	limited, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	// It may take seconds until there is a connection. net/http calls GotConn before it writes to the
	// connection, and writes nothing to a closed one. Without cancel it would try other connections.
	var refused error
	look := func(c httptrace.GotConnInfo) {
		if refused = queue.MaySend(ctx); refused != nil {
			cancel()
			_ = c.Conn.Close() // nothing was written
		}
	}
	limited = httptrace.WithClientTrace(limited, &httptrace.ClientTrace{GotConn: look})
	answer, err := h.carrier.RoundTrip(r.WithContext(limited))
	switch {
	case err != nil && refused != nil:
		return queue.Outcome{Err: refused, Retry: true}
	case err != nil && ctx.Err() != nil:
		return queue.Outcome{Err: errors.New("stopped before the target's answer"), Retry: true}
	case err != nil:
		return queue.Outcome{Err: h.why(err), Retry: true}
	}
	defer answer.Body.Close()
	// Read the body, or the connection cannot be reused. Errors do not matter: the status is
	// already known.
	_, _ = io.CopyN(io.Discard, answer.Body, maxAnswer)
	return judge(answer, time.Now())
}

// request returns the HTTP request for a job.
func (h *HTTP) request(j *queue.Job) (*http.Request, error) {
	if err := queue.CheckHeaders(j.Headers, false); err != nil {
		return nil, err
	}
	header := make(http.Header, len(h.fixed)+len(j.Headers)+6)
	for name, value := range j.Headers {
		if !slices.Contains(h.fixedNames, queue.HeaderName(name)) { // also under another spelling: X.Fixed
			header.Set(name, value)
		}
	}
	maps.Copy(header, h.fixed)
	if header.Get("User-Agent") == "" {
		header.Set("User-Agent", "headgate")
	}
	id := j.ID
	if h.keyIsID {
		id = j.Key
	}
	header.Set(idHeader, id)
	header.Set(attemptHeader, strconv.Itoa(j.Attempt))
	if j.Key != "" && !h.keyIsID {
		// In lower case, like all HTTP/2 names: with the canonical spelling net/http would retry a
		// job by itself when a connection breaks.
		header["idempotency-key"] = []string{j.Key}
	}
	if j.OrderKey != "" {
		header.Set(orderHeader, j.OrderKey)
	}
	if j.Schedule != "" {
		header.Set(scheduleHeader, j.Schedule)
	}
	if len(h.keys) > 0 {
		timestamp, signature := sign(h.keys, id, time.Now(), j.Body)
		header.Set(timestampHeader, timestamp)
		header.Set(signatureHeader, signature)
	}
	r := &http.Request{Method: h.method, URL: h.url, Host: h.host, Header: header,
		ProtoMajor: 1, ProtoMinor: 1}
	h.setBody(r, j.Body)
	return r, nil
}

// setBody sets the body of a request. With GetBody, net/http can use another connection when the
// first one breaks before a byte is sent. For a GET, however, net/http would also resend a request
// that may have arrived, so a GET has no GetBody.
func (h *HTTP) setBody(r *http.Request, body []byte) {
	again := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	r.ContentLength = int64(len(body))
	switch {
	case h.method == http.MethodGet:
		r.Body, _ = again()
	case len(body) == 0:
		r.Body = http.NoBody
	default:
		r.Body, _ = again()
		r.GetBody = again
	}
}

// A StatusError reports an answer whose status is not 2xx.
type StatusError struct{ Code int }

// Error does not include any text of the target.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("the target answered %d %s", e.Code, http.StatusText(e.Code))
	if e.Code < 400 {
		text += ": no redirect is followed; set the url that is meant"
	}
	return text
}

// judge returns what an answer means for the job and for the target.
func judge(answer *http.Response, now time.Time) queue.Outcome {
	code := answer.StatusCode
	if code >= 200 && code < 300 {
		return queue.Outcome{Status: code}
	}
	err := &StatusError{code}
	switch {
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly,
		code == http.StatusTooManyRequests, code >= 500:
		return queue.Outcome{
			Err: err, Retry: true, Status: code, RetryAfter: retryAfter(answer.Header, now),
			Busy: code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable,
		}
	}
	return queue.Outcome{Err: err, Status: code}
}

// mostAfter is the longest Retry-After that is followed. Chosen: after that time the target is
// tried again.
const mostAfter = time.Hour

// retryAfter returns how long the target wants no requests. The header contains seconds or a date;
// a date is compared to the target's own Date (RFC 9110 §10.2.3).
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	// A number that is too large counts as the largest number.
	if seconds, err := strconv.ParseUint(text, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, uint64(mostAfter/time.Second))) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(0, at.Sub(now)), mostAfter)
}

// why returns a short text that says why there was no answer. It never includes data from the
// connection, nor the URL with its query.
func (h *HTTP) why(err error) error {
	var (
		op     *net.OpError
		dns    *net.DNSError
		verify *tls.CertificateVerificationError
		record tls.RecordHeaderError
		slow   net.Error
		local  *localError
	)
	switch {
	case errors.As(err, &local):
		return local
	case errors.As(err, &dns):
		return fmt.Errorf("the target's host %.100q is not found", dns.Name)
	case errors.As(err, &verify):
		return fmt.Errorf("the target's certificate: %.200v", verify.Err)
	case errors.As(err, &record):
		return errors.New("the target does not speak TLS: is its url http://?")
	case errors.As(err, &op) && op.Op == "dial" && op.Timeout():
		return fmt.Errorf("no connection to the target within %v", min(dialTimeout, h.timeout))
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &slow) && slow.Timeout():
		return fmt.Errorf("no answer of the target within %v", h.timeout)
	case errors.As(err, &op):
		return fmt.Errorf("the connection to the target: %.200v", op)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the target closed the connection without an answer")
	}
	return errors.New("the connection to the target broke, or its answer is not HTTP")
}
