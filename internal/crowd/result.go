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

// An Order reports whether anybody was overtaken.
type Order struct {
	Judged    int           // visitors with a ticket that missed no poll
	Missed    int           // visitors with a ticket that missed one: not judged
	Overtaken int           // judged visitors that a later one overtook
	Worst     time.Duration // the largest proven overtaking
	Example   string        // describes the worst; "" if none
}

// Order checks the order in which tickets were called. It uses only the answers that visitors
// received. Answers do not contain the time of a call, only bounds: it is after the last poll
// answered "waiting" was sent, and before the first answer "called" arrived. So a visitor was
// certainly overtaken if a visitor with a higher ticket number had received "called" before the
// first one sent a poll that was still answered "waiting". Two calls closer together than a polling
// interval therefore never count against the server.
//
// A visitor that was admitted without waiting counts as having a higher ticket than all that were
// waiting before it sent its first request.
//
// Both visitors of a pair must have missed no poll (Visitor.OnTime), and have solved their challenge if
// they had one: others may be overtaken by the rules, or be late themselves.
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
		case v.OnTime() && !v.Renumbered && v.Solutions == v.Challenges:
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
	first := time.Duration(math.MaxInt64) // the earliest call seen of a higher ticket
	var by *Visitor
	for _, v := range line {
		o.note(v, by, first)
		if c := v.calledBy(); c != Never && c < first {
			first, by = c, v
		}
	}
}

// judgeDirect finds visitors in the line that a later visitor without a ticket has overtaken. It
// goes backward in time: then one pass suffices.
func (o *Order) judgeDirect(line, direct []*Visitor) {
	slices.SortFunc(direct, func(a, b *Visitor) int {
		return cmp.Compare(b.Polls[0].SentAt, a.Polls[0].SentAt)
	})
	line = slices.Clone(line)
	slices.SortFunc(line, func(a, b *Visitor) int {
		return cmp.Compare(b.firstWaiting().AnswerAt, a.firstWaiting().AnswerAt)
	})
	first := time.Duration(math.MaxInt64) // the earliest admission of a later arrival
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
		o.Example = fmt.Sprintf("ticket %d (visitor %d) still had to wait at %v, "+
			"ticket %d (visitor %d) was called before %v", v.Number, v.ID,
			still.Round(time.Millisecond), by.Number, by.ID, at.Round(time.Millisecond))
	}
}

// calledBy returns a time by which the visitor had been called, or Never.
func (v *Visitor) calledBy() time.Duration {
	if v.CalledAt != Never {
		return v.CalledAt
	}
	return v.AdmittedAt
}

// waitingAfter returns a lower bound of the time of the call: when the visitor sent its last own
// request that was answered "waiting", or Never.
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

// An Accuracy reports whether the estimates shown were right.
type Accuracy struct {
	Judged  int // admitted after a wait, and shown a range
	Inside  int // of these, admitted within the range
	Early   int // admitted before it
	Late    int // admitted after it
	Unknown int // admitted after a wait without a range half-way: not judged
}

// Share returns Inside / Judged, or 0 when nobody was judged.
func (a Accuracy) Share() float64 {
	if a.Judged == 0 {
		return 0
	}
	return float64(a.Inside) / float64(a.Judged)
}

// Accuracy checks the range that each visitor was shown half-way through its wait. It takes the
// poll answered "waiting" that is nearest to half of the time from arrival to admission. The range
// counts from that answer. The admission is the origin's answer, so it includes the time until the
// visitor noticed its call. There is no tolerance.
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

// PositionsRisen returns the number of polls with a position further back than an earlier one of
// the same ticket.
func (r *Result) PositionsRisen() int {
	n := 0
	for i := range r.Visitors {
		best, number := int64(math.MaxInt64), uint64(0)
		for j := range r.Visitors[i].Polls {
			p := &r.Visitors[i].Polls[j]
			if p.Position <= 0 || p.State != stateWaiting {
				continue
			}
			if p.Number != number { // another ticket, which stands at the end of the line
				best, number = math.MaxInt64, p.Number
			}
			if p.Position > best {
				n++
			}
			best = min(best, p.Position)
		}
	}
	return n
}
