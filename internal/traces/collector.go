package traces

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// maxAnswer limits how much of an answer is read. Chosen: answers are a few words.
const maxAnswer = 64 << 10

// tryFor limits an attempt to send a batch. Chosen.
const tryFor = 10 * time.Second

const protobuf = "application/x-protobuf"

// A collector is a client that sends spans by OTLP over HTTP. It implements otlptrace.Client. The
// standard client otlptracehttp depends on gRPC, and does not report how many spans were rejected.
type collector struct {
	endpoint string
	header   http.Header
	client   http.Client
}

func newCollector(endpoint string, headers map[string]string, version string) *collector {
	l := &collector{endpoint: endpoint, header: http.Header{}}
	for name, value := range headers {
		l.header.Set(name, value)
	}
	l.header.Set("Content-Type", protobuf)
	l.header.Set("User-Agent", "headgate/"+version)
	l.client = http.Client{
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: tryFor / 2}).DialContext,
			TLSHandshakeTimeout: tryFor / 2, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true,
			MaxResponseHeaderBytes: maxAnswer,
		},
		// A redirect would send spans and headers to a host that the operator did not name.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return l
}

// A refusal is the error for a rejected batch.
type refusal struct {
	why   string
	again bool // a retry may succeed
	after time.Duration
}

func (r *refusal) Error() string { return r.why }

// A partial is the error for a batch that was accepted in part.
type partial struct {
	rejected uint64
	message  string // the collector's
}

func (p *partial) Error() string {
	return fmt.Sprintf("the collector has rejected %d spans: %.200q", p.rejected, p.message)
}

// Start implements otlptrace.Client.
func (l *collector) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (l *collector) Stop(context.Context) error { return nil }

// UploadTraces implements otlptrace.Client. The error is a *refusal or a *partial.
func (l *collector) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// On the wire this is an ExportTraceServiceRequest, but its package depends on gRPC.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return &refusal{why: "spans cannot be encoded: " + err.Error()}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.endpoint, bytes.NewReader(body))
	if err != nil {
		return &refusal{why: "the endpoint is no URL"}
	}
	r.Header = l.header
	res, err := l.client.Do(r)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err // without the endpoint
		}
		return &refusal{why: err.Error(), again: true}
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	switch code := res.StatusCode; {
	case code/100 != 2:
		again := code == http.StatusTooManyRequests || code == http.StatusBadGateway ||
			code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout // as OTLP requires
		return &refusal{why: fmt.Sprintf("the collector answered %d %s", code, http.StatusText(code)),
			again: again, after: retryAfter(res.Header)}
	case err != nil:
		return &refusal{why: "the answer of the collector broke off", again: true}
	}
	return judge(res.Header.Get("Content-Type"), answer)
}

// retryAfter reads the delay in whole seconds; the caller limits it.
func retryAfter(h http.Header) time.Duration {
	n, err := strconv.ParseUint(h.Get("Retry-After"), 10, 16)
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Second
}

// judge reads the body of a 2xx answer: ExportTraceServiceResponse of OTLP 1.x. It ignores anything
// but protobuf.
func judge(contentType string, answer []byte) error {
	if kind, _, _ := mime.ParseMediaType(contentType); kind != protobuf {
		return nil
	}
	part := &partial{}
	ok := eachField(answer, func(n protowire.Number, value []byte, _ uint64) bool {
		return n != 1 || eachField(value, func(n protowire.Number, value []byte, x uint64) bool {
			switch n {
			case 1:
				part.rejected = x
			case 2:
				part.message = string(value)
			}
			return true
		})
	})
	switch {
	case !ok:
		return &refusal{why: "the answer is none of a collector: is it the right endpoint?"}
	case part.rejected > 0:
		return part
	}
	return nil
}

// eachField calls f for the fields of a message: bytes have a value, numbers an x. It reports
// whether the message is complete and f accepted all fields.
func eachField(b []byte, f func(n protowire.Number, value []byte, x uint64) bool) bool {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return false
		}
		b = b[size:]
		var value []byte
		var x uint64
		switch kind {
		case protowire.BytesType:
			value, size = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			x, size = protowire.ConsumeVarint(b)
		default:
			size = protowire.ConsumeFieldValue(n, kind, b)
		}
		if size < 0 || !f(n, value, x) {
			return false
		}
		b = b[size:]
	}
	return true
}
