package traces

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Request records the requests to a room that next handles.
func (t *Tracer) Request(room string, next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return &requests{t: t, room: room, next: next}
}

type requests struct {
	t    *Tracer
	room string
	next http.Handler
}

// ServeHTTP implements http.Handler. The origin receives headgate's decision in the header, so that
// a stranger cannot make the origin record either.
func (q *requests) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	believed := q.t.believes(r)
	var parent trace.SpanContext
	if believed {
		parent = parentOf(r.Header)
		believed = parent.IsValid()
	}
	switch {
	case believed && !parent.IsSampled(): // it is forwarded to the origin unchanged
		q.next.ServeHTTP(w, r)
		return
	case !believed && !q.t.draws():
		r.Header[parentHeader] = []string{unsampled()}
		delete(r.Header, stateHeader)
		q.next.ServeHTTP(w, r)
		return
	}
	with := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(q.about(r)...)}
	ctx := r.Context()
	if believed {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	} else if claimed := parentOf(r.Header); claimed.IsValid() { // recorded as a link, not as the parent
		claimed = claimed.WithTraceState(trace.TraceState{})
		with = append(with, trace.WithLinks(trace.Link{SpanContext: claimed}))
	}
	method, _ := methodOf(r.Method)
	if method == otherMethod {
		method = "HTTP"
	}
	ctx, span := q.t.tracer.Start(ctx, method+" "+q.room, with...)
	v := &visit{ResponseWriter: w, span: span, began: time.Now()}
	defer v.end(r.Context())
	q.next.ServeHTTP(v, r.WithContext(context.WithValue(ctx, visitKey{}, v)))
	v.done = true
}

// about returns the attributes of a request that are known before it is answered.
func (q *requests) about(r *http.Request) []attribute.KeyValue {
	method, original := methodOf(r.Method)
	all := make([]attribute.KeyValue, 0, 16)
	all = append(all, attribute.String("headgate.room", q.room),
		attribute.String("http.request.method", method),
		attribute.String("url.scheme", scheme(r)),
		attribute.String("network.protocol.version", version(r.ProtoMajor, r.ProtoMinor)))
	if original != "" {
		all = append(all, attribute.String("http.request.method_original", text(original)))
	}
	if q.t.paths {
		all = append(all, attribute.String("url.path", text(r.URL.EscapedPath())))
	}
	return appendServer(all, r.Host)
}

func scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// appendServer adds the name and the port of a host.
func appendServer(all []attribute.KeyValue, host string) []attribute.KeyValue {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	if n, err := strconv.ParseUint(port, 10, 16); err == nil {
		all = append(all, attribute.Int("server.port", int(n)))
	}
	return append(all, attribute.String("server.address", text(name)))
}

func version(major, minor int) string {
	if major >= 2 {
		return strconv.Itoa(major)
	}
	return strconv.Itoa(major) + "." + strconv.Itoa(minor)
}

// otherMethod replaces unknown methods, so that strangers cannot invent attribute values.
const otherMethod = "_OTHER"

// methodOf returns the method to record, and the original one if it differs.
func methodOf(s string) (method, original string) {
	switch s {
	case "":
		return http.MethodGet, ""
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return s, ""
	}
	return otherMethod, s
}

// A visit is a recorded request and the writer of its answer.
type visit struct {
	http.ResponseWriter
	span   trace.Span
	began  time.Time
	status int

	decided time.Duration // from began until the room decided; 0: not yet
	state   string        // how it passed, "" if it did not
	done    bool          // the handler has returned; else it panicked
}

type visitKey struct{}

// Unwrap gives http.ResponseController access to the deadlines.
func (v *visit) Unwrap() http.ResponseWriter { return v.ResponseWriter }

// WriteHeader records the status.
func (v *visit) WriteHeader(code int) {
	if code >= 200 || code == http.StatusSwitchingProtocols {
		v.note(code)
	}
	v.ResponseWriter.WriteHeader(code)
}

func (v *visit) Write(b []byte) (int, error) {
	v.note(http.StatusOK)
	return v.ResponseWriter.Write(b)
}

// FlushError sends the buffered data, at least the headers.
func (v *visit) FlushError() error {
	v.note(http.StatusOK)
	return http.NewResponseController(v.ResponseWriter).Flush()
}

// Flush is FlushError for handlers that use http.Flusher.
func (v *visit) Flush() { v.FlushError() }

// Hijack takes over the connection.
func (v *visit) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(v.ResponseWriter).Hijack()
	if err == nil {
		v.note(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

func (v *visit) note(code int) {
	if v.status == 0 {
		v.status = code
	}
	v.decide()
}

func (v *visit) decide() {
	if v.decided == 0 {
		v.decided = max(1, time.Since(v.began))
	}
}

// end ends the span. It is deferred, because a proxy panics when a response breaks off.
func (v *visit) end(ctx context.Context) {
	if v.done && v.status == 0 {
		v.status = http.StatusOK // net/http sends it for a silent handler
	}
	v.decide()
	waits := v.Header().Get("Headgate-State")
	state := v.state
	switch {
	case state != "":
	case waits != "":
		state = waits
	default: // headgate's own paths, such as /.headgate/jwks.json
		state = "own"
	}
	v.span.SetAttributes(attribute.String("headgate.state", text(state)),
		attribute.Float64("headgate.decided_seconds", v.decided.Seconds()))
	if v.status > 0 {
		v.span.SetAttributes(attribute.Int("http.response.status_code", v.status))
	}
	switch {
	case !v.done && ctx.Err() == nil:
		failed(v.span, "aborted")
	case v.status >= 500 && (v.state != "" || waits == ""): // for waiting visitors this is no error
		failed(v.span, strconv.Itoa(v.status))
	}
	v.span.End()
}

func failed(span trace.Span, why string) {
	span.SetAttributes(attribute.String("error.type", why))
	span.SetStatus(codes.Error, "")
}

// Inside wraps the handler of admitted requests. state returns how a request was admitted, from the
// writer that the room passes on.
func (t *Tracer) Inside(state func(http.ResponseWriter) string, next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if v, ok := r.Context().Value(visitKey{}).(*visit); ok {
			v.decide()
			v.state = state(w)
		}
		next.ServeHTTP(w, r)
	})
}
