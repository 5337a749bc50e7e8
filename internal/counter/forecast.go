package counter

import (
	"math"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// ETA is the expected wait of one position, from now.
type ETA struct {
	Known     bool
	Exact     bool // decided by slots whose time is known to the moment
	Expect    time.Duration
	Low, High time.Duration // the honest range
}

// forecast says when the k-th next call is due. Slots per window come back at
// times that stand in the record. When slots at once come back an outlook says;
// below Anywhere they come from there, and only the rate is known.
type forecast struct {
	clk    time.Duration // when it was made
	free   [2]int64      // slots free now, calls already taken off
	cum    []release     // the window's releases
	total  int64         // of them
	window time.Duration
	step   time.Duration
	out    outlook // of slots at once
	callAt time.Duration
	from   time.Duration              // nobody is called before
	leave  float64                    // slots at once that come free a second, measured or assumed
	sure   bool                       // leave was measured over a while
	gone   [1 + slot.MaxLanes]float64 // share of those ahead in each line who turn out to be absent
	held   bool
	below  bool    // slots come from Anywhere, in the order of all data centres
	ahead  float64 // below: of those here, one stands for so many in the order; 0: nothing is known
}

// release is the slots that come free at one moment. Calls are spaced, so the
// k-th is at the latest of: each earlier release, and a step for each slot
// since its first. lead is the greatest of these up to here, less k steps.
type release struct {
	sum  int64 // slots free by then, those free now included
	lead time.Duration
}

// lapLag is how much longer than a window a slot of it is away: its end is
// rounded up to a bucket and its call is claimed a moment after. Measured.
const lapLag = 500 * time.Millisecond

// update takes in the newest confirmed record. Holds the counter's lock.
func (f *forecast) update(c *desk, clk time.Duration) {
	if f.clk > 0 && clk-f.clk < 50*time.Millisecond && f.held == c.held {
		return
	}
	r := c.pool.Record()
	now := c.pool.CounterTime(clk)
	f.clk, f.held, f.below = clk, c.held, r.Parent != nil
	f.free = [2]int64{c.pool.FreeOf(0) - c.pool.Called(), c.pool.FreeOf(1) - c.pool.Called()}
	f.window, f.step, f.callAt = c.cfg.New.Per, c.pace.step, c.callAt(clk)
	f.from = max(c.tookAt+headPoll, clk+c.pool.Quiet(clk))
	f.cum, f.total = f.cum[:0], 0
	f.scale(c)
	f.release(max(0, f.free[1]), max(0, f.callAt-clk))
	short := max(0, -f.free[1]) // called already: the first releases are theirs
	for _, e := range r.Limits[1].Ends.All() {
		took := min(short, e.N)
		short -= took
		f.release(e.N-took, max(0, e.End.Sub(now), f.callAt-clk))
	}
	f.measure(c, clk)
	if !f.below || f.ahead > 0 {
		f.out.update(c, clk, f.free[0], f.step)
	}
}

// Others are those who wait, are inside and are new in other data centers.
type Others struct{ Waiting, Active, New int64 }

// scale makes of a counter below Anywhere a room of its own. Its record knows when the sessions of those
// inside here end; the others' end alike. So the room is as large as its part of those inside, slots
// come to it at that part of the pace, and of the places before a visitor, those in other data centers
// included, it gets that part.
func (f *forecast) scale(c *desk) {
	f.ahead = 0
	r := c.pool.Record()
	here, waiting := r.Limits[0].Ends.Len(), float64(c.line.Len())
	if !f.below || here < fewInside || waiting == 0 {
		return
	}
	part := float64(here) / float64(here+c.elsewhere.Active)
	f.ahead = part * (waiting + float64(c.elsewhere.Waiting)) / waiting
	f.step = time.Duration(float64(f.step) / part)
	called := c.pool.Called()
	f.free[0] = int64(part*float64(c.cfg.Active.N)) - here - called
	f.free[1] = int64(part*float64(c.cfg.New.N)) - r.Limits[1].Ends.Len() - called
}

// fewInside say nothing of when the others leave. Chosen.
const fewInside = 5

// inOrder is the place among those for whom slots come back here that stands for place k.
func (f *forecast) inOrder(k int64) int64 {
	if f.ahead == 0 {
		return k
	}
	return max(1, int64(math.Round(float64(k)*f.ahead)))
}

// measure learns how fast slots at once come free. While they are what people
// wait for, every slot that comes free is called, so the rate of calls is the
// rate of departures.
func (f *forecast) measure(c *desk, clk time.Duration) {
	// What was called before anybody had to wait says nothing of how fast slots come free.
	calls, seconds := c.left.over(clk, min(30, int64((clk-c.linedUp)/time.Second)))
	// Until something was measured: everyone stays a whole session.
	assumed := float64(c.cfg.Active.N) / c.cfg.Active.Per.Seconds()
	if f.below { // the part of it that those who wait here have in all who wait
		n := float64(c.line.Len())
		assumed = min(assumed, float64(c.cfg.New.N)/c.cfg.New.Per.Seconds()) *
			max(1, n) / max(1, n+float64(c.elsewhere.Waiting))
	}
	if c.cfg.Previous.Leave > 0 { // the host before has measured it
		assumed = c.cfg.Previous.Leave
	}
	f.sure = seconds >= 5 && calls > 0
	f.leave = assumed
	if f.sure && (f.free[0] <= 0 || f.below) {
		f.leave = calls
	}
	for i := range f.gone {
		skips, _ := c.laned[i].skips.over(clk, 60)
		calls, _ := c.laned[i].calls.over(clk, 60)
		if f.gone[i] = 0; skips > 0 {
			f.gone[i] = min(0.9, skips/(skips+calls))
		}
	}
}

// etaOf forecasts the wait of a ticket at position k. Those ahead of it that are doubtful delay
// it by no more than the time from the next call until all of them are passed over.
func (c *desk) etaOf(number uint64, k int64, clk time.Duration) ETA {
	lane := slot.LaneIndex(number)
	e := c.fore.eta(lane, k, clk)
	doubted, present := c.line.Doubtful(number, c.pool.CounterTime(clk))
	if doubted == 0 || !e.Known {
		return e
	}
	sure := c.fore.eta(lane, k-doubted, clk)
	delay := max(0, present-c.fore.eta(lane, c.pool.Called()+1, clk).Expect)
	if sure.Expect+delay < e.Expect {
		sure.Expect += delay
		sure.High, sure.Exact = max(sure.High+delay, sure.Expect), false
		return sure
	}
	return e
}

// measured is how many slots came free a second while people waited for them, 0 if that is not known.
func (f *forecast) measured() float64 {
	if f.sure && (f.free[0] <= 0 || f.below) {
		return f.leave
	}
	return 0
}

// eta forecasts the wait of position k of a line: those that are called have the first ones.
func (f *forecast) eta(lane int, k int64, clk time.Duration) ETA {
	if f.held {
		return ETA{}
	}
	real, since := f.present(lane, k), clk-f.clk
	real = f.inOrder(real)
	win := f.windowDue(real, clk)
	act, back := f.activeSpan(real, win+since)
	d := max(0, win, act.mid-since)
	// Who is told a moment that is not sure, and comes a moment later, is late.
	e := ETA{Known: true, Expect: d, Exact: back && !f.below && k == real && k <= f.free[0]}
	// Of the window all is known but no-shows and the polls of those ahead.
	low, high := win*85/100-2*time.Second, win*112/100+4*time.Second
	if !back {
		low, high = max(low, act.low-since), max(high, act.high-since)
	}
	e.Low, e.High = min(max(0, low), d), max(high, d)
	return e
}

// soon is how soon position k may be worth a poll: its wait at the rate of calls, which may
// be much less than what the record promises; 0 if nothing is known.
func (f *forecast) soon(lane int, k int64, clk time.Duration) time.Duration {
	if f.held {
		return 0
	}
	real := f.present(lane, k)
	return max(0, f.windowDue(real, clk), f.activeAt(real)-(clk-f.clk))
}

// present is how many of the first k of a line are there to be called. Calls of other lines among
// them are in a fixed proportion to its own.
func (f *forecast) present(lane int, k int64) int64 {
	return max(1, int64(float64(k)*(1-f.gone[lane])+0.5))
}

// windowDue is how long until the k-th next slot of the window is there and its call due.
func (f *forecast) windowDue(k int64, clk time.Duration) time.Duration {
	win := f.windowAt(k) - (clk - f.clk)
	if f.below && f.ahead == 0 { // the window's slots come back to Anywhere
		win = 0
	}
	return max(win, f.from-clk)
}

// activeSpan is when the k-th next slot at once is back, or that it is when its call is due.
func (f *forecast) activeSpan(k int64, due time.Duration) (s span, back bool) {
	if (!f.below || f.ahead > 0) && f.out.silent+f.out.active+max(0, f.out.free) > 0 {
		return f.out.at(k, due)
	}
	d := f.activeAt(k)
	if f.sure {
		s = span{d*70/100 - 3*time.Second, d, d*150/100 + 6*time.Second}
	} else {
		s = span{d * 20 / 100, d, d*150/100 + 6*time.Second}
	}
	return s, d <= due
}

// release adds n slots that come free after d.
func (f *forecast) release(n int64, d time.Duration) {
	if n <= 0 {
		return
	}
	lead := d - time.Duration(f.total+1)*f.step
	if k := len(f.cum); k > 0 {
		lead = max(lead, f.cum[k-1].lead)
	}
	f.total += n
	f.cum = append(f.cum, release{f.total, lead})
}

// windowAt is when the k-th next slot of the window is there and its call due.
func (f *forecast) windowAt(k int64) time.Duration {
	if f.total == 0 {
		return time.Duration(k-1) * f.step
	}
	laps := (k - 1) / f.total
	k -= laps * f.total
	lo, hi := 0, len(f.cum)-1
	for lo < hi { // the release that brings k
		if mid := (lo + hi) / 2; f.cum[mid].sum >= k {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return f.cum[lo].lead + time.Duration(k)*f.step + time.Duration(laps)*(f.window+lapLag)
}

// activeAt is when the k-th next slot at once should be free, by the rate of calls alone.
func (f *forecast) activeAt(k int64) time.Duration {
	if f.below && f.leave > 0 {
		return time.Duration(float64(k) / f.leave * float64(time.Second))
	}
	if k <= f.free[0] || f.leave <= 0 {
		return 0
	}
	return time.Duration(float64(k-max(0, f.free[0])) / f.leave * float64(time.Second))
}

// State is what the operator is told about a room.
type State struct {
	Active  int64 // slots at once in use, calls not counted
	Waiting int64
	Called  int64
	// Provisional counts the tickets whose cookie has not come back; of a room hosted elsewhere it is 0.
	Provisional int64
	New         int64 // slots of the window in use
	Served      uint64
	Held        bool
	Hosted      bool    // this process hosts the room: its totals count for it
	Rate        float64 // calls a second
	Totals      Totals
	Life        uint64
	Head        ETA               // of the last position
	Age         time.Duration     // since the newest confirmed write was built
	Refused     time.Duration     // the store has refused writes for so long; 0 it does not
	Quiet       time.Duration     // nobody new is let in for so long
	Latency     time.Duration     // of a write, smoothed
	Sites       *DatacentersState // nil with one data centre
	Lends       *AnywhereTotals   // of Anywhere alone
	Draw        *DrawState        // nil: no draw is planned
	Lanes       []LaneState       // nil: it has none
	Lent        *LentState        // nil of Anywhere, and of a record that is damaged
	Bound       Bound             // of Active, and of New
	LastHeard   time.Duration     // since the host has said all this; 0 at the host, below 0: never
	Term        *slot.ParentTerm  // of what Anywhere has lent; nil: none, or it is over
	Leave       float64           // slots that come free a second, measured over a while; 0: not known
}

// Bound is what may be in use now: the limits, or higher ones of before until enough slots
// have come back; with several data centres what this one holds. Seen at one moment with
// what is in use.
type Bound struct {
	Active int64 `json:"total_active_users"`
	New    int64 `json:"new_users_per_minute"`
}

// State reports where the room stands. of is the loan of the worker that asks and
// opened how many of its slots it has used, reported or not.
func (c *Counter) State(of slot.LoanID, opened int64) State {
	sites := c.sitesState()
	c.mu.Lock()
	defer c.mu.Unlock()
	clk := c.cfg.Boot()
	r := c.pool.Record()
	rate, _ := c.left.over(clk, 30)
	n := c.waiting()
	var refused time.Duration
	if c.broken > 0 {
		refused = max(1, clk-c.broken)
	}
	stats := c.stats
	stats.Expired = int64(c.line.Expired())
	return State{
		Active: c.pool.UsedAt(0, clk, of, opened), Waiting: n, Called: c.pool.Called(),
		Provisional: int64(c.line.Provisional()),
		New:         c.pool.UsedAt(1, clk, of, opened),
		Served:      c.served(0), Held: c.held, Hosted: true, Rate: rate, Totals: stats,
		Life: r.Name.Life, Head: c.fore.eta(0, max(1, n), clk),
		Age: c.pool.Age(clk), Refused: refused, Quiet: c.pool.Quiet(clk), Latency: c.latency,
		Sites: sites, Lends: c.lends(), Draw: c.drawState(),
		Lanes: c.laneStates(), Lent: c.lent(),
		Bound: Bound{Active: c.pool.Bound(0), New: c.pool.Bound(1)}, Term: c.term(clk),
		Leave: c.fore.measured(),
	}
}

// epoch is that of the takeover.
func (c *Counter) epoch() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pool.Record().Name.Epoch
}
