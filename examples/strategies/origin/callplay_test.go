package origin

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/internal/adaptive"
	"github.com/headgate/headgate/internal/sim"
)

// kindCall is a call that arrives.
const kindCall int32 = kindTick + 1

// Calls are a stream of calls to an API, and what happens to its origin. Callers do not wait for each
// other: a call that finds no slot is refused, and gone.
type Calls struct {
	Name   string
	Length time.Duration
	Rate   float64                           // calls a second
	Change func(p *Plant, now time.Duration) // each second; may be nil
}

// A CallResult is what the callers saw.
type CallResult struct {
	Served  int64   // calls that were answered within the target
	Slow    int64   // calls that were answered later, or failed
	Refused int64   // by the limit
	Limits  []int64 // each second
	Late    []int64 // each second: of Slow
}

// Limit returns the mean limit between two times.
func (r *CallResult) Limit(from, to time.Duration) float64 {
	sum := 0.0
	some := r.Limits[from/time.Second : to/time.Second]
	for _, n := range some {
		sum += float64(n)
	}
	return sum / float64(len(some))
}

// A callRun is one play of Calls.
type callRun struct {
	c      *Calls
	plant  *Plant
	events sim.Events
	now    time.Duration
	decide func(*adaptive.Sample) adaptive.Decision
	limit  int64

	sample adaptive.Sample
	sum    float64 // of calls under way times seconds, in the sample
	summed time.Duration
	res    *CallResult
}

// callSettings are those of the limit in every play.
func callSettings() adaptive.Settings {
	return adaptive.Settings{Min: 2, Max: 1000, TargetP95: 400 * time.Millisecond, Calls: true}
}

// PlayCalls plays calls against the origin, with a limit of calls under way that a strategy sets.
func PlayCalls(c *Calls, st Strategy, seed uint64) *CallResult {
	random := rand.New(rand.NewPCG(seed, 42))
	r := &callRun{c: c, events: sim.NewEvents(), decide: st.Make(callSettings()), res: &CallResult{}}
	r.plant = newPlant(0.01, r.events, random)
	r.plant.answer = r.answered
	r.limit = r.decide(&adaptive.Sample{At: start(), Load: math.NaN()}).Active
	r.clear()
	r.events.Put(0, kindTick, 0, 0)
	r.events.Put(0, kindCall, 0, 0)
	for {
		at, kind, a, _, _ := r.events.Take()
		if at > c.Length {
			return r.res
		}
		r.now = at
		switch kind {
		case kindServed:
			r.plant.served(a, at)
		case kindCall:
			if r.call(); c.Rate > 0 {
				gap := random.ExpFloat64() / c.Rate
				r.events.Put(at+time.Duration(gap*float64(time.Second)), kindCall, 0, 0)
			}
		case kindTick:
			r.tick()
		}
	}
}

// call is a call that arrives: exactly as many as the limit are under way.
func (r *callRun) call() {
	if int64(r.plant.inFlight) >= r.limit {
		r.res.Refused++
		r.sample.Waiting++
		return
	}
	r.count()
	r.plant.ask(0, r.now)
}

// count counts the calls under way until now.
func (r *callRun) count() {
	r.sum += float64(r.plant.inFlight) * (r.now - r.summed).Seconds()
	r.summed = r.now
}

func (r *callRun) answered(q *request, latency time.Duration, failed bool) {
	r.plant.inFlight++ // it was under way until now
	r.count()
	r.plant.inFlight--
	x := &r.sample.Routes[q.route]
	x.Answered++
	x.Latency.Add(latency, 1)
	target := 400 * time.Millisecond
	if r.plant.routes[q.route].work[reports] > 0 { // slow by nature
		target = 7 * time.Second
	}
	switch {
	case failed:
		x.Failed++
		fallthrough
	case latency > target:
		r.res.Slow++
		r.res.Late[len(r.res.Late)-1]++
	default:
		r.res.Served++
	}
}

// tick is what happens each second.
func (r *callRun) tick() {
	if r.c.Change != nil {
		r.c.Change(r.plant, r.now)
	}
	if r.now > 0 && r.now%Interval == 0 {
		r.count()
		s := &r.sample
		s.At, s.Length, s.Load = start().Add(r.now), Interval, math.NaN()
		s.Inside = r.sum / Interval.Seconds()
		s.InFlight, s.Limit = s.Inside, r.limit
		r.limit = r.decide(s).Active
		r.clear()
	}
	r.res.Limits = append(r.res.Limits, r.limit)
	r.res.Late = append(r.res.Late, 0)
	r.events.Put(r.now+time.Second, kindTick, 0, 0)
}

// clear begins a new sample.
func (r *callRun) clear() {
	r.sum, r.summed = 0, r.now
	r.sample = adaptive.Sample{Routes: make([]adaptive.Route, len(r.plant.routes))}
	for i := range r.sample.Routes {
		r.sample.Routes[i].Class = r.plant.routes[i].class
	}
}
