package baseline

import (
	"github.com/headgate/headgate/internal/sim"
)

// curveFactor is the exponent of the adaptive split: 1, the example of
// cloudflare2023; the document draws 2 too.
const curveFactor = 1.0

// evenSplit divides the slots of a data center by its workers: the first algorithm of Waiting Room.
func evenSplit() sim.Strategy {
	return sim.Strategy{
		Name: "even-split", About: "slots are divided among data centers and their workers",
		Source: cloudflare2022 + ": divided by the traffic, again every 2 minutes; " +
			cloudflare2023 + ": by workers",
		Make: func(s *sim.Scenario, w *sim.World) sim.Model { return newSplit(s, w, 2, 0) },
	}
}

// adaptiveSplit divides by fewer workers than there are while utilization is low: the second
// algorithm of Waiting Room.
func adaptiveSplit() sim.Strategy {
	return sim.Strategy{
		Name: "adaptive-split", About: "as even-split, but by fewer workers while use is low",
		Source: cloudflare2023 + ": adaptedWorkerCount, curveFactor 1 as in its example",
		Make:   func(s *sim.Scenario, w *sim.World) sim.Model { return newSplit(s, w, 1, curveFactor) },
	}
}

// A split lets each worker admit its part within a minute, from the pipeline's state, without a
// request. A refresh reaches any worker of the data center.
type split struct {
	pipeline
	line  *line   // a lane for each site
	curve float64 // 0: divide by all active workers
	first []int32 // worker of each site
	parts []int64 // of each site
	may   []int64 // what each worker of a site may admit in this minute
	count []int64 // admissions of each worker in this minute

	site int32 // the site of the line that is tried
	left int64 // what all its workers may still admit
	try  func(v sim.ID) outcome
}

func newSplit(s *sim.Scenario, w *sim.World, period int32, curve float64) *split {
	n := len(s.Datacenters)
	m := &split{pipeline: newPipeline(s, w, period), curve: curve, line: newLine(n, pulse)}
	m.parts, m.may = make([]int64, n), make([]int64, n)
	first, site := workers(s)
	m.first, m.count = first, make([]int64, len(site))
	m.try = m.again
	return m
}

// workers numbers all workers: first is the first worker of each site, site the site of each
// worker.
func workers(s *sim.Scenario) (first, site []int32) {
	for i := range s.Datacenters {
		first = append(first, int32(len(site)))
		for range s.Datacenters[i].Workers {
			site = append(site, int32(i))
		}
	}
	return first, site
}

// Arrive admits a newcomer if its worker has some of its part left. The decision needs no message.
func (m *split) Arrive(v sim.ID) {
	m.w.Decided(v, 0)
	x := m.w.Visitor(v)
	m.arrived(x.Datacenter)
	worker := m.first[x.Datacenter] + x.Worker
	if m.count[worker] < m.may[x.Datacenter] && !m.line.behind(x.Datacenter, m.truth.minute) {
		m.count[worker]++
		m.admitted()
		m.w.Admit(v)
		return
	}
	m.waits()
	m.w.Wait(v, m.expect())
	m.line.add(v, x.Datacenter, m.truth.minute, m.beat)
}

// again handles the refresh of a waiting visitor.
func (m *split) again(v sim.ID) outcome {
	if m.left == 0 {
		return nobody
	}
	worker := m.first[m.site] + m.w.Rand().Int32N(int32(m.s.Datacenters[m.site].Workers))
	if m.count[worker] >= m.may[m.site] {
		return stays
	}
	m.left--
	m.count[worker]++
	m.called()
	m.w.Admit(v)
	return enters
}

// Left counts the end of a session.
func (m *split) Left(v sim.ID) { m.gone(m.w.Visitor(v).Datacenter) }

// Event handles events of the pipeline.
func (m *split) Event(kind, _ int32, _ int64) {
	if kind == kindShares {
		m.observe()
		return
	}
	if m.pulse() {
		clear(m.count)
	}
	n := len(m.parts)
	m.w.Messages(n) // from the pipeline to each data center
	m.allot()
	for i := 0; i < n && m.line.total > 0; i++ {
		m.site = int32((int64(i) + m.beat) % int64(n)) // rotates the first site, for fairness
		m.left = 0
		for w := range int32(m.s.Datacenters[m.site].Workers) {
			m.left += max(0, m.may[m.site]-m.count[m.first[m.site]+w])
		}
		m.line.ask(m.site, m.beat, m.try)
	}
}

// allot computes what each worker may admit.
func (m *split) allot() {
	l := m.s.Limits
	all := divide(m.parts, budget(l, m.known.active, m.known.fresh), m.shares.seen, l.Active)
	use := max(float64(m.known.active)/float64(l.Active), float64(m.known.fresh)/float64(l.New))
	for i := range m.may {
		here := m.s.Datacenters[i].Workers // this worker decides, so they are active
		world := max(m.shares.workers, here)
		m.may[i] = each(m.parts[i], m.by(here, use)) + each(all, m.by(world, use))
	}
}

// by returns the number of workers that a part is divided by.
func (m *split) by(workers int, use float64) float64 {
	if m.curve == 0 {
		return float64(workers)
	}
	return adapted(workers, use, m.curve)
}
