package counter

import (
	"cmp"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// Lanes are lines beside the ordinary one that get a share of the calls (ADR 0042). Messages
// between machines identify a lane by its id. Only the host and the record know which line it has.

// laneCounts has the counts of a lane since this host took over.
type laneCounts struct {
	joined, called int64
	calls, skips   rate // visitors called, and visitors skipped
}

// LaneState is the state of a lane, for operators.
type LaneState struct {
	Name    string `json:"name"`
	Share   int    `json:"share"` // percent of the calls while the ordinary line has somebody to call
	Gone    bool   `json:"gone"`  // no rule leads into the lane any more
	Waiting int64  `json:"waiting"`
	Called  int64  `json:"called"`
	Joined  int64  `json:"joined_total"` // since the takeover
	Calls   int64  `json:"called_total"`
}

// setLanes gives each lane of the settings a line. Anywhere has no lanes.
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

// crowdedFor is how long the built-in lane is kept after its latest newcomer. Chosen.
const crowdedFor = time.Minute

// lanes returns the lanes of the settings, and the built-in lane while it is needed. The built-in
// lane is not always there because a room with lanes reveals less about its line and reserves no
// slots after a restart.
func (c *desk) lanes() []slot.Lane {
	network := slot.NetworkLane()
	if c.crowded || c.line.Holds(network.Name) {
		return append(slices.Clone(c.cfg.Lanes), network)
	}
	return c.cfg.Lanes
}

// openLane makes the built-in lane if id is its id.
func (c *desk) openLane(id uint64, clk time.Duration) {
	if id != slot.NetworkLane().ID() || c.cfg.Params.Counters {
		return
	}
	if c.crowded, c.crowdedUntil = true, clk+crowdedFor; c.line.Lane(id) == 0 {
		c.setLanes()
	}
}

// next returns the first number of a line that is not reserved. It returns 0 if the record does not
// have the lane under this name yet.
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

// block returns how many numbers a line reserves ahead: enough for five seconds of calls, between
// blockLeast and blockMost, and never less than two seconds of joins.
func (c *desk) block(lane int, clk time.Duration) uint64 {
	five := time.Duration(c.cfg.New.N) * 5 * time.Second / c.cfg.New.Per
	if lane > 0 { // the share of the lane
		five = five * time.Duration(c.line.Lanes()[lane].Share) / 100
	}
	return max(min(max(blockLeast, uint64(five)), blockMost), uint64(2*c.joins[lane].perSecond(clk)))
}

// reserve returns the first number that will not be reserved after the next write.
func (c *desk) reserve(lane int, clk time.Duration) uint64 {
	end, next, block := c.line.Line(lane).End(), c.next(lane), c.block(lane, clk)
	if lane > 0 && next == 0 { // the record has another name
		if r := c.pool.Record(); lane <= len(r.Lanes) {
			next = r.Lanes[lane-1].Next
		}
	}
	if end+block/2 >= next {
		return end + block
	}
	return next
}

// unwritten reports whether an issued number is missing in the record.
func (c *desk) unwritten() bool {
	r := c.pool.Record()
	for i := range r.Lanes {
		if x := c.line.Line(i + 1); x != nil && x.End() > r.Lanes[i].Issued {
			return true
		}
	}
	return c.line.Ordinary().End() > r.Issued
}

// short reports whether a line has no reserved number left to issue.
func (c *desk) short() bool {
	for lane := range 1 + slot.MaxLanes {
		x := c.line.Line(lane)
		if x != nil && c.next(lane) < x.End()+1 && (lane == 0 || c.line.Lanes()[lane].Name != "") {
			return true
		}
	}
	return false
}

// graceOf returns the grace of a line, from what its record says of its heads.
func (c *desk) graceOf(lane int) func(distance uint64) time.Duration {
	return func(distance uint64) time.Duration { return c.grace(lane, distance) }
}

// headsOf returns the heads of all lines in a record.
func headsOf(r *slot.Record) (heads [1 + slot.MaxLanes][]byte) {
	heads[0] = r.Heads
	for i := range r.Lanes {
		heads[i+1] = r.Lanes[i].Heads
	}
	return heads
}

// laneStates returns the states of the lanes that are in the settings or that hold visitors.
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

// WasCalled reports whether a ticket of the data center had been called at the last snapshot.
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
