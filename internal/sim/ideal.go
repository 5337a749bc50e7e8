package sim

import "time"

// Ideal returns the ideal central counter. It knows everything immediately and costs nothing: it
// admits the next in line at the very moment when a slot is free and the spread allows it. No
// system of more than one machine can be better.
func Ideal() Strategy {
	return Strategy{
		Name: "ideal", About: "one counter that knows everything at once: the measure of the others",
		Source: "the definition of the promises, docs/design.md §2", Spread: true,
		Make: func(s *Scenario, w *World) Model { return &ideal{w: w, l: s.Limits} },
	}
}

type ideal struct {
	w     *World
	l     Limits
	line  []ID
	head  int
	at    time.Duration // when the next admission is due
	alarm time.Duration
}

func (m *ideal) room() bool {
	active, fresh := m.w.Inside()
	return active < m.l.Active && fresh < m.l.New
}

// Arrive admits a newcomer, or makes it wait.
func (m *ideal) Arrive(v ID) {
	m.w.Decided(v, 0)
	if m.head == len(m.line) && m.room() {
		m.w.Admit(v)
		return
	}
	m.w.Wait(v, WaitEstimate{})
	m.line = append(m.line, v)
	m.call()
}

// Left calls the next.
func (m *ideal) Left(ID) { m.call() }

// Event calls the next: a window has passed, or a step of the spread is due.
func (m *ideal) Event(_, _ int32, _ int64) {
	m.alarm = 0
	m.call()
}

// call admits whoever may enter now, and sets the alarm for the next one.
func (m *ideal) call() {
	now := m.w.Now()
	for m.head < len(m.line) && m.room() && now >= m.at {
		m.w.Admit(m.line[m.head])
		m.head++
		step := m.w.spread
		// A pause does not save up admissions: at most half a second of them is made up for.
		m.at = max(m.at, now-min(step, time.Second/2)) + step
	}
	// Move the rest to the front now and then, so that a long run does not keep everybody who ever
	// waited.
	if m.head > 1024 && m.head > len(m.line)/2 {
		m.line = m.line[:copy(m.line, m.line[m.head:])]
		m.head = 0
	}
	if m.head == len(m.line) {
		return
	}
	next := m.at
	if _, fresh := m.w.Inside(); fresh >= m.l.New && m.w.recent.n > 0 {
		next = max(next, m.w.oldest()+m.l.Window)
	}
	if next > now && (m.alarm <= now || next < m.alarm) {
		m.alarm = next
		m.w.At(next, 0, 0, 0)
	}
}

// oldest returns the time of the first admission that the window still counts.
func (w *World) oldest() time.Duration {
	for i := range w.recent.n {
		if t := w.recent.get(i); t > w.now-w.scenario.Limits.Window {
			return t
		}
	}
	return w.now
}
