package baseline

import (
	"time"

	"github.com/headgate/headgate/internal/sim"
)

// counters has one counter for each data center, and one for Anywhere: the third algorithm of
// Waiting Room, of 2023. There a data center has several counters, each for some of its workers.
// One counter gives better results.
func counters() sim.Strategy {
	return sim.Strategy{
		Name: "counters", About: "a counter in each data center and one for Anywhere, by the minute",
		Source: cloudflare2023 + ": counters",
		Make:   newCounters,
	}
}

// A counted is a model that requests a slot from the counter of its data center for each newcomer,
// and from Anywhere's if that has none left. A counter counts at the moment of the request, and the
// round trips are added to the newcomer's latency. Waiting visitors request too when they refresh,
// but not again in a second with a rejection: used slots cannot come back before the next snapshot.
type counted struct {
	pipeline
	line  *line // a lane for each site
	parts []int64
	all   int64
	here  []counter
	world counter

	site int32 // the site of the line that is tried
	try  func(v sim.ID) outcome
}

func newCounters(s *sim.Scenario, w *sim.World) sim.Model {
	n := len(s.Datacenters)
	m := &counted{pipeline: newPipeline(s, w, 1), line: newLine(n, pulse)}
	m.parts, m.here = make([]int64, n), make([]counter, n)
	m.try = m.again
	return m
}

// Arrive requests a slot for a newcomer. A newcomer behind an earlier group waits without a
// request.
func (m *counted) Arrive(v sim.ID) {
	site := m.w.Visitor(v).Datacenter
	m.arrived(site)
	took, pass := time.Duration(0), false
	if !m.line.behind(site, m.truth.minute) {
		took, pass = m.ask(site)
	}
	m.w.Decided(v, took)
	if pass {
		m.admitted()
		m.w.Admit(v)
		return
	}
	m.waits()
	m.w.Wait(v, m.expect())
	m.line.add(v, site, m.truth.minute, m.beat)
}

// ask sends requests to the counters for one visitor. It skips a counter that has no slots at all
// by the state.
func (m *counted) ask(site int32) (took time.Duration, pass bool) {
	if m.parts[site] > 0 {
		_, pass = m.here[site].ask(m.parts[site])
		took = m.trip(m.s.Datacenters[site].Local)
	}
	if !pass && m.all > 0 {
		_, pass = m.world.ask(m.all)
		took += m.trip(m.s.Datacenters[site].Home)
	}
	return took, pass
}

// trip returns the duration of a request and its answer.
func (m *counted) trip(d sim.Delay) time.Duration {
	m.w.Messages(2)
	r := m.w.Rand()
	return d.Draw(r) + d.Draw(r)
}

func (m *counted) again(v sim.ID) outcome {
	if _, pass := m.ask(m.site); !pass {
		return nobody
	}
	m.called()
	m.w.Admit(v)
	return enters
}

// Left counts the end of a session.
func (m *counted) Left(v sim.ID) { m.gone(m.w.Visitor(v).Datacenter) }

// Event handles events of the pipeline.
func (m *counted) Event(kind, _ int32, _ int64) {
	if kind == kindShares {
		m.observe()
		return
	}
	if m.pulse() {
		clear(m.here)
		m.world = counter{}
	}
	n, l := len(m.parts), m.s.Limits
	m.w.Messages(n) // from the pipeline to each data center
	m.all = divide(m.parts, budget(l, m.known.active, m.known.fresh), m.shares.seen, l.Active)
	for i := 0; i < n && m.line.total > 0; i++ {
		m.site = int32((int64(i) + m.beat) % int64(n)) // rotates the first site, for fairness
		m.line.ask(m.site, m.beat, m.try)
	}
}
