package baseline

import (
	"time"

	"github.com/headgate/headgate/internal/sim"
)

// asyncCounts has each worker count for itself and tell all others every step.
func asyncCounts() sim.Strategy {
	return sim.Strategy{
		Name: "async-counts", About: "workers broadcast their counts and decide on what they last heard",
		Source: criteo + ": each instance broadcasts its count updates; every 100 ms as in " +
			"Databricks, High performance rate limiting (2025)",
		Make: newAsync,
	}
}

// told is what all workers together told at one step.
type told struct {
	minute  int32
	active  int64
	fresh   int64   // in the minute
	actives []int64 // of each worker, for those who must not count themselves twice
	freshes []int64
}

// An async model decides on its own counts and the last that it heard of all
// others. What a data centre hears is one picture, delayed by the mean way from any
// worker by where Anywhere lives to its own.
type async struct {
	crew
	now   told
	sent  []told // the last of them, in a ring
	sends int    // how many there were
	heard []int  // of each site, its index in sent
	dirty []bool // of each worker: it has something to tell
}

func newAsync(s *sim.Scenario, w *sim.World) sim.Model {
	m := &async{crew: hire(s, w, 1), heard: make([]int, len(s.Sites))}
	n := len(m.site)
	m.now = told{actives: make([]int64, n), freshes: make([]int64, n)}
	m.dirty = make([]bool, n)
	longest := time.Duration(0)
	for i := range s.Sites {
		longest = max(longest, m.way(i))
	}
	m.sent = make([]told, 3+longest/step)
	for i := range m.sent {
		m.sent[i] = told{actives: make([]int64, n), freshes: make([]int64, n)}
	}
	m.may, m.let = m.room, m.count
	return m
}

// way is how long a broadcast takes to a site.
func (m *async) way(site int) time.Duration {
	at := m.s.Sites[site]
	if len(m.s.Sites) == 1 {
		return at.Local.Mean
	}
	return at.Local.Mean + 2*at.Home.Mean
}

// room reports whether own counts and those heard of the others leave room.
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

// Left counts a session that is over.
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

// broadcast tells all others what has changed; workers with nothing new are silent.
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
