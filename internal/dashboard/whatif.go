package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"math"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/headgate/headgate/internal/sim"
	"github.com/headgate/headgate/internal/sim/lending"
)

// These constants limit a simulation. Chosen: an hour of 100 arrivals a second, and as long as a
// person waits.
const (
	mostArrivals = 400_000
	longestRun   = 20 * time.Second
	mostWhatIf   = 4 << 10
	shortestPast = 30 * time.Second // below it there is not enough data
	longestStay  = 4 * time.Hour
)

// A question holds the limits to simulate.
type question struct {
	Room    string `json:"room"`
	Active  int64  `json:"total_active_users"`
	New     int64  `json:"new_users_per_minute"`
	Session int64  `json:"session_seconds"`
}

// fault returns the first invalid field of a question.
func (q *question) fault() (field, problem string) {
	switch {
	case q.Active < 1 || q.Active > math.MaxInt32:
		return "total_active_users", "must be a whole number from 1 to 2147483647"
	case q.New < 1 || q.New > math.MaxInt32:
		return "new_users_per_minute", "must be a whole number from 1 to 2147483647"
	case q.Session < 1 || q.Session > 30*24*3600:
		return "session_seconds", "must be a whole number from 1 to 2592000"
	}
	return "", ""
}

// An outcome is the result of one run.
type outcome struct {
	Visitors    int64     `json:"visitors"`
	Admitted    int64     `json:"admitted"`
	Waited      float64   `json:"waited_share"`
	InAll       float64   `json:"waited_seconds"`   // of all, including those still waiting at the end
	Left        int64     `json:"still_waiting"`    // at the end
	WaitP50     float64   `json:"wait_p50_seconds"` // of those that waited and were admitted
	WaitP90     float64   `json:"wait_p90_seconds"`
	WaitMax     float64   `json:"wait_max_seconds"`
	PeakActive  int64     `json:"peak_active"`
	PeakWaiting int64     `json:"peak_waiting"`
	Active      []float64 `json:"active"`
	Waiting     []float64 `json:"waiting"`
}

// An answer holds both runs, and what was observed.
type answer struct {
	From    int64   `json:"from"`    // Unix seconds
	Seconds float64 `json:"seconds"` // of the simulated period
	Session float64 `json:"session_seconds"`
	Seen    outcome `json:"seen"`  // observed by this process, series only
	Now     outcome `json:"now"`   // the model with the current limits
	Other   outcome `json:"other"` // the model with the limits of the question
}

// whatIf handles POST whatif. Only one run is active at a time; it ends when the page disconnects.
func (d *Dashboard) whatIf(w http.ResponseWriter, r *http.Request) {
	_, may := d.reader(r)
	if may == nil {
		refuseReader(w)
		return
	}
	var q question
	// An error means a test server without deadlines.
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(signInWaits))
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostWhatIf)).Decode(&q); err != nil {
		refuse(w, refusal{Status: http.StatusBadRequest, Code: "invalid_body",
			Detail: "the body is invalid", Hint: "send a room and three whole numbers"})
		return
	}
	if field, problem := q.fault(); field != "" {
		refuse(w, refusal{Status: http.StatusUnprocessableEntity, Code: "invalid_question", Field: field,
			Detail: problem, Hint: "write a whole number in that range"})
		return
	}
	d.mu.Lock()
	var past []stretch
	var now Room
	x := d.rings[q.Room]
	if x != nil && may(q.Room) {
		past, now = x.hour(), x.last
	} else {
		x = nil
	}
	d.mu.Unlock()
	if x == nil {
		refuse(w, refusal{Status: http.StatusNotFound, Code: "no_such_room",
			Detail: "there is no such room, or this token may not read it", Hint: "choose a room of the list"})
		return
	}
	select {
	case d.runs <- struct{}{}:
		defer func() { <-d.runs }()
	default:
		w.Header().Set("Retry-After", "5")
		refuse(w, refusal{Status: http.StatusTooManyRequests, Code: "busy",
			Detail: "another simulation is running", Hint: "retry in some seconds"})
		return
	}
	ctx, stop := context.WithTimeout(r.Context(), longestRun)
	defer stop()
	a, err := play(ctx, past, &now, &q)
	if p, ok := errors.AsType[*refusal](err); ok {
		refuse(w, *p)
		return
	}
	if err != nil {
		refuse(w, refusal{Status: http.StatusServiceUnavailable, Code: "not_in_time",
			Detail: "the simulation did not end within " + longestRun.String(),
			Hint:   "the hour was too busy for this page; use headgate simulate with the access log"})
		return
	}
	writeJSON(w, http.StatusOK, a)
}

// Error implements error.
func (p *refusal) Error() string { return p.Detail }

// play runs the past with the current limits, and with others.
func play(ctx context.Context, past []stretch, now *Room, q *question) (*answer, error) {
	session, err := time.ParseDuration(now.SessionDuration)
	if err != nil {
		return nil, err
	}
	var came int64
	for _, x := range past {
		came += x.came
	}
	seen := time.Duration(len(past)) * coarseEach
	switch {
	case seen < shortestPast || came == 0:
		return nil, &refusal{Status: http.StatusUnprocessableEntity, Code: "nothing_seen",
			Detail: "no visitors came to this room in the last hour",
			Hint:   "the data begins with the process; retry after visitors have come"}
	case came+past[0].hadActive+past[0].hadWaits > mostArrivals:
		return nil, &refusal{Status: http.StatusUnprocessableEntity, Code: "too_many",
			Detail: "more visitors came than this page can simulate",
			Hint:   "use headgate simulate with the access log"}
	}
	a := &answer{From: past[0].at, Seconds: seen.Seconds(), Session: stay(past, session).Seconds()}
	a.Seen = seenIn(past)
	limits := sim.Limits{Active: now.TotalActiveUsers, New: now.NewUsersPerMinute, Session: session,
		Window: time.Minute}
	if a.Now, err = run(ctx, past, limits, stay(past, session)); err != nil {
		return nil, err
	}
	limits.Active, limits.New = q.Active, q.New
	limits.Session = time.Duration(q.Session) * time.Second
	a.Other, err = run(ctx, past, limits, stay(past, session))
	return a, err
}

// stay estimates how long visitors are active, from admission to last request. By Little's law the
// number inside is the arrivals per second times the seconds that each is inside.
func stay(past []stretch, session time.Duration) time.Duration {
	var active, admitted int64
	for _, x := range past {
		active += x.active
		admitted += x.admitted
	}
	if admitted == 0 {
		return session
	}
	inside := time.Duration(float64(active) / float64(admitted) * float64(coarseEach))
	return min(max(0, inside-session), longestStay)
}

func seenIn(past []stretch) outcome {
	var o outcome
	for _, x := range past {
		o.Visitors += x.came
		o.Admitted += x.admitted
		o.PeakActive, o.PeakWaiting = max(o.PeakActive, x.active), max(o.PeakWaiting, x.waiting)
		o.Active = append(o.Active, float64(x.active))
		o.Waiting = append(o.Waiting, float64(x.waiting))
	}
	return o
}

// run runs the past against limits. It first adds the visitors that were inside or waiting at the
// beginning, as fast as the limits admit them.
func run(ctx context.Context, past []stretch, l sim.Limits, dwell time.Duration) (outcome, error) {
	before := time.Minute
	if n := past[0].hadActive; n > 0 {
		before += min(time.Hour, time.Duration(float64(n)/float64(l.New)*float64(l.Window)))
	}
	length := before + time.Duration(len(past))*coarseEach
	near := sim.Delay{Least: 100 * time.Microsecond, Mean: 300 * time.Microsecond} // within a machine
	s := &sim.Scenario{
		Name: "past", Limits: l, Length: length,
		Datacenters: []sim.Datacenter{{Name: "here", Workers: 1, Local: near}},
		Arrivals:    arrivals(past, before, dwell),
	}
	r, err := sim.Run(ctx, s, lending.Strategy(), sim.Options{Seed: 1})
	if err != nil {
		return outcome{}, err
	}
	o := outcome{
		Visitors: r.Visitors, Admitted: r.Admitted, Waited: r.WaitedShare, WaitP50: r.WaitP50,
		WaitP90: r.WaitP90, WaitMax: r.WaitMax, PeakActive: r.PeakActive, PeakWaiting: r.PeakWaiting,
	}
	for i := range past { // the series, at the times of the observations
		at := before + time.Duration(i+1)*coarseEach
		k := min(int(at/r.Series.Step), len(r.Series.Active)-1)
		o.Active = append(o.Active, r.Series.Active[k])
		o.Waiting = append(o.Waiting, r.Series.Waiting[k])
		o.InAll += r.Series.Waiting[k] * coarseEach.Seconds()
	}
	o.Left = int64(o.Waiting[len(o.Waiting)-1])
	return o, nil
}

// arrivals returns the arrivals of the past, spread evenly over each stretch.
func arrivals(past []stretch, before, dwell time.Duration) func(uint64) iter.Seq[sim.Arrival] {
	return func(seed uint64) iter.Seq[sim.Arrival] {
		return func(yield func(sim.Arrival) bool) {
			r := rand.New(rand.NewPCG(seed, 0))
			looks := func() time.Duration { return time.Duration(r.ExpFloat64() * float64(dwell)) }
			begin := 5 * time.Second // the process has started before
			for i := range past[0].hadActive {
				at := begin + time.Duration(float64(i)/float64(past[0].hadActive)*float64(before-begin))
				if !yield(sim.Arrival{At: at, Dwell: before - at + looks()}) {
					return
				}
			}
			for range past[0].hadWaits {
				if !yield(sim.Arrival{At: before, Dwell: looks()}) {
					return
				}
			}
			for i, x := range past {
				from := before + time.Duration(i)*coarseEach
				for k := range x.came {
					at := from + time.Duration((float64(k)+r.Float64())/float64(x.came)*float64(coarseEach))
					if !yield(sim.Arrival{At: at, Dwell: looks()}) {
						return
					}
				}
			}
		}
	}
}
