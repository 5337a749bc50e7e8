package envoy

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/ratelimit"
)

// Limits of a call. Chosen: Envoy sends one descriptor for each action list of a route, so only a
// few.
const (
	maxDescriptors = 1000
	maxEntries     = 100
	maxAllEntries  = 10_000 // of all descriptors
)

// A call is the state of one request.
type call struct {
	lines []line
	over  bool
}

// A line is the state of one descriptor.
type line struct {
	rule    *rule // nil: not limited
	cost    int64 // 0 only queries, a negative cost returns
	ask     ratelimit.Check
	verdict ratelimit.Result
	over    bool
}

// limited reports whether the limiter decides about the line.
func (l *line) limited() bool { return l.rule != nil && !l.rule.unlimited }

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}
