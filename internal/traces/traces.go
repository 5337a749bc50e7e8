// Package traces says what became of requests and deliveries: it records spans of some of them
// and sends them to a collector of OpenTelemetry, by OTLP over HTTP.
//
// # The promise
//
// Whoever asks from outside cannot decide what is recorded: what a stranger's traceparent says is
// not followed, only that of a peer that is named. No request ever waits for the collector: what
// does not fit into a bounded queue is dropped and counted. Nothing of a visitor is recorded: no
// address, cookie, header, query or key of a limit.
//
// # Concurrency and cost
//
// All methods but Run may be called by many goroutines at once. A nil *Tracer is tracing that is
// off: it gives back what it was to stand in front of, so that nothing is in the way of a request.
// A request that is not recorded costs a random number and the header that tells the origin so.
// Run owns the one goroutine that sends.
//
// # What it does not do
//
// It has no metrics and no logs, sets no global of OpenTelemetry, and does not follow a request
// between nodes of a cluster.
package traces

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Config says what is recorded, and where it goes. Only Endpoint is needed.
type Config struct {
	// Endpoint is where the collector takes spans: the whole URL, http or https.
	Endpoint string

	// Headers are sent with each batch. They may hold a secret.
	Headers map[string]string

	// Sample is the part that is recorded of what has no parent that is believed: 0 to 1.
	Sample float64

	// Parents are the peers whose traceparent is believed: they have made or checked it.
	Parents []netip.Prefix

	// Paths lets the paths of addresses be recorded.
	Paths bool

	// Service, Version and Node name this process. Service is by default what the environment
	// says in OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES, else headgate.
	Service, Version, Node string

	// Log is told when the collector stops and begins again to take spans. Nil: nobody.
	Log *slog.Logger
}

// A Tracer records spans. Its Run should be running.
type Tracer struct {
	sample  uint64 // of 1<<53
	parents []netip.Prefix
	paths   bool
	tracer  trace.Tracer
	sender  *sender
}

// Bounds of a span. Chosen: nothing that is recorded has more, but the text of strangers.
const (
	maxAttributes = 32
	maxText       = 256 // characters of one value
)

const sampleBits = 53 // a float64 holds so many exactly

// New checks c and makes a Tracer. It connects to nothing and starts nothing.
func New(c Config) (*Tracer, error) {
	u, err := url.Parse(c.Endpoint)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, errors.New("traces: the endpoint is not the URL of a collector") // it may hold a secret
	case !(c.Sample >= 0 && c.Sample <= 1):
		return nil, errors.New("traces: the sample is not between 0 and 1")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	t := &Tracer{sample: uint64(c.Sample * (1 << sampleBits)), parents: c.Parents, paths: c.Paths,
		sender: newSender(&c)}
	provider := sdk.NewTracerProvider(
		sdk.WithSampler(sdk.AlwaysSample()), // what gets there is to be recorded
		sdk.WithSpanProcessor(t.sender),
		sdk.WithResource(about(&c)),
		sdk.WithRawSpanLimits(sdk.SpanLimits{AttributeValueLengthLimit: maxText,
			AttributeCountLimit: maxAttributes, LinkCountLimit: 1, AttributePerLinkCountLimit: 1}),
	)
	t.tracer = provider.Tracer("github.com/headgate/headgate", trace.WithInstrumentationVersion(c.Version))
	return t, nil
}

// about describes this process.
func about(c *Config) *resource.Resource {
	var of []attribute.KeyValue
	if said := resource.Environment().Set(); c.Service == "" && !said.HasValue("service.name") {
		c.Service = "headgate"
	}
	for _, a := range []attribute.KeyValue{attribute.String("service.name", c.Service),
		attribute.String("service.version", c.Version), attribute.String("service.instance.id", c.Node)} {
		if a.Value.AsString() != "" {
			of = append(of, a)
		}
	}
	return resource.NewSchemaless(of...)
}

// Run sends what is recorded until ctx ends, and then what is left, for at most flushFor.
func (t *Tracer) Run(ctx context.Context) {
	if t != nil {
		t.sender.run(ctx)
	}
}

// Totals count spans since the start.
type Totals struct {
	Sent    uint64 // taken by the collector
	Full    uint64 // dropped: the queue was full
	Refused uint64 // dropped: the collector did not take them
	Ended   uint64 // dropped: the process ended before they were sent
}

// Totals tells what became of the spans so far; ok is false if traces are off.
func (t *Tracer) Totals() (n Totals, ok bool) {
	if t == nil {
		return n, false
	}
	s := t.sender
	return Totals{s.sent.Load(), s.full.Load(), s.refused.Load(), s.ended.Load()}, true
}

// draws decides whether something without a parent that is believed is recorded.
func (t *Tracer) draws() bool { return rand.Uint64()>>(64-sampleBits) < t.sample }

// believes tells whether the parent that a request names was made or checked by its peer.
func (t *Tracer) believes(r *http.Request) bool {
	if len(t.parents) == 0 {
		return false
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	addr := peer.Addr().Unmap().WithZone("")
	for _, p := range t.parents {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// The headers of W3C Trace Context, as a map of headers spells them.
const (
	parentHeader = "Traceparent"
	stateHeader  = "Tracestate"
)

// parentOf reads the parent that headers name; it is not valid if there is none, or two.
func parentOf(h http.Header) trace.SpanContext {
	if len(h[parentHeader]) != 1 {
		return trace.SpanContext{}
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.HeaderCarrier(h))
	return trace.SpanContextFromContext(ctx)
}

// inject names the span of ctx as the parent.
func inject(ctx context.Context, h http.Header) {
	delete(h, parentHeader)
	delete(h, stateHeader)
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
}

const hexDigits = "0123456789abcdef"

// unsampled is a traceparent of a trace that nobody records.
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

// text makes something that a stranger wrote fit for protobuf, which takes UTF-8 alone: else a
// whole batch would be lost for one broken byte.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
