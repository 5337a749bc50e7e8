package baseline

import (
	"math"
	"time"

	"github.com/headgate/headgate/internal/sim"
)

// term is the duration of a lease. It is neither recalled nor returned early. Azure's example: two
// partitions are granted for 10 seconds.
const term = 10 * time.Second

// margin and floor define how much a worker requests. margin is a multiple of the newcomers of its
// last term. floor is the minimum, as a share of an equal share: Azure's small exclusive capacity
// for each process. Both chosen.
const (
	margin = 2
	floor  = 0.25
)

// rateLeases leases shares of both limits to workers, by demand.
func rateLeases() sim.Strategy {
	return sim.Strategy{
		Name: "rate-leases", About: "workers lease shares of both limits for ten seconds, by demand",
		Source: azure + ": leases of 10 s, exclusive capacity; " +
			"Doorman, doc/algorithms.md: PROPORTIONAL_SHARE",
		Make: newLeases,
	}
}

// proportional is Doorman's rule for one of n requests. It grants all of it if there is enough for
// everyone, or if it is at most an equal share. Else it grants an equal share plus a part, by need,
// of what the smaller requests leave over.
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

// A leased is one of the two limits as a leased resource. The sum of the leases never exceeds its
// capacity.
type leased struct {
	capacity    float64
	wants, held []float64 // of each worker, at its last renewal
	sum         float64   // total held
}

// newLeased starts with an equal share for each worker.
func newLeased(capacity int64, n int) leased {
	l := leased{capacity: float64(capacity), wants: make([]float64, n), held: make([]float64, n)}
	for i := range n {
		l.held[i] = float64(part(capacity, i, n))
		l.wants[i] = l.held[i]
		l.sum += l.held[i]
	}
	return l
}

// renew renews the lease of worker i, which uses used, cannot give it up, and expects coming more.
func (l *leased) renew(i int32, coming, used float64) {
	l.wants[i] = used + max(coming, floor*l.capacity/float64(len(l.held)))
	unused := l.capacity - l.sum + l.held[i]
	got := max(used, math.Floor(min(proportional(l.capacity, l.wants, int(i)), unused)))
	l.sum += got - l.held[i]
	l.held[i] = got
}

// A leases is a model in which each worker renews its leases when they expire, one after the other,
// with one message and its answer. The leased rate is a number per window. What was used of it is
// returned when the window has passed, so no lease allows a rate to be used twice.
type leases struct {
	crew
	slots, rate leased
	active      []int64 // of each worker
	recent      []window
	came        []int64 // newcomers at each worker since its last renewal
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

// used returns how much of its rate a worker has used within the window.
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

// Left counts the end of a session.
func (m *leases) Left(v sim.ID) { m.active[m.number(m.w.Visitor(v))]-- }

// Event handles a step, or the expiry of a worker's lease.
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
