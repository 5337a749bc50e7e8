package lending

import "time"

// breakThings causes crashes, pauses and network cuts at random times, until the period of faults
// ends.
func (m *model) breakThings() {
	f := &m.s.Faults
	for i, x := range m.sites {
		for _, k := range x.workers {
			m.every(f.Crash, func() { m.crashWorker(k) })
			m.every(f.Pause, func() { m.pause(&k.process) })
		}
		m.every(f.Crash, func() { m.crashHost(i) })
		m.every(f.Pause, func() { m.pauseHost(i) })
		if m.above != nil {
			m.every(f.Cut, func() { x.cutUntil = m.w.Now() + m.lasts(f.Cuts) })
		}
	}
	if m.above != nil {
		m.every(f.Crash, func() { m.kill(&m.above.process, m.above.begin) })
		m.every(f.Pause, func() { m.pause(&m.above.process) })
	}
}

func (m *model) draw(mean time.Duration) time.Duration {
	return time.Duration(m.w.Rand().ExpFloat64() * float64(mean))
}

// lasts draws the duration of a fault. No fault lasts longer than the period of faults.
func (m *model) lasts(mean time.Duration) time.Duration {
	return min(m.draw(mean), m.faultsEnd-m.w.Now())
}

// every runs do at exponentially distributed intervals during the period of faults.
func (m *model) every(mean time.Duration, do func()) {
	if mean == 0 {
		return
	}
	m.after(m.draw(mean), func() {
		if m.faulty() {
			do()
			m.every(mean, do)
		}
	})
}

func (m *model) pause(p *process) {
	p.paused = max(p.paused, m.w.Now()+m.lasts(m.s.Faults.Paused))
}

// kill ends a process. start begins its next life after a while.
func (m *model) kill(p *process, start func()) {
	if !p.up {
		return
	}
	m.count.crashes++
	p.up = false
	p.life++
	life := p.life
	m.after(m.lasts(m.s.Faults.Down), func() {
		if !p.up && p.life == life {
			p.up, p.paused = true, 0
			start()
		}
	})
}

func (m *model) crashWorker(k *worker) {
	for _, x := range m.sites {
		x.host.forget(k)
	}
	m.kill(&k.process, k.begin)
}

// crashHost kills the counter of a data center; another process takes over.
func (m *model) crashHost(i int) {
	h := m.sites[i].host
	if !h.up {
		return
	}
	m.count.crashes++
	h.up = false
	h.life++
	m.replace(i, takeover)
}

// replace starts another host of a data center. The old one may still run.
func (m *model) replace(i int, after time.Duration) {
	old := m.sites[i].host
	m.after(after, func() {
		if m.sites[i].host != old {
			return
		}
		m.count.takes++
		m.after(time.Minute, func() { old.up = false }) // by now it has learned that it is replaced
		h := m.newHost(i)
		m.sites[i].host = h
		h.begin()
	})
}

// pauseHost pauses a host. After a long pause another one takes over, and the old one resumes
// beside it.
func (m *model) pauseHost(i int) {
	h := m.sites[i].host
	m.pause(&h.process)
	if h.paused-m.w.Now() > takeover {
		m.replace(i, takeover)
	}
}
