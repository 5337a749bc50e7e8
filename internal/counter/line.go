package counter

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"iter"
	"time"

	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/ticket"
)

// PlaceInfo is the answer to a join or a poll.
type PlaceInfo struct {
	Status    slot.TicketStatus
	Number    uint64
	Life      uint64 // of the line that issued the number
	Now       uint64 // life of the counter; 0: the same as Life
	Position  int64  // 1 is next
	Ahead     int64
	Waiting   int64
	Served    uint64 // every lower ticket was called
	PollAfter time.Duration
	ETA       ETA
	Held      bool
	Called    bool // its slot is reserved, but it may have to wait for its second

	ArrivedAt slot.Time // of a join: in Anywhere's time; 0 with one data center

	Moved bool // to another device: the caller's ticket is not valid any more

	// UsedUp means that the ticket was claimed a moment ago and its pass has come back. Another
	// request with the ticket then comes from a copy, or from before the browser had the pass. The
	// answer sets no cookie, because the cookie would replace the pass. The visitor polls again
	// after PollAfter.
	UsedUp bool
}

// Notice returns why a visitor with a ticket or a pass has lost its position: a word for apps, and
// a sentence. over is what the visitor had when it joined just now: a ticket, a pass or nothing.
func (p *PlaceInfo) Notice(over ticket.Kind) (word, sentence string) {
	switch {
	case p.UsedUp:
		return "ticket_used", "This ticket has just been used. If that was in another browser, you will join the end of the line."
	case over == ticket.Pass:
		return "session_over", "Your visit has ended. You have joined the end of the line."
	case over == ticket.Ticket:
		return "ticket_over", "The ticket of this browser is over: it was used, perhaps in another browser, or " +
			"nothing was heard from here for too long. You have joined the end of the line."
	}
	return "", ""
}

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
	began := first
	for {
		if c.gone() {
			return PlaceInfo{}, ErrFenced
		}
		if int64(c.line.Len()) >= c.cfg.Line.MaxWaiting {
			return PlaceInfo{Waiting: int64(c.line.Len())}, ErrFull
		}
		clk := c.cfg.Boot()
		c.openLane(lane, clk)
		in := c.line.Lane(lane)
		if c.line.Line(in).Provisional() >= mostProvisional {
			return PlaceInfo{Waiting: int64(c.line.Len())}, ErrFull
		}
		if clk >= c.issueAt && c.pool.Fresh(clk, fresh) && c.line.Line(in).End() < c.next(in) &&
			!c.drawing() {
			break
		}
		if clk < c.issueAt {
			if err := c.waitIssue(ctx, c.issueAt-clk); err != nil {
				return PlaceInfo{}, err
			}
			began = c.cfg.Boot()
			continue
		}
		if err := c.waitWrite(ctx, began); err != nil {
			return PlaceInfo{}, err
		}
	}
	clk := c.cfg.Boot()
	return c.join(clk, c.line.Lane(lane), hold, waited+clk-first), nil
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

// writeWait is how long a visitor waits for writes at most: for one, or under load for several. A
// store that takes longer is electing a leader, and the visitor must not see a blank page for that
// long.
const writeWait = 2 * time.Second

// waitWrite waits, without the lock, for the next confirmed write, and at most until writeWait
// after began.
func (c *Counter) waitWrite(ctx context.Context, began time.Duration) error {
	left := began + writeWait - c.cfg.Boot()
	if left <= 0 {
		return ErrSlow
	}
	ctx, stop := context.WithTimeoutCause(ctx, left, ErrSlow)
	defer stop()
	return c.awaitWrite(ctx)
}

// awaitWrite waits, without the lock, for the next confirmed write.
func (c *Counter) awaitWrite(ctx context.Context) error {
	if c.fenced {
		return ErrFenced
	}
	if c.broken > 0 {
		return ErrSlow
	}
	if c.written == nil {
		c.written = make(chan struct{})
	}
	ch := c.written
	c.mu.Unlock()
	defer c.mu.Lock()
	c.kick()
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Poll notes that the visitor of a ticket is present, and returns its place. It never claims. A
// ticket of another life than the record's is unknown. key is the key of the device, 0 for the
// device that joined.
func (c *Counter) Poll(ctx context.Context, life, number, key uint64) (PlaceInfo, error) {
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
		clk, theirs := c.cfg.Boot(), c.theirs(number, key)
		if c.pool.Fresh(clk, fresh) && !c.drawing() {
			if theirs {
				p := c.place(number, clk)
				if p.Status == slot.TicketUsed && !c.claimed(&p) {
					p.Status = slot.TicketGone
				}
				return p, nil
			} else if !c.moving(number) {
				return PlaceInfo{Number: number, Life: life, Status: slot.TicketGone, Moved: true}, nil
			}
		}
		if theirs {
			c.spoke(number, clk)
		}
		if err := c.waitWrite(ctx, began); err != nil {
			if theirs {
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

// ofLine reports whether tickets of a life belong to this line. The line outlives the loans of its
// counter.
func (c *desk) ofLine(life uint64) bool { return life == c.lineLife() }

// lineLife returns the life that tickets carry. nowLife returns the life of the passes that they
// become, 0 if it is the same.
func (c *desk) lineLife() uint64 { return cmp.Or(c.pool.Record().Before, c.pool.Record().Name.Life) }

func (c *desk) nowLife() uint64 {
	if r := c.pool.Record(); r.Before != 0 {
		return r.Name.Life
	}
	return 0
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

// mostExtend limits how many places a ticket from beyond the record can create.
const mostExtend = 1 << 24

// TicketTrace is the state of a ticket, for operators.
type TicketTrace struct {
	Status   slot.TicketStatus
	Place    bool // it holds a place: Silent and Kept are known
	Position int64
	Silent   time.Duration // since its last poll
	Kept     time.Duration // how much longer it keeps its place without a poll
	Left     time.Duration // of its session, at least
	ETA      ETA
	Lane     string // lane in which it waits, "" for the ordinary line
}

// ErrNoTicket reports that no such number was issued.
var ErrNoTicket = errors.New("no such ticket")

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
	t.Status = c.line.Status(number)
	t.Silent, t.Kept, t.Place = c.line.SilentFor(number, now)
	if t.Position, ok = c.line.Position(number); ok {
		if t.ETA = c.etaOf(number, t.Position, clk); c.cfg.RandomOrder {
			t.ETA = c.drawETA(number, clk)
		}
	}
	t.Left = max(0, c.pool.EndOf(slot.SessionID(number)).Sub(now))
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

// calls holds the called tickets: a heap by the time when they lapse, and the latest ones in the
// order of their calls.
type calls struct {
	heap   []call // the first to lapse is at the top; may contain taken calls
	at     map[uint64]call
	recent []call
}

type call struct {
	number    uint64
	at, until time.Duration
	told      bool          // the visitor has polled since the call
	due       time.Duration // when it may come in
	invited   bool          // it has polled since due, so it knows that it may come in
}

// Len, Less, Swap, Push and Pop make calls a heap.Interface.
func (c *calls) Len() int           { return len(c.heap) }
func (c *calls) Less(i, j int) bool { return c.heap[i].until < c.heap[j].until }
func (c *calls) Swap(i, j int)      { c.heap[i], c.heap[j] = c.heap[j], c.heap[i] }

// Push appends a call.
func (c *calls) Push(x any) { c.heap = append(c.heap, x.(call)) }

// Pop removes the last call.
func (c *calls) Pop() any {
	x := c.heap[len(c.heap)-1]
	c.heap = c.heap[:len(c.heap)-1]
	return x
}

func (c *calls) add(number uint64, at, until time.Duration) {
	if c.at == nil {
		c.at = map[uint64]call{}
	}
	x := call{number: number, at: at, until: until}
	c.at[number] = x
	heap.Push(c, x)
	if len(c.recent) >= 2*aheadMost {
		c.recent = append(c.recent[:0], c.recent[aheadMost:]...)
	}
	c.recent = append(c.recent, x)
}

// aheadWithin and aheadMost limit which earlier calls a second keeps room for: calls whose visitors
// are likely to poll at any moment. Chosen: one interval and a bit, and a bound for the cost of a
// poll.
const (
	aheadWithin = 1200 * time.Millisecond
	aheadMost   = 32
)

// change sets a new time at which a call lapses.
func (c *calls) change(x call) {
	c.at[x.number] = x
	heap.Push(c, x) // the old entry is skipped later
}

// ahead returns how many lower tickets were called a moment ago and have not polled since. They
// come in first, even when the second is nearly full.
func (c *calls) ahead(x call, clk time.Duration) (n int) {
	for i := len(c.recent) - 1; i >= max(0, len(c.recent)-aheadMost); i-- {
		y := c.recent[i]
		if clk-y.at > aheadWithin {
			break
		}
		if live, ok := c.at[y.number]; ok && !live.told && y.before(x) {
			n++
		}
	}
	return n
}

// before reports whether a call comes first: in one line the lower ticket, between two lines the
// earlier call.
func (c call) before(x call) bool {
	if slot.LaneIndex(c.number) != slot.LaneIndex(x.number) {
		return c.at < x.at
	}
	return c.number < x.number
}

// take removes a call and returns when it was made.
func (c *calls) take(number uint64) time.Duration {
	x := c.at[number]
	delete(c.at, number)
	return x.at
}

// lapsed removes and returns a call that has expired.
func (c *calls) lapsed(clk time.Duration) (call, bool) {
	for len(c.heap) > 0 {
		x := c.heap[0]
		now, live := c.at[x.number]
		live = live && now.at == x.at && now.until == x.until
		if live && clk < x.until {
			return call{}, false
		}
		heap.Pop(c)
		if live {
			delete(c.at, x.number)
			return now, true
		}
	}
	return call{}, false
}

// next returns when the next call may lapse, a time far away if there is none.
func (c *calls) next() time.Duration {
	if len(c.heap) == 0 {
		return 1 << 62
	}
	return c.heap[0].until
}

func (c *calls) all() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for n := range c.at {
			if !yield(n) {
				return
			}
		}
	}
}
