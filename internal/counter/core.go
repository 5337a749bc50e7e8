package counter

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// A desk makes the decisions of a host: it has the pool and the line, and it decides who is called
// and when the next call is due. It receives the time as an argument, has no lock and does no I/O.
// A Counter locks it and stores its writes; the simulator runs it in virtual time.
type desk struct {
	cfg         Config
	again       func() // called when a write or a look is due; never blocks
	pool        *slot.Pool
	line        *slot.Lines
	limitRev    uint64
	called      calls
	pace        pace
	struck      map[uint64]int          // how often an invited visitor did not come in, by ticket
	nobody      bool                    // the last call found only absent visitors: the next poll calls
	held        bool                    // no calls and no admissions: queue_all, origin down, not open
	joins       [1 + slot.MaxLanes]rate // by line, for the size of a block
	polls       rate
	left        rate                             // calls per second, for the expected wait
	claimed     rate                             // calls that were claimed
	lapsed      rate                             // calls that were not claimed
	linedUp     time.Duration                    // since when somebody has been waiting
	joinedAt    time.Duration                    // when the last ticket was issued
	backAt      [1 + slot.MaxLanes]time.Duration // the first poll of the latest newcomer, by line
	doorUntil   time.Duration                    // until then a called visitor waits for its second
	tookAt      time.Duration
	issueAt     time.Duration // until then the previous host may issue numbers
	settle      slot.Time     // the borrowers were asked to report about ends up to this one
	settleAt    time.Duration // when they were last asked; settleTries: how often for this end
	settleTries int
	heads       [1 + slot.MaxLanes][]byte // how long the heads of each line may be silent, from the record
	hideAt      time.Duration             // end of the grace after a takeover; 0: it is over
	lastGone    time.Duration
	awakeAt     time.Duration // when this process last ran for certain
	stood       bool          // the process was suspended and another hosts the room
	stats       Totals
	fore        forecast
	up          upward

	laned        [1 + slot.MaxLanes]laneCounts
	laneless     int           // lanes of the settings without a line yet
	crowdedUntil time.Duration // the built-in lane is kept until then
	crowded      bool
	moved        []slot.Moved // places moved to another device, as in the next write
	movedAt      time.Duration

	draws  []slot.Draw // as in the next write
	plan   Plan
	planAt time.Duration // since when this plan is valid

	roamers   roamers
	elsewhere Others // the other data centers, as last received
}

// begin starts to serve from rec, the record as it was read. The takeover has confirmed it with the
// next epoch at clk. It returns an error if the record is inconsistent.
func (c *desk) begin(rec *slot.Record, first bool, clk time.Duration) error {
	c.pool.Confirm(clk)
	c.tookAt = clk - headPoll
	if !first {
		c.tookAt = clk
	}
	if !first && rec.Host != "" && !c.cfg.Params.Alone { // it may still issue numbers from its block
		c.issueAt = clk + c.cfg.Params.WithDefaults().Drift.Up(fresh)
	}
	c.plan, c.planAt = c.cfg.Plan, clk
	c.limitsOf(rec, first)
	c.heads = headsOf(rec)
	if rec.Quiet { // set by headgate restore, or by the previous process
		c.cfg.Log.Warn("record may be older than what visitors were told: newcomers are not admitted for a while",
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

// limitsOf applies the limits of this host, unless another process has changed the limits in the
// record since this host learned its own: a lowered limit must not rise again.
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

// spread sets the spacing of calls and, at Anywhere, of the slots that are lent to waiting
// visitors.
func (c *desk) spread() {
	c.pace = newPace(c.cfg.Settings)
	if c.cfg.Params.Counters {
		c.pool.Space(c.pace.step)
	}
}

// join issues a provisional ticket at the end of a line. waited is how long the newcomer has
// already waited before this request is answered. The first poll turns the ticket into a place.
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
	if behind <= int64(passed) { // nobody else in the line still waits for a call
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

// build returns the next write, if one is due or requested, and the replies that need no write.
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

// look calls the visitors that may be called. It reports whether borrowers should be recalled and
// how long until the next look is due.
func (c *desk) look(clk time.Duration) (recall bool, next time.Duration) {
	c.call(clk)
	c.tellWaiting(clk)
	return c.pool.Recalls(clk) || c.settleDue(clk), c.nextDue(clk)
}

// claim turns a called ticket into a claim for the next write, or repeats an earlier claim. It
// returns false if the ticket is not called. waits means that another request already waits for
// this claim.
func (c *desk) claim(number uint64, clk, hard time.Duration, waits bool) bool {
	id, place := slot.SessionID(number), uint64(0)
	if number < RoamerBit {
		place = c.line.Rank(number)
	}
	end, again := c.pool.ClaimedBefore(id)
	switch {
	case again && end == 0: // used up
		return false
	case again, waits: // a second tab, or the answer was lost
		c.pool.ClaimAgain(clk, id, place, hard)
	case number >= RoamerBit:
		if !c.useRoamer(number) {
			return false
		}
		c.pool.Claim(clk, id, place, hard)
	case !c.line.Use(number):
		return false
	default:
		at := c.called.take(number)
		c.claimed.add(clk, 1)
		c.stats.CallEmpty += clk - at
		c.pool.Claim(clk, id, place, hard)
		c.tellWaiting(clk)
	}
	return true
}

// hold stops or resumes calls. When it stops them, it also takes back the calls that nobody has
// claimed yet.
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

// place notes a poll of the ticket and returns its place.
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
	if first { // its page polls when the join told it to: nobody has to wait longer for it
		p.PollAfter = min(p.PollAfter, c.firstInterval())
	}
	p.Status = c.line.Polled(number, c.pool.CounterTime(clk), p.PollAfter)
	// A late visitor that returns is next in the order. Any other may be the first present visitor
	// while slots are free.
	if p.Status == slot.TicketLate || p.Status == slot.TicketWaiting && (c.nobody || c.line.KeptBack()) {
		c.call(clk)
		p.Status = c.line.Status(number)
	}
	if p.Status == slot.TicketCalled {
		c.tell(&p, clk)
	}
	return p
}

// newPlace returns the place of a ticket without its status. The position is 0 if the ticket holds
// no place.
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

// firstInterval is the longest interval before the second and the third request of a newcomer: at
// least PollMin of the room, and at most half the time for which its ticket is provisional.
func (c *desk) firstInterval() time.Duration {
	return min(max(slot.FirstInterval, c.cfg.Line.PollMin), slot.ProvisionalFor/2)
}

// backStep is the least time between the first polls of two successive newcomers. Chosen: about the
// difference of their network delays.
const backStep = 10 * time.Millisecond

// firstPoll returns the interval before the first poll of a newcomer. suits is the interval that
// would suit its position. No newcomer polls before those who came earlier: a ticket is not called
// before its cookie has come back, so a later visitor with a shorter interval would take a slot
// that is just due while earlier ones have not polled yet.
func (c *desk) firstPoll(lane int, suits, clk time.Duration) time.Duration {
	d := min(max(suits, c.backAt[lane]+backStep-clk), c.firstInterval())
	c.backAt[lane] = clk + d
	return d
}

// copyPoll is the poll interval for a request whose ticket is used up: by then the browser that
// sent it may have the pass. Chosen.
const copyPoll = 5 * time.Second

// usedUp marks the place of a ticket whose pass has come back.
func (c *desk) usedUp(p *PlaceInfo, clk time.Duration) {
	left, ok := c.pool.UsedUp(clk, slot.SessionID(p.Number))
	if p.UsedUp = ok; ok {
		p.PollAfter = max(c.cfg.Line.PollMin, min(copyPoll, left))
	}
}

// rolledBack handles a sealed ticket of this life whose number the record has not issued. The
// record is then older than what visitors were told. The visitor keeps its place. No newcomer is
// admitted until all unknown sessions have reported or ended.
func (c *desk) rolledBack(number uint64, clk time.Duration) {
	if end := c.line.End(number); end == 0 || number-end > mostExtend {
		return
	}
	c.quarantine(clk)
	c.line.Extend(number+1, c.pool.CounterTime(clk), c.cfg.Line.Hold)
	c.again()
}

// quarantine stops admissions of newcomers for a while, because the record is older than what
// visitors were told.
func (c *desk) quarantine(clk time.Duration) {
	c.cfg.Log.Error("record is older than what visitors were told: newcomers are not admitted for a while",
		"room", c.cfg.Room, "for", c.pool.Quarantine(clk).Round(time.Second))
}

// tell informs a called visitor that it may come in. If this second already has its share of
// admissions, tell reserves a later moment instead. The slot stays reserved in both cases.
func (c *desk) tell(p *PlaceInfo, clk time.Duration) {
	p.Called, p.ETA = true, ETA{Known: true, Exact: true}
	x := c.called.at[p.Number]
	if !x.told {
		x.told, x.due = true, clk
		if !c.pool.RecalledByParent(clk) { // otherwise later visitors come in elsewhere first
			x.due = c.pace.admit(clk, c.called.ahead(x, clk))
		}
		until := x.due + leastHold // the visitor is present and comes now
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

// soonest returns the earliest time at which a position could be called: when every new user that
// the limit allows comes from this line, as after a long interruption of a link. A visitor that
// polls again by then is present when called. The cost in polls per second is that limit times the
// logarithm of the number that waits.
func (c *desk) soonest(pos int64) time.Duration {
	return time.Duration(float64(pos) / float64(max(1, c.cfg.New.N)) * float64(c.cfg.New.Per))
}

// call calls the next visitors while slots are free and due.
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
		c.laned[i].skips.add(clk, float64(c.line.SkippedCount(i)-before))
	}
	return number, ok
}

// burst is how far calls may run ahead of their pace while Anywhere lends to the visitors that are
// first. Chosen: it makes up for half a second, and one Sync brings a quarter.
const burst = time.Second

// callAt returns when the next call is due. What Anywhere lends is already spaced. If it were
// spaced again, whole bursts would be called after later visitors elsewhere and would never catch
// up.
func (c *desk) callAt(clk time.Duration) time.Duration {
	switch {
	case c.pool.RecalledByParent(clk):
		return max(0, c.pace.at-burst)
	case c.line.KeptBack(): // the previous turn was its own, had it polled
		return max(0, c.pace.at-c.pace.step)
	}
	return c.pace.at
}

// random returns a number in [0, 1), for jitter and random order.
func (c *desk) random() float64 {
	if c.cfg.Random != nil {
		return c.cfg.Random()
	}
	return rand.Float64()
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

// leastHold is the least time for which a slot is reserved for a visitor that may come in. Chosen:
// one poll may be lost, and the next one arrives.
const leastHold = 5 * time.Second

// noShows returns the share of recent calls that nobody claimed, 0 if there were too few to tell.
func (c *desk) noShows(clk time.Duration) float64 {
	const while = 30 // seconds. Chosen, as for the rate of calls
	lapsed, seconds := c.lapsed.over(clk, while)
	claimed, _ := c.claimed.over(clk, while)
	if lapsed*float64(seconds) < fewEvents {
		return 0
	}
	return lapsed / (lapsed + claimed)
}

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

// lapse takes back calls that nobody claimed, and removes places whose hold has expired.
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

// tellWaiting tells the pool whether somebody waits or might wait. Shortly after a takeover,
// visitors may wait that have not polled yet. Shortly after a join, nobody must overtake its
// visitor before its page polls for the first time.
func (c *desk) tellWaiting(clk time.Duration) {
	waits := c.lineWaits(clk) || c.line.Unconfirmed() > 0 && clk < c.tookAt+headPoll ||
		c.newcomersFirst(clk)
	c.pool.Waiting(c.held || waits && !c.cfg.AdmitAll)
}

// lineWaits reports whether somebody waits whom newcomers must not pass. Called visitors have their
// slots. While more slots are free and due, and no called visitor waits for its second, a newcomer
// takes nobody's slot.
func (c *desk) lineWaits(clk time.Duration) bool {
	n, called := c.waiting(), int64(c.line.Called())
	for _, x := range c.roamers.line {
		if x.called {
			called++
		}
	}
	return n > called || n > 0 && (clk < c.pace.at || clk < c.doorUntil || c.pool.FreeNow(clk) <= 0)
}

// newcomersFirst reports whether there are no more free slots than tickets whose cookie may come
// back at any moment: then nobody may pass them. Newcomers may pass the tickets of the built-in
// lane: a flood from one network must not make all others wait for a free slot.
func (c *desk) newcomersFirst(clk time.Duration) bool {
	n := int64(c.line.Provisional())
	if network := c.line.Line(slot.MaxLanes); network != nil {
		n -= int64(network.Provisional())
	}
	return n > 0 && clk < c.joinedAt+slot.ProvisionalFor/2 && c.pool.FreeNow(clk) <= n
}

// setLimits adds limits to the next write and returns their revision.
func (c *desk) setLimits(active, fresh slot.Limit) uint64 {
	c.limitRev = max(c.limitRev, c.pool.Record().LimitRev) + 1
	c.pool.SetLimits(c.limitRev, active, fresh)
	return c.limitRev
}
