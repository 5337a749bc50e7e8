package counter

import (
	"slices"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// This file decides when a counter borrows from Anywhere. It sends a Sync when a visitor waits that
// only Anywhere can help, when few slots are left for the next seconds, when something was
// returned, and otherwise from time to time. The behavior of visitors cannot raise the number of
// Syncs: see upRate.

// Parameters of borrowing from Anywhere. Chosen: eight Syncs a second and their answers are 32
// messages between three data centers, and one Sync carries the slots of an eighth of a second.
const (
	upRate  = 8.0
	upBurst = 8.0
	upSoon  = time.Second      // between Syncs that are not urgent
	upQuiet = 10 * time.Second // between Syncs of a counter with visitors
	upAhead = 2                // free slots to hold, in seconds of arrivals
	upQueue = 256              // arrivals in one Sync: the limit of package slot
)

// RecallWaitBelow is how long a counter below Anywhere keeps a request open that nobody in the data
// center can answer. In this time Anywhere recalls slots from the others. Chosen: three quarters of
// the 2 s for which the request of a newcomer is held at most.
const RecallWaitBelow = 1500 * time.Millisecond

// put takes a borrower's Sync, and counts the new users in it.
func (c *desk) put(x *slot.Sync, clk time.Duration) {
	if c.below() {
		n := int64(0)
		for i := range x.Items {
			if x.Items[i].Op == slot.Open {
				n++
			}
		}
		c.came(n, clk)
	}
	c.pool.Receive(x)
}

// came counts new users.
func (c *desk) came(n int64, clk time.Duration) {
	if n > 0 {
		c.up.arrived += float64(n)
		c.up.traffic.add(clk, n)
	}
}

// upSync returns the Sync to send to Anywhere now, or an unanswered one to send again. It returns
// nil if none is due, and the time until one may be.
func (c *desk) upSync(clk time.Duration) (x *slot.Sync, next time.Duration) {
	if !c.pool.Serving() || !c.below() {
		return nil, upQuiet
	}
	if x = c.pool.ParentInFlight(); x != nil {
		return x, 0
	}
	c.upBeat(clk)
	u := &c.up
	u.tokens = min(upBurst, u.tokens+(clk-u.tokensAt).Seconds()*upRate)
	u.tokensAt = clk
	if next = c.upDue(clk); next > 0 {
		return nil, next
	}
	if u.tokens < 1 {
		return nil, max(time.Millisecond, time.Duration((1-u.tokens)/upRate*float64(time.Second)))
	}
	u.tokens--
	queue := c.arrivals(clk, upQueue)
	want := int64(0)
	switch n := int64(c.line.Callable()); {
	case c.held && n == 0: // no admissions, so nothing to borrow for
		queue = nil
	case len(queue) < upQueue && c.waiting() > 0: // the others are absent
		want = int64(len(queue))
	case c.held:
		want = n
	case c.waiting() > 0:
		want = c.waiting() - c.pool.Called()
	default:
		want = c.enough() - max(0, c.pool.Free())
	}
	x = c.pool.ParentSync(clk, max(0, want), u.traffic.in(clk, c.cfg.New.Per), queue)
	if x != nil {
		u.at, u.told, u.idle = clk, x.Returned, x.Idle
	}
	return x, 0
}

// enough returns how many unused slots this counter should hold: those for the next seconds, or the
// share that its traffic has earned.
func (c *desk) enough() int64 {
	return max(int64(c.up.ahead*upAhead+0.5), c.pool.ParentPart())
}

// holdsAll reports whether nobody is called because the room is held.
func (c *desk) holdsAll() bool { return c.held && c.line.Callable() == 0 }

// upDue returns the time until a Sync is due; 0: now.
func (c *desk) upDue(clk time.Duration) time.Duration {
	u, silent := &c.up, clk-c.up.at
	if u.at == 0 || c.upNeed(clk) || c.pool.Record().Parent.Returned != u.told {
		return 0
	}
	if c.pool.RecalledByParent(clk) && (u.askedAt >= u.at || c.pool.ParentIdle(clk) < u.idle) {
		return 0 // a visitor elsewhere waits for this report
	}
	left := c.pool.Params().Term // the term of workers; that of Anywhere is longer
	r := c.pool.Record()
	if len(r.Loans) > 0 || r.Limits[0].Ends.Len() > 0 || c.waiting() > 0 || u.ahead > 0.01 {
		left = upQuiet
	}
	if c.pool.RecalledByParent(clk) || c.pool.Free() < c.enough()/2 && !c.held {
		left = upSoon
	}
	return max(0, left-silent)
}

// upNeed reports whether a visitor waits that only Anywhere can help. A called visitor has a slot
// already, and an absent one needs none.
func (c *desk) upNeed(clk time.Duration) bool {
	if c.holdsAll() || !c.pool.NeedsParent(clk) {
		return false
	}
	return c.waiting() == 0 || len(c.arrivals(clk, 1)) > 0
}

// upBeat smooths the arrivals each second. It returns slots that have been more than enough for a
// while.
func (c *desk) upBeat(clk time.Duration) {
	u := &c.up
	gone := clk - u.beatAt
	if gone < time.Second {
		return
	}
	keep := 1.0
	for n := min(gone/time.Second, 60); n > 0; n-- {
		keep *= 0.7
	}
	u.ahead = u.ahead*keep + (1-keep)*u.arrived/gone.Seconds()
	u.arrived, u.beatAt = 0, clk
	switch enough := 2 * c.enough(); {
	case !c.pool.HasSpare(enough):
		u.plenty = 0
	case u.plenty == 0:
		u.plenty = clk
	case clk-u.plenty >= upQuiet:
		u.plenty = 0
		c.pool.ReturnToParent(enough)
		c.again()
	}
}

// upHeard handles an answer of Anywhere.
func (c *desk) upHeard(a slot.Answer, clk time.Duration) {
	c.awake(clk)
	c.pool.ReceiveParent(clk, a)
	c.again()
}

// upRecall handles a recall: Anywhere asks for unused slots.
func (c *desk) upRecall(clk time.Duration) {
	c.awake(clk)
	c.up.askedAt = clk
	c.pool.RecallByParent(clk)
	c.again()
}

// arrivals returns the arrival times of the first k visitors that are present and not called, in
// this counter's time.
func (c *desk) arrivals(clk time.Duration, k int) []slot.Time {
	all := c.line.Arrivals(c.pool.CounterTime(clk), k)
	if len(c.roamers.line) == 0 {
		return all
	}
	for _, x := range c.roamers.there(clk, k+slot.MaxReleased) {
		all = append(all, x.arrival)
	}
	slices.Sort(all)
	return all[:min(k, len(all))]
}

// cameAt returns the arrival time, in Anywhere's time, of a visitor that arrives now; 0 if it is
// unknown.
func (c *desk) cameAt(clk time.Duration) slot.Time {
	if !c.below() {
		return 0
	}
	_, lo, hi, ok := c.pool.ParentTime(clk)
	if !ok {
		return 0
	}
	return lo + (hi-lo)/2
}
