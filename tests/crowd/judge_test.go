package crowd

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/crowd"
)

// at is a moment of the tests' day, a whole minute at 0.
func at(seconds float64) time.Time {
	return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).
		Add(time.Duration(seconds * float64(time.Second)))
}

func times(seconds ...float64) []time.Time {
	var out []time.Time
	for _, s := range seconds {
		out = append(out, at(s))
	}
	return out
}

func req(visitor string, from, to float64) Request {
	return Request{Visitor: visitor, Span: Span{at(from), at(to)}}
}

func TestInside(t *testing.T) {
	tests := []struct {
		name           string
		requests       []Request
		inside, flight int
	}{
		{"nobody", nil, 0, 0},
		{"one request", []Request{req("a", 1, 2)}, 1, 1},
		{"one after the other", []Request{req("a", 1, 2), req("b", 3, 4)}, 1, 1},
		{"an end that is a beginning", []Request{req("a", 1, 2), req("b", 2, 3)}, 2, 2},
		{"between two requests one is inside",
			[]Request{req("a", 1, 2), req("a", 8, 9), req("b", 4, 5)}, 2, 1},
		{"two requests of one visitor", []Request{req("a", 1, 5), req("a", 2, 3)}, 1, 1},
		{"a long request around a short one",
			[]Request{req("a", 2, 3), req("a", 1, 9), req("b", 8, 10)}, 2, 2},
		{"logged out of order",
			[]Request{req("b", 4, 5), req("a", 8, 9), req("c", 4.5, 6), req("a", 1, 2)}, 3, 2},
		{"no length at all", []Request{req("a", 1, 1), req("b", 1, 1)}, 2, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if n := MaxInside(tt.requests); n != tt.inside {
				t.Errorf("inside %d, want %d", n, tt.inside)
			}
			if n := MaxAtOnce(tt.requests); n != tt.flight {
				t.Errorf("in flight %d, want %d", n, tt.flight)
			}
		})
	}
}

func TestArrivalsAreFirstRequests(t *testing.T) {
	got := Arrivals([]Request{req("b", 7, 8), req("a", 5, 6), req("a", 1, 2), req("b", 9, 10)})
	if d := cmp.Diff(times(1, 7), got); d != "" {
		t.Error(d)
	}
}

func TestMaxInWindow(t *testing.T) {
	tests := []struct {
		name string
		at   []time.Time
		want int
	}{
		{"none", nil, 0},
		{"one", times(5), 1},
		{"exactly a window apart", times(0, 60), 1},
		{"just less", times(0, 59.999999), 2},
		{"over the border of two minutes", times(50, 59, 61, 70), 4},
		{"a pulse each minute is no fault", times(0, 0, 60, 60, 120, 120), 2},
		{"a pulse a moment too early is", times(0, 0, 59.99, 60, 120), 3},
	}
	for _, tt := range tests {
		if n := MaxInWindow(tt.at, time.Minute); n != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, n, tt.want)
		}
	}
}

// The fast arithmetic against the slow and obvious.
func TestAgainstOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var requests []Request
		for range rng.IntN(30) {
			from := float64(rng.IntN(100))
			requests = append(requests, req(fmt.Sprint(rng.IntN(8)), from,
				from+float64(rng.IntN(20))))
		}
		inside, flight, window := 0, 0, 0
		for s := range 125 {
			now := at(float64(s))
			here, busy, fresh := map[string]bool{}, map[string]bool{}, 0
			for _, a := range requests {
				for _, b := range requests {
					if a.Visitor == b.Visitor && !a.From.After(now) && !b.To.Before(now) {
						here[a.Visitor] = true
					}
				}
				if !a.From.After(now) && !a.To.Before(now) {
					busy[a.Visitor] = true
				}
			}
			for _, in := range Arrivals(requests) {
				if !in.After(now) && in.After(now.Add(-10*time.Second)) {
					fresh++
				}
			}
			inside, flight = max(inside, len(here)), max(flight, len(busy))
			window = max(window, fresh)
		}
		got := []int{MaxInside(requests), MaxAtOnce(requests),
			MaxInWindow(Arrivals(requests), 10*time.Second)}
		if d := cmp.Diff([]int{inside, flight, window}, got); d != "" {
			t.Fatalf("%v\n%s", requests, d)
		}
	}
}

func TestSeconds(t *testing.T) {
	whole := []Span{{at(0), at(100)}}
	tests := []struct {
		name             string
		at               []time.Time
		busy             []Span
		aligned, sliding int
	}{
		{"none", nil, whole, 0, 0},
		{"two in a second, three across two", times(1.1, 1.9, 2.05), whole, 2, 3},
		{"exactly a second apart", times(1, 2, 3), whole, 1, 1},
		{"nobody waits", times(1.1, 1.2, 1.3), nil, 0, 0},
		{"the line forms within the second", times(1.1, 1.2, 1.8), []Span{{at(1.5), at(9)}}, 0, 1},
		{"the line ends within the second", times(1.1, 1.2, 5), []Span{{at(0), at(1.9)}}, 0, 2},
		{"spans do not add up", times(1.1, 2.9), []Span{{at(1), at(1.6)}, {at(2.4), at(3)}}, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if n := MaxPerSecond(tt.at, tt.busy); n != tt.aligned {
				t.Errorf("aligned %d, want %d", n, tt.aligned)
			}
			if n := MaxPerSlidingSecond(tt.at, tt.busy); n != tt.sliding {
				t.Errorf("sliding %d, want %d", n, tt.sliding)
			}
		})
	}
}

func TestBusy(t *testing.T) {
	var w Watch
	for i, waiting := range []int{0, 3, 3, 2, 0, 1, 0, 1, 1} {
		w.Samples = append(w.Samples, Sample{At: at(float64(i) / 10), Waiting: waiting})
	}
	w.Samples = append(w.Samples, Sample{At: at(5), Waiting: 1}, Sample{At: at(5.1), Waiting: 1})
	want := []Span{{at(0.2), at(0.3)}, {at(0.8), at(0.8)}, {at(5.1), at(5.1)}}
	if d := cmp.Diff(want, w.Busy()); d != "" {
		t.Error(d)
	}
}

func TestMetric(t *testing.T) {
	text := "# TYPE a_sum counter\na_sum{room=\"x y\"} 1.5\na_sum{room=\"b\"} 2\na_sum_more 9\n" +
		"plain 7 1700000000\n"
	for name, want := range map[string]float64{"a_sum": 3.5, "plain": 7} {
		if v, ok := Metric(text, name); !ok || v != want {
			t.Errorf("%s: %v %v, want %v", name, v, ok, want)
		}
	}
	if _, ok := Metric(text, "a"); ok {
		t.Error("a metric that is not there was found")
	}
}

func TestOriginLogsVisitors(t *testing.T) {
	o, err := StartOrigin()
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	for _, path := range []string{"/", "/shop" + LeavePath, "/probe"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, o.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if path != "/probe" {
			r.Header.Set(crowd.VisitorHeader, "7")
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		revoked := resp.Header.Get("Headgate-Command") == "revoke"
		if revoked != strings.HasSuffix(path, LeavePath) {
			t.Errorf("%s: revoked %v", path, revoked)
		}
	}
	after := time.Now()
	log := o.Requests()
	if len(log) != 2 || o.Strangers() != 1 {
		t.Fatalf("log %v, %d strangers", log, o.Strangers())
	}
	last := before
	for _, r := range log {
		if r.Visitor != "7" || r.From.Before(last) || r.To.Before(r.From) || r.To.After(after) {
			t.Errorf("logged %v, want it after %v and before %v", r, last, after)
		}
		last = r.To
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}

// goodRun is a run without fault: four at once and per minute, ten waiting.
func goodRun() *Run {
	r := &Run{
		Limits: Limits{Total: 4, New: 4, Spare: 1, EmptySeconds: 1.5, EstimateOK: 0.9,
			Window: time.Minute},
		Room:    &Watch{},
		Metrics: "headgate_call_empty_seconds_sum 12\nheadgate_call_empty_seconds_count 10\n",
		Crowd:   &crowd.Result{StartedAt: at(0)},
	}
	for i := range 10 {
		in := float64(i) * 15.5
		r.Origin = append(r.Origin, req(fmt.Sprint(i), in, in+1), req(fmt.Sprint(i), in+30, in+31))
		secs := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
		r.Crowd.Visitors = append(r.Crowd.Visitors, crowd.Visitor{
			ID: i, Number: uint64(i + 1), Outcome: crowd.OutcomeLeft, ArrivedAt: 0,
			CalledAt: secs(in + 2), AdmittedAt: secs(in + 2.1), LeftAt: secs(in + 31),
			Polls: []crowd.Poll{
				{Ask: crowd.AskPoll, State: "waiting", Number: uint64(i + 1), Position: 3,
					AnswerAt: secs(0.1), ETAKnown: true, ETALow: secs(in), ETAHigh: secs(in + 9)},
				{Ask: crowd.AskPoll, State: "called", DueAt: secs(in + 2), SentAt: secs(in + 2),
					AnswerAt: secs(in + 2)},
				{Ask: crowd.AskPage, DueAt: secs(in + 2), SentAt: secs(in + 2),
					AnswerAt: secs(in + 2.1)},
			}})
	}
	r.Analytics = map[string]float64{"admitted": 10, "requests": 20, "sessionsRevoked": 0,
		"joined": 10, "polls": 20}
	for i := range 1000 {
		r.Room.Samples = append(r.Room.Samples, Sample{At: at(float64(i) / 10), Active: 3,
			New: 4, Waiting: min(i, 6), TotalLimit: 4, NewLimit: 4})
	}
	return r
}

// Each line of the verdict fails when it should, and only then.
func TestVerdictFindsFaults(t *testing.T) {
	tests := []struct {
		line  string // "" when all is well
		spoil func(*Run)
	}{
		{"", func(*Run) {}},
		{"inside at once", func(r *Run) {
			for i := range r.Origin {
				r.Origin[i].To = r.Origin[i].To.Add(40 * time.Second)
			}
			r.Limits.Total = 3
			r.Room.Samples = r.Room.Samples[:20]
		}},
		{"requests of different visitors", func(r *Run) {
			for v := range 5 {
				r.Origin = append(r.Origin, req(fmt.Sprint(v), 70, 71))
			}
		}},
		{"active and called", func(r *Run) { r.Room.Samples[700].Called = 2 }},
		{"new visitors in any 60 s", func(r *Run) {
			r.Origin = append(r.Origin, req("x", 59.9, 60.1), req("y", 60, 60.1))
		}},
		{"new in the last minute", func(r *Run) { r.Room.Samples[700].New = 5 }},
		{"slots unused", func(r *Run) { r.Room.Samples[1].Active, r.Room.Samples[1].New = 2, 2 }},
		{"slots unused", func(r *Run) { r.Room.Samples = nil }},
		{"overtaken", func(r *Run) {
			p := &r.Crowd.Visitors[8].Polls[0]
			p.DueAt, p.SentAt, p.AnswerAt = 125*time.Second, 125*time.Second, 125*time.Second
			r.Crowd.Visitors[9].CalledAt = 120 * time.Second
		}},
		{"seconds a called slot", func(r *Run) {
			r.Metrics = strings.Replace(r.Metrics, "12", "16", 1)
		}},
		{"seconds a called slot", func(r *Run) { r.Metrics = "" }},
		{"let in per second", func(r *Run) {
			r.Origin = append(r.Origin, req("x", 40.1, 40.2), req("y", 40.3, 40.4),
				req("z", 40.8, 40.9))
			r.Limits.Total, r.Limits.New = 60, 60
			r.Limits.Spare = 60
		}},
		{"let in inside", func(r *Run) {
			for i := range 2 {
				r.Crowd.Visitors[i].Polls[0].ETAHigh = r.Crowd.Visitors[i].Polls[0].ETALow
			}
		}},
		{"let in inside", func(r *Run) {
			for i := range r.Crowd.Visitors {
				r.Crowd.Visitors[i].Polls[0].ETAKnown = false
			}
		}},
		{"places shown", func(r *Run) {
			r.Crowd.Visitors[0].Polls = slices.Insert(r.Crowd.Visitors[0].Polls, 1,
				r.Crowd.Visitors[0].Polls[0])
			r.Crowd.Visitors[0].Polls[1].Position++
		}},
		{"looks", func(r *Run) { r.Room.Failed = 1 }},
		{"let in", func(r *Run) { r.Crowd.Visitors = r.Crowd.Visitors[:3] }},
		{"kept of visitors", func(r *Run) { r.Analytics["admitted"]++ }},
		{"kept of requests", func(r *Run) { r.Strangers++ }},
		{"kept of stays", func(r *Run) { r.Origin[3].Leaves = true }},
		{"kept of places", func(r *Run) { delete(r.Analytics, "joined") }},
		{"errors", func(r *Run) { r.Crowd.Visitors[3].Errors = map[string]int{"timeout": 1} }},
	}
	for _, tt := range tests {
		r := goodRun()
		tt.spoil(r)
		figures := r.Verdict()
		failed := slices.DeleteFunc(slices.Clone(figures), func(f Figure) bool { return f.OK() })
		found := tt.line == "" && len(failed) == 0
		for _, f := range failed {
			found = found || tt.line != "" && strings.HasPrefix(f.Name, tt.line)
		}
		if !found {
			t.Errorf("want a fault in %q\n%s", tt.line, Table(figures))
		}
		if marks := strings.Count(Table(figures), "OVER"); marks != len(failed) {
			t.Errorf("the table marks %d faults of %d", marks, len(failed))
		}
	}
}
