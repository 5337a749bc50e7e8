package counter

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/persons"
	"github.com/headgate/headgate/internal/slot"
)

// A place that moves to another device keeps its number and gets a new key. Its ticket is valid
// only with the newest key, so that one of several devices that try at once gets the place, and the
// previous device learns that it has lost it. The key is in the record before any device gets it.

// Parameters of moved places. Chosen: a device that slept for less than movedKept still learns of
// the move.
const (
	movedKept  = time.Hour
	movedSweep = time.Minute
	movedLeast = 2 * time.Minute // when the list is full: longer than a claim may be repeated
)

// move adds a move to the next write. It reports whether the move is already in the record.
func (c *desk) move(m Move, clk time.Duration) (written bool, err error) {
	at, ok := slot.FindMoved(c.moved, m.Number)
	switch {
	case !c.ofLine(m.Life), m.To == 0:
		return false, ErrNoTicket
	case ok && c.moved[at].Key == m.To:
		return !c.moving(m.Number), nil
	case ok && c.moved[at].Key != m.From, !c.places(m.Number):
		return false, ErrNoTicket
	case !ok && !c.movesMore(m.Number, clk):
		return false, ErrFull
	}
	now := slot.Moved{Number: m.Number, Key: m.To, Held: c.pool.CounterTime(clk)}
	c.moved = slices.Clone(c.moved) // records share the slice
	if ok {
		c.moved[at] = now
	} else {
		c.moved = slices.Insert(c.moved, at, now)
	}
	return false, nil
}

// movesMore reports whether one more place may move. One network must not use up all moves: the
// places in its lane may have half of them. When the list is full, places that are over are removed
// first.
func (c *desk) movesMore(number uint64, clk time.Duration) bool {
	most := slot.MaxMoved
	if slot.LaneIndex(number) == slot.MaxLanes { // slot.NetworkLane
		most /= 2
	}
	if len(c.moved) >= most {
		c.forgetMoved(clk, movedLeast)
	}
	return len(c.moved) < most
}

// places reports whether a number holds a place that has not been used.
func (c *desk) places(number uint64) bool {
	if c.roamers.of[number|RoamerBit] != nil { // released
		return true
	}
	switch c.line.Status(number) {
	case slot.TicketWaiting, slot.TicketLate, slot.TicketCalled:
		return true
	}
	return false
}

// theirs reports whether a ticket with this key is valid. A number without a known move is valid
// with any key: the record may be older than what visitors were told.
func (c *desk) theirs(number, key uint64) bool {
	at, ok := slot.FindMoved(c.moved, number&^RoamerBit)
	return !ok || c.moved[at].Key == key
}

// moving reports whether a move of the number is not in the record yet.
func (c *desk) moving(number uint64) bool {
	number &^= RoamerBit
	was := c.pool.Record().Moved
	now, ok := slot.FindMoved(c.moved, number)
	then, before := slot.FindMoved(was, number)
	return ok && (!before || was[then].Key != c.moved[now].Key)
}

// sweepMoved removes moved places that were over long ago.
func (c *desk) sweepMoved(clk time.Duration) {
	if len(c.moved) == 0 || clk-c.movedAt < movedSweep {
		return
	}
	c.movedAt = clk
	c.forgetMoved(clk, movedKept)
}

// forgetMoved removes moved places that have been over for after.
func (c *desk) forgetMoved(clk, after time.Duration) {
	now := c.pool.CounterTime(clk)
	var kept []slot.Moved
	for _, m := range c.moved {
		if c.places(m.Number) || c.releases(m.Number) && !c.isSpent(m.Number) {
			m.Held = now
		}
		if now.Sub(m.Held) < after {
			kept = append(kept, m)
		}
	}
	c.moved = kept
}

// A PersonJoin asks for the one place of a person whom the site knows.
type PersonJoin struct {
	Person persons.ID
	Lane   uint64        // of a new place, and of one in place of another that is held back
	Hold   time.Duration // of a new place
	Waited time.Duration // before this request
	Find   bool          // the visitor gets no new place
	// Life, Number and Key are those of a ticket or a session that the visitor has got without the
	// person's ID. Number is 0 if there is none.
	Life, Number, Key uint64

	persons.Invitation      // zero: the ID is none
	Use                bool // the invitation is used from now on: its ticket is about to be claimed

	code  uint64 // how the registry names the code
	spent bool   // nobody joins by the ID: it was used, or all uses of its code are taken by others
}

// find returns what the person has.
func (x *PersonJoin) find(r *persons.Registry) (persons.Hold, persons.Mark) {
	has, mark := r.Find(x.Person)
	name, taken := r.Taken(x.Code)
	x.code, x.spent = name, has.Used || name != 0 && has.Code != name && taken >= int(x.Uses)
	return has, mark
}

// hold returns what the person has with a ticket.
func (x *PersonJoin) hold(number uint64, used bool) persons.Hold {
	return persons.Hold{Number: number, Until: x.Until, Used: used, Code: x.code}
}

// JoinPerson returns the place of a person, from whatever device it joined, or else adds the person to
// the end of the line. If the person is inside, the status is TicketUsed and s has the end of the session. A
// visitor who has a place and then signs in keeps it, unless the person has a better one. Nobody joins by an
// invitation that was used, or by a code whose uses are all taken.
func (c *Counter) JoinPerson(ctx context.Context, x PersonJoin) (p PlaceInfo, s slot.ClaimReply, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.cfg.Boot()
	for began := first; ; {
		x.Number = c.asReleased(x.Number)
		ok, err := c.mayFind(ctx, began)
		switch {
		case err != nil:
			return p, s, err
		case !ok:
			continue
		}
		has, mark := x.find(c.persons)
		has.Number = c.asReleased(has.Number)
		number := has.Number
		if c.unsettled(number) || c.unsettled(x.Number) {
			if err := c.waitWrite(ctx, began); err != nil {
				return p, s, err
			}
			continue
		}
		if x.Use {
			if mark, err = c.useCode(&x, has, mark); err != nil {
				return p, s, err
			}
		} else if number, mark = c.better(&x, has, mark); number == 0 || c.isHeldBack(&x, number) {
			switch held := number; {
			case held != 0:
			case x.Find:
				return PlaceInfo{Status: slot.TicketGone}, s, nil
			case x.spent:
				return p, s, ErrUsed
			case x.Until != 0 && has.Until == 0 && c.persons.IsFull():
				if c.said.Due("invitations") {
					c.cfg.Log.Error("no more invitations can be remembered: new ones wait until older ones end",
						"room", c.cfg.Room, "most", persons.MaxCodes)
				}
				return c.notJoined(ErrFull), s, ErrFull
			}
			if ok, err = c.mayIssue(ctx, x.Lane, &began); err != nil {
				return c.notJoined(err), s, err
			} else if !ok {
				continue
			}
			clk := c.cfg.Boot()
			if number != 0 {
				c.leave(number, clk)
			}
			c.atOnce = c.waiting() <= int64(c.line.Called()) // as a newcomer who needs no ticket
			p = c.join(clk, c.line.Lane(x.Lane), cmp.Or(x.Hold, c.cfg.Line.Hold), x.Waited+clk-first)
			number = p.Number
			mark = c.persons.Set(x.Person, x.hold(number, false), mark)
		}
		at := p.ArrivedAt
		pace := c.pace.at
		if c.atOnce {
			c.pace.at = min(pace, c.cfg.Boot())
		}
		p, s = c.standing(number)
		if p.ArrivedAt = at; c.atOnce {
			c.atOnce, c.pace.at = false, pace
		}
		if err := c.awaitPerson(ctx, mark, began); err == nil {
			return p, s, nil
		} else if c.gone() || c.cfg.Boot()-began >= writeWait || ctx.Err() != nil {
			return PlaceInfo{}, slot.ClaimReply{}, ErrSlow
		} // another host has written meanwhile: its tickets are read now
	}
}

// isHeldBack reports whether a person waits until an event starts, in the ordinary line or in that of a
// network or a rule, and is now known to be of a group that comes in earlier. Then the place in the lane of
// that group is the better one.
func (c *Counter) isHeldBack(x *PersonJoin, number uint64) bool {
	return c.places(number) && !c.isReleased(number) && c.earlyAt(slot.LaneIndex(number)) == 0 &&
		c.earlyAt(c.line.Lane(x.Lane)) != 0 && int64(c.line.Len()) < c.cfg.Line.MaxWaiting
}

// Claim claims a ticket. If it is that of an invitation, the host notes first that the invitation is used:
// nobody comes in by it before that is on disk. A visitor who shows an invitation that was used or has ended
// may have a ticket of its own, which uses none.
func (x PersonJoin) Claim(
	ctx context.Context, host personHost, line claimer, p *PlaceInfo, key uint64, hard time.Duration,
) (slot.ClaimReply, error) {
	if x.Until != 0 && x.Number == 0 {
		use := PersonJoin{Person: x.Person, Invitation: x.Invitation, Number: p.Number, Use: true}
		if _, _, err := host.JoinPerson(ctx, use); err != nil {
			return slot.ClaimReply{}, err
		}
	}
	return line.Claim(ctx, p.Life, p.Number, key, hard)
}

type personHost interface {
	JoinPerson(ctx context.Context, x PersonJoin) (PlaceInfo, slot.ClaimReply, error)
}

type claimer interface {
	Claim(ctx context.Context, life, number, key uint64, hard time.Duration) (slot.ClaimReply, error)
}

// mayFind reports whether the places of persons are known now. If not, it has waited for what was
// missing, without the lock.
func (c *Counter) mayFind(ctx context.Context, began time.Duration) (ok bool, err error) {
	switch {
	case c.gone():
		return false, ErrFenced
	case !c.persons.IsReady():
		return false, c.awaitPerson(ctx, persons.Mark{}, began)
	case c.pool.Fresh(c.cfg.Boot(), fresh) && !c.drawing():
		return true, nil
	}
	return false, c.waitWrite(ctx, began)
}

// awaitPerson waits, without the lock, until a ticket of a person is on disk.
func (c *Counter) awaitPerson(ctx context.Context, m persons.Mark, began time.Duration) error {
	c.mu.Unlock()
	defer c.mu.Lock()
	ctx, stop := context.WithTimeoutCause(ctx, max(0, began+writeWait-c.cfg.Boot()), ErrSlow)
	defer stop()
	return c.persons.Await(ctx, m)
}

// unsettled reports whether the end of a session of this number may not be in the record yet.
func (c *Counter) unsettled(number uint64) bool {
	return number != 0 && (len(c.claims[slot.SessionID(number)]) > 0 ||
		c.pool.Writing() && !c.isPlace(number))
}

// A holding is what a number holds. Of two, a person keeps the greater one.
type holding uint8

const (
	holdsNothing holding = iota
	holdsPlace
	mayHoldSession // of an earlier host, and not seen since
	holdsSession
)

// holds returns what a number holds.
func (c *Counter) holds(number uint64) (holding, slot.Time) {
	if number = c.asReleased(number); number == 0 {
		return holdsNothing, 0
	}
	if c.isPlace(number) {
		return holdsPlace, 0
	}
	switch end, sure := c.pool.Session(slot.SessionID(number)); {
	case end > 0:
		return holdsSession, end
	case !sure && (number >= RoamerBit || c.line.Status(number) == slot.TicketUsed):
		return mayHoldSession, 0
	}
	return holdsNothing, 0
}

// isPlace reports whether a number is that of a ticket which has not been used. One from beyond the
// record holds its place too: see rolledBack.
func (c *Counter) isPlace(number uint64) bool {
	if number >= RoamerBit {
		return c.isReleased(number) && !c.isSpent(number) // its visitor may not have polled since
	}
	return c.places(number) || number >= c.line.End(number) ||
		c.line.Status(number) == slot.TicketProvisional
}

// better returns the number that a person keeps: its own, or the one that the visitor has. The other
// one is given up.
func (c *Counter) better(x *PersonJoin, was persons.Hold, m persons.Mark) (uint64, persons.Mark) {
	own, has := was.Number, x.Number
	if !c.ofLine(x.Life) && x.Life != c.nowLife() || !c.theirs(has, x.Key) {
		has = 0
	}
	mine, _ := c.holds(own)
	theirs, _ := c.holds(has)
	switch {
	case mine == holdsNothing && (theirs == holdsNothing || x.spent):
		return 0, m
	case theirs == holdsNothing || has == own:
		return own, m
	case theirs < mine || theirs == mine && (mine != holdsPlace || !c.earlier(has, own)):
		if theirs == holdsPlace {
			c.leave(has, c.cfg.Boot())
		}
		return own, m
	}
	if mine == holdsPlace {
		c.leave(own, c.cfg.Boot())
	}
	used := x.Until != 0 && (was.Used || theirs >= mayHoldSession)
	return has, c.persons.Set(x.Person, x.hold(has, used), m)
}

// useCode notes that an invitation is used by the ticket that is about to be claimed. After a restart from a
// backup that ticket may not be the one that was noted.
func (c *Counter) useCode(x *PersonJoin, has persons.Hold, m persons.Mark) (persons.Mark, error) {
	mine, _ := c.holds(has.Number)
	switch {
	case has.Number == x.Number && has.Used:
		return m, nil
	case has.Number != x.Number && (x.spent || mine != holdsNothing):
		return m, ErrUsed
	}
	return c.persons.Set(x.Person, x.hold(x.Number, true), m), nil
}

// earlier reports whether a place is before another one. In a prequeue positions of two lines say nothing if
// one of them comes in before the other.
func (c *Counter) earlier(a, b uint64) bool {
	opens := func(number uint64) uint64 {
		return uint64(c.earlyAt(slot.LaneIndex(number))) - 1 // the largest if it does not come in early
	}
	if !c.isReleased(a) && !c.isReleased(b) && opens(a) != opens(b) {
		return opens(a) < opens(b)
	}
	at, aok := c.positionOf(a)
	bt, bok := c.positionOf(b)
	return aok && (!bok || at < bt)
}

// positionOf returns the position of a number. A released one whose visitor has not said since where it
// stands is before all others: an operator has given that place.
func (c *Counter) positionOf(number uint64) (position int64, ok bool) {
	if !c.isReleased(number) {
		return c.line.Position(number)
	}
	if x := c.roamers.of[number|RoamerBit]; x != nil && x.sure {
		return c.roamerPosition(x, c.cfg.Boot()), true
	}
	return 0, true
}

// standing returns the place of a number, or the end of its session. The site vouches for the
// visitor: its ticket needs no cookie that comes back.
func (c *Counter) standing(number uint64) (p PlaceInfo, s slot.ClaimReply) {
	clk := c.cfg.Boot()
	switch has, end := c.holds(number); has {
	case holdsPlace:
		p = c.placeOf(ticketRequest{number: number}, clk)
		if at, ok := slot.FindMoved(c.moved, number&^RoamerBit); ok {
			p.Key = c.moved[at].Key
		}
		return p, s
	case holdsSession:
		s = slot.ClaimReply{ID: slot.SessionID(number), Epoch: c.pool.Record().Name.Epoch, End: end}
	}
	p = PlaceInfo{Number: number, Life: c.lineLife(), Now: c.nowLife(), Status: slot.TicketUsed}
	if s.End == 0 {
		p.UsedUp, p.PollAfter = true, copyPoll
	}
	return p, s
}

// live reports which numbers hold a place or a session, or may do so.
func (c *Counter) live(numbers []uint64) []bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	live := make([]bool, len(numbers))
	for i, n := range numbers {
		has, _ := c.holds(n)
		live[i] = has != holdsNothing || c.unsettled(n)
	}
	return live
}
