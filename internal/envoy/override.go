package envoy

import (
	"strconv"
	"strings"
	"sync"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/limit"
)

// A Definer adds limits to a limiter that runs. Define may be called by many goroutines at
// once; to define a limit again as it is does nothing.
type Definer interface {
	Define(headgate.LimitConfig) error
}

// maxOverrides bounds the limits that calls bring. Chosen: Envoy's configuration has one for
// each kind of customer; only a value made of a request could make more.
const maxOverrides = 1000

// overridden is what follows the domain in the names of their limits.
const overridden = "override"

// overrides are the limits that calls have brought.
type overrides struct {
	definer Definer
	mu      sync.Mutex
	known   map[override]*defined
}

// An override is what a descriptor says of its limit.
type override struct {
	domain     string
	amount     uint32
	unit       pb.RateLimitResponse_RateLimit_Unit
	multiplier uint32
}

// defined is the rule of an override, once it is made.
type defined struct {
	once sync.Once
	rule *rule
	err  error
}

// rule is the rule of descriptor i, which brings its own limit: n requests in each window
// from 1970 on, as if a rule said so. The first call of each kind defines the limit.
func (o *overrides) rule(name string, i int,
	l *common.RateLimitDescriptor_RateLimitOverride) (*rule, error) {
	want := override{domain: name, amount: l.GetRequestsPerUnit(), multiplier: 1,
		unit: pb.RateLimitResponse_RateLimit_Unit(l.GetUnit())}
	if m := l.GetUnitMultiplier(); m != nil {
		want.multiplier = m.GetValue()
	}
	unit, ok := windowOf(want.unit)
	switch {
	case !ok:
		return nil, invalid("descriptor %d: its limit has no unit that is known: %d", i, want.unit)
	case want.multiplier == 0 || want.multiplier > uint32(limit.MaxWindow/unit):
		return nil, invalid("descriptor %d: its limit has unit_multiplier %d, want 1 to %d", i,
			want.multiplier, limit.MaxWindow/unit)
	case o.definer == nil:
		return nil, invalid("descriptor %d: a call cannot bring its own limit here", i)
	}
	d := o.entry(want)
	if d == nil {
		return nil, invalid("descriptor %d: more than %d limits were brought by calls", i, maxOverrides)
	}
	d.once.Do(func() { d.define(o.definer, want, unit) })
	if d.err != nil {
		o.drop(want)
	}
	return d.rule, d.err
}

func (o *overrides) entry(want override) *defined {
	o.mu.Lock()
	defer o.mu.Unlock()
	d := o.known[want]
	if d == nil && len(o.known) < maxOverrides {
		if o.known == nil {
			o.known = map[override]*defined{}
		}
		d = &defined{}
		o.known[want] = d
	}
	return d
}

// drop has a limit defined again when it is asked for next.
func (o *overrides) drop(one override) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.known, one)
}

func (d *defined) define(by Definer, want override, unit time.Duration) {
	path := []string{want.domain, overridden, strings.ToLower(want.unit.String()),
		strconv.Itoa(int(want.amount))}
	shown := &pb.RateLimitResponse_RateLimit{RequestsPerUnit: want.amount, Unit: want.unit}
	if want.multiplier != 1 {
		path = append(path, strconv.Itoa(int(want.multiplier)))
		shown.UnitMultiplier = wrapperspb.UInt32(want.multiplier)
	}
	d.rule = &rule{limit: limitName(path...), shown: shown, brought: &want}
	err := by.Define(headgate.LimitConfig{Name: d.rule.limit, Rule: limit.Rule{
		Algorithm: limit.FixedWindow,
		Amount:    int64(want.amount),
		Window:    unit * time.Duration(want.multiplier),
	}})
	if err != nil {
		d.err = status.Errorf(codes.Unavailable, "define limit %s: %v", d.rule.limit, err)
	}
}
