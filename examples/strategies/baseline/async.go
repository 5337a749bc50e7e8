package baseline

import (
	"time"

	"github.com/headgate/headgate/internal/sim"
)

// asyncCounts makes each worker count for itself and broadcast its counts every step.
func asyncCounts() sim.Strategy {
	return sim.Strategy{
		Name: "async-counts", About: "workers broadcast their counts and decide on what they last heard",
		Source: criteo + ": each instance broadcasts its count updates; every 100 ms as in " +
			"Databricks, High performance rate limiting (2025)",
		Make: newAsync,
	}
}

// A told holds the counts of all workers at one step.
type told struct {
	minute  int32
	active  int64
	fresh   int64   // in the minute
	actives []int64 // of each worker, so that a worker can leave out itself
	freshes []int64
}

// An async is a model that decides on a worker's own counts and the last counts received of all
// others. A data center receives one snapshot, after the mean delay from any worker through the
// home of Anywhere.
type async struct {
	crew
	now   told
	sent  []told // the most recent ones, in a ring
	sends int    // number of broadcasts so far
	heard []int  // of each site, its index in sent
	dirty []bool // of each worker: it has changes to send
}

func newAsync(s *sim.Scenario, w *sim.World) sim.Model {
	m := &async{crew: hire(s, w, 1), heard: make([]int, len(s.Datacenters))}
	n := len(m.site)
	m.now = told{actives: make([]int64, n), freshes: make([]int64, n)}
	m.dirty = make([]bool, n)
	longest := time.Duration(0)
	for i := range s.Datacenters {
		longest = max(longest, m.way(i))
	}
	m.sent = make([]told, 3+longest/step)
	for i := range m.sent {
		m.sent[i] = told{actives: make([]int64, n), freshes: make([]int64, n)}
	}
	m.may, m.let = m.room, m.count
	return m
}

// way returns the delay of a broadcast to a site.
func (m *async) way(site int) time.Duration {
	at := m.s.Datacenters[site]
	if len(m.s.Datacenters) == 1 {
		return at.Local.Mean
	}
	return at.Local.Mean + 2*at.Home.Mean
}

// room reports whether the own counts plus the received ones are below the limits.
func (m *async) room(worker int32) bool {
	h := &m.sent[m.heard[m.site[worker]]]
	active := m.now.actives[worker] + h.active - h.actives[worker]
	fresh := m.now.freshes[worker]
	if h.minute == m.now.minute {
		fresh += h.fresh - h.freshes[worker]
	}
	return active < m.s.Limits.Active && fresh < m.s.Limits.New
}

func (m *async) count(worker int32, _ sim.ID) {
	m.now.active++
	m.now.fresh++
	m.now.actives[worker]++
	m.now.freshes[worker]++
	m.dirty[worker] = true
}

// Arrive decides on a newcomer.
func (m *async) Arrive(v sim.ID) { m.arrive(v, m.number(m.w.Visitor(v))) }

// Left counts the end of a session.
func (m *async) Left(v sim.ID) {
	worker := m.number(m.w.Visitor(v))
	m.now.active--
	m.now.actives[worker]--
	m.dirty[worker] = true
}

// Event is a step, or the arrival of a broadcast at a site.
func (m *async) Event(kind, site int32, index int64) {
	if kind == kindHeard {
		m.heard[site] = int(index)
		return
	}
	if minute := minuteOf(m.w.Now()); minute != m.now.minute {
		m.now.minute, m.now.fresh = minute, 0
		clear(m.now.freshes)
	}
	m.refresh()
	m.broadcast()
}

// broadcast sends the changes to all others. Workers without changes send nothing.
func (m *async) broadcast() {
	tell := 0
	for i := range m.dirty {
		if m.dirty[i] {
			tell++
			m.dirty[i] = false
		}
	}
	if tell == 0 {
		return
	}
	m.w.Messages(tell * (len(m.dirty) - 1))
	m.sends++
	index := m.sends % len(m.sent)
	to := &m.sent[index]
	to.minute, to.active, to.fresh = m.now.minute, m.now.active, m.now.fresh
	copy(to.actives, m.now.actives)
	copy(to.freshes, m.now.freshes)
	for i := range m.heard {
		m.w.After(m.way(i), kindHeard, int32(i), int64(index))
	}
}
