package counter

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// A desk is the arithmetic of a host: the pool, the line, who is called and when
// the next may be. It takes the time as an argument, has no lock and does no I/O:
// a Counter guards one and writes for it, the simulator drives one in virtual time.
type desk struct {
	cfg         Config
	again       func() // something is to be written or looked at: never blocks
	pool        *slot.Pool
	line        *slot.Lines
	limitRev    uint64
	called      calls
	pace        pace
	struck      map[uint64]int          // how often tickets were told to come in, and did not
	nobody      bool                    // the last call found nobody who is there: the next poll calls
	held        bool                    // nobody is called or admitted: queue_all, origin down, not open
	joins       [1 + slot.MaxLanes]rate // by line, for the size of a block
	polls       rate
	left        rate                             // calls by second, for the expected time
	claimed     rate                             // calls that were claimed, and
	lapsed      rate                             // that were not
	linedUp     time.Duration                    // since then somebody has been waiting
	joinedAt    time.Duration                    // when the last ticket was issued
	backAt      [1 + slot.MaxLanes]time.Duration // when the last newcomer of a line was told to ask again
	doorUntil   time.Duration                    // a called visitor is held until then
	tookAt      time.Duration
	issueAt     time.Duration // before, the host of before may issue numbers
	settle      slot.Time     // the borrowers were asked to report past this end,
	settleAt    time.Duration // at this time, so often for one end
	settleTries int
	heads       [1 + slot.MaxLanes][]byte // how long the first of each line may be silent, by the record
	hideAt      time.Duration             // whoever was unheard at the takeover has had its time; 0 done
	lastGone    time.Duration
	awakeAt     time.Duration // when this process was surely running
	stood       bool          // it stood still, and another hosts the room
	stats       Totals
	fore        forecast
	up          upward

	laned        [1 + slot.MaxLanes]laneCounts
	laneless     int           // lanes of the settings that have no line yet
	crowdedUntil time.Duration // the built-in lane is kept until then
	crowded      bool
	moved        []slot.Moved // places on another device now, as the next write has them
	movedAt      time.Duration

	draws  []slot.Draw // as the next write has them
	plan   Plan
	planAt time.Duration // since when it is that plan

	roamers   roamers
	elsewhere Others // the other data centers, as was last heard
}

// begin serves what was taken over: rec is the record as it was read, confirmed
// with the next epoch at clk. An error says that the record makes no sense.
func (c *desk) begin(rec *slot.Record, first bool, clk time.Duration) error {
	c.pool.Confirm(clk)
	c.tookAt = clk - headPoll
	if !first {
		c.tookAt = clk
	}
	if !first && rec.Host != "" && !c.cfg.Params.Alone { // it may still issue numbers of its block
		c.issueAt = clk + c.cfg.Params.WithDefaults().Rho.Up(fresh)
	}
	c.plan, c.planAt = c.cfg.Plan, clk
	c.limitsOf(rec, first)
	c.heads = headsOf(rec)
	if rec.Quiet { // headgate restore has told so, or the process before
		c.cfg.Log.Warn("record may be older than what was told: nobody new is let in for a while",
			"room", c.cfg.Room, "for", c.pool.Quarantine(clk).Round(time.Second))
	}
	line, err := slot.RestoreLines(slot.Restored{
		At: c.pool.CounterTime(clk), Frontier: rec.Frontier, Next: rec.Next, Issued: rec.Issued,
		Skipped: rec.Skipped, Unconfirmed: rec.Unconfirmed, Draws: drawn(rec.Draws), Loose: rec.Quiet,
		Hold: c.cfg.Line.Hold, UnconfirmedGrace: headPoll,
	}, rec.Lanes, c.graceOf)
	if err != nil {
		return err
	}
	c.line, c.draws, c.moved = line, slices.Clone(rec.Draws), rec.Moved
	c.setLanes()
	c.spread()
	c.hideAt, c.linedUp = clk+hideAfter, clk
	c.tellWaiting(clk)
	c.fore.update(c, clk)
	return nil
}

// limitsOf puts this host's limits into force, unless another has changed those in the
// record since it learnt of its own: a limit that was lowered must not rise again.
func (c *desk) limitsOf(rec *slot.Record, first bool) {
	c.limitRev = rec.LimitRev
	active, fresh := rec.Limits[0].Limit, rec.Limits[1].Limit
	if same := active == c.cfg.Active && fresh == c.cfg.New; c.cfg.After > 0 && same {
		return
	}
	if !first && c.cfg.After > 0 && rec.LimitRev >= c.cfg.After {
		c.cfg.Active, c.cfg.New = active, fresh
		return
	}
	c.limitRev++
	c.pool.SetLimits(c.limitRev, c.cfg.Active, c.cfg.New)
}

// spread spaces the calls, and what is lent to people who wait.
func (c *desk) spread() {
	c.pace = newPace(c.cfg.Settings)
	if c.cfg.Params.Counters {
		c.pool.Space(c.pace.step)
	}
}

// join issues a provisional ticket at the end of a line to a newcomer, who has waited for a while
// before a door. The first poll makes a place of it.
func (c *desk) join(clk time.Duration, lane int, hold, waited time.Duration) PlaceInfo {
	c.awake(clk)
	c.joins[lane].add(clk, 1)
	c.laned[lane].joined++
	c.came(1, clk)
	c.stats.Joined++
	behind, passed := int64(c.line.Len()), c.line.Called()
	if !c.cfg.RandomOrder {
		passed += c.line.Late()
	}
	if behind <= int64(passed) { // the line had moved past all others
		c.linedUp = clk
	}
	now := c.pool.CounterTime(clk)
	number := c.line.JoinProvisional(lane, now, hold)
	c.line.SetArrival(number, now.Add(-max(0, waited)))
	c.joinedAt = clk
	c.tellWaiting(clk)
	p := c.newPlace(number, clk)
	p.Status = slot.TicketWaiting
	p.PollAfter = c.firstPoll(lane, p.PollAfter, clk)
	c.line.SetProvisionalInterval(number, p.PollAfter)
	if p.ArrivedAt = c.cameAt(clk); p.ArrivedAt > 0 {
		p.ArrivedAt = max(1, p.ArrivedAt.Add(-max(0, waited)))
	}
	return p
}

// build makes the next write, if one is due or asked for, and what may be answered
// without one.
func (c *desk) build(clk time.Duration, asked bool) ([]slot.Reply, *slot.Record) {
	c.awake(clk)
	if c.hideAt > 0 && clk >= c.hideAt {
		c.hideAt = 0
		c.line.Hide()
	}
	c.lapse(clk)
	c.follow(clk)
	c.putLine(clk)
	return c.pool.Begin(clk, c.mustWrite(clk, asked))
}

// look calls whoever may be called, and tells whether borrowers should be recalled
// and how long until the next look is due.
func (c *desk) look(clk time.Duration) (recall bool, next time.Duration) {
	c.call(clk)
	c.tellWaiting(clk)
	return c.pool.Recalls(clk) || c.settleDue(clk), c.nextDue(clk)
}

// claim turns a called ticket into a claim for the next write, or repeats one;
// false if the ticket is not called. waits: somebody waits for its claim already.
func (c *desk) claim(number uint64, clk, hard time.Duration, waits bool) bool {
	id := slot.StayID(number)
	end, again := c.pool.ClaimedBefore(id)
	switch {
	case again && end == 0: // used up
		return false
	case again, waits: // a second tab, or the answer was lost
		if again {
			c.pool.Claim(clk, id, hard, true)
		}
	case number >= RoamerBit:
		if !c.useRoamer(number) {
			return false
		}
		c.pool.Claim(clk, id, hard, false)
	case !c.line.Use(number):
		return false
	default:
		at := c.called.take(number)
		c.claimed.add(clk, 1)
		c.stats.CallEmpty += clk - at
		c.pool.ClaimPlace(clk, id, c.line.Rank(number), hard)
		c.tellWaiting(clk)
	}
	return true
}

// hold stops or resumes calls.
func (c *desk) hold(yes bool, clk time.Duration) {
	c.held, c.fore.held = yes, yes
	if yes {
		for n := range c.called.all() {
			c.pool.Uncall()
			c.line.Lapse(n, c.pool.CounterTime(clk))
		}
		c.called = calls{}
		c.holdRoamers()
	}
	c.tellWaiting(clk)
}

// leave gives up a place.
func (c *desk) leave(number uint64, clk time.Duration) {
	if c.line.Leave(number) == slot.TicketCalled {
		c.called.take(number)
		c.pool.Uncall()
	}
	c.tellWaiting(clk)
}

// place marks the ticket as seen and says where it stands.
func (c *desk) place(number uint64, clk time.Duration) PlaceInfo {
	c.awake(clk)
	c.polls.add(clk, 1)
	if number >= c.line.End(number) {
		c.rolledBack(number, clk)
	}
	first := c.line.Status(number) == slot.TicketProvisional
	if first {
		alone := c.line.Len() == 0
		c.line.Confirm(number, c.pool.CounterTime(clk))
		c.call(clk)
		if alone { // Run sleeps longer while nobody waits
			c.again()
		}
	}
	p := c.newPlace(number, clk)
	if p.Position == 0 {
		p.Status = c.line.Status(number)
		c.usedUp(&p, clk)
		return p
	}
	if first { // its page asks again when it was told to at the join: until then nobody waits for it longer
		p.PollAfter = min(p.PollAfter, c.firstInterval())
	}
	p.Status = c.line.Polled(number, c.pool.CounterTime(clk), p.PollAfter)
	// A late one is back and next in the order. Any other may be the first who is
	// there while slots are free.
	if p.Status == slot.TicketLate || p.Status == slot.TicketWaiting && (c.nobody || c.line.KeptBack()) {
		c.call(clk)
		p.Status = c.line.Status(number)
	}
	if p.Status == slot.TicketCalled {
		c.tell(&p, clk)
	}
	return p
}

// newPlace says where a ticket stands, but for its status; its position is 0 if it holds no place.
func (c *desk) newPlace(number uint64, clk time.Duration) PlaceInfo {
	p := PlaceInfo{
		Number: number, Life: c.lineLife(), Now: c.nowLife(),
		Waiting: int64(c.line.Len()), Served: c.served(slot.LaneIndex(number)), Held: c.held,
	}
	pos, ok := c.line.Position(number)
	if !ok {
		return p
	}
	p.Position, p.Ahead = pos, pos-1
	if c.cfg.RandomOrder {
		p.ETA, p.PollAfter = c.drawETA(number, clk), c.spreadPoll(c.drawInterval())
	} else {
		lane := slot.LaneIndex(number)
		p.ETA = c.etaOf(number, pos, clk)
		p.PollAfter = c.pollAfter(p.ETA, lane, pos, clk)
	}
	return p
}

// firstInterval is the longest that a newcomer is told to wait before its second and third request:
// what the room asks for at least, and no longer than its ticket is provisional.
func (c *desk) firstInterval() time.Duration {
	return min(max(slot.FirstInterval, c.cfg.Line.PollMin), slot.ProvisionalFor/2)
}

// backStep is how much later than the newcomer before it a newcomer asks again at least. Chosen: what
// their ways here differ by.
const backStep = 10 * time.Millisecond

// firstPoll is when a newcomer whom another interval would suit is told to ask for the first time:
// never before those who came earlier. A ticket is not called before its cookie is back, so a later
// visitor that is told of a slot just due would have it, while the earlier ones are still to ask.
func (c *desk) firstPoll(lane int, suits, clk time.Duration) time.Duration {
	d := min(max(suits, c.backAt[lane]+backStep-clk), c.firstInterval())
	c.backAt[lane] = clk + d
	return d
}

// copyPoll is how soon a request with a ticket that is used up is asked to come again: the browser
// that made it may have the pass by then. Chosen.
const copyPoll = 5 * time.Second

// usedUp marks the place of a ticket whose pass has come back.
func (c *desk) usedUp(p *PlaceInfo, clk time.Duration) {
	left, ok := c.pool.UsedUp(clk, slot.StayID(p.Number))
	if p.UsedUp = ok; ok {
		p.PollAfter = max(c.cfg.Line.PollMin, min(copyPoll, left))
	}
}

// rolledBack acts on a sealed ticket of this life whose number was never issued:
// the record is older than what was told. Its visitor keeps the place, and nobody
// new is let in until whoever may be inside unknown to us has spoken or left.
func (c *desk) rolledBack(number uint64, clk time.Duration) {
	if end := c.line.End(number); end == 0 || number-end > mostExtend {
		return
	}
	c.quarantine(clk)
	c.line.Extend(number+1, c.pool.CounterTime(clk), c.cfg.Line.Hold)
	c.again()
}

// quarantine lets nobody new in for a while: the record is older than what was told.
func (c *desk) quarantine(clk time.Duration) {
	c.cfg.Log.Error("record is older than what was told: nobody new is let in for a while",
		"room", c.cfg.Room, "for", c.pool.Quarantine(clk).Round(time.Second))
}

// tell says to a called ticket that it is its turn, unless this second has had
// its share of admissions: then in a moment, which is kept for it. Its slot is
// reserved either way.
func (c *desk) tell(p *PlaceInfo, clk time.Duration) {
	p.Called, p.ETA = true, ETA{Known: true, Exact: true}
	x := c.called.at[p.Number]
	if !x.told {
		x.told, x.due = true, clk
		if !c.pool.RecalledByParent(clk) { // else who came later comes in elsewhere
			x.due = c.pace.admit(clk, c.called.ahead(x, clk))
		}
		until := x.due + leastHold // it is there, and comes now
		if c.cfg.Line.CallHold > 0 {
			until = max(x.until, until)
		}
		x.until = until
		c.called.change(x)
		c.doorUntil = max(c.doorUntil, x.due)
	}
	wait := x.due - clk
	if wait <= 0 && !x.invited {
		x.invited = true
		c.called.at[p.Number] = x
	}
	if wait > 0 {
		p.Status, p.PollAfter = slot.TicketWaiting, wait+2*time.Millisecond
		p.ETA.Expect, p.ETA.High = wait, wait
	}
}

// interval is how often a visitor with this expected wait is asked to poll:
// clamp(ETA/8, PollMin, PollMax), away from the head up to 120 s while this
// worker gets more than 5,000 polls a second.
func (c *desk) interval(eta, clk time.Duration) time.Duration {
	d := min(max(eta/8, c.cfg.Line.PollMin), c.cfg.Line.PollMax)
	const busy, most = 5000, 120 * time.Second
	if load := c.polls.perSecond(clk); load > busy && eta > 30*time.Second {
		d = min(time.Duration(float64(d)*load/busy), max(most, d))
	}
	return d
}

// pollAfter is the interval of the next poll. Close to the head the visitor is
// told the very moment its turn should come, so that the slot is not empty long
// and the spread holds where the visitors arrive; elsewhere jitter keeps the
// polls of many apart.
func (c *desk) pollAfter(eta ETA, lane int, pos int64, clk time.Duration) time.Duration {
	// It may come sooner than expected.
	d := c.interval(max(eta.Low, min(eta.Expect, c.fore.soon(lane, pos, clk))/2), clk)
	if c.below() {
		d = min(d, max(c.cfg.Line.PollMin, c.soonest(pos)))
	}
	if eta.Exact && eta.Expect < 2*c.cfg.Line.PollMin+d {
		return max(eta.Expect, 20*time.Millisecond) + 10*time.Millisecond
	}
	if !eta.Known {
		d = c.cfg.Line.PollMin
		if c.line.Len() > 100 { // nothing is known: do not let a crowd ask each second
			d = max(d, 5*time.Second, c.drawInterval())
		}
	}
	return c.spreadPoll(d)
}

// spreadPoll keeps the polls of many apart.
func (c *desk) spreadPoll(d time.Duration) time.Duration {
	jitter := time.Duration(float64(d) * 0.2 * (2*c.random() - 1))
	if d <= c.cfg.Line.PollMin || d == c.cfg.Line.PollMax {
		jitter = -time.Duration(float64(d) * 0.2 * c.random()) // near the head: rather early
	}
	return d + jitter
}

// soonest is when a position could be called at the earliest: if every new user whom the
// limit allows came from this line, as when a link is mended that was cut for long. Whoever
// asks again by then is awake when called, and it costs as many polls a second as that
// limit, times the logarithm of how many wait.
func (c *desk) soonest(pos int64) time.Duration {
	return time.Duration(float64(pos) / float64(max(1, c.cfg.New.N)) * float64(c.cfg.New.Per))
}

// call calls the next while slots are free and due.
func (c *desk) call(clk time.Duration) {
	for c.mayCall(clk) && c.pool.FreeNow(clk) > 0 && clk >= c.callAt(clk) {
		if c.callRoamer(clk) {
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

// upNext takes the next out of the line, in order or by draw.
func (c *desk) upNext(clk time.Duration) (number uint64, ok bool) {
	if c.cfg.RandomOrder {
		return c.line.Draw(
			c.pool.CounterTime(clk),
			func(n int) int { return min(n-1, int(c.random()*float64(n))) },
		)
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
		c.laned[i].skips.add(clk, float64(c.line.SkippedCount(i)-before))
	}
	return number, ok
}

// burst is how far calls may be ahead of their pace while Anywhere lends to those who are
// first. Chosen: it catches up half a second, and a Sync brings a quarter.
const burst = time.Second

// callAt is when the next call is due. What Anywhere lends is spaced already: once more,
// whole bursts would be called after others who came later, and never catch up.
func (c *desk) callAt(clk time.Duration) time.Duration {
	switch {
	case c.pool.RecalledByParent(clk):
		return max(0, c.pace.at-burst)
	case c.line.KeptBack(): // the turn before was its own, had it been heard
		return max(0, c.pace.at-c.pace.step)
	}
	return c.pace.at
}

// random spreads the polls of many.
func (c *desk) random() float64 {
	if c.cfg.Random != nil {
		return c.cfg.Random()
	}
	return rand.Float64()
}

// callHold is how long a called slot stays reserved: long enough for a visitor that asks when it was
// told to, and then comes. One that is overdue gets no more than that.
func (c *desk) callHold(number uint64, clk time.Duration) time.Duration {
	if c.cfg.Line.CallHold > 0 {
		return c.cfg.Line.CallHold
	}
	silent, _, _ := c.line.SilentFor(number, c.pool.CounterTime(clk))
	return max(leastHold, 2*c.line.PollInterval(number)-silent+onTheWay)
}

// onTheWay is what a visitor may be late by that asks when it was told to. Chosen: a phone on a slow
// network. Without it who came at the very end of twice its interval lost its turn.
const onTheWay = 2 * time.Second

// leastHold is how long a slot is reserved for a visitor at least who may come in. Chosen: a poll is
// lost, and the next one comes.
const leastHold = 5 * time.Second

// noShows is the share of calls that nobody claimed lately, 0 if too few say so.
func (c *desk) noShows(clk time.Duration) float64 {
	const while = 30 // seconds. Chosen, as for the rate of calls
	lapsed, seconds := c.lapsed.over(clk, while)
	claimed, _ := c.claimed.over(clk, while)
	if lapsed*float64(seconds) < fewEvents {
		return 0
	}
	return lapsed / (lapsed + claimed)
}

// mostStrikes is how often a visitor may be told to come in and not come before the place is given up.
// Chosen: an answer may be lost, and a page that fails to load is loaded again; but a slot that is kept
// for somebody who only asks stands empty, and a crowd of such would shut the room.
const mostStrikes = 3

// strikes notes that a visitor was told to come in and did not, and reports whether it was once too
// often.
func (c *desk) strikes(number uint64) bool {
	if len(c.struck) > struckMost { // of those who have left since nobody needs to know
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

// struckMost is from how many on those are looked for who have left. Chosen.
const struckMost = 10_000

// lapse takes back calls that nobody claimed, and forgets places whose hold is
// over.
func (c *desk) lapse(clk time.Duration) {
	for {
		x, ok := c.called.lapsed(clk)
		if !ok {
			break
		}
		c.stats.Lapsed++
		c.lapsed.add(clk, 1)
		c.pool.Uncall()
		switch now := c.pool.CounterTime(clk); {
		case !x.invited:
			c.line.Lapse(x.number, now)
		case c.strikes(x.number):
			c.line.Leave(x.number)
		default:
			c.line.Defer(x.number, now)
		}
	}
	if clk-c.lastGone >= 100*time.Millisecond {
		c.lastGone = clk
		c.lapseRoamers(clk)
		c.sweepMoved(clk)
		c.crowded = c.crowded && clk < c.crowdedUntil
		c.line.LapseProvisional(c.pool.CounterTime(clk), provisionalSweep)
		if c.line.Expire(c.pool.CounterTime(clk), lineSweep) > 0 {
			c.tellWaiting(clk)
		}
	}
}

// tellWaiting tells the pool whether anybody waits, or must. Just after a takeover
// some may wait who have not spoken yet, and just after a join its visitor, who must not be
// overtaken before its page has asked for the first time.
func (c *desk) tellWaiting(clk time.Duration) {
	waits := c.lineWaits(clk) || c.line.Unconfirmed() > 0 && clk < c.tookAt+headPoll ||
		c.newcomersFirst(clk)
	c.pool.Waiting(c.held || waits && !c.cfg.AdmitAll)
}

// lineWaits reports whether somebody waits whom newcomers must not pass. Visitors who are called have
// their slots: while more are free and due, and none of them is held at the door, a newcomer takes
// nobody's.
func (c *desk) lineWaits(clk time.Duration) bool {
	n, called := c.waiting(), int64(c.line.Called())
	for _, x := range c.roamers.line {
		if x.called {
			called++
		}
	}
	return n > called || n > 0 && (clk < c.pace.at || clk < c.doorUntil || c.pool.FreeNow(clk) <= 0)
}

// newcomersFirst reports whether there are fewer free slots than tickets whose cookie may come back any
// moment: nobody must pass them then. Those of the built-in lane are passed: a flood of one network must
// not make all others wait for a slot that is free.
func (c *desk) newcomersFirst(clk time.Duration) bool {
	n := int64(c.line.Provisional())
	if network := c.line.Line(slot.MaxLanes); network != nil {
		n -= int64(network.Provisional())
	}
	return n > 0 && clk < c.joinedAt+slot.ProvisionalFor/2 && c.pool.FreeNow(clk) <= n
}

// setLimits hands limits to the next write and returns their revision.
func (c *desk) setLimits(active, fresh slot.Limit) uint64 {
	c.limitRev = max(c.limitRev, c.pool.Record().LimitRev) + 1
	c.pool.SetLimits(c.limitRev, active, fresh)
	return c.limitRev
}
