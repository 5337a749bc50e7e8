package slot

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// A TicketStatus says where a ticket stands. Only a called ticket may be used.
type TicketStatus uint8

// The statuses of a ticket. One that holds no place any more is Used when it is
// below the frontier and Gone otherwise: the line keeps nothing of the dead, and
// this is also all that is known after a restart. Neither ever admits again.
const (
	TicketUnknown     TicketStatus = iota // never issued
	TicketWaiting                         // in the line, not yet passed over
	TicketLate                            // passed over or not claimed: called first when it speaks
	TicketCalled                          // a slot is reserved for it
	TicketUsed                            // below the frontier and without a place: used up
	TicketGone                            // at or above the frontier: left, or its hold ended
	TicketProvisional                     // issued, and its cookie has not come back: see JoinProvisional
)

func (s TicketStatus) String() string {
	names := [...]string{"unknown", "waiting", "late", "called", "used", "gone", "provisional"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("TicketStatus(%d)", uint8(s))
}

// A Line is the waiting line of one room: who holds a place, who is there, and
// who is called next.
//
// The promises, each with a test in line_test.go:
//   - Nobody who polls on time is overtaken by a later ticket.
//   - Silence is not departure: an absent ticket at the head is skipped, not
//     dropped, and is called first when it speaks, until its hold is over. (But one that was told
//     to come in and did not is called behind the others: see Defer.)
//   - A ticket is used at most once.
//   - A position never rises, whatever happens to others.
//
// A ticket is present until 2.5 times the interval after its poll. Two intervals
// are the protocol's (§8): one poll may be lost. The half is for the jitter of
// the next one and its way here. Times are kept in sixteenths of a second and
// durations are rounded up to the next of 255 values, so a visitor counts as
// present, and keeps a place, up to a sixteenth longer than asked, never shorter.
//
// It costs 9.7 bytes a place. Numbers are dense, so places lie in flat chunks
// with a bitmap of those alive and a Fenwick tree of counts over them; a chunk
// whose places are all dead is freed. Join and Seen are O(log n), Position too;
// Call is O(log n) amortised: each absent ticket is passed over once.
//
// A Line is not safe for concurrent use, and no argument may be read from two
// scales of counter time.
type Line struct {
	chunks   []*lineChunk // nil: all dead
	base     uint64       // number of the first ticket of chunks[0], in chunks
	dead     int          // chunks[:dead] are nil
	trees    [searched]fenwick
	counts   [lineSets]int
	late     int
	asked    int // unproven tickets that asked again lately, and
	unasked  int // that did not
	turns    int // calls so far: each againEach-th is that of a deferred ticket
	silenced int // passed over for their silence so far, but for unproven ones
	frontier uint64
	next     uint64
	sweep    uint64 // Expire goes on here
	expired  int    // places whose hold was over

	origin Time // tick 0; set by the first Join
	begun  bool

	draws []*Order // places of their numbers lie by rank

	kept     []keptPlace // restored and not heard, with a slot kept for each; by number
	keptBack int         // of them, those that have spoken
	keptDue  Time        // none has been silent for too long before

	restored Restored // of a line grown back: when, and how long the unheard block
	loose    bool     // more tickets may exist than the record says
}

// NewLine makes an empty line whose first ticket will be number first. Numbers
// below first count as used up.
func NewLine(first uint64) *Line {
	return &Line{base: first >> lineShift, frontier: first, next: first, asked: askedBefore}
}

// Join adds a visitor to the end of the line and gives its number. The visitor
// was told to ask again after interval, and keeps its place for hold after its
// last poll. hold is at most 8.8 hours.
func (l *Line) Join(now Time, interval, hold time.Duration) uint64 {
	return l.join(liveSet, now, presence(interval), newLineSpan(hold))
}

// join issues the next number and makes it a member of the live or the provisional set.
func (l *Line) join(set int, now Time, window, hold lineSpan) uint64 {
	if !l.begun {
		l.origin, l.begun = now, true
	}
	number, tick := l.next, uint32(l.tick(now))
	l.next++
	k, i := l.index(number), number&lineMask
	c := l.grow(k)
	if i&63 == 0 || c.sets[liveSet][i>>6]|c.sets[provisionalSet][i>>6] == 0 {
		c.born[i>>6] = tick - min(tick, mostWaited)
	}
	// Clocks may stand still and must not go back; if one does, the first's is right.
	first := int64(min(c.born[i>>6], 1) * mostWaited)
	born := min(max(int64(tick)-int64(c.born[i>>6]), first), math.MaxUint16)
	c.places[i] = linePlace{seen: tick, born: uint16(born), window: window, hold: hold}
	c.set(set, i)
	c.live++
	l.trees[set].add(k, 1)
	l.counts[set]++
	return number
}

// mostWaited is how much earlier than it joined a ticket may have come, in ticks: three
// seconds, which is longer than a newcomer stands before a door.
const mostWaited = uint32(3 * time.Second / lineTick)

// Came notes that a ticket that has just joined had come before, three seconds at most.
func (l *Line) SetArrival(number uint64, at Time) {
	number = l.rank(number)
	if c, i := l.findAny(number); c != nil {
		born := min(max(int64(l.tick(at))-int64(c.born[i>>6]), 0), int64(c.places[i].born))
		c.places[i].born = uint16(born)
	}
}

// Seen notes that a ticket polled now and was told to ask again after interval,
// and says where it stands. A late ticket that speaks is called first from now
// on. One whose hold is over loses its place here, if Expire has not seen it.
// What it was told before still counts: another tab of its browser comes then.
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
		if c.has(unsureSet, i) { // who speaks has had it
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

// Given is about the interval that a ticket was told at its last poll: how long
// its next one may take.
func (l *Line) PollInterval(number uint64) time.Duration {
	c, i := l.find(l.rank(number))
	if c == nil {
		return 0
	}
	return time.Duration(c.places[i].window.ticks()) * time.Duration(lineTick) * 2 / 5
}

// Status says where a ticket stands and changes nothing. It does not know the
// time: a ticket whose hold is over keeps its status until Seen, Call, Lapse or
// Expire comes across it.
func (l *Line) Status(number uint64) TicketStatus { return l.status(l.rank(number)) }

func (l *Line) status(number uint64) TicketStatus {
	c, i := l.find(number)
	switch {
	case number >= l.next:
		return TicketUnknown
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

// Position counts the places up to and including this ticket's. It is not ok
// for a ticket that holds none.
//
// It counts the absent, the late and the called ones as long as they may still
// go in before this ticket. So it is an upper bound, and it never rises: a
// ticket only joins behind, and a call that lapses changes nothing. Deferred ones
// have each tenth call: no more of them are counted. (Only after
// Extend, or in a line that was restored Loose, it counts tickets that it did not
// know of, once they speak.)
func (l *Line) Position(number uint64) (position int64, ok bool) {
	number = l.rank(number)
	c, i := l.findAny(number)
	if c == nil {
		return 0, false
	}
	k := l.index(number)
	n := l.trees[liveSet].sum(k) + c.count(liveSet, i)
	if !c.has(liveSet, i) { // a provisional ticket counts for itself alone
		n++
	}
	if hidden := l.upTo(hiddenSet, k, c, i); hidden > 0 {
		n -= hidden
		if c.has(hiddenSet, i) { // the ticket asked about counts
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

// upTo counts the members of a set up to ticket i of chunk k, that one included.
func (l *Line) upTo(set, k int, c *lineChunk, i uint64) int {
	if l.counts[set] == 0 {
		return 0
	}
	return l.trees[set].sum(k) + c.count(set, i)
}

// Hide takes the numbers that were reserved before a restart and have not been
// heard out of the positions of those behind them, for good: to be called when
// the grace of all is over. One that speaks later has its place, uncounted.
func (l *Line) Hide() {
	for n, p := l.from(unsureSet, 0); p != nil; n, p = l.from(unsureSet, n+1) {
		l.mark(hiddenSet, n)
	}
}

// Len counts the places: waiting, late and called. Numbers that were reserved
// before a restart and have not been heard are not among them.
func (l *Line) Len() int { return l.counts[liveSet] - l.counts[unsureSet] }

// Unsure counts the numbers that were reserved before a restart, perhaps never
// issued, and have not been heard yet.
func (l *Line) Unconfirmed() int { return l.counts[unsureSet] }

// Late counts those that were passed over or did not claim, and hold a place.
func (l *Line) Late() int { return l.late }

// Silenced counts the places that Call has passed over for their silence since the line was made
// here, but for unproven ones: see Doubtful.
func (l *Line) SkippedCount() int { return l.silenced }

// Silence is how long ago a ticket that holds a place polled last, and for how
// long it keeps the place if it stays silent.
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

// Extend reserves all numbers below next: tickets with such numbers exist though
// the record did not know it. They are unsure until they are heard.
func (l *Line) Extend(next uint64, now Time, hold time.Duration) {
	if next <= l.next || next-l.next > lineMost {
		return
	}
	for l.next < next {
		number := l.Join(now, 0, hold)
		c, i := l.find(number)
		c.places[i].window = 0 // not heard
		l.mark(unsureSet, number)
		l.mark(hiddenSet, number)
	}
	l.loose = true
}

// Called counts those called that have neither claimed nor lapsed.
func (l *Line) Called() int { return l.counts[calledSet] }

// Served is a number below which every ticket was called, skipped or dropped: of a draw, none
// before all of it were.
func (l *Line) Served() uint64 {
	for _, d := range l.draws {
		if l.frontier > d.From && l.frontier < d.To {
			return d.From
		}
	}
	return l.frontier
}

// Frontier is the number below which every ticket was called, skipped or
// dropped, where a ticket of a draw counts by its rank. A ticket below it that
// is neither called nor late is used up.
func (l *Line) Frontier() uint64 { return l.frontier }

// First is a number below which no ticket holds a place, End if none does: of a draw, its first
// number before all of it have gone.
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

// Passed gives the tickets below Served that hold a place and are not called, in their order: those
// that were silent, did not claim, or were not drawn. Not ok: there are more than most.
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

// End is the number that the next Join gives out.
func (l *Line) End() uint64 { return l.next }

// Used says that a ticket below the frontier never admits again.
func (l *Line) Used(number uint64) bool { return l.Status(number) == TicketUsed }

func presence(interval time.Duration) lineSpan {
	return newLineSpan(min(interval, math.MaxInt64/5) * 5 / 2)
}

// tick is signed so that ages can be, and stops at the greatest that fits.
func (l *Line) tick(now Time) int64 {
	return min(max(int64(now-l.origin), 0)/int64(lineTick), math.MaxUint32)
}

func (l *Line) index(number uint64) int { return int(number>>lineShift - l.base) }

// find gives the chunk of a ticket that holds a place and its index there.
func (l *Line) find(number uint64) (*lineChunk, uint64) {
	c, i := l.findAny(number)
	if c == nil || !c.has(liveSet, i) {
		return nil, 0
	}
	return c, i
}

// findAny is find, for a provisional ticket too.
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

// from finds the first member of a searched set at or after number.
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

// mark puts a ticket that holds a place into a set.
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

// Expired is how many places ended because their hold was over, since the line was made here. Numbers
// that were reserved before a restart and never heard are not among them.
func (l *Line) Expired() int { return l.expired }

func (l *Line) expire(number uint64) {
	if c, i := l.find(number); !c.has(unsureSet, i) { // else perhaps nobody ever had it
		l.expired++
	}
	l.drop(number)
}

// drop ends a place for good.
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
	l.release(l.index(number))
}

// release notes that a chunk has one ticket less, and frees it if that was the last.
func (l *Line) release(k int) {
	c := l.chunks[k]
	c.live--
	// The last chunk is still being filled.
	if c.live == 0 && l.next >= (l.base+uint64(k)+1)<<lineShift {
		l.chunks[k] = nil
		l.trim()
	}
}

// grow makes sure that chunk k, at most one after the last, is there.
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

// trim forgets the dead chunks at the front, when they are so many that the
// work of moving the rest has been paid for.
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

// Unhear makes every place count as not heard since now: nobody could be heard
// while the process stood still. Those who have not spoken hold up the ones behind
// them for the grace again, and no hold has run. It costs a look at each place.
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
