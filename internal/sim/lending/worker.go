package lending

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/borrower"
	"github.com/headgate/headgate/internal/sim"
	"github.com/headgate/headgate/internal/slot"
)

// A worker connects the borrower of a room with the simulated messages, clocks and visitors.
type worker struct {
	process
	m        *model
	name     string
	share    *slot.Share
	borrower *borrower.Borrower[wish, func(end slot.Time)]
	seen     map[slot.SessionID]sight
	ends     map[slot.SessionID]slot.Time // confirmed later ends
	order    []slot.SessionID             // of seen
	woken    bool                         // while a Sync was in flight
}

// A wish is a newcomer that waits for a slot.
type wish struct {
	v     sim.ID
	visit int64
}

type sight struct{ from, at slot.Time }

// begin starts a new life of the worker.
func (k *worker) begin() {
	k.share = slot.NewShare(k.m.params(false), k.name, slot.LoanID(k.m.w.Rand().Uint64()|1), k.m.limits()...)
	k.borrower = borrower.New(borrower.Config[wish, func(end slot.Time)]{
		Share: k.share, Term: k.m.params(false).Term, Inside: func() bool { return k.m.anyInside(k.site) },
		Report: k.report, Learn: k.learn, Open: func(_ time.Duration, q wish) bool { return k.open(q) },
		Refuse: func(q wish) { k.m.join(k, q) },
		Answer: func(answer func(end slot.Time), end slot.Time) { answer(end) },
	})
	k.seen, k.ends, k.order = map[slot.SessionID]sight{}, map[slot.SessionID]slot.Time{}, nil
	k.hurry()
	k.flush()
}

func newWorker(m *model, site, n int) *worker {
	return &worker{process: m.newProcess(site), m: m, name: fmt.Sprintf("w%d-%d", site, n)}
}

func (k *worker) flush() {
	k.after(borrower.FlushEvery, func() { k.round(true); k.flush() })
}

func (k *worker) host() *host { return k.m.sites[k.site].host }

func (k *worker) local() sim.Delay { return k.m.s.Datacenters[k.site].Local }

// round sends one Sync if there is anything to report, at the latest when the one in flight is
// answered.
func (k *worker) round(flush bool) {
	if k.woken = k.share.InFlight() != nil; k.woken {
		return
	}
	if x := k.borrower.Build(k.clk(), flush); x != nil {
		k.send(x)
	}
}

// hurry sends everything to report immediately.
func (k *worker) hurry() {
	k.borrower.Hurry()
	k.round(false)
}

// send sends a Sync, and repeats it unchanged until it is answered.
func (k *worker) send(x *slot.Sync) {
	h := k.host()
	k.m.send(&k.process, &h.process, k.local(), func() { h.put(k, x) })
	k.after(repeatEvery+k.m.patience(), func() {
		if k.share.InFlight() == x {
			k.send(x)
		}
	})
}

// report notes the sessions seen since the last report.
func (k *worker) report(_ time.Duration, _ slot.Time, note func(slot.Item) bool) (all bool) {
	for i, id := range k.order {
		s, ok := k.seen[id]
		if !ok {
			continue
		}
		delete(k.seen, id)
		if !note(slot.Item{Op: slot.Renew, ID: id, From: s.from, At: s.at}) {
			k.order = k.order[i+1:]
			return false
		}
	}
	k.order = k.order[:0]
	return true
}

// hear processes an answer.
func (k *worker) hear(x *slot.Sync, a *slot.Answer) {
	if k.borrower.Receive(k.clk(), x, a) || k.woken {
		k.round(false)
	}
}

// learn stores the ends in an answer.
func (k *worker) learn(_ time.Duration, a *slot.Answer) {
	for _, r := range a.Results {
		if r.End > 0 {
			k.ends[r.ID] = max(k.ends[r.ID], r.End)
			if v, ok := k.m.sites[k.site].stays[r.ID]; ok {
				k.m.confirmed(v, r.End)
			}
		}
	}
	if len(k.ends) > 1<<16 {
		k.ends = map[slot.SessionID]slot.Time{}
	}
}

// open admits one visitor on the share.
func (k *worker) open(q wish) bool {
	if !k.m.asks(q) {
		return true // it has given up
	}
	clk := k.clk()
	id := slot.SessionID(k.m.w.Rand().Uint64() | 1<<63)
	o, ok := k.share.Open(clk, id, 0, 0)
	if ok {
		k.m.admitted(k, q.v, id, o.End)
	}
	return ok
}

// newcomer handles a visitor without a ticket or a pass.
func (k *worker) newcomer(q wish) {
	clk := k.clk()
	if k.borrower.Arrived() && k.open(q) {
		if k.borrower.Opened(clk) { // request more before the next one has to wait
			k.round(false)
		}
		return
	}
	if !k.borrower.CanWait(clk, false) {
		k.m.join(k, q)
		return
	}
	k.borrower.Wait(q)
	k.after(borrower.SlotWait, func() {
		if k.borrower.Withdraw(q) {
			k.m.join(k, q)
		}
	})
	k.round(false)
}

// recalled handles a counter's request for a report.
func (k *worker) recalled() { k.hurry() }

// visit handles a request with a pass. It returns the new end of the pass; over reports that the
// pass has ended and the counter must decide.
func (k *worker) visit(id slot.SessionID, end slot.Time) (now slot.Time, over, ok bool) {
	clk := k.clk()
	hi, known := k.share.Hi(clk)
	if !known {
		return end, false, false
	}
	lo, _ := k.share.Lo(clk)
	end = max(end, k.ends[id])
	if hi >= end {
		return end, true, true
	}
	if _, again := k.seen[id]; !again {
		k.order = append(k.order, id)
	}
	k.seen[id] = sight{from: end, at: lo}
	return end, false, true
}

// question sends the counter a request about a pass that has ended.
func (k *worker) question(id slot.SessionID, end slot.Time, answer func(slot.Time)) {
	lo, _ := k.share.Lo(k.clk())
	k.borrower.Ask(slot.Item{Op: slot.Ask, ID: id, From: end, At: lo}, answer)
	k.hurry()
}
