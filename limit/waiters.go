package limit

import (
	"math"
	"time"
)

// Who calls a limit may be told to come again; what waits, such as a queue, would then have
// what is left by whoever asks most often, or is nearest. So those who wait take turns: of
// what is free they leave to each other borrower that wants more and has had less by its
// weight as much as it is behind (after start-time fair queueing, Goyal and others 1996, with
// what was had as the virtual time). A key that nobody waits for keeps no turns.

// What they take is spread over the window, as one of them would spread it: all of a limit that
// was idle would go at once, come back at once a window later, and so on for ever. The pace is
// caught up with for some time, for those whose turn it is may be late, or gone.

// A turn is what one borrower of a key has had.
type turn struct {
	who    uint64
	had    float64 // units by weight, since the others
	weight float64
	unmet  int64 // it would have so much more
	until  Time  // own clock: it is expected to ask for that before
	heard  Time
}

// Parameters of turns. Chosen: who is refused comes again when it was told to, a round trip
// later; who has not come for a second begins anew.
const (
	turnWait  = Time(100e6)
	turnKept  = Time(1e9)
	turnSoon  = Time(5e6)
	turnAgain = Time(50e6) // so late at most for what is another's: that one may be gone
	mostTurns = 256
	catchUp   = 10 // a part of the window
	leastUp   = Time(50e6)
	mostUp    = Time(1e9)
)

// turnOf is that of the borrower of r, nil if the key keeps none.
func (e *entry) turnOf(r *Report, clk Time) *turn {
	m := e.extra()
	if r.Weight == 0 && len(m.turns) == 0 || r.Need == 0 && r.Want == 0 && r.Back == 0 {
		return nil
	}
	rest, mine := m.turns[:0], -1
	least := math.Inf(1) // of the others that want more
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
	if x.until < clk && !math.IsInf(least, 1) { // who comes late has no more to come than the others
		x.had = max(x.had, least)
	}
	x.heard, x.weight = clk, float64(max(1, r.Weight))
	return x
}

// theirs is how much of what is free is to be left to others.
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

// step is how far units are apart that are spread over the window, 0 if they are not.
func (r Rule) step() Time {
	switch {
	case r.Amount <= 0, r.Algorithm == Concurrency:
	case r.Algorithm == FixedWindow && (r.Window > time.Minute || r.Align > FirstHit):
	default:
		return Time(r.Window) / Time(r.Amount)
	}
	return 0
}

// spreads is how many of free units may go at the pace of those that wait.
func (e *entry) spreads(l *ruled, window, now Time, free, least int64) int64 {
	if l.step == 0 || free <= 0 {
		return free
	}
	m := e.extra()
	up := max(min(window/catchUp, mostUp), leastUp, 2*l.step)
	if m.step != l.step { // the rules were others
		m.step, m.next = l.step, 0
	}
	if m.next = min(max(m.next, now-up), now+window); m.next > now {
		return 0
	}
	return min(free, max(int64((now-m.next)/l.step)+1, least))
}

// again is when a borrower should come again of whom least was kept because of the law, which
// lets it pass after some time, of others or of the pace.
func (e *entry) again(l *ruled, now Time, least, theirs int64, after time.Duration) time.Duration {
	d := retry(e, l, now, min(least+theirs, l.most))
	if l.step > 0 {
		d = max(d, time.Duration(e.more.next+l.step*Time(min(theirs, mostTurns))-now))
	}
	return max(time.Duration(min(l.step, turnSoon)), min(d, after+time.Duration(turnAgain+l.step)))
}

// took notes what came of a report.
func (x *turn) took(r *Report, given, back int64, d *Decision, clk Time) {
	if x == nil {
		return
	}
	x.had += float64(given-back) / x.weight
	if r.Need > 0 {
		x.unmet, x.until = min(max(0, r.Need-given)+r.More, MaxAmount), 0
		if x.unmet > 0 {
			x.until = clk + turnWait
			if !d.Allowed {
				x.until += max(0, min(Time(d.Retry), turnKept))
			}
		}
	}
}
