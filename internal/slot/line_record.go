package slot

import (
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/codec"
)

// headPlaces is how many places from the frontier on a record says for how long
// their visitors may be silent. Chosen: as many as may be called before the rest
// has spoken.
const headPlaces = 512

// AppendHeads appends, one byte each, how long the holders of the first numbers from
// the frontier on may be silent and still be on time; 0 holds no place.
func (l *Line) AppendHeads(b []byte, now Time) []byte {
	for n := l.frontier; n < l.frontier+headPlaces && n < l.next; n++ {
		c, i := l.find(n)
		switch {
		case c == nil:
			b = append(b, 0)
		case c.places[i].window == 0 && l.restored.Grace != nil: // unheard since the last time
			left := l.restored.Grace(n-l.restored.Frontier) - time.Duration(now-l.restored.At)
			b = append(b, byte(newLineSpan(max(left, lineTick))))
		default:
			b = append(b, byte(c.places[i].window))
		}
	}
	return b
}

// HeadGrace is how long a ticket may be silent that lies so far from the frontier,
// by what AppendHeads has written; ok is false beyond it.
func HeadGrace(heads []byte, distance uint64) (grace time.Duration, ok bool) {
	if distance >= uint64(len(heads)) {
		return 0, false
	}
	return time.Duration(lineSpan(heads[distance]).ticks()) * lineTick, true
}

// SkippedBytes is how much of a record the skipped tickets may take (protocol
// §3, §8). It holds 10,000 runs at least, and each number of half a million.
const SkippedBytes = 64 << 10

// lineReach bounds how far a restored line goes back, and lineMost how many
// unheard places it makes, so that a damaged record cannot ask for all memory.
// Both are chosen: a year of a busy room, and 2.5 GB.
const (
	lineReach = 1 << 34
	lineMost  = 1 << 28
)

// Skipped gives the tickets below the frontier that hold a place, as runs, the
// newest first. Called tickets are among them: calls are not written, so a new
// host must find them as late ones, or their visitors would have lost a place.
//
// Provisional tickets are among them too, and among those of AppendUnsure: their visitors may have
// the cookie, so a new host must find them as numbers that were perhaps never issued.
func (l *Line) Skipped() iter.Seq[Run] { return l.runs(liveSet, l.frontier) }

// AppendUnsure appends the runs of numbers that were reserved before a restart
// and have not been heard yet, the newest first, at most some.
func (l *Line) AppendUnconfirmed(runs []Run, most int) []Run {
	for run := range l.runs(unsureSet, l.next) {
		if most--; most < 0 {
			break
		}
		runs = append(runs, run)
	}
	return runs
}

// runs gives the provisional tickets and the members of a searched set below a number, as runs
// from the top down.
func (l *Line) runs(set int, number uint64) iter.Seq[Run] {
	return func(yield func(Run) bool) {
		var run Run
		for at, word := range l.below(set, number) {
			for word != 0 {
				top := bits.Len64(word)
				n := bits.LeadingZeros64(^(word << (64 - top)))
				word &= 1<<(top-n) - 1
				first := at + uint64(top-n)
				if first+uint64(n) == run.First {
					run = Run{first, run.N + uint64(n)}
					continue
				}
				if run.N > 0 && !yield(run) {
					return
				}
				run = Run{first, uint64(n)}
			}
		}
		if run.N > 0 {
			yield(run)
		}
	}
}

// below gives the words of the bitmaps of a searched set and of the provisional one below a
// number from the top down, each with the number of its first bit. Chunks without members cost
// nothing.
func (l *Line) below(set int, number uint64) iter.Seq2[uint64, uint64] {
	return func(yield func(uint64, uint64) bool) {
		tree, more := l.trees[set], l.trees[provisionalSet]
		k := min(l.index(number), len(l.chunks)-1)
		for k >= 0 {
			first := (l.base + uint64(k)) << lineShift
			for w := lineWords - 1; w >= 0 && l.chunks[k] != nil; w-- {
				at, word := first+uint64(w)<<6, l.chunks[k].sets[set][w]|l.chunks[k].sets[provisionalSet][w]
				if number < at+64 {
					word &= 1<<(max(number, at)-at) - 1
				}
				if word != 0 && !yield(at, word) {
					return
				}
			}
			a, b := tree.sum(k), more.sum(k)
			if k = -1; a > 0 {
				k = tree.find(a - 1)
			}
			if b > 0 {
				k = max(k, more.find(b-1))
			}
		}
	}
}

// AppendSkipped appends the runs of Skipped, as many as AppendRuns writes in
// limit bytes; the oldest that do not fit are forgotten.
//
// Forgetting in the record alone is safe. The host still knows those tickets
// and admits each once; to its successor they are used up.
func (l *Line) AppendSkipped(runs []Run, limit int) []Run {
	var w runsWriter
	w.begin(l.frontier)
	for c, part := range byChunk(l.Skipped()) {
		w.b = w.b[:0]
		if w.chunk(c, part); len(w.b) > limit {
			break
		}
		limit -= len(w.b)
		runs = appendMerged(runs, part)
	}
	return runs
}

// AppendRuns appends runs as Skipped gives them, all below the frontier: by neighbourhoods of
// 1,024 numbers from the top down, each as its runs or, where that is shorter, as its bits. So
// a line of which half was drawn takes an eighth of a byte for each number.
func AppendRuns(b []byte, frontier uint64, runs []Run) []byte {
	w := runsWriter{b: b}
	w.begin(frontier)
	for c, part := range byChunk(slices.Values(runs)) {
		w.chunk(c, part)
	}
	return w.b
}

// byChunk cuts runs where neighbourhoods end, and gives those of each from the top down.
func byChunk(runs iter.Seq[Run]) iter.Seq2[uint64, []Run] {
	return func(yield func(uint64, []Run) bool) {
		var part []Run
		at := uint64(0)
		for run := range runs {
			for run.N > 0 {
				c := (run.First + run.N - 1) >> lineShift
				if c != at && len(part) > 0 {
					if !yield(at, part) {
						return
					}
					part = part[:0]
				}
				first := max(run.First, c<<lineShift)
				at, part = c, append(part, Run{first, run.First + run.N - first})
				run.N = first - run.First
			}
		}
		if len(part) > 0 {
			yield(at, part)
		}
	}
}

// appendMerged appends runs that lie below all of before; one that ends where the last begins
// lengthens it.
func appendMerged(runs, more []Run) []Run {
	for _, run := range more {
		if n := len(runs); n > 0 && run.First+run.N == runs[n-1].First {
			runs[n-1] = Run{run.First, run.N + runs[n-1].N}
			continue
		}
		runs = append(runs, run)
	}
	return runs
}

// A runsWriter writes neighbourhoods from the top down.
type runsWriter struct {
	b     []byte
	last  uint64 // the neighbourhood before
	pairs []byte
}

func (w *runsWriter) begin(frontier uint64) { w.last = frontier >> lineShift }

// chunk writes how many neighbourhoods lie between, how many runs there are, and of each how
// far its end lies below the beginning of the one before and how long it is; or 0 and the bits.
func (w *runsWriter) chunk(c uint64, part []Run) {
	w.b = codec.AppendUint(w.b, w.last-c)
	w.last, w.pairs = c, w.pairs[:0]
	top := (c + 1) << lineShift
	for _, run := range part {
		w.pairs = codec.AppendUint(w.pairs, top-run.First-run.N, run.N)
		top = run.First
	}
	if len(w.pairs) < lineWords*8 {
		w.b = append(codec.AppendUint(w.b, uint64(len(part))), w.pairs...)
		return
	}
	var words [lineWords]uint64
	for _, run := range part {
		for n := run.First; n < run.First+run.N; n++ {
			words[n&lineMask>>6] |= 1 << (n & 63)
		}
	}
	w.b = codec.AppendFixed(append(w.b, 0), words[:]...)
}

// ParseRuns reads what AppendRuns wrote beside that frontier.
func ParseRuns(b []byte, frontier uint64) (runs []Run, err error) {
	d := decoder{codec.NewReader(b)}
	top := frontier // all that follows lies below
	for c := frontier >> lineShift; d.Len() > 0; {
		gap, n := d.Uint(), d.Uint()
		if gap > c || n > lineWords*32 {
			return nil, errRuns
		}
		c -= gap
		var part []Run
		if n == 0 {
			part = d.bits(c)
		} else {
			part = d.pairs(c, n)
		}
		for _, run := range part {
			if run.First+run.N > top {
				return nil, errRuns
			}
			top = run.First
		}
		if d.Bad() || len(part) == 0 {
			return nil, errRuns
		}
		runs = appendMerged(runs, part)
	}
	return runs, nil
}

// pairs reads the runs of a neighbourhood.
func (d *decoder) pairs(c, n uint64) (part []Run) {
	left := uint64(1) << lineShift
	for range n {
		gap, count := d.Uint(), d.Uint()
		if gap > left || count == 0 || count > left-gap {
			d.Fail()
			return nil
		}
		left -= gap + count
		part = append(part, Run{c<<lineShift + left, count})
	}
	return part
}

// bits reads the bits of a neighbourhood.
func (d *decoder) bits(c uint64) (part []Run) {
	var words [lineWords]uint64
	for i := range words {
		words[i] = d.Fixed()
	}
	for w, word := range slices.Backward(words[:]) {
		at := c<<lineShift + uint64(w)<<6
		for word != 0 {
			top := bits.Len64(word)
			n := bits.LeadingZeros64(^(word << (64 - top)))
			word &= 1<<(top-n) - 1
			part = appendMerged(part, []Run{{at + uint64(top-n), uint64(n)}})
		}
	}
	return part
}

// inOrder reports whether runs are as Skipped gives them.
func inOrder(runs []Run, frontier uint64) bool {
	for _, run := range runs {
		if run.N == 0 || run.N > frontier || run.First > frontier-run.N {
			return false
		}
		frontier = run.First
	}
	return true
}

var errRuns = errors.New("slot: skipped tickets cannot be read: " +
	"the record is damaged; restore it, or start the line anew without them")

// Restored is what a new host knows of a line: its record and the time.
type Restored struct {
	At          Time   // now
	Oldest      Time   // arrival of the first waiter by the last record; 0: unknown, as At
	Frontier    uint64 // all below were called, skipped or dropped
	Next        uint64 // first number not reserved
	Issued      uint64 // first number that was surely not issued when the record was built; 0: Next
	Skipped     []Run  // newest first, as Skipped gives them
	Unconfirmed []Run  // numbers unsure already then, as AppendUnsure gives them
	Draws       []Draw // that the places lie by, the oldest first
	Loose       bool   // far more may be reserved than was ever issued: count nobody unheard

	// Hold is how long a ticket keeps its place after At, and after its last
	// poll from then on. The record does not say which visitors had a longer
	// one, so take the longest in use.
	Hold time.Duration
	// Grace is how long after At a ticket that has not spoken holds up those
	// behind it, given its distance from the frontier: twice the interval that
	// a ticket there is told. Nil is not at all.
	Grace func(distance uint64) time.Duration
	// UnsureGrace is the same for a number that is unsure, wherever it lies: those
	// who really have one joined a moment before.
	UnconfirmedGrace time.Duration
}

// RestoreLine grows a line back. Every number from Frontier to Next, and every
// skipped one, holds a place and counts as absent until it speaks. Numbers from
// Issued on were reserved and perhaps never issued: they hold a place like the
// others and hold up those behind them while Grace lasts. Positions count them
// until Hide, for a position must not rise; Len does not before they are heard.
func RestoreLine(r Restored) (*Line, error) {
	if r.Frontier > r.Next || r.Next-r.Frontier > lineMost {
		return nil, fmt.Errorf("slot: restore line: frontier %d and next %d do not "+
			"fit: the record is damaged; restore it", r.Frontier, r.Next)
	}
	oldest, places := r.Frontier, r.Next-r.Frontier
	for _, run := range r.Skipped {
		places += run.N
		if run.First >= oldest || run.N == 0 || run.N > oldest-run.First ||
			places > lineMost {
			return nil, fmt.Errorf("slot: restore line: skipped run %d+%d lies not below %d: "+
				"the record is damaged; restore it", run.First, run.N, oldest)
		}
		if r.Next-run.First > lineReach {
			break
		}
		oldest = run.First
	}
	origin := r.At
	if r.Oldest != 0 {
		origin = min(r.At, r.Oldest)
	}
	l := &Line{
		asked: askedBefore,
		base:  oldest >> lineShift, frontier: r.Frontier, next: r.Next,
		origin: origin, begun: true, restored: r,
	}
	for _, d := range r.Draws {
		l.draws = append(l.draws, d.Order())
	}
	l.restored.Skipped, l.restored.Draws = nil, nil
	l.make(r.Next)
	p := linePlace{seen: uint32(l.tick(r.At)), hold: newLineSpan(r.Hold)}
	for _, run := range r.Skipped {
		if run.First >= oldest {
			l.fill(run, p)
			l.late += int(run.N)
		}
	}
	l.fill(Run{r.Frontier, r.Next - r.Frontier}, p)
	if issued := max(r.Issued, r.Frontier); r.Issued > 0 && issued < r.Next {
		l.doubt(Run{issued, r.Next - issued})
	}
	if l.loose = r.Loose; l.loose {
		l.Hide()
	}
	for _, run := range r.Unconfirmed {
		if run.N <= r.Next && run.First <= r.Next-run.N {
			l.doubt(run)
			n, p := l.from(unsureSet, run.First)
			for ; p != nil && n < run.First+run.N; n, p = l.from(unsureSet, n+1) {
				l.mark(hiddenSet, n) // as they were before
			}
		}
	}
	l.restored.Unconfirmed = nil
	return l, nil
}

// make has room for all numbers below next.
func (l *Line) make(next uint64) {
	for l.index(next) > len(l.chunks) || next&lineMask != 0 && l.index(next) == len(l.chunks) {
		l.chunks = append(l.chunks, nil)
		for set := range l.trees {
			l.trees[set] = l.trees[set].grow()
		}
	}
}

// doubt marks the places of a run as unsure. One below the frontier was counted
// as late.
func (l *Line) doubt(run Run) {
	for n, p := l.from(liveSet, run.First); p != nil && n < run.First+run.N; n, p = l.from(liveSet, n+1) {
		if c, i := l.find(n); !c.has(unsureSet, i) {
			l.mark(unsureSet, n)
			if n < l.frontier {
				l.late--
			}
		}
	}
}

// fill gives every ticket of a run the same place. The chunks are there or nil.
func (l *Line) fill(run Run, p linePlace) {
	for n, end := run.First, run.First+run.N; n < end; {
		k := l.index(n)
		c := l.grow(k)
		stop := min(end, n&^lineMask+lineSize)
		added := int(stop - n)
		for ; n < stop; n++ {
			c.places[n&lineMask] = p
			c.set(liveSet, n&lineMask)
		}
		c.live += added
		l.trees[liveSet].add(k, added)
		l.counts[liveSet] += added
	}
}
