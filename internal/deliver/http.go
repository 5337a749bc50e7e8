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
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/queue"
)

// The headers that a delivery bears of its own, beside Idempotency-Key. No job may say them
// (queue.CheckHeaders).
const (
	idHeader        = "Webhook-Id"
	timestampHeader = "Webhook-Timestamp"
	signatureHeader = "Webhook-Signature"
	attemptHeader   = "Headgate-Attempt"
)

// HTTP delivers jobs to a target. It is a queue.Handler.
type HTTP struct {
	method string
	url    *url.URL
	host   string // "": the url's
	fixed  http.Header
	// fixedNames are those of fixed as queue.HeaderName has them.
	fixedNames []string
	keys       [][]byte
	keyIsID    bool
	timeout    time.Duration
	transport  *http.Transport
	carrier    http.RoundTripper // the transport, with what stands around it
}

// Close closes the connections that are idle.
func (h *HTTP) Close() error {
	h.transport.CloseIdleConnections()
	return nil
}

// Deliver sends a job once and says how it went. It blocks until the target's answer, the
// target's timeout or the end of ctx.
func (h *HTTP) Deliver(ctx context.Context, j *queue.Job) queue.Outcome {
	r, err := h.request(j)
	if err != nil {
		return queue.Outcome{Err: err}
	}
	limited, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	answer, err := h.carrier.RoundTrip(r.WithContext(limited))
	switch {
	case err != nil && ctx.Err() != nil:
		return queue.Outcome{Err: errors.New("stopped before the target's answer"), Retry: true}
	case err != nil:
		return queue.Outcome{Err: h.why(err), Retry: true}
	}
	defer answer.Body.Close()
	// Read, or the connection is lost. What comes of it is no matter: the status has been said.
	_, _ = io.CopyN(io.Discard, answer.Body, maxAnswer)
	return judge(answer, time.Now())
}

// request is the job as it goes to the target.
func (h *HTTP) request(j *queue.Job) (*http.Request, error) {
	if err := queue.CheckHeaders(j.Headers, false); err != nil {
		return nil, err
	}
	header := make(http.Header, len(h.fixed)+len(j.Headers)+5)
	for name, value := range j.Headers {
		if !slices.Contains(h.fixedNames, queue.HeaderName(name)) { // not even by an alias: X.Fixed
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
		// In small letters, as HTTP/2 has all names: under the other spelling net/http would
		// send a job again by itself when a connection breaks.
		header["idempotency-key"] = []string{j.Key}
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

// setBody gives a request its body. That it can be had again lets net/http use another
// connection when the one it took has broken before the first byte was sent, but of a GET it
// would also send again what may have arrived: a GET's cannot be had again.
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

// A StatusError is an answer that is not 2xx.
type StatusError struct{ Code int }

// Error does not repeat the target's own words.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("the target answered %d %s", e.Code, http.StatusText(e.Code))
	if e.Code < 400 {
		text += ": no redirect is followed; set the url that is meant"
	}
	return text
}

// judge says what an answer means for the job and for the target.
func judge(answer *http.Response, now time.Time) queue.Outcome {
	code := answer.StatusCode
	if code >= 200 && code < 300 {
		return queue.Outcome{}
	}
	err := &StatusError{code}
	switch {
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly,
		code == http.StatusTooManyRequests, code >= 500:
		return queue.Outcome{
			Err: err, Retry: true, RetryAfter: retryAfter(answer.Header, now),
			Busy: code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable,
		}
	}
	return queue.Outcome{Err: err}
}

// mostAfter bounds what a target may say in Retry-After. Chosen: it is asked again then.
const mostAfter = time.Hour

// retryAfter is how long the target wants to be left alone: seconds, or a date, which is
// counted from the target's own (RFC 9110 §10.2.3).
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	// A number that is too great is read as the greatest there is.
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

// why says in few words why there was no answer. It never repeats what came over the
// connection, nor the address with its query.
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
	return errors.New("the connection to the target broke, or its answer is no HTTP")
}
