package envoy

import (
	"math"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// Headers are the names of the headers that Envoy adds to what it answers; "" leaves one out.
// Limit, Remaining and Reset are those of the descriptor that is over its limit or has least
// left. RetryAfter is sent with a refusal, unless the call could never pass.
type Headers struct {
	Limit, Remaining, Reset string
	RetryAfter              string
}

// StandardHeaders are the names that the reference has by default (draft-ietf-httpapi-
// ratelimit-headers-03 to 06), and Retry-After (RFC 9110 §10.2.3).
func StandardHeaders() Headers {
	return Headers{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining",
		Reset: "RateLimit-Reset", RetryAfter: "Retry-After"}
}

// of makes the headers of an answer.
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

// tightest is the line that is over its limit or has least left, nil when nothing is limited.
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

// never is longer than every wait.
const never time.Duration = math.MaxInt64

// retry is how long nothing lets the call pass: the longest wait, of quotas the shortest.
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

// wait is how long a line is over its limit.
func (l *line) wait() time.Duration {
	switch {
	case !l.over:
		return 0
	case l.cost > l.verdict.Amount, l.verdict.Amount == 0, l.verdict.Retry < 0:
		return never
	case l.ask.Cost == 0: // the limiter was not told what it costs: by then all is there
		return l.verdict.Reset
	}
	return l.verdict.Retry
}

// wholeSeconds rounds up, so that who waits that long does not come too early.
func wholeSeconds(d time.Duration) int64 { return int64((max(0, d) + time.Second - 1) / time.Second) }
