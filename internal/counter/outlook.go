package counter

import (
	"math"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// An outlook says when slots at once come back, below no other counter. The record knows when
// each session ends if its visitor does nothing any more. It does not know who says before
// that it leaves, nor who asks for another page and stays: those who are active, for who has
// been silent for a while (slot.Idle) does either seldom. How often they do is counted while
// people wait, and with that the ends in the record are played forward: see course. What has
// not been counted yet is not assumed: then the range is all that may be (ADR 0052).
//
// An update looks at the buckets of the record once. The room is played when the first is
// told after it, in time that does not depend on how many are inside.
type outlook struct {
	clk     time.Duration   // of the record
	free    int64           // those that are called included: places count their tickets
	called  int64           // of free
	absent  float64         // share of calls that nobody claims: their slots come back after leastHold
	ends    []slot.EndCount // of the record; not to be changed
	now     slot.Time
	session time.Duration
	idle    time.Duration
	step    time.Duration // between calls
	watched time.Duration // for so long people have been waiting
	active  int64         // inside, and seen within idle; the others are
	silent  int64

	seen   sums
	counts [5]flow // as the fields of sums

	played         bool
	left           bound // by a word, a second of one who is active,
	leftSilent     bound // and of one who is silent
	fell           bound // silent, a second of one who is active
	sureLeft       bool  // left and leftSilent are known, of nobody too
	sureFell       bool
	low, mid, high course
}

// sums count up since the takeover.
type sums struct {
	left, leftSilent, fell    float64
	activeSeconds, silentTime float64
}

func (s *sums) all() [5]float64 {
	return [...]float64{s.left, s.leftSilent, s.fell, s.activeSeconds, s.silentTime}
}

// A bound is a rate as it was counted, and what it is at least and at most.
type bound struct{ low, mid, high float64 }

// Few events say nothing of a rate; by some it is known to a third. Chosen.
const (
	fewEvents  = 8
	someEvents = 25
)

// update takes in the newest confirmed record, with so many slots free beside those that are called, and
// calls a step apart.
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
	// Whoever is silent came to be so, and stays so until the end: what is not there any more
	// has ended, or left. Who asks for a page again counts back.
	o.seen.fell = float64(silent + ended + leftSilent)
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

// over is what was counted in the last while.
func (o *outlook) over(while time.Duration) sums {
	var n [5]float64
	for i := range o.counts {
		n[i] = o.counts[i].over(o.clk, while)
	}
	return sums{n[0], n[1], n[2], n[3], n[4]}
}

// measure learns from what was counted while people have been waiting: who came to an empty
// room says nothing of a crowd.
func (o *outlook) measure() {
	while := min(o.watched, flowMost)
	x := o.over(while)
	enough := x.left+x.leftSilent >= fewEvents
	o.sureLeft = enough || o.watched >= o.session
	// Who has fallen silent is known only after a while.
	could := 0.0
	if while > o.idle {
		could = x.activeSeconds * float64(while-o.idle) / float64(while)
	}
	o.fell = boundOf(x.fell, could)
	o.sureFell = enough || could > 0 && x.fell >= fewEvents
	if enough && x.fell < fewEvents { // at most as many as leave by a word
		o.fell.low, o.fell.high = 0, per(x.left+x.leftSilent, x.activeSeconds)
		if could > 0 {
			o.fell.high = min(o.fell.high, (fewEvents+max(0, x.fell))/could)
		}
	}
	share := o.activeShare(o.fell.mid)
	o.left = boundOf(x.left, x.activeSeconds*share)
	o.leftSilent = boundOf(x.leftSilent, x.silentTime)
	// Lately it may have been faster or slower: in the shortest while that shows it.
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

// activeShare is how many of those who were seen within idle are active still: some have made
// their last request. At least a few are. Chosen.
func (o *outlook) activeShare(fell float64) float64 {
	return max(0.05, 1-fell*min(o.idle, o.watched).Seconds())
}

// per is a rate, 0 in no time.
func per(n, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return n / seconds
}

// boundOf is the rate of n random events: 1.5 deviations of a Poisson count are seven in
// eight. It is never 0 if there was any: that would be a wait without end.
func boundOf(n, seconds float64) bound {
	n = max(0, n)
	return bound{
		per(max(n/4, n-1.5*math.Sqrt(n)), seconds), per(n, seconds), per(n+1.5*math.Sqrt(n+1), seconds),
	}
}

// A span is a time that is expected, and between which two it honestly is.
type span struct{ low, mid, high time.Duration }

// at says when the k-th next slot is back, or that it surely is when its call is due. Margins
// beside those of the counts: sessions end up to a bucket later, a visitor sees its call when
// it asks, and people differ. Chosen, and measured by TestRangesComeTrue.
func (o *outlook) at(k int64, due time.Duration) (s span, surely bool) {
	if !o.played {
		o.measure()
		o.play()
		o.played = true
	}
	if k <= o.free || o.high.of(k, 0) <= due+due/50+o.step { // a course is not exact
		return s, true
	}
	s.mid, s.high = o.mid.of(k, 0), o.high.of(k, 1)
	s.high += s.high*12/100 + 4*time.Second
	if !o.sureFell && k > o.free+o.silent {
		// Nobody is seen to stop: perhaps they go on for as long again as they have.
		s.high += s.high*35/100 + o.watched
	}
	if o.sureLeft {
		s.low = o.low.of(k, -1)
		s.low = max(0, s.low-s.low*15/100-2*time.Second)
	}
	return s, false
}

// play plays the room forward three times: slots come back soon, as counted, and late. Where
// people leave by a word, who falls silent instead keeps a slot for longer; where they do not,
// for less long.
func (o *outlook) play() {
	soon, late := o.fell.high, o.fell.low
	if o.left.mid*o.session.Seconds() > 1 {
		soon, late = late, soon
	}
	o.low.play(o, pattern{o.left.high, o.leftSilent.high, soon})
	o.mid.play(o, pattern{o.left.mid, o.leftSilent.mid, o.fell.mid})
	o.high.play(o, pattern{o.left.low, o.leftSilent.low, late})
}

// A flow counts events over the last minute by second, and over ten minutes by ten seconds.
type flow struct{ fine, coarse rate }

const (
	flowUnit = 10
	flowMost = (rateSeconds - 1) * flowUnit * time.Second
)

func (f *flow) add(clk time.Duration, n float64) {
	f.fine.add(clk, n)
	f.coarse.add(clk/flowUnit, n)
}

// over is how many there were in the last while.
func (f *flow) over(clk, while time.Duration) float64 {
	r, unit := &f.fine, time.Second
	if while >= (rateSeconds-1)*time.Second {
		r, unit, clk = &f.coarse, flowUnit*time.Second, clk/flowUnit
	}
	each, n := r.over(clk, int64(while/unit))
	return each * float64(n)
}
