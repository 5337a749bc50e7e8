package counter

import (
	"math"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// What differs where who is next is drawn: nobody is near the head, so all ask equally often,
// and the expected time is a range.

// drawPolls is how many polls a second a crowd makes that is drawn from, until each asks each
// PollMax. Chosen: a called slot stands empty until its visitor asks.
const drawPolls = 2000

// drawInterval is how often each is asked to poll.
func (c *desk) drawInterval() time.Duration {
	d := time.Duration(c.line.Len()) * (time.Second / drawPolls)
	return min(max(d, c.cfg.Line.PollMin), c.cfg.Line.PollMax)
}

// drawETA is the wait of any who waits: half of them wait less than Expect, a quarter less than
// Low and a quarter more than High. Of n, with a newcomers for each call more than one,
// somebody is still there after k calls with the chance (1+k·a/n)^(-1/a).
func (c *desk) drawETA(number uint64, clk time.Duration) ETA {
	lane := slot.LaneIndex(number)
	own := max(1, int64(c.line.Line(lane).Drawable()))
	n := float64(own + c.line.Beside(lane, own)) // of a lane, about
	a := -1.0                                    // nobody comes any more
	if calls, _ := c.left.over(clk, 60); calls > 0 {
		joins := 0.0
		for i := range c.joins {
			in, _ := c.joins[i].over(clk, 60)
			joins += in
		}
		a = min(joins/calls-1, 1)
	}
	after := func(share float64) ETA {
		k := -n * math.Log(1-share)
		if math.Abs(a) > 0.01 {
			k = n / a * (math.Pow(1-share, -a) - 1)
		}
		return c.fore.eta(lane, c.pool.Called()+int64(k)+1, clk)
	}
	e := after(0.5)
	if e.Known {
		e.Exact, e.Low, e.High = false, after(0.25).Expect, after(0.75).Expect
	}
	return e
}

// served is the number below which nobody of a line waits for a first call.
func (c *desk) served(lane int) uint64 {
	line := c.line.Line(lane)
	switch {
	case line == nil:
		return 0
	case c.cfg.RandomOrder:
		return line.First()
	}
	return line.Served()
}

// mostPassed bounds the tickets of a line that a picture names. Chosen: all four take 2 KB at most.
const mostPassed = 32

// passed shows of each line, in a picture, the number below which nobody of it waits but those that
// are named.
func (c *desk) passed(p *Snapshot) {
	for lane := 0; lane <= slot.MaxLanes && c.line.Line(lane) != nil; lane++ {
		line := c.line.Line(lane)
		below, but := line.Served(), []uint64(nil)
		if some, all := line.Passed(mostPassed); all {
			but = some
		} else {
			below = line.First()
		}
		if p.Passed = append(p.Passed, but...); lane == 0 {
			p.Served = below
		} else {
			p.Lanes = append(p.Lanes, below)
		}
	}
}

// skipped is how much of a record the places of the ordinary line and of each lane below the
// frontier may take.
func (c *desk) skipped() (own, lane int) {
	switch {
	case !c.cfg.RandomOrder:
		return skipBytes, skipBytes
	case c.line.Line(1) == nil && c.line.Line(slot.MaxLanes) == nil:
		return drawnBytes, 0
	}
	return drawnBytes / 2, drawnBytes / (2 * slot.MaxLanes)
}
