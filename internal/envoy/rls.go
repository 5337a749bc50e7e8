package envoy

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/ratelimit"
)

// A Config configures a Service.
type Config struct {
	Rules   *Rules            // the meaning of descriptors; nil means no rules
	Limiter ratelimit.Checker // has the limits of Rules, and accepts those of Brought
	Headers Headers           // headers that Envoy adds to its responses; default none
	Waits   bool              // Limiter may block, for example on the host of a key
	Decide  http.Handler      // decides about requests that Envoy asks about; nil answers none
	Lender  Lender            // of the limits of Rules; nil serves no quotas

	// Unvouched returns the headers of a request that the origin must not get, because only a trusted proxy
	// may send them; nil returns none.
	Unvouched func(*http.Request) []string
}

// A Service answers calls of Envoy.
type Service struct {
	limiter   ratelimit.Checker
	overrides overrides
	headers   Headers
	waits     bool
	decide    http.Handler
	unvouched func(*http.Request) []string
	rules     atomic.Pointer[Rules]
	quotas    *quotas // nil: none are served
}

// New returns a Service. It starts no goroutine.
func New(c Config) *Service {
	s := &Service{limiter: c.Limiter, headers: c.Headers, waits: c.Waits, decide: c.Decide,
		unvouched: c.Unvouched}
	if c.Lender != nil {
		s.quotas = &quotas{service: s, lender: c.Lender}
	}
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
