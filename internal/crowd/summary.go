package crowd

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// A Summary holds the figures of a Result.
type Summary struct {
	Visitors int
	Outcomes map[Outcome]int
	Direct   int // admitted without waiting
	Waited   int // had to wait at least once
	Admitted int // admitted, with or without waiting
	Revoked  int // left by the leave page

	// Challenges counts the proofs of work that visitors were to solve, and Solutions those that they
	// solved while they counted.
	Challenges, Solutions int

	Requests int // made inside

	// WaitP50, WaitP90 and WaitP99 are quantiles of the time from arrival to the origin's answer,
	// over visitors that waited and were admitted; 0 when there are none.
	WaitP50, WaitP90, WaitP99 time.Duration

	Polls      int     // of all that waited, including the shared document
	PollsEach  float64 // per visitor that waited
	Errors     map[string]int
	Accuracy   Accuracy
	Order      Order
	RisenPlace int // see Result.PositionsRisen
}

// Summary computes the figures.
func (r *Result) Summary() Summary {
	s := Summary{Visitors: len(r.Visitors), Outcomes: map[Outcome]int{},
		Errors: map[string]int{}, Accuracy: r.Accuracy(), Order: r.Order(),
		RisenPlace: r.PositionsRisen()}
	var waits []time.Duration
	for i := range r.Visitors {
		v := &r.Visitors[i]
		s.Outcomes[v.Outcome]++
		s.Requests += v.Requests
		s.Challenges += v.Challenges
		s.Solutions += v.Solutions
		for kind, n := range v.Errors {
			s.Errors[kind] += n
		}
		if v.Revoked {
			s.Revoked++
		}
		if v.Admitted() {
			s.Admitted++
		}
		switch {
		case v.Waited() && v.Admitted():
			waits = append(waits, v.AdmittedAt-v.ArrivedAt)
			fallthrough
		case v.Waited():
			s.Waited++
			s.Polls += len(v.Polls)
		case v.Admitted():
			s.Direct++
		}
	}
	if s.Waited > 0 {
		s.PollsEach = float64(s.Polls) / float64(s.Waited)
	}
	slices.Sort(waits)
	s.WaitP50, s.WaitP90, s.WaitP99 =
		quantile(waits, 0.50), quantile(waits, 0.90), quantile(waits, 0.99)
	return s
}

// quantile returns the nearest rank of sorted values, or 0 if there are none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}

// OK reports whether the run had no errors and nobody was overtaken.
func (s *Summary) OK() bool { return len(s.Errors) == 0 && s.Order.Overtaken == 0 }

// Write prints the figures, one per line.
func (s *Summary) Write(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(tw, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	line("visitors", "%d (%s)", s.Visitors, s.outcomes())
	line("admitted", "%d, %d of them without waiting; %d requests inside, %d sessions ended by revoke",
		s.Admitted, s.Direct, s.Requests, s.Revoked)
	line("waited", "%d; wait p50 %v  p90 %v  p99 %v", s.Waited,
		tenth(s.WaitP50), tenth(s.WaitP90), tenth(s.WaitP99))
	line("polls", "%d, %.1f per visitor that waited", s.Polls, s.PollsEach)
	if s.Challenges > 0 {
		line("challenges", "%d solved in time of %d; a crowd shares the processors of one machine",
			s.Solutions, s.Challenges)
	}
	line("estimate", "%.1f %% admitted within the range shown half-way: %d of %d "+
		"(%d early, %d late; %d saw no range)", 100*s.Accuracy.Share(), s.Accuracy.Inside,
		s.Accuracy.Judged, s.Accuracy.Early, s.Accuracy.Late, s.Accuracy.Unknown)
	line("order", "%d overtaken of %d that missed no poll (%d missed one)",
		s.Order.Overtaken, s.Order.Judged, s.Order.Missed)
	if s.Order.Example != "" {
		line("", "worst by %v: %s", tenth(s.Order.Worst), s.Order.Example)
	}
	if s.RisenPlace > 0 {
		line("", "%d answers showed a place further back than before", s.RisenPlace)
	}
	if len(s.Errors) == 0 {
		line("errors", "none")
	}
	for i, kind := range slices.Sorted(maps.Keys(s.Errors)) {
		name := ""
		if i == 0 {
			name = "errors"
		}
		line(name, "%d × %s", s.Errors[kind], kind)
	}
	return tw.Flush()
}

func (s *Summary) outcomes() string {
	var parts []string
	for _, o := range []Outcome{OutcomeLeft, OutcomeInside, OutcomeWaiting, OutcomeGaveUp,
		OutcomeSentBack, OutcomeRefused, OutcomeAbsent} {
		if n := s.Outcomes[o]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, o))
		}
	}
	return strings.Join(parts, ", ")
}

func tenth(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
