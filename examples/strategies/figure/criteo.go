package figure

import (
	"math"
	"time"

	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/internal/sim/report"
	"github.com/headgate/headgate/limit"
)

// A way is one way to count the calls of the last minute.
type way struct {
	name string
	make func() estimator
}

// limits are the figures of one stream of calls.
func limits(seed uint64) []report.Figure {
	times := stream(source(seed, "criteo"), measured)
	one := func() estimator { return fixed() }
	slide := func(n int) func() estimator { return func() estimator { return sliding(n) } }
	pictures := []struct {
		id, title, note string
		way             way
	}{
		{"criteo-fixed", "Fixed window", "At the full minute the fixed window forgets everything: " +
			"there it falls to nothing, and lets through what should have been stopped.",
			way{"fixed window", one}},
		{"criteo-two-counters", "Sliding window from two counters", "This minute's count and the " +
			"part of the last minute's that still counts: now too high, now too low, but it no longer " +
			"forgets at the full minute.", way{"two counters", slide(1)}},
		{"criteo-5s", "Sliding window from sub-windows of 5 s", "Twelve sub-windows, and the part of " +
			"a thirteenth, come closer, at thirteen counters a call.", way{"5 s sub-windows", slide(12)}},
		{"criteo-1s", "Sliding window from sub-windows of 1 s", "Sixty sub-windows and the part of one " +
			"more can hardly be told from the perfect window, at 61 counters a call.",
			way{"1 s sub-windows", slide(60)}},
	}
	var figures []report.Figure
	ways := []way{{"time of every call", func() estimator { return &calls{} }}}
	perfect := ways[0].trace(times)
	perfect.Name, perfect.Grey = "perfect sliding window", true
	for _, p := range pictures {
		s := p.way.trace(times)
		s.Dashed = true
		figures = append(figures, report.Figure{
			ID: p.id, Title: p.title, Source: criteo, Note: p.note,
			XLabel: "seconds", YLabel: "calls in the last minute", Series: []report.Series{perfect, s},
		})
		ways = append(ways, p.way)
	}
	return append(figures, costs(times, ways), judged(times), bias(), tokens())
}

// trace draws the estimates of a way for each second of the drawn part. Nothing is rejected.
func (w way) trace(times []time.Duration) report.Series {
	e := w.make()
	return line(w.name, drawn.Seconds(), 1, func(x float64) float64 {
		at := time.Duration(x) * time.Second
		for len(times) > 0 && times[0] <= at {
			e.add(times[0])
			times = times[1:]
		}
		return e.rate(at)
	})
}

// A verdict is the error of an estimator, in calls.
type verdict struct {
	mean, high, low float64 // low is at most 0
}

func (v verdict) worst() float64 { return max(v.high, -v.low) }

// judge compares an estimator with the perfect window after each call, as a limiter would use it.
// Nothing is rejected.
func judge(e estimator, times []time.Duration, truth []float64) verdict {
	var v verdict
	for i, guess := range answers(e, times) {
		off := guess - truth[i]
		v.mean += math.Abs(off) / float64(len(times))
		v.high, v.low = max(v.high, off), min(v.low, off)
	}
	return v
}

// answers returns the estimates after each call.
func answers(e estimator, times []time.Duration) []float64 {
	list := make([]float64, len(times))
	for i, at := range times {
		e.add(at)
		list[i] = e.rate(at)
	}
	return list
}

// costs is the table of the ways, and their error over the number of counters read.
func costs(times []time.Duration, ways []way) report.Figure {
	f := report.Figure{
		ID: "criteo-errors", Title: "Error and cost", Source: criteo,
		XLabel: "counters read for a call", YLabel: "error in calls (limit 100)",
		Note: "More counters bring less and less. The plain window is the first point, this and the " +
			"last minute the second. Nothing is refused here.",
		Table: &report.Table{Columns: []string{"algorithm", "mean error", "worst error",
			"numbers read a call", "written a call", "bytes"}},
	}
	n, truth := float64(len(times)), answers(&calls{}, times)
	for _, w := range ways {
		e := w.make()
		v, c := judge(e, times, truth), e.spent()
		addRow(f.Table, w.name, v.mean, v.worst(), float64(c.read)/n, float64(c.written)/n, c.bytes)
	}

	mean, worst := report.Series{Name: "mean error"}, report.Series{Name: "worst error", Dashed: true}
	point := func(e *windows) {
		v, x := judge(e, times, truth), float64(len(e.counts))
		mean.Add(x, v.mean)
		worst.Add(x, v.worst())
	}
	point(fixed())
	for _, n := range []int{1, 2, 3, 4, 6, 12, 20, 30, 60} { // divisors of 60: whole seconds
		point(sliding(n))
	}
	f.Series = []report.Series{mean, worst}
	return f
}

// clustered returns 100 calls of the minute 00:00 within ten seconds (chosen) from a given time.
func clustered(from time.Duration) []time.Duration {
	times := make([]time.Duration, perMinute)
	for i := range times {
		times[i] = from + time.Duration(2*i+1)*50*time.Millisecond
	}
	return times
}

// late and early are the positions of the calls of the minute 00:00 in the figure of the bias.
const (
	early = 0 * time.Second
	late  = 50 * time.Second
)

// second draws the estimates in the minute 00:01, which has no calls.
func second(name string, e estimator, times []time.Duration) report.Series {
	for _, at := range times {
		e.add(at)
	}
	return line(name, 59, 1, func(x float64) float64 {
		return e.rate(minute + time.Duration(x)*time.Second)
	})
}

func bias() report.Figure {
	truth := second("perfect, calls of 00:00:00–00:00:10", &calls{}, clustered(early))
	other := second("perfect, calls of 00:00:50–00:01:00", &calls{}, clustered(late))
	truth.Grey, other.Grey, other.Dashed = true, true, true
	return report.Figure{
		ID: "criteo-bias", Title: "The bias of two counters", Source: criteo,
		XLabel: "seconds since 00:01:00", YLabel: "calls in the last minute",
		Note: "All 100 calls were in the minute 00:00. The estimate knows only their number: if they " +
			"came early in their minute it is too high, if they came late it is too low.",
		Series: []report.Series{truth, other,
			second("two counters, either way", sliding(1), clustered(late))},
	}
}

func tokens() report.Figure {
	b := keyOf(limit.Rule{Algorithm: limit.TokenBucket, Amount: perMinute, Window: minute})
	rush := func(n int, at time.Duration) {
		for range n {
			b.take(at)
		}
	}
	s := line("tokens", 240, 1, func(x float64) float64 {
		at := time.Duration(x) * time.Second
		switch {
		case x == 10:
			rush(100, at)
		case x == 40:
			rush(50, at)
		case x >= 150: // 120 a minute, more than it fills by
			rush(2, at)
		}
		return float64(b.Peek(limittable.Time(at), 0, "", 0).Remaining)
	})
	return report.Figure{
		ID: "criteo-tokens", Title: "Token bucket", Source: criteo, Step: true,
		XLabel: "seconds", YLabel: "whole tokens",
		Note: "100 calls at 10 s empty it. Half a minute idle adds 50 tokens, which 50 calls take; " +
			"110 s idle fill it, and no more than that. From 150 s on two calls a second come.",
		Series: []report.Series{s},
	}
}
