package slot

import (
	"math/bits"
	"time"
)

// A lineChunk holds the places of 1,024 neighboring ticket numbers: 8 bytes each, and eleven bits
// for its state. 1,024 because 16 words of a bitmap are two cache lines, so that counting within a
// chunk costs little, and because a few absent tickets that outlive their neighbors then keep 9 KB
// each in memory and not 40.
const (
	lineShift = 10
	lineSize  = 1 << lineShift
	lineMask  = lineSize - 1
	lineWords = lineSize / 64
)

// lineTick is the unit in which a line keeps times. It is fine compared with a polling interval of
// a second, and 32 bits of it last for 8.5 years of one host's life.
const lineTick = time.Second / 16

// ArrivalStep is the precision of an arrival in a line.
const ArrivalStep = time.Duration(lineTick)

// The sets of tickets that a line keeps. All but the last two can be searched.
const (
	liveSet        = iota // holds a place
	backSet               // late and has polled since: to be called first
	unsureSet             // reserved before a restart, perhaps never issued, not polled since
	hiddenSet             // not counted in the positions of those behind
	outSet                // not to be drawn: called, or silent when drawn and not polled since
	provisionalSet        // joined, cookie not yet returned: holds no place yet
	unprovenSet           // polled once, too soon, and not since; not overdue yet
	overdueSet            // as unproven, but overdue
	againSet              // deferred and has polled since: to be called behind others
	behindSet             // deferred; positions count it as getting each tenth call at most
	calledSet             // called, not yet claimed
	deferredSet           // late: its visitor learned of the call and did not come in
	searched       = calledSet
	lineSets       = deferredSet + 1
)

type lineChunk struct {
	// Networks of the places, 0: unknown; nil: all are. First, for the garbage collector.
	networks *[lineSize]uint32
	places   [lineSize]linePlace
	sets     [lineSets][lineWords]uint64
	born     [lineWords]uint32 // tick at which the first of these 64 joined
	live     int               // live or provisional
}

// A linePlace is what a line remembers of one visitor.
type linePlace struct {
	seen   uint32   // tick of the last poll
	born   uint16   // ticks from the chunk's born until it joined; capped
	window lineSpan // how long after seen it is present; 0: restored, not yet polled
	hold   lineSpan // how long after seen it keeps its place
}

func (p linePlace) present(tick int64) bool {
	return p.window != 0 && tick-int64(p.seen) <= p.window.ticks()
}

// rest returns the presence of a ticket that has polled too early: 2.5 times what is left of its
// interval. It never grows, however often the ticket polls.
func (p linePlace) rest(tick int64) lineSpan {
	left := p.window.ticks() - max(tick-int64(p.seen), 0)*5/2
	return newLineSpan(time.Duration(left) * lineTick)
}

// over reports whether the hold has ended. A hold lasts at least as long as the presence. Otherwise
// a visitor that polls as late as requested could lose its place.
func (p linePlace) over(tick int64) bool {
	return tick-int64(p.seen) > max(p.hold.ticks(), p.window.ticks())
}

// A lineSpan is a duration in one byte: four bits of exponent, four of mantissa. It is at least the
// requested duration, at most a sixteenth longer, and at most 8.8 hours.
type lineSpan uint8

func newLineSpan(d time.Duration) lineSpan {
	const most = 31 << 14
	ticks := uint64(min(max(d, 1), most*lineTick)+lineTick-1) / uint64(lineTick)
	if ticks < 16 {
		return lineSpan(ticks)
	}
	exp := bits.Len64(ticks) - 5
	mantissa := (ticks + 1<<exp - 1) >> exp
	// A mantissa of 32 carries into the exponent, because the sum treats the code as one number.
	return lineSpan(uint64(exp)<<4 + mantissa)
}

func (s lineSpan) ticks() int64 {
	if s < 16 {
		return int64(s)
	}
	return int64(16+s&15) << (s>>4 - 1)
}

func (c *lineChunk) has(set int, i uint64) bool { return c.sets[set][i>>6]>>(i&63)&1 != 0 }
func (c *lineChunk) set(set int, i uint64)      { c.sets[set][i>>6] |= 1 << (i & 63) }
func (c *lineChunk) clear(set int, i uint64)    { c.sets[set][i>>6] &^= 1 << (i & 63) }

// setsOf returns one bit for each set that a ticket is in.
func (c *lineChunk) setsOf(i uint64) (sets uint16) {
	for set := range lineSets {
		if c.has(set, i) {
			sets |= 1 << set
		}
	}
	return sets
}

// next returns the first member of a set at or after i.
func (c *lineChunk) next(set int, i uint64) (uint64, bool) {
	w := i >> 6
	word := c.sets[set][w] >> (i & 63) << (i & 63)
	for word == 0 {
		if w++; w == lineWords {
			return 0, false
		}
		word = c.sets[set][w]
	}
	return w<<6 + uint64(bits.TrailingZeros64(word)), true
}

// last returns the last member of a set at or before i. There must be one.
func (c *lineChunk) last(set int, i uint64) uint64 {
	w := i >> 6
	word := c.sets[set][w] << (63 - i&63) >> (63 - i&63)
	for word == 0 {
		w--
		word = c.sets[set][w]
	}
	return w<<6 + uint64(bits.Len64(word)) - 1
}

// count returns the number of members of a set at or before i.
func (c *lineChunk) count(set int, i uint64) int {
	n := bits.OnesCount64(c.sets[set][i>>6] << (63 - i&63))
	for _, word := range c.sets[set][:i>>6] {
		n += bits.OnesCount64(word)
	}
	return n
}

// A fenwick counts the members of a set by chunk. It returns prefix sums, and the chunk of the n-th
// member, in O(log chunks). Node i covers [i&(i+1), i].
type fenwick []int

func (f fenwick) add(i, d int) {
	for ; i < len(f); i |= i + 1 {
		f[i] += d
	}
}

// sum returns the count of the first n chunks.
func (f fenwick) sum(n int) int {
	s := 0
	for ; n > 0; n &= n - 1 {
		s += f[n-1]
	}
	return s
}

// grow appends an empty chunk.
func (f fenwick) grow() fenwick {
	i, s := len(f), 0
	for n := i; n > i&(i+1); n &= n - 1 {
		s += f[n-1]
	}
	return append(f, s)
}

// find returns the chunk that holds the member with index rank, counted from 0.
func (f fenwick) find(rank int) int {
	at := 0
	for step := 1 << bits.Len(uint(len(f))) >> 1; step > 0; step >>= 1 {
		if n := at + step; n <= len(f) && f[n-1] <= rank {
			at, rank = n, rank-f[n-1]
		}
	}
	return at
}
