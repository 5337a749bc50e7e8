package envoy

import (
	"context"
	"errors"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/ratelimit"
)

// Limits of a call. Chosen: Envoy sends one descriptor for each action list of a route, so only a
// few.
const (
	maxDescriptors = 1000
	maxEntries     = 100
	maxAllEntries  = 10_000 // of all descriptors
)

// A Config configures a Service.
type Config struct {
	Rules   *Rules            // the meaning of descriptors; nil means no rules
	Limiter ratelimit.Checker // has the limits of Rules, and accepts those of Brought
	Headers Headers           // headers that Envoy adds to its responses; default none
	Waits   bool              // Limiter may block, for example on the host of a key
	Decide  http.Handler      // decides about requests that Envoy asks about; nil answers none
}

// A Service answers calls of Envoy.
type Service struct {
	limiter   ratelimit.Checker
	overrides overrides
	headers   Headers
	waits     bool
	decide    http.Handler
	rules     atomic.Pointer[Rules]
}

// New returns a Service. It starts no goroutine.
func New(c Config) *Service {
	s := &Service{limiter: c.Limiter, headers: c.Headers, waits: c.Waits, decide: c.Decide}
	s.SetRules(c.Rules)
	return s
}

// SetRules replaces the rules for all later calls. The limiter must already have their limits.
func (s *Service) SetRules(r *Rules) {
	if r == nil {
		r = &Rules{}
	}
	s.rules.Store(r)
}

// ShouldRateLimit decides whether a request may pass, and returns the status of each descriptor in
// order. The code is OVER_LIMIT if a status is, where limits with quota_mode count only if all of
// them are over; then nothing is taken. A failure of the limiter is the gRPC code Unavailable,
// because Envoy lets a request pass after Unknown, whatever its failure_mode_deny is.
func (s *Service) ShouldRateLimit(ctx context.Context,
	req *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	c, err := s.read(req)
	if err == nil {
		err = c.decide(ctx, s.limiter)
	}
	if err != nil {
		return nil, failure(err)
	}
	return c.answer(s.headers), nil
}

// failure returns the gRPC status for an error.
func failure(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	code := codes.Unavailable
	switch {
	case errors.Is(err, ratelimit.ErrKey), errors.Is(err, ratelimit.ErrCost):
		code = codes.InvalidArgument
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	}
	return status.Error(code, err.Error())
}

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

// read checks a request and finds the limits of its descriptors.
func (s *Service) read(req *pb.RateLimitRequest) (*call, error) {
	all := req.GetDescriptors()
	switch {
	case req.GetDomain() == "": // these two cases as in src/service/ratelimit.go
		return nil, invalid("rate limit domain must not be empty")
	case len(all) == 0:
		return nil, invalid("rate limit descriptor list must not be empty")
	case len(all) > maxDescriptors:
		return nil, invalid("more than %d descriptors", maxDescriptors)
	}
	c := &call{lines: make([]line, len(all))}
	known := s.rules.Load().domains[req.GetDomain()]
	var space [256]byte
	key := space[:0]
	for i, desc := range all {
		l := &c.lines[i]
		var err error
		if l.cost, err = cost(i, desc, req.GetHitsAddend()); err != nil {
			return nil, err
		}
		if known == nil {
			continue
		}
		key = key[:0]
		if over := desc.GetLimit(); over != nil {
			key = appendEntry(key, "", req.GetDomain()) // no entry has an empty key
			for _, e := range desc.GetEntries() {
				key = appendEntry(key, e.GetKey(), e.GetValue())
			}
			l.rule, err = s.overrides.rule(i, over)
		} else {
			l.rule, key = known.find(desc.GetEntries(), key)
		}
		if err != nil {
			return nil, err
		}
		if l.limited() {
			l.ask = ratelimit.Check{Limit: l.rule.limit, Key: shorten(key)}
		}
	}
	c.replace()
	return c, nil
}

// cost checks a descriptor and returns its cost: its own hits_addend, which may be 0, or that of
// the request, where 0 means 1 (GetHitsAddends in src/utils/utilities.go).
func cost(i int, d *common.RateLimitDescriptor, hits uint32) (int64, error) {
	entries := d.GetEntries()
	if len(entries) == 0 || len(entries) > maxEntries {
		return 0, invalid("descriptor %d has %d entries, want 1 to %d", i, len(entries), maxEntries)
	}
	for j, e := range entries {
		if e.GetKey() == "" {
			return 0, invalid("descriptor %d: entry %d has an empty key", i, j)
		}
	}
	n := max(1, uint64(hits))
	if own := d.GetHitsAddend(); own != nil {
		n = own.GetValue()
	}
	if n > limit.MaxAmount {
		return 0, invalid("descriptor %d has hits_addend %d, want %d at most",
			i, n, int64(limit.MaxAmount))
	}
	if d.GetIsNegativeHits() {
		return -int64(n), nil
	}
	return int64(n), nil
}

// replace frees the descriptors whose limit is replaced by another one.
func (c *call) replace() {
	var gone map[string]bool
	for i := range c.lines {
		if r := c.lines[i].rule; r != nil && len(r.replaces) > 0 {
			if gone == nil {
				gone = map[string]bool{}
			}
			for _, name := range r.replaces {
				gone[name] = true
			}
		}
	}
	for i := range c.lines {
		if l := &c.lines[i]; gone != nil && l.limited() && gone[l.rule.name] {
			l.rule = nil
		}
	}
}

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

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}
