// Package overload plays strategies that set a room's limit in front of an origin that can be
// overloaded: fixed numbers, models of what others do with requests, applied to people, and headgate.
//
// The models are from the documents that their comments name, and are not the original programs.
// A strategy belongs to one run.
package overload

import (
	"math"

	"github.com/headgate/headgate/examples/strategies/origin"
	"github.com/headgate/headgate/internal/adaptive"
	"github.com/headgate/headgate/internal/histogram"
)

// A model sets a limit of people from one sample. Its state is its own.
type model struct {
	adaptive.Settings
	limit float64
}

// strategy returns the strategy of a function that changes the limit of a model.
func strategy(name string, change func() func(*model, *adaptive.Sample)) origin.Strategy {
	start := func(s adaptive.Settings) func(*adaptive.Sample) adaptive.Decision {
		m, step := &model{s, float64(s.Min)}, change()
		return func(x *adaptive.Sample) adaptive.Decision {
			if len(x.Routes) > 0 { // without signals, all hold still
				step(m, x)
			}
			m.limit = min(max(m.limit, float64(s.Min)), float64(s.Max))
			return adaptive.Decision{Active: int64(m.limit), PerMinute: min(s.MaxPerMinute, int64(m.limit))}
		}
	}
	return origin.Strategy{Name: name, Make: start}
}

// latencies returns all answers of a sample together.
func latencies(x *adaptive.Sample) (all histogram.Counts) {
	for i := range x.Routes {
		all.Merge(&x.Routes[i].Latency)
	}
	return all
}

// quantile returns a quantile in seconds, to within an eighth; 0 without answers.
func quantile(c *histogram.Counts, q float64) float64 {
	left := q * float64(c.Total())
	for b, n := range c {
		if left -= float64(n); left < 0 {
			return histogram.Value(b).Seconds()
		}
	}
	return 0
}

// aimd adds 2 % of a room of 1,000 when the 95th percentile was below the target and the room is full,
// and takes a tenth when it was above: additive increase, multiplicative decrease (Chiu and Jain 1989).
// It waits 30 s after it has lowered the limit. The numbers are chosen.
func aimd() func(*model, *adaptive.Sample) {
	wait := 0
	return func(m *model, x *adaptive.Sample) {
		all := latencies(x)
		wait--
		switch p95 := quantile(&all, 0.95); {
		case p95 > m.TargetP95.Seconds() && wait <= 0:
			m.limit, wait = m.limit*0.9, 6
		case p95 <= m.TargetP95.Seconds() && x.Inside > 0.9*m.limit:
			m.limit += 20
		}
	}
}

// gradient2 is Netflix's Gradient2 (javadoc and source of concurrency-limits, Gradient2Limit) with its
// defaults, once in each sample: the long average over 600 of them, a tolerance of 1.5, a queue of 4, a
// smoothing of 0.2.
func gradient2() func(*model, *adaptive.Sample) {
	long, n := 0.0, 0.0
	return func(m *model, x *adaptive.Sample) {
		all := latencies(x)
		short := mean(&all)
		if short == 0 {
			return
		}
		if n = min(n+1, 600); n <= 10 { // its average warms up over ten values
			long += (short - long) / n
		} else {
			long += (short - long) * 2 / 601
		}
		if long/short > 2 {
			long *= 0.95
		}
		if x.Inside < m.limit/2 {
			return
		}
		gradient := max(0.5, min(1, 1.5*long/short))
		m.limit = 0.8*m.limit + 0.2*(m.limit*gradient+4)
	}
}

// envoy is the gradient controller of Envoy's adaptive concurrency filter (its documentation) with its
// defaults: the median of a sample, a buffer of a quarter, the root of the limit as headroom. It
// measures the least latency with few requests each minute. People stay, so it measures with all that
// are inside: it lets nobody in for one sample.
func envoy() func(*model, *adaptive.Sample) {
	least, n, kept := 0.0, 0, 0.0
	return func(m *model, x *adaptive.Sample) {
		all := latencies(x)
		now := quantile(&all, 0.5)
		if now == 0 {
			return
		}
		switch n++; {
		case n%12 == 1 && n > 1: // a minute is over
			kept, m.limit = m.limit, float64(m.Min)
			return
		case kept > 0:
			least, m.limit, kept = now, kept, 0
		case least == 0:
			least = now
		}
		if x.Inside > 0.5*m.limit { // chosen: else it grows in an empty room
			m.limit = m.limit*max(0.5, min(2, 1.25*least/now)) + math.Sqrt(m.limit)
		}
	}
}

// mean returns the mean in seconds; 0 without answers.
func mean(c *histogram.Counts) float64 {
	sum := 0.0
	for b, n := range c {
		sum += histogram.Value(b).Seconds() * float64(n)
	}
	return sum / float64(max(1, c.Total()))
}

// Strategies returns all strategies. knee is the limit that a steady crowd bears.
func Strategies(knee int64) []origin.Strategy {
	return []origin.Strategy{
		origin.Fixed("half of the knee", knee/2),
		origin.Fixed("the knee", knee),
		origin.Fixed("150 % of the knee", knee*3/2),
		strategy("AIMD", aimd),
		strategy("Gradient2", gradient2),
		strategy("Envoy's gradient", envoy),
		origin.Ours(),
	}
}
