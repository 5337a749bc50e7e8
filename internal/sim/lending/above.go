package lending

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/sim"
	"github.com/headgate/headgate/slot"
)

// above is the host of Anywhere: a pool whose borrowers are the counters of the
// data centres.
type above struct {
	process
	m       *model
	pool    *slot.Pool
	rev     uint64
	writing bool
	look    bool // a round is asked for
	from    map[*slot.Sync]*host
	n       int
}

// begin takes Anywhere over, or makes its first record.
func (a *above) begin() {
	m := a.m
	if m.top.rec == nil {
		m.top.rec, m.top.rev = slot.NewRecord(m.w.Rand().Uint64()|1, nil, m.limits()...), 1
	}
	a.n++
	a.from = map[*slot.Sync]*host{}
	a.pool = slot.NewPool(m.params(true), fmt.Sprint("anywhere-", a.n), m.top.read())
	a.writing = true
	wr, rev := a.pool.Takeover(a.clk()), m.top.rev
	m.write(&a.process, &m.top, rev, wr, func(ok bool) {
		a.writing = false
		if !ok {
			a.begin()
			return
		}
		a.rev = rev + 1
		a.pool.Confirm(a.clk())
		a.round(true)
		a.beat()
	})
}

func (a *above) beat() {
	a.after(500*time.Millisecond, func() { a.round(false); a.beat() })
}

// put takes a Sync of a counter in.
func (a *above) put(h *host, x *slot.Sync) {
	if a.pool == nil || !a.pool.Serving() {
		return
	}
	if _, again := a.from[x]; !again || !a.writing {
		a.pool.Put(x)
	}
	a.from[x] = h
	a.round(false)
}

// round builds a write and answers, as docs/protocol.md §5 says.
func (a *above) round(force bool) {
	if a.writing || !a.pool.Serving() {
		a.look = true
		return
	}
	a.look = false
	clk := a.clk()
	force = force || a.pool.Age(clk) > 5*time.Second ||
		a.pool.Held() && a.pool.NextEnd(0) <= a.pool.Tau(clk)
	now, wr := a.pool.Begin(clk, force)
	a.tell(now)
	if wr == nil {
		a.recall()
		if a.pool.Held() { // its wait ends
			a.after(20*time.Millisecond, func() { a.round(false) })
		}
		return
	}
	a.writing = true
	rev := a.rev
	a.m.write(&a.process, &a.m.top, rev, wr, func(ok bool) {
		a.writing = false
		if !ok { // cannot be: it has one host at a time
			a.pool.Fail()
			return
		}
		a.rev = rev + 1
		replies, _ := a.pool.Confirm(a.clk())
		a.tell(replies)
		a.recall()
		if a.look || a.pool.Held() {
			a.after(2*time.Millisecond, func() { a.round(false) })
		}
	})
}

// recall asks all counters for what they do not use.
func (a *above) recall() {
	if !a.pool.Recalls(a.clk()) {
		return
	}
	for _, s := range a.m.sites {
		h := s.host
		a.m.send(&a.process, &h.process, a.home(h), func() { h.recalled() })
	}
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

func (a *above) home(h *host) sim.Delay { return a.m.s.Sites[h.site].Home }
