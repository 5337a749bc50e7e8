package lending

import (
	"time"

	"github.com/headgate/headgate/internal/sim"
)

// A process has its own clock, and may be paused and killed.
type process struct {
	m      *model
	life   int // +1 at each start
	up     bool
	paused time.Duration // not scheduled until then
	rate   float64       // of its clock
	offset time.Duration
	site   int // -1: the home of Anywhere
}

func (m *model) newProcess(site int) process {
	f := &m.s.Faults
	p := process{m: m, site: site, up: true, rate: 1, life: 1}
	if f.Drift > 0 {
		p.rate = 1 + f.Drift*(2*m.w.Rand().Float64()-1)
	}
	if f.Offset > 0 {
		p.offset = time.Duration(m.w.Rand().Int64N(int64(f.Offset)))
	}
	return p
}

// clk returns the process's own clock. It starts at one hour, because a core takes 0 for "never".
func (p *process) clk() time.Duration {
	return time.Hour + p.offset + time.Duration(float64(p.m.w.Now())*p.rate)
}

// after calls f when the process's clock has advanced by d, if it is still in the same life.
func (p *process) after(d time.Duration, f func()) {
	life, wait := p.life, time.Duration(0)
	if d > 0 { // rounding must not make it early on its own clock
		wait = time.Duration(float64(d)/p.rate) + time.Microsecond
	}
	p.m.after(wait, func() { p.when(life, f) })
}

// when runs f in that life of the process, once it is scheduled.
func (p *process) when(life int, f func()) {
	if !p.up || p.life != life {
		return
	}
	if now := p.m.w.Now(); p.paused > now {
		p.m.after(p.paused-now, func() { p.when(life, f) })
		return
	}
	f()
}

// after calls f in d of true time.
func (m *model) after(d time.Duration, f func()) {
	var i int32
	if n := len(m.unused); n > 0 {
		i = m.unused[n-1]
		m.unused = m.unused[:n-1]
		m.calls[i] = f
	} else {
		i = int32(len(m.calls))
		m.calls = append(m.calls, f)
	}
	m.w.After(d, 0, i, 0)
}

// Event runs a function scheduled with after.
func (m *model) Event(_, i int32, _ int64) {
	f := m.calls[i]
	m.calls[i] = nil
	m.unused = append(m.unused, i)
	f()
}

// send sends a message to a process: f runs there on arrival, in the life that the process then
// has. The message may be lost, duplicated, or cut off.
func (m *model) send(from, to *process, d sim.Delay, f func()) {
	m.w.Messages(1)
	m.carry(from, to, d, f)
}

// carry is send without counting: for the polls of waiting visitors.
func (m *model) carry(from, to *process, d sim.Delay, f func()) {
	r, x := m.w.Rand(), &m.s.Faults
	if m.cut(from.site, to.site) || m.faulty() && x.Lose > 0 && r.Float64() < x.Lose {
		return
	}
	deliver := func() { to.when(to.life, f) }
	m.after(d.Draw(r), deliver)
	if m.faulty() && x.Repeat > 0 && r.Float64() < x.Repeat {
		m.after(d.Draw(r)+time.Duration(r.ExpFloat64()*float64(time.Second)), deliver)
	}
}

// cut reports whether the connection of two places is cut now.
func (m *model) cut(a, b int) bool {
	return a != b && (a >= 0 && m.sites[a].cutUntil > m.w.Now() || b >= 0 && m.sites[b].cutUntil > m.w.Now())
}

// faulty reports whether faults occur now. In a hunt they end after a while, so that the recovery
// can be checked.
func (m *model) faulty() bool { return m.w.Now() < m.faultsEnd }
