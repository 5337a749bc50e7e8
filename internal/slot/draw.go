package slot

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"slices"
)

// A Draw puts the tickets of a prequeue into an order that nobody can guess before its seed is
// shown and that everybody can check afterwards (docs/events.md). It is a permutation of the
// numbers from From on and below To: whatever the seed, each number has one rank and each rank
// one number.
type Draw struct {
	Event    string // which draw this is
	Start    int64  // of the event, seconds of Unix time, once the order is drawn; else 0
	Seed     [32]byte
	From, To uint64 // numbers; From 0: the prequeue has not begun; To 0: not drawn, or nobody was there
}

// Commitment is the SHA-256 of the seed: shown before the draw, it proves afterwards that the
// seed was not chosen to suit the tickets.
func (d *Draw) Commitment() [32]byte { return sha256.Sum256(d.Seed[:]) }

const (
	// drawRounds of a Feistel network. Four are enough for numbers nobody can choose (Luby and
	// Rackoff); ten also where there are few tickets. Chosen.
	drawRounds = 10
	// drawBits are at least shuffled, so that few tickets are shuffled well. Chosen.
	drawBits = 8
)

// An Order is a draw, ready to be asked: the rounds of its network in tables, 5 kB for ten
// thousand tickets and 40 kB for a million. It never changes.
type Order struct {
	Draw
	half   uint // how many bits each half of the network has
	rounds [drawRounds][]uint32
}

// Order readies a draw. It costs a hash for each entry of its tables.
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

// Rank is the number whose place a ticket takes. A number that is not in the draw keeps its own.
func (o *Order) Rank(number uint64) uint64 {
	if number < o.From || number >= o.To {
		return number
	}
	x := number - o.From
	for again := true; again; again = x >= o.To-o.From { // numbers beyond the last are walked over
		l, r := uint32(x>>o.half), uint32(x)&(1<<o.half-1)
		for i := range o.rounds {
			l, r = r, l^o.rounds[i][r]
		}
		x = uint64(l)<<o.half | uint64(r)
	}
	return o.From + x
}

// Number is the ticket that has a rank.
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

// mostDraws is how many draws a line remembers: those whose tickets may still wait, and those to
// come. Chosen: a draw is forgotten when the last of its tickets has left the line.
const mostDraws = 8

// Shuffle gives the places from d.From on to the tickets in the order of the draw, which is that
// of all who have joined: d.To must be End, and no ticket from d.From on may be called, or have
// been, or be in another draw: two orders of the same places are none. False, and nothing changes,
// if that is not so. It costs a look at each place.
//
// Arrivals are drawn too: the ranks have come evenly between the first and now, so that lines of
// other data centres, with draws of their own, meet this one as equals.
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

// lift takes a place out that is put elsewhere.
func (l *Line) lift(rank uint64) {
	in := liveSet
	if l.isProvisional(rank) {
		in = provisionalSet
	}
	for set := range lineSets {
		if set != in { // without that one it is not found any more
			l.unmark(set, rank)
		}
	}
	l.unmark(in, rank)
	l.chunks[l.index(rank)].live--
}

// A drawnPlace is a place on its way to its rank, with a bit for each set that it is in; 0: no place.
type drawnPlace struct {
	place linePlace
	sets  uint16
}

func (x *drawnPlace) in(set int) bool { return x.sets>>set&1 != 0 }

// put makes a place at a rank that holds none, whose ticket came at a tick.
func (l *Line) put(rank uint64, x *drawnPlace, tick int64) {
	k, i := l.index(rank), rank&lineMask
	if l.chunks[k] == nil {
		l.chunks[k] = new(lineChunk)
	}
	c := l.chunks[k]
	if c.sets[liveSet][i>>6]|c.sets[provisionalSet][i>>6] == 0 {
		c.born[i>>6] = uint32(tick) - min(uint32(tick), mostWaited) // as Join has it
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

// rank is where the place of a number is.
func (l *Line) rank(number uint64) uint64 {
	for _, o := range l.draws { // their numbers are apart
		if number >= o.From && number < o.To {
			return o.Rank(number)
		}
	}
	return number
}

// number is the ticket at a rank.
func (l *Line) number(rank uint64) uint64 {
	for _, o := range l.draws {
		if rank >= o.From && rank < o.To {
			return o.Number(rank)
		}
	}
	return rank
}

// Draws are the draws that a record must have for the places of the line to be found, the oldest
// first. One whose last ticket has left is forgotten: they are all used up.
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
