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

	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/ratelimit"
)

// maxOverrides is the maximum number of limits that calls can bring. Chosen: an Envoy configuration
// has one for each kind of customer; only values built from requests could make more.
const maxOverrides = 1000

// brought is the prefix of their names. A domain is never empty, so no limit of a file has such a
// name.
const brought = "/override/"

// An overrides holds the limits that calls have brought.
type overrides struct {
	mu    sync.Mutex
	known map[override]*rule
}

// An override is the limit that a descriptor carries.
type override struct {
	amount     uint32
	unit       pb.RateLimitResponse_RateLimit_Unit
	multiplier uint32
}

// rule returns the rule of descriptor i, which carries its own limit: n requests in each window,
// with windows counted from 1970, as if a rule in a file defined it.
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

// name returns a name that contains the whole override, see Brought.
func (o override) name() string {
	return fmt.Sprintf("%s%s/%d/%d", brought, strings.ToLower(o.unit.String()), o.amount, o.multiplier)
}

// Brought returns the limit for a name made by a call with its own limit. The call arrives at one
// process, but the key may be counted at another one that does not know the limit. Therefore the
// name contains the complete limit.
func Brought(name string) (c ratelimit.Limit, ok bool) {
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
		o.name() != name { // each limit has exactly one name
		return c, false
	}
	return ratelimit.Limit{Name: name, Rule: limit.Rule{Algorithm: limit.FixedWindow,
		Amount: int64(amount), Window: unit * time.Duration(times)}}, true
}
