package counter

import (
	"cmp"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// Lanes: lines beside the ordinary one that get a share of the calls (ADR 0042). What of a lane
// is told between machines is its id; which line it has is the host's alone, and in the record.

// laneCounts count what lanes did since this host took over.
type laneCounts struct {
	joined, called int64
	calls, skips   rate // who was called, and who was passed over
}

// LaneState is what an operator is told of a lane.
type LaneState struct {
	Name    string `json:"name"`
	Share   int    `json:"share"` // of a hundred calls, while the ordinary line has somebody to call
	Gone    bool   `json:"gone"`  // no rule leads into it any more
	Waiting int64  `json:"waiting"`
	Called  int64  `json:"called"`
	Joined  int64  `json:"joined_total"` // since the host took over
	Calls   int64  `json:"called_total"`
}

// setLanes gives each lane of the settings a line. Anywhere has none.
func (c *desk) setLanes() {
	if c.cfg.Params.Counters {
		return
	}
	left := c.line.SetLanes(c.lanes())
	if len(left) != c.laneless {
		for _, x := range left {
			c.cfg.Log.Warn("lane has no line yet: who is to wait in it joins the ordinary one",
				"room", c.cfg.Room, "lane", x.Name, "hint", "it has one when a lane that was taken away is empty")
		}
		c.laneless = len(left)
	}
}

// crowdedFor is how long the built-in lane is kept for the next newcomer after the last. Chosen.
const crowdedFor = time.Minute

// lanes are those of the settings, and the built-in one while it is needed: a room with lanes tells
// less of its line, and keeps no slots after a restart.
func (c *desk) lanes() []slot.Lane {
	network := slot.NetworkLane()
	if c.crowded || c.line.Holds(network.Name) {
		return append(slices.Clone(c.cfg.Lanes), network)
	}
	return c.cfg.Lanes
}

// openLane makes the built-in lane, if that is the one which is to be joined.
func (c *desk) openLane(id uint64, clk time.Duration) {
	if id != slot.NetworkLane().ID() || c.cfg.Params.Counters {
		return
	}
	if c.crowded, c.crowdedUntil = true, clk+crowdedFor; c.line.Lane(id) == 0 {
		c.setLanes()
	}
}

// next is the first number of a line that is not reserved, 0 if the record does not know its
// lane by this name yet.
func (c *desk) next(lane int) uint64 {
	r := c.pool.Record()
	switch {
	case lane == 0:
		return r.Next
	case lane > len(r.Lanes) || r.Lanes[lane-1].Name != c.line.Lanes()[lane].Name:
		return 0
	}
	return r.Lanes[lane-1].Next
}

// block is how many numbers a line reserves ahead: a second of joins, at least blockLeast.
func (c *desk) block(lane int, clk time.Duration) uint64 {
	five := time.Duration(c.cfg.New.N) * 5 * time.Second / c.cfg.New.Per
	if lane > 0 { // its part of them
		five = five * time.Duration(c.line.Lanes()[lane].Share) / 100
	}
	return max(min(max(blockLeast, uint64(five)), blockMost), uint64(2*c.joins[lane].perSecond(clk)))
}

// reserve is what the first number that is not reserved is to be.
func (c *desk) reserve(lane int, clk time.Duration) uint64 {
	end, next, block := c.line.Line(lane).End(), c.next(lane), c.block(lane, clk)
	if lane > 0 && next == 0 { // of another name in the record
		if r := c.pool.Record(); lane <= len(r.Lanes) {
			next = r.Lanes[lane-1].Next
		}
	}
	if end+block/2 >= next {
		return end + block
	}
	return next
}

// unwritten reports whether a number was issued that the record does not say was.
func (c *desk) unwritten() bool {
	r := c.pool.Record()
	for i := range r.Lanes {
		if x := c.line.Line(i + 1); x != nil && x.End() > r.Lanes[i].Issued {
			return true
		}
	}
	return c.line.Ordinary().End() > r.Issued
}

// short reports whether a line has no number left that it may issue.
func (c *desk) short() bool {
	for lane := range 1 + slot.MaxLanes {
		x := c.line.Line(lane)
		if x != nil && c.next(lane) < x.End()+1 && (lane == 0 || c.line.Lanes()[lane].Name != "") {
			return true
		}
	}
	return false
}

// graceOf is the grace of a line, by what its record said of its heads.
func (c *desk) graceOf(lane int) func(distance uint64) time.Duration {
	return func(distance uint64) time.Duration { return c.grace(lane, distance) }
}

// headsOf are those of all lines in a record.
func headsOf(r *slot.Record) (heads [1 + slot.MaxLanes][]byte) {
	heads[0] = r.Heads
	for i := range r.Lanes {
		heads[i+1] = r.Lanes[i].Heads
	}
	return heads
}

// laneStates are those of the lanes that have a name or people.
func (c *desk) laneStates() (all []LaneState) {
	wanted := map[string]bool{}
	for _, x := range c.lanes() {
		wanted[x.Name] = true
	}
	for i, x := range c.line.Lanes() {
		line := c.line.Line(i)
		if i == 0 || line == nil || line.Len() == 0 && !wanted[x.Name] {
			continue
		}
		all = append(all, LaneState{
			Name: cmp.Or(x.Name, "?"), Share: x.Share, Gone: !wanted[x.Name],
			Waiting: int64(line.Len()), Called: int64(line.Called()),
			Joined: c.laned[i].joined, Calls: c.laned[i].called,
		})
	}
	return all
}

// Called reports whether a ticket of the data centre had been called when it was last heard.
func (t *RemoteTime) WasCalled(number uint64) bool {
	lane := slot.LaneIndex(number)
	switch {
	case slices.Contains(t.Passed, number):
		return false
	case lane == 0:
		return number < t.Served
	}
	return lane <= len(t.Lanes) && number < t.Lanes[lane-1]
}
