package counter

import (
	"slices"
	"time"

	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/status"
)

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
	c.line, c.draws, c.moved, c.released = line, slices.Clone(rec.Draws), rec.Moved, rec.Released
	c.setLanes()
	c.spread()
	c.hideAt, c.linedUp = clk+hideAfter, clk
	c.tellWaiting(clk)
	c.fore.update(c, clk)
	return nil
}

// limitsOf applies the limits of this host, unless another process has configured others since this host
// learned its own: a lowered limit must not rise again. Limits that were found are no configuration.
func (c *desk) limitsOf(rec *slot.Record, first bool) {
	c.limitRev = rec.LimitRev
	if !first {
		c.cfg.Settings.resume(rec, c.cfg.Datacenters != nil && !c.cfg.Params.Counters)
	}
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
	c.pace = c.pace.follow(c.cfg.Settings)
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
	p.Status, p.Asks = slot.TicketWaiting, c.hasHalf(lane)
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
	case c.releases(number), !c.line.Use(number): // its visitor stands elsewhere
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
// claimed yet. The open ones of early are called all the same.
func (c *desk) hold(yes bool, early []status.EarlyGroup, clk time.Duration) {
	var open []string
	for _, x := range early {
		if x.Open {
			open = append(open, x.Group)
		}
	}
	c.held, c.early = yes, early
	c.line.Hold(yes, open...)
	c.fore.shut = c.shut()
	for n := range c.called.all() {
		if !c.line.IsOpen(slot.LaneIndex(n)) {
			c.pool.Uncall()
			c.line.Lapse(n, c.pool.CounterTime(clk))
			c.called.take(n)
		}
	}
	if yes {
		c.holdRoamers()
	}
	c.tellWaiting(clk)
}

// shut returns the lines of which nobody is called.
func (c *desk) shut() (shut [1 + slot.MaxLanes]bool) {
	for i := range shut {
		shut[i] = !c.line.IsOpen(i)
	}
	return shut
}

// earlyAt returns when the group of a line comes in, in Unix seconds: see PlaceInfo.StartsAt.
func (c *desk) earlyAt(lane int) int64 {
	at := slices.IndexFunc(c.early, func(x status.EarlyGroup) bool {
		return lane > 0 && lane <= slot.MaxLanes && x.Group == c.line.Lanes()[lane].Name
	})
	if !c.held || at < 0 {
		return 0
	}
	return c.early[at].StartsAt.Unix()
}

// leave gives up a place.
func (c *desk) leave(number uint64, clk time.Duration) {
	if c.isReleased(number) {
		number &^= RoamerBit
		c.leaveReleased(number)
	}
	delete(c.asked, number)
	if c.line.Leave(number) == slot.TicketCalled {
		c.called.take(number)
		c.pool.Uncall()
	}
	c.tellWaiting(clk)
}

// place notes a poll of the ticket and returns its place.
func (c *desk) place(number uint64, clk time.Duration, unproven bool) PlaceInfo {
	c.awake(clk)
	c.polls.add(clk, 1)
	if number >= c.line.End(number) {
		c.rolledBack(number, clk)
	}
	first, lane := c.line.Status(number) == slot.TicketProvisional, slot.LaneIndex(number)
	if (first || c.line.IsUnconfirmed(number)) && (unproven || lane > 0) && c.hasHalf(lane) &&
		(c.cfg.Endless || c.others(clk)) {
		p := c.unproven(number, clk)
		if p.Asks = unproven; !unproven { // it is of a lane
			delete(c.unsolved, number)
		}
		return p
	}
	if unproven && c.cfg.AtClaim {
		if first {
			c.line.Confirm(number, c.pool.CounterTime(clk))
			c.again() // Run sleeps longer while nobody waits
		}
		if !c.allFit(clk) {
			return c.unready(number, clk)
		}
	}
	if unproven && !c.cfg.AtClaim && (first || c.line.IsUnconfirmed(number)) &&
		(c.cfg.Endless || c.others(clk)) {
		return c.unproven(number, clk)
	}
	delete(c.asked, number)
	delete(c.unsolved, number)
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

// unproven answers a poll without the solution that its ticket needs. A ticket that was provisional
// before a takeover is a place that nobody has confirmed. It is over as soon.
func (c *desk) unproven(number uint64, clk time.Duration) PlaceInfo {
	if c.line.IsUnconfirmed(number) && clk-c.tookAt >= slot.ProvisionalFor {
		c.leave(number, clk)
		return PlaceInfo{Number: number, Life: c.lineLife(), Status: slot.TicketGone}
	}
	c.noteUnsolved(number)
	p := c.newPlace(number, clk)
	p.Status, p.PollAfter = slot.TicketProvisional, c.firstInterval()
	return p
}

// mostUnsolved bounds the tickets of which operators read why they hold no place. Chosen: 500 KB.
const mostUnsolved = 10_000

func (c *desk) noteUnsolved(number uint64) {
	if len(c.unsolved) >= mostUnsolved || c.unsolved == nil {
		c.unsolved = map[uint64]struct{}{}
	}
	c.unsolved[number] = struct{}{}
}

// others reports whether others in the line can take all slots that are free to be called for now.
// Otherwise a ticket needs no proof: a slot must not stay empty while its visitor computes. If the last
// call found nobody, those who wait are absent; while no slot is free, visitors may have come since.
// There are never more places for nothing than slots: tickets that are called and do not come would
// otherwise be a stock of places, while their slots stay free.
func (c *desk) others(clk time.Duration) bool {
	if int64(c.line.Len()) >= c.cfg.Active.N {
		return true
	}
	free := c.freeSoon(clk)
	n := int64(c.line.Len() - c.line.Called())
	return n > 0 && n >= free && !(c.nobody && free > 0)
}

// freeSoon returns how many visitors can be called before a solution may take too long.
func (c *desk) freeSoon(clk time.Duration) int64 {
	if !c.mayCall(clk) {
		return 0
	}
	free := c.pool.FreeNow(clk)
	if step := c.pace.step; step > 0 { // a solution that comes in time delays no later call
		free = min(free, 1+int64(slot.ProvisionalFor/step))
	}
	return free
}

// newPlace returns the place of a ticket without its status. The position is 0 if the ticket holds
// no place.
func (c *desk) newPlace(number uint64, clk time.Duration) PlaceInfo {
	lane := slot.LaneIndex(number)
	p := PlaceInfo{
		Number: number, Life: c.lineLife(), Now: c.nowLife(), StartsAt: c.earlyAt(lane),
		Waiting: int64(c.line.Len()), Served: c.served(lane), Held: !c.line.IsOpen(lane),
	}
	pos, ok := c.line.Position(number)
	if !ok {
		return p
	}
	p.Position, p.Ahead, p.AsksNetwork = pos, pos-1, c.asksNetwork(number)
	if c.cfg.RandomOrder {
		p.ETA, p.PollAfter = c.drawETA(number, clk), c.spreadPoll(c.drawInterval())
	} else {
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
	left := c.pool.Quarantine(clk).Round(time.Second)
	if c.said.Due("rolled back") {
		c.cfg.Log.Error("record is older than what visitors were told: newcomers are not admitted for a while",
			"room", c.cfg.Room, "for", left)
	}
}

// tell informs a called visitor that it may come in. If this second already has its share of
// admissions, tell reserves a later moment instead. The slot stays reserved in both cases.
func (c *desk) tell(p *PlaceInfo, clk time.Duration) {
	p.Called, p.ETA = true, ETA{Known: true, Exact: true}
	x := c.called.at[p.Number]
	if !x.told {
		x.told, x.due = true, clk
		if !c.atOnce && !c.pool.RecalledByParent(clk) { // otherwise later visitors come in elsewhere first
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

// soonest returns the earliest time at which a position could be called: when every new user that
// the limit allows comes from this line, as after a long interruption of a link. A visitor that
// polls again by then is present when called. The cost in polls per second is that limit times the
// logarithm of the number that waits.
func (c *desk) soonest(pos int64) time.Duration {
	return time.Duration(float64(pos) / float64(max(1, c.cfg.New.N)) * float64(c.cfg.New.Per))
}

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
		c.sweepReleased(clk)
		c.crowded = c.crowded && clk < c.crowdedUntil
		c.line.LapseProvisional(c.pool.CounterTime(clk), provisionalSweep)
		if c.line.Expire(c.pool.CounterTime(clk), lineSweep) > 0 {
			c.tellWaiting(clk)
		}
	}
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

// nextRev returns the revision of a new configuration of the limits.
func (c *desk) nextRev() uint64 { return max(c.limitRev, c.pool.Record().LimitRev) + 1 }

// setLimits adds limits to the next write.
func (c *desk) setLimits(rev uint64, active, fresh slot.Limit) {
	c.limitRev = rev
	c.pool.SetLimits(rev, active, fresh)
}

// mostExtend limits how many places a ticket from beyond the record can create.
const mostExtend = 1 << 24

// putLine adds the line's part of the record to the next write. It reserves numbers ahead.
func (c *desk) putLine(clk time.Duration) {
	if len(c.cfg.Lanes) > 0 || len(c.pool.Record().Lanes) > 0 { // a lane may be empty now
		c.setLanes()
	}
	next, r, line := c.reserve(0, clk), c.pool.Record(), c.line.Ordinary()
	// A line that is empty, now and in the record, is not written again: an idle room writes
	// little.
	if next == r.Next && line.End() == r.Issued && line.Frontier() == r.Frontier &&
		line.Late() == 0 && len(r.Skipped) == 0 && line.Unconfirmed() == 0 && len(r.Unconfirmed) == 0 &&
		line.Len() == 0 && line.Provisional() == 0 && len(r.Heads) == 0 &&
		!c.drawing() && c.line.Line(1) == nil && c.line.Line(slot.MaxLanes) == nil &&
		len(r.Moved) == 0 && len(c.moved) == 0 && len(r.Released) == 0 && len(c.released) == 0 {
		return
	}
	part := c.linePart(clk)
	part.Next = next
	for i := range part.Lanes {
		if part.Lanes[i].Name != "" {
			part.Lanes[i].Next = c.reserve(i+1, clk)
		}
	}
	c.pool.PutLine(part)
}

// linePart returns the line's part of a record, with no number reserved ahead.
func (c *desk) linePart(clk time.Duration) slot.LinePart {
	line, now := c.line.Ordinary(), c.pool.CounterTime(clk)
	own, lane := c.skipped()
	return slot.LinePart{
		Heads: line.AppendHeads(nil, now),
		Next:  line.End(), Issued: line.End(), Frontier: line.Frontier(),
		Skipped:     line.AppendSkipped(nil, own),
		Unconfirmed: line.AppendUnconfirmed(nil, unsureRuns),
		Draws:       slices.Clone(c.draws),
		Lanes:       c.line.LaneParts(now, lane, unsureRuns),
		Moved:       c.moved,
		Released:    c.released,
	}
}

// mustWrite reports whether a write is due. asked means that something needs one.
func (c *desk) mustWrite(clk time.Duration, asked bool) bool {
	r := c.pool.Record()
	switch {
	// Slots that others wait for come back at once.
	case (c.pool.Held() || c.pool.RecalledByParent(clk)) && c.endsDue(clk), c.pool.OwesParent(clk):
		return true
	case c.drawing():
		return true
	case asked, c.short(), c.pool.Evictable(clk), r.Quiet != (c.pool.Quiet(clk) > 0):
		return true
	// A host must know that it still is the host before it answers polls. Half the time leaves room
	// for a slow write.
	case c.waiting() > 0 && !c.pool.Fresh(clk, fresh/2):
		return true
	// What was issued since the last write would be doubtful after a crash.
	case c.unwritten() && !c.pool.Fresh(clk, issuedSoon):
		return true
	case len(r.Loans) > 0 && !c.pool.Fresh(clk, min(idleEnds, c.pool.Params().Term/3)):
		return true
	case (r.Limits[0].Ends.Len() > 0 || r.Limits[1].Ends.Len() > 0) && !c.pool.Fresh(clk, idleEnds):
		return true
	}
	return false
}

// endsDue reports whether a session has ended that is still in the record.
func (c *desk) endsDue(clk time.Duration) bool {
	return c.pool.NextEnd(0) <= c.pool.CounterTime(clk)
}

// settleDue reports whether a call that is due, here or elsewhere, waits for an end that only a
// report of the borrowers can free. They are asked once for each end, and again while no report
// arrives, at growing intervals: one of them may be in another data center.
func (c *desk) settleDue(clk time.Duration) bool {
	here := c.mayCall(clk) && clk >= c.callAt(clk) && c.pool.FreeNow(clk) <= 0
	if !here && !c.pool.RecalledByParent(clk) {
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

// nextDue returns after how long the next round is due, if nothing happens before. A round may cost
// a write, so none is made in vain.
func (c *desk) nextDue(clk time.Duration) time.Duration {
	next := time.Second
	if c.pool.Held() {
		next = settleGap
	}
	if held, ok := c.pool.RecallDue(clk); ok {
		next = min(next, max(time.Millisecond, held))
	}
	if c.pool.RecalledByParent(clk) {
		now := c.pool.CounterTime(clk)
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
	if c.unwritten() {
		next = min(next, max(time.Millisecond, issuedSoon-c.pool.Age(clk)))
	}
	next = min(next, max(time.Millisecond, c.called.next()-clk))
	switch {
	case c.pool.FreeNow(clk) > 0 && c.nobody: // a poll calls; but the grace may end without one
		next = min(next, max(lookAgain, c.callAt(clk)-clk))
	case c.pool.FreeNow(clk) > 0:
		next = min(next, max(time.Millisecond, c.callAt(clk)-clk))
	case c.pool.Unsettled(clk) > 0: // the requested report is under way
		next = min(next, max(settleGap, c.callAt(clk)-clk))
	default:
		now := c.pool.CounterTime(clk)
		next = min(next, max(settleGap, c.pool.NextEnd(now).Sub(now)))
	}
	return next
}
