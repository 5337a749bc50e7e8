package adaptive

import (
	"math"
	"time"
)

// These are the parameters of the controller. Chosen, and tried in the simulator.
const (
	aim     = 0.85 // of the target: where the 95th percentile may be
	full    = 0.96 // of the limit: from here on people inside say something about a higher one
	usual   = 0.5  // share of the usual routes that a sample must cover
	crowd   = 20   // people whose requests say what the origin takes without load
	gain    = 0.12 // how much of the knee a queue says
	noisy   = 0.08 // of mean latency between samples, until it is known
	settled = 0.01 // smaller steps are not worth one
	known   = 0.9  // of the highest knee so far: up to here capacity that is back is found fast

	inVain   = 3   // times that a limit of calls is lowered before it shows that this does not help
	down     = 0.5 // share of failed calls, from which on the origin may be down: fewer calls help it come up
	abreast  = 3   // times what is right without slow readers: a limit of calls is not raised further
	tolerate = 1.5 // times what fails however many calls there are: more says that there are too many

	mayBeLate = 0.035           // share of the answers above the operator's target
	tightens  = 2 * time.Minute // for half of the queue, with twice as many
	tightest  = 0.1

	turnedAway = 0.05 // share of the calls that found no slot, from which on a limit of calls is full
)

// These are how long the controller looks back. The queue of an origin follows people within seconds; a
// mean of some thousand requests is good to a few percent.
const (
	fastOver = 10 * time.Second // to lower, and to raise while the knee is not known
	slowOver = 30 * time.Second
	longOver = time.Minute

	callsOver = 20 * time.Second // what is known of calls follows within it
)

// A Controller finds the limit of one room.
type Controller struct {
	settings Settings
	state    State

	seen     []interval
	lessons  map[uint64]*lesson
	length   time.Duration // of the sample at hand
	inside   float64
	answered float64       // by all routes in it
	typical  float64       // seconds that a request takes without load
	changed  time.Duration // time since the last change
	reached  time.Duration // of it, the time with as many people inside as the limit allows
	calm     time.Duration // time since the origin was overloaded
	rate     float64       // requests a second while it was not, over half a minute
	entered  float64       // people a minute, over some minutes
	leave    float64       // share of the people inside who leave within a minute, likewise
	slower   float64       // latency of the last sample, as a multiple of what it is without load
	noise    float64       // its standard deviation between samples
	tight    float64       // share of the queue that may be elsewhere: less where the target needs it
	tries    int           // times the limit was lowered in a row
	before   reading       // when it was first lowered
	from     int64         // the limit before that
	worst    float64       // share of failed and refused requests then, and until it was lowered again
	always   float64       // share that fails or is refused however many calls there are
	peak     float64       // the highest knee that was known
	queued   reading       // when the queue became longer than it should be
	quiet    reading       // with the fewest requests since it was
}

// New returns a controller that continues from what was learned; the zero State has learned nothing.
func New(s Settings, learned State) *Controller {
	if s.TargetErrors <= 0 {
		s.TargetErrors = 0.01
	}
	s.Max = max(s.Min, s.Max)
	if learned.active == 0 {
		learned.active = s.Start
	}
	learned.active = min(max(learned.active, s.Min), s.Max)
	learned.routes = append([]base(nil), learned.routes...)
	return &Controller{settings: s, state: learned, lessons: map[uint64]*lesson{}, noise: noisy, tight: 1}
}

// State returns what must survive a kill and a takeover.
func (c *Controller) State() State { return c.state }

// Step takes the sample of one interval and returns what is in force from now on.
func (c *Controller) Step(s Sample) Decision {
	if s.Behind {
		c.state.active = min(c.state.active, s.Limit)
	}
	was := c.inside
	c.length, c.inside = s.Length, s.Inside
	c.changed += s.Length
	c.calm += s.Length
	if active := float64(c.state.active); c.isFull(&s) && s.Inside <= 1.03*active+1 {
		c.reached += s.Length
	}
	d := Decision{Signal: SignalNone, P95: math.NaN()}
	before := c.state.active
	switch {
	case s.Length <= 0:
		d.Reason = ReasonStart
	case len(s.Routes) == 0 && math.IsNaN(s.Load):
		c.seen = c.seen[:0] // older ones say nothing about now
		d.Reason, d.Held = ReasonLost, true
	default:
		c.note(&s)
		c.flow(&s, was)
		c.judge(&s, &d)
	}
	if s.Frozen { // at what is in force, such as a number from before
		c.state.active, d.Reason, d.Held = s.Limit, ReasonFrozen, true
	}
	want := c.state.active
	c.state.active = min(max(want, c.settings.Min), c.settings.Max)
	switch {
	case c.state.active != before: // for the reason that made it want more or less
		c.changed, c.reached = 0, 0
	case want < c.state.active:
		d.Reason = ReasonMin
	case want > c.state.active:
		d.Reason = ReasonMax
	}
	d.Active, d.Knee = c.state.active, c.state.knee
	if d.PerMinute = c.perMinute(); s.Frozen {
		d.PerMinute = min(s.New, c.settings.MaxPerMinute)
	}
	c.state.perMinute = d.PerMinute
	if c.settings.Calls || c.settings.Own {
		d.Reason = d.Reason.ofCalls()
	}
	return d
}

// flow follows how many people enter, and which share of them leaves.
func (c *Controller) flow(s *Sample, was float64) {
	minutes := s.Length.Minutes()
	weight := min(1, minutes/2)
	c.entered += (float64(s.Entered)/minutes - c.entered) * weight
	if was < crowd {
		return
	}
	leave := (float64(s.Entered) - s.Inside + was) / was / minutes
	if c.leave <= 0 { // a new host fills the room as the one before did
		c.leave = max(0, leave)
	}
	c.leave += (leave - c.leave) * weight
}

// perMinute returns how many people may enter in a minute. Those who have just come ask more often, so
// it is the faster of the two limits: a queue at the origin slows it down before it lowers the other.
func (c *Controller) perMinute() int64 {
	r := c.read(fastOver)
	// As many as leave, and a quarter if that is not known yet: with visits of four minutes it is. Chosen.
	flow := float64(c.state.active) * max(0.25, c.leave)
	switch knee := c.state.knee; {
	case r.seconds == 0 && knee > 0: // no signals: as many as usual
		flow = max(c.entered, flow/2)
	case knee == 0:
		flow = max(1.2*float64(c.state.active), 2*flow) * min(max(1.1-r.pressure, 0.1), 1)
	case r.rate < 0.85*knee:
		flow *= 2
	}
	if r.seconds > 0 {
		flow = max(flow, 1.3*c.entered) * min(max(1.5-0.5*(r.pressure-c.doubt(&r)), 0.1), 1)
	}
	return min(c.settings.MaxPerMinute, max(1, int64(flow)))
}

// doubt returns how much of the pressure of two samples may be noise.
func (c *Controller) doubt(r *reading) float64 { return max(0, c.noise-2*noisy) * r.steep * 0.7 }

// judge moves the limit by what the last intervals say.
func (c *Controller) judge(s *Sample, d *Decision) {
	r := c.readEnough()
	d.P95 = r.p95
	if r.counted < fewest {
		if d.Reason = ReasonFew; !math.IsNaN(s.Load) {
			c.byLoad(s, d)
		}
		return
	}
	// Chance alone exceeds two deviations in one window of forty.
	share := max(c.settings.TargetErrors, c.forget(&r))
	errs := share + 2*math.Sqrt(share/r.counted)
	slow := 0.05 + 2*math.Sqrt(0.05/r.counted)
	switch {
	case r.refused > errs, c.settings.Own && r.refused > c.settings.TargetErrors:
		c.lower(&r, d, SignalRefused, ReasonRefused)
	case r.failed > errs:
		c.lower(&r, d, SignalErrors, ReasonErrors)
	case r.slow > slow && s.Load < 0.5:
		d.Signal, d.Reason, d.Held = SignalLoad, ReasonContradict, true
	case r.slow > slow:
		c.lower(&r, d, SignalLatency, ReasonLatency)
	case s.Load > 0.95:
		c.byLoad(s, d)
	case c.slowIdle() > 0:
		d.Signal, d.Held = SignalLatency, true
		d.Reason = reasonSlowIdle(c.slowIdle(), c.settings.TargetP95)
	default:
		c.steer(s, d, &r)
	}
}

// slowIdle returns how long the origin takes without load, by the routes that are slower than the target, if
// most requests are. It is round: each other one is a new reason.
func (c *Controller) slowIdle() time.Duration {
	all, slow, took := 0.0, 0.0, 0.0
	for _, b := range c.state.routes {
		if all += b.share; c.settings.TargetP95 > 0 && b.p95 > c.settings.TargetP95 {
			slow += b.share
			took += b.share * b.p95.Seconds()
		}
	}
	if slow <= all/2 {
		return 0
	}
	took /= slow
	digit := math.Pow(10, math.Floor(math.Log10(took)))
	round := math.Round(10*took/digit) * digit / 10
	return time.Duration(round * float64(time.Second)).Round(time.Microsecond)
}

// byLoad follows a load that others report: 1 is full.
func (c *Controller) byLoad(s *Sample, d *Decision) {
	d.Signal = SignalLoad
	switch active := float64(c.state.active); {
	case c.changed < longOver && !(s.Load > 1 && c.changed >= fastOver):
		d.Reason = ReasonWaiting
	case s.Load > 0.95:
		c.set(min(active, s.Inside) * max(0.5, 0.9/s.Load))
		d.Reason = ReasonLoad
	case s.Load >= 0.8:
		d.Reason = ReasonSettled
	case s.Inside < full*active:
		d.Reason = ReasonNotFull
	default:
		c.set(active * min(1.15, 1+(0.85-s.Load)/2))
		d.Reason = ReasonRaised
	}
}

// lower lowers the limit of an overloaded origin at once, as far as needed: to what it answers now, by
// the requests of a person. It does so again only when the origin answers still less.
func (c *Controller) lower(r *reading, d *Decision, signal Signal, reason Reason) {
	d.Signal, d.Reason = signal, reason
	active := float64(c.state.active)
	if c.tries == 0 {
		c.before, c.from, c.worst = *r, c.state.active, 0
		switch {
		case c.settings.Own:
		case c.state.knee == 0:
			c.know(1.1 * r.good)
		case c.calm > longOver:
			c.state.broke = c.rate
			c.know(min(c.state.knee, 0.95*c.rate))
		}
	}
	c.calm, c.queued, c.quiet = 0, reading{}, reading{}
	to := 0.97 * min(active, r.inside)
	if per := c.state.perPerson; per > 0 { // its throughput is its capacity now
		to = min(to, 0.9*r.good/per)
		c.know(min(c.state.knee, 1.25*r.good))
	}
	to = max(to, 0.4*r.inside, 0.5*active)
	if c.settings.Own {
		to = 0.85 * active
		if r.refused > 0.05 { // far too much
			to = 0.7 * active
		}
	}
	if c.settings.Calls && r.p95 > 1 && r.inside > 2*r.rate*r.lean {
		// Its queue is long, or slow readers have raised the limit: what a slot takes says nothing.
		to = max(0.5*active, min(to, c.right(r, r.rate)))
	}
	if c.tries <= 1 {
		c.worst = max(c.worst, r.failed+r.refused)
	}
	switch {
	case c.tries > 0 && c.changed < fastOver:
		d.Reason, d.Held = ReasonWaiting, true
	case signal != SignalLatency && c.isInVain(r):
		c.always = r.failed + r.refused
		c.tries, c.seen = 0, c.seen[len(c.seen)-1:]
		c.set(float64(c.from))
		d.Reason, d.Held = ReasonFutile, true
	case c.tries >= 6 && r.inside < 0.8*c.before.inside && c.isFutile(r):
		d.Reason, d.Held = ReasonFutile, true
	case c.tries > 0 && r.inside > 1.02*active && to > 0.9*active:
		d.Reason, d.Held = ReasonDraining, true
	case c.tries > 0 && c.changed < slowOver && to > 0.9*active:
		d.Reason, d.Held = ReasonWaiting, true
	default:
		if c.tries++; c.settings.Own {
			c.know(to)
		}
		c.set(to)
	}
}

// isFutile reports whether the origin is as slow, and fails as often, as before the limit was lowered.
func (c *Controller) isFutile(r *reading) bool {
	was := &c.before
	return r.p95 > 0.9*was.p95 && r.failed >= 0.9*was.failed && r.refused >= 0.9*was.refused
}

// isInVain reports whether as large a share of the calls fails or is refused as before the limit was lowered
// some times, while the others are answered in time: it does not depend on how many there are.
func (c *Controller) isInVain(r *reading) bool {
	share := r.failed + r.refused
	return c.settings.Calls && c.tries >= inVain && share < down && share >= 0.8*c.worst && !(r.p95 > 1)
}

// forget returns the share of the calls that may fail or be refused, as fewer calls did not change it. It is
// forgotten when less fails.
func (c *Controller) forget(r *reading) float64 {
	if share := r.failed + r.refused; share < c.always/2 {
		c.always += (share - c.always) * min(1, c.length.Minutes())
	}
	if c.always < c.settings.TargetErrors {
		c.always = 0
	}
	return tolerate * c.always
}

// right returns how many calls are under way at so many a second, with the queue that may be, if nobody
// reads an answer slowly.
func (c *Controller) right(r *reading, rate float64) float64 {
	return rate*r.lean + c.goal(rate*r.base)
}

// know sets the knee.
func (c *Controller) know(rate float64) { c.state.knee = max(0, rate) }

// isFull reports whether a sample says something about a higher limit. Calls that find no slot are
// refused and gone, so as many as the limit allows are rarely under way on average.
func (c *Controller) isFull(s *Sample) bool {
	if c.settings.Calls && float64(s.Waiting) > turnedAway*float64(uint64(s.Waiting)+answeredIn(s)) {
		return true
	}
	return s.Inside >= full*float64(c.state.active)
}

func answeredIn(s *Sample) (n uint64) {
	for i := range s.Routes {
		n += s.Routes[i].Answered
	}
	return n
}

// memoryOf returns how long the controller looks back while it steers. People stay for minutes, and ask
// more often in the beginning; calls are over within a second.
func (c *Controller) memoryOf() time.Duration {
	if c.state.knee == 0 || c.settings.Calls {
		return fastOver
	}
	return longOver
}

// steer moves the limit of an origin that is not overloaded to the knee.
func (c *Controller) steer(s *Sample, d *Decision, fast *reading) {
	d.Signal = SignalLatency
	slow := c.read(c.memoryOf())
	d.P95 = slow.p95
	active := float64(c.state.active)
	if c.tries > 0 {
		if fast.pressure > 1 && !(c.settings.Calls && c.changed >= fastOver) { // the last of the queue
			d.Reason = ReasonWaiting
			return
		}
		c.tries, c.seen = 0, c.seen[len(c.seen)-1:]
		if s.Inside > active { // it has taken less than feared
			c.set(s.Inside * 0.98)
			d.Reason = ReasonPeople
			return
		}
	}
	c.tighten(&slow)
	c.learnKnee(&slow)
	c.rebase(&slow)
	want, u := active*1.2, slow.pressure
	if c.state.knee > 0 {
		want = c.wanted(&slow)
	}
	if c.settings.Calls && want > active { // slots of those who read slowly show no queue until they leave
		want = min(want, max(active, abreast*c.right(&slow, max(slow.rate, c.ceiling()))))
	}
	switch {
	case c.state.knee > 0 && want < 0.97*active && slow.rate > 0.5*c.state.knee:
		c.ease(s, d, want, u)
	case s.Inside > 1.03*active+1 && s.Limit > c.state.active: // another limit than ours lets people in
		c.set(min(want, s.Inside))
		d.Reason = ReasonRaised
	case s.Inside > 1.03*active+1:
		d.Reason = ReasonDraining
	case !c.isFull(s):
		d.Reason = ReasonNotFull
	case slow.covered < usual:
		d.Reason, d.Held = ReasonOneRoute, true
	default:
		c.raise(d, &slow, want)
	}
}

// tighten follows the operator's target. Where a page takes most of it without load, 95 of 100 answers keep
// it only with a shorter queue than an origin may have elsewhere.
func (c *Controller) tighten(r *reading) {
	by := 1 - r.late/mayBeLate
	if by > 0 { // back more slowly: the queue of few servers is there now and then
		by /= 4
	}
	c.tight *= math.Exp2(max(by, -1) * c.length.Seconds() / tightens.Seconds())
	c.tight = min(max(c.tight, tightest), 1)
}

// wanted returns the limit by what is known: the knee, by the requests of a person or a call.
func (c *Controller) wanted(r *reading) float64 {
	if !c.settings.Calls {
		return c.ceiling() / (r.rate / max(1, r.inside))
	}
	// By Little's law: the slots that so many requests take without a queue, and the queue that may be.
	return c.ceiling()/c.state.perPerson + c.goal(c.ceiling()*r.base)
}

// ceiling returns the requests a second that may be: the knee, and less than what was too much.
func (c *Controller) ceiling() float64 {
	if c.state.broke > 0 {
		return min(c.state.knee, 0.95*c.state.broke)
	}
	return c.state.knee
}

// ease lowers the limit a little: the queue is longer than it should be, or people ask more often.
func (c *Controller) ease(s *Sample, d *Decision, want, u float64) {
	active := float64(c.state.active)
	switch {
	case c.changed < fastOver || s.Inside > 1.02*active && c.changed < slowOver:
		d.Reason = ReasonWaiting
	default:
		c.set(max(want, 0.9*active))
		if d.Reason = ReasonLatency; u < 1 {
			d.Signal, d.Reason = SignalPeople, ReasonPeople
		}
	}
}

// raise raises the limit by a step when the origin has answered the last one well.
func (c *Controller) raise(d *Decision, r *reading, want float64) {
	active := float64(c.state.active)
	most, wait := 1.2, fastOver/2
	switch knee := c.state.knee; {
	case knee == 0 && r.pressure > 0.2:
		most, wait = 1.1, fastOver
	case knee > 0 && r.rate < 0.85*knee && (c.spare(r) > 1.05 || c.settings.Calls || c.settings.Own):
		most, wait = 1.12, fastOver
	case c.settings.Calls && knee > 0: // a slot more is a queue within a second
		most, wait = 1.05, fastOver
	case knee > 0:
		most, wait = 1.05, slowOver
	}
	want = min(want, active*most)
	switch {
	case want < active*(1+settled):
		d.Reason = ReasonSettled
	case c.reached < wait:
		d.Reason = ReasonWaiting
	default:
		c.set(want)
		d.Reason = ReasonRaised
	}
}

// learnKnee learns from an origin that is not overloaded: how many requests a person makes, and at which
// rate the queue is where it should be.
func (c *Controller) learnKnee(r *reading) {
	if r.inside < 1 && !c.settings.Calls {
		return
	}
	now, weight := r.rate/r.inside, min(1, c.length.Minutes())
	if c.settings.Calls { // a slot's requests without the queue: with it, a queue would ask for more slots
		slots := max(r.inside-r.rate*max(0, r.took-r.lean), r.rate*r.lean)
		if r.rate <= 0 || slots <= 0 {
			return
		}
		now = r.rate / slots
		weight = min(1, c.length.Seconds()/callsOver.Seconds())
	}
	if c.state.perPerson == 0 {
		c.state.perPerson = now
	}
	c.state.perPerson += (now - c.state.perPerson) * weight
	if c.rate == 0 {
		c.rate = r.rate
	}
	c.rate += (r.rate - c.rate) * min(1, 2*weight)
	knee, u := c.state.knee, r.pressure
	spare := c.spare(r)
	at := r.rate * max(spare, 1+min(max(gain*(1-u), -0.1), gain))
	switch {
	case knee == 0 && u > 0.8+c.doubt(r):
		c.know(at)
		c.calm = 0
	case knee == 0:
	case spare > 1 && at > knee:
		c.know(at)
	case r.rate > 0.85*knee || u > 1:
		c.know(knee + (at-knee)*weight)
	}
	if broke := c.state.broke; broke > 0 && u < 0.3 && r.rate > 0.9*broke && r.seconds >= longOver.Seconds() {
		c.state.broke = max(broke*(1+0.03*weight), spare*r.rate)
	}
}

// spare returns how many times as many requests the origin can answer for sure, as its queue is shorter than
// near the knee, in the last minute and now; 0: not known. The queue of M/M/n grows with about the eighth
// power of the load there. It leads up to the highest knee so far: what is beyond is felt for in small steps.
func (c *Controller) spare(r *reading) float64 {
	c.peak = max(c.peak, c.state.knee)
	if r.seconds < longOver.Seconds() || r.rate > known*c.peak {
		return 0
	}
	now := c.read(fastOver)
	most := max(c.atMost(r), c.atMost(&now))
	return min(math.Pow(max(most, 0.05), -1.0/8), known*c.peak/r.rate)
}

// atMost returns the greatest pressure that a reading allows, as its mean is noisy: less so the longer it is.
func (c *Controller) atMost(r *reading) float64 {
	return r.pressure + c.noise*math.Sqrt(c.length.Seconds()/r.seconds)*r.steep
}

// rebase learns that the origin is slower by nature than was thought: fewer requests did not make it faster,
// as a shorter queue would, or more did not make it slower. The least of some noisy means is too low, and an
// origin that seems to have a queue hides its spare capacity.
func (c *Controller) rebase(r *reading) {
	was, low := &c.queued, &c.quiet
	if r.pressure < 0.7 {
		*was = reading{}
	}
	if r.pressure > 0.5 {
		*low = reading{}
	}
	by := 1.0
	switch {
	case r.seconds < longOver.Seconds():
	case r.pressure >= 1 && was.rate == 0:
		*was = *r
	case r.pressure >= 1 && r.rate < 0.8*was.rate && r.slower > 0.98*was.slower:
		by = r.slower
	case r.pressure > 0.5:
	case low.rate == 0 || r.rate < low.rate:
		*low = *r
	case r.rate > 1.15*low.rate: // a queue would be three times as long
		by = max(1, min(r.slower, low.slower)-max(0, r.slower-low.slower)/2)
		*low = *r
	}
	if by < 1+settled {
		return
	}
	for i := range c.state.routes {
		b := &c.state.routes[i]
		b.mean = time.Duration(float64(b.mean) * by)
		b.p95 = time.Duration(float64(b.p95) * by)
	}
	*was, *low = reading{}, reading{}
	c.seen = c.seen[:0] // judged by what was before
}

// set sets the limit that is wanted; Step keeps it within its bounds.
func (c *Controller) set(to float64) {
	n := int64(to)
	if to > float64(c.state.active) {
		n = int64(math.Ceil(to))
	}
	c.state.active = n
}
