package slot

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// A TicketStatus is the state of a ticket. Only a called ticket may be used.
type TicketStatus uint8

// The statuses of a ticket. A ticket that holds no place is TicketUsed below the frontier and
// TicketGone at or above it. The line keeps no more about tickets without a place, so this works
// after a restart too. Neither status ever admits again.
const (
	TicketUnknown     TicketStatus = iota // never issued
	TicketWaiting                         // in the line, not yet passed over
	TicketLate                            // passed over or not claimed: called first when it polls
	TicketCalled                          // a slot is reserved for it
	TicketUsed                            // below the frontier and without a place: used up
	TicketGone                            // at or above the frontier: left, or its hold ended
	TicketProvisional                     // issued, but its cookie has not come back: see JoinProvisional
)

func (s TicketStatus) String() string {
	names := [...]string{"unknown", "waiting", "late", "called", "used", "gone", "provisional"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("TicketStatus(%d)", uint8(s))
}

// A Line is the waiting line of one room. It knows which tickets hold a place, which visitors are
// present, and which ticket is called next.
//
// The promises, each with a test in line_test.go:
//   - A visitor who polls on time is never overtaken by a later ticket.
//   - Silent visitors keep their place: an absent ticket at the head is skipped, not
//     dropped, and is called first when it polls, until its hold ends. (Exception: a ticket whose
//     visitor was called and did not come in is called behind the others: see Defer.)
//   - A ticket is used at most once.
//   - A position never rises, whatever happens to other tickets.
//
// A ticket is present until 2.5 times the interval after its poll. Two intervals are the protocol's
// (§8): one poll may be lost. The half covers the jitter of the next poll and its time on the
// network. Times are kept in sixteenths of a second, and durations are rounded up to the next of
// 255 values. So a visitor counts as present, and keeps a place, up to a sixteenth longer than
// requested, never shorter.
//
// A place costs 9.7 bytes. Numbers are dense, so places lie in flat chunks with a bitmap of the
// live ones and a Fenwick tree of counts over them. A chunk without live places is freed. Join,
// Polled and Position are O(log n). Call is O(log n) amortized, because each absent ticket is
// passed over once.
//
// A Line is not safe for concurrent use. All times passed to it must be of one scale of counter
// time.
type Line struct {
	chunks   []*lineChunk // nil: no live places
	base     uint64       // number of the first ticket of chunks[0], in chunks
	dead     int          // chunks[:dead] are nil
	trees    [searched]fenwick
	counts   [lineSets]int
	late     int
	asked    int         // unproven tickets that polled again lately
	unasked  int         // unproven tickets that did not
	proven   decayingSum // ticks for which those of asked were unproven
	turns    int         // calls so far: each againEach-th calls a deferred ticket
	silenced int         // tickets passed over as silent so far, without unproven ones
	frontier uint64
	next     uint64
	sweep    uint64 // Expire continues here
	expired  int    // places whose hold ended

	origin Time // tick 0; set by the first Join
	begun  bool

	draws []*Order // their numbers' places lie by rank

	weight int            // of a network in draws, 0: no bound; see SetDrawWeight
	crowds map[uint32]int // places by network, as far as it is known

	kept     []keptPlace // restored, not yet polled, with a slot kept for each; by number
	keptBack int         // how many of kept have polled
	keptDue  Time        // before it, none of kept is silent for too long

	restored Restored // of a restored line: when, and how long silent tickets block
	loose    bool     // more tickets may exist than the record says
}

// NewLine makes an empty line whose first ticket has number first. Lower numbers count as used up.
func NewLine(first uint64) *Line {
	return &Line{base: first >> lineShift, frontier: first, next: first, asked: askedBefore}
}

// Join adds a visitor to the end of the line and returns its number. The visitor has to poll after
// interval, and keeps its place for hold after its last poll. hold is at most 8.8 hours.
func (l *Line) Join(now Time, interval, hold time.Duration) uint64 {
	return l.join(liveSet, now, presence(interval), newLineSpan(hold))
}

// join issues the next number and adds it to the live or the provisional set.
func (l *Line) join(set int, now Time, window, hold lineSpan) uint64 {
	if !l.begun {
		l.origin, l.begun = now.Add(-absent*lineTick), true
	}
	number, tick := l.next, uint32(l.tick(now))
	l.next++
	k, i := l.index(number), number&lineMask
	c := l.grow(k)
	if i&63 == 0 || c.sets[liveSet][i>>6]|c.sets[provisionalSet][i>>6] == 0 {
		c.born[i>>6] = tick - min(tick, mostWaited)
	}
	// Clocks may stand still but must not run back. If one does, the time of the first ticket
	// counts.
	first := int64(min(c.born[i>>6], 1) * mostWaited)
	born := min(max(int64(tick)-int64(c.born[i>>6]), first), math.MaxUint16)
	c.places[i] = linePlace{seen: tick, born: uint16(born), window: window, hold: hold}
	c.set(set, i)
	c.live++
	l.trees[set].add(k, 1)
	l.counts[set]++
	return number
}

// mostWaited is how much earlier than its Join a ticket may have arrived, in ticks: three seconds,
// which is longer than a newcomer is held before it joins.
const mostWaited = uint32(3 * time.Second / lineTick)

// SetArrival sets an earlier arrival for a ticket that has just joined, at most three seconds
// earlier.
func (l *Line) SetArrival(number uint64, at Time) {
	number = l.rank(number)
	if c, i := l.findAny(number); c != nil {
		born := min(max(int64(l.tick(at))-int64(c.born[i>>6]), 0), int64(c.places[i].born))
		c.places[i].born = uint16(born)
	}
}

// Polled records that a ticket polled now and has to poll again after interval. It returns the
// status of the ticket. A late ticket is called first from now on. A ticket whose hold has ended
// loses its place, if Expire has not found it yet. The interval of an earlier poll still counts:
// another tab of the same browser polls then.
func (l *Line) Polled(number uint64, now Time, interval time.Duration) TicketStatus {
	number = l.rank(number)
	c, i := l.find(number)
	if c == nil {
		return l.status(number)
	}
	tick := l.tick(now)
	p := &c.places[i]
	called := c.has(calledSet, i)
	if !called && p.over(tick) {
		if c.has(unsureSet, i) { // it polls, so its number was issued
			l.expired++
		}
		l.expire(number)
		return l.status(number)
	}
	if c.has(unprovenSet, i) || c.has(overdueSet, i) {
		l.prove(number, p, tick)
	}
	p.seen, p.window = uint32(tick), max(presence(interval), p.rest(tick))
	if !called && c.has(outSet, i) {
		l.unmark(outSet, number)
	}
	if c.has(unsureSet, i) {
		l.unmark(unsureSet, number)
		if l.loose {
			l.unmark(hiddenSet, number)
		}
		if number < l.frontier {
			l.late++
		}
	}
	switch {
	case called:
		return TicketCalled
	case number >= l.frontier:
		return TicketWaiting
	}
	if c.has(deferredSet, i) {
		l.mark(againSet, number)
		return TicketLate
	}
	l.mark(backSet, number)
	if l.hear(number, now, p.window) {
		return TicketWaiting
	}
	return TicketLate
}

// absent is how many ticks ago a ticket has polled that must not be called: its window of one tick is over.
const absent = 2

// Heard records that the visitor of a ticket is there, and that the ticket must not be called: its place is
// kept, and those behind it are called first. Polled makes it callable again. It returns the status of the
// ticket; one that is called stays so.
func (l *Line) Heard(number uint64, now Time) TicketStatus {
	status := l.Polled(number, now, 0)
	if number = l.rank(number); status != TicketWaiting && status != TicketLate {
		return status
	}
	c, i := l.find(number)
	p := &c.places[i]
	if p.window = 1; p.seen < absent { // the line was restored a moment ago: as before the first poll
		p.window = 0
	}
	p.seen -= min(p.seen, absent)
	if l.unkeep(number) {
		l.late++
	}
	l.unmark(backSet, number)
	l.unmark(againSet, number)
	return l.status(number)
}

// PollInterval returns about the interval that a ticket got at its last poll: how long its next
// poll may take.
func (l *Line) PollInterval(number uint64) time.Duration {
	c, i := l.find(l.rank(number))
	if c == nil {
		return 0
	}
	return time.Duration(c.places[i].window.ticks()) * time.Duration(lineTick) * 2 / 5
}

// Status returns the status of a ticket and changes nothing. It does not know the time: a ticket
// whose hold has ended keeps its status until Polled, Call, Lapse or Expire finds it.
func (l *Line) Status(number uint64) TicketStatus { return l.status(l.rank(number)) }

func (l *Line) status(number uint64) TicketStatus {
	c, i := l.find(number)
	switch {
	case number >= l.next:
		return TicketUnknown
	// A provisional place has no chunk, like a used one: this case must come first.
	case c == nil && l.isProvisional(number):
		return TicketProvisional
	case c == nil && number < l.frontier:
		return TicketUsed
	case c == nil:
		return TicketGone
	case c.has(calledSet, i):
		return TicketCalled
	case number < l.frontier:
		if _, kept := l.keptAt(number); kept {
			return TicketWaiting
		}
		return TicketLate
	}
	return TicketWaiting
}

// Position returns the number of places up to and including this ticket's. ok is false for a ticket
// without a place.
//
// It counts absent, late and called tickets as long as they may still go in before this ticket. So
// it is an upper bound, and it never rises: new tickets join behind, and a call that lapses changes
// nothing. Deferred tickets get only each tenth call, so Position counts no more of them than that.
// (Exception: after Extend, or in a line that was restored Loose, tickets that the line did not
// know of are counted when they poll.)
func (l *Line) Position(number uint64) (position int64, ok bool) {
	number = l.rank(number)
	c, i := l.findAny(number)
	if c == nil {
		return 0, false
	}
	k := l.index(number)
	n := l.trees[liveSet].sum(k) + c.count(liveSet, i)
	if !c.has(liveSet, i) { // a provisional ticket counts only for itself
		n++
	}
	if hidden := l.upTo(hiddenSet, k, c, i); hidden > 0 {
		n -= hidden
		if c.has(hiddenSet, i) { // the ticket itself counts
			n++
		}
	}
	if behind := l.upTo(behindSet, k, c, i); behind > 0 {
		n -= behind
		if c.has(behindSet, i) {
			n, behind = n+1, behind-1
		}
		n += min(behind, (n+againEach-2)/(againEach-1))
	}
	return int64(n), true
}

// upTo returns the number of members of a set up to and including ticket i of chunk k.
func (l *Line) upTo(set, k int, c *lineChunk, i uint64) int {
	if l.counts[set] == 0 {
		return 0
	}
	return l.trees[set].sum(k) + c.count(set, i)
}

// Hide removes the numbers that were reserved before a restart and have not polled since from the
// positions of those behind them, permanently. Call it when the grace of all of them is over. A
// ticket that polls later has its place but is not counted.
func (l *Line) Hide() {
	for n, p := l.from(unsureSet, 0); p != nil; n, p = l.from(unsureSet, n+1) {
		l.mark(hiddenSet, n)
	}
}

// Len returns the number of places: waiting, late and called. It does not count numbers that were
// reserved before a restart and have not polled since.
func (l *Line) Len() int { return l.counts[liveSet] - l.counts[unsureSet] }

// Unconfirmed returns the number of tickets that were reserved before a restart, were perhaps never
// issued, and have not polled since.
func (l *Line) Unconfirmed() int { return l.counts[unsureSet] }

// IsUnconfirmed reports whether a ticket is one of those.
func (l *Line) IsUnconfirmed(number uint64) bool {
	c, i := l.find(l.rank(number))
	return c != nil && c.has(unsureSet, i)
}

// Late returns the number of tickets with a place that were passed over or not claimed.
func (l *Line) Late() int { return l.late }

// SkippedCount returns how many places Call has passed over as silent since this process made the
// line. It does not count unproven tickets: see Doubtful.
func (l *Line) SkippedCount() int { return l.silenced }

// SilentFor returns how long ago a ticket with a place polled last, and for how long it keeps the
// place if it stays silent.
func (l *Line) SilentFor(number uint64, now Time) (silent, kept time.Duration, ok bool) {
	c, i := l.find(l.rank(number))
	if c == nil {
		return 0, 0, false
	}
	p, ticks := &c.places[i], l.tick(now)
	ticks -= int64(p.seen)
	kept = time.Duration(max(p.hold.ticks(), p.window.ticks())-ticks) * lineTick
	return max(0, time.Duration(ticks)*lineTick), max(0, kept), true
}

// Extend reserves all numbers below next, because tickets with such numbers exist though the record
// did not contain them. They are unconfirmed until they poll.
func (l *Line) Extend(next uint64, now Time, hold time.Duration) {
	if next <= l.next || next-l.next > lineMost {
		return
	}
	for l.next < next {
		number := l.Join(now, 0, hold)
		c, i := l.find(number)
		c.places[i].window = 0 // not polled
		l.mark(unsureSet, number)
		l.mark(hiddenSet, number)
	}
	l.loose = true
}

// Called returns the number of called tickets that have neither claimed nor lapsed.
func (l *Line) Called() int { return l.counts[calledSet] }

// Served returns a number below which every ticket was called, skipped or dropped. For a draw it
// stays at the first number until this is true of all its tickets.
func (l *Line) Served() uint64 {
	for _, d := range l.draws {
		if l.frontier > d.From && l.frontier < d.To {
			return d.From
		}
	}
	return l.frontier
}

// Frontier returns the number below which every ticket was called, skipped or dropped. A ticket of
// a draw counts by its rank. A ticket below the frontier that is neither called nor late is used
// up.
func (l *Line) Frontier() uint64 { return l.frontier }

// First returns a number below which no ticket holds a place, or End if no ticket holds one. For a
// draw it stays at the first number until all its tickets have gone.
func (l *Line) First() uint64 {
	n, p := l.from(liveSet, 0)
	if p == nil {
		return l.next
	}
	for _, d := range l.draws {
		if n >= d.From && n < d.To {
			return d.From
		}
	}
	return n
}

// Passed returns, in order, the tickets below Served that hold a place and are not called: those
// that were silent, did not claim, or were not drawn. ok is false if there are more than most.
func (l *Line) Passed(most int) (numbers []uint64, ok bool) {
	below := l.Served()
	for n, p := l.from(liveSet, 0); p != nil && n < below; n, p = l.from(liveSet, n+1) {
		if c, i := l.find(n); c.has(calledSet, i) || c.has(unsureSet, i) {
			continue
		}
		if len(numbers) == most {
			return nil, false
		}
		numbers = append(numbers, l.number(n))
	}
	return numbers, true
}

// End returns the number that the next Join issues.
func (l *Line) End() uint64 { return l.next }

func presence(interval time.Duration) lineSpan {
	return newLineSpan(min(interval, math.MaxInt64/5) * 5 / 2)
}

// tick converts a time to ticks. The result is signed so that ages can be negative, and is capped
// at the greatest value that fits.
func (l *Line) tick(now Time) int64 {
	return min(max(int64(now-l.origin), 0)/int64(lineTick), math.MaxUint32)
}

func (l *Line) index(number uint64) int { return int(number>>lineShift - l.base) }

// find returns the chunk and the index there of a ticket that holds a place.
func (l *Line) find(number uint64) (*lineChunk, uint64) {
	c, i := l.findAny(number)
	if c == nil || !c.has(liveSet, i) {
		return nil, 0
	}
	return c, i
}

// findAny is like find, but also finds provisional tickets.
func (l *Line) findAny(number uint64) (*lineChunk, uint64) {
	k, i := number>>lineShift, number&lineMask
	if k < l.base || k-l.base >= uint64(len(l.chunks)) {
		return nil, 0
	}
	c := l.chunks[k-l.base]
	if c == nil || !c.has(liveSet, i) && !c.has(provisionalSet, i) {
		return nil, 0
	}
	return c, i
}

// from returns the first member of a searched set at or after number.
func (l *Line) from(set int, number uint64) (uint64, *linePlace) {
	number = max(number, l.base<<lineShift)
	k := l.index(number)
	if k >= len(l.chunks) {
		return 0, nil
	}
	if c := l.chunks[k]; c != nil {
		if i, ok := c.next(set, number&lineMask); ok {
			return number&^lineMask + i, &c.places[i]
		}
	}
	before := l.trees[set].sum(k + 1)
	if before == l.counts[set] {
		return 0, nil
	}
	k = l.trees[set].find(before)
	c := l.chunks[k]
	i, _ := c.next(set, 0)
	return (l.base+uint64(k))<<lineShift + i, &c.places[i]
}

// mark adds a ticket that holds a place to a set.
func (l *Line) mark(set int, number uint64) {
	c, i := l.findAny(number)
	if c.has(set, i) {
		return
	}
	c.set(set, i)
	l.counts[set]++
	if set < searched {
		l.trees[set].add(l.index(number), 1)
	}
}

func (l *Line) unmark(set int, number uint64) {
	c, i := l.findAny(number)
	if !c.has(set, i) {
		return
	}
	c.clear(set, i)
	l.counts[set]--
	if set < searched {
		l.trees[set].add(l.index(number), -1)
	}
}

// Expired returns how many places ended because their hold was over, since this process made the
// line. It does not count numbers that were reserved before a restart and never polled.
func (l *Line) Expired() int { return l.expired }

func (l *Line) expire(number uint64) {
	if c, i := l.find(number); !c.has(unsureSet, i) { // an unconfirmed number was perhaps never issued
		l.expired++
	}
	l.drop(number)
}

// drop ends a place permanently.
func (l *Line) drop(number uint64) {
	if c, i := l.find(number); l.status(number) == TicketLate && !c.has(unsureSet, i) {
		l.late--
	}
	l.unkeep(number)
	l.unmark(unsureSet, number)
	l.unmark(hiddenSet, number)
	l.unmark(outSet, number)
	l.unmark(backSet, number)
	l.unmark(againSet, number)
	l.unmark(deferredSet, number)
	l.unmark(behindSet, number)
	l.unmark(unprovenSet, number)
	l.unmark(overdueSet, number)
	l.unmark(calledSet, number)
	l.unmark(liveSet, number)
	l.setNetwork(number, 0)
	l.release(l.index(number))
}

// release records that a chunk has one ticket less, and frees the chunk if that was the last.
func (l *Line) release(k int) {
	c := l.chunks[k]
	c.live--
	// The last chunk is still being filled.
	if c.live == 0 && l.next >= (l.base+uint64(k)+1)<<lineShift {
		l.chunks[k] = nil
		l.trim()
	}
}

// grow ensures that chunk k exists. k is at most one after the last chunk.
func (l *Line) grow(k int) *lineChunk {
	if k == len(l.chunks) {
		l.chunks = append(l.chunks, nil)
		for set := range l.trees {
			l.trees[set] = l.trees[set].grow()
		}
	}
	if l.chunks[k] == nil {
		l.chunks[k] = new(lineChunk)
	}
	return l.chunks[k]
}

// trim removes the freed chunks at the front once there are enough of them to pay for moving the
// rest.
func (l *Line) trim() {
	for l.dead < len(l.chunks) && l.chunks[l.dead] == nil {
		l.dead++
	}
	if l.dead < 64 || 2*l.dead < len(l.chunks) {
		return
	}
	l.chunks = slices.Clone(l.chunks[l.dead:])
	l.base += uint64(l.dead)
	l.dead = 0
	for set := range l.trees {
		l.trees[set] = make(fenwick, len(l.chunks))
		for k, c := range l.chunks {
			if c != nil {
				l.trees[set].add(k, c.count(set, lineMask))
			}
		}
	}
}

// ForgetPolls makes every place count as not polled since now, because no poll could arrive while
// the process stood still. Places that have not polled again hold up those behind them for the
// grace again, and their holds start anew. It visits each place.
func (l *Line) ForgetPolls(now Time, grace func(distance uint64) time.Duration) {
	l.restored.At, l.restored.Frontier, l.restored.Grace = now, l.frontier, grace
	for _, k := range l.kept {
		if c, i := l.find(k.number); k.back && c.places[i].window != 0 {
			l.hear(k.number, now, c.places[i].window)
		}
	}
	tick := uint32(l.tick(now))
	for _, c := range l.chunks {
		if c == nil {
			continue
		}
		for i := range c.places {
			if c.places[i].seen = tick; !c.has(provisionalSet, uint64(i)) {
				c.places[i].window = 0
			}
		}
	}
}
