package baseline

import (
	"github.com/headgate/headgate/internal/sim"
)

// static gives each worker a fixed part of both limits.
func static() sim.Strategy {
	return sim.Strategy{
		Name: "static", About: "each worker has limit/N of both limits, for good",
		Source: "the textbook's static split; Doorman's STATIC, doc/algorithms.md",
		Make: func(s *sim.Scenario, w *sim.World) sim.Model {
			return newLocal(s, w, 1)
		},
	}
}

// scaleFactor is the factor by which a sticky crew grows after half of the scenario. Chosen.
const scaleFactor = 2

// sticky keeps each visitor at the same worker, with local limits, until the number of workers
// doubles. Then visitors are redistributed, and no worker knows the visitors that come from another
// one.
func sticky() sim.Strategy {
	return sim.Strategy{
		Name: "sticky", About: "static behind a sticky balancer; workers double half way through",
		Source: criteo + ": sticky sessions are inexact after each scaling; the doubling is chosen",
		Make: func(s *sim.Scenario, w *sim.World) sim.Model {
			m := newLocal(s, w, scaleFactor)
			w.At(s.Length/2, kindScale, 0, 0)
			return m
		},
	}
}

// A local is a crew without messages: each worker enforces its part of both limits exactly, over a
// sliding window.
type local struct {
	crew
	active  []int64 // known to each worker
	recent  []window
	counted []int32 // worker that counts each visitor as active; -1 none
	n       int     // workers
}

func newLocal(s *sim.Scenario, w *sim.World, factor int) *local {
	m := &local{crew: hire(s, w, factor)}
	m.n = len(m.site)
	m.active, m.recent = make([]int64, m.n*factor), make([]window, m.n*factor)
	m.may, m.let = m.room, m.count
	return m
}

func (m *local) room(worker int32) bool {
	l := &m.s.Limits
	r := &m.recent[worker]
	r.drop(m.w.Now() - l.Window)
	return m.active[worker] < part(l.Active, int(worker), m.n) &&
		int64(r.n) < part(l.New, int(worker), m.n)
}

func (m *local) count(worker int32, v sim.ID) {
	for int(v) >= len(m.counted) {
		m.counted = append(m.counted, -1)
	}
	m.counted[v] = worker
	m.active[worker]++
	m.recent[worker].push(m.w.Now())
}

// Arrive admits a newcomer if its worker has capacity.
func (m *local) Arrive(v sim.ID) { m.arrive(v, m.stuck(v)) }

// stuck returns the worker that a visitor always uses.
func (m *local) stuck(v sim.ID) int32 {
	x := m.w.Visitor(v)
	worker := m.number(x)
	if before := len(m.site); m.n > before {
		worker += int32(before) * int32(x.N%scaleFactor)
	}
	return worker
}

// Left frees the slot at the worker that counts the visitor.
func (m *local) Left(v sim.ID) {
	if worker := m.counted[v]; worker >= 0 {
		m.active[worker]--
	}
	m.counted[v] = -1
}

// Event handles a step, or the scaling.
func (m *local) Event(kind, _ int32, _ int64) {
	if kind == kindScale {
		m.scale()
		return
	}
	m.refresh()
}

// scale adds the new workers. A visitor inside that now reaches another worker presents a valid
// cookie there and is counted by nobody. Waiting visitors keep their places.
func (m *local) scale() {
	m.n *= scaleFactor
	for v, worker := range m.counted {
		if worker >= 0 && m.stuck(sim.ID(v)) != worker {
			m.active[worker]--
			m.counted[v] = -1
		}
	}
	m.line.move(m.stuck)
}
