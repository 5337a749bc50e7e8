package origin

import (
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/histogram"
)

// These are what a run is judged by. maxSlow and maxFailed are what p95 and "errors: 1%" mean.
const (
	window    = 30 * time.Second // chosen: some thousand requests
	maxSlow   = 0.05
	maxFailed = 0.01
	settling  = 5 * time.Minute // in the beginning, the limit may be looked for
	react     = 30 * time.Second
	regain    = 6 * time.Minute // to find capacity that is back
)

// A Result is what the people saw.
type Result struct {
	Name    string
	Served  int64         // of them, who did not give up, while the origin was within its target
	Left    int64         // people whose session ended
	Over    float64       // share of time over the target after the first five minutes
	Swing   float64       // of the limit while nothing changes: half the range of 90 % of the time
	Again   int64         // of those served: some minutes after the capacity came back, and later
	Back    time.Duration // after the capacity fell, until a minute within the target begins
	Down    bool          // most requests of a window failed
	Worst   float64       // greatest share of slow or failed requests in a window after five minutes
	Inside  []float64     // each window: mean of people inside,
	Limit   []float64     // the limit,
	Slow    []float64     // and the share of slow or failed requests
	Reasons map[string]int

	idle []histogram.Counts
}

// A judge sees everything that people see.
type judge struct {
	s       *Scenario
	targets []time.Duration
	noise   float64 // factor of measured latencies
	idle    []histogram.Counts

	all, slow, failed, left, gaveUp, seconds int64
	inside                                   float64
	limit                                    int64

	windows, over int
	good          int       // windows within the target, in a row, since the fall
	calm          []float64 // limits while nothing changes, each second
	res           Result
}

func (j *judge) begin(r *run) {
	j.s, j.noise, j.targets = r.s, 1, r.s.targets
	j.res.Back = -1
	j.idle = make([]histogram.Counts, len(r.plant.routes))
	j.res.Reasons = map[string]int{}
}

// answer judges one answer. What is slow by nature has a target of its own.
func (j *judge) answer(route int, latency time.Duration, failed bool) {
	j.all++
	if j.targets == nil {
		j.idle[route].Add(latency, 1)
		return
	}
	if failed {
		j.failed++
	}
	if failed || latency > j.targets[route] {
		j.slow++
	}
}

// leave counts a session that has ended.
func (j *judge) leave(gaveUp bool) {
	j.left++
	if gaveUp {
		j.gaveUp++
	}
}

// second is called each second.
func (j *judge) second(r *run) {
	j.inside += float64(r.inside)
	j.limit = r.limits.Active
	j.res.Reasons[string(r.limits.Reason)]++
	if s := j.s.calm; s[0] <= r.now && r.now < s[1] {
		j.calm = append(j.calm, float64(r.limits.Active))
	}
	if j.seconds++; r.now == 0 || r.now%window != 0 {
		return
	}
	j.end(r.now)
	j.all, j.slow, j.failed, j.left, j.gaveUp, j.seconds, j.inside = 0, 0, 0, 0, 0, 0, 0
}

// end ends a window.
func (j *judge) end(now time.Duration) {
	res, all := &j.res, float64(max(1, j.all))
	slow, failed := float64(j.slow)/all, float64(j.failed)/all
	// A window with few requests is over when more of them are slow than chance makes so.
	bad := slow > maxSlow+2*math.Sqrt(maxSlow/all) || failed > maxFailed+2*math.Sqrt(maxFailed/all)
	if j.all >= 500 { // chosen: from here on chance is left to the strategy
		bad = slow > maxSlow || failed > maxFailed
	}
	res.Left += j.left
	if !bad {
		res.Served += j.left - j.gaveUp
		if j.s.rises > 0 && now > j.s.rises+regain {
			res.Again += j.left - j.gaveUp
		}
	}
	res.Down = res.Down || failed > 0.5
	if fell := j.s.falls; fell > 0 && now > fell && res.Back < 0 {
		if j.good++; bad {
			j.good = 0
		}
		if j.good >= 2 {
			res.Back = now - 2*window - fell
		}
	}
	if now > settling && !j.excused(now) {
		j.windows++
		if bad {
			j.over++
		}
		res.Worst = max(res.Worst, slow)
	}
	res.Inside = append(res.Inside, j.inside/float64(max(1, j.seconds)))
	res.Limit = append(res.Limit, float64(j.limit))
	res.Slow = append(res.Slow, slow)
}

// excused reports whether nobody could have kept the target: capacity fell, and who is inside is
// not thrown out.
func (j *judge) excused(now time.Duration) bool {
	return j.s.falls > 0 && now > j.s.falls && now-window < j.s.falls+react+j.s.people.drain()
}

func (j *judge) result(name string) *Result {
	j.res.Name, j.res.idle = name, j.idle
	j.res.Over = float64(j.over) / float64(max(1, j.windows))
	if n := len(j.calm); n > 0 {
		sum := 0.0
		for _, x := range j.calm {
			sum += x
		}
		slices.Sort(j.calm)
		j.res.Swing = (j.calm[n*95/100] - j.calm[n*5/100]) / 2 / (sum / float64(n))
	}
	return &j.res
}
