package slot

import (
	"slices"
	"time"
)

// The order between counters. While people stand before the doors of several data
// centres, every counter gives back what is free and Anywhere lends it to the one
// whose next has waited longest: nobody is overtaken by a later arrival elsewhere,
// for the time that it takes to hear of it (docs/design.md §2, promise 3).

// maxQueue is how many arrivals a counter tells: those it could call within the way
// to Anywhere and back. Chosen.
const maxQueue = 256

// queueKept is how long a queue counts that its counter has not repeated: three of
// its beats. A counter that is cut off must not hold up the others. Chosen.
const queueKept = 3 * time.Second

// front is what a counter has said of those who stand before its door.
type front struct {
	at    time.Duration // own clock when it was heard
	since time.Duration // somebody has stood there since
	line  []Time        // arrivals of the next, in order
	last  Time          // of the last that was told: those behind came later
	more  bool          // there are others behind
	need  int64
}

// noteFront remembers who stands before the door of x's sender.
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
	if !p.queueing(clk) { // the others do not know yet
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

// queueing reports whether people stand before any counter's door.
func (p *Pool) queueing(clk time.Duration) bool {
	for _, f := range p.fronts {
		if clk-f.at < queueKept {
			return true
		}
	}
	return false
}

// share gives free slots to those who ask, by the arrival of who stands before their
// doors. One that is not asking right now keeps its turn: it will ask again.
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
		for i := range r.Loans { // in the order of the record: the same on every run
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
		if open[first]--; open[first] == 0 { // it will say who comes next
			delete(p.fronts, first)
		}
	}
	return got
}

// elsewhere reports whether people stand before the door of any other counter.
func (p *Pool) elsewhere(clk time.Duration, me LoanID) bool {
	for id, f := range p.fronts {
		if id != me && clk-f.at < queueKept && (len(f.line) > 0 || f.more) {
			return true
		}
	}
	return false
}

// next is the arrival of the first; of those behind the ones that were told it is
// known that they came later.
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

// Arrivals gives the arrivals of up to k tickets in the order in which Call would
// call them, exact to a sixteenth of a second; see Oldest.
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
