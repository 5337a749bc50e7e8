package slot

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"math/bits"
	"slices"

	"github.com/headgate/headgate/internal/codec"
)

// A Draw puts the tickets of a prequeue into an order that nobody can guess before its seed is
// published and that everybody can check afterwards (docs/events.md). It is a permutation of the
// numbers from From up to, but not including, To: for every seed, each number has one rank and each
// rank one number.
//
// A network with many tickets has no more chances than SetDrawWeight says. Then the order is that of
// Efraimidis and Spirakis (Weighted random sampling with a reservoir, Information Processing Letters
// 97, 2006): a ticket of the weight w gets the key u^(1/w), with u uniform in (0, 1), and the highest
// key is first. Of all tickets that are left, the next one is then each with a probability
// proportional to its weight. u is a hash of the seed and the number, and keys are whole numbers, so
// each host and each checker has the same order. The weights are in the record with the draw: for a
// ticket with less than one chance one bit, or two bytes where few have.
type Draw struct {
	Event    string // names this draw
	Start    int64  // of the event, in Unix seconds, once the order is drawn; else 0
	Seed     [32]byte
	From, To uint64 // From 0: the prequeue has not begun; To 0: not drawn, or no tickets
	Weights  string // of the tickets of large networks, as Line.Weights writes them; "": all are equal
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

	ranks, numbers []uint32 // with weights, in place of the network: by number and by rank, from From on
}

// Order prepares a draw for look-ups. It computes one hash for each entry of the tables.
func (d Draw) Order() *Order {
	o := &Order{Draw: d}
	if d.To <= d.From {
		return o
	}
	if d.Weights != "" {
		o.weigh()
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
	if o.ranks != nil {
		return o.From + uint64(o.ranks[number-o.From])
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
	if o.numbers != nil {
		return o.From + uint64(o.numbers[rank-o.From])
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

// Weights are counted in quarters, rounded so that no network gets more than its chances: a ticket has
// the weight wholeWeight/exponent. maxWeights bounds what a record has of them, as for the places of a
// random order. Chosen.
const (
	wholeWeight = 4
	weightBits  = 3
	maxWeights  = 256 << 10
)

// SetDrawWeight sets how many chances all tickets of one network have together in a draw; 0: as many
// as tickets.
func (l *Lines) SetDrawWeight(chances int) {
	for _, x := range l.all {
		if x != nil {
			x.weight = chances
		}
	}
}

// NoProof is the network of all tickets that need the solution of a challenge to have their chances in a
// draw, and do not have it. Networks of visitors are odd numbers.
const NoProof uint32 = 1<<32 - 2

// SetNetwork notes the network of a ticket's visitor, 0 if it has no bound. The first one counts, except
// that any other replaces NoProof. That of a ticket that has no place any more does not count.
func (l *Lines) SetNetwork(number uint64, network uint32) {
	x := l.of(number)
	if c, i := x.findAny(x.rank(number)); c != nil && (c.network(i) == 0 || c.network(i) == NoProof) {
		x.setNetwork(x.rank(number), network)
	}
}

// Network returns the network of a ticket's visitor, 0 if it is unknown or the ticket has no place.
func (l *Line) Network(number uint64) uint32 {
	if c, i := l.findAny(l.rank(number)); c != nil {
		return c.network(i)
	}
	return 0
}

func (c *lineChunk) network(i uint64) uint32 {
	if c.networks == nil {
		return 0
	}
	return c.networks[i]
}

// setNetwork changes the network of a place, and the number of places of both networks.
func (l *Line) setNetwork(rank uint64, network uint32) {
	k, i := rank>>lineShift-l.base, rank&lineMask
	if k >= uint64(len(l.chunks)) || l.chunks[k] == nil {
		return
	}
	c := l.chunks[k]
	if was := c.network(i); was != 0 {
		if l.crowds[was]--; l.crowds[was] == 0 {
			delete(l.crowds, was)
		}
	}
	if c.setNetwork(i, network); network == 0 {
		return
	}
	if l.crowds == nil {
		l.crowds = map[uint32]int{}
	}
	l.crowds[network]++
}

func (c *lineChunk) setNetwork(i uint64, network uint32) {
	if c.networks == nil {
		if network == 0 {
			return
		}
		c.networks = new([lineSize]uint32)
	}
	c.networks[i] = network
}

// Weights returns the weights of the tickets from from up to, but not including, to, for a Draw: each
// exponent with the runs of its numbers. It returns "" if all weigh the same. If there are too many to
// write, they are rounded down further. If that is not enough, all tickets of large networks weigh the
// same, so that together they have no more chances.
func (l *Line) Weights(from, to uint64) string {
	crowds := map[uint32]int{}
	for n := from; n < to; n++ {
		if network := l.Network(n); network != 0 {
			crowds[network]++
		}
	}
	tickets, networks := 0, 0
	for network, n := range crowds {
		if l.weight == 0 || n <= l.weight {
			delete(crowds, network)
			continue
		}
		tickets, networks = tickets+n, networks+1
	}
	if networks == 0 {
		return ""
	}
	for _, step := range []int{0, 2, 4, 8} {
		w := l.weights(from, to, step, func(network uint32) int { return crowds[network] })
		if len(w) <= maxWeights {
			return w
		}
	}
	mean := (tickets + networks - 1) / networks
	w := l.weights(from, to, 0, func(network uint32) int { return min(crowds[network], 1) * mean })
	if len(w) > maxWeights {
		return ""
	}
	return w
}

// weights returns the weights of the tickets of networks of a size. The size 0 is that of networks
// whose tickets have a whole chance each.
func (l *Line) weights(from, to uint64, step int, size func(uint32) int) string {
	runs := map[uint64][]Run{}
	for n := to - 1; n >= from; n-- {
		if many := size(l.Network(n)); many > 0 {
			x := rounded(uint64(many*wholeWeight+l.weight-1)/uint64(l.weight), step)
			runs[x] = appendMerged(runs[x], []Run{{n, 1}})
		}
	}
	var b []byte
	for _, x := range slices.Sorted(maps.Keys(runs)) {
		b = codec.AppendText(codec.AppendUint(b, x), AppendRuns(nil, to, runs[x]))
	}
	return string(b)
}

// rounded rounds an exponent up: to weightBits digits, or to a power of 2^step.
func rounded(x uint64, step int) uint64 {
	if step > 0 {
		return min(uint64(1)<<((bits.Len64(x-1)+step-1)/step*step), wholeWeight*lineMost)
	}
	up := max(0, bits.Len64(x)-weightBits)
	return (x + 1<<up - 1) >> up << up
}

// runs calls f with each run of tickets of the same exponent. The weights of a damaged record are an
// error: of more tickets, or of others, than those of the draw.
func (d *Draw) runs(f func(exponent uint64, run Run)) error {
	left := d.To - d.From
	for r := codec.NewReader([]byte(d.Weights)); !r.Done(); {
		x := r.Uint()
		runs, err := ParseRuns(r.Bytes(maxWeights), d.To)
		if err != nil || r.Bad() || x < wholeWeight || x > wholeWeight*lineMost {
			return errRuns
		}
		for _, run := range runs {
			if run.First < d.From || run.N > left {
				return errRuns
			}
			left -= run.N
			f(x, run)
		}
	}
	return nil
}

// exponents returns the exponent of each ticket of a draw.
func (d *Draw) exponents() ([]uint64, error) {
	all := slices.Repeat([]uint64{wholeWeight}, int(d.To-d.From))
	err := d.runs(func(x uint64, run Run) {
		for i := range run.N {
			all[run.First-d.From+i] = x
		}
	})
	return all, err
}

// A fraction is mantissa / 2^(64+shift), a number in (0, 1). The highest bit of mantissa is set.
type fraction struct{ mantissa, shift uint64 }

func (a fraction) times(b fraction) fraction {
	hi, lo := bits.Mul64(a.mantissa, b.mantissa)
	if a.shift += b.shift; hi>>63 == 0 {
		hi, a.shift = hi<<1|lo>>63, a.shift+1
	}
	return fraction{hi, a.shift}
}

func (a fraction) power(n uint64) fraction {
	x := a
	for bit := bits.Len64(n) - 2; bit >= 0; bit-- {
		if x = x.times(x); n>>bit&1 != 0 {
			x = x.times(a)
		}
	}
	return x
}

// weigh sorts the tickets by their keys. To sort by u^(1/w), it raises u to the exponents.
func (o *Order) weigh() {
	exponents, err := o.exponents()
	if err != nil { // a record with such a draw cannot be read
		panic(err)
	}
	keys := make([]fraction, len(exponents))
	o.ranks, o.numbers = make([]uint32, len(keys)), make([]uint32, len(keys))
	var b [41]byte
	copy(b[:], o.Seed[:])
	b[32] = drawRounds
	for i, x := range exponents {
		binary.BigEndian.PutUint64(b[33:], uint64(i))
		sum := sha256.Sum256(b[:])
		u := binary.BigEndian.Uint64(sum[:]) | 1
		zeros := bits.LeadingZeros64(u)
		keys[i], o.numbers[i] = fraction{u << zeros, uint64(zeros)}.power(x), uint32(i)
	}
	slices.SortFunc(o.numbers, func(a, b uint32) int {
		x, y := keys[a], keys[b]
		return cmp.Or(cmp.Compare(x.shift, y.shift), cmp.Compare(y.mantissa, x.mantissa), cmp.Compare(a, b))
	})
	for rank, i := range o.numbers {
		o.ranks[i] = uint32(rank)
	}
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
		old[n-d.From] = drawnPlace{c.places[i], c.setsOf(i), c.network(i)}
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
	c := l.chunks[l.index(rank)]
	c.setNetwork(rank&lineMask, 0)
	c.live--
}

// A drawnPlace is a place on its way to its rank, with one bit for each set that it is in. 0 bits
// mean no place.
type drawnPlace struct {
	place   linePlace
	sets    uint16
	network uint32
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
	c.setNetwork(i, x.network) // the network has as many places as before
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
