package baseline

import (
	"math"
	"time"

	"github.com/headgate/headgate/internal/sim"
)

// term is how long a lease holds; it is neither called back nor given back before.
// Azure's example: two partitions are granted for 10 seconds.
const term = 10 * time.Second

// margin is how many newcomers a worker asks room for, as a multiple of those of its
// last term; floor is the room that it asks for at least, as a share of an equal
// share: Azure's small exclusive capacity for each process. Both chosen.
const (
	margin = 2
	floor  = 0.25
)

// rateLeases leases shares of both limits to workers, by what they want.
func rateLeases() sim.Strategy {
	return sim.Strategy{
		Name: "rate-leases", About: "workers lease shares of both limits for ten seconds, by demand",
		Source: azure + ": leases of 10 s, exclusive capacity; " +
			"Doorman, doc/algorithms.md: PROPORTIONAL_SHARE",
		Make: newLeases,
	}
}

// proportional is Doorman's rule for one of n who want: all of it if there is
// enough for all, or if it is no more than an equal share; else an equal share and
// its part, by need, of what the modest leave over.
func proportional(capacity float64, wants []float64, i int) float64 {
	sum, equal := 0.0, capacity/float64(len(wants))
	extra, need := 0.0, 0.0
	for _, x := range wants {
		sum += x
		extra += max(0, equal-x)
		need += max(0, x-equal)
	}
	if sum <= capacity || wants[i] <= equal {
		return wants[i]
	}
	return equal + (wants[i]-equal)*extra/need
}

// A leased resource is one of the two limits. The sum of what is held is never more
// than its capacity.
type leased struct {
	capacity    float64
	wants, held []float64 // of each worker, as of its last renewal
	sum         float64   // held
}

// newLeased begins with an equal share for each.
func newLeased(capacity int64, n int) leased {
	l := leased{capacity: float64(capacity), wants: make([]float64, n), held: make([]float64, n)}
	for i := range n {
		l.held[i] = float64(part(capacity, i, n))
		l.wants[i] = l.held[i]
		l.sum += l.held[i]
	}
	return l
}

// renew leases anew to worker i, who uses so much, cannot give it up, and expects
// that more is coming.
func (l *leased) renew(i int32, coming, used float64) {
	l.wants[i] = used + max(coming, floor*l.capacity/float64(len(l.held)))
	unused := l.capacity - l.sum + l.held[i]
	got := max(used, math.Floor(min(proportional(l.capacity, l.wants, int(i)), unused)))
	l.sum += got - l.held[i]
	l.held[i] = got
}

// A leases model has each worker renew its leases when they end, one after the
// other, with one message and its answer. The leased rate is a number within the
// window, and what was used of it is given back when the window has passed: so no
// lease lets a rate be used twice.
type leases struct {
	crew
	slots, rate leased
	active      []int64 // of each worker
	recent      []window
	came        []int64 // of each, newcomers since its last renewal
}

func newLeases(s *sim.Scenario, w *sim.World) sim.Model {
	m := &leases{crew: hire(s, w, 1)}
	n := len(m.site)
	m.slots, m.rate = newLeased(s.Limits.Active, n), newLeased(s.Limits.New, n)
	m.active, m.came, m.recent = make([]int64, n), make([]int64, n), make([]window, n)
	m.may, m.let = m.room, m.count
	for i := range m.site {
		w.At(term*time.Duration(i)/time.Duration(n), kindRenew, int32(i), 0)
	}
	return m
}

func (m *leases) room(worker int32) bool {
	return m.active[worker] < int64(m.slots.held[worker]) &&
		m.used(worker) < int64(m.rate.held[worker])
}

// used is how much of its rate a worker has used within the window.
func (m *leases) used(worker int32) int64 {
	r := &m.recent[worker]
	r.drop(m.w.Now() - m.s.Limits.Window)
	return int64(r.n)
}

func (m *leases) count(worker int32, _ sim.ID) {
	m.active[worker]++
	m.recent[worker].push(m.w.Now())
}

// Arrive decides on a newcomer.
func (m *leases) Arrive(v sim.ID) {
	worker := m.number(m.w.Visitor(v))
	m.came[worker]++
	m.arrive(v, worker)
}

// Left counts a session that is over.
func (m *leases) Left(v sim.ID) { m.active[m.number(m.w.Visitor(v))]-- }

// Event is a step, or the end of a worker's lease.
func (m *leases) Event(kind, worker int32, _ int64) {
	if kind == kindStep {
		m.refresh()
		return
	}
	coming := float64(margin*m.came[worker] + m.line.waits[worker])
	m.slots.renew(worker, coming, float64(m.active[worker]))
	m.rate.renew(worker, coming, float64(m.used(worker)))
	m.came[worker] = 0
	m.w.Messages(2)
	m.w.After(term, kindRenew, worker, 0)
}
