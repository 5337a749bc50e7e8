package counter

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// Roamers are visitors of another data center whose counter is out of reach. They keep their place
// in the order of all data centers by their time of arrival, and wait here beside the line. A
// visitor that was inside there, and whose pass has ended since, is first of all.

// RoamerBit is set in the number of every roamer's session, and in no ticket number.
const RoamerBit = 1 << 63

// mostUsed limits how many admitted roamers are remembered. Chosen.
const mostUsed = 100_000

// mostRoamers limits the waiting roamers; further ones join the line as newcomers. Chosen: 100 B
// each.
const mostRoamers = 10_000

// A roamer is a visitor of another data center that waits here.
type roamer struct {
	id      uint64
	arrival slot.Time     // in this counter's time
	seen    time.Duration // last poll, own clock
	given   time.Duration // its poll interval
	called  bool
	until   time.Duration // called: its slot is reserved until then
}

// roamers holds the roamers in the order of their arrival.
type roamers struct {
	line []*roamer
	of   map[uint64]*roamer
	used map[uint64]bool // those that were admitted: a ticket admits once
}

func (r *roamers) add(x *roamer) {
	if r.of == nil {
		r.of = map[uint64]*roamer{}
	}
	r.of[x.id] = x
	i, _ := slices.BinarySearchFunc(r.line, x.arrival, func(y *roamer, t slot.Time) int {
		if y.arrival <= t { // of equal arrivals, the first one known here is first
			return -1
		}
		return 1
	})
	r.line = slices.Insert(r.line, i, x)
}

func (r *roamers) remove(x *roamer) {
	delete(r.of, x.id)
	r.line = slices.DeleteFunc(r.line, func(y *roamer) bool { return x == y })
}

// there returns the roamers that are not called and have polled within two of their intervals.
func (r *roamers) there(clk time.Duration, most int) (all []*roamer) {
	for _, x := range r.line {
		if len(all) == most {
			break
		}
		if !x.called && clk-x.seen < 2*x.given {
			all = append(all, x)
		}
	}
	return all
}

// roam notes that a roamer is present, and returns its place. came is its time of arrival in
// Anywhere's time. 0 means that it was inside, and puts it first. A negative value means that the
// roamer must be known here already.
func (c *desk) roam(id uint64, came slot.Time, clk time.Duration) PlaceInfo {
	c.awake(clk)
	c.polls.add(clk, 1)
	p := PlaceInfo{
		Number: id, Life: c.lineLife(), Now: c.nowLife(), Waiting: c.waiting(), Served: c.served(0),
		Held: c.held,
	}
	if _, again := c.pool.ClaimedBefore(slot.SessionID(id)); again {
		p.Status = slot.TicketUsed
		c.usedUp(&p, clk)
		return p
	}
	if c.roamers.used[id] || len(c.roamers.used) >= mostUsed { // treated as a newcomer
		return p
	}
	x := c.roamers.of[id]
	if x == nil {
		if came < 0 || len(c.roamers.line) >= mostRoamers {
			return p
		}
		x = &roamer{id: id, arrival: c.hereOf(came, clk)}
		c.roamers.add(x)
		c.again()
	}
	x.seen, x.given = clk, max(x.given, c.cfg.Line.PollMin)
	c.call(clk)
	p.Position = c.roamerPosition(x, clk)
	p.Ahead, p.ETA = p.Position-1, c.fore.eta(0, p.Position, clk)
	p.Status, p.PollAfter = slot.TicketWaiting, c.pollAfter(p.ETA, 0, p.Position, clk)
	x.given = p.PollAfter
	if x.called {
		p.Status, p.Called, p.ETA = slot.TicketCalled, true, ETA{Known: true, Exact: true}
	}
	return p
}

// hereOf converts a time of Anywhere to this counter's time. 0 stays 0, before all others. If
// Anywhere's time is unknown, it returns the current time.
func (c *desk) hereOf(came slot.Time, clk time.Duration) slot.Time {
	now := c.pool.CounterTime(clk)
	if came == 0 {
		return 0
	}
	_, lo, hi, ok := c.pool.ParentTime(clk)
	if !ok {
		return now
	}
	return max(1, now-max(0, lo+(hi-lo)/2-came))
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

func (c *desk) roamerPosition(x *roamer, clk time.Duration) int64 {
	n := int64(slices.Index(c.roamers.line, x)) + 1
	ahead := c.line.Ordinary().Arrivals(c.pool.CounterTime(clk), upQueue)
	for _, at := range ahead {
		if at <= x.arrival {
			n++
		}
	}
	if len(ahead) == upQueue && ahead[upQueue-1] <= x.arrival { // the exact number beyond is unknown
		n += int64(c.line.Ordinary().Len()) - upQueue
	}
	return n + c.line.Beside(0, n)
}

// waiting returns how many visitors wait, called or not.
func (c *desk) waiting() int64 { return int64(c.line.Len() + len(c.roamers.line)) }

// arrivals returns the arrival times of the first k visitors that are present and not called, in
// this counter's time.
func (c *desk) arrivals(clk time.Duration, k int) []slot.Time {
	all := c.line.Arrivals(c.pool.CounterTime(clk), k)
	if len(c.roamers.line) == 0 {
		return all
	}
	for _, x := range c.roamers.there(clk, k) {
		all = append(all, x.arrival)
	}
	slices.Sort(all)
	return all[:min(k, len(all))]
}

// callRoamer calls the first roamer if it arrived before the next visitor of the line. It reports
// whether it did.
func (c *desk) callRoamer(clk time.Duration) bool {
	first := c.roamers.there(clk, 1)
	if len(first) == 0 {
		return false
	}
	x, now := first[0], c.pool.CounterTime(clk)
	next := c.line.Ordinary().Arrivals(now, 1)
	if len(next) > 0 && next[0] < x.arrival || c.line.Turn(now) > 0 || !c.pool.Call(clk) {
		return false
	}
	c.line.Pass()
	x.called, x.until = true, clk+max(5*time.Second, 2*x.given)
	c.stats.Called++
	c.laned[0].called++
	c.laned[0].calls.add(clk, 1)
	c.left.add(clk, 1)
	c.pace.called(clk)
	return true
}

// useRoamer removes a called roamer from the line, because its claim will be written. It reports
// whether the roamer was called.
func (c *desk) useRoamer(id uint64) bool {
	x := c.roamers.of[id]
	if x == nil || !x.called {
		return false
	}
	c.roamers.remove(x)
	if c.roamers.used == nil {
		c.roamers.used = map[uint64]bool{}
	}
	c.roamers.used[id] = true
	c.tellWaiting(c.cfg.Boot())
	return true
}

// lapseRoamers takes back calls that nobody claimed, and removes roamers that were silent for
// longer than the longest hold.
func (c *desk) lapseRoamers(clk time.Duration) {
	for _, x := range slices.Clone(c.roamers.line) {
		if x.called && clk >= x.until {
			x.called = false
			c.stats.Lapsed++
			c.pool.Uncall()
		}
		if clk-x.seen > c.cfg.Line.Hold {
			if x.called {
				c.pool.Uncall()
			}
			c.roamers.remove(x)
		}
	}
}

// holdRoamers takes back all calls of roamers.
func (c *desk) holdRoamers() {
	for _, x := range c.roamers.line {
		if x.called {
			x.called = false
			c.pool.Uncall()
		}
	}
}

// Roam notes the presence of a visitor of another data center whose counter is out of reach, and
// returns its place here. id is the number of its session. came is when it arrived, in Anywhere's
// time; 0 means that it was inside.
func (c *Counter) Roam(ctx context.Context, id uint64, came slot.Time) (PlaceInfo, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	began := c.cfg.Boot()
	for {
		if c.gone() {
			return PlaceInfo{}, ErrFenced
		}
		if clk := c.cfg.Boot(); c.pool.Fresh(clk, fresh) {
			p := c.roam(id|RoamerBit, came, clk)
			if p.Status == slot.TicketUnknown && c.claimed(&p) { // from another tab
				p.Status = slot.TicketUsed
			}
			return p, nil
		}
		if err := c.waitWrite(ctx, began); err != nil {
			return PlaceInfo{PollAfter: c.cfg.Line.PollMin}, err
		}
	}
}
