package counter

import (
	"time"

	"github.com/headgate/headgate/slot"
)

// When a desk writes, and what of the line.

// putLine hands the line's part of the record to the next write. Numbers are
// reserved ahead: a second of joins, at least blockLeast.
func (c *desk) putLine(clk time.Duration) {
	five := time.Duration(c.cfg.New.N) * 5 * time.Second / c.cfg.New.Per
	block := max(min(max(blockLeast, uint64(five)), blockMost), uint64(2*c.joins.perSecond(clk)))
	next := c.pool.Record().Next
	if c.line.End()+block/2 >= next {
		next = c.line.End() + block
	}
	r := c.pool.Record()
	if next == r.Next && c.line.End() == r.Issued && c.line.Frontier() == r.Frontier &&
		c.line.Late() == 0 && len(r.Skipped) == 0 && c.line.Unsure() == 0 && len(r.Unsure) == 0 &&
		c.line.Len() == 0 && len(r.Heads) == 0 {
		return
	}
	part := c.linePart(clk)
	part.Next = next
	c.pool.PutLine(part)
}

// linePart is what a record keeps of the line, but for Next.
func (c *desk) linePart(clk time.Duration) slot.LinePart {
	return slot.LinePart{
		Heads:  c.line.AppendHeads(nil, c.pool.Tau(clk)),
		Issued: c.line.End(), Frontier: c.line.Frontier(),
		Skipped: c.line.AppendSkipped(nil, skipBytes),
		Unsure:  c.line.AppendUnsure(nil, unsureRuns),
	}
}

// mustWrite reports whether a write is due though nothing was asked.
func (c *desk) mustWrite(clk time.Duration, asked bool) bool {
	r := c.pool.Record()
	switch {
	case (c.pool.Held() || c.pool.Asked(clk)) && c.endsDue(clk), c.pool.UpOwes(clk):
		return true
	case asked, r.Next < c.line.End()+1, r.Quiet != (c.pool.Quiet(clk) > 0):
		return true
	case c.waiting() > 0 && !c.pool.Fresh(clk, fresh/2):
		return true
	case c.line.End() > r.Issued && !c.pool.Fresh(clk, issuedSoon):
		return true
	case len(r.Loans) > 0 && !c.pool.Fresh(clk, min(idleEnds, c.pool.Params().Term/3)):
		return true
	case (r.Limits[0].Ends.Len() > 0 || r.Limits[1].Ends.Len() > 0) && !c.pool.Fresh(clk, idleEnds):
		return true
	}
	return false
}

// endsDue reports whether a stay has ended that the record still holds.
func (c *desk) endsDue(clk time.Duration) bool {
	return c.pool.NextEnd(0) <= c.pool.Tau(clk)
}

// settleDue reports whether a call that is due here or elsewhere waits for an end that
// only a report of the borrowers can free. They are asked once for an end, and again
// when no report has come, ever more seldom: one of them may be in another data centre.
func (c *desk) settleDue(clk time.Duration) bool {
	here := c.mayCall(clk) && clk >= c.callAt(clk) && c.pool.FreeNow(clk) <= 0
	if !here && !c.pool.Asked(clk) {
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

// mayCall reports whether there is somebody to call.
func (c *desk) mayCall(clk time.Duration) bool {
	return !c.held && clk >= c.tookAt+headPoll && c.pool.Quiet(clk) == 0 &&
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
	if c.pool.Asked(clk) {
		now := c.pool.Tau(clk)
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
	if c.line.End() > c.pool.Record().Issued {
		next = min(next, max(time.Millisecond, issuedSoon-c.pool.Age(clk)))
	}
	next = min(next, max(time.Millisecond, c.called.next()-clk))
	switch {
	case c.pool.FreeNow(clk) > 0 && c.nobody: // a poll calls; the grace of the unheard ends unasked
		next = min(next, max(lookAgain, c.callAt(clk)-clk))
	case c.pool.FreeNow(clk) > 0:
		next = min(next, max(time.Millisecond, c.callAt(clk)-clk))
	case c.pool.Unsettled(clk) > 0: // the report that was asked for is under way
		next = min(next, max(settleGap, c.callAt(clk)-clk))
	default:
		now := c.pool.Tau(clk)
		next = min(next, max(settleGap, c.pool.NextEnd(now).Sub(now)))
	}
	return next
}
