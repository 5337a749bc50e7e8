package envoy

import (
	"math"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// answer converts the result to Envoy's message.
func (c *call) answer(h Headers) *pb.RateLimitResponse {
	statuses := make([]pb.RateLimitResponse_DescriptorStatus, len(c.lines))
	r := &pb.RateLimitResponse{
		OverallCode: pb.RateLimitResponse_OK,
		Statuses:    make([]*pb.RateLimitResponse_DescriptorStatus, len(c.lines)),
	}
	if c.over {
		r.OverallCode = pb.RateLimitResponse_OVER_LIMIT
	}
	for i := range c.lines {
		c.lines[i].fill(&statuses[i])
		r.Statuses[i] = &statuses[i]
	}
	r.ResponseHeadersToAdd = h.of(c)
	return r
}

// fill sets the status of a line.
func (l *line) fill(s *pb.RateLimitResponse_DescriptorStatus) {
	s.Code = pb.RateLimitResponse_OK
	switch {
	case l.rule == nil:
		return
	case l.rule.unlimited:
		s.LimitRemaining = math.MaxUint32
		return
	case l.over:
		s.Code = pb.RateLimitResponse_OVER_LIMIT
	}
	s.CurrentLimit = l.current()
	s.LimitRemaining = uint32(min(max(0, l.verdict.Remaining), math.MaxUint32))
	s.DurationUntilReset = durationpb.New(l.verdict.Reset)
}

// current returns the limit of a line that is in force now. Operators can change limits at run
// time.
func (l *line) current() *pb.RateLimitResponse_RateLimit {
	shown, in := l.rule.shown, l.verdict.Limit
	if in == nil {
		return shown
	}
	amount, own := in.Overrides[l.ask.Key]
	if !own {
		amount = in.Amount
	}
	amount = min(amount, math.MaxUint32)
	if amount == int64(shown.GetRequestsPerUnit()) && in.Window == l.rule.window {
		return shown
	}
	now := &pb.RateLimitResponse_RateLimit{RequestsPerUnit: uint32(amount), Unit: shown.GetUnit(),
		UnitMultiplier: shown.GetUnitMultiplier(), Name: shown.GetName()}
	if in.Window != l.rule.window {
		now.Unit, now.UnitMultiplier = unitOf(in.Window)
	}
	return now
}

// unitOf returns a window as a unit and a multiplier. A window that is not a number of whole
// seconds has none.
func unitOf(window time.Duration) (pb.RateLimitResponse_RateLimit_Unit, *wrapperspb.UInt32Value) {
	for _, u := range [...]pb.RateLimitResponse_RateLimit_Unit{pb.RateLimitResponse_RateLimit_DAY,
		pb.RateLimitResponse_RateLimit_HOUR, pb.RateLimitResponse_RateLimit_MINUTE,
		pb.RateLimitResponse_RateLimit_SECOND} {
		switch unit, _ := windowOf(u); {
		case window == unit:
			return u, nil
		case window%unit == 0:
			return u, wrapperspb.UInt32(uint32(window / unit)) // fits: 366 days have fewer than 2^32 seconds
		}
	}
	return pb.RateLimitResponse_RateLimit_UNKNOWN, nil
}

// Headers are the names of the headers that Envoy adds to its responses. A header with the name ""
// is not sent. Limit, Remaining and Reset describe the descriptor that is over its limit or has
// least left. RetryAfter is sent when a call is rejected, unless the call can never pass.
type Headers struct {
	Limit, Remaining, Reset string
	RetryAfter              string
}

// StandardHeaders returns the default names of the reference
// (draft-ietf-httpapi-ratelimit-headers-03 to 06), and Retry-After (RFC 9110 §10.2.3).
func StandardHeaders() Headers {
	return Headers{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining",
		Reset: "RateLimit-Reset", RetryAfter: "Retry-After"}
}

// of returns the headers for an answer.
func (h Headers) of(c *call) []*core.HeaderValue {
	if h == (Headers{}) {
		return nil
	}
	var all []*core.HeaderValue
	add := func(name string, value int64) {
		if name != "" {
			all = append(all, &core.HeaderValue{Key: name, Value: strconv.FormatInt(value, 10)})
		}
	}
	if l := c.tightest(); l != nil {
		add(h.Limit, int64(l.current().GetRequestsPerUnit()))
		add(h.Remaining, max(0, l.verdict.Remaining))
		add(h.Reset, wholeSeconds(l.verdict.Reset))
	}
	if wait := c.retry(); c.over && wait < never {
		add(h.RetryAfter, max(1, wholeSeconds(wait)))
	}
	return all
}

// tightest returns the line that is over its limit or has least left. It returns nil if nothing is
// limited.
func (c *call) tightest() *line {
	var found *line
	for i := range c.lines {
		l := &c.lines[i]
		switch {
		case !l.limited():
		case found == nil, l.over && !found.over,
			l.over == found.over && l.verdict.Remaining < found.verdict.Remaining:
			found = l
		}
	}
	return found
}

// never is longer than any wait.
const never time.Duration = math.MaxInt64

// retry returns how long the call cannot pass: the longest wait, where quotas together count as
// their shortest one.
func (c *call) retry() time.Duration {
	var longest time.Duration
	shortest := never
	quotas := false
	for i := range c.lines {
		switch l := &c.lines[i]; {
		case !l.limited() || l.cost < 0:
		case l.rule.quota:
			shortest, quotas = min(shortest, l.wait()), true
		default:
			longest = max(longest, l.wait())
		}
	}
	if quotas {
		longest = max(longest, shortest)
	}
	return longest
}

// wait returns how long a line stays over its limit.
func (l *line) wait() time.Duration {
	switch {
	case !l.over:
		return 0
	case l.cost > l.verdict.Amount, l.verdict.Amount == 0, l.verdict.Retry < 0:
		return never
	case l.ask.Cost == 0: // the limiter does not know the cost: by then all is free
		return l.verdict.Reset
	}
	return l.verdict.Retry
}

// wholeSeconds rounds up, so that a client that waits this long is not too early.
func wholeSeconds(d time.Duration) int64 { return int64((max(0, d) + time.Second - 1) / time.Second) }
