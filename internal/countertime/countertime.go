// Package countertime keeps what one process knows of the time of a room's counter, and learns it
// from other processes of the data center while the counter does not answer (docs/protocol.md §2).
//
// # The promise
//
// The counter time is between the bounds of a Clock, whoever reported it. Only a time of a later
// host replaces a known one. So passes can be checked at a process that has just started or was
// suspended, while the host of the room cannot write and therefore answers nothing.
//
// # Concurrency and cost
//
// Many goroutines may use a Clock at once, and reading it takes no lock. However many visitors
// wait, it asks the other processes at most once each askEvery.
//
// # Limits of the package
//
// It sends nothing by itself: Ask is the way to the other processes.
package countertime

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// askEvery is the least time between two requests to the other processes. Chosen: a visitor who
// waits a second for the time waits for several answers.
const askEvery = 250 * time.Millisecond

// Known is what a process knows of a counter's time and life.
type Known struct {
	Time  slot.Estimate
	Life  uint64
	Sure  []slot.Span
	Until time.Duration // end of the term, own clock; 0: the time is from another process

	Latest slot.Time     // no pass of an earlier epoch ends later
	Heard  time.Duration // when the counter told it, own clock
}

// A Clock is the counter time as one process knows it. Make one with New.
type Clock struct {
	// Ask sends a request to the other processes; see Answer. nil: there are none.
	Ask func(ctx context.Context, msg []byte) ([]byte, error)

	boot  func() time.Duration
	drift slot.Drift
	asked atomic.Int64 // when the others were last asked, own clock; 0: never

	mu    sync.Mutex // held while known is replaced
	known atomic.Pointer[Known]
}

// New returns a Clock that knows nothing.
func New(boot func() time.Duration, drift slot.Drift) *Clock {
	return &Clock{boot: boot, drift: drift}
}

// Load returns what is known, or nil before the first answer. The caller must not change it.
func (c *Clock) Load() *Known { return c.known.Load() }

// Bounds returns a lower and an upper bound of the counter's time; ok is false before the first
// answer.
func (c *Clock) Bounds() (lo, hi slot.Time, life uint64, ok bool) {
	k := c.known.Load()
	if k == nil {
		return 0, 0, 0, false
	}
	clk := c.boot()
	return k.Time.Lo(clk, c.drift), k.Time.Hi(clk, c.drift), k.Life, true
}

// Estimate returns the known bounds; the zero Estimate has no bounds.
func (c *Clock) Estimate() slot.Estimate {
	if k := c.known.Load(); k != nil {
		return k.Time
	}
	return slot.Estimate{}
}

// Learn notes what an answer of the counter contains.
func (c *Clock) Learn(next *Known) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.known.Load(); k != nil && k.Life == next.Life {
		switch clk := c.boot(); {
		case k.Time.Epoch > next.Time.Epoch: // another process has reported the time of a later host
			return
		case k.Time.Epoch == next.Time.Epoch: // another process may know closer bounds
			next.Time.ReceiveBounds(k.Time.Epoch, k.Time.Lo(clk, c.drift), k.Time.Hi(clk, c.drift), clk, clk,
				c.drift)
		}
	}
	c.known.Store(next)
}

// Await asks the counter, by ask, and the other processes for the time until isKnown reports true
// or ctx ends. It reports whether isKnown did.
func (c *Clock) Await(ctx context.Context, ask func(), isKnown func() bool) bool {
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !isKnown() {
		ask()
		if c.mayAsk() {
			asking.Go(func() { c.askOthers(ctx) })
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

// mayAsk reports whether the other processes may be asked now, and notes that they are.
func (c *Clock) mayAsk() bool {
	if c.Ask == nil {
		return false
	}
	last, clk := c.asked.Load(), int64(c.boot())
	return (last == 0 || clk-last >= int64(askEvery)) && c.asked.CompareAndSwap(last, clk)
}

// An answer is what a process tells another one that asks for the time.
type answer struct {
	Life, Epoch uint64
	Lo, Hi      slot.Time
	Sure        []slot.Span
	Latest      slot.Time
	Age         time.Duration // since the counter told it
}

// askOthers asks the other processes for the time of a later host than is known. The first answer
// counts.
func (c *Clock) askOthers(ctx context.Context) {
	sent, est := c.boot(), c.Estimate()
	msg, err := c.Ask(ctx, strconv.AppendUint(nil, est.Epoch, 10))
	var a answer
	if err != nil || json.Unmarshal(msg, &a) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.known.Load(); k != nil && (k.Life != a.Life || k.Time.Epoch >= a.Epoch) {
		return
	}
	clk := c.boot()
	next := &Known{Life: a.Life, Sure: a.Sure, Latest: a.Latest, Heard: sent - max(0, a.Age)}
	next.Time.ReceiveBounds(a.Epoch, a.Lo, a.Hi, sent, clk, c.drift)
	c.known.Store(next)
}

// Answer answers a process that asks for a later time than that of an epoch. It returns nil if none
// is known here.
func (c *Clock) Answer(_ context.Context, msg []byte) []byte {
	epoch, err := strconv.ParseUint(string(msg), 10, 64)
	k := c.known.Load()
	if err != nil || k == nil || k.Time.Epoch <= epoch {
		return nil
	}
	clk := c.boot() // Bounds could be those of a later host
	b, err := json.Marshal(answer{Life: k.Life, Epoch: k.Time.Epoch, Lo: k.Time.Lo(clk, c.drift),
		Hi: k.Time.Hi(clk, c.drift), Sure: k.Sure, Latest: k.Latest, Age: clk - k.Heard})
	if err != nil {
		return nil
	}
	return b
}
