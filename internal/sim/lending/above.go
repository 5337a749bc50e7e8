package lending

import (
	"fmt"

	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/sim"
	"github.com/headgate/headgate/internal/slot"
)

// An above is the host of Anywhere: a core whose borrowers are the counters of the data centers,
// and which has no line.
type above struct {
	writer
	from map[*slot.Sync]*host
	n    int
}

// begin takes Anywhere over, or creates its first record.
func (a *above) begin() {
	m := a.m
	first := a.disk.rec == nil
	if first {
		a.disk.rec, a.disk.rev = slot.NewRecord(m.w.Rand().Uint64()|1, nil, m.limits()...), 1
	}
	a.n++
	a.from = map[*slot.Sync]*host{}
	cfg := counter.Config{
		Room: "anywhere", Host: fmt.Sprint("anywhere-", a.n), Params: m.params(true),
		Settings: m.settings(), Random: m.w.Rand().Float64,
	}
	a.takeOver(counter.NewCore(cfg, a.disk.read(), first, func() { a.after(0, a.round) }), a.begin, a.round)
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
	a.write(a.desk.Pool().Serving(), false, func(replies []slot.Reply, _ []slot.ClaimReply) { a.tell(replies) })
}

// lost does nothing: Anywhere has one host at a time.
func (a *above) lost() {}

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
