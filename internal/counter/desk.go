package counter

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/seldom"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/ticket"
	"github.com/headgate/headgate/status"
)

// ErrNoTicket reports that no such number was issued.
var ErrNoTicket = errors.New("no such ticket")

// ErrMoved reports that Anywhere now lives in another data center.
var ErrMoved = errors.New("it has moved to another data center")

// Totals are counted since this host started.
type Totals struct {
	Joined, Called, Claimed, Lapsed, Writes int64
	Expired                                 int64         // places whose hold has expired
	Released                                int64         // tickets that an operator has released
	WriteTime                               time.Duration // all writes together
	CallEmpty                               time.Duration // total time that called slots stayed empty
}

// Parameters of the host (docs/protocol.md §5, §8, §12).
const (
	groupGap    = 2 * time.Millisecond // between writes
	fresh       = 2 * time.Second      // issuing a number needs a write no older than this
	idleEnds    = 5 * time.Second      // between writes while sessions are open
	settleGap   = 20 * time.Millisecond
	settleAgain = 50 * time.Millisecond  // before asking again: a report was lost or came a moment too early
	lookAgain   = 100 * time.Millisecond // while all who wait are absent: for the end of a grace
	blockLeast  = 4                      // numbers reserved ahead, at least
	blockMost   = 256                    // at most: after a crash, unused ones delay later tickets
	headPoll    = 2 * time.Second        // two head-poll intervals: no calls after a takeover
	// after a takeover: from then on unpolled numbers count in no position
	hideAfter = 5 * time.Second
	lineSweep = 4096 // holds checked in one pass
	// provisionalSweep limits how many tickets without a cookie lapse in one pass: 200,000 a
	// second.
	provisionalSweep = 20_000
	skipBytes        = 64 << 10        // of the record: late tickets below the frontier
	drawnBytes       = 480 << 10       // the same with random order: half of the most that NATS carries
	storeWait        = 2 * time.Second // timeout of one store operation
	storeRetry       = 250 * time.Millisecond
	issuedSoon       = 250 * time.Millisecond // an issued number is in the record after this time
	lastWrite        = 3 * time.Second        // limit of the last write at a clean stop
	unsureRuns       = 4096                   // of the record: reserved numbers that nobody has polled with
)

// A desk makes the decisions of a host: it has the pool and the line, and it decides who is called
// and when the next call is due. It receives the time as an argument, has no lock and does no I/O.
// A Counter locks it and stores its writes; the simulator runs it in virtual time.
type desk struct {
	cfg         Config
	said        seldom.Lines // lines that another process can cause
	again       func()       // called when a write or a look is due; never blocks
	pool        *slot.Pool
	line        *slot.Lines
	limitRev    uint64
	called      calls
	pace        pace
	struck      map[uint64]int          // how often an invited visitor did not come in, by ticket
	nobody      bool                    // the last call found only absent visitors: the next poll calls
	held        bool                    // no calls and no admissions: queue_all, origin down, not open
	early       []status.EarlyGroup     // the lanes that are called although held is true, if they are Open
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
	atOnce      bool          // a person joins whom no other visitor waits before: no pace
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
	released     []slot.Released // tickets that an operator has released, as in the next write
	releasedAt   time.Duration

	draws  []slot.Draw // as in the next write
	plan   Plan
	planAt time.Duration // since when this plan is valid

	roamers   roamers
	elsewhere Others // the other data centers, as last received

	asked    map[uint64]asking   // by ticket, of visitors who are asked to solve the challenge
	askedAt  time.Duration       // when asked was last cleared of those who left
	idle     time.Duration       // for how long slots have waited because nobody could be called
	idleAt   time.Duration       // when idle was last measured
	unsolved map[uint64]struct{} // tickets that have polled without their solution, for operators
}

// upward is the state of a desk's borrowing. Anywhere and a counter without other data centers
// borrow nothing.
type upward struct {
	at       time.Duration // own clock at the last new Sync
	told     slot.PerLimit // what had been returned at that Sync
	idle     int64         // what was unused at that Sync
	askedAt  time.Duration // own clock at the last recall by Anywhere
	tokens   float64       // Syncs that may be sent at once
	tokensAt time.Duration
	arrived  float64 // new users since the last beat
	ahead    float64 // new users per second, smoothed
	beatAt   time.Duration
	plenty   time.Duration // since when more than enough slots are free; 0: they are not
	traffic  traffic
}

// laneCounts has the counts of a lane since this host took over.
type laneCounts struct {
	joined, called int64
	calls, skips   rate // visitors called, and visitors skipped
}

// A roamer is a visitor of another data center that waits here.
type roamer struct {
	id      uint64
	arrival slot.Time     // in this counter's time
	seen    time.Duration // last poll, own clock
	given   time.Duration // its poll interval
	called  bool
	until   time.Duration // called: its slot is reserved until then
	first   uint64        // of a released ticket: the ordinary number before which it stands
	sure    bool          // first does not change any more
}

// roamers holds the roamers in the order of their arrival, after those that are released tickets.
type roamers struct {
	line []*roamer
	of   map[uint64]*roamer
	used map[uint64]bool // those that were admitted: a ticket admits once
}

// RoamerBit is set in the number of every roamer's session, and in no ticket number.
const RoamerBit = slot.RoamerBit

// IsNewcomer reports whether a session is of a newcomer who needed no ticket, and not of a released one.
func IsNewcomer(id uint64) bool { return id >= RoamerBit && id-RoamerBit >= slot.TicketsEnd() }

// mostUsed limits how many admitted roamers are remembered. Chosen.
const mostUsed = 100_000

// mostRoamers limits the waiting roamers; further ones join the line as newcomers. Chosen: 100 B
// each.
const mostRoamers = 10_000

// drawn returns the draws that have put places in order.
func drawn(all []slot.Draw) []slot.Draw {
	return slices.DeleteFunc(slices.Clone(all), func(d slot.Draw) bool { return d.To == 0 })
}

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

	AsksNetwork bool // SetNetwork may follow
	Asks        bool // the turn comes soon: the challenge has to be solved for it

	Key uint64 // of a person's place: of the device that it has moved to, 0 for none

	// StartsAt is when the group of the ticket comes in, in Unix seconds: earlier than the others. It is 0
	// for a ticket of no such group, and after the start of the event.
	StartsAt int64
}

// HasStarted reports whether the place is of a group that comes in early, and its time has come.
func (p *PlaceInfo) HasStarted(now time.Time) bool { return p.StartsAt > 0 && now.Unix() >= p.StartsAt }

// Notice returns why a visitor with a ticket or a pass has lost its position: a word for apps, and
// a sentence. over is what the visitor had when it joined just now: a ticket, a pass or nothing.
func (p *PlaceInfo) Notice(over ticket.Kind) (word, sentence string) {
	switch {
	case p.UsedUp:
		return "ticket_used", "This ticket has just been used. If that was in another browser, you will join the end of the line."
	case over == ticket.Unsolved:
		return "unsolved", "Your browser did not finish the check that this site asks of newcomers, so you wait in " +
			"a slower line. You keep your place there. With JavaScript and https, a browser does the check by itself."
	case over == ticket.NotYetSolved:
		return "new_challenge", "The check that this site asks of newcomers' browsers was not finished in time. You " +
			"are now at the end of the line, and your browser tries again."
	case over == ticket.Pass:
		return "session_over", "Your visit has ended. You have joined the end of the line."
	case over == ticket.Ticket:
		return "ticket_over", "The ticket of this browser is over: it was used, perhaps in another browser, or " +
			"nothing was heard from here for too long. You have joined the end of the line."
	}
	return "", ""
}

// ETA is the expected wait of one position, from now.
type ETA struct {
	Known     bool
	Exact     bool // decided by slots that return at a known time
	Expect    time.Duration
	Low, High time.Duration // the likely range
}

// Others is the number of visitors that wait, are inside and are new in the other data centers.
type Others struct{ Waiting, Active, New int64 }

// A forecast computes when the k-th next call is due. Slots per window return at times that are in
// the record. For slots at once, an outlook computes the times. Below Anywhere slots come from
// Anywhere, and only their rate is known.
type forecast struct {
	clk    time.Duration // when the forecast was made
	free   [2]int64      // free slots, less those reserved by calls
	cum    []release     // releases of the window
	total  int64         // slots in cum
	window time.Duration
	step   time.Duration
	out    outlook // for slots at once
	callAt time.Duration
	from   time.Duration              // no calls before this time
	shut   [1 + slot.MaxLanes]bool    // by line: nobody is called
	leave  float64                    // slots at once that become free per second, measured or assumed
	sure   bool                       // leave was measured over several seconds
	gone   [1 + slot.MaxLanes]float64 // by line: share of the tickets ahead that turn out to be absent
	below  bool                       // slots come from Anywhere, in the order of all data centers
	ahead  float64                    // below: places in the order per waiting visitor here; 0: unknown
}

// A release is the slots that become free at one moment. Calls are spaced, so the k-th call is due
// at the latest of several times: for each earlier release, its time and one step for each slot
// since its first. lead is the greatest of these times so far, less k steps.
type release struct {
	sum  int64 // slots free by then, including those free now
	lead time.Duration
}

// A Move gives a place to another device. The ticket was valid with the key From and becomes valid
// with the key To.
type Move struct {
	Life, Number uint64
	From, To     uint64 // From is 0 for a place that never moved; To is never 0
}

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
	Unsolved bool   // it has polled without the solution of its challenge
	Released bool   // by an operator
	Number   uint64 // of the ticket; it is not sent
}

// Session returns the ID of the session that a ticket gives.
func (t *TicketTrace) Session() slot.SessionID {
	if t.Released {
		return slot.SessionID(t.Number | RoamerBit)
	}
	return slot.SessionID(t.Number)
}

// Report returns the state of a ticket as operators see it; see explain.
func (t *TicketTrace) Report(nobody string, drawn bool) status.Ticket {
	w := status.Ticket{Lane: t.Lane, Released: t.Released, Position: t.Position, Ahead: max(0, t.Position-1),
		Expected: -1, SilentFor: -1, KeptFor: -1}
	if t.Place {
		w.SilentFor, w.KeptFor = RoundTenths(t.Silent), RoundTenths(t.Kept)
	}
	if t.ETA.Known {
		w.Expected = RoundTenths(t.ETA.Expect)
	}
	if w.Status, w.Reason = t.explain(nobody, drawn); drawn && w.Status == "waiting" {
		w.Position, w.Ahead = 0, 0
	}
	return w
}

// explain returns the status of a ticket and the reason for it. nobody is the reason why there are
// no calls, or "". drawn means that the line has random order.
func (t *TicketTrace) explain(nobody string, drawn bool) (status, why string) {
	at, silent := t.Status, "its visitor asked "+t.Silent.Round(time.Second).String()+" ago"
	if t.Released {
		defer func() { why = "an operator has released it; " + why }()
	}
	if drawn && at == slot.TicketLate {
		at = slot.TicketWaiting
	}
	switch at {
	case slot.TicketWaiting:
		before := fmt.Sprintf("%d people are before it; ", max(0, t.Position-1))
		if drawn {
			before = "who is next is drawn among all who are there; "
		}
		if nobody != "" {
			nobody = "; nobody is called: " + nobody
		}
		if t.Unsolved {
			silent += ", and has not solved its challenge: others go first, or weigh more in the draw"
		}
		return "waiting", before + silent + nobody
	case slot.TicketProvisional:
		if t.Unsolved {
			return "provisional", "its visitor asks, and has not solved its challenge: it holds no place before"
		}
		return "provisional", "the cookie of its visitor has not come back yet, or not with the solution of " +
			"its challenge: it holds no place before"
	case slot.TicketLate:
		if t.Unsolved {
			return "late", "its turn came, and its challenge is not solved: others go first until it is; " + silent
		}
		return "late", "its turn came while its visitor was silent; it is called first when it asks again; " +
			silent
	case slot.TicketCalled:
		return "called", "its turn has come and a slot is reserved; its page goes in by itself; " + silent
	case slot.TicketUsed:
		if t.Left > 0 {
			return "used", "it let its visitor in, who is inside for another " +
				t.Left.Round(time.Second).String() + " at least"
		}
		return "used", "it let its visitor in; the stay has ended"
	}
	switch {
	case t.Released:
		return "provisional", "its visitor does not ask: it holds no place before it does"
	case t.Unsolved:
		return "gone", "its challenge is not solved, and nobody comes in without: its visitor waits until its ticket " +
			"is released"
	}
	return "gone", "its visitor was silent for longer than hold, or gave the place up"
}

// random returns a number in [0, 1), for jitter and random order.
func (c *desk) random() float64 {
	if c.cfg.Random != nil {
		return c.cfg.Random()
	}
	return rand.Float64()
}

// lineLife returns the life that tickets carry. nowLife returns the life of the passes that they
// become, 0 if it is the same.
func (c *desk) lineLife() uint64 { return cmp.Or(c.pool.Record().Before, c.pool.Record().Name.Life) }

func (c *desk) nowLife() uint64 {
	if r := c.pool.Record(); r.Before != 0 {
		return r.Name.Life
	}
	return 0
}

// ofLine reports whether tickets of a life belong to this line. The line outlives the loans of its
// counter.
func (c *desk) ofLine(life uint64) bool { return life == c.lineLife() }

// below reports whether this counter borrows from Anywhere.
func (c *desk) below() bool { return c.pool.Record().Parent != nil }

// waiting returns how many visitors wait, called or not.
func (c *desk) waiting() int64 { return int64(c.line.Len() + len(c.roamers.line)) }

// wait waits for d. It reports whether ctx has not ended.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// calls holds the called tickets: a heap by the time when they lapse, and the latest ones in the
// order of their calls.
type calls struct {
	heap   []call // the first to lapse is at the top; may contain taken calls
	at     map[uint64]call
	recent []call
}

// Len, Less, Swap, Push and Pop make calls a heap.Interface.
func (c *calls) Len() int { return len(c.heap) }

func (c *calls) Less(i, j int) bool { return c.heap[i].until < c.heap[j].until }

func (c *calls) Swap(i, j int) { c.heap[i], c.heap[j] = c.heap[j], c.heap[i] }

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

type call struct {
	number    uint64
	at, until time.Duration
	told      bool          // the visitor has polled since the call
	due       time.Duration // when it may come in
	invited   bool          // it has polled since due, so it knows that it may come in
}

// before reports whether a call comes first: in one line the lower ticket, between two lines the
// earlier call.
func (c call) before(x call) bool {
	if slot.LaneIndex(c.number) != slot.LaneIndex(x.number) {
		return c.at < x.at
	}
	return c.number < x.number
}

// aheadWithin and aheadMost limit which earlier calls a second keeps room for: calls whose visitors
// are likely to poll at any moment. Chosen: one interval and a bit, and a bound for the cost of a
// poll.
const (
	aheadWithin = 1200 * time.Millisecond
	aheadMost   = 32
)

func (r *roamers) add(x *roamer) {
	if r.of == nil {
		r.of = map[uint64]*roamer{}
	}
	r.of[x.id] = x
	i, _ := slices.BinarySearchFunc(r.line, x, func(y, x *roamer) int {
		switch {
		case y.first > 0 || x.first > 0: // the released ones are first, in the order in which they are known
			return cmp.Compare(min(x.first, 1), min(y.first, 1)) - 1
		case y.arrival <= x.arrival: // of equal arrivals, the first one known here is first
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

// isPresent reports whether a roamer is not called and has polled within two of its intervals.
func (x *roamer) isPresent(clk time.Duration) bool { return !x.called && clk-x.seen < 2*x.given }

// there returns the roamers that are present.
func (r *roamers) there(clk time.Duration, most int) (all []*roamer) {
	for _, x := range r.line {
		if len(all) == most {
			break
		}
		if x.isPresent(clk) {
			all = append(all, x)
		}
	}
	return all
}

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

// leastHold is the least time for which a slot is reserved for a visitor that may come in. Chosen:
// one poll may be lost, and the next one arrives.
const leastHold = 5 * time.Second

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

// burst is how far calls may run ahead of their pace while Anywhere lends to the visitors that are
// first. Chosen: it makes up for half a second, and one Sync brings a quarter.
const burst = time.Second
