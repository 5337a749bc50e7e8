package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/traces"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/ratelimit"
)

// newTraces returns the tracer, or nil if tracing is off.
func newTraces(c *config.Traces, node string, log *slog.Logger) (*traces.Tracer, error) {
	if c == nil {
		return nil, nil
	}
	headers := map[string]string{}
	for _, h := range c.Headers {
		name, value, _ := strings.Cut(h, ": ")
		headers[name] = value
	}
	t, err := traces.New(traces.Config{Endpoint: c.Endpoint, Headers: headers, Sample: c.Sample,
		Parents: c.Parents, Paths: c.Paths, Service: c.Service, Version: readBuild().version, Node: node,
		Log: log})
	if err != nil {
		return nil, fmt.Errorf("open traces: %w", err)
	}
	return t, nil
}

// around returns the wrapper that traces requests to origins and targets, or nil if tracing is off.
func (s *Server) around() func(http.RoundTripper) http.RoundTripper {
	if s.traces == nil {
		return nil
	}
	return s.traces.Transport
}

// passedAs returns how a request passed a room.
func passedAs(w http.ResponseWriter) string {
	if wire.InSession(w) {
		return "active"
	}
	return "bypass" // excluded, suspended, in shadow mode or by a rule
}

// asked returns the limits as they are used by requests of rooms.
func (l *callLimits) asked() ratelimit.Checker {
	if l.traces == nil {
		return l.Rules
	}
	return &tracedRules{Checker: l.Rules, traces: l.traces}
}

// tracedRules records the results of limits for requests that are traced. It records names of
// limits, and never keys.
type tracedRules struct {
	ratelimit.Checker
	traces *traces.Tracer
}

// Allow implements ratelimit.Checker.
func (l *tracedRules) Allow(ctx context.Context, a ratelimit.Check) (ratelimit.Result, error) {
	if !l.traces.Records(ctx) {
		return l.Checker.Allow(ctx, a)
	}
	end := l.traces.Limits(ctx, []string{a.Limit})
	v, err := l.Checker.Allow(ctx, a)
	end(limitAnswer([]ratelimit.Check{a}, []ratelimit.Result{v}, err))
	return v, err
}

// AllowAll implements ratelimit.Checker.
func (l *tracedRules) AllowAll(
	ctx context.Context, asks []ratelimit.Check, all bool,
) ([]ratelimit.Result, error) {
	if !l.traces.Records(ctx) {
		return l.Checker.AllowAll(ctx, asks, all)
	}
	names := make([]string, len(asks))
	for i := range asks {
		names[i] = asks[i].Limit
	}
	end := l.traces.Limits(ctx, names)
	vs, err := l.Checker.AllowAll(ctx, asks, all)
	end(limitAnswer(asks, vs, err))
	return vs, err
}

// Reserve implements ratelimit.Checker.
func (l *tracedRules) Reserve(
	ctx context.Context, a ratelimit.Check, ttl time.Duration,
) (ratelimit.Result, error) {
	if !l.traces.Records(ctx) {
		return l.Checker.Reserve(ctx, a, ttl)
	}
	end := l.traces.Limits(ctx, []string{a.Limit})
	v, err := l.Checker.Reserve(ctx, a, ttl)
	end(limitAnswer([]ratelimit.Check{a}, []ratelimit.Result{v}, err))
	return v, err
}

// limitAnswer returns what a span shows of a decision. Keys are left out: they may be addresses or
// secrets.
func limitAnswer(asks []ratelimit.Check, vs []ratelimit.Result, err error) *traces.LimitAnswer {
	a := &traces.LimitAnswer{}
	switch {
	case err == nil:
	case errors.Is(err, ratelimit.ErrUnreachable):
		a.Err = "unreachable"
	case errors.Is(err, ratelimit.ErrNoLimit):
		a.Err = "no_limit"
	default:
		a.Err = "_OTHER"
	}
	for i := range min(len(vs), len(asks)) {
		v := &vs[i]
		switch {
		case err != nil:
		case !v.Allowed:
			a.Refused = append(a.Refused, asks[i].Limit)
		case v.Exceeded:
			a.Exceeded = append(a.Exceeded, asks[i].Limit)
		}
		a.Wait = max(a.Wait, v.Wait)
	}
	return a
}
