package adaptive

import (
	"cmp"
	"hash/fnv"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/histogram"
)

// These say how samples are read. Chosen.
const (
	natural  = 2.5              // times as long as without load may take what is slow by nature
	quick    = 0.1              // of the mean of all routes: what is quicker does none of the work
	clip     = 3                // an answer counts as at most so many times its route's mean
	enough   = 30               // answers that say what a route takes
	fewest   = 40               // answers that say something about the origin
	learning = 30 * time.Second // least length of what a mean is learned from,
	relearn  = 2 * time.Minute  // and later
	memory   = 24               // intervals that are kept,
	least    = 4.0              // seconds of each

	// quickest is the shortest time that a route takes: it divides, and shorter ones say nothing of load.
	quickest = 50 * time.Microsecond
)

// An interval is a sample in short.
type interval struct {
	length, inside           float64
	counted, failed, refused float64
	known, ratios, perSecond float64          // answers of known routes, sums of latency/mean and 1/mean,
	quick                    float64          // without those of quick ones
	took, lean               float64          // of all of them: sums of latency, and of the means
	ratio                    histogram.Counts // latency as a share of its route's target, in seconds
	covered                  float64          // share of the usual routes that were asked for
	late, prompt             float64          // answers above the target, and all, of routes that can keep it
}

// merge adds another interval.
func (x *interval) merge(o *interval) {
	if all := x.length + o.length; all > 0 {
		x.inside = (x.inside*x.length + o.inside*o.length) / all
	}
	x.length += o.length
	x.counted, x.failed, x.refused = x.counted+o.counted, x.failed+o.failed, x.refused+o.refused
	x.known, x.ratios, x.perSecond = x.known+o.known, x.ratios+o.ratios, x.perSecond+o.perSecond
	x.quick += o.quick
	x.late, x.prompt = x.late+o.late, x.prompt+o.prompt
	x.took, x.lean = x.took+o.took, x.lean+o.lean
	x.ratio.Merge(&o.ratio)
	x.covered = max(x.covered, o.covered)
}

// A reading is what the last intervals say together.
type reading struct {
	seconds, inside float64
	rate            float64 // requests a second, of each client network not more than MaxPerNetwork
	good            float64 // of them not failed
	failed, refused float64 // shares
	slow            float64 // share above the target
	p95             float64 // as a share of the target; NaN: no answers
	counted         float64
	covered         float64
	slower          float64 // mean latency as a multiple of what it is without load
	steep           float64 // how much of pressure a change of slower is
	base            float64 // seconds of an answer without load, of what is not slow by nature
	took, lean      float64 // seconds of an answer of any known route, now and without load
	late            float64 // share above the operator's target, of the routes that can keep it
	// pressure is how long the queue of the origin is, as a share of how long it should be.
	//
	// By Little's law an origin that answers x requests a second in t seconds has x·t of them. Were it
	// not loaded, it would have x·base: so many it serves at once. What is above that, waits.
	pressure float64
}

// read sums up the intervals of the last d.
func (c *Controller) read(d time.Duration) reading { return c.readAtLeast(d, 0) }

// readEnough sums up the last intervals that say something: where few requests come, some more.
func (c *Controller) readEnough() reading { return c.readAtLeast(fastOver, fewest) }

// readAtLeast sums up the intervals of the last d, and more until they have so many answers.
func (c *Controller) readAtLeast(d time.Duration, answers float64) (r reading) {
	var sum interval
	for i := len(c.seen) - 1; i >= 0 && (sum.length < d.Seconds() ||
		sum.counted < answers && sum.length < longOver.Seconds()); i-- {
		sum.merge(&c.seen[i])
	}
	r = reading{seconds: sum.length, counted: sum.counted, covered: sum.covered, p95: math.NaN()}
	if sum.length <= 0 || sum.counted <= 0 {
		return r
	}
	r.inside, r.rate = sum.inside, sum.counted/r.seconds
	r.failed, r.refused = sum.failed/sum.counted, sum.refused/sum.counted
	r.good = r.rate * max(0, 1-r.failed-r.refused)
	if n := float64(sum.ratio.Total()); n > 0 {
		r.p95 = quantile(&sum.ratio, 0.95)
		r.slow = above(&sum.ratio) / n
	}
	if sum.prompt > 0 {
		r.late = sum.late / sum.prompt
	}
	if sum.known > 0 {
		// The harmonic mean of what routes take leaves out those that are slow by nature.
		all := sum.known + sum.quick
		r.base = sum.known / all * sum.known / sum.perSecond
		r.took, r.lean = sum.took/all, sum.lean/all
		busy := r.rate * r.base
		r.slower = sum.ratios / sum.known
		r.steep = busy / c.goal(busy)
		r.pressure = (r.slower - 1) * r.steep
	}
	// Near its target, an origin has no room for a queue, however many servers it has.
	if near := 1 + math.Log(r.p95/aim)/0.1; near > r.pressure {
		r.pressure = near
	}
	return r
}

// goal is how many requests may wait at an origin that serves so many at once. An origin of n servers that
// are busy for four fifths of the time has about 3.3/(1+0.8n/7) waiting (Erlang's formula for M/M/n): few
// servers show a queue long before they are full, many hardly at all. Chosen: two thirds of that, as the
// service times of sites vary less than M/M/n's, and 3 % of what is served, which no mean shows.
//
// A limit of calls keeps the queue short by itself: half as many again may wait, which keeps all servers
// busy.
func (c *Controller) goal(busy float64) float64 {
	n := 2.6/(1+busy/7) + 0.03*busy
	if c.settings.Calls {
		n *= 1.5
	}
	return n * c.tight
}

// note keeps a sample, and learns what routes take when the origin is not loaded.
func (c *Controller) note(s *Sample) {
	x := interval{length: s.Length.Seconds(), inside: s.Inside}
	shares := 0.0
	var slow []answers
	c.answered = 0
	for i := range s.Routes {
		c.answered += float64(s.Routes[i].Latency.Total())
	}
	c.typical = c.typicalMean()
	for i := range s.Routes {
		r := &s.Routes[i]
		n := float64(max(uint64(r.Latency.Total()), r.Failed+r.Refused))
		x.counted += n
		x.failed += float64(r.Failed)
		x.refused += float64(r.Refused)
		if n > 0 {
			slow = c.noteRoute(&x, r, slow)
		}
	}
	x.addAll(slow, s.Excess.Slow, c.typical)
	x.counted = max(0, x.counted-float64(s.Excess.Counted))
	for i := range c.state.routes {
		shares += c.state.routes[i].share
	}
	if shares > 0 {
		x.covered /= shares
	}
	// What one client network can add on purpose says nothing. An API may have one client: all calls count.
	if !c.settings.Own && !c.settings.Calls {
		one := float64(max(MaxPerNetwork, s.Excess.Failed))
		x.failed, x.refused = max(0, x.failed-one), max(0, x.refused-one)
	}
	if x.known > 0 {
		now := x.ratios / x.known
		if c.slower > 0 {
			c.noise += (math.Abs(now-c.slower)/1.13 - c.noise) * min(1, s.Length.Minutes())
		}
		c.slower = now
	}
	switch n := len(c.seen); {
	case n > 0 && c.seen[n-1].length < least:
		c.seen[n-1].merge(&x)
	case n == memory:
		c.seen = append(c.seen[:0], c.seen[1:]...)
		fallthrough
	default:
		c.seen = append(c.seen, x)
	}
	c.follow(s, x.counted, x.covered)
}

// answers are those of a route that took about as long.
type answers struct {
	n                int64
	toMean, toTarget float64 // how long they took, as a multiple of the route's mean, and of its target
	mean             float64 // of the route, in seconds
	late             float64 // share above the operator's target; NaN: the route cannot keep it
}

// addAll adds answers without the slowest, of which one network may have made so many.
func (x *interval) addAll(all []answers, without int64, typical float64) {
	slices.SortFunc(all, func(a, b answers) int { return cmp.Compare(b.toMean, a.toMean) })
	for _, a := range all {
		out := min(a.n, without)
		without -= out
		n := float64(a.n - out)
		x.ratio.Add(time.Duration(a.toTarget*float64(time.Second)), a.n-out)
		if !math.IsNaN(a.late) {
			x.late, x.prompt = x.late+a.late*n, x.prompt+n
		}
		x.took += a.toMean * a.mean * n
		x.lean += a.mean * n
		if a.mean < quick*typical {
			x.quick += n
			continue
		}
		x.ratios += min(a.toMean, clip) * n
		x.known += n
		x.perSecond += n / a.mean
	}
}

// noteRoute adds a route's answers to those of an interval.
func (c *Controller) noteRoute(x *interval, r *Route, all []answers) []answers {
	h := hash(r.Class)
	b := c.base(h)
	if b == nil {
		c.learn(h, r, nil)
		return all
	}
	x.covered += b.share
	target := c.target(b).Seconds()
	for bucket, n := range r.Latency {
		if n > 0 {
			took, mean := histogram.Value(bucket).Seconds(), b.mean.Seconds()
			all = append(all, answers{n, took / mean, took / target, mean, c.lateOf(b, bucket)})
		}
	}
	c.learn(h, r, b)
	return all
}

// lateOf returns which share of a bucket of a route is above the operator's target; NaN: without load, the
// route does not keep it.
func (c *Controller) lateOf(b *base, bucket int) float64 {
	target := c.settings.TargetP95
	if target <= b.p95 {
		return math.NaN()
	}
	low, high := edges(bucket)
	return min(max((high-target.Seconds())/(high-low), 0), 1)
}

// typicalMean returns what a request takes without load, in seconds.
func (c *Controller) typicalMean() float64 {
	shares, sum := 0.0, 0.0
	for _, b := range c.state.routes {
		shares += b.share
		sum += b.share * b.mean.Seconds()
	}
	if shares == 0 {
		return 0
	}
	return sum / shares
}

// target returns the target of a route.
func (c *Controller) target(b *base) time.Duration {
	return max(c.settings.TargetP95, time.Duration(natural*float64(b.p95)), time.Millisecond)
}

func (c *Controller) base(class uint64) *base {
	for i := range c.state.routes {
		if c.state.routes[i].class == class {
			return &c.state.routes[i]
		}
	}
	return nil
}

// hash returns the hash of a class. Two classes with one hash would be compared with each other.
func hash(class string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(class))
	return h.Sum64()
}

// A lesson is what is collected about a route until it is enough.
type lesson struct {
	counts   histogram.Counts
	seconds  float64
	answered float64 // by all routes meanwhile
}

// dropLesson makes room for another lesson: the one with the fewest answers goes.
func (c *Controller) dropLesson() {
	var rarest uint64
	least := int64(math.MaxInt64)
	for class, l := range c.lessons {
		if n := l.counts.Total(); n < least || n == least && class < rarest {
			rarest, least = class, n
		}
	}
	delete(c.lessons, rarest)
}

// learn learns what a route takes when the origin is not loaded: its least mean. While few requests
// come, the origin is not loaded, and the mean may also rise.
func (c *Controller) learn(class uint64, r *Route, b *base) {
	l := c.lessons[class]
	if l == nil {
		if len(c.lessons) >= MaxRoutes {
			c.dropLesson()
		}
		l = &lesson{}
		c.lessons[class] = l
	}
	l.counts.Merge(&r.Latency)
	l.seconds += c.length.Seconds()
	l.answered += c.answered
	n := l.counts.Total()
	over := learning
	if c.state.knee > 0 {
		over = relearn
	}
	if n < enough || b != nil && l.seconds < over.Seconds() {
		return
	}
	delete(c.lessons, class)
	if c.tries > 0 { // overloaded
		return
	}
	mean := max(mean(&l.counts), quickest)
	p95 := max(time.Duration(quantile(&l.counts, 0.95)*float64(time.Second)), quickest)
	calm := c.state.knee > 0 && float64(n)/l.seconds < b.shareOf(c.state.knee)/2 && c.inside >= crowd
	chance := spread(&l.counts, mean) / math.Sqrt(float64(n))
	// The least of many means is too low.
	sure := 1 - 1.5*c.noise*math.Sqrt(c.length.Seconds()/l.seconds) - chance
	switch {
	case b == nil && len(c.state.routes) < MaxRoutes:
		c.state.routes = append(c.state.routes, base{class: class, mean: mean, p95: p95})
	case b == nil: // sites change: it takes the place of the one that is asked for least
		rarest := &c.state.routes[0]
		for i := range c.state.routes {
			if x := &c.state.routes[i]; x.share < rarest.share {
				rarest = x
			}
		}
		if share := float64(n) / max(1, l.answered); share > rarest.share {
			*rarest = base{class: class, mean: mean, p95: p95, share: share}
		}
	case calm:
		b.mean, b.p95 = b.mean+(min(mean, clip*b.mean)-b.mean)/8, b.p95+(min(p95, clip*b.p95)-b.p95)/8
	case float64(mean) < sure*float64(b.mean):
		b.mean, b.p95 = (b.mean+mean)/2, (b.p95+p95)/2
	}
}

// shareOf returns the route's part of a rate. A route that is not known has none.
func (b *base) shareOf(rate float64) float64 {
	if b == nil {
		return 0
	}
	return b.share * rate
}

// follow follows which share of the requests goes to each route: over some minutes, and over an hour when
// the sample has only few of the usual ones. Of calls, what is usual may change at any time.
func (c *Controller) follow(s *Sample, all, covered float64) {
	if all == 0 {
		return
	}
	weight := s.Length.Minutes() / 2
	if covered < usual && !c.settings.Calls {
		weight /= 30
	}
	for i := range c.state.routes {
		b := &c.state.routes[i]
		now := 0.0
		for k := range s.Routes {
			if hash(s.Routes[k].Class) == b.class {
				now = float64(s.Routes[k].Latency.Total()) / all
			}
		}
		b.share = min(1, b.share+(now-b.share)*min(1, weight))
	}
}

// mean returns the mean of counts.
func mean(c *histogram.Counts) time.Duration {
	sum := 0.0
	for b, n := range c {
		sum += histogram.Value(b).Seconds() * float64(n)
	}
	return time.Duration(sum / float64(max(1, c.Total())) * float64(time.Second))
}

// spread returns the standard deviation of counts, as a share of their mean.
func spread(c *histogram.Counts, mean time.Duration) float64 {
	sum := 0.0
	for b, n := range c {
		d := histogram.Value(b).Seconds()/mean.Seconds() - 1
		sum += d * d * float64(n)
	}
	return math.Sqrt(sum / float64(max(1, c.Total())))
}

// quantile returns a quantile in seconds, by interpolation within a bucket.
func quantile(c *histogram.Counts, q float64) float64 {
	left := q * float64(c.Total())
	for b, n := range c {
		if n > 0 && left <= float64(n) {
			low, high := edges(b)
			return low + (high-low)*left/float64(n)
		}
		left -= float64(n)
	}
	return 0
}

// above returns how many are above 1 s, by interpolation.
func above(c *histogram.Counts) (n float64) {
	at := histogram.BucketOf(time.Second)
	for b := at + 1; b < histogram.Buckets; b++ {
		n += float64(c[b])
	}
	low, high := edges(at)
	return n + float64(c[at])*(high-1)/(high-low)
}

// edges returns the bounds of a bucket in seconds, from the middles of its neighbors.
func edges(b int) (low, high float64) {
	mid := histogram.Value(b).Seconds()
	next := histogram.Value(min(b+1, histogram.Buckets-1)).Seconds()
	last := histogram.Value(max(b-1, 0)).Seconds()
	return (last + mid) / 2, (mid + next) / 2
}
