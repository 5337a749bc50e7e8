package lending

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/sim"
	"github.com/headgate/headgate/slot"
)

// recallWait: a newcomer waits this long for a slot at most.
const recallWait = 2 * time.Second

// A worker admits from its share, notes who was seen and reports in batches, like
// the worker of the room (worker.go at the root).
type worker struct {
	process
	m        *model
	name     string
	share    *slot.Share
	queue    []wish
	asks     []ask
	flying   []ask
	seen     map[slot.StayID]sight
	ends     map[slot.StayID]slot.Tau // confirmed later ends
	order    []slot.StayID            // of seen
	urgent   bool
	giveBack bool
	arrivals float64
	wants    float64
	lastOpen time.Duration
	lastSync time.Duration
}

// wish is a newcomer who waits for a slot.
type wish struct {
	v     sim.ID
	visit int64
}

// ask is a pass whose end has passed.
type ask struct {
	item   slot.Item
	answer func(end slot.Tau)
}

type sight struct{ from, at slot.Tau }

// begin starts a new life of the worker.
func (k *worker) begin() {
	k.share = slot.NewShare(k.m.params(false), k.name, slot.LoanID(k.m.w.Rand().Uint64()|1), k.m.limits()...)
	k.queue, k.asks, k.flying = nil, nil, nil
	k.seen, k.ends, k.order = map[slot.StayID]sight{}, map[slot.StayID]slot.Tau{}, nil
	k.urgent, k.arrivals, k.wants, k.lastOpen, k.lastSync = true, 0, 0, 0, 0
	k.round(false)
	k.flush()
}

func newWorker(m *model, site, n int) *worker {
	return &worker{process: m.newProcess(site), m: m, name: fmt.Sprintf("w%d-%d", site, n)}
}

func (k *worker) flush() {
	k.after(flushEvery, func() { k.round(true); k.flush() })
}

func (k *worker) host() *host { return k.m.sites[k.site].host }

func (k *worker) local() sim.Delay { return k.m.s.Sites[k.site].Local }

// round sends one Sync if there is anything to say.
func (k *worker) round(flush bool) {
	if k.share.Flying() != nil {
		return
	}
	x := k.build(k.clk(), flush)
	if x != nil {
		k.send(x)
	}
}

// send sends a Sync, and again unchanged until it is answered.
func (k *worker) send(x *slot.Sync) {
	h := k.host()
	k.m.send(&k.process, &h.process, k.local(), func() { h.put(k, x) })
	k.after(repeatEvery+k.m.patience(), func() {
		if k.share.Flying() == x {
			k.send(x)
		}
	})
}

func (k *worker) build(clk time.Duration, flush bool) *slot.Sync {
	due := flush || k.urgent || len(k.queue) > 0
	if due {
		k.report(clk)
	}
	if flush {
		k.wants = 0.7*k.wants + 0.3*k.arrivals/flushEvery.Seconds()
		k.arrivals = 0
	}
	if k.giveBack || flush && clk-k.lastOpen > idleReturn {
		k.share.Return(k.share.Held())
	}
	k.giveBack = false
	for _, q := range k.asks {
		k.share.Note(q.item)
	}
	k.flying, k.asks = append(k.flying, k.asks...), nil
	need, want := int64(len(k.queue)), int64(0)
	if ahead := int64(k.wants*wantFor + 0.5); need > 0 || k.share.Held() < ahead/2 {
		want = max(0, ahead-k.share.Held())
	}
	par := k.m.params(false)
	say := need > 0 || want > 0 && due || k.share.Noted() > 0 || k.urgent ||
		clk-k.lastSync > par.Term/3 && (k.share.Held() > 0 || k.m.anyInside(k.site))
	k.urgent = false
	if !say {
		return nil
	}
	k.lastSync = clk
	return k.share.Sync(clk, need, want)
}

// report notes who was seen since the last report.
func (k *worker) report(clk time.Duration) {
	lo, ok := k.share.Lo(clk)
	if !ok {
		return
	}
	for _, id := range k.order {
		if s, ok := k.seen[id]; ok {
			k.share.Note(slot.Item{Op: slot.Renew, ID: id, From: s.from, At: s.at})
			delete(k.seen, id)
		}
	}
	k.order = k.order[:0]
	k.share.Settle(lo)
}

// hear takes an answer in.
func (k *worker) hear(x *slot.Sync, a *slot.Answer) {
	if !k.share.Heard(k.clk(), a) {
		return
	}
	if a.Over {
		k.urgent = true
		k.round(false)
		return
	}
	for _, r := range a.Results {
		if r.End > 0 {
			k.ends[r.ID] = max(k.ends[r.ID], r.End)
			if v, ok := k.m.sites[k.site].stays[r.ID]; ok {
				k.m.confirmed(v, r.End)
			}
		}
	}
	if len(k.ends) > 1<<16 {
		k.ends = map[slot.StayID]slot.Tau{}
	}
	k.settleAsks(a)
	served := 0
	for _, q := range k.queue {
		if !k.open(q) {
			break
		}
		served++
	}
	k.queue = k.queue[served:]
	if x.Need > 0 && a.Granted == x.Granted && !a.Again { // nothing is left; else the rest asks again
		left := min(max(0, int(x.Need)-served), len(k.queue))
		for _, q := range k.queue[:left] {
			k.m.join(k, q)
		}
		k.queue = k.queue[left:]
	}
	k.giveBack = a.GiveBack && k.share.Held() > 0
	k.urgent = k.urgent || k.giveBack
	if k.giveBack || len(k.queue) > 0 {
		k.round(false)
	}
}

// open lets one in on the share.
func (k *worker) open(q wish) bool {
	if !k.m.asks(q) {
		return true // it has given up
	}
	clk := k.clk()
	id := slot.StayID(k.m.w.Rand().Uint64() | 1<<63)
	o, ok := k.share.Open(clk, id, 0, 0)
	if ok {
		k.lastOpen = clk
		k.m.admitted(k, q.v, id, o.End)
	}
	return ok
}

func (k *worker) settleAsks(a *slot.Answer) {
	for _, q := range k.flying {
		var end slot.Tau
		for _, r := range a.Results {
			if r.ID == q.item.ID {
				end = r.End
			}
		}
		q.answer(end)
	}
	k.flying = nil
}

// newcomer is a visitor without a ticket or a pass.
func (k *worker) newcomer(q wish) {
	clk := k.clk()
	k.arrivals++
	if len(k.queue) == 0 && k.open(q) {
		if k.wants > 0 && k.share.Held() == 0 {
			k.urgent = true
			k.round(false)
		}
		return
	}
	if k.share.LineAhead(clk) {
		k.m.join(k, q)
		return
	}
	k.queue = append(k.queue, q)
	k.after(recallWait, func() {
		for i := range k.queue {
			if k.queue[i] == q {
				k.queue = append(k.queue[:i:i], k.queue[i+1:]...)
				k.m.join(k, q)
				return
			}
		}
	})
	k.round(false)
}

// recalled: the counter wants to hear of us now.
func (k *worker) recalled() {
	k.urgent = true
	k.round(false)
}

// visit is a request with a pass. It returns the end that the pass now says; over if
// the pass has ended and must be asked about.
func (k *worker) visit(id slot.StayID, end slot.Tau) (now slot.Tau, over, ok bool) {
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

// question asks the counter about a pass that has ended.
func (k *worker) question(id slot.StayID, end slot.Tau, answer func(slot.Tau)) {
	lo, _ := k.share.Lo(k.clk())
	k.asks = append(k.asks, ask{slot.Item{Op: slot.Ask, ID: id, From: end, At: lo}, answer})
	k.urgent = true
	k.round(false)
}
