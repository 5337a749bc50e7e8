// Package tracestest is a collector for tests: it takes spans by OTLP over HTTP, decodes them with
// OpenTelemetry's own types and keeps them.
//
// A Collector may be used by many goroutines at once. It keeps all in memory and forgets nothing.
package tracestest

import (
	"fmt"
	"io"
	"net/http"
	"sync"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Path is where spans are taken.
const Path = "/v1/traces"

// A Collector is the http.Handler of a collector. The zero Collector takes all.
type Collector struct {
	// Instead answers a request in the place of the collector if it returns true. It may be set
	// before the first request only.
	Instead func(w http.ResponseWriter, r *http.Request) bool

	mu       sync.Mutex
	spans    []*tracepb.Span
	about    map[string]string
	header   http.Header
	requests int
	faults   []error
}

// ServeHTTP takes a request as OTLP 1.x has it.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.requests++
	c.mu.Unlock()
	if c.Instead != nil && c.Instead(w, r) {
		return
	}
	body, err := io.ReadAll(r.Body)
	got := &tracepb.TracesData{}
	if err == nil {
		err = proto.Unmarshal(body, got)
	}
	if err == nil && (r.URL.Path != Path || r.Method != http.MethodPost ||
		r.Header.Get("Content-Type") != "application/x-protobuf") {
		err = fmt.Errorf("%s %s with %q", r.Method, r.URL.Path, r.Header.Get("Content-Type"))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.faults = append(c.faults, err)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.header = r.Header
	for _, of := range got.ResourceSpans {
		c.about = Texts(of.Resource.GetAttributes())
		for _, scope := range of.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// Spans are those that were taken so far, in the order in which they came.
func (c *Collector) Spans() []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*tracepb.Span(nil), c.spans...)
}

// About is what the newest batch says of who sent it, and Header that of its request.
func (c *Collector) About() (attributes map[string]string, header http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.about, c.header
}

// Requests counts the batches that came, those that were not taken included; the error is the
// first of what was no OTLP.
func (c *Collector) Requests() (n int, fault error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.faults) > 0 {
		fault = c.faults[0]
	}
	return c.requests, fault
}

// Texts are attributes as text.
func Texts(of []*commonpb.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range of {
		switch v := a.Value.GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			all[a.Key] = v.StringValue
		case *commonpb.AnyValue_ArrayValue:
			for _, x := range v.ArrayValue.GetValues() {
				all[a.Key] += x.GetStringValue() + " "
			}
		case *commonpb.AnyValue_IntValue:
			all[a.Key] = fmt.Sprint(v.IntValue)
		case *commonpb.AnyValue_BoolValue:
			all[a.Key] = fmt.Sprint(v.BoolValue)
		case *commonpb.AnyValue_DoubleValue:
			all[a.Key] = fmt.Sprint(v.DoubleValue)
		}
	}
	return all
}
