package slot

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"slices"
)

// A Draw puts the tickets of a prequeue into an order that nobody can guess before its seed is
// published and that everybody can check afterwards (docs/events.md). It is a permutation of the
// numbers from From up to, but not including, To: for every seed, each number has one rank and each
// rank one number.
type Draw struct {
	Event    string // names this draw
	Start    int64  // of the event, in Unix seconds, once the order is drawn; else 0
	Seed     [32]byte
	From, To uint64 // From 0: the prequeue has not begun; To 0: not drawn, or no tickets
}

// Commitment returns the SHA-256 of the seed. It is published before the draw and proves afterwards
// that the seed was not chosen to suit the tickets.
func (d *Draw) Commitment() [32]byte { return sha256.Sum256(d.Seed[:]) }

const (
	// drawRounds is the number of rounds of the Feistel network. Four are enough for numbers that
	// nobody can choose (Luby and Rackoff). Chosen: ten, so that a few tickets are shuffled well
	// too.
	drawRounds = 10
	// drawBits is the least number of bits to shuffle, so that a few tickets are shuffled well.
	// Chosen.
	drawBits = 8
)

// An Order is a draw that is ready for look-ups. It holds the rounds of its network in tables: 5 kB
// for ten thousand tickets and 40 kB for a million. It never changes.
type Order struct {
	Draw
	half   uint // bits in each half of the network
	rounds [drawRounds][]uint32
}

// Order prepares a draw for look-ups. It computes one hash for each entry of the tables.
func (d Draw) Order() *Order {
	o := &Order{Draw: d}
	if d.To <= d.From {
		return o
	}
	o.half = uint(max(drawBits, bits.Len64(d.To-d.From-1))+1) / 2
	var b [41]byte
	copy(b[:], d.Seed[:])
	for i := range o.rounds {
		o.rounds[i], b[32] = make([]uint32, 1<<o.half), byte(i)
		for right := range o.rounds[i] {
			binary.BigEndian.PutUint64(b[33:], uint64(right))
			sum := sha256.Sum256(b[:])
			o.rounds[i][right] = uint32(binary.BigEndian.Uint64(sum[:]) & (1<<o.half - 1))
		}
	}
	return o
}

// Rank returns the number whose place a ticket takes. A number outside the draw keeps its own
// place.
func (o *Order) Rank(number uint64) uint64 {
	if number < o.From || number >= o.To {
		return number
	}
	x := number - o.From
	for again := true; again; again = x >= o.To-o.From { // skip numbers beyond the last
		l, r := uint32(x>>o.half), uint32(x)&(1<<o.half-1)
		for i := range o.rounds {
			l, r = r, l^o.rounds[i][r]
		}
		x = uint64(l)<<o.half | uint64(r)
	}
	return o.From + x
}

// Number returns the ticket that has a rank.
func (o *Order) Number(rank uint64) uint64 {
	if rank < o.From || rank >= o.To {
		return rank
	}
	x := rank - o.From
	for again := true; again; again = x >= o.To-o.From {
		l, r := uint32(x>>o.half), uint32(x)&(1<<o.half-1)
		for i := len(o.rounds) - 1; i >= 0; i-- {
			l, r = r^o.rounds[i][l], l
		}
		x = uint64(l)<<o.half | uint64(r)
	}
	return o.From + x
}

// mostDraws is how many draws a line remembers: past ones whose tickets may still wait, and future
// ones. Chosen. A draw is forgotten when its last ticket has left the line.
const mostDraws = 8

// Shuffle gives the places from d.From on to the tickets that have joined, in the order of the
// draw. d.To must be End. No ticket from d.From on may be called, have been called, or be in
// another draw, because places cannot have two orders. If this does not hold, Shuffle returns false
// and changes nothing. It visits each place.
//
// Shuffle also replaces the arrivals: the ranks get arrivals spread evenly between the first one
// and now. So the lines of other data centers, with draws of their own, are merged fairly with this
// one.
func (l *Line) Shuffle(d Draw, now Time) bool {
	if d.To != l.next || d.From < l.frontier || d.From >= d.To || len(l.draws) >= mostDraws ||
		slices.ContainsFunc(l.draws, func(o *Order) bool { return d.From < o.To }) {
		return false
	}
	old := make([]drawnPlace, d.To-d.From)
	first := l.tick(now)
	for n := d.From; n < d.To; n++ {
		c, i := l.findAny(n)
		if c == nil {
			continue
		}
		if c.has(calledSet, i) {
			return false
		}
		if first == l.tick(now) {
			first = int64(c.born[i>>6]) + int64(c.places[i].born)
		}
		old[n-d.From] = drawnPlace{c.places[i], c.setsOf(i)}
	}
	for n := d.From; n < d.To; n++ {
		if old[n-d.From].sets != 0 {
			l.lift(n)
		}
	}
	o := d.Order()
	l.draws = append(l.draws, o)
	last := l.tick(now)
	for rank := d.From; rank < d.To; rank++ {
		x := &old[o.Number(rank)-d.From]
		if x.sets != 0 {
			l.put(rank, x, first+(last-first)*int64(rank-d.From)/int64(d.To-d.From))
		}
	}
	for k := l.index(d.From); k < len(l.chunks); k++ {
		if c := l.chunks[k]; c != nil && c.live == 0 && l.next >= (l.base+uint64(k)+1)<<lineShift {
			l.chunks[k] = nil
		}
	}
	l.trim()
	return true
}

// lift removes a place that is then put elsewhere.
func (l *Line) lift(rank uint64) {
	in := liveSet
	if l.isProvisional(rank) {
		in = provisionalSet
	}
	for set := range lineSets {
		if set != in { // without the live set, find would not find it any more
			l.unmark(set, rank)
		}
	}
	l.unmark(in, rank)
	l.chunks[l.index(rank)].live--
}

// A drawnPlace is a place on its way to its rank, with one bit for each set that it is in. 0 bits
// mean no place.
type drawnPlace struct {
	place linePlace
	sets  uint16
}

func (x *drawnPlace) in(set int) bool { return x.sets>>set&1 != 0 }

// put makes a place at a rank that holds none. Its ticket arrived at tick.
func (l *Line) put(rank uint64, x *drawnPlace, tick int64) {
	k, i := l.index(rank), rank&lineMask
	if l.chunks[k] == nil {
		l.chunks[k] = new(lineChunk)
	}
	c := l.chunks[k]
	if c.sets[liveSet][i>>6]|c.sets[provisionalSet][i>>6] == 0 {
		c.born[i>>6] = uint32(tick) - min(uint32(tick), mostWaited) // as in Join
	}
	c.places[i] = x.place
	c.places[i].born = uint16(min(max(tick-int64(c.born[i>>6]), 0), 1<<16-1))
	in := liveSet
	if x.in(provisionalSet) {
		in = provisionalSet
	}
	c.set(in, i)
	c.live++
	l.trees[in].add(k, 1)
	l.counts[in]++
	for set := range lineSets {
		if x.in(set) {
			l.mark(set, rank)
		}
	}
}

// rank returns the rank at which the place of a number lies.
func (l *Line) rank(number uint64) uint64 {
	for _, o := range l.draws { // draws do not overlap
		if number >= o.From && number < o.To {
			return o.Rank(number)
		}
	}
	return number
}

// number returns the ticket at a rank.
func (l *Line) number(rank uint64) uint64 {
	for _, o := range l.draws {
		if rank >= o.From && rank < o.To {
			return o.Number(rank)
		}
	}
	return rank
}

// Draws returns the draws that a record needs to find the places of the line, oldest first. A draw
// whose last ticket has left is forgotten: all its tickets are used up.
func (l *Line) Draws() (all []Draw) {
	for len(l.draws) > 0 {
		d := l.draws[0]
		if l.frontier < d.To || l.between(liveSet, d.From, d.To)+l.between(provisionalSet, d.From, d.To) > 0 {
			break
		}
		l.draws = l.draws[1:]
	}
	for _, o := range l.draws {
		all = append(all, o.Draw)
	}
	return all
}
