package envoy

import (
	"math"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

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
