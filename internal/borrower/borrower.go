// Package borrower is the borrower's side of a room (docs/protocol.md §5). It decides when a worker
// sends a Sync to its counter, what the Sync requests, and which newcomers get the granted slots.
//
// # The promise
//
// The worker of a room and the worker of the simulator run this code, so results of the simulator
// hold for the room.
//
// # Concurrency and cost
//
// A Borrower uses no goroutine, no lock and no I/O, and takes the time as an argument. Its caller
// guards it. Each method is linear in the number of waiting requests, except that an answer to n passes
// costs n² comparisons, and the functions of Config cost what their caller makes of them.
//
// # Limits of the package
//
// It does not send. The caller sends each Sync, and repeats it until it is answered.
package borrower

import (
	"slices"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// Parameters of a borrower (docs/protocol.md §12).
const (
	FlushEvery = time.Second      // between renewals, and between heartbeats
	SlotWait   = 2 * time.Second  // the longest that a newcomer waits for a slot
	idleReturn = 10 * time.Second // unused slots go back
	wantFor    = 2                // seconds of arrivals to hold ahead
	maxItems   = 20_000           // in one Sync; the rest goes with the next
	maxWaiting = 10_000           // newcomers, or passes, that wait for an answer
)

// Config connects a borrower to its caller. N is a newcomer that waits for a slot, A a pass that
// waits for its end.
type Config[N comparable, A any] struct {
	Share  *slot.Share
	Term   time.Duration
	Remote bool // the counter is in another data center

	// Inside reports whether any visitor is inside.
	Inside func() bool
	// Report calls note for each visitor seen since the last report, while note returns true. It
	// reports whether that was all.
	Report func(clk time.Duration, lo slot.Time, note func(slot.Item) bool) bool
	// Learn processes the time, the ends and the early leaves in an answer.
	Learn func(clk time.Duration, a *slot.Answer)
	// Open gives a slot of the share to a newcomer that waited. It returns false if there was none.
	Open func(clk time.Duration, newcomer N) bool
	// Refuse is called for a newcomer for which no slot is left.
	Refuse func(newcomer N)
	// Answer is called with the end of a pass, 0 if its session is over.
	Answer func(pass A, end slot.Time)
}

// A Borrower is a worker's share, and the reports and requests for its counter.
type Borrower[N comparable, A any] struct {
	cfg      Config[N, A]
	queue    []N
	asks     []question[A]
	flying   []question[A] // in the Sync in flight
	urgent   bool
	giveBack bool
	arrivals float64 // since the last flush
	wants    float64 // arrivals per second, smoothed
	lastOpen time.Duration
	lastSync time.Duration
}

type question[A any] struct {
	item slot.Item
	pass A
}

// New returns a Borrower with nothing to send.
func New[N comparable, A any](cfg Config[N, A]) *Borrower[N, A] { return &Borrower[N, A]{cfg: cfg} }

// Hurry makes the next Sync due now.
func (b *Borrower[N, A]) Hurry() { b.urgent = true }

// LastSync returns when the last new Sync was made.
func (b *Borrower[N, A]) LastSync() time.Duration { return b.lastSync }

// ReturnShare returns all free slots with the next Sync, which is due now, and requests none.
func (b *Borrower[N, A]) ReturnShare() {
	b.cfg.Share.Return(b.cfg.Share.Held())
	b.urgent = true
	b.Forget()
}

// Forget resets the estimate of how many newcomers arrive.
func (b *Borrower[N, A]) Forget() { b.wants, b.arrivals = 0, 0 }

// Arrived counts a newcomer and reports whether it may try the share, because nobody waits before
// it.
func (b *Borrower[N, A]) Arrived() bool {
	b.arrivals++
	return len(b.queue) == 0
}

// Opened records that a newcomer took a slot of the share. low reports whether the share is used
// up, so that more slots should be requested before the next newcomer waits.
func (b *Borrower[N, A]) Opened(clk time.Duration) (low bool) {
	b.lastOpen = clk
	return b.wants > 0 && b.cfg.Share.Held() == 0
}

// CanWait reports whether a newcomer may wait for a slot. In a room without a line (noLine) it may
// wait even if the last answer reported a line.
func (b *Borrower[N, A]) CanWait(clk time.Duration, noLine bool) bool {
	return (noLine || !b.cfg.Share.LineAhead(clk)) && len(b.queue) < maxWaiting
}

// Wait adds a newcomer to those that wait for a slot.
func (b *Borrower[N, A]) Wait(newcomer N) { b.queue = append(b.queue, newcomer) }

// Withdraw removes a waiting newcomer, and reports whether it was still waiting.
func (b *Borrower[N, A]) Withdraw(newcomer N) bool {
	i := slices.Index(b.queue, newcomer)
	if i < 0 {
		return false
	}
	b.queue = append(b.queue[:i:i], b.queue[i+1:]...)
	return true
}

// CanAsk reports whether another pass may wait for its end.
func (b *Borrower[N, A]) CanAsk() bool { return len(b.asks) < maxWaiting }

// Ask requests the end of a pass with the next Sync.
func (b *Borrower[N, A]) Ask(item slot.Item, pass A) {
	b.asks = append(b.asks, question[A]{item, pass})
}

// Clear removes and returns all newcomers and passes that wait for an answer.
func (b *Borrower[N, A]) Clear() (newcomers []N, passes []A) {
	for _, q := range append(b.asks, b.flying...) {
		passes = append(passes, q.pass)
	}
	newcomers = b.queue
	b.queue, b.asks, b.flying = nil, nil, nil
	return newcomers, passes
}

// Build returns the next Sync, or nil if there is nothing to send. It returns a Sync in flight
// unchanged. flush must be true once in FlushEvery.
func (b *Borrower[N, A]) Build(clk time.Duration, flush bool) *slot.Sync {
	share := b.cfg.Share
	if x := share.InFlight(); x != nil {
		return x
	}
	due, cut := flush || b.urgent || len(b.queue) > 0, false
	if due {
		cut = !b.report(clk)
	}
	if flush {
		b.wants = 0.7*b.wants + 0.3*b.arrivals/FlushEvery.Seconds()
		b.arrivals = 0
	}
	if b.giveBack || flush && clk-b.lastOpen > idleReturn {
		share.Return(share.Held())
	}
	b.giveBack = false
	for _, q := range b.asks {
		share.AddItem(q.item)
	}
	b.flying, b.asks = append(b.flying, b.asks...), nil
	need, want := int64(len(b.queue)), int64(0)
	if ahead := int64(b.wants*wantFor + 0.5); need > 0 || share.Held() < ahead/2 {
		want = max(0, ahead-share.Held())
	}
	// A remote counter gets heartbeats while anybody is inside. Otherwise slots that end there
	// would wait for a possible report from here.
	heard := b.cfg.Remote && flush && b.cfg.Inside()
	say := heard || need > 0 || want > 0 && due || share.PendingItems() > 0 || b.urgent ||
		clk-b.lastSync > b.cfg.Term/3 && (share.Held() > 0 || b.cfg.Inside())
	b.urgent = cut // not all was reported: continue at once
	if !say {
		return nil
	}
	b.lastSync = clk
	return share.Sync(clk, need, want)
}

// report adds an item for each visitor seen since the last report, and reports whether that was
// all. Only then may the counter free what ended before. The counter waits for every live loan, so
// the worker sends Syncs while anybody is inside.
func (b *Borrower[N, A]) report(clk time.Duration) (all bool) {
	lo, ok := b.cfg.Share.Lo(clk)
	if !ok {
		return true
	}
	all = b.cfg.Report(clk, lo, func(it slot.Item) bool {
		b.cfg.Share.AddItem(it)
		return b.cfg.Share.PendingItems() < maxItems
	})
	if all {
		b.cfg.Share.Settle(lo)
	}
	return all
}

// Receive processes an answer: new ends, early leaves, and slots for waiting newcomers. again
// reports whether another Sync is due at once.
func (b *Borrower[N, A]) Receive(clk time.Duration, x *slot.Sync, a *slot.Answer) (again bool) {
	share := b.cfg.Share
	if !share.Receive(clk, a) || a.Over {
		return true
	}
	b.cfg.Learn(clk, a)
	b.answerAsks(a)
	served := 0
	for _, q := range b.queue {
		if !b.cfg.Open(clk, q) {
			break
		}
		b.lastOpen = clk
		served++
	}
	b.queue = b.queue[served:]
	if x.Need > 0 && a.Granted == x.Granted && !a.Again { // nothing is left to request again
		left := min(max(0, int(x.Need)-served), len(b.queue))
		refused := b.queue[:left]
		b.queue = b.queue[left:]
		for _, q := range refused {
			b.cfg.Refuse(q)
		}
	}
	b.giveBack = a.GiveBack && share.Held() > 0
	b.urgent = b.urgent || b.giveBack
	return b.urgent || len(b.queue) > 0
}

func (b *Borrower[N, A]) answerAsks(a *slot.Answer) {
	flying := b.flying
	b.flying = nil
	for _, q := range flying {
		var end slot.Time
		for _, r := range a.Results {
			if r.ID == q.item.ID {
				end = r.End
			}
		}
		b.cfg.Answer(q.pass, end)
	}
}
