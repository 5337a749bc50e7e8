package crowd

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// A Result is the log of a whole run.
type Result struct {
	Seed      uint64
	StartedAt time.Time
	Took      time.Duration
	Visitors  []Visitor // in order of arrival
}

// Order says whether anybody was overtaken.
type Order struct {
	Judged    int           // visitors with a ticket who missed no poll
	Missed    int           // visitors with a ticket who missed one: not judged
	Overtaken int           // judged visitors that a later one got ahead of
	Worst     time.Duration // the longest by which one was, proven
	Example   string        // of the worst; "" when there is none
}

// Order judges the order in which tickets were called, from what visitors were
// told and nothing else. The moment of a call is not told, only bounded: it
// comes after the visitor sent the last poll that was answered "waiting", and
// before the answer "called" was in. So a visitor was overtaken, beyond doubt,
// if one with a higher ticket number had its answer "called" before the visitor
// sent a poll that was still answered "waiting". Two calls closer together than
// a polling interval are thus never held against the server.
//
// A visitor who was let in without ever waiting counts as one with a ticket
// higher than all that were waiting before it sent its first request.
//
// Both of a pair must have missed no poll (Visitor.OnTime): others may rightly
// be passed, or be late themselves.
func (r *Result) Order() Order {
	var o Order
	var line []*Visitor
	var direct []*Visitor
	for i := range r.Visitors {
		v := &r.Visitors[i]
		switch {
		case v.Admitted() && !v.Waited():
			direct = append(direct, v)
		case v.Number == 0:
		case v.OnTime() && !v.Renumbered:
			line = append(line, v)
		default:
			o.Missed++
		}
	}
	o.Judged = len(line)
	o.judgeLine(line)
	o.judgeDirect(line, direct)
	return o
}

func (o *Order) judgeLine(line []*Visitor) {
	slices.SortFunc(line, func(a, b *Visitor) int { return cmp.Compare(b.Number, a.Number) })
	first := time.Duration(math.MaxInt64) // the first call seen of a higher ticket
	var by *Visitor
	for _, v := range line {
		o.note(v, by, first)
		if c := v.calledBy(); c != Never && c < first {
			first, by = c, v
		}
	}
}

func (o *Order) judgeDirect(line, direct []*Visitor) {
	slices.SortFunc(direct, func(a, b *Visitor) int {
		return cmp.Compare(b.Polls[0].SentAt, a.Polls[0].SentAt)
	})
	line = slices.Clone(line)
	slices.SortFunc(line, func(a, b *Visitor) int {
		return cmp.Compare(b.firstWaiting().AnswerAt, a.firstWaiting().AnswerAt)
	})
	first := time.Duration(math.MaxInt64) // the first one let in of those who came later
	var by *Visitor
	next := 0
	for _, v := range line {
		since := v.firstWaiting().AnswerAt
		for ; next < len(direct) && direct[next].Polls[0].SentAt > since; next++ {
			if d := direct[next]; d.AdmittedAt < first {
				first, by = d.AdmittedAt, d
			}
		}
		o.note(v, by, first)
	}
}

// note counts v as overtaken if it was still waiting after by was called. A
// visitor overtaken by a ticket and by a newcomer counts twice.
func (o *Order) note(v, by *Visitor, at time.Duration) {
	still := v.waitingAfter()
	if by == nil || still == Never || at >= still {
		return
	}
	o.Overtaken++
	if d := still - at; d > o.Worst {
		o.Worst = d
		o.Example = fmt.Sprintf("ticket %d (visitor %d) was told to wait on asking at %v, "+
			"ticket %d (visitor %d) had been called by %v", v.Number, v.ID,
			still.Round(time.Millisecond), by.Number, by.ID, at.Round(time.Millisecond))
	}
}

// calledBy is a time by which the visitor had been called, or Never.
func (v *Visitor) calledBy() time.Duration {
	if v.CalledAt != Never {
		return v.CalledAt
	}
	return v.AdmittedAt
}

// waitingAfter is a time after which the visitor was called, if ever: when it
// sent its last request of its own that was answered "waiting", or Never.
func (v *Visitor) waitingAfter() time.Duration {
	last := Never
	for i := range v.Polls {
		p := &v.Polls[i]
		if v.CalledAt != Never && p.SentAt >= v.CalledAt {
			break
		}
		if p.Ask != AskServed && p.State == stateWaiting {
			last = p.SentAt
		}
	}
	return last
}

// Accuracy says whether the estimates that were shown came true.
type Accuracy struct {
	Judged  int // visitors let in after a wait, who were shown a range
	Inside  int // of these, let in inside the range
	Early   int // let in before it
	Late    int // let in after it
	Unknown int // let in after a wait, shown no range half-way: not judged
}

// Share is Inside of Judged, 0 when nobody was judged.
func (a Accuracy) Share() float64 {
	if a.Judged == 0 {
		return 0
	}
	return float64(a.Inside) / float64(a.Judged)
}

// Accuracy judges the range each visitor was shown half-way through its wait:
// of the polls that were answered "waiting", the one answered nearest to half
// of the time from arrival to admission. The range counts from that answer, and
// the admission is the origin's answer, so it includes the time until the
// visitor noticed that it was called. No slack is given.
func (r *Result) Accuracy() Accuracy {
	var a Accuracy
	for i := range r.Visitors {
		v := &r.Visitors[i]
		if !v.Admitted() || !v.Waited() {
			continue
		}
		p := v.halfway()
		switch {
		case p == nil || !p.ETAKnown:
			a.Unknown++
			continue
		case v.AdmittedAt < p.AnswerAt+p.ETALow:
			a.Early++
		case v.AdmittedAt > p.AnswerAt+p.ETAHigh:
			a.Late++
		default:
			a.Inside++
		}
		a.Judged++
	}
	return a
}

func (v *Visitor) halfway() *Poll {
	half := v.ArrivedAt + (v.AdmittedAt-v.ArrivedAt)/2
	var best *Poll
	for i := range v.Polls {
		p := &v.Polls[i]
		if p.Ask == AskServed || p.State != stateWaiting {
			continue
		}
		if best == nil || (p.AnswerAt-half).Abs() < (best.AnswerAt-half).Abs() {
			best = p
		}
	}
	return best
}

// MostCalls is the greatest number of calls within any time of length w, as
// far as the answers prove it: "served" said by an answer that was in by the
// end of the time, less the least said on a poll sent after its beginning. It
// sees calls, not admissions: a visitor notices its call when it asks next.
func (r *Result) MostCalls(w time.Duration) uint64 {
	var polls []*Poll
	for i := range r.Visitors {
		for j := range r.Visitors[i].Polls {
			p := &r.Visitors[i].Polls[j]
			if p.Ask != AskServed && p.State != "" && p.Served > 0 {
				polls = append(polls, p)
			}
		}
	}
	bySent := slices.Clone(polls)
	slices.SortFunc(bySent, func(a, b *Poll) int { return cmp.Compare(a.SentAt, b.SentAt) })
	slices.SortFunc(polls, func(a, b *Poll) int { return cmp.Compare(a.AnswerAt, b.AnswerAt) })
	least := make([]uint64, len(bySent)) // said on any poll sent from here on
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

// PositionsRisen counts the polls that showed a visitor a place further back
// than it had been shown before.
func (r *Result) PositionsRisen() int {
	n := 0
	for i := range r.Visitors {
		best := int64(math.MaxInt64)
		for j := range r.Visitors[i].Polls {
			p := &r.Visitors[i].Polls[j]
			if p.Position <= 0 || p.State != stateWaiting {
				continue
			}
			if p.Position > best {
				n++
			}
			best = min(best, p.Position)
		}
	}
	return n
}
