package lending

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/sim"
	"github.com/headgate/headgate/internal/slot"
)

// An above is the host of Anywhere: a core whose borrowers are the counters of the data centers,
// and which has no line.
type above struct {
	process
	m       *model
	desk    *counter.Core
	rev     uint64
	writing bool
	more    bool // another round was requested during the write
	lastTry time.Duration
	timer   int // number of the newest wake-up
	from    map[*slot.Sync]*host
	n       int
}

// begin takes Anywhere over, or creates its first record.
func (a *above) begin() {
	m := a.m
	first := m.top.rec == nil
	if first {
		m.top.rec, m.top.rev = slot.NewRecord(m.w.Rand().Uint64()|1, nil, m.limits()...), 1
	}
	a.n++
	a.from = map[*slot.Sync]*host{}
	cfg := counter.Config{
		Room: "anywhere", Host: fmt.Sprint("anywhere-", a.n), Params: m.params(true),
		Settings: m.settings(), Random: m.w.Rand().Float64,
	}
	a.desk = counter.NewCore(cfg, m.top.read(), first, func() { a.after(0, a.round) })
	a.writing = true
	desk, rev := a.desk, m.top.rev
	m.write(&a.process, &m.top, rev, a.desk.TakeOver(a.clk()), func(ok bool) {
		a.writing = false
		if !ok || desk != a.desk {
			a.begin()
			return
		}
		a.rev = rev + 1
		if err := a.desk.Begin(a.clk()); err != nil {
			panic(err)
		}
		a.round()
	})
}

// put processes a Sync of a counter.
func (a *above) put(h *host, x *slot.Sync) {
	if a.desk == nil || !a.desk.Pool().Serving() {
		return
	}
	if _, again := a.from[x]; !again || !a.writing {
		a.desk.Receive(a.clk(), x)
	}
	a.from[x] = h
	a.round()
}

// round builds a write and answers, as in docs/protocol.md §5.
func (a *above) round() {
	if a.writing || !a.desk.Pool().Serving() {
		a.more = a.writing
		return
	}
	a.more = false
	clk := a.clk()
	if gap := a.lastTry + groupGap - clk; gap > 0 && a.lastTry > 0 {
		a.wake(gap)
		return
	}
	a.lastTry = clk
	now, wr := a.desk.Build(clk, false)
	a.tell(now)
	if wr == nil {
		a.look()
		return
	}
	a.writing = true
	desk, rev := a.desk, a.rev
	a.m.write(&a.process, &a.m.top, rev, wr, func(ok bool) {
		if desk != a.desk {
			return
		}
		a.writing = false
		if !ok { // impossible: it has one host at a time
			a.desk.Pool().Fail()
			return
		}
		a.rev = rev + 1
		replies, _ := a.desk.Stored(a.clk())
		a.tell(replies)
		a.look()
		if a.more {
			a.round()
		}
	})
}

// look requests unused slots from all counters, if that is due.
func (a *above) look() {
	recall, next := a.desk.CallNext(a.clk())
	if recall {
		for _, s := range a.m.sites {
			h := s.host
			a.m.send(&a.process, &h.process, a.home(h), func() { h.recalled() })
		}
	}
	a.wake(next)
}

// wake requests a round in d; only the newest request counts.
func (a *above) wake(d time.Duration) {
	a.timer++
	n := a.timer
	a.after(d, func() {
		if n == a.timer {
			a.round()
		}
	})
}

func (a *above) tell(replies []slot.Reply) {
	for _, r := range replies {
		h, answer := a.from[r.Sync], r.Answer
		delete(a.from, r.Sync)
		if h != nil {
			a.m.send(&a.process, &h.process, a.home(h), func() { h.heard(answer) })
		}
	}
}

func (a *above) home(h *host) sim.Delay { return a.m.s.Datacenters[h.site].Home }
