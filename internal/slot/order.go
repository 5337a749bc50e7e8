package slot

import (
	"slices"
	"time"
)

// The order between counters. While visitors wait in several data centers, every counter returns
// its free slots, and Anywhere lends them to the counter whose next visitor has waited longest. So
// later arrivals elsewhere overtake nobody, except within the time that messages take
// (docs/design.md §2, promise 3).

// maxQueue is how many arrivals a counter sends: those that it could call within a round trip to
// Anywhere. Chosen.
const maxQueue = 256

// queueKept is how long a queue counts that its counter has not sent again: three heartbeats. A
// counter that is cut off must not hold up the others. Chosen.
const queueKept = 3 * time.Second

// front is what a counter has reported about its waiting visitors.
type front struct {
	at    time.Duration // own clock when it was received
	since time.Duration // visitors have waited there since
	line  []Time        // arrivals of the next visitors, in order
	last  Time          // last reported arrival: those behind came later
	more  bool          // there are more behind
	need  int64
}

// noteFront records which visitors wait at the sender of x.
func (p *Pool) noteFront(clk time.Duration, x *Sync) {
	if !p.par.Counters {
		return
	}
	if p.fronts == nil {
		p.fronts = map[LoanID]*front{}
	}
	if x.Need == 0 {
		delete(p.fronts, x.Loan)
		return
	}
	if !p.queueing(clk) { // the other counters do not know yet
		p.recalled = 0
	}
	f := &front{
		at: clk, since: clk, line: slices.Clone(x.Queue), need: x.Need, last: p.CounterTime(clk),
		more: x.Need > int64(len(x.Queue)),
	}
	if n := len(f.line); n > 0 {
		f.last = f.line[n-1]
	}
	if was := p.fronts[x.Loan]; was != nil && clk-was.at < queueKept {
		f.since = was.since
	}
	p.fronts[x.Loan] = f
}

// queueing reports whether visitors wait at any counter.
func (p *Pool) queueing(clk time.Duration) bool {
	for _, f := range p.fronts {
		if clk-f.at < queueKept {
			return true
		}
	}
	return false
}

// share gives free slots to the counters that need them, in the order of their visitors' arrivals.
// A counter without an open request right now keeps its turn, because it will request again.
func (p *Pool) share(clk time.Duration, r *Record, syncs []*Sync) map[LoanID]int64 {
	got := map[LoanID]int64{}
	open := map[LoanID]int64{}
	for _, x := range syncs {
		if l := r.loan(x.Loan); l != nil && !l.Dead {
			open[x.Loan] = max(0, x.Need-(l.Granted-x.Granted))
		}
	}
	for free := r.Free() - p.calls; free > 0 && p.lendDue(clk); free-- {
		first, arrival := LoanID(0), Never
		for i := range r.Loans { // in the order of the record, so that each run gives the same result
			id := r.Loans[i].ID
			f := p.fronts[id]
			if f == nil || clk-f.at >= queueKept || len(f.line) == 0 && !f.more {
				continue
			}
			if a := f.next(); a < arrival || first == 0 {
				first, arrival = id, a
			}
		}
		if first == 0 || open[first] == 0 || len(p.fronts[first].line) == 0 && p.elsewhere(clk, first) {
			break
		}
		got[first]++
		p.lent(clk)
		p.fronts[first].took()
		if open[first]--; open[first] == 0 { // it will report the next arrivals
			delete(p.fronts, first)
		}
	}
	return got
}

// elsewhere reports whether visitors wait at any other counter.
func (p *Pool) elsewhere(clk time.Duration, me LoanID) bool {
	for id, f := range p.fronts {
		if id != me && clk-f.at < queueKept && (len(f.line) > 0 || f.more) {
			return true
		}
	}
	return false
}

// next returns the arrival of the first visitor. Visitors behind the reported ones are known to
// have come later.
func (f *front) next() Time {
	if len(f.line) > 0 {
		return f.line[0]
	}
	return f.last
}

func (f *front) took() {
	if len(f.line) > 0 {
		f.line = f.line[1:]
	}
}

// Arrivals returns the arrivals of up to k tickets in the order in which Call would call them,
// exact to a sixteenth of a second, and never later than the truth. Where 64 joins took more than 68
// minutes, an arrival may be earlier by the time beyond that.
func (l *Line) Arrivals(now Time, k int) []Time {
	var at []Time
	for n, blocked := range l.upcoming(now) { // by rank: a ticket of a draw is not at its number
		if blocked || len(at) >= k {
			break
		}
		c, i := l.find(n)
		ticks := int64(c.born[i>>6]) + int64(c.places[i].born)
		at = append(at, l.origin+Time(ticks*int64(lineTick)))
	}
	return at
}

// IsBehind reports whether somebody is to be called before a ticket of this number would be. The ticket
// need not hold a place.
func (l *Line) IsBehind(number uint64, now Time) bool {
	for n := range l.upcoming(now) {
		return n < l.rank(number)
	}
	return false
}

// Before returns how many places are before a number, which need not hold one.
func (l *Line) Before(number uint64) int64 { return int64(l.before(liveSet, l.rank(number))) }

// ArrivalAt returns the arrival of the first place that is not before a number; see Arrivals.
func (l *Line) ArrivalAt(number uint64) (at Time, ok bool) {
	n, p := l.from(liveSet, l.rank(number))
	if p == nil {
		return 0, false
	}
	c, i := l.find(n)
	return l.origin + Time((int64(c.born[i>>6])+int64(p.born))*int64(lineTick)), true
}
