package traces

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate/queue"
)

// Transport records the requests that next sends while handling a recorded request, and passes the
// trace context on. It changes the headers of its requests, so these must be copies. A span ends
// when the response headers arrive.
func (t *Tracer) Transport(next http.RoundTripper) http.RoundTripper {
	if t == nil {
		return next
	}
	return &transport{t: t, next: next}
}

type transport struct {
	t    *Tracer
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (o *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !o.t.Records(r.Context()) {
		return o.next.RoundTrip(r)
	}
	method, original := methodOf(r.Method)
	all := make([]attribute.KeyValue, 0, 8)
	all = append(all, attribute.String("http.request.method", method),
		attribute.String("url.full", text(o.address(r.URL))))
	if original != "" {
		all = append(all, attribute.String("http.request.method_original", text(original)))
	}
	name := method
	if method == otherMethod {
		name = "HTTP"
	}
	ctx, span := o.t.tracer.Start(r.Context(), name, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(appendServer(all, withPort(r.URL))...))
	defer span.End()
	inject(ctx, r.Header)
	res, err := o.next.RoundTrip(r)
	if err != nil {
		failed(span, kind(r.Context(), err))
		return res, err
	}
	span.SetAttributes(attribute.Int("http.response.status_code", res.StatusCode),
		attribute.String("network.protocol.version", version(res.ProtoMajor, res.ProtoMinor)))
	if res.StatusCode >= 400 {
		failed(span, strconv.Itoa(res.StatusCode))
	}
	return res, err
}

// address is where a request goes, without what may be secret: a query, a name and a password.
func (o *transport) address(u *url.URL) string {
	said := u.Scheme + "://" + u.Host
	if o.t.paths {
		said += u.EscapedPath()
	}
	return said
}

func withPort(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Host
	case u.Scheme == "https":
		return net.JoinHostPort(u.Hostname(), "443")
	}
	return net.JoinHostPort(u.Hostname(), "80")
}

// kind maps an error to one of a few words, because its own text may contain addresses.
func kind(ctx context.Context, err error) string {
	op, dial := errors.AsType[*net.OpError](err)
	slow, timed := errors.AsType[net.Error](err)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return "canceled"
	case timed && slow.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case dial && op.Op == "dial":
		return "connect"
	}
	return "_OTHER"
}

// A LimitAnswer is the result of checking the limits of a call.
type LimitAnswer struct {
	Refused  []string // limits that rejected the call
	Exceeded []string // limits that the call exceeds, and passes because they are soft or in shadow mode
	Wait     time.Duration
	Err      string // why the check failed, one of a few words; "": it did not
}

// Records reports whether the request of ctx is recorded.
func (t *Tracer) Records(ctx context.Context) bool {
	return t != nil && trace.SpanFromContext(ctx).IsRecording()
}

// Limits starts to record a joint check of limits, by their names, for the request of ctx.
func (t *Tracer) Limits(ctx context.Context, names []string) (end func(*LimitAnswer)) {
	_, span := t.tracer.Start(ctx, "limit "+strings.Join(names, " "),
		trace.WithAttributes(attribute.StringSlice("headgate.limits", names)))
	return func(a *LimitAnswer) {
		span.SetAttributes(attribute.Bool("headgate.limits.allowed", len(a.Refused) == 0 && a.Err == ""))
		if len(a.Refused) > 0 {
			span.SetAttributes(attribute.StringSlice("headgate.limits.refused_by", a.Refused))
		}
		if len(a.Exceeded) > 0 {
			span.SetAttributes(attribute.StringSlice("headgate.limits.exceeded", a.Exceeded))
		}
		if a.Wait > 0 {
			span.SetAttributes(attribute.Float64("headgate.limits.wait_seconds", a.Wait.Seconds()))
		}
		if a.Err != "" {
			failed(span, a.Err)
		}
		span.End()
	}
}

// ParentIn returns the traceparent of an API request whose sender was authenticated by a token. It
// returns "" unless traces are on and the sender records the trace.
func (t *Tracer) ParentIn(h http.Header) string {
	if t == nil || !parentOf(h).IsSampled() {
		return ""
	}
	return h.Get(parentHeader)
}

// Deliveries records the delivery of jobs to the target of a queue. If the job was put with a
// traceparent header, the delivery is recorded in its own trace, linked to that one: the job may
// have waited for hours.
func (t *Tracer) Deliveries(next queue.Handler) queue.Handler {
	if t == nil {
		return next
	}
	return &deliveries{t: t, next: next}
}

type deliveries struct {
	t    *Tracer
	next queue.Handler
}

// Deliver implements queue.Handler.
func (d *deliveries) Deliver(ctx context.Context, j *queue.Job) queue.Outcome {
	put := putBy(j)
	if !put.IsSampled() && !d.t.draws() {
		return d.next.Deliver(ctx, j)
	}
	with := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.String("messaging.system", "headgate"),
		attribute.String("messaging.destination.name", j.Queue),
		attribute.String("messaging.operation.type", "process"),
		attribute.String("messaging.operation.name", "deliver"),
		attribute.String("messaging.message.id", j.ID),
		attribute.Int("headgate.attempt", j.Attempt))}
	if !j.Enqueued.IsZero() {
		with = append(with, trace.WithAttributes(
			attribute.Float64("headgate.queued_seconds", max(0, time.Since(j.Enqueued)).Seconds())))
	}
	if put.IsValid() {
		with = append(with, trace.WithLinks(trace.Link{SpanContext: put}))
	}
	ctx, span := d.t.tracer.Start(ctx, "deliver "+j.Queue, with...)
	defer span.End()
	out := d.next.Deliver(ctx, j)
	switch {
	case out.Err == nil:
	case out.Busy:
		failed(span, "busy")
	case out.Retry:
		failed(span, "again")
	default:
		failed(span, "dead")
	}
	return out
}

// putBy returns the span that put a job; it is invalid if none is known.
func putBy(j *queue.Job) trace.SpanContext {
	for name, value := range j.Headers {
		if len(name) == len(parentHeader) && strings.EqualFold(name, parentHeader) {
			ctx := propagation.TraceContext{}.Extract(context.Background(),
				propagation.MapCarrier{"traceparent": value})
			return trace.SpanContextFromContext(ctx)
		}
	}
	return trace.SpanContext{}
}
