package counter

import (
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// call calls the next visitors while slots are free and due.
func (c *desk) call(clk time.Duration) {
	c.noteIdle(clk)
	for c.mayCall(clk) && c.pool.FreeNow(clk) > 0 && clk >= c.callAt(clk) {
		if !c.held && c.callRoamer(clk) {
			continue
		}
		number, ok := c.upNext(clk)
		if c.nobody = !ok; !ok {
			break
		}
		if !c.pool.Call(clk) {
			c.line.Lapse(number, c.pool.CounterTime(clk))
			break
		}
		c.stats.Called++
		lane := &c.laned[slot.LaneIndex(number)]
		lane.called++
		lane.calls.add(clk, 1)
		c.left.add(clk, 1)
		c.pace.called(clk)
		c.called.add(number, clk, clk+c.callHold(number, clk))
	}
	c.tellWaiting(clk)
}

// upNext takes the next ticket out of the line, in order or at random.
func (c *desk) upNext(clk time.Duration) (number uint64, ok bool) {
	if c.cfg.RandomOrder {
		return c.line.Draw(c.pool.CounterTime(clk),
			func(n int) int { return min(n-1, int(c.random()*float64(n))) })
	}
	var skipped [1 + slot.MaxLanes]int
	for i := range skipped {
		skipped[i] = c.line.SkippedCount(i)
	}
	if now := c.pool.CounterTime(clk); clk < c.pace.at && !c.pool.RecalledByParent(clk) {
		number, ok = c.line.CallKept(now, c.spare(clk))
	} else {
		number, ok = c.line.CallOf(now, c.spare(clk))
	}
	for i, before := range skipped {
		if c.cfg.AtClaim { // most of those are there, and have nothing to solve yet
			break
		}
		c.laned[i].skips.add(clk, float64(c.line.SkippedCount(i)-before))
	}
	return number, ok
}

// callHold returns how long a called slot stays reserved: long enough for a visitor that polls on
// time and then comes. An overdue visitor gets no extra time.
func (c *desk) callHold(number uint64, clk time.Duration) time.Duration {
	if c.cfg.Line.CallHold > 0 {
		return c.cfg.Line.CallHold
	}
	silent, _, _ := c.line.SilentFor(number, c.pool.CounterTime(clk))
	return max(leastHold, 2*c.line.PollInterval(number)-silent+onTheWay)
}

// onTheWay is how late a poll may arrive though the visitor sent it on time. Chosen: a phone on a
// slow network. Without it, a visitor that polls at the very end of twice its interval would lose
// its turn.
const onTheWay = 2 * time.Second

// mostStrikes is how often an invited visitor may fail to come in before it loses its place.
// Chosen: an answer may be lost, and a page that fails to load is loaded again. But a slot reserved
// for a visitor that only polls stays empty, and a crowd of such visitors would block the room.
const mostStrikes = 3

// strikes notes that an invited visitor did not come in, and reports whether it has lost its place.
func (c *desk) strikes(number uint64) bool {
	if len(c.struck) > struckMost { // forget tickets that have left
		maps.DeleteFunc(c.struck, func(n uint64, _ int) bool {
			s := c.line.Status(n)
			return s != slot.TicketWaiting && s != slot.TicketLate && s != slot.TicketCalled
		})
	}
	if c.struck == nil {
		c.struck = map[uint64]int{}
	}
	c.struck[number]++
	if c.struck[number] < mostStrikes {
		return false
	}
	delete(c.struck, number)
	return true
}

// struckMost is the size from which the map of strikes is cleared of tickets that have left.
// Chosen.
const struckMost = 10_000

// usedUp marks the place of a ticket whose pass has come back.
func (c *desk) usedUp(p *PlaceInfo, clk time.Duration) {
	left, ok := c.pool.UsedUp(clk, slot.SessionID(p.Number))
	if p.UsedUp = ok; ok {
		p.PollAfter = max(c.cfg.Line.PollMin, min(copyPoll, left))
	}
}

// mayCall reports whether somebody waits to be called and calls are allowed now.
func (c *desk) mayCall(clk time.Duration) bool {
	return !c.drawing() && clk >= c.tookAt+headPoll && c.pool.Quiet(clk) == 0 &&
		(c.line.Callable() > 0 || !c.held && len(c.roamers.there(clk, 1)) > 0)
}

// roam notes that a roamer is present, and returns its place. came is its time of arrival in
// Anywhere's time. 0 means that it was inside, and puts it first. A negative value means that the
// roamer must be known here already.
func (c *desk) roam(id uint64, came slot.Time, clk time.Duration) PlaceInfo {
	return c.outside(&roamer{id: id, arrival: c.hereOf(came, clk)}, came < 0, clk)
}

// outside is roam for a visitor as it would be added. known means that it must be known already.
func (c *desk) outside(as *roamer, known bool, clk time.Duration) PlaceInfo {
	id := as.id
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
	full := as.first == 0 && (len(c.roamers.used) >= mostUsed || len(c.roamers.line) >= mostRoamers)
	x := c.roamers.of[id]
	if c.roamers.used[id] || len(c.roamers.used) >= mostUsed && full { // treated as a newcomer
		return p
	}
	if x == nil {
		if known || full {
			return p
		}
		x = as
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

func (c *desk) roamerPosition(x *roamer, clk time.Duration) int64 {
	n := int64(1)
	for _, y := range c.roamers.line {
		before := true
		switch {
		case x.first > 0 && y.first > 0:
			before = c.line.Rank(y.first) < c.line.Rank(x.first)
		case x.first > 0:
			before = y.arrival < x.arrival
		case y.first > 0:
			before = y.arrival <= x.arrival
		case x == y: // the others are behind it
			return c.positionBehind(x, n, clk)
		}
		if before {
			n++
		}
	}
	return c.positionBehind(x, n, clk)
}

// positionBehind returns the position of a roamer that is the nth of the roamers.
func (c *desk) positionBehind(x *roamer, n int64, clk time.Duration) int64 {
	if x.first > 0 {
		n += c.line.Ordinary().Before(x.first)
		return n + c.line.Beside(0, n)
	}
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

// nextRoamer returns the first roamer that is present, if it stands before the next visitor of the line.
// One of another data center stands where it arrived, and a released ticket where its first one would.
func (c *desk) nextRoamer(now slot.Time, clk time.Duration) (next *roamer) {
	line, other := c.line.Ordinary(), (*roamer)(nil)
	for _, x := range c.roamers.line {
		switch {
		case !x.isPresent(clk):
		case x.first == 0 && other == nil:
			other = x
		case x.first > 0 && (next == nil || c.line.Rank(x.first) < c.line.Rank(next.first)):
			next = x
		}
		if other != nil {
			break
		}
	}
	// It is asked once, of the first one: many absent people may stand at the head of the line. At random,
	// there is no order to stand in.
	if next != nil && !c.cfg.RandomOrder && line.IsBehind(next.first, now) {
		next = nil
	}
	if other == nil || next != nil && next.arrival <= other.arrival {
		return next
	}
	if at := line.Arrivals(now, 1); len(at) == 0 || at[0] >= other.arrival {
		return other
	}
	return next
}

// callRoamer calls the first roamer if it stands before the next visitor of the line. It reports
// whether it did.
func (c *desk) callRoamer(clk time.Duration) bool {
	now := c.pool.CounterTime(clk)
	x := c.nextRoamer(now, clk)
	if x == nil || c.line.Turn(now) > 0 || !c.pool.Call(clk) {
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
			if x.first > 0 && c.strikes(x.id) { // from now on it stands behind all who wait
				c.roamers.remove(x)
				x.first, x.arrival, x.sure = c.line.Ordinary().End(), c.pool.CounterTime(clk), true
				c.roamers.add(x)
			}
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

// tellWaiting tells the pool whether somebody waits or might wait. Shortly after a takeover,
// visitors may wait that have not polled yet. Shortly after a join, nobody must overtake its
// visitor before its page polls for the first time.
func (c *desk) tellWaiting(clk time.Duration) {
	waits := c.lineWaits(clk) || c.line.Unconfirmed() > 0 && clk < c.tookAt+headPoll ||
		c.newcomersFirst(clk)
	c.pool.Waiting(c.held || waits && !c.cfg.AdmitAll)
}

// copyPoll is the poll interval for a request whose ticket is used up: by then the browser that
// sent it may have the pass. Chosen.
const copyPoll = 5 * time.Second

// pollAfter returns the interval before the next poll. Close to the head it is the moment at which
// the call is due, so that the slot is not empty for long and admissions stay evenly spread.
// Elsewhere jitter spreads the polls of many visitors.
func (c *desk) pollAfter(eta ETA, lane int, pos int64, clk time.Duration) time.Duration {
	// The turn may come sooner than expected.
	d := c.interval(max(eta.Low, min(eta.Expect, c.fore.soon(lane, pos, clk))/2), clk)
	if c.below() {
		d = min(d, max(c.cfg.Line.PollMin, c.soonest(pos)))
	}
	if eta.Exact && eta.Expect < 2*c.cfg.Line.PollMin+d {
		return max(eta.Expect, 20*time.Millisecond) + 10*time.Millisecond
	}
	if !eta.Known {
		d = c.cfg.Line.PollMin
		if c.line.Len() > 100 { // no forecast: a crowd must not poll every second
			d = max(d, 5*time.Second, c.drawInterval())
		}
	}
	return c.spreadPoll(d)
}

// spreadPoll adds jitter, so that many visitors do not poll at the same moment.
func (c *desk) spreadPoll(d time.Duration) time.Duration {
	jitter := time.Duration(float64(d) * 0.2 * (2*c.random() - 1))
	if d <= c.cfg.Line.PollMin || d == c.cfg.Line.PollMax {
		jitter = -time.Duration(float64(d) * 0.2 * c.random()) // near the head: early rather than late
	}
	return d + jitter
}

// interval returns the poll interval for an expected wait: clamp(ETA/8, PollMin, PollMax). Away
// from the head it grows up to 120 s while this host receives more than 5,000 polls a second.
func (c *desk) interval(eta, clk time.Duration) time.Duration {
	d := min(max(eta/8, c.cfg.Line.PollMin), c.cfg.Line.PollMax)
	const busy, most = 5000, 120 * time.Second
	if load := c.polls.perSecond(clk); load > busy && eta > 30*time.Second {
		d = min(time.Duration(float64(d)*load/busy), max(most, d))
	}
	return d
}
