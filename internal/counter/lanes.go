package counter

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/status"
)

// Lanes are lines beside the ordinary one that get a share of the calls (ADR 0042). Messages
// between machines identify a lane by its id. Only the host and the record know which line it has.

// setLanes gives each lane of the settings a line. Anywhere has no lanes.
func (c *desk) setLanes() {
	if c.cfg.Params.Counters {
		return
	}
	left := c.line.SetLanes(c.lanes())
	c.line.SetDrawWeight(c.cfg.DrawWeight)
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
func (c *desk) laneStates() (all []status.Lane) {
	wanted := map[string]bool{}
	for _, x := range c.lanes() {
		wanted[x.Name] = true
	}
	for i, x := range c.line.Lanes() {
		line := c.line.Line(i)
		if i == 0 || line == nil || line.Len() == 0 && !wanted[x.Name] {
			continue
		}
		all = append(all, status.Lane{
			Name: cmp.Or(x.Name, "?"), Share: x.Share, Gone: !wanted[x.Name],
			Waiting: int64(line.Len()), Called: int64(line.Called()),
			Joined: c.laned[i].joined, Calls: c.laned[i].called,
		})
	}
	return all
}

// awake checks whether the process was suspended. During a suspension no poll arrived, so the host
// continues as after a takeover. If there are other hosts, it releases the room: another host has
// certainly taken over, and the places known here would be wrong.
func (c *desk) awake(clk time.Duration) {
	if c.awakeAt > 0 && clk-c.awakeAt > frozenAfter {
		c.cfg.Log.Warn("process stood still", "room", c.cfg.Room,
			"for", (clk - c.awakeAt).Round(time.Millisecond))
		c.unhear(clk)
		c.stood = !c.cfg.Params.Alone
	}
	c.awakeAt = clk
}

// unhear gives all visitors time to poll again before the next call.
func (c *desk) unhear(clk time.Duration) {
	c.tookAt = clk
	for lane := range c.heads {
		if x := c.line.Line(lane); x != nil {
			c.heads[lane] = x.AppendHeads(nil, c.pool.CounterTime(clk))
		}
	}
	c.line.ForgetPolls(c.pool.CounterTime(clk), c.graceOf)
	c.hideAt = clk + hideAfter
}

// grace returns how long an unpolled ticket at a distance from the frontier delays those behind it
// after a takeover: as long as it could have been silent if nothing had happened. If that is not
// recorded for the ticket, grace is two polls of the longest interval, with jitter and some slack.
func (c *desk) grace(lane int, distance uint64) time.Duration {
	if d, ok := slot.HeadGrace(c.heads[lane], distance); ok {
		return d
	}
	return 3 * c.cfg.Line.PollMax
}

// spare returns how many slots may be called, or kept for tickets that have not polled since a
// takeover so that others can be called past them (ADR 0051). Below Anywhere none is kept: a slot
// there is lent to the visitor that has waited longest in any data center, and an unused one is
// returned.
func (c *desk) spare(clk time.Duration) int {
	if c.below() {
		return 1
	}
	return int(min(c.pool.FreeNow(clk), math.MaxInt32))
}

// frozenAfter is the pause after which the process counts as suspended. Chosen: Run looks each
// second.
const frozenAfter = 3 * time.Second

// A ticket that an operator has released leaves the lane of those whose challenge is not solved. Its
// number says its line, so it cannot have a place in another one: its visitor stands outside, as one of
// another data center does, before the first number that it had in the ordinary line. The record says
// which tickets are released, and which of them are used. The visitors say with each poll which number
// was their first one, so a takeover changes nothing.

// releasedKept is for how long the ticket of a silent visitor stays released. Chosen: its cookie is kept
// for as long.
const releasedKept = 24 * time.Hour

// isReleased reports whether the record says that a ticket is released.
func (c *desk) isReleased(number uint64) bool {
	_, ok := slot.FindReleased(c.pool.Record().Released, number&^RoamerBit)
	return ok
}

// releases is isReleased, also while that is not in the record yet.
func (c *desk) releases(number uint64) bool {
	_, ok := slot.FindReleased(c.released, number)
	return ok
}

// asReleased returns the number of the session of a ticket if it is released, or else the number.
func (c *desk) asReleased(number uint64) uint64 {
	if number != 0 && c.isReleased(number) {
		return number | RoamerBit
	}
	return number
}

// isSpent reports whether a released ticket has let its visitor in, or was given up.
func (c *desk) isSpent(number uint64) bool {
	all := c.pool.Record().Released
	at, ok := slot.FindReleased(all, number&^RoamerBit)
	return ok && all[at].Used || c.roamers.used[number|RoamerBit]
}

// Release takes a ticket out of the lane of those whose challenge is not solved: its visitor stands where
// its first ticket would, from its next poll on. It blocks until that is in the record. A ticket can be
// released again, which changes nothing.
func (c *Counter) Release(ctx context.Context, find func(life uint64) (uint64, bool)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for began := c.cfg.Boot(); ; {
		if c.gone() {
			return ErrFenced
		}
		number, ok := find(c.pool.Record().Name.Life)
		if !ok {
			return ErrNoTicket
		}
		if clk := c.cfg.Boot(); c.pool.Fresh(clk, fresh) { // otherwise another host may know better
			written, err := c.release(number, clk)
			if written || err != nil {
				return err
			}
		}
		if err := c.waitWrite(ctx, began); err != nil {
			return err
		}
	}
}

// release adds a ticket to the released ones of the next write. It reports whether it is in the record.
func (c *desk) release(number uint64, clk time.Duration) (written bool, err error) {
	at, ok := slot.FindReleased(c.released, number)
	lane := slot.LaneIndex(number)
	switch {
	case ok:
		return c.isReleased(number), nil
	case number == 0, number >= c.line.End(number), !c.places(number) && !c.cfg.Endless &&
		c.line.Status(number) != slot.TicketProvisional: // which has not asked again yet
		return false, ErrNoTicket
	case (lane == 0 || c.line.Lanes()[lane].Name != slot.UnsolvedLane) &&
		(c.places(number) || !c.cfg.Endless): // it is in another line, or is not refused
		return false, ErrNotHeldBack
	case c.pool.EndOf(slot.SessionID(number)) > c.pool.CounterTime(clk): // inside
		return false, ErrNotHeldBack
	case !c.places(number) && !c.isUnsolved(number) && c.line.Status(number) != slot.TicketProvisional:
		return false, ErrNotHeldBack // perhaps it has let its visitor in
	case len(c.released) >= slot.MaxReleased:
		if c.forgetReleased(clk, true); len(c.released) >= slot.MaxReleased {
			return false, ErrFull
		}
		at, _ = slot.FindReleased(c.released, number)
	}
	now := slot.Released{Number: number, Held: c.pool.CounterTime(clk)}
	c.released = slices.Insert(slices.Clone(c.released), at, now) // records share the slice
	c.stats.Released++
	return false, nil
}

// placeOf is place, also for tickets that are released or refused.
func (c *desk) placeOf(x ticketRequest, clk time.Duration) PlaceInfo {
	switch released := c.isReleased(x.number); {
	case !released && x.refused:
		return c.refused(x, clk)
	case !released:
		return c.place(x.number, clk, x.unproven)
	}
	if slot.LaneIndex(x.first) > 0 { // above join_limit: it never had one in the ordinary line
		x.first = 0
	}
	number, line := x.number&^RoamerBit, c.line.Ordinary()
	if c.line.Leave(number) == slot.TicketCalled {
		c.called.take(number)
		c.pool.Uncall()
	}
	as := &roamer{id: number | RoamerBit, first: cmp.Or(x.first, line.End()), sure: x.first > 0}
	var ok bool
	if as.arrival, ok = line.ArrivalAt(as.first); !ok {
		as.arrival = c.pool.CounterTime(clk)
	}
	if was := c.roamers.of[as.id]; was != nil && as.sure && !was.sure { // found by who the visitor is
		c.roamers.remove(was)
		was.first, was.arrival, was.sure = as.first, as.arrival, true
		c.roamers.add(was)
	}
	p := c.outside(as, c.isSpent(number), clk)
	if p.Status == slot.TicketUnknown {
		p.Status = slot.TicketUsed
	}
	return p
}

// refused answers the poll of a ticket without a place, whose visitor waits until an operator releases it.
// It does not differ from the answer to one that waits, except that no time is known: nobody is told what
// its visitor did wrong. What it says is true: so many visitors wait that came before. Nothing of it is
// stored, except a number for operators (see mostUnsolved).
func (c *desk) refused(x ticketRequest, clk time.Duration) PlaceInfo {
	p := PlaceInfo{Number: x.number, Life: c.lineLife(), Status: slot.TicketGone}
	if !c.cfg.Endless {
		return p
	}
	c.awake(clk)
	c.polls.add(clk, 1)
	c.noteUnsolved(x.number)
	first := c.line.Status(x.number) == slot.TicketProvisional
	// An older copy of its cookie could still confirm it, or solve the challenge when its turn comes.
	if first || c.line.IsUnconfirmed(x.number) || c.cfg.AtClaim && c.places(x.number) {
		c.leave(x.number, clk)
	}
	p.Status, p.Now, p.Held = slot.TicketWaiting, c.nowLife(), c.held
	p.Waiting, p.Served = int64(c.line.Len()), c.served(0)
	p.PollAfter = c.spreadPoll(c.cfg.Line.PollMax)
	at := cmp.Or(x.first, x.number)
	lane := slot.LaneIndex(at)
	if line := c.line.Line(lane); line != nil && line.Before(at) > 0 { // otherwise it would be next
		p.Ahead = line.Before(at)
		p.Ahead += c.line.Beside(lane, p.Ahead+1)
		p.Position = p.Ahead + 1
		p.Waiting = max(p.Waiting, p.Position) // the last of them counts itself
		p.PollAfter = c.pollAfter(c.fore.eta(lane, p.Position, clk), lane, p.Position, clk)
	}
	if c.cfg.RandomOrder { // nobody has a position there
		p.PollAfter = c.spreadPoll(c.drawInterval())
	}
	if first { // as for one that is confirmed
		p.PollAfter = min(p.PollAfter, c.firstInterval())
	}
	return p
}

// A challenge may be asked at the claim: a ticket has its place at once, and is not called before its
// challenge is solved. Its visitor is asked when the turn comes within turnAhead, and those behind it go
// first until then. After solveWithin the place is over, and its visitor joins the lane of those who have
// not solved theirs. Both times are chosen. solveWithin is also for how long a slot may stay empty because
// nobody in the line has solved anything; it is below turnAhead, so that visitors behind many who solve
// nothing are asked sooner than those come in.
const (
	turnAhead   = 2 * time.Minute
	solveWithin = 90 * time.Second
	askedPoll   = 5 * time.Second // between the polls of those who are asked
	mostAsked   = 100_000         // at a time: 5 MB. Others are asked when one of them is through
	askedSweep  = time.Second
)

// unready answers the poll of a ticket that is not called before its challenge is solved.
func (c *desk) unready(number uint64, clk time.Duration) PlaceInfo {
	p := c.newPlace(number, clk)
	if p.Position == 0 {
		p.Status = c.line.Status(number)
		c.usedUp(&p, clk)
		return p
	}
	if p.Status = c.line.Heard(number, c.pool.CounterTime(clk)); p.Status == slot.TicketCalled {
		c.tell(&p, clk)
		return p
	}
	p.Asks = c.asks(&p, clk)
	if p.Asks && (p.Status == slot.TicketWaiting || p.Status == slot.TicketLate) && c.isOver(number, clk) {
		c.leave(number, clk)
		return PlaceInfo{Number: number, Life: c.lineLife(), Status: slot.TicketGone}
	}
	if p.Asks {
		p.PollAfter = min(p.PollAfter, max(askedPoll, c.cfg.Line.PollMin))
	}
	return p
}

// An asking is of a visitor who was asked to solve its challenge.
type asking struct {
	since, last time.Duration // its first poll that counts, and its last one
	again       bool          // it was silent meanwhile, and began anew
}

// asleep is for how long a visitor who was asked is silent whose phone sleeps. Chosen: a few polls.
const asleep = 4 * askedPoll

// isOver notes a poll of a visitor who is asked, and reports whether its time is over. A phone that sleeps
// solves nothing: after that the time begins anew, but once, or programs that are silent would stay in front.
func (c *desk) isOver(number uint64, clk time.Duration) bool {
	a, asked := c.asked[number]
	slept := asked && !a.again && clk-a.last >= asleep
	if !asked || slept || c.held { // nobody has a turn meanwhile
		a.since, a.again = clk, a.again || slept && !c.held
	}
	a.last = clk
	c.asked[number] = a
	return clk-a.since >= solveWithin
}

// idleStep is after how much time in which slots wait visitors are asked who are expected twice as late.
// Chosen: a million places that solve nothing hold up nobody for longer than solveWithin.
const idleStep = 5 * time.Second

// noteIdle measures for how long slots have waited because nobody could be called. It is made up for by as
// much time in which they do not. Otherwise one call a minute would renew the wait of all other slots.
func (c *desk) noteIdle(clk time.Duration) {
	waits := c.nobody && c.mayCall(clk) && c.pool.FreeNow(clk) > 0 && clk >= c.callAt(clk) &&
		!c.line.IsBlocked(c.pool.CounterTime(clk))
	switch passed := clk - c.idleAt; {
	case c.line.Len() == c.line.Called():
		c.idle = 0
	case waits:
		c.idle = min(c.idle+passed, solveWithin)
	default:
		c.idle = max(c.idle-passed, 0)
	}
	c.idleAt = clk
}

// asks reports whether the visitor of a place is asked now to solve its challenge. Whoever was asked stays
// asked, although the expected time may rise.
func (c *desk) asks(p *PlaceInfo, clk time.Duration) bool {
	if _, asked := c.asked[p.Number]; asked {
		return true
	}
	if c.asked == nil {
		c.asked = map[uint64]asking{}
	}
	if len(c.asked) >= mostAsked && clk-c.askedAt >= askedSweep { // of those who have left in silence
		c.askedAt = clk
		maps.DeleteFunc(c.asked, func(number uint64, a asking) bool {
			return clk-a.last > 2*solveWithin || !c.places(number)
		})
	}
	soon := c.cfg.New.N * int64(turnAhead) / int64(c.cfg.New.Per)
	near := p.Position <= soon
	if p.ETA.Known && !c.held {
		near = p.ETA.Low>>(c.idle/idleStep) <= turnAhead
	}
	return (near || c.cfg.RandomOrder) && len(c.asked) < mostAsked
}

// allFit reports whether all who wait can be called at once, so that nobody has to prove anything.
func (c *desk) allFit(clk time.Duration) bool {
	n := int64(c.line.Len() - c.line.Called())
	return !c.cfg.Endless && n > 0 && n <= c.freeSoon(clk)
}

// isUnsolved reports whether the visitor of a ticket has asked without the solution of its challenge.
func (c *desk) isUnsolved(number uint64) bool {
	_, unsolved := c.unsolved[number]
	_, asked := c.asked[number]
	line := c.line.Line(slot.LaneIndex(number))
	return unsolved || asked || line != nil && line.Network(number) == slot.NoProof
}

// leaveReleased gives up the place of a released ticket.
func (c *desk) leaveReleased(number uint64) {
	id := number | RoamerBit
	if at, ok := slot.FindReleased(c.released, number); ok { // the next host knows it too
		c.released = slices.Clone(c.released) // records share the slice
		c.released[at].Used = true
	}
	if x := c.roamers.of[id]; x != nil {
		if x.called {
			c.pool.Uncall()
		}
		c.roamers.remove(x)
	}
	if c.roamers.used == nil {
		c.roamers.used = map[uint64]bool{}
	}
	c.roamers.used[id] = true
}

// sweepReleased forgets released tickets that are over.
func (c *desk) sweepReleased(clk time.Duration) {
	if len(c.released) > 0 && clk-c.releasedAt >= movedSweep {
		c.releasedAt = clk
		c.forgetReleased(clk, false)
	}
}

// forgetReleased forgets the released tickets whose visitors were silent for long. full: those that are
// spent too. A ticket that the next host might find in its lane again must not be forgotten before it is
// below the frontier there, or it would let somebody in twice.
func (c *desk) forgetReleased(clk time.Duration, full bool) {
	now := c.pool.CounterTime(clk)
	var kept []slot.Released
	for _, x := range c.released {
		if c.places(x.Number) {
			x.Held = now
		}
		line, silent := c.line.Line(slot.LaneIndex(x.Number)), now.Sub(x.Held)
		over := silent >= releasedKept || full && silent >= movedLeast && c.isSpent(x.Number)
		if !over || line == nil || c.line.Rank(x.Number) >= line.Frontier() {
			kept = append(kept, x)
		}
	}
	c.released = kept
}

// traceReleased is Trace for a released ticket whose visitor has polled since. It reports whether it is
// one.
func (c *desk) traceReleased(t *TicketTrace, clk time.Duration) bool {
	if t.Released = c.isReleased(t.Number); !t.Released {
		return false
	}
	id := t.Number | RoamerBit
	x := c.roamers.of[id]
	switch {
	case c.isSpent(t.Number):
		t.Status = slot.TicketUsed
		t.Left = max(0, c.pool.EndOf(slot.SessionID(id)).Sub(c.pool.CounterTime(clk)))
	case x == nil:
		return false
	default:
		t.Status, t.Position, t.Place = slot.TicketWaiting, c.roamerPosition(x, clk), true
		t.Silent = clk - x.seen
		t.Kept, t.ETA = max(0, c.cfg.Line.Hold-t.Silent), c.fore.eta(0, t.Position, clk)
		if x.called {
			t.Status = slot.TicketCalled
		}
	}
	return true
}
