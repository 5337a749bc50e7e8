package counter

import (
	"container/heap"
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/slot"
)

// A Place is what a ticket is told.
type Place struct {
	Status    slot.TicketStatus
	Number    uint64
	Life      uint64 // of the record that issued the number
	Position  int64  // 1 is next
	Ahead     int64
	Waiting   int64
	Served    uint64 // every ticket below was called
	PollAfter time.Duration
	ETA       ETA
	Held      bool
}

// Join puts a visitor at the end of the line. hold is how long it keeps its
// place after its last poll.
func (c *Counter) Join(ctx context.Context, hold time.Duration) (Place, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	began := c.cfg.Boot()
	for {
		if c.fenced {
			return Place{}, ErrFenced
		}
		if int64(c.line.Len()) >= c.cfg.Line.MaxWaiting {
			return Place{Waiting: int64(c.line.Len())}, ErrFull
		}
		clk := c.cfg.Boot()
		if c.pool.Fresh(clk, fresh) && c.line.End() < c.pool.Record().Next {
			break
		}
		if err := c.waitWrite(ctx, began); err != nil {
			return Place{}, err
		}
	}
	clk := c.cfg.Boot()
	c.awake(clk)
	c.joins.add(clk, 1)
	c.stats.Joined++
	behind := int64(c.line.Len())
	eta := c.fore.eta(behind+1, clk)
	number := c.line.Join(c.pool.Tau(clk), c.interval(eta.Expect), hold)
	c.tellWaiting(clk)
	c.call(clk)
	if behind == 0 { // Run sleeps longer while nobody waits
		c.kick()
	}
	return c.place(number, clk), nil
}

// writeWait is how long a visitor waits for writes at most, for one or, in a rush,
// for several. A store that takes longer has an election, and a visitor must not
// stand before a blank page.
const writeWait = 2 * time.Second

// waitWrite waits, without the lock, for the next confirmed write.
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

// Poll notes that the visitor of a ticket is there and tells where it stands.
// It never claims.
func (c *Counter) Poll(ctx context.Context, number uint64) (Place, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	began := c.cfg.Boot()
	for {
		if c.fenced {
			return Place{}, ErrFenced
		}
		clk := c.cfg.Boot()
		if c.pool.Fresh(clk, fresh) {
			return c.place(number, clk), nil
		}
		if err := c.waitWrite(ctx, began); err != nil {
			return Place{PollAfter: c.away(number)}, err
		}
	}
}

// away is when a visitor is asked to come again who cannot be heard now: those far
// back as seldom as before, or a crowd would ask a room that is down each second.
// Holds the lock.
func (c *Counter) away(number uint64) time.Duration {
	d := c.line.Given(number)
	return d + time.Duration(float64(d)*0.2*(2*rand.Float64()-1))
}

// place marks the ticket as seen and says where it stands. Holds the lock.
func (c *Counter) place(number uint64, clk time.Duration) Place {
	c.awake(clk)
	c.polls.add(clk, 1)
	p := Place{
		Number: number, Life: c.pool.Record().Name.Life,
		Waiting: int64(c.line.Len()), Served: c.line.Frontier(), Held: c.held,
	}
	if number >= c.line.End() {
		c.rolledBack(number, clk)
	}
	pos, ok := c.line.Position(number)
	if !ok {
		p.Status = c.line.Status(number)
		return p
	}
	p.Position, p.Ahead = pos, pos-1
	p.ETA = c.fore.eta(pos, clk)
	p.PollAfter = c.pollAfter(p.ETA, clk)
	p.Status = c.line.Seen(number, c.pool.Tau(clk), p.PollAfter)
	// A late one is back and next in the order. Any other may be the first who is
	// there while slots are free.
	if p.Status == slot.TicketLate || p.Status == slot.TicketWaiting && c.nobody {
		c.call(clk)
		p.Status = c.line.Status(number)
	}
	if p.Status == slot.TicketCalled {
		c.tell(&p, clk)
	}
	return p
}

// rolledBack acts on a sealed ticket of this life whose number was never issued:
// the record is older than what was told. Its visitor keeps the place, and nobody
// new is let in until whoever may be inside unknown to us has spoken or left.
// Holds the lock.
func (c *Counter) rolledBack(number uint64, clk time.Duration) {
	if number-c.line.End() > mostExtend {
		return
	}
	c.quarantine(clk)
	c.line.Extend(number+1, c.pool.Tau(clk), c.cfg.Line.Hold)
	c.kick()
}

// quarantine lets nobody new in for a while: the record is older than what was told.
// Holds the lock.
func (c *Counter) quarantine(clk time.Duration) {
	c.cfg.Log.Error("record is older than what was told: nobody new is let in for a while",
		"room", c.cfg.Room, "for", c.pool.Quarantine(clk).Round(time.Second))
}

// Suspect tells of a pass that says more than any could if the record were whole.
// Passes like it are not honoured; once nobody new is let in before those have
// spoken or left who may be inside unknown to us.
func (c *Counter) Suspect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fenced || c.suspected {
		return
	}
	c.suspected = true
	c.quarantine(c.cfg.Boot())
	c.kick()
}

// mostExtend bounds how many places a ticket from beyond the record may make.
const mostExtend = 1 << 24

// A Trace is where a ticket stands, for operators.
type Trace struct {
	Status   slot.TicketStatus
	Place    bool // it holds one: Silent and Kept are known
	Position int64
	Silent   time.Duration // since its last poll
	Kept     time.Duration // it keeps its place for so long, if it stays silent
	Left     time.Duration // of its stay, at least
	ETA      ETA
}

// ErrNoTicket: no such number was issued.
var ErrNoTicket = errors.New("no such ticket")

// Trace finds a ticket and changes nothing. find gives its number in this life.
func (c *Counter) Trace(find func(life uint64) (uint64, bool)) (t Trace, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	number, ok := find(c.pool.Record().Name.Life)
	if !ok || number == 0 || number >= c.line.End() {
		return t, ErrNoTicket
	}
	clk := c.cfg.Boot()
	now := c.pool.Tau(clk)
	t.Status = c.line.Status(number)
	t.Silent, t.Kept, t.Place = c.line.Silence(number, now)
	if t.Position, ok = c.line.Position(number); ok {
		t.ETA = c.fore.eta(t.Position, clk)
	}
	t.Left = max(0, c.pool.EndOf(slot.StayID(number)).Sub(now))
	return t, nil
}

// tell says to a called ticket that it is its turn, unless this second has had
// its share of admissions: then in a moment, which is kept for it. Its slot is
// reserved either way.
func (c *Counter) tell(p *Place, clk time.Duration) {
	p.ETA = ETA{Known: true, Exact: true}
	x := c.called.at[p.Number]
	if !x.told {
		x.told, x.due = true, c.pace.admit(clk, c.called.ahead(x, clk))
		c.called.at[p.Number] = x
	}
	if wait := x.due - clk; wait > 0 {
		p.Status, p.ETA.Expect, p.PollAfter = slot.TicketWaiting, wait, wait+2*time.Millisecond
	}
}

// interval is how often a visitor with this expected wait is asked to poll:
// clamp(ETA/8, PollMin, PollMax), away from the head up to 120 s while this
// worker gets more than 5,000 polls a second.
func (c *Counter) interval(eta time.Duration) time.Duration {
	d := min(max(eta/8, c.cfg.Line.PollMin), c.cfg.Line.PollMax)
	const busy, most = 5000, 120 * time.Second
	if load := c.polls.perSecond(c.cfg.Boot()); load > busy && eta > 30*time.Second {
		d = min(time.Duration(float64(d)*load/busy), max(most, d))
	}
	return d
}

// pollAfter is the interval of the next poll. Close to the head the visitor is
// told the very moment its turn should come, so that the slot is not empty long
// and the spread holds where the visitors arrive; elsewhere jitter keeps the
// polls of many apart.
func (c *Counter) pollAfter(eta ETA, clk time.Duration) time.Duration {
	d := c.interval(eta.Expect)
	if eta.Exact && eta.Expect < 2*c.cfg.Line.PollMin+d {
		return max(eta.Expect, 20*time.Millisecond) + 10*time.Millisecond
	}
	if !eta.Known {
		d = c.cfg.Line.PollMin
		if c.line.Len() > 100 { // nothing is known: do not let a crowd ask each second
			d = max(d, 5*time.Second)
		}
	}
	jitter := time.Duration(float64(d) * 0.2 * (2*rand.Float64() - 1))
	if d <= c.cfg.Line.PollMin {
		jitter = -time.Duration(float64(d) * 0.2 * rand.Float64()) // near the head: rather early
	}
	return d + jitter
}

// Claim turns a called ticket into a stay; it blocks until that is written.
// hard is the longest the stay may last, 0 without end. A ticket that was
// claimed a moment ago gets the same stay again.
func (c *Counter) Claim(
	ctx context.Context, number uint64, hard time.Duration,
) (slot.ClaimReply, error) {
	c.mu.Lock()
	if c.fenced {
		c.mu.Unlock()
		return slot.ClaimReply{}, ErrFenced
	}
	id := slot.StayID(number)
	ch := make(chan slot.ClaimReply, 1)
	clk := c.cfg.Boot()
	_, again := c.pool.ClaimedBefore(id)
	switch {
	case again, len(c.claims[id]) > 0: // a second tab, or the answer was lost
		if again {
			c.pool.Claim(id, hard, true)
		}
	case !c.line.Use(number):
		c.mu.Unlock()
		return slot.ClaimReply{}, ErrNotCalled
	default:
		at := c.called.take(number)
		c.stats.CallEmpty += clk - at
		c.pool.Claim(id, hard, false)
		c.tellWaiting(clk)
	}
	c.claims[id] = append(c.claims[id], ch)
	c.mu.Unlock()
	c.kick()
	select {
	case r, ok := <-ch:
		if !ok {
			return r, ErrFenced
		}
		return r, nil
	case <-ctx.Done():
		return slot.ClaimReply{}, ctx.Err()
	}
}

// Leave gives up a place.
func (c *Counter) Leave(number uint64) {
	c.mu.Lock()
	clk := c.cfg.Boot()
	if c.line.Leave(number) == slot.TicketCalled {
		c.called.take(number)
		c.pool.Uncall()
	}
	c.tellWaiting(clk)
	c.mu.Unlock()
	c.kick()
}

// call calls the next while slots are free and due. Holds the lock.
func (c *Counter) call(clk time.Duration) {
	for c.mayCall(clk) && c.pool.FreeNow(clk) > 0 && c.pace.due(clk) {
		before := c.line.Late()
		number, ok := c.line.Call(c.pool.Tau(clk))
		c.skips.add(clk, float64(max(0, c.line.Late()-before)))
		if c.nobody = !ok; !ok {
			break
		}
		if !c.pool.Call(clk) {
			c.line.Lapse(number, c.pool.Tau(clk))
			break
		}
		c.stats.Called++
		c.left.add(clk, 1)
		c.pace.called(clk)
		c.called.add(number, clk, clk+c.callHold(number))
	}
	c.tellWaiting(clk)
}

// callHold is how long a called slot stays reserved: long enough for a visitor
// who comes when it was told to, and one poll may be lost.
func (c *Counter) callHold(number uint64) time.Duration {
	if c.cfg.Line.CallHold > 0 {
		return c.cfg.Line.CallHold
	}
	return max(5*time.Second, 2*c.line.Given(number))
}

// lapse takes back calls that nobody claimed, and forgets places whose hold is
// over. Holds the lock.
func (c *Counter) lapse(clk time.Duration) {
	for {
		number, ok := c.called.lapsed(clk)
		if !ok {
			break
		}
		c.stats.Lapsed++
		c.pool.Uncall()
		c.line.Lapse(number, c.pool.Tau(clk))
	}
	if clk-c.lastGone >= 100*time.Millisecond {
		c.lastGone = clk
		if c.line.Expire(c.pool.Tau(clk), lineSweep) > 0 {
			c.tellWaiting(clk)
		}
	}
}

// calls are the called tickets: a heap by when they lapse, and the last few in
// the order of their calls.
type calls struct {
	heap   []call // lapsed at the top; may hold some that were taken
	at     map[uint64]call
	recent []call
}

type call struct {
	number    uint64
	at, until time.Duration
	told      bool          // the visitor has asked since, and
	due       time.Duration // may come in from now on
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

// aheadWithin and aheadMost bound which earlier calls a second keeps room for:
// those whose visitors are likely to ask any moment. Chosen: an interval and a
// bit, and what a poll may cost.
const (
	aheadWithin = 1200 * time.Millisecond
	aheadMost   = 32
)

// ahead is how many lower tickets were called a moment ago and have not asked
// since: they come in first, also when the second is nearly full.
func (c *calls) ahead(x call, clk time.Duration) (n int) {
	for i := len(c.recent) - 1; i >= max(0, len(c.recent)-aheadMost); i-- {
		y := c.recent[i]
		if clk-y.at > aheadWithin {
			break
		}
		if live, ok := c.at[y.number]; ok && !live.told && y.number < x.number {
			n++
		}
	}
	return n
}

// take removes a call and returns when it was made.
func (c *calls) take(number uint64) time.Duration {
	x := c.at[number]
	delete(c.at, number)
	return x.at
}

// lapsed removes and returns a call whose hold is over.
func (c *calls) lapsed(clk time.Duration) (uint64, bool) {
	for len(c.heap) > 0 {
		x := c.heap[0]
		now, live := c.at[x.number]
		live = live && now.at == x.at
		if live && clk < x.until {
			return 0, false
		}
		heap.Pop(c)
		if live {
			delete(c.at, x.number)
			return x.number, true
		}
	}
	return 0, false
}

// next is when the next call may lapse; far away if there is none.
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
