package counter

import (
	"slices"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// This file decides when a desk writes, and what the record keeps of the line.

// putLine adds the line's part of the record to the next write. It reserves numbers ahead.
func (c *desk) putLine(clk time.Duration) {
	if len(c.cfg.Lanes) > 0 || len(c.pool.Record().Lanes) > 0 { // a lane may be empty now
		c.setLanes()
	}
	next, r, line := c.reserve(0, clk), c.pool.Record(), c.line.Ordinary()
	if next == r.Next && line.End() == r.Issued && line.Frontier() == r.Frontier &&
		line.Late() == 0 && len(r.Skipped) == 0 && line.Unconfirmed() == 0 && len(r.Unconfirmed) == 0 &&
		line.Len() == 0 && line.Provisional() == 0 && len(r.Heads) == 0 &&
		!c.drawing() && c.line.Line(1) == nil && c.line.Line(slot.MaxLanes) == nil &&
		len(r.Moved) == 0 && len(c.moved) == 0 {
		return
	}
	part := c.linePart(clk)
	part.Next = next
	for i := range part.Lanes {
		if part.Lanes[i].Name != "" {
			part.Lanes[i].Next = c.reserve(i+1, clk)
		}
	}
	c.pool.PutLine(part)
}

// linePart returns the line's part of a record, with no number reserved ahead.
func (c *desk) linePart(clk time.Duration) slot.LinePart {
	line, now := c.line.Ordinary(), c.pool.CounterTime(clk)
	own, lane := c.skipped()
	return slot.LinePart{
		Heads: line.AppendHeads(nil, now),
		Next:  line.End(), Issued: line.End(), Frontier: line.Frontier(),
		Skipped:     line.AppendSkipped(nil, own),
		Unconfirmed: line.AppendUnconfirmed(nil, unsureRuns),
		Draws:       slices.Clone(c.draws),
		Lanes:       c.line.LaneParts(now, lane, unsureRuns),
		Moved:       c.moved,
	}
}

// mustWrite reports whether a write is due. asked means that something needs one.
func (c *desk) mustWrite(clk time.Duration, asked bool) bool {
	r := c.pool.Record()
	switch {
	case (c.pool.Held() || c.pool.RecalledByParent(clk)) && c.endsDue(clk), c.pool.OwesParent(clk):
		return true
	case c.drawing():
		return true
	case asked, c.short(), c.pool.Evictable(clk), r.Quiet != (c.pool.Quiet(clk) > 0):
		return true
	case c.waiting() > 0 && !c.pool.Fresh(clk, fresh/2):
		return true
	case c.unwritten() && !c.pool.Fresh(clk, issuedSoon):
		return true
	case len(r.Loans) > 0 && !c.pool.Fresh(clk, min(idleEnds, c.pool.Params().Term/3)):
		return true
	case (r.Limits[0].Ends.Len() > 0 || r.Limits[1].Ends.Len() > 0) && !c.pool.Fresh(clk, idleEnds):
		return true
	}
	return false
}

// endsDue reports whether a session has ended that is still in the record.
func (c *desk) endsDue(clk time.Duration) bool {
	return c.pool.NextEnd(0) <= c.pool.CounterTime(clk)
}

// settleDue reports whether a call that is due, here or elsewhere, waits for an end that only a
// report of the borrowers can free. They are asked once for each end, and again while no report
// arrives, at growing intervals: one of them may be in another data center.
func (c *desk) settleDue(clk time.Duration) bool {
	here := c.mayCall(clk) && clk >= c.callAt(clk) && c.pool.FreeNow(clk) <= 0
	if !here && !c.pool.RecalledByParent(clk) {
		return false
	}
	end := c.pool.Unsettled(clk)
	again := settleAgain << min(c.settleTries, 5)
	if end == 0 || end <= c.settle && clk-c.settleAt < again {
		return false
	}
	if c.settleTries++; end > c.settle {
		c.settleTries = 0
	}
	c.settle, c.settleAt = end, clk
	return true
}

// mayCall reports whether somebody waits to be called and calls are allowed now.
func (c *desk) mayCall(clk time.Duration) bool {
	return !c.held && !c.drawing() && clk >= c.tookAt+headPoll && c.pool.Quiet(clk) == 0 &&
		(c.line.Len() > c.line.Called() || len(c.roamers.there(clk, 1)) > 0)
}

func (c *desk) nextDue(clk time.Duration) time.Duration {
	next := time.Second
	if c.pool.Held() {
		next = settleGap
	}
	if held, ok := c.pool.RecallDue(clk); ok {
		next = min(next, max(time.Millisecond, held))
	}
	if c.pool.RecalledByParent(clk) {
		now := c.pool.CounterTime(clk)
		next = min(next, max(settleGap, c.pool.NextEnd(now).Sub(now)))
	}
	if at := c.pool.LendAt(clk); at > 0 {
		next = min(next, max(time.Millisecond, at-clk))
	}
	if c.waiting() == 0 {
		return next
	}
	if len(c.roamers.line) > 0 {
		next = min(next, lookAgain)
	}
	if c.unwritten() {
		next = min(next, max(time.Millisecond, issuedSoon-c.pool.Age(clk)))
	}
	next = min(next, max(time.Millisecond, c.called.next()-clk))
	switch {
	case c.pool.FreeNow(clk) > 0 && c.nobody: // a poll calls; but the grace may end without one
		next = min(next, max(lookAgain, c.callAt(clk)-clk))
	case c.pool.FreeNow(clk) > 0:
		next = min(next, max(time.Millisecond, c.callAt(clk)-clk))
	case c.pool.Unsettled(clk) > 0: // the requested report is under way
		next = min(next, max(settleGap, c.callAt(clk)-clk))
	default:
		now := c.pool.CounterTime(clk)
		next = min(next, max(settleGap, c.pool.NextEnd(now).Sub(now)))
	}
	return next
}
