package counter

import (
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// An outlook forecasts when slots at once return, for a counter that does not borrow from Anywhere.
// The record contains the end of each session if its visitor makes no further request. It does not
// tell which visitors will leave earlier, or stay longer because they request another page. Active
// visitors do both; visitors silent for a while (slot.Idle) do either rarely. The outlook counts
// how often this happens while visitors wait, and simulates the ends in the record forward with
// these rates: see course. It assumes nothing that it has not counted; without counts the range
// covers all that is possible (ADR 0052).
//
// An update reads the buckets of the record once. The simulation runs when the first forecast after
// it is needed, in time that does not depend on the number of visitors inside.
type outlook struct {
	clk     time.Duration   // of the record
	free    int64           // includes called slots: positions count their tickets
	called  int64           // part of free
	absent  float64         // share of calls that nobody claims: their slots come back after leastHold
	ends    []slot.EndCount // of the record; read-only
	now     slot.Time
	session time.Duration
	idle    time.Duration
	step    time.Duration // between calls
	watched time.Duration // how long visitors have been waiting
	active  int64         // inside and seen within idle; silent: all others inside
	silent  int64

	seen    sums
	counts  [5]flow       // in the order of sums.all
	most    float64       // visitors that have stopped, at most; some continue later
	stopped time.Duration // when there were more of them for the last time

	played         bool
	left           bound // rate of explicit leaving per active visitor and second
	leftSilent     bound // the same per silent visitor
	fell           bound // rate of becoming silent per active visitor and second
	sureLeft       bool  // left and leftSilent are known, even if both are 0
	sureFell       bool
	low, mid, high course
}

// sums are counted since the takeover.
type sums struct {
	left, leftSilent, fell    float64
	activeSeconds, silentTime float64
}

func (s *sums) all() [5]float64 {
	return [...]float64{s.left, s.leftSilent, s.fell, s.activeSeconds, s.silentTime}
}

// A bound is a measured rate with its lower and upper limit.
type bound struct{ low, mid, high float64 }

// update reads the newest confirmed record. free is the number of free slots without the called
// ones, and step is the time between calls.
func (o *outlook) update(c *desk, clk time.Duration, free int64, step time.Duration) {
	limit := &c.pool.Record().Limits[0]
	o.absent = c.noShows(clk)
	o.called = c.pool.Called()
	o.free, o.ends, o.now = free+o.called, limit.Ends.All(), c.pool.CounterTime(clk)
	o.session, o.idle, o.step = limit.Per, slot.Idle(limit.Limit), step
	o.watched = clk - c.linedUp
	silent := int64(0)
	for _, e := range o.ends {
		if e.End.Sub(o.now) > o.session-o.idle {
			break
		}
		silent += e.N
	}
	ended, left, leftSilent := c.pool.Ended()
	was := o.seen
	o.seen.left, o.seen.leftSilent = float64(left), float64(leftSilent)
	// A silent session stays silent until its end. So those that became silent are the ones still
	// silent, the ones that have ended and the ones that left while silent. A visitor that requests
	// a page again is subtracted.
	o.seen.fell = float64(silent + ended + leftSilent)
	if n := o.seen.left + o.seen.fell; n > o.most {
		o.most, o.stopped = n, clk
	}
	if o.clk > 0 {
		passed := (clk - o.clk).Seconds()
		o.seen.activeSeconds += float64(o.active) * passed
		o.seen.silentTime += float64(o.silent) * passed
		before := was.all()
		for i, n := range o.seen.all() {
			o.counts[i].add(clk, n-before[i])
		}
	}
	o.clk, o.active, o.silent, o.played = clk, limit.Ends.Len()-silent, silent, false
}

// over returns what was counted in the last while.
func (o *outlook) over(while time.Duration) sums {
	var n [5]float64
	for i := range o.counts {
		n[i] = o.counts[i].over(o.clk, while)
	}
	return sums{n[0], n[1], n[2], n[3], n[4]}
}

// measure computes the rates from what was counted while visitors were waiting: visitors of an
// empty room behave differently from a crowd.
func (o *outlook) measure() {
	while := min(o.watched, flowMost)
	x := o.over(while)
	enough := x.left+x.leftSilent >= fewEvents
	o.sureLeft = enough || o.watched >= o.session
	// A session counts as silent only after idle.
	could := 0.0
	if while > o.idle {
		could = x.activeSeconds * float64(while-o.idle) / float64(while)
	}
	o.fell = boundOf(x.fell, could)
	o.sureFell = enough || could > 0 && x.fell >= fewEvents
	if enough && x.fell < fewEvents { // at most as many as leave explicitly
		o.fell.low, o.fell.high = 0, per(x.left+x.leftSilent, x.activeSeconds)
		if could > 0 {
			o.fell.high = min(o.fell.high, (fewEvents+max(0, x.fell))/could)
		}
	}
	share := o.activeShare(o.fell.mid)
	o.left = boundOf(x.left, x.activeSeconds*share)
	o.leftSilent = boundOf(x.leftSilent, x.silentTime)
	// Recently the rate may have been faster or slower: use the shortest time that shows it.
	for _, lately := range [...]time.Duration{5 * time.Second, 15 * time.Second, time.Minute} {
		if lately >= o.watched {
			break
		}
		x := o.over(lately)
		x.activeSeconds *= share
		if max(x.left, o.left.mid*x.activeSeconds) >= someEvents {
			b := boundOf(x.left, x.activeSeconds)
			o.left.low, o.left.high = min(o.left.low, b.low), max(o.left.high, b.high)
			break
		}
	}
}

// activeShare returns which share of the visitors seen within idle is still active: some have
// already made their last request. The share is at least 5 %. Chosen.
func (o *outlook) activeShare(fell float64) float64 {
	return max(0.05, 1-fell*min(o.idle, o.watched).Seconds())
}

// per returns a rate, 0 if no time has passed.
func per(n, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return n / seconds
}

// boundOf returns the rate of n random events with its limits: 1.5 standard deviations of a Poisson
// count cover seven in eight cases. The lower limit is not 0 if there was any event: that would be
// an endless wait.
func boundOf(n, seconds float64) bound {
	n = max(0, n)
	return bound{
		per(max(n/4, n-1.5*math.Sqrt(n)), seconds), per(n, seconds), per(n+1.5*math.Sqrt(n+1), seconds),
	}
}

// A span is an expected time with its likely range.
type span struct{ low, mid, high time.Duration }

// at returns when the k-th next slot returns. surely reports that it returns before its call is
// due. The span has margins in addition to those of the counts: sessions end up to a bucket later,
// a visitor sees its call when it polls, and visitors differ. Chosen, and measured by
// TestRangesComeTrue.
func (o *outlook) at(k int64, due time.Duration) (s span, surely bool) {
	if !o.played {
		o.measure()
		o.play()
		o.played = true
	}
	if k <= o.free || o.high.of(k, 0) <= due+due/50+o.step { // a course is only approximate
		return s, true
	}
	s.mid, s.high = o.mid.of(k, 0), o.high.of(k, 1)
	s.high += s.high*12/100 + 4*time.Second
	if !o.sureFell && k > o.free+o.silent {
		// Few visitors have been seen to stop: perhaps they continue for as long again. If none has
		// stopped for a whole session, that is likely.
		s.mid += max(0, min(o.watched, o.clk-o.stopped)-o.session)
		s.high += s.high*35/100 + o.watched
	}
	if o.sureLeft {
		s.low = o.low.of(k, -1)
		s.low = max(0, s.low-s.low*15/100-2*time.Second)
	}
	return s, false
}

// play runs three simulations: slots return early, as measured, and late. Where visitors leave
// explicitly, a visitor that becomes silent instead holds its slot longer; where they do not, it
// holds its slot for less time.
func (o *outlook) play() {
	soon, late := o.fell.high, o.fell.low
	if o.left.mid*o.session.Seconds() > 1 {
		soon, late = late, soon
	}
	o.low.play(o, pattern{o.left.high, o.leftSilent.high, soon})
	o.mid.play(o, pattern{o.left.mid, o.leftSilent.mid, o.fell.mid})
	o.high.play(o, pattern{o.left.low, o.leftSilent.low, late})
}

// A flow counts events over the last minute in bins of one second, and over ten minutes in bins of
// ten seconds.
type flow struct{ fine, coarse rate }

const (
	flowUnit = 10
	flowMost = (rateSeconds - 1) * flowUnit * time.Second
)

func (f *flow) add(clk time.Duration, n float64) {
	f.fine.add(clk, n)
	f.coarse.add(clk/flowUnit, n)
}

// over returns the number of events in the last while.
func (f *flow) over(clk, while time.Duration) float64 {
	r, unit := &f.fine, time.Second
	if while >= (rateSeconds-1)*time.Second {
		r, unit, clk = &f.coarse, flowUnit*time.Second, clk/flowUnit
	}
	each, n := r.over(clk, int64(while/unit))
	return each * float64(n)
}

// A course is a forecast of how many waiting visitors are called by which time, if visitors behave
// as a pattern describes. The numbers of visitors are averages and not integers.
type course struct {
	at    []float64 // seconds from the record, ascending
	calls []float64 // called by then
	ended []float64 // slots freed by then through ends in the record
	fell  []float64 // sessions that became silent in the step up to then
	slope float64   // calls per second after the last step
}

// A pattern describes the behavior of visitors as rates per second: of active visitors that leave
// explicitly or become silent, and of silent visitors that leave explicitly.
type pattern struct{ left, leftSilent, fell float64 }

// The steps of a course: the first take half a second, the later ones a fortieth of the time so
// far. A course ends after two sessions, when the visitors that come in now have been replaced
// again. After that it continues at the rate of the second session. If sessions were shortened,
// some earlier ends lie beyond the first session; the course then ends one session after the last
// of them. Chosen: about 200 steps for five minutes, 600 for a month.
const (
	firstStep = 0.5
	stepShare = 0.025
	sessions  = 2.1
)

// play simulates the room forward. While the rate at which visitors become silent is unknown, it
// assumes that visitors inside make no further request, and that called visitors make their last one
// Idle after their first.
func (c *course) play(o *outlook, p pattern) {
	share, stay := o.activeShare(p.fell), 0.0
	p.fell /= share
	if !o.sureFell {
		share, p.fell, stay = 0, 10/o.idle.Seconds(), o.idle.Seconds()
	}
	c.begin(float64(o.free - o.called)) // when the called visitors come in is unknown
	session, free := o.session.Seconds(), float64(o.free)
	active := float64(o.active) * share
	silent := float64(o.silent+o.active) - active
	end, fell, back, t := 0, 0, 0, 0.0
	last := session
	if n := len(o.ends); n > 0 {
		last = max(last, o.ends[n-1].End.Sub(o.now).Seconds())
	}
	for t < last+(sessions-1)*session+stay {
		dt := max(t*stepShare, min(firstStep, session/100))
		t += dt
		ends := 0.0
		for ; end < len(o.ends); end++ { // the end in the record moves when a visitor continues
			left := o.ends[end].End.Sub(o.now).Seconds()
			if left > t {
				break
			}
			n := float64(o.ends[end].N) * math.Exp(-p.leftSilent*max(0, left))
			if left > session-o.idle.Seconds() {
				n *= 1 - share
			}
			ends += n
		}
		lapse := ends
		for ; fell+1 < len(c.at) && c.at[fell+1] <= t-session-stay; fell++ {
			lapse += c.fell[fell+1] * math.Exp(-p.leftSilent*session)
		}
		for ; back+1 < len(c.at) && c.at[back+1] <= t-leastHold.Seconds(); back++ {
			free += (c.calls[back+1] - c.calls[back]) * o.absent
		}
		word := silent * -math.Expm1(-p.leftSilent*dt)
		free += lapse + word + p.left*active*dt
		call := max(0, free)
		if o.step > 0 {
			call = min(call, dt/o.step.Seconds())
		}
		rest, mean := p.stir(active, call*(1-o.absent), dt)
		free += p.left*(mean-active)*dt - call
		silent = max(0, silent+p.fell*mean*dt-lapse-word)
		active = rest
		c.add(t, call, ends, p.fell*mean*dt)
	}
	c.end(t-session-stay, float64(o.active+o.silent)/(100*session))
}

// stir returns how many of the active visitors are active after dt seconds, and the average over
// that time, while some leave or become silent and others are called. It is the solution of a' =
// called/dt − (left + fell)·a.
func (p *pattern) stir(active, called, dt float64) (rest, mean float64) {
	all := p.left + p.fell
	if all*dt < 1e-9 {
		return active + called, active + called/2
	}
	even, gone := called/dt/all, -math.Expm1(-all*dt)
	return active + (even-active)*gone, even + (active-even)*gone/(all*dt)
}

// begin starts a course with the slots that are certainly free.
func (c *course) begin(free float64) {
	c.at, c.calls, c.fell = append(c.at[:0], 0), append(c.calls[:0], 0), append(c.fell[:0], 0)
	c.ended = append(c.ended[:0], max(0, free))
}

func (c *course) add(t, calls, ended, fell float64) {
	last := len(c.at) - 1
	c.at, c.fell = append(c.at, t), append(c.fell, fell)
	c.calls, c.ended = append(c.calls, c.calls[last]+calls), append(c.ended, c.ended[last]+ended)
}

// end sets the rate after the last step: the average since from, and at least least.
func (c *course) end(from, least float64) {
	i, _ := slices.BinarySearch(c.at, from)
	last := len(c.at) - 1
	i = min(i, last-1) // a step may be longer than a session
	c.slope = max(least, 1e-9, (c.calls[last]-c.calls[i])/(c.at[last]-c.at[i]))
}

// of returns when the k-th visitor is called. chance moves the result by that many standard
// deviations: visitors that do not wait for an end in the record are called at random times.
func (c *course) of(k int64, chance float64) time.Duration {
	n := float64(k)
	i, _ := slices.BinarySearch(c.calls, n-nearly)
	n += chance * math.Sqrt(max(0, n-c.ended[min(i, len(c.ended)-1)]))
	i, _ = slices.BinarySearch(c.calls, n-nearly)
	switch last := len(c.calls) - 1; {
	case i == 0:
		return 0
	case i > last:
		return seconds(c.at[last] + (n-c.calls[last])/c.slope)
	}
	part := min(1, (n-c.calls[i-1])/(c.calls[i]-c.calls[i-1]))
	return seconds(c.at[i-1] + (c.at[i]-c.at[i-1])*part)
}

// nearly allows for rounding.
const nearly = 1e-6

// seconds converts n to a Duration, three years at most.
func seconds(n float64) time.Duration { return time.Duration(min(n, 1e8) * float64(time.Second)) }
