package crowd

import (
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate/internal/crowd"
)

// Limits are the limits for a run.
type Limits struct {
	Total, New   int           // as headgate was configured
	Spare        int           // slots that may be unused when the first one waits
	EmptySeconds float64       // mean time that a called slot may stay empty
	EstimateOK   float64       // share admitted inside the range shown half-way
	Window       time.Duration // of New
}

// perSecond returns the most admissions allowed in a second while anyone waits: ⌈N/60⌉ + 1, one
// more because a second does not begin with an admission.
func (l *Limits) perSecond() int { return (l.New+59)/60 + 1 }

// A Figure is one line of the verdict.
type Figure struct {
	Name  string
	Reach float64
	Limit float64
	Least bool // Limit is a minimum, not a maximum
	Show  bool // for show: never fails
	Note  string
}

// OK reports whether the figure is within its limit. NaN never is.
func (f *Figure) OK() bool {
	if f.Show {
		return true
	}
	if f.Least {
		return f.Reach >= f.Limit
	}
	return f.Reach <= f.Limit
}

// A Run holds the observations of one run, from all three sides.
type Run struct {
	Limits  Limits
	Origin  []Request
	Room    *Watch
	Metrics string // the text of /metrics at the end
	// Analytics are the totals that headgate has stored for the room, at the end.
	Analytics map[string]float64
	Strangers int // Strangers is the number of requests to the origin from outside the crowd.
	Crowd     *crowd.Result
}

// Verdict compares the run with its limits.
func (r *Run) Verdict() []Figure {
	l := &r.Limits
	in, busy := Arrivals(r.Origin), r.Room.Busy()
	s := r.Crowd.Summary()
	return append(r.kept(), []Figure{
		most("inside at once, by the origin", MaxInside(r.Origin), l.Total),
		most("requests of different visitors in flight", MaxAtOnce(r.Origin), l.Total),
		most("active and called, by the admin address", r.Room.MostActive(), l.Total),
		most("new visitors in any 60 s, by the origin", MaxInWindow(in, l.Window), l.New),
		most("new in the last minute, by the admin address", r.Room.MostNew(), l.New),
		r.firstWaiting(),
		most("overtaken", s.Order.Overtaken, 0).
			note("of %d judged, %d missed a poll %s", s.Order.Judged, s.Order.Missed,
				s.Order.Example),
		r.empty(),
		most("let in per second while anyone waits", MaxPerSecond(in, busy), l.perSecond()),
		show("let in per sliding second, the same", float64(MaxPerSlidingSecond(in, busy))),
		show("called per sliding second, as told", float64(mostCalls(r.Crowd, time.Second))),
		Figure{Name: "let in inside the range shown half-way, %", Least: true,
			Reach: 100 * s.Accuracy.Share(), Limit: 100 * l.EstimateOK}.
			note("of %d judged: %d early, %d late; %d shown none", s.Accuracy.Judged,
				s.Accuracy.Early, s.Accuracy.Late, s.Accuracy.Unknown),
		most("places shown further back than before", s.RisenPlace, 0),
		most("looks at the admin address unanswered", r.Room.Failed, 0),
		least("let in", s.Admitted, l.Total),
		most("errors", sum(s.Errors), 0).note("%s", kinds(s.Errors)),
	}...)
}

// kept compares what headgate has stored about the run with the counts of the origin and the crowd.
// They must be equal.
func (r *Run) kept() []Figure {
	leaves, polls, joined := 0, 0, map[uint64]bool{}
	for _, x := range r.Origin {
		if x.Leaves {
			leaves++
		}
	}
	for i := range r.Crowd.Visitors {
		for _, p := range r.Crowd.Visitors[i].Polls {
			if p.State != "" && p.Ask != crowd.AskServed {
				polls++
			}
			if p.Number > 0 {
				joined[p.Number] = true
			}
		}
	}
	same := func(name, metric string, want int) Figure {
		got, ok := r.Analytics[metric]
		f := Figure{Name: "kept of " + name + ", off by", Reach: math.Abs(got - float64(want))}
		if !ok {
			f.Reach = math.Inf(1)
		}
		return f.note("%.0f kept, %d counted", got, want)
	}
	atEnd := same("polls", "polls", polls)
	atEnd.Show = true // requests in flight at the end are not in its log
	return []Figure{
		same("visitors let in", "admitted", len(Arrivals(r.Origin))),
		same("requests", "requests", len(r.Origin)+r.Strangers),
		same("stays revoked", "sessionsRevoked", leaves),
		same("places given", "joined", len(joined)),
		atEnd,
	}
}

func (r *Run) firstWaiting() Figure {
	f := Figure{Name: "slots unused when the first one waits", Limit: float64(r.Limits.Spare)}
	s, ok := r.Room.FirstWaiting()
	if !ok {
		f.Reach = float64(r.Limits.Total)
		return f.note("nobody ever waited")
	}
	// Use the limits of the run, not those that headgate reports.
	s.TotalLimit, s.NewLimit = r.Limits.Total, r.Limits.New
	f.Reach = float64(s.Shortfall())
	return f.note("active %d, called %d, new %d", s.Active, s.Called, s.New)
}

func (r *Run) empty() Figure {
	f := Figure{Name: "seconds a called slot stays empty, mean", Limit: r.Limits.EmptySeconds}
	total, ok1 := Metric(r.Metrics, "headgate_call_empty_seconds_sum")
	n, ok2 := Metric(r.Metrics, "headgate_call_empty_seconds_count")
	if !ok1 || !ok2 || n == 0 {
		f.Reach = r.Limits.EmptySeconds + 1
		return f.note("headgate_call_empty_seconds has no calls")
	}
	f.Reach = total / n
	return f.note("of %.0f calls", n)
}

func most(name string, reach, limit int) Figure {
	return Figure{Name: name, Reach: float64(reach), Limit: float64(limit)}
}

func least(name string, reach, limit int) Figure {
	return Figure{Name: name, Reach: float64(reach), Limit: float64(limit), Least: true}
}

func show(name string, reach float64) Figure {
	return Figure{Name: name, Reach: reach, Show: true}
}

func (f Figure) note(format string, args ...any) Figure {
	f.Note = strings.TrimSpace(fmt.Sprintf(format, args...))
	return f
}

func sum(m map[string]int) int {
	n := 0
	for _, v := range m {
		n += v
	}
	return n
}

func kinds(m map[string]int) string {
	if len(m) == 0 {
		return ""
	}
	return fmt.Sprint(m)
}

// Table formats figures and their limits.
func Table(figures []Figure) string {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\tfigure\treached\tlimit\t")
	for _, f := range figures {
		mark, limit := "ok", fmt.Sprintf("≤ %.4g", f.Limit)
		switch {
		case f.Show:
			mark, limit = "", ""
		case f.Least:
			limit = fmt.Sprintf("≥ %.4g", f.Limit)
		}
		if !f.OK() {
			mark = "OVER"
		}
		fmt.Fprintf(tw, "%s\t%s\t%.4g\t%s\t%s\n", mark, f.Name, f.Reach, limit, f.Note)
	}
	tw.Flush()
	return b.String()
}
