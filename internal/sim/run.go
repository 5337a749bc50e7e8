package sim

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"
)

// Options are the options of one run.
type Options struct {
	Seed     uint64
	Progress func(done float64) // called at intervals, may be nil
	Ideal    *Result            // of the ideal counter on the same traffic, may be nil
}

// A Result holds what the judge counted. Unless noted otherwise, shares are of all visitors, times
// of visitors are in seconds, and latencies in milliseconds.
type Result struct {
	Name               string   `json:"name"`
	Visitors           int64    `json:"visitors"`
	Admitted           int64    `json:"admitted"`
	WaitedShare        float64  `json:"waited_share"` // had to wait at least once
	EarlyShare         float64  `json:"early_share"`  // had to wait while a slot was free and due
	FirstWaitUse       *float64 `json:"first_wait_use"`
	OvershootActive    int64    `json:"overshoot_active"`
	OvershootRate      int64    `json:"overshoot_rate"`
	LatencyP50         float64  `json:"latency_p50_ms"` // added to the first decision
	LatencyP99         float64  `json:"latency_p99_ms"`
	MessagesPerVisitor float64  `json:"messages_per_visitor"`
	OvertakenShare     float64  `json:"overtaken_share"` // of those that waited
	OvertakenWorst     float64  `json:"overtaken_worst_seconds"`
	WaitP50            float64  `json:"wait_p50_seconds"` // of those that waited and were admitted
	WaitP90            float64  `json:"wait_p90_seconds"`
	WaitP99            float64  `json:"wait_p99_seconds"`
	WaitMax            float64  `json:"wait_max_seconds"`
	ExpectError        *float64 `json:"expect_error_p50"` // |waited − expected| ÷ waited; null: no estimates
	ExpectWithin       *float64 `json:"expect_within"`    // share of waits within the estimated range
	ExpectSwing        *float64 `json:"expect_swing_p90"` // change of the expected entry, as a share of the wait
	AdmittedOfIdeal    *float64 `json:"admitted_of_ideal"`
	PeakActive         int64    `json:"peak_active"`
	PeakWaiting        int64    `json:"peak_waiting"`
	Series             Series   `json:"series"`

	mark time.Duration // the last time somebody waited
	by   int64         // admissions until then
}

// A Series holds samples: sample i is at i·Step.
type Series struct {
	Step     time.Duration `json:"step"`
	Active   []float64     `json:"active"`
	Waiting  []float64     `json:"waiting"`
	New      []float64     `json:"new"`      // in the preceding window
	Arrivals []float64     `json:"arrivals"` // per minute
}

// samples is the number of samples of a run: one for each pixel of a small plot. Chosen.
const samples = 600

// ErrNobody means that a scenario has no visitors.
var ErrNobody = errors.New("no visitors")

// NewWorld returns the world of one run, without visitors.
func NewWorld(s *Scenario, st Strategy, seed uint64) *World {
	w := &World{ends: st.Ends, scenario: s, rand: rand.New(rand.NewPCG(seed, 1)), queue: newQueue(),
		entries: map[ID]entry{}}
	w.judge.firstUse = math.Inf(1)
	w.judge.series.Step = max(time.Millisecond, s.Length/samples)
	if st.Spread && s.Limits.New > 0 {
		w.spread = s.Limits.Window / time.Duration(s.Limits.New)
	}
	w.model = st.Make(s, w)
	return w
}

// Run runs a scenario against a strategy, until its end or until ctx is done.
func Run(ctx context.Context, s *Scenario, st Strategy, o Options) (*Result, error) {
	w := NewWorld(s, st, o.Seed)
	if o.Ideal != nil {
		w.judge.mark = o.Ideal.mark
	}
	w.At(0, kindSample, 0, 0)
	for a := range s.Arrivals(o.Seed) {
		if a.At > s.Length {
			break
		}
		if err := w.until(ctx, a.At, o.Progress); err != nil {
			return nil, err
		}
		w.now = max(w.now, a.At)
		w.model.Arrive(w.arrive(a))
	}
	if w.arrived == 0 {
		return nil, ErrNobody
	}
	if err := w.until(ctx, s.Length, o.Progress); err != nil {
		return nil, err
	}
	return w.result(st.Name, o.Ideal), nil
}

// until runs all events that are due up to t.
func (w *World) until(ctx context.Context, t time.Duration, progress func(float64)) error {
	for {
		at, ok := w.queue.peek()
		if !ok || at > t || w.stopped {
			return nil
		}
		e := w.queue.take()
		w.now = e.at
		switch e.kind {
		case kindLeft:
			w.left(e.a)
		case kindSample:
			if err := ctx.Err(); err != nil {
				return err
			}
			w.sample()
			if progress != nil {
				progress(min(1, float64(w.now)/float64(w.scenario.Length)))
			}
		default:
			w.model.Event(e.kind, e.a, e.b)
		}
	}
}

func (w *World) sample() {
	s := &w.judge.series
	active, fresh := w.Inside()
	s.Active = append(s.Active, float64(active))
	s.Waiting = append(s.Waiting, float64(w.waiting))
	s.New = append(s.New, float64(fresh))
	s.Arrivals = append(s.Arrivals, float64(w.arrived-w.judge.sampled)*float64(time.Minute)/float64(s.Step))
	w.judge.sampled = w.arrived
	if w.waiting > 0 {
		w.judge.someoneWaits(w.now)
	}
	w.After(s.Step, kindSample, 0, 0)
}

// result computes the figures of a run.
func (w *World) result(name string, ideal *Result) *Result {
	j := &w.judge
	// Visitors that still wait at the end may have been overtaken too.
	for v := range ID(w.known) {
		if x := w.Visitor(v); x.state == waiting {
			j.order(x, w.passed(x))
		}
	}
	all := float64(w.arrived)
	r := &Result{
		Name: name, Visitors: w.arrived, Admitted: j.admitted,
		WaitedShare: float64(j.waited) / all, EarlyShare: float64(j.early) / all,
		OvershootActive: j.overActive, OvershootRate: j.overNew,
		LatencyP50: millis(j.latency.at(0.5)), LatencyP99: millis(j.latency.at(0.99)),
		MessagesPerVisitor: float64(j.messages) / all,
		OvertakenShare:     float64(j.overtaken) / max(1, float64(j.waited)),
		OvertakenWorst:     j.worst.Seconds(),
		WaitP50:            j.waits.at(0.5).Seconds(), WaitP90: j.waits.at(0.9).Seconds(),
		WaitP99: j.waits.at(0.99).Seconds(), WaitMax: j.waits.most.Seconds(),
		PeakActive: j.peakActive, PeakWaiting: j.peakWaiting, Series: j.series,
		mark: j.lastWait, by: j.by,
	}
	if !math.IsInf(j.firstUse, 1) {
		r.FirstWaitUse = new(j.firstUse)
	}
	if j.expects > 0 {
		r.ExpectError = new(float64(j.errors.at(0.5)) / 1e6)
		r.ExpectWithin = new(float64(j.within) / float64(j.expects))
	}
	if j.swings.n > 0 {
		r.ExpectSwing = new(float64(j.swings.at(0.9)) / 1e6)
	}
	if j.lastWait == 0 {
		r.mark, r.by = w.scenario.Length, j.admitted
	}
	if ideal != nil && ideal.by > 0 {
		r.AdmittedOfIdeal = new(float64(j.by) / float64(ideal.by))
	}
	return r
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
