package baseline

import (
	"time"

	"github.com/headgate/headgate/internal/sim"
)

// step is how often the workers of a crew process their lines: often enough that visitors that
// refresh in the same second do not all find the same state. Chosen: the interval at which counts
// are broadcast.
const step = 100 * time.Millisecond

// These are the events of the models that are crews.
const (
	kindStep int32 = iota
	kindHeard
	kindRenew
	kindScale
)

// A crew is all workers of all sites, each with its own line. The model that embeds it decides when
// a worker may admit a visitor.
type crew struct {
	w     *sim.World
	s     *sim.Scenario
	first []int32 // worker of each site
	site  []int32 // of each worker
	line  *line
	met   []meter // of each worker
	beat  int64

	may  func(worker int32) bool
	let  func(worker int32, v sim.ID)
	lane int32 // the worker whose line is tried
	try  func(v sim.ID) outcome
}

// hire returns the crew; lanes is at least the number of workers.
func hire(s *sim.Scenario, w *sim.World, factor int) crew {
	c := crew{w: w, s: s, beat: -1}
	c.first, c.site = workers(s)
	lanes := len(c.site) * factor
	c.line, c.met = newLine(lanes, step), make([]meter, lanes)
	w.At(0, kindStep, 0, 0)
	return c
}

// arrive decides on a newcomer at a worker, without a message.
func (c *crew) arrive(v sim.ID, worker int32) {
	c.w.Decided(v, 0)
	minute := minuteOf(c.w.Now())
	if !c.line.behind(worker, minute) && c.may(worker) {
		c.admit(v, worker)
		return
	}
	m := &c.met[worker]
	m.turn(minute)
	c.w.Wait(v, expect(c.line.waits[worker]+1, m.last))
	c.line.add(v, worker, minute, c.beat)
}

func (c *crew) admit(v sim.ID, worker int32) {
	c.met[worker].count(minuteOf(c.w.Now()))
	c.let(worker, v)
	c.w.Admit(v)
}

// refresh tries the visitors whose refresh is in this step.
func (c *crew) refresh() {
	c.beat++
	c.w.After(step, kindStep, 0, 0)
	if c.try == nil {
		c.try = func(v sim.ID) outcome {
			if !c.may(c.lane) {
				return nobody
			}
			c.admit(v, c.lane)
			return enters
		}
	}
	n := int64(len(c.met))
	for i := int64(0); i < n && c.line.total > 0; i++ {
		c.lane = int32((i + c.beat) % n) // rotates the first worker, for fairness
		c.line.ask(c.lane, c.beat, c.try)
	}
}

// part returns the share of one of n in a whole. The remainder goes to some of them.
func part(whole int64, i, n int) int64 {
	return whole*int64(i+1)/int64(n) - whole*int64(i)/int64(n)
}

// number returns the worker that a visitor came to.
func (c *crew) number(x *sim.Visitor) int32 { return c.first[x.Datacenter] + x.Worker }

// A window holds the times of the last admissions.
type window struct {
	at      []time.Duration
	head, n int
}

// drop removes all times that are not later than t.
func (r *window) drop(t time.Duration) {
	for r.n > 0 && r.at[r.head] <= t {
		r.head = (r.head + 1) % len(r.at)
		r.n--
	}
}

// push records an admission.
func (r *window) push(now time.Duration) {
	if r.n == len(r.at) {
		at := make([]time.Duration, max(8, 2*r.n))
		for i := range r.n {
			at[i] = r.at[(r.head+i)%len(r.at)]
		}
		r.at, r.head = at, 0
	}
	r.at[(r.head+r.n)%len(r.at)] = now
	r.n++
}
