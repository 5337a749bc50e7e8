package baseline

import (
	"time"

	"github.com/headgate/headgate/internal/sim"
)

// These constants define the delay of the log. Criteo gives no numbers: "usually small", and more
// under load. Chosen: 200 ms, plus one second for each thousand calls a second.
const (
	logBase    = 200 * time.Millisecond
	logPerCall = time.Millisecond
	logMost    = 2 * time.Minute // chosen; it only limits memory
)

// eventLog counts through a log such as Kafka: each call is an event, and the counts of the last
// minute come back on another topic.
func eventLog() sim.Strategy {
	return sim.Strategy{
		Name: "event-log", About: "calls are counted through a log that lags more under load",
		Source: criteo + ": counters through Kafka, lagging most under load; the lag is chosen",
		Make:   newLog,
	}
}

// counts are the counts of one step, as the log publishes them.
type counts struct {
	active int64
	came   int64 // since the start
	fresh  int64 // within the window
}

// A log is a model that decides only on the published counts, which are the same at all workers. A
// rejection is a call too, and so is a refresh.
type log struct {
	crew
	now    counts
	ring   []counts // of each step
	calls  []int64  // of each step of the last second
	recent int64    // their sum
	read   int64    // the step whose counts are published now
	window int64    // in steps
}

func newLog(s *sim.Scenario, w *sim.World) sim.Model {
	m := &log{crew: hire(s, w, 1), calls: make([]int64, time.Second/step)}
	m.window = int64(s.Limits.Window / step)
	m.ring = make([]counts, int64(logMost/step)+m.window+2)
	m.may, m.let = m.room, m.count
	return m
}

func (m *log) room(int32) bool {
	h := &m.ring[m.read%int64(len(m.ring))]
	return h.active < m.s.Limits.Active && h.fresh < m.s.Limits.New
}

func (m *log) count(int32, sim.ID) {
	m.now.active++
	m.now.came++
}

// Arrive decides on a newcomer.
func (m *log) Arrive(v sim.ID) {
	m.call(1)
	m.arrive(v, m.number(m.w.Visitor(v)))
}

// call adds events.
func (m *log) call(n int64) {
	m.calls[max(0, m.beat)%int64(len(m.calls))] += n
	m.recent += n
	m.w.Messages(int(n))
}

// Left counts the end of a session.
func (m *log) Left(sim.ID) { m.now.active-- }

// Event handles a step: the log publishes its counts.
func (m *log) Event(_, _ int32, _ int64) {
	m.refresh()
	at := m.beat % int64(len(m.calls))
	m.recent -= m.calls[at]
	m.calls[at] = 0
	m.call(m.line.total / int64(m.line.phases)) // the refreshes of this step
	m.publish()
}

func (m *log) publish() {
	n := int64(len(m.ring))
	if before := m.beat - m.window; before >= 0 {
		m.now.fresh = m.now.came - m.ring[before%n].came
	} else {
		m.now.fresh = m.now.came
	}
	m.ring[m.beat%n] = m.now
	lag := int64(lagOf(m.recent) / step)
	m.read = min(m.beat, max(m.read, m.beat-lag)) // a reader never goes back
	m.w.Messages(len(m.site))
}

// lagOf returns the age of the published counts at this number of calls a second.
func lagOf(calls int64) time.Duration {
	return min(logMost, logBase+time.Duration(calls)*logPerCall)
}
