package limittable

import (
	"math"
	"time"

	"github.com/headgate/headgate/limit"
)

// A rejected caller may be given a time to come again. Among waiting callers, such as queues, the
// one that requests most often, or is nearest, would then get whatever is free. So waiting
// borrowers take turns. Each leaves, of what is free, the amount by which every other borrower that
// wants more is behind by its weight (after start-time fair queueing, Goyal and others 1996, with
// the received amount as the virtual time). A key without waiting borrowers keeps no turns.

// What waiting borrowers take is spread over the window. Otherwise an idle limit would give its
// full amount at once, get it back at once a window later, and repeat this forever. The pace may
// catch up for some time, because the borrower whose turn it is may be late or gone.

// A turn is what one borrower of a key has received.
type turn struct {
	who    uint64
	had    float64 // units by weight, relative to the others
	weight float64
	unmet  int64 // how much more it would like
	until  Time  // own clock: its next request is expected before this
	heard  Time
}

// Parameters of turns. Chosen: a rejected borrower comes again at the given time plus a round trip;
// one that has not come for a second starts over.
const (
	turnWait  = Time(100e6)
	turnKept  = Time(1e9)
	turnSoon  = Time(5e6)
	turnAgain = Time(50e6) // maximum delay for another borrower's turn: that one may be gone
	mostTurns = 256
	catchUp   = 10 // fraction of the window
	leastUp   = Time(50e6)
	mostUp    = Time(1e9)
)

// turnOf returns the turn of r's borrower, or nil if the key keeps none.
func (e *entry) turnOf(r *Report, clk Time) *turn {
	m := e.extra()
	if r.Weight == 0 && len(m.turns) == 0 || r.Need == 0 && r.Want == 0 && r.Back == 0 {
		return nil
	}
	rest, mine := m.turns[:0], -1
	least := math.Inf(1) // among the others that want more
	for _, x := range m.turns {
		if x.who != r.Borrower && x.heard+turnKept < clk && x.until < clk {
			continue
		}
		if x.who == r.Borrower {
			mine = len(rest)
		} else if x.until >= clk {
			least = min(least, x.had)
		}
		rest = append(rest, x)
	}
	m.turns = rest
	if mine < 0 {
		if len(rest) == mostTurns {
			return nil
		}
		mine = len(rest)
		m.turns = append(rest, turn{who: r.Borrower})
	}
	x := &m.turns[mine]
	if x.until < clk && !math.IsInf(least, 1) { // a late borrower has no more to catch up than the others
		x.had = max(x.had, least)
	}
	x.heard, x.weight = clk, float64(max(1, r.Weight))
	return x
}

// theirs returns how much of what is free has to be left to others.
func (e *entry) theirs(mine *turn, clk Time) (sum int64) {
	if mine == nil {
		return 0
	}
	for i := range e.more.turns {
		if x := &e.more.turns[i]; x != mine && x.until >= clk && x.had < mine.had {
			sum += min(x.unmet, int64(math.Ceil((mine.had-x.had)*x.weight)))
		}
	}
	return sum
}

// stepOf returns the time between units that are spread over the window, or 0 if they are not spread.
func stepOf(r limit.Rule) Time {
	switch {
	case r.Amount <= 0, r.Algorithm == limit.Concurrency:
	case r.Algorithm == limit.FixedWindow && (r.Window > time.Minute || r.Align > limit.FirstHit):
	default:
		return Time(r.Window) / Time(r.Amount)
	}
	return 0
}

// spreads returns how many of the free units may be taken at the pace of waiting borrowers.
func (e *entry) spreads(l *ruled, window, now Time, free, least int64) int64 {
	if l.step == 0 || free <= 0 {
		return free
	}
	m := e.extra()
	up := max(min(window/catchUp, mostUp), leastUp, 2*l.step)
	if m.step != l.step { // the rules have changed
		m.step, m.next = l.step, 0
	}
	if m.next = min(max(m.next, now-up), now+window); m.next > now {
		return 0
	}
	return min(free, max(int64((now-m.next)/l.step)+1, least))
}

// again returns when a borrower should come again that did not get least: because of the law, which
// allows it after some time, because of other borrowers, or because of the pace.
func (e *entry) again(l *ruled, now Time, least, theirs int64, after time.Duration) time.Duration {
	d := retry(e, l, now, min(least+theirs, l.most))
	if l.step > 0 {
		d = max(d, time.Duration(e.more.next+l.step*Time(min(theirs, mostTurns))-now))
	}
	return max(time.Duration(min(l.step, turnSoon)), min(d, after+time.Duration(turnAgain+l.step)))
}

// took records the result of a report.
func (x *turn) took(r *Report, given, back int64, d *limit.Decision, clk Time) {
	if x == nil {
		return
	}
	x.had += float64(given-back) / x.weight
	if r.Need > 0 {
		x.unmet, x.until = min(max(0, r.Need-given)+r.More, limit.MaxAmount), 0
		if x.unmet > 0 {
			x.until = clk + turnWait
			if !d.Allowed {
				x.until += max(0, min(Time(d.Retry), turnKept))
			}
		}
	}
}
