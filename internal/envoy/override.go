package envoy

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/limit"
)

// maxOverrides bounds the limits that calls bring. Chosen: Envoy's configuration has one for
// each kind of customer; only a value made of a request could make more.
const maxOverrides = 1000

// brought begins their names. No domain is empty, so that no limit of a file has such a name.
const brought = "/override/"

// overrides are the limits that calls have brought.
type overrides struct {
	mu    sync.Mutex
	known map[override]*rule
}

// An override is what a descriptor says of its limit.
type override struct {
	amount     uint32
	unit       pb.RateLimitResponse_RateLimit_Unit
	multiplier uint32
}

// rule is the rule of descriptor i, which brings its own limit: n requests in each window
// from 1970 on, as if a rule said so.
func (o *overrides) rule(i int, l *common.RateLimitDescriptor_RateLimitOverride) (*rule, error) {
	want := override{amount: l.GetRequestsPerUnit(), multiplier: 1,
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
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.known[want]
	switch {
	case r != nil:
		return r, nil
	case len(o.known) == maxOverrides:
		return nil, invalid("descriptor %d: more than %d limits were brought by calls", i, maxOverrides)
	case o.known == nil:
		o.known = map[override]*rule{}
	}
	shown := &pb.RateLimitResponse_RateLimit{RequestsPerUnit: want.amount, Unit: want.unit}
	if want.multiplier != 1 {
		shown.UnitMultiplier = wrapperspb.UInt32(want.multiplier)
	}
	r = &rule{limit: want.name(), shown: shown, window: unit * time.Duration(want.multiplier)}
	o.known[want] = r
	return r, nil
}

// name says all of an override: see Brought.
func (o override) name() string {
	return fmt.Sprintf("%s%s/%d/%d", brought, strings.ToLower(o.unit.String()), o.amount, o.multiplier)
}

// Brought makes the limit of a name that is one of those that calls bring. A call meets one
// process, and another may count its key, which has never heard of the limit: the name says
// all of it.
func Brought(name string) (c headgate.LimitConfig, ok bool) {
	rest, ok := strings.CutPrefix(name, brought)
	words := strings.Split(rest, "/")
	if !ok || len(words) != 3 {
		return c, false
	}
	amount, err := strconv.ParseUint(words[1], 10, 32)
	times, err2 := strconv.ParseUint(words[2], 10, 32)
	o := override{uint32(amount), pb.RateLimitResponse_RateLimit_Unit(
		pb.RateLimitResponse_RateLimit_Unit_value[strings.ToUpper(words[0])]), uint32(times)}
	unit, known := windowOf(o.unit)
	if err != nil || err2 != nil || !known || times == 0 || times > uint64(limit.MaxWindow/unit) ||
		o.name() != name { // one limit has one name
		return c, false
	}
	return headgate.LimitConfig{Name: name, Rule: limit.Rule{Algorithm: limit.FixedWindow,
		Amount: int64(amount), Window: unit * time.Duration(times)}}, true
}
