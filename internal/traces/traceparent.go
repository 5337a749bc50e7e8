package traces

import (
	"context"
	"math/rand/v2"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// These are the headers of W3C Trace Context, in Go's canonical form.
const (
	parentHeader = "Traceparent"
	stateHeader  = "Tracestate"
)

// parentOf reads the parent from headers; it is invalid if there is none, or two.
func parentOf(h http.Header) trace.SpanContext {
	if len(h[parentHeader]) != 1 {
		return trace.SpanContext{}
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.HeaderCarrier(h))
	return trace.SpanContextFromContext(ctx)
}

// inject sets the span of ctx as the parent.
func inject(ctx context.Context, h http.Header) {
	delete(h, parentHeader)
	delete(h, stateHeader)
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
}

const hexDigits = "0123456789abcdef"

// unsampled returns a traceparent of a trace that is not recorded.
func unsampled() string {
	b := [55]byte{}
	copy(b[:], "00-00000000000000000000000000000000-0000000000000000-00")
	putHex(b[3:19], rand.Uint64())
	putHex(b[19:35], rand.Uint64()|1) // an id is never all zeros
	putHex(b[36:52], rand.Uint64()|1)
	return string(b[:])
}

func putHex(b []byte, x uint64) {
	for i := range b {
		b[i] = hexDigits[x&15]
		x >>= 4
	}
}
