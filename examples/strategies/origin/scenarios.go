package origin

import (
	"fmt"
	"math"
	"time"

	"github.com/headgate/headgate/internal/adaptive"
)

// A Scenario says who comes, and what happens to the plant and to the signals.
type Scenario struct {
	Name    string
	Length  time.Duration
	Changes bool  // of capacity
	min     int64 // of the limit
	target  time.Duration
	report  float64          // share of the slow route
	noise   float64          // of measured latencies, in each sample
	falls   time.Duration    // when capacity falls,
	rises   time.Duration    // and when it is back
	calm    [2]time.Duration // when the limit should stand still
	targets []time.Duration  // by route; nil: measure
	people  habit
	plant   func(*Plant) // changes the usual plant; may be nil

	arrivals func(time.Duration) float64 // people a minute
	gaps     func(time.Duration) float64 // factor of the time between two requests
	change   func(*run)                  // each second
	signals  func(time.Duration, *adaptive.Sample)
}

// crowd is more people a minute than the plant can take: about 230.
const crowd = 320

// base returns an hour of a crowd.
func base(name string) *Scenario {
	return &Scenario{
		Name: name, Length: time.Hour, min: 50, target: 400 * time.Millisecond, report: 0.01, people: usual(),
		calm:     [2]time.Duration{20 * time.Minute, time.Hour},
		arrivals: func(time.Duration) float64 { return crowd },
		gaps:     func(time.Duration) float64 { return 1 },
	}
}

// at reports whether the run has reached a time just now.
func at(r *run, t time.Duration) bool { return r.now == t }

// Scenarios returns all scenarios.
func Scenarios() []*Scenario {
	all := []*Scenario{base("steady"), flash(), halving("capacity halves, comes back"), deploy(), leak(),
		autoscaler(), slowRoute(), night(), noisy(), lost(), attack(), few(16), few(8)}
	for _, s := range all {
		s.measure()
	}
	return all
}

func flash() *Scenario {
	s := base("flash crowd")
	s.arrivals = func(t time.Duration) float64 {
		if t < 10*time.Minute {
			return 40
		}
		return 2000 * math.Exp(-float64(t-10*time.Minute)/float64(10*time.Minute))
	}
	s.calm[0] = 30 * time.Minute
	return s
}

func halving(name string) *Scenario {
	s := base(name)
	s.Changes, s.falls, s.rises, s.calm = true, 20*time.Minute, 40*time.Minute, [2]time.Duration{}
	s.change = func(r *run) {
		switch r.now {
		case s.falls:
			r.plant.Scale(0.5, r.now)
		case s.rises:
			r.plant.Scale(2, r.now)
		}
	}
	return s
}

// few has an origin of some slow connections, of which half are taken away, and given back: it answers
// few requests a second, and the mean of few is noisy. It is the origin of tests/knee.
func few(connections int) *Scenario {
	s := halving(fmt.Sprintf("halves, %d slow connections", connections))
	s.target = time.Second
	s.min = int64(5 * connections)
	s.people = habit{time.Minute, 30 * time.Second, 6 * time.Second, 6 * time.Second}
	s.arrivals = func(time.Duration) float64 { return 10 * float64(connections) }
	s.plant = func(p *Plant) {
		const app, query = 2 * time.Millisecond, 500 * time.Millisecond
		p.routes = []route{
			{"GET /", 0.3, [stations]time.Duration{app}, false},
			{"GET /product", 0.5, [stations]time.Duration{app, query}, false},
			{"GET /cart", 0.2, [stations]time.Duration{app, query}, false},
		}
		p.stages = 12 // a coefficient of variation of 0.29, as of ±50 %
		p.stations[application].coherency = 0
		p.stations[database] = station{servers: connections, slow: 1}
	}
	return s
}

func deploy() *Scenario {
	s := base("deploy 40 % slower")
	s.Changes, s.falls, s.calm[0] = true, 20*time.Minute, 35*time.Minute
	s.change = func(r *run) {
		if at(r, 20*time.Minute) {
			r.plant.Slow(1.4)
		}
	}
	return s
}

func leak() *Scenario {
	s := base("slow leak")
	s.Changes, s.calm = true, [2]time.Duration{}
	s.change = func(r *run) { r.plant.Slow(1 + 0.6*r.now.Hours()) }
	return s
}

func autoscaler() *Scenario {
	s := base("autoscaler doubles after 3 min")
	s.Changes = true
	due, work := time.Duration(0), 0.0
	s.change = func(r *run) {
		if r.now == 0 {
			due, work = 0, 0
		}
		if x := r.plant.stations[application].work; due == 0 && r.now > 0 && r.now%time.Minute == 0 {
			if x-work > 0.7*60*8 { // busy for 70 % of a minute: chosen, a usual rule
				due = r.now + 3*time.Minute
			}
			work = x
		}
		if due > 0 && at(r, due) {
			r.plant.Scale(2, r.now)
		}
	}
	s.arrivals = func(time.Duration) float64 { return 2 * crowd }
	return s
}

func slowRoute() *Scenario {
	s := base("one slow route")
	s.report = 0.06
	return s
}

// night has a crowd in the evening, nobody for eight hours, and a crowd in the morning: the cache is
// cold, and all sessions are young.
func night() *Scenario {
	s := base("quiet night, then a rush")
	s.Length = 9*time.Hour + 20*time.Minute
	s.calm = [2]time.Duration{9 * time.Hour, s.Length}
	s.arrivals = func(t time.Duration) float64 {
		if 40*time.Minute < t && t < 8*time.Hour+40*time.Minute {
			return 1
		}
		return crowd
	}
	return s
}

func noisy() *Scenario {
	s := base("noise ±30 %")
	s.noise = 0.3
	s.gaps = func(t time.Duration) float64 { return 1 + 0.03*math.Sin(float64(t)/float64(3*time.Minute)) }
	return s
}

// lost has no signals for five minutes.
func lost() *Scenario {
	s := base("signals lost for 5 min")
	s.signals = func(t time.Duration, x *adaptive.Sample) {
		if 25*time.Minute < t && t <= 30*time.Minute {
			x.Routes, x.InFlight = nil, 0
		}
	}
	return s
}

// attack has somebody who makes requests to one route that are slow or fail on purpose. Collecting
// counts adaptive.MaxPerNetwork of them in an interval.
func attack() *Scenario {
	s := base("attacker, one address")
	s.signals = func(t time.Duration, x *adaptive.Sample) {
		if 10*time.Minute < t {
			r := &x.Routes[2]
			r.Answered += 200
			r.Latency.Add(8*time.Second, adaptive.MaxPerNetwork)
			r.Failed += adaptive.MaxPerNetwork
			x.Excess = adaptive.Excess{Counted: adaptive.MaxPerNetwork, Failed: adaptive.MaxPerNetwork,
				Slow: adaptive.MaxPerNetwork}
		}
	}
	return s
}

// measure finds what each route takes when almost nobody is inside. What is slow by nature may take
// two and a half times as long; chosen.
func (s *Scenario) measure() {
	calm := base("idle")
	calm.Length, calm.report, calm.people, calm.plant = 20*time.Minute, s.report, s.people, s.plant
	j := Play(calm, Fixed("", s.min+10), 1)
	for i := range j.idle {
		s.targets = append(s.targets, max(s.target, percentile(&j.idle[i], 0.95)*5/2))
	}
}

// Knee finds the greatest limit that keeps the target in a steady crowd, by trying.
func (s *Scenario) Knee(seed uint64) int64 {
	steady := base("steady")
	steady.Length, steady.arrivals = 30*time.Minute, func(time.Duration) float64 { return 10 * crowd }
	steady.min, steady.target, steady.people, steady.plant = s.min, s.target, s.people, s.plant
	steady.measure()
	low, high := int64(10), int64(3000)
	for high-low > max(1, low/100) {
		mid := (low + high) / 2
		if Play(steady, Fixed("", mid), seed).Over <= 0.02 {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// Best finds the fixed limit with which the most people are served, by trying steps of 4 % between 0.6 and
// 2.2 times around.
func Best(s *Scenario, around int64, seed uint64) (limit int64, best *Result) {
	for x := float64(around) * 0.6; x < float64(around)*2.2; x *= 1.04 {
		r := Play(s, Fixed("the best number in hindsight", int64(x)), seed)
		if best == nil || r.Served > best.Served {
			limit, best = int64(x), r
		}
		if x > 1.25*float64(limit) { // far beyond the cliff
			break
		}
	}
	return limit, best
}
