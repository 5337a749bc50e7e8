package origin

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/internal/adaptive"
	"github.com/headgate/headgate/internal/histogram"
	"github.com/headgate/headgate/internal/sim"
)

// These are the parameters of people and of the room. All are chosen.
const (
	// SessionLength is how long a visitor without requests stays inside.
	SessionLength = time.Minute
	slowsDown     = time.Minute
	patience      = 3 * time.Second // of an answer that takes longer, or fails,
	giveUp        = 0.25            // so many end their visit

	// Interval is the length of a sample.
	Interval = 5 * time.Second
)

// These are the events of a run.
const (
	kindServed int32 = iota // a station has served a request
	kindAsk                 // a person makes a request
	kindEnd                 // a session ends
	kindTick                // a second
)

// A habit is how people use a site.
type habit struct {
	leastVisit, meanVisit time.Duration // the second is beyond the first, exponential
	firstGap, lastGap     time.Duration // mean time between two requests of who has just come, and later
}

// usual is the habit of people in a shop. They slow down.
func usual() habit {
	return habit{30 * time.Second, 210 * time.Second, 6 * time.Second, 14 * time.Second}
}

// drain is the mean time from admission to the end of a session.
func (h *habit) drain() time.Duration { return h.leastVisit + h.meanVisit + SessionLength + h.lastGap }

// A Strategy sets the limits of a room.
type Strategy struct {
	Name string
	// Make returns the function that gets each sample. The first sample is that of an empty room.
	Make func(adaptive.Settings) func(*adaptive.Sample) adaptive.Decision
}

// Fixed returns the strategy of a number that somebody has found, with half of it each minute.
func Fixed(name string, limit int64) Strategy {
	return Strategy{Name: name, Make: func(adaptive.Settings) func(*adaptive.Sample) adaptive.Decision {
		return func(*adaptive.Sample) adaptive.Decision {
			return adaptive.Decision{Active: limit, PerMinute: limit / 2}
		}
	}}
}

// Ours returns the strategy of headgate.
func Ours() Strategy {
	return Strategy{Name: "headgate", Make: func(s adaptive.Settings) func(*adaptive.Sample) adaptive.Decision {
		c := adaptive.New(s, adaptive.State{})
		return func(x *adaptive.Sample) adaptive.Decision { return c.Step(*x) }
	}}
}

// A person is inside.
type person struct {
	entered, until time.Duration
	gaveUp         bool
}

// A run is one play of a scenario.
type run struct {
	plant  *Plant
	events sim.Events
	rand   *rand.Rand
	now    time.Duration
	s      *Scenario
	decide func(*adaptive.Sample) adaptive.Decision
	limits adaptive.Decision

	people  []person
	unused  []int32
	inside  int64
	waiting float64
	budget  float64 // of new users, so far

	sample  adaptive.Sample
	inSum   float64 // inside and in flight, summed over the seconds of a sample
	flySum  float64
	entered int64
	judge   judge
}

// settings are those of the room in every scenario: the issue's own.
func settings(s *Scenario) adaptive.Settings {
	return adaptive.Settings{Min: s.min, Max: 5000, MaxPerMinute: 3000, TargetP95: s.target,
		TargetErrors: maxFailed, SessionLength: SessionLength}
}

// Play plays a scenario.
func Play(s *Scenario, st Strategy, seed uint64) *Result {
	r := &run{events: sim.NewEvents(), rand: rand.New(rand.NewPCG(seed, 24)), s: s,
		decide: st.Make(settings(s))}
	r.plant = newPlant(s.report, r.events, r.rand)
	if s.plant != nil {
		s.plant(r.plant)
	}
	r.plant.answer = r.answered
	r.judge.begin(r)
	r.clear()
	r.limits = r.decide(&adaptive.Sample{At: start(), Load: math.NaN()})
	r.events.Put(0, kindTick, 0, 0)
	for {
		at, kind, a, _, _ := r.events.Take()
		if at > s.Length {
			break
		}
		r.now = at
		switch kind {
		case kindServed:
			r.plant.served(a, at)
		case kindAsk:
			r.plant.ask(a, at)
		case kindEnd:
			r.inside--
			r.unused = append(r.unused, a)
			r.judge.leave(r.people[a].gaveUp)
		case kindTick:
			r.tick()
		}
	}
	return r.judge.result(st.Name)
}

// start returns the wall clock at the start of each run. Any day would do.
func start() time.Time { return time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC) }

// tick is what happens each second.
func (r *run) tick() {
	if r.s.change != nil {
		r.s.change(r)
	}
	lambda := r.s.arrivals(r.now) / 60
	r.waiting += math.Max(0, math.Round(lambda+math.Sqrt(lambda)*r.rand.NormFloat64()))
	r.admit()
	r.inSum += float64(r.inside)
	r.flySum += float64(r.plant.inFlight)
	r.judge.second(r)
	if r.now > 0 && r.now%Interval == 0 {
		r.end()
	}
	r.events.Put(r.now+time.Second, kindTick, 0, 0)
}

// admit admits whom the limits allow: exactly, and spread over the minute.
func (r *run) admit() {
	perSecond := float64(r.limits.PerMinute) / 60
	r.budget = min(r.budget+perSecond, perSecond+1)
	for r.waiting >= 1 && r.inside < r.limits.Active && r.budget >= 1 {
		r.budget--
		r.waiting--
		r.inside++
		r.entered++
		p := person{entered: r.now,
			until: r.now + r.s.people.leastVisit +
				time.Duration(r.rand.ExpFloat64()*float64(r.s.people.meanVisit))}
		i := int32(len(r.people))
		if n := len(r.unused); n > 0 {
			i, r.unused = r.unused[n-1], r.unused[:n-1]
			r.people[i] = p
		} else {
			r.people = append(r.people, p)
		}
		r.events.Put(r.now+time.Duration(r.rand.Int64N(int64(time.Second))), kindAsk, i, 0)
	}
}

// answered is called when the origin has answered a request, or has failed to.
func (r *run) answered(q *request, latency time.Duration, failed bool) {
	x := &r.sample.Routes[q.route]
	x.Answered++
	x.Latency.Add(time.Duration(float64(latency)*r.judge.noise), 1)
	if failed {
		x.Failed++
	}
	r.judge.answer(int(q.route), latency, failed)
	p := &r.people[q.person]
	young := math.Exp(-float64(r.now-p.entered) / float64(slowsDown))
	h := &r.s.people
	gap := (h.lastGap.Seconds() - (h.lastGap-h.firstGap).Seconds()*young) * r.s.gaps(r.now)
	next := r.now + time.Duration(r.rand.ExpFloat64()*gap*float64(time.Second))
	if (failed || latency > patience) && r.rand.Float64() < giveUp {
		p.gaveUp, p.until = true, 0
	}
	if next < p.until {
		r.events.Put(next, kindAsk, q.person, 0)
	} else {
		r.events.Put(r.now+SessionLength, kindEnd, q.person, 0)
	}
}

// end ends a sample, and lets the strategy decide.
func (r *run) end() {
	s, seconds := &r.sample, Interval.Seconds()
	s.At, s.Length, s.Load = start().Add(r.now), Interval, math.NaN()
	s.Inside, s.InFlight = r.inSum/seconds, r.flySum/seconds
	s.Waiting, s.Entered, s.Limit = int64(r.waiting), r.entered, r.limits.Active
	r.inSum, r.flySum, r.entered = 0, 0, 0
	if r.s.signals != nil {
		r.s.signals(r.now, s)
	}
	r.limits = r.decide(s)
	r.clear()
	if r.s.noise > 0 {
		r.judge.noise = 1 + r.s.noise*(2*r.rand.Float64()-1)
	}
}

// clear begins a new sample.
func (r *run) clear() {
	r.sample = adaptive.Sample{Routes: make([]adaptive.Route, len(r.plant.routes))}
	for i := range r.sample.Routes {
		r.sample.Routes[i].Class = r.plant.routes[i].class
	}
}

// percentile returns a percentile of counts, to within an eighth.
func percentile(c *histogram.Counts, q float64) time.Duration {
	left := q * float64(c.Total())
	for b, n := range c {
		if left -= float64(n); left < 0 {
			return histogram.Value(b)
		}
	}
	return 0
}
