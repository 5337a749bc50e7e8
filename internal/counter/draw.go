package counter

import (
	"math"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// Random order differs from the ordinary order: nobody is near the head, so all visitors poll
// equally often, and the expected wait is a range.

// drawPolls is how many polls a second a crowd makes in random order, until each visitor polls once
// per PollMax. Chosen: a called slot stays empty until its visitor polls.
const drawPolls = 2000

// drawInterval returns the poll interval of each visitor in random order.
func (c *desk) drawInterval() time.Duration {
	d := time.Duration(c.line.Len()) * (time.Second / drawPolls)
	return min(max(d, c.cfg.Line.PollMin), c.cfg.Line.PollMax)
}

// drawETA returns the wait of any visitor in random order: half of them wait less than Expect, a
// quarter less than Low and a quarter more than High. Let n visitors wait, and let 1+a newcomers
// join per call. Then a visitor still waits after k calls with the probability (1+k·a/n)^(-1/a).
func (c *desk) drawETA(number uint64, clk time.Duration) ETA {
	lane := slot.LaneIndex(number)
	own := max(1, int64(c.line.Line(lane).Drawable()))
	n := float64(own + c.line.Beside(lane, own)) // approximate in a lane
	a := -1.0                                    // no newcomers
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

// served returns the number below which no ticket of a line waits for its first call.
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

// mostPassed limits the tickets of a line that a snapshot names. Chosen: all four lines take 2 KB
// at most.
const mostPassed = 32

// passed fills a snapshot with, for each line, the number below which no ticket waits except those
// that it names.
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

// skipped returns how many bytes of a record the places below the frontier may take: those of the
// ordinary line, and those of each lane.
func (c *desk) skipped() (own, lane int) {
	switch {
	case !c.cfg.RandomOrder:
		return skipBytes, skipBytes
	case c.line.Line(1) == nil && c.line.Line(slot.MaxLanes) == nil:
		return drawnBytes, 0
	}
	return drawnBytes / 2, drawnBytes / (2 * slot.MaxLanes)
}
