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

// maxAnswer is how much of an answer is read. Chosen: it is a few words.
const maxAnswer = 64 << 10

const protobuf = "application/x-protobuf"

// A collector takes spans by OTLP over HTTP. It implements otlptrace.Client; that of otlptracehttp
// would bring gRPC, and does not tell of how many spans were rejected.
type collector struct {
	endpoint string
	header   http.Header
	client   http.Client
}

func newCollector(c *Config) *collector {
	l := &collector{endpoint: c.Endpoint, header: http.Header{}}
	for name, value := range c.Headers {
		l.header.Set(name, value)
	}
	l.header.Set("Content-Type", protobuf)
	l.header.Set("User-Agent", "headgate/"+c.Version)
	l.client = http.Client{
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: tryFor / 2}).DialContext,
			TLSHandshakeTimeout: tryFor / 2, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true,
			MaxResponseHeaderBytes: maxAnswer,
		},
		// Spans and headers belong to the collector that was named.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return l
}

// A refusal is a batch that was not taken.
type refusal struct {
	why   string
	again bool // the same may be taken later
	after time.Duration
}

func (r *refusal) Error() string { return r.why }

// A partial is a batch of which not all was taken.
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
	// On the wire this is an ExportTraceServiceRequest, whose package compiles gRPC.
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
			code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout // as OTLP says
		return &refusal{why: fmt.Sprintf("the collector answered %d %s", code, http.StatusText(code)),
			again: again, after: retryAfter(res.Header)}
	case err != nil:
		return &refusal{why: "the answer of the collector broke off", again: true}
	}
	return judge(res.Header.Get("Content-Type"), answer)
}

// retryAfter reads how long to wait, in whole seconds; it is bounded by who waits.
func retryAfter(h http.Header) time.Duration {
	n, err := strconv.ParseUint(h.Get("Retry-After"), 10, 16)
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Second
}

// judge reads what a collector says with 2xx: ExportTraceServiceResponse of OTLP 1.x. Something
// else than protobuf says nothing.
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

// eachField goes through the fields of a message: bytes have a value, numbers an x. It tells
// whether the message is whole and f was content with all.
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
