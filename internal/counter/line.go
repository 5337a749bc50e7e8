package counter

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// turnSoon is the longest time for which a called visitor is held until its second has room.
// Chosen: one second, and some time in the next. Few visitors are called in one second.
const turnSoon = 1500 * time.Millisecond

// AwaitTurn waits until a called visitor may come in whose second already had its share of
// admissions. It reports whether to poll again. Sending the visitor away would let others pass that
// were called later and polled earlier.
func (p *PlaceInfo) AwaitTurn(ctx context.Context) bool {
	return p.Called && p.Status == slot.TicketWaiting && p.PollAfter <= turnSoon && wait(ctx, p.PollAfter)
}

// Join adds a visitor to the end of the line, or to the end of a lane by its id; an unknown id
// means the ordinary line. hold is how long the visitor keeps its place after its last poll. waited
// is how long it has already waited for its join.
func (c *Counter) Join(ctx context.Context, lane uint64, hold, waited time.Duration) (PlaceInfo, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.cfg.Boot()
	for began := first; ; {
		if ok, err := c.mayIssue(ctx, lane, &began); err != nil {
			return c.notJoined(err), err
		} else if ok {
			break
		}
	}
	clk := c.cfg.Boot()
	return c.join(clk, c.line.Lane(lane), hold, waited+clk-first), nil
}

// notJoined returns what a visitor without a place is told.
func (c *Counter) notJoined(err error) (p PlaceInfo) {
	if errors.Is(err, ErrFull) {
		p.Waiting = int64(c.line.Len())
	}
	return p
}

// mayIssue reports whether a number of a lane can be issued now. If not, it has waited for what was
// missing, without the lock.
func (c *Counter) mayIssue(ctx context.Context, lane uint64, began *time.Duration) (ok bool, err error) {
	if c.gone() {
		return false, ErrFenced
	}
	if int64(c.line.Len()) >= c.cfg.Line.MaxWaiting {
		return false, ErrFull
	}
	clk := c.cfg.Boot()
	c.openLane(lane, clk)
	in := c.line.Lane(lane)
	if in > 0 && c.hasHalf(in) || c.line.Line(in).Provisional() >= mostProvisional {
		return false, ErrFull
	}
	if clk >= c.issueAt && c.pool.Fresh(clk, fresh) && c.line.Line(in).End() < c.next(in) && !c.drawing() {
		return true, nil
	}
	if clk >= c.issueAt {
		return false, c.waitWrite(ctx, *began)
	}
	err = c.waitIssue(ctx, c.issueAt-clk)
	*began = c.cfg.Boot()
	return false, err
}

// hasHalf reports whether the lines in which a place costs nothing have half of max_waiting, and lane is one
// of them: those of networks above join_limit and of unsolved challenges, and the ordinary one where the
// challenge is asked at the claim. The other half is for visitors who prove something: otherwise a program
// that proves nothing could fill the room, and nobody else would get a place.
func (c *desk) hasHalf(lane int) bool {
	n, bounded := 0, false
	for i, x := range c.line.Lanes() {
		free := i == 0 && c.cfg.AtClaim || x.Name == slot.UnsolvedLane || x.Name == slot.NetworkLane().Name
		if line := c.line.Line(i); free && line != nil {
			n, bounded = n+line.Len(), bounded || i == lane
		}
	}
	return bounded && int64(n) >= (c.cfg.Line.MaxWaiting+1)/2
}

// waitIssue waits, without the lock, until this host may issue numbers. Until then the previous
// host may have issued numbers that sort before ours.
func (c *Counter) waitIssue(ctx context.Context, left time.Duration) error {
	c.mu.Unlock()
	defer c.mu.Lock()
	if !wait(ctx, left) {
		return ctx.Err()
	}
	return nil
}

// mostProvisional limits the tickets of a line whose cookie has not come back. Chosen: those of
// 50,000 joins a second, in 5 MB.
const mostProvisional = 500_000

// Poll notes that the visitor of a ticket is present, and returns its place. It never claims. A
// ticket of another life than the record's is unknown. key is the key of the device, 0 for the
// device that joined.
func (c *Counter) Poll(ctx context.Context, life, number, key uint64) (PlaceInfo, error) {
	return c.poll(ctx, ticketRequest{life: life, number: number, key: key})
}

// PollAs is Poll with all that is known of the ticket. While others wait for a call, a provisional ticket
// whose challenge is not solved stays provisional.
func (c *Counter) PollAs(ctx context.Context, x TicketPoll) (PlaceInfo, error) {
	return c.poll(ctx, x.ticket())
}

func (c *Counter) poll(ctx context.Context, x ticketRequest) (PlaceInfo, error) {
	life, number := x.life, x.number
	c.mu.Lock()
	defer c.mu.Unlock()
	began := c.cfg.Boot()
	for {
		if c.gone() {
			return PlaceInfo{}, ErrFenced
		}
		if !c.ofLine(life) {
			return PlaceInfo{Life: c.lineLife()}, nil
		}
		clk, theirs := c.cfg.Boot(), c.theirs(number, x.key)
		if c.pool.Fresh(clk, fresh) && !c.drawing() {
			if theirs {
				p := c.placeOf(x, clk)
				if p.Status == slot.TicketUsed && !c.claimed(&p) {
					p.Status = slot.TicketGone
				}
				return p, nil
			} else if !c.moving(number) {
				return PlaceInfo{Number: number, Life: life, Status: slot.TicketGone, Moved: true}, nil
			}
		}
		speaks := theirs && !x.unproven && number < RoamerBit
		if speaks {
			c.spoke(number, clk)
		}
		if err := c.waitWrite(ctx, began); err != nil {
			if speaks {
				c.spoke(number, c.cfg.Boot())
			}
			return PlaceInfo{PollAfter: c.away(number)}, err
		}
	}
}

// claimed reports whether a ticket was claimed a moment ago. A claim then gets the same session
// again, or the ticket is used up. A ticket below the frontier without a place may instead have
// been silent for longer than its hold: it is never admitted. The caller holds the lock.
func (c *Counter) claimed(p *PlaceInfo) bool {
	id := slot.SessionID(p.Number)
	_, ok := c.pool.ClaimedBefore(id)
	return ok || len(c.claims[id]) > 0 // the write of the claim is in flight
}

// spoke notes that the visitor of a ticket is present, although its place cannot be told now: an
// outage of the store must not make visitors late.
func (c *Counter) spoke(number uint64, clk time.Duration) {
	c.line.Confirm(number, c.pool.CounterTime(clk))
	every := max(c.line.PollInterval(number), writeWait) // an interval may be missing after a takeover
	c.line.Polled(number, c.pool.CounterTime(clk), every)
}

// away returns when a visitor should poll again whose poll cannot be answered now. Visitors far
// back keep their long intervals; otherwise a crowd would poll a failed room every second. The
// caller holds the lock.
func (c *Counter) away(number uint64) time.Duration {
	d := c.line.PollInterval(number)
	return d + time.Duration(float64(d)*0.2*(2*c.random()-1))
}

// ReportSuspectPass handles a pass that cannot exist if the record is complete. Such passes are not
// accepted. Once, admissions of newcomers stop until all unknown sessions have reported or ended.
func (c *Counter) ReportSuspectPass(context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fenced || c.suspected {
		return
	}
	c.suspected = true
	c.quarantine(c.cfg.Boot())
	c.kick()
}

// Trace finds a ticket and changes nothing. find returns the number of the ticket in a life.
func (c *Counter) Trace(
	_ context.Context, find func(life uint64) (uint64, bool),
) (t TicketTrace, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	number, ok := find(c.pool.Record().Name.Life)
	if !ok || number == 0 || number >= c.line.End(number) {
		return t, ErrNoTicket
	}
	clk := c.cfg.Boot()
	now := c.pool.CounterTime(clk)
	t.Number = number
	if c.traceReleased(&t, clk) {
		return t, nil
	}
	t.Status = c.line.Status(number)
	t.Silent, t.Kept, t.Place = c.line.SilentFor(number, now)
	if t.Position, ok = c.line.Position(number); ok {
		if t.ETA = c.etaOf(number, t.Position, clk); c.cfg.RandomOrder {
			t.ETA = c.drawETA(number, clk)
		}
	}
	t.Left = max(0, c.pool.EndOf(slot.SessionID(number)).Sub(now))
	t.Unsolved = c.isUnsolved(number)
	if i := slot.LaneIndex(number); i > 0 {
		t.Lane = cmp.Or(c.line.Lanes()[i].Name, "?")
	}
	return t, nil
}

// Claim turns a called ticket into a session. It blocks until the session is in the record. hard is
// the longest that the session may last, 0 without limit. A ticket that was claimed a moment ago
// gets the same session again, until its pass has come back.
func (c *Counter) Claim(
	ctx context.Context, life, number, key uint64, hard time.Duration,
) (slot.ClaimReply, error) {
	c.mu.Lock()
	if c.gone() {
		c.mu.Unlock()
		return slot.ClaimReply{}, ErrFenced
	}
	if !c.ofLine(life) || !c.theirs(number, key) {
		c.mu.Unlock()
		return slot.ClaimReply{}, ErrNotCalled
	}
	id := slot.SessionID(number)
	ch := make(chan slot.ClaimReply, 1)
	asked := c.cfg.Boot()
	for began := asked; !c.claim(number, asked, hard, len(c.claims[id]) > 0); asked = c.cfg.Boot() {
		err := ErrNotCalled
		if !c.pool.Fresh(c.cfg.Boot(), fresh) { // another host may know better
			if err = c.waitWrite(ctx, began); err == nil {
				continue
			}
		}
		c.mu.Unlock()
		return slot.ClaimReply{}, err
	}
	c.claims[id] = append(c.claims[id], ch)
	c.mu.Unlock()
	c.kick()
	ctx, stop := context.WithTimeoutCause(ctx, writeWait, ErrSlow)
	defer stop()
	select {
	case r, ok := <-ch:
		if !ok {
			return r, ErrFenced
		}
		if c.cfg.Boot()-asked > writeWait { // no answer has been given: return it to the pool
			return slot.ClaimReply{}, ErrSlow
		}
		return r, nil
	case <-ctx.Done():
		return slot.ClaimReply{}, context.Cause(ctx)
	}
}

// SetNetwork notes the network of a visitor who waits, a number that stands for it. The first one counts.
func (c *Counter) SetNetwork(_ context.Context, life, number uint64, network uint32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone() {
		return ErrFenced
	}
	if c.ofLine(life) {
		c.line.SetNetwork(number, network)
	}
	return nil
}

// Leave gives up a place of this line.
func (c *Counter) Leave(_ context.Context, life, number, key uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone() {
		return ErrFenced
	}
	if c.ofLine(life) && c.theirs(number, key) {
		c.leave(number, c.cfg.Boot())
		c.kick()
	}
	return nil
}

// Move moves a place. It blocks until the move is in the record, and a repeated call has the same
// result. It returns ErrNoTicket if the place has moved meanwhile or does not exist any more.
func (c *Counter) Move(ctx context.Context, m Move) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for began := c.cfg.Boot(); ; {
		if c.gone() {
			return ErrFenced
		}
		if clk := c.cfg.Boot(); c.pool.Fresh(clk, fresh) { // otherwise another host may know better
			written, err := c.desk.move(m, clk)
			if written || err != nil {
				return err
			}
		}
		if err := c.waitWrite(ctx, began); err != nil {
			return err
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
