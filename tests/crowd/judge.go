// Package crowd tests a real headgate process with a crowd of real clients. The origin is the
// judge: the tests compare the limits with what the origin saw, from the first byte in to the last
// byte out, and not with what headgate reports about itself.
//
// The package contains the judging Origin, the analysis of its log, the Watch on the admin address,
// and the table of figures against limits. The tests that start processes take minutes and have
// build tags:
//
//	go test -tags crowd ./tests/crowd        about 75 s, 400 visitors
//	go test -tags soak ./tests/crowd         three minutes more, 10,000 visitors
//
// Without a tag only the judge itself is tested: that it can find each fault. Functions of this
// package are safe for one goroutine, Origin and Watch for many.
package crowd

import (
	"cmp"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/crowd"
)

// A Span is a closed interval of time.
type Span struct{ From, To time.Time }

// A Request is one request as the origin saw it: from the first byte in to the
// last byte out.
type Request struct {
	Visitor string
	Span
	Leaves bool // the answer contains a command to revoke
}

// MaxAtOnce returns the largest number of different visitors with a request in flight at the same
// time.
func MaxAtOnce(requests []Request) int {
	byVisitor := map[string][]Span{}
	for _, r := range requests {
		byVisitor[r.Visitor] = append(byVisitor[r.Visitor], r.Span)
	}
	var spans []Span
	for _, own := range byVisitor {
		spans = append(spans, union(own)...)
	}
	return overlap(spans)
}

// MaxInside returns the largest number of visitors inside at the same time. A visitor is inside
// from the first byte in of its first request to the last byte out of its last.
func MaxInside(requests []Request) int { return overlap(stays(requests)) }

func stays(requests []Request) []Span {
	whole := map[string]Span{}
	for _, r := range requests {
		s, ok := whole[r.Visitor]
		if !ok || r.From.Before(s.From) {
			s.From = r.From
		}
		if !ok || r.To.After(s.To) {
			s.To = r.To
		}
		whole[r.Visitor] = s
	}
	spans := make([]Span, 0, len(whole))
	for _, s := range whole {
		spans = append(spans, s)
	}
	return spans
}

// Arrivals returns the time of the first byte in of each visitor's first request, in order.
func Arrivals(requests []Request) []time.Time {
	var at []time.Time
	for _, s := range stays(requests) {
		at = append(at, s.From)
	}
	slices.SortFunc(at, time.Time.Compare)
	return at
}

// overlap returns the largest number of spans that share an instant. Ends belong to the span: one
// that ends as another begins overlaps it.
func overlap(spans []Span) int {
	type edge struct {
		at   time.Time
		step int
	}
	edges := make([]edge, 0, 2*len(spans))
	for _, s := range spans {
		edges = append(edges, edge{s.From, 1}, edge{s.To, -1})
	}
	slices.SortFunc(edges, func(a, b edge) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(b.step, a.step))
	})
	now, most := 0, 0
	for _, e := range edges {
		now += e.step
		most = max(most, now)
	}
	return most
}

// union joins spans that touch, so that one visitor with two requests in
// flight counts once.
func union(spans []Span) []Span {
	slices.SortFunc(spans, func(a, b Span) int { return a.From.Compare(b.From) })
	var out []Span
	for _, s := range spans {
		if n := len(out); n > 0 && !s.From.After(out[n-1].To) {
			if s.To.After(out[n-1].To) {
				out[n-1].To = s.To
			}
			continue
		}
		out = append(out, s)
	}
	return out
}

// MaxInWindow returns the largest number of times in any window of length w, at every position. Two
// times exactly w apart are not in one window. at must be in order.
func MaxInWindow(at []time.Time, w time.Duration) int {
	most, first := 0, 0
	for i, t := range at {
		for t.Sub(at[first]) >= w {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// MaxPerSecond returns the largest number of times in any whole second of the clock that lies
// within one of the spans. at must be in order.
func MaxPerSecond(at []time.Time, spans []Span) int {
	most, n := 0, 0
	var second time.Time
	for _, t := range at {
		s := t.Truncate(time.Second)
		if !covered(Span{s, s.Add(time.Second)}, spans) {
			continue
		}
		if !s.Equal(second) {
			second, n = s, 0
		}
		n++
		most = max(most, n)
	}
	return most
}

// MaxPerSlidingSecond is the same as MaxPerSecond for seconds that begin anywhere.
func MaxPerSlidingSecond(at []time.Time, spans []Span) int {
	most := 0
	for _, s := range spans {
		if s.To.Sub(s.From) < time.Second {
			continue
		}
		var within []time.Time
		for _, t := range at {
			if !t.Before(s.From) && !t.After(s.To) {
				within = append(within, t)
			}
		}
		most = max(most, MaxInWindow(within, time.Second))
	}
	return most
}

func covered(s Span, by []Span) bool {
	return slices.ContainsFunc(by, func(b Span) bool {
		return !s.From.Before(b.From) && !s.To.After(b.To)
	})
}

// mostCalls returns the largest number of calls within any period of length w, as far as the
// answers prove it. It takes "served" from an answer received by the end of the period, minus the
// lowest value of polls sent after its beginning. It counts calls and not admissions, because a
// visitor notices its call only at its next poll.
func mostCalls(r *crowd.Result, w time.Duration) uint64 {
	var polls []*crowd.Poll
	for i := range r.Visitors {
		for j := range r.Visitors[i].Polls {
			p := &r.Visitors[i].Polls[j]
			if p.Ask != crowd.AskServed && p.State != "" && p.Served > 0 {
				polls = append(polls, p)
			}
		}
	}
	bySent := slices.Clone(polls)
	slices.SortFunc(bySent, func(a, b *crowd.Poll) int { return cmp.Compare(a.SentAt, b.SentAt) })
	slices.SortFunc(polls, func(a, b *crowd.Poll) int { return cmp.Compare(a.AnswerAt, b.AnswerAt) })
	least := make([]uint64, len(bySent)) // lowest value of any poll sent from here on
	for i := len(bySent) - 1; i >= 0; i-- {
		least[i] = bySent[i].Served
		if i+1 < len(bySent) {
			least[i] = min(least[i], least[i+1])
		}
	}
	var most, said uint64
	next := 0
	for i, p := range bySent {
		for ; next < len(polls) && polls[next].AnswerAt <= p.SentAt+w; next++ {
			said = max(said, polls[next].Served)
		}
		if said > least[i] {
			most = max(most, said-least[i])
		}
	}
	return most
}
