// Package traces records what happens to requests and deliveries: it creates spans for some of them
// and sends them to an OpenTelemetry collector, by OTLP over HTTP.
//
// # The promise
//
// Outside clients cannot decide what is recorded: the traceparent of a stranger is not followed,
// only that of a configured peer. No request ever waits for the collector: spans that do not fit
// into a bounded queue are dropped and counted. Nothing about a visitor is recorded: no address,
// cookie, header, query or key of a limit.
//
// # Concurrency and cost
//
// All methods except Run may be called by many goroutines at once. A nil *Tracer means that tracing
// is off: it returns the wrapped handlers unchanged, so that tracing costs nothing. A request that
// is not recorded costs a random number and the header that reports this to the origin. Run owns
// the one goroutine that sends.
//
// # What it does not do
//
// It has no metrics and no logs, sets no OpenTelemetry global, and does not follow a request
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
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// A Config defines what is recorded, and where it is sent. Only Endpoint is required.
type Config struct {
	// Endpoint is the full URL at which the collector accepts spans, http or https.
	Endpoint string

	// Headers are sent with each batch. They may contain a secret.
	Headers map[string]string

	// Sample is the share, 0 to 1, of requests and jobs without a trusted parent that is recorded.
	Sample float64

	// Parents are the peers whose traceparent is trusted: they have created or checked it.
	Parents []netip.Prefix

	// Paths records URL paths.
	Paths bool

	// Service, Version and Node name this process. Service defaults to OTEL_SERVICE_NAME or
	// OTEL_RESOURCE_ATTRIBUTES of the environment, else headgate.
	Service, Version, Node string

	// Log receives a line when the collector stops and when it resumes accepting spans. Nil: no
	// log.
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

// These constants limit a span. Chosen: only text from strangers can be longer.
const (
	maxAttributes = 32
	maxText       = 256 // characters of one value
)

const sampleBits = 53 // a float64 holds this many bits exactly

// New checks c and returns a Tracer. It connects to nothing and starts nothing.
func New(c Config) (*Tracer, error) {
	u, err := url.Parse(c.Endpoint)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, errors.New("traces: the endpoint is not the URL of a collector") // it may contain a secret
	case !(c.Sample >= 0 && c.Sample <= 1):
		return nil, errors.New("traces: the sample is not between 0 and 1")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	t := &Tracer{sample: uint64(c.Sample * (1 << sampleBits)), parents: c.Parents, paths: c.Paths,
		sender: newSender(newCollector(c.Endpoint, c.Headers, c.Version), c.Log)}
	provider := sdk.NewTracerProvider(
		sdk.WithSampler(sdk.AlwaysSample()), // spans are created only for what is recorded
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

// Run sends recorded spans until ctx ends, and then the rest, for at most flushFor.
func (t *Tracer) Run(ctx context.Context) {
	if t != nil {
		t.sender.run(ctx)
	}
}

// Totals count spans since the start.
type Totals struct {
	Sent    uint64 // accepted by the collector
	Full    uint64 // dropped: the queue was full
	Refused uint64 // dropped: the collector rejected them
	Ended   uint64 // dropped: the process ended before they were sent
}

// Totals returns the counts of spans so far; ok is false if traces are off.
func (t *Tracer) Totals() (n Totals, ok bool) {
	if t == nil {
		return n, false
	}
	s := t.sender
	return Totals{s.sent.Load(), s.full.Load(), s.refused.Load(), s.ended.Load()}, true
}

// draws decides at random whether to record something without a trusted parent.
func (t *Tracer) draws() bool { return rand.Uint64()>>(64-sampleBits) < t.sample }

// believes reports whether the parent named by a request was created or checked by a trusted peer.
func (t *Tracer) believes(r *http.Request) bool {
	if len(t.parents) == 0 {
		return false
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	addr := peer.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(t.parents, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// text makes a stranger's text valid UTF-8. Protobuf accepts nothing else, and one invalid byte
// would lose a whole batch.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
