package baseline

import (
	"time"

	"github.com/headgate/headgate/internal/sim"
)

// A picture is the state of the room, as cloudflare2023 describes it.
type picture struct {
	minute  int32
	active  int64
	fresh   int64 // admitted during the minute
	waiting int64
	rate    int64 // admitted during the minute before
}

// shares are the values by which slots are divided.
type shares struct {
	seen    []int64 // users seen at each data center, inside or waiting: trafficHistory
	workers int     // globalWorkersActive
}

// pulse is how often the pipeline publishes a snapshot. Chosen; "within seconds".
const pulse = time.Second

// These are the events of the models with a pipeline. An event of kindShares calls observe.
const (
	kindPulse int32 = iota
	kindShares
)

// A pipeline distributes the state to all data centers: a snapshot each second, and the shares each
// period. Both arrive everywhere at once, after the scenario's StateLag. Shares are sent early
// enough to arrive at the end of the period, and apply to the next one. All workers of a data
// center count as active if anybody was there in the period.
type pipeline struct {
	w      *sim.World
	s      *sim.Scenario
	period int32 // minutes

	truth picture // the true state; only the pipeline sees it
	seen  []int64
	came  []bool // of each site: had visitors in this period
	sent  []picture
	beat  int64

	known  picture // the state that every data center knows
	shares shares
	coming shares
}

func newPipeline(s *sim.Scenario, w *sim.World, period int32) pipeline {
	n := len(s.Datacenters)
	p := pipeline{w: w, s: s, period: period, seen: make([]int64, n), came: make([]bool, n), beat: -1}
	p.sent = make([]picture, 1+(s.StateLag+pulse-1)/pulse)
	p.shares = shares{seen: make([]int64, n)}
	p.coming = shares{seen: make([]int64, n)}
	w.At(0, kindPulse, 0, 0)
	w.At(time.Duration(period)*time.Minute-p.ahead(), kindShares, 0, 0)
	return p
}

// arrived, waits, admitted, called and gone report events at a site to the pipeline.
func (p *pipeline) arrived(site int32) { p.came[site] = true; p.seen[site]++ }
func (p *pipeline) waits()             { p.truth.waiting++ }
func (p *pipeline) admitted()          { p.truth.active++; p.truth.fresh++ }
func (p *pipeline) called()            { p.truth.waiting--; p.admitted() }
func (p *pipeline) gone(site int32)    { p.truth.active--; p.seen[site]-- }

// pulse creates a snapshot, delivers the one that is due, and reports whether a minute has begun.
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

// observe sends new shares.
func (p *pipeline) observe() {
	c := &p.coming
	c.workers = 0
	for i := range c.seen {
		c.seen[i] = p.seen[i]
		if p.seen[i] > 0 || p.came[i] {
			c.workers += p.s.Datacenters[i].Workers
		}
		p.came[i] = false
	}
	p.w.After(time.Duration(p.period)*time.Minute, kindShares, 0, 0)
}

// ahead returns how long before the end of a period its shares are sent.
func (p *pipeline) ahead() time.Duration { return min(p.s.StateLag, time.Minute) }

// expect returns the estimate for a visitor that begins to wait.
func (p *pipeline) expect() sim.WaitEstimate { return expect(p.known.waiting+1, p.known.rate) }
