package counter

import (
	"math"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// lapLag is how much longer than a window a slot of the window is in use: its end is rounded up to
// a bucket, and its call is claimed a moment later. Measured.
const lapLag = 500 * time.Millisecond

// update reads the newest confirmed record. The caller holds the counter's lock.
func (f *forecast) update(c *desk, clk time.Duration) {
	shut := c.shut()
	if f.clk > 0 && clk-f.clk < 50*time.Millisecond && f.shut == shut {
		return
	}
	r := c.pool.Record()
	now := c.pool.CounterTime(clk)
	f.clk, f.shut, f.below = clk, shut, r.Parent != nil
	f.free = [2]int64{c.pool.FreeOf(0) - c.pool.Called(), c.pool.FreeOf(1) - c.pool.Called()}
	f.window, f.step, f.callAt = c.cfg.New.Per, c.pace.step, c.callAt(clk)
	f.from = max(c.tookAt+headPoll, clk+c.pool.Quiet(clk))
	f.cum, f.total = f.cum[:0], 0
	f.scale(c)
	f.release(max(0, f.free[1]), max(0, f.callAt-clk))
	short := max(0, -f.free[1]) // already called: they take the first releases
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

// scale treats a counter below Anywhere as a room of its own. Its record contains only the ends of
// the sessions in this data center; the sessions elsewhere are assumed to end alike. So scale
// reduces the limits and the pace to this data center's share of the open sessions, and it gives
// this room the same share of all places before a visitor, including places in other data centers.
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

// fewInside is the number of open sessions below which they do not show when the others end.
// Chosen.
const fewInside = 5

// inOrder converts position k here to the position among the visitors for which slots return here.
func (f *forecast) inOrder(k int64) int64 {
	if f.ahead == 0 {
		return k
	}
	return max(1, int64(math.Round(float64(k)*f.ahead)))
}

// measure computes how fast slots at once become free. While visitors wait for them, every slot
// that becomes free is called, so the rate of calls equals the rate of departures.
func (f *forecast) measure(c *desk, clk time.Duration) {
	// Calls from before anybody had to wait do not show how fast slots become free.
	calls, seconds := c.left.over(clk, min(30, int64((clk-c.linedUp)/time.Second)))
	// Until it is measured: each visitor stays a whole session.
	assumed := float64(c.cfg.Active.N) / c.cfg.Active.Per.Seconds()
	if f.below { // its share is that of the visitors that wait here
		n := float64(c.line.Len())
		assumed = min(assumed, float64(c.cfg.New.N)/c.cfg.New.Per.Seconds()) *
			max(1, n) / max(1, n+float64(c.elsewhere.Waiting))
	}
	if c.cfg.Previous.Leave > 0 { // measured by the previous host
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

// etaOf forecasts the wait of a ticket at position k. Doubtful tickets ahead of it delay it by no
// more than the time from the next call until all of them have been skipped.
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

// measured returns how many slots became free per second while visitors waited for them, 0 if
// unknown.
func (f *forecast) measured() float64 {
	if f.sure && (f.free[0] <= 0 || f.below) {
		return f.leave
	}
	return 0
}

// eta forecasts the wait of position k of a line. Called visitors have the first positions.
func (f *forecast) eta(lane int, k int64, clk time.Duration) ETA {
	if f.shut[lane] {
		return ETA{}
	}
	real, since := f.present(lane, k), clk-f.clk
	real = f.inOrder(real)
	win := f.windowDue(real, clk)
	act, back := f.activeSpan(real, win+since)
	d := max(0, win, act.mid-since)
	// Exact must be certain: a visitor that is given a wrong moment polls too late.
	e := ETA{Known: true, Expect: d, Exact: back && !f.below && k == real && k <= f.free[0]}
	// For the window all is known except no-shows and the polls of the visitors ahead.
	low, high := win*85/100-2*time.Second, win*112/100+4*time.Second
	if !back {
		low, high = max(low, act.low-since), max(high, act.high-since)
	}
	e.Low, e.High = min(max(0, low), d), max(high, d)
	return e
}

// soon returns when a poll at position k may first be useful: its wait at the current rate of
// calls, which may be much shorter than the record suggests. It returns 0 if nothing is known.
func (f *forecast) soon(lane int, k int64, clk time.Duration) time.Duration {
	if f.shut[lane] {
		return 0
	}
	real := f.present(lane, k)
	return max(0, f.windowDue(real, clk), f.activeAt(real)-(clk-f.clk))
}

// present returns how many of the first k tickets of a line are present to be called. Calls of
// other lines are in a fixed proportion to the calls of this line.
func (f *forecast) present(lane int, k int64) int64 {
	return max(1, int64(float64(k)*(1-f.gone[lane])+0.5))
}

// windowDue returns how long until the k-th next slot of the window is free and its call is due.
func (f *forecast) windowDue(k int64, clk time.Duration) time.Duration {
	win := f.windowAt(k) - (clk - f.clk)
	if f.below && f.ahead == 0 { // the window's slots return to Anywhere
		win = 0
	}
	return max(win, f.from-clk)
}

// activeSpan returns the range of times at which the k-th next slot at once returns. back reports
// that it has returned when its call is due.
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

// release adds n slots that become free after d.
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

// windowAt returns when the k-th next slot of the window is free and its call is due, from the time
// of the forecast.
func (f *forecast) windowAt(k int64) time.Duration {
	if f.total == 0 {
		return time.Duration(k-1) * f.step
	}
	laps := (k - 1) / f.total
	k -= laps * f.total
	lo, hi := 0, len(f.cum)-1
	for lo < hi { // the release that contains k
		if mid := (lo + hi) / 2; f.cum[mid].sum >= k {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return f.cum[lo].lead + time.Duration(k)*f.step + time.Duration(laps)*(f.window+lapLag)
}

// activeAt returns when the k-th next slot at once should be free, from the rate of calls alone.
func (f *forecast) activeAt(k int64) time.Duration {
	if f.below && f.leave > 0 {
		return time.Duration(float64(k) / f.leave * float64(time.Second))
	}
	if k <= f.free[0] || f.leave <= 0 {
		return 0
	}
	return time.Duration(float64(k-max(0, f.free[0])) / f.leave * float64(time.Second))
}
