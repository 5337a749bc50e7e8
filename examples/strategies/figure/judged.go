package figure

import (
	"math"
	"time"

	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/internal/sim/report"
	"github.com/headgate/headgate/limit"
)

const criteo = "Criteo, “Distributed rate limiting” (limit: 100 calls a minute)"

const (
	drawn    = 10 * time.Minute // length of the stream in the pictures; chosen
	measured = 2 * time.Hour    // length of the same stream in the table; chosen
)

// A candidate is a rule of package limit in the table of algorithms.
type candidate struct {
	name string
	rule limit.Rule
	// touched is the number of 64-bit values of a key that a passing call reads or writes, counted
	// in the source of package limit. When a sub-window or a call expires, it is two more.
	touched int
	drawn   bool // in the picture, which has no space for all
	told    bool // the remaining calls are an estimate
}

// candidates are the algorithms of package limit, each with 100 a minute.
func candidates() []candidate {
	window := func(parts int) limit.Rule { return limit.Rule{Algorithm: limit.SlidingWindow, Parts: parts} }
	fixed := func(a limit.Align) limit.Rule { return limit.Rule{Algorithm: limit.FixedWindow, Align: a} }
	tokens, leaky := limit.Rule{Algorithm: limit.TokenBucket}, limit.Rule{Algorithm: limit.LeakyBucket}
	paced := leaky
	paced.Paced = true
	all := []candidate{
		{"sliding_log", limit.Rule{Algorithm: limit.SlidingLog}, 6, true, true},
		{"sliding_window, parts 1", window(1), 3, true, true},
		{"sliding_window, parts 12", window(12), 4, false, true},
		{"sliding_window, parts 60", window(60), 4, false, true},
		{"fixed_window, epoch", fixed(limit.Epoch), 2, true, true},
		{"fixed_window, first_hit", fixed(limit.FirstHit), 2, false, true},
		{"token_bucket", tokens, 3, true, false},
		{"leaky_bucket", leaky, 3, false, false},
		{"leaky_bucket, paced", paced, 3, false, false},
	}
	for i := range all {
		all[i].rule.Amount, all[i].rule.Window = perMinute, minute
	}
	return all
}

// A key is a table of package limit with one key in it.
type key struct{ limittable.Table }

// keyOf creates a key under a valid rule.
func keyOf(rule limit.Rule) *key {
	rules, err := limittable.Compile(rule, nil)
	if err != nil {
		panic(err)
	}
	k := &key{}
	k.SetRules(0, rules, 1)
	return k
}

// take requests one call.
func (k *key) take(at time.Duration) limit.Decision {
	d, _ := k.Take(limittable.Time(at), 0, "", 1) // its error is about costs
	return d
}

// An outcome is the result of a candidate on a stream of calls. A perfect log judges each call,
// based on the calls that the candidate has let pass before.
type outcome struct {
	through int // calls that passed
	most    int // of these, most in any minute; paced calls count when they go
	early   int // rejected with fewer than 100 passed in the last minute
	over    int // passed, although 100 had passed
	// mean and worst are the errors of the reported remaining calls.
	mean, worst float64
	passes      []time.Duration // when they go
}

// play runs the stream against a candidate.
func (c *candidate) play(times []time.Duration) (o outcome) {
	k, truth := keyOf(c.rule), &calls{}
	for _, at := range times {
		d := k.take(at)
		goes := at + d.Wait
		last := int(truth.rate(goes)) // of the last minute
		switch {
		case d.Allowed:
			if last >= perMinute {
				o.over++
			}
			last++
			truth.add(goes)
			o.passes = append(o.passes, goes)
			o.most = max(o.most, last)
		case last < perMinute:
			o.early++
		}
		off := math.Abs(float64(d.Remaining) - float64(max(0, perMinute-last)))
		o.mean, o.worst = o.mean+off/float64(len(times)), max(o.worst, off)
	}
	o.through = len(o.passes)
	return o
}

// trace draws how many calls passed in the last minute.
func (o *outcome) trace(name string) report.Series {
	seen, rest := &calls{}, o.passes
	return line(name, drawn.Seconds(), 1, func(x float64) float64 {
		at := time.Duration(x) * time.Second
		for len(rest) > 0 && rest[0] <= at {
			seen.add(rest[0])
			rest = rest[1:]
		}
		return seen.rate(at)
	})
}

// judged is the table of the algorithms of package limit.
func judged(times []time.Duration) report.Figure {
	f := report.Figure{
		ID: "criteo-limits", Title: "What headgate's algorithms let through", Step: true,
		Source: criteo + "; decided by package limit",
		XLabel: "seconds", YLabel: "calls let through in the last minute",
		Note: "The log is never over the limit and refuses nobody early. Two counters come near. A fixed " +
			"window lets twice as much pass around the full minute, a bucket what it had saved up.",
		Table: &report.Table{Columns: []string{"algorithm", "let through", "most in a minute", "refused early",
			"let through over", "mean error", "worst error", "numbers touched"}},
	}
	f.Series = []report.Series{flat("limit", drawn.Seconds(), perMinute)}
	for _, c := range candidates() {
		o := c.play(times)
		row := []any{c.name, o.through, o.most, o.early, o.over, o.mean, o.worst, c.touched}
		if !c.told {
			row[5], row[6] = "–", "–"
		}
		if c.rule.Paced { // paced calls cannot be compared with immediate ones
			row[3], row[4] = "–", "–"
		}
		addRow(f.Table, row...)
		if c.drawn {
			f.Series = append(f.Series, o.trace(c.name))
		}
	}
	return f
}
