package baseline

import (
	"time"

	"github.com/headgate/headgate/internal/sim"
)

// A picture is the state of the room, as cloudflare2023 shows it.
type picture struct {
	minute  int32
	active  int64
	fresh   int64 // came in during the minute
	waiting int64
	rate    int64 // came in during the minute before
}

// shares are what the slots are divided by.
type shares struct {
	seen    []int64 // users of each data centre, inside or waiting: trafficHistory
	workers int     // globalWorkersActive
}

// pulse is how often the pipeline makes a new picture. Chosen; "within seconds".
const pulse = time.Second

// Events of the models that have a pipeline. An event of kindShares calls observe.
const (
	kindPulse int32 = iota
	kindShares
)

// A pipeline carries the state to all data centres: each second a picture, each
// period the shares. Both arrive after the scenario's StateLag, everywhere at once;
// shares are sent so early that they arrive when the period ends, and hold for the
// next one. All workers of a data centre are active if anybody was there in it.
type pipeline struct {
	w      *sim.World
	s      *sim.Scenario
	period int32 // minutes

	truth picture // what happened until now; only the pipeline sees it
	seen  []int64
	came  []bool // of each site: somebody, in this period
	sent  []picture
	beat  int64

	known  picture // what every data centre knows
	shares shares
	coming shares
}

func newPipeline(s *sim.Scenario, w *sim.World, period int32) pipeline {
	n := len(s.Sites)
	p := pipeline{w: w, s: s, period: period, seen: make([]int64, n), came: make([]bool, n), beat: -1}
	p.sent = make([]picture, 1+(s.StateLag+pulse-1)/pulse)
	p.shares = shares{seen: make([]int64, n)}
	p.coming = shares{seen: make([]int64, n)}
	w.At(0, kindPulse, 0, 0)
	w.At(time.Duration(period)*time.Minute-p.ahead(), kindShares, 0, 0)
	return p
}

// arrived, waits, admitted, called and gone tell the pipeline what happens at a site.
func (p *pipeline) arrived(site int32) { p.came[site] = true; p.seen[site]++ }
func (p *pipeline) waits()             { p.truth.waiting++ }
func (p *pipeline) admitted()          { p.truth.active++; p.truth.fresh++ }
func (p *pipeline) called()            { p.truth.waiting--; p.admitted() }
func (p *pipeline) gone(site int32)    { p.truth.active--; p.seen[site]-- }

// pulse makes a picture, delivers the one that is due, and reports whether a minute
// has begun.
func (p *pipeline) pulse() (turned bool) {
	p.beat++
	p.w.After(pulse, kindPulse, 0, 0)
	if minute := minuteOf(p.w.Now()); minute != p.truth.minute {
		turned = true
		p.truth.minute, p.truth.rate, p.truth.fresh = minute, p.truth.fresh, 0
		if minute%p.period == 0 {
			p.shares, p.coming = p.coming, p.shares
		}
	}
	n := int64(len(p.sent))
	p.sent[p.beat%n] = p.truth
	p.known = p.sent[(p.beat+1)%n]
	if p.known.minute != p.truth.minute {
		p.known.fresh = 0
	}
	return turned
}

// observe sends new shares on their way.
func (p *pipeline) observe() {
	c := &p.coming
	c.workers = 0
	for i := range c.seen {
		c.seen[i] = p.seen[i]
		if p.seen[i] > 0 || p.came[i] {
			c.workers += p.s.Sites[i].Workers
		}
		p.came[i] = false
	}
	p.w.After(time.Duration(p.period)*time.Minute, kindShares, 0, 0)
}

// ahead is how long before the end of a period its shares are sent.
func (p *pipeline) ahead() time.Duration { return min(p.s.StateLag, time.Minute) }

// expect is what one who begins to wait is told.
func (p *pipeline) expect() sim.WaitEstimate { return expect(p.known.waiting+1, p.known.rate) }
