package lending

import (
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/sim"
	"github.com/headgate/headgate/internal/slot"
)

// These are the parameters of the wire (docs/protocol.md §12).
const (
	groupGap    = 2 * time.Millisecond
	repeatEvery = 250 * time.Millisecond
	termAbove   = 10 * time.Minute
	hold        = 15 * time.Minute        // of a ticket
	takeover    = 2500 * time.Millisecond // a silent host is replaced after this
)

// A host is the counter of one data center: its core, and the requests that wait for a write.
type host struct {
	writer
	fenced bool
	wait   []func() // for a fresh write
	syncs  map[*slot.Sync]*worker
	claims map[slot.SessionID][]func(slot.ClaimReply)

	upTimer int // number of the newest wake-up for Anywhere
}

func (m *model) newHost(site int) *host {
	h := &host{writer: writer{process: m.newProcess(site), disk: &m.sites[site].disk}}
	h.host = h
	return h
}

// begin takes the record of its data center over.
func (h *host) begin() {
	m := h.m
	h.fenced = false
	h.wait, h.syncs = nil, map[*slot.Sync]*worker{}
	h.claims = map[slot.SessionID][]func(slot.ClaimReply){}
	first := h.disk.rec == nil
	if first {
		var up *slot.ParentLoan
		if m.above != nil {
			up = &slot.ParentLoan{Loan: slot.LoanID(m.w.Rand().Uint64() | 1)}
		}
		h.disk.rec, h.disk.rev = slot.NewRecord(m.w.Rand().Uint64()|1, up, m.limits()...), 1
	}
	m.hosts++
	cfg := counter.Config{
		Room: "sim", Host: fmt.Sprint("host-", m.hosts), Params: m.params(false),
		Settings: m.settings(), Random: m.w.Rand().Float64,
	}
	h.takeOver(counter.NewCore(cfg, h.disk.read(), first, h.again), h.begin, func() {
		if m.above != nil {
			h.upward()
		}
		h.round()
	})
}

// again requests a round soon, from within a call of the core.
func (h *host) again() { h.after(0, h.round) }

func (h *host) serving() bool { return !h.fenced && h.desk != nil && h.desk.Pool().Serving() }

// round builds one write, stores it, sends the answers and calls visitors, like Counter.Run.
func (h *host) round() {
	h.write(h.serving(), len(h.wait) > 0, func(replies []slot.Reply, claims []slot.ClaimReply) {
		h.tell(replies)
		for _, c := range claims {
			for _, f := range h.claims[c.ID] {
				f(c)
			}
			delete(h.claims, c.ID)
		}
		wait := h.wait
		h.wait = nil
		for _, f := range wait {
			f()
		}
	})
}

// lost stops the host: another one has written.
func (h *host) lost() {
	h.fenced = true
	h.m.fenced++
}

func (h *host) look() {
	recall, next := h.desk.CallNext(h.clk())
	if recall {
		for _, k := range h.m.sites[h.site].workers {
			h.m.send(&h.process, &k.process, h.local(), k.recalled)
		}
	}
	h.wake(next)
	h.upward()
}

func (h *host) local() sim.Delay { return h.m.s.Datacenters[h.site].Local }

func (h *host) tell(replies []slot.Reply) {
	for _, r := range replies {
		k, a := h.syncs[r.Sync], r.Answer
		delete(h.syncs, r.Sync)
		if k != nil {
			x := r.Sync
			h.m.send(&h.process, &k.process, h.local(), func() { k.hear(x, &a) })
		}
	}
}

// put processes a Sync of a worker.
func (h *host) put(k *worker, x *slot.Sync) {
	if !h.serving() {
		return
	}
	h.syncs[x] = k
	h.desk.Receive(h.clk(), x)
	h.round()
}

// ready calls f as soon as the host may issue numbers and send positions.
func (h *host) ready(join bool, f func()) {
	if !h.serving() {
		return
	}
	if h.desk.IsReady(h.clk(), join) {
		f()
		return
	}
	h.wait = append(h.wait, func() { h.ready(join, f) })
	h.round()
}

// join puts a visitor at the end of the line and answers.
func (h *host) join(came time.Duration, answer func(counter.PlaceInfo)) {
	h.ready(true, func() {
		p := h.desk.Join(h.clk(), hold, h.m.w.Now()-came)
		answer(p)
		h.round()
	})
}

// poll answers with the place of a ticket.
func (h *host) poll(number uint64, answer func(counter.PlaceInfo)) {
	h.ready(false, func() {
		p := h.desk.Poll(h.clk(), number)
		answer(p)
	})
}

// claim turns a called ticket into a session. It does not answer if the ticket is not called.
func (h *host) claim(number uint64, answer func(r slot.ClaimReply, ok bool)) {
	if !h.serving() {
		return
	}
	id := slot.SessionID(number)
	if !h.desk.Claim(h.clk(), number, len(h.claims[id]) > 0) {
		answer(slot.ClaimReply{}, false)
		return
	}
	h.claims[id] = append(h.claims[id], func(r slot.ClaimReply) { answer(r, true) })
	h.round()
}

// upward sends a Sync to Anywhere if one is due, and repeats it until it is answered.
func (h *host) upward() {
	if h.m.above == nil || !h.serving() || h.desk.Pool().ParentInFlight() != nil {
		return
	}
	x, next := h.desk.ParentSync(h.clk())
	if x != nil {
		h.sendUp(x)
		return
	}
	h.upTimer++
	n, desk := h.upTimer, h.desk
	h.after(next, func() {
		if n == h.upTimer && desk == h.desk {
			h.upward()
		}
	})
}

func (h *host) sendUp(x *slot.Sync) {
	a := h.m.above
	h.m.send(&h.process, &a.process, a.home(h), func() { a.put(h, x) })
	desk := h.desk
	h.after(repeatEvery+h.m.roundTrip(h), func() {
		if h.desk == desk && h.serving() && desk.Pool().ParentInFlight() == x {
			h.sendUp(x)
		}
	})
}

// heard processes an answer of Anywhere.
func (h *host) heard(a slot.Answer) {
	if h.serving() {
		h.desk.ReceiveParent(h.clk(), a)
		h.round()
		h.upward()
	}
}

// recalled handles a request of Anywhere for unused slots.
func (h *host) recalled() {
	if h.serving() {
		h.desk.RecallByParent(h.clk())
		h.round()
		h.upward()
	}
}

// forget removes an ended worker from those that wait for an answer.
func (h *host) forget(k *worker) {
	for x, to := range h.syncs {
		if to == k {
			delete(h.syncs, x)
		}
	}
	h.wait = slices.DeleteFunc(h.wait, func(f func()) bool { return f == nil })
}
