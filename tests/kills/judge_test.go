package kills

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// onTime is how late a visitor may be with a request and still count as one who
// asks when it is told to. Chosen: half of the shortest polling interval, and far
// more than a machine with something else to do needs.
const onTime = 500 * time.Millisecond

// claimMemory is how long a claim that is repeated gives the same stay again
// (docs/protocol.md §3), and some seconds for the clock that stands still while
// headgate is down.
const claimMemory = 35 * time.Second

// A finding is the number of faults of one kind, and one of them.
type finding struct {
	n, judged int
	example   string
	about     []*visit // whose logs show it
}

func (f *finding) add(format string, args ...any) {
	if f.n++; f.n == 1 {
		f.example = fmt.Sprintf(format, args...)
	}
}

// lost counts visitors whose ticket was read in full and then not honored: an
// answer named another ticket or none, or said they had no place. If headgate was
// frozen for longer than a stay, one who was about to enter then may have had it.
func lost(visits []*visit, frozen bool) (f finding) {
	for _, v := range visits {
		number, inside := uint64(0), false
		for i := range v.asks {
			a := &v.asks[i]
			inside = inside || frozen && a.kind == askEnter
			if !a.read() || inside {
				continue
			}
			inside = a.origin()
			if number == 0 {
				if number = a.number; number != 0 {
					f.judged++
				}
				continue
			}
			if inside || a.number == number {
				continue
			}
			f.add("%s had ticket %d and was told %q, ticket %d, at %v in life %d", v.name, number,
				a.state, a.number, a.answered, a.life[1])
			f.about = append(f.about, v)
			break
		}
	}
	return f
}

// sentBack counts visitors who were inside, missed nothing, and were made to
// wait again.
func sentBack(visits []*visit) (f finding) {
	for _, v := range visits {
		inside := false
		for i := range v.asks {
			a := &v.asks[i]
			if a.origin() && !inside {
				inside = true
				f.judged++
			}
			if a.sent-a.due > onTime {
				break
			}
			if inside && a.read() && !a.origin() {
				f.add("%s was inside and told %q at %v in life %d", v.name, a.state, a.answered,
					a.life[1])
				f.about = append(f.about, v)
				break
			}
		}
	}
	return f
}

// risen counts answers that showed a ticket further back than before.
func risen(visits []*visit) (f finding) {
	for _, v := range visits {
		best, seen, number := int64(math.MaxInt64), 0, v.number()
		for i := range v.asks {
			a := &v.asks[i]
			if !a.waits() || a.position <= 0 || a.number != number {
				continue // another ticket is a lost one, or a new one after a stay
			}
			if a.position > best {
				f.add("%s, ticket %d, was shown place %d after %d at %v: life %d after %d", v.name,
					a.number, a.position, best, a.answered, a.life[1], seen)
				f.about = append(f.about, v)
			}
			best, seen = min(best, a.position), a.life[1]
			f.judged++
		}
	}
	return f
}

// overtaken counts tickets that a later one got ahead of, life by life.
//
// The moment of a call is not told, only bounded, as in internal/crowd: a
// visitor was overtaken, beyond doubt, if one with a higher ticket had its answer
// "called" before the visitor sent a poll that was still answered "waiting", both
// by the same process. Between two lives nothing can be said: calls are not
// written, so who was called and had not yet asked when the process died is told
// to wait once more, and is called first.
//
// Both must have missed no poll in that life, and have tried to enter in none
// before: a claim that was written and not answered is answered by the next
// process, and the call was that of the one before. A newcomer let in at once counts
// as a later ticket than all who waited before it came.
func overtaken(visits []*visit, lives int) (f finding) {
	for life := range lives {
		var line []place
		for _, v := range visits {
			if p, ok := v.placeIn(life); ok {
				line = append(line, p)
			}
		}
		f.judgeLife(line, life)
	}
	return f
}

// A place is what is known of a visitor in one life of the process.
type place struct {
	v       *visit
	number  uint64        // 0: let in without ever waiting
	came    time.Duration // sent its first request ever
	since   time.Duration // was first told to wait, or never
	called  time.Duration // by then it had been called, or never
	waiting time.Duration // when it last asked and was told to wait, or never
}

// placeIn is ok only for a visitor who asked in that life and missed nothing.
func (v *visit) placeIn(life int) (p place, ok bool) {
	p = place{v: v, number: v.number(), came: v.asks[0].sent, since: never, called: never,
		waiting: never}
	for i := range v.asks {
		a := &v.asks[i]
		if p.called != never || a.life[0] > life {
			break
		}
		if a.sent-a.due > onTime && a.life[1] >= life {
			return p, false
		}
		if p.since == never && a.waits() {
			p.since = a.answered
		}
		switch {
		case !a.in(life) && (a.origin() || a.kind == askEnter): // called before, perhaps inside
			return p, false
		case !a.in(life):
		case a.origin() || a.state == stateCalled:
			p.called = a.answered
		case a.waits() && a.number == p.number && !v.held(i):
			p.waiting = a.sent
		}
	}
	return p, p.called != never || p.waiting != never
}

// heldMost is how long a visitor whose turn it is may be told to wait all the
// same: no second sees more than its share of admissions (docs/protocol.md §8,
// Spread), and who is called keeps its moment.
const heldMost = time.Second

// held reports whether a waiting answer was such a one: it told the visitor to
// come again within a second, and then let it in, or that process ended before.
func (v *visit) held(i int) bool {
	a := &v.asks[i]
	if a.after > heldMost {
		return false
	}
	for j := range v.asks[i+1:] {
		if next := &v.asks[i+1+j]; next.read() {
			return next.life[0] != a.life[0] || next.origin() || next.state == stateCalled
		}
	}
	return true
}

func (f *finding) judgeLife(all []place, life int) {
	slices.SortFunc(all, func(a, b place) int { return cmp.Compare(b.number, a.number) })
	tickets := len(all)
	for tickets > 0 && all[tickets-1].number == 0 {
		tickets--
	}
	var first *place // of the higher tickets, the one that was called first
	for i := range all[:tickets] {
		p := &all[i]
		f.judged++
		by := first
		for j := range all[tickets:] {
			d := &all[tickets+j]
			if d.called != never && p.since != never && d.came > p.since &&
				(by == nil || d.called < by.called) {
				by = d
			}
		}
		if by != nil && p.waiting != never && by.called < p.waiting {
			f.add("life %d: %s, ticket %d, asked at %v and was told to wait; %s, ticket %d, had "+
				"been called by %v", life, p.v.name, p.number, p.waiting, by.v.name, by.number,
				by.called)
			f.about = append(f.about, p.v, by.v)
		}
		if p.called != never && (first == nil || p.called < first.called) {
			first = p
		}
	}
}

// missed counts visitors who were late with a request, and are not judged for
// order or for being sent back from then on.
func missed(visits []*visit) (f finding) {
	for _, v := range visits {
		f.judged++
		for i := range v.asks {
			if a := &v.asks[i]; a.sent-a.due > onTime {
				f.add("%s was late by %v", v.name, a.sent-a.due)
				break
			}
		}
	}
	return f
}

// doubled counts used tickets that did something again, long after their claim.
func (r *run) doubled() (f finding) {
	for _, x := range r.replays {
		if x.age > claimMemory {
			f.judge(x, r.stood(x))
		}
	}
	return f
}

// leaveWritten is how long it may take until a leave is in the record: a worker tells it at once, and
// the write of before, its own and the engine's take a sync each. Chosen: a second, where syncs take
// milliseconds.
func (r *run) leaveWritten() time.Duration {
	longest := time.Duration(0)
	for _, took := range r.fsyncs {
		longest = max(longest, took)
	}
	return max(time.Second, 3*longest)
}

// revived does the same for tickets whose claim is still remembered, but whose
// stay was ended by the origin. One that ended just before a kill may not have
// been written yet: then it still holds its slot.
func (r *run) revived() (f finding) {
	written := r.leaveWritten()
	for _, x := range r.replays {
		unwritten := slices.ContainsFunc(r.kills, func(k kill) bool {
			return k.at > x.revoked && k.at-x.revoked < written
		})
		if x.age <= claimMemory && x.revoked != never && !unwritten {
			f.judge(x, r.stood(x))
		}
	}
	return f
}

// stood reports whether the record stood still when a ticket came again: it was asked in vain for a
// second, or a look soon after tells that no write of the second before is confirmed. A room asks for
// 2 s at most, so the second does not grow with the syncs.
func (r *run) stood(x replay) bool {
	if x.took >= time.Second {
		return true
	}
	i := slices.IndexFunc(r.gauges, func(g gauge) bool { return g.at >= x.at })
	if i < 0 {
		return false
	}
	g := &r.gauges[i]
	written := g.at - time.Duration(g.age*float64(time.Second))
	return written <= x.at-time.Second
}

// judge finds a used ticket that was good once more. A room whose record stands still shows
// the waiting page whatever ticket comes: that says nothing of the ticket.
func (f *finding) judge(r replay, stood bool) {
	if !r.answered {
		return
	}
	f.judged++
	switch {
	case r.admitted:
		f.add("%s was let in by ticket %d, %v after its claim", r.name, r.number, r.age)
	case r.got == r.number && !stood:
		f.add("%s waits with the used ticket %d, %v after its claim", r.name, r.number, r.age)
	}
}
