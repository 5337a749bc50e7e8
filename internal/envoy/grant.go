package envoy

import (
	"math"
	"slices"
	"time"

	types "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Times of a grant. Chosen: a process that dies has lost the amount that it held 5 s after its last
// report (limittable.Term), and reports each 2.5 s.
const (
	grantTTL   = 2 * time.Second        // Envoy knows whole seconds
	grantSlack = time.Second            // time for a grant to arrive, and for Envoy to obey
	grantEach  = 500 * time.Millisecond // interval of renewals
)

// Parts of an amount. Chosen: together less than a tenth.
const (
	burstPart   = 32 // of a grant that may be used at once
	reservePart = 40 // of a limit that is kept for changes, because a new grant begins with its burst
)

// fillSteps is the number of steps in which the rate of a token bucket is rounded down.
const fillSteps = 64

// A grant is a token bucket at one Envoy. It allows at most units calls in each window: burst at
// once, and the others evenly.
type grant struct {
	units, burst int64
	window       time.Duration
	steps        float64   // fillSteps for each of the others in a window
	from, end    time.Time // when Envoy may have begun and have ended to use it
}

// newGrant returns a grant that is in force.
func newGrant(units int64, window time.Duration, from time.Time) grant {
	g := grant{units: units, window: window, from: from, end: from.Add(far),
		burst: min((units+burstPart-1)/burstPart, math.MaxUint32)}
	if units > 0 { // a part of a call more can be used by nobody
		g.steps = min(float64(units-g.burst)*fillSteps+fillSteps-1, math.MaxUint32)
	}
	return g
}

// rate returns the calls in a nanosecond, beside the burst.
func (g *grant) rate() float64 { return g.steps / fillSteps / float64(max(1, g.window)) }

// strategy returns the message for a grant. Envoy 1.40 divides tokens_per_fill by the whole seconds
// of fill_interval, and fills at that rate without steps.
func (g *grant) strategy() *types.RateLimitStrategy {
	if g.units == 0 {
		return blanket(types.RateLimitStrategy_DENY_ALL)
	}
	seconds := int64((fillSteps*g.window + time.Second - 1) / time.Second)
	return &types.RateLimitStrategy{Strategy: &types.RateLimitStrategy_TokenBucket{
		TokenBucket: &types.TokenBucket{MaxTokens: uint32(g.burst),
			TokensPerFill: wrapperspb.UInt32(uint32(g.steps)),
			// Envoy sees a change of the interval only by its nanoseconds.
			FillInterval: &durationpb.Duration{Seconds: seconds, Nanos: int32(seconds % 1e9)}}}}
}

func blanket(b types.RateLimitStrategy_BlanketRule) *types.RateLimitStrategy {
	return &types.RateLimitStrategy{Strategy: &types.RateLimitStrategy_BlanketRule_{BlanketRule: b}}
}

// far is later than all windows.
const far = 1 << 20 * time.Hour

// neededFor returns how much of a limit grants need at now and later, if the last one stays: the
// most calls that they allow in any window that ends then. A grant may be used until its end or
// until the next one has begun, and its burst whenever it is in force.
func neededFor(grants []grant, now time.Time, window time.Duration) int64 {
	if len(grants) == 1 && grants[0].window == window && grants[0].end.After(now.Add(window)) {
		return grants[0].units
	}
	most := mostIn(grants, now, window)
	for _, g := range grants {
		for _, at := range [...]time.Time{g.end, g.from.Add(window), g.end.Add(window)} {
			if at.After(now) {
				most = max(most, mostIn(grants, at, window))
			}
		}
	}
	return int64(most + 1e-6)
}

// mostIn returns the most calls that grants allow in the window that ends at a time.
func mostIn(grants []grant, at time.Time, window time.Duration) (sum float64) {
	since := at.Add(-window)
	cuts := []time.Time{since, at}
	for _, g := range grants {
		if g.from.After(at) || g.end.Before(since) {
			continue
		}
		sum += float64(g.burst)
		for _, t := range [...]time.Time{g.from, g.end} {
			if t.After(since) && t.Before(at) {
				cuts = append(cuts, t)
			}
		}
	}
	slices.SortFunc(cuts, time.Time.Compare)
	for i, to := range cuts[1:] {
		rate := 0.0
		for _, g := range grants {
			if !g.from.After(cuts[i]) && !g.end.Before(to) {
				rate = max(rate, g.rate())
			}
		}
		sum += rate * float64(to.Sub(cuts[i]))
	}
	return sum
}
