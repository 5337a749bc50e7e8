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

// headPlaces is for how many places from the frontier on a record contains how long their visitors
// may be silent. Chosen: as many as may be called before the rest has polled.
const headPlaces = 512

// AppendHeads appends, one byte each, how long the visitors of the first numbers from the frontier
// on may be silent and still be on time. 0 means that the number holds no place.
func (l *Line) AppendHeads(b []byte, now Time) []byte {
	for n := l.frontier; n < l.frontier+headPlaces && n < l.next; n++ {
		c, i := l.find(n)
		switch {
		case c == nil:
			b = append(b, 0)
		case c.places[i].window == 0 && l.restored.Grace != nil: // not polled since the last restore
			left := l.restored.Grace(n-l.restored.Frontier) - time.Duration(now-l.restored.At)
			b = append(b, byte(newLineSpan(max(left, lineTick))))
		default:
			b = append(b, byte(c.places[i].window))
		}
	}
	return b
}

// HeadGrace returns how long a ticket at a distance from the frontier may be silent, by what
// AppendHeads has written. ok is false beyond the places written.
func HeadGrace(heads []byte, distance uint64) (grace time.Duration, ok bool) {
	if distance >= uint64(len(heads)) {
		return 0, false
	}
	return time.Duration(lineSpan(heads[distance]).ticks()) * lineTick, true
}

// lineReach bounds how far back a restored line goes, and lineMost how many places that have not
// polled it makes, so that a damaged record cannot make a host allocate all memory. Both are
// chosen: a year of a busy room, and 2.5 GB.
const (
	lineReach = 1 << 34
	lineMost  = 1 << 28
)

// Skipped yields the tickets below the frontier that hold a place, as runs, newest first. It
// includes called tickets: calls are not written, so a new host must find these tickets as late
// ones. Otherwise their visitors would lose a place.
//
// It also includes provisional tickets, as AppendUnconfirmed does: their visitors may have the
// cookie, so a new host must find them as numbers that were perhaps never issued.
func (l *Line) Skipped() iter.Seq[Run] { return l.runs(liveSet, l.frontier) }

// AppendUnconfirmed appends the runs of numbers that were reserved before a restart and have not
// polled since, newest first, at most most runs.
func (l *Line) AppendUnconfirmed(runs []Run, most int) []Run {
	for run := range l.runs(unsureSet, l.next) {
		if most--; most < 0 {
			break
		}
		runs = append(runs, run)
	}
	return runs
}

// runs yields the provisional tickets and the members of a searched set below a number, as runs
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

// below yields the bitmap words of a searched set, joined with the provisional set, below a number
// from the top down, each with the number of its first bit. It skips chunks without members.
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

// AppendSkipped appends the runs of Skipped that AppendRuns can write in limit bytes. The oldest
// that do not fit are forgotten.
//
// Forgetting them only in the record is safe. The host still knows those tickets and admits each
// once; for its successor they are used up.
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

// AppendRuns appends runs in the order of Skipped, all below the frontier. It writes them by
// neighborhoods of 1,024 numbers from the top down, each as its runs or, where that is shorter, as
// its bits. So a line of which half was drawn takes an eighth of a byte for each number.
func AppendRuns(b []byte, frontier uint64, runs []Run) []byte {
	w := runsWriter{b: b}
	w.begin(frontier)
	for c, part := range byChunk(slices.Values(runs)) {
		w.chunk(c, part)
	}
	return w.b
}

// byChunk cuts runs at the ends of neighborhoods, and yields those of each neighborhood from the
// top down.
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

// appendMerged appends runs that lie below all earlier ones. A run that ends where the last one
// begins extends it.
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

// A runsWriter writes neighborhoods from the top down.
type runsWriter struct {
	b     []byte
	last  uint64 // the previous neighborhood
	pairs []byte
}

func (w *runsWriter) begin(frontier uint64) { w.last = frontier >> lineShift }

// chunk writes the number of neighborhoods between, then the number of runs, then for each run the
// distance from its end to the beginning of the run before and its length. In place of the runs it
// may write 0 and the bits.
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

// ParseRuns reads what AppendRuns wrote for the same frontier.
func ParseRuns(b []byte, frontier uint64) (runs []Run, err error) {
	d := decoder{codec.NewReader(b)}
	top := frontier // all following numbers lie below
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

// pairs reads the runs of a neighborhood.
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

// bits reads the bits of a neighborhood.
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

// inOrder reports whether runs are in the order of Skipped.
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
	"the record is damaged; restore it, or start the line again without them")

// Restored is what a new host knows of a line: its record and the time.
type Restored struct {
	At          Time   // now
	Oldest      Time   // arrival of the first waiting ticket by the last record; 0: unknown, as At
	Frontier    uint64 // all tickets below were called, skipped or dropped
	Next        uint64 // first number not reserved
	Issued      uint64 // first number surely not issued when the record was built; 0: Next
	Skipped     []Run  // newest first, in the order of Skipped
	Unconfirmed []Run  // numbers unconfirmed even then, in the order of AppendUnconfirmed
	Draws       []Draw // the draws that order the places, oldest first
	Loose       bool   // far more may be reserved than issued: count no ticket before it polls

	// Hold is how long a ticket keeps its place after At, and after its last poll from then on. The
	// record does not contain which visitors had a longer hold, so use the longest one.
	Hold time.Duration
	// Grace returns how long after At a ticket that has not polled holds up those behind it, given
	// its distance from the frontier: twice the polling interval of a ticket there. Nil means no
	// grace.
	Grace func(distance uint64) time.Duration
	// UnconfirmedGrace is the same for an unconfirmed number, at any distance: visitors who really
	// hold one joined shortly before the restart.
	UnconfirmedGrace time.Duration
}

// RestoreLine rebuilds a line. Every number from Frontier to Next, and every skipped one, holds a
// place and counts as absent until it polls. Numbers from Issued on were reserved and perhaps never
// issued. They hold a place like the others and hold up those behind them while Grace lasts.
// Positions count them until Hide, because a position must not rise. Len does not count them before
// they poll.
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
			return nil, fmt.Errorf("slot: restore line: skipped run %d+%d is not below %d: "+
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
				l.mark(hiddenSet, n) // as before the restart
			}
		}
	}
	l.restored.Unconfirmed = nil
	return l, nil
}

// make ensures room for all numbers below next.
func (l *Line) make(next uint64) {
	for l.index(next) > len(l.chunks) || next&lineMask != 0 && l.index(next) == len(l.chunks) {
		l.chunks = append(l.chunks, nil)
		for set := range l.trees {
			l.trees[set] = l.trees[set].grow()
		}
	}
}

// doubt marks the places of a run as unconfirmed. A place below the frontier was counted as late.
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

// fill gives every ticket of a run the same place. Each chunk of the run exists or is nil.
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

// A LanePart is what a record keeps of a lane's line, the same as of the ordinary line. If Name is
// empty, no lane uses the line now, but its numbers continue.
type LanePart struct {
	Lane
	Next, Issued, Frontier uint64
	Skipped, Unconfirmed   []Run
	Heads                  []byte
}

// lanePart returns the part of a line, with no number reserved. skipped and unsure bound its runs;
// see AppendSkipped and AppendUnconfirmed.
func (l *Lines) lanePart(lane int, now Time, skipped, unsure int) LanePart {
	x := l.all[lane]
	return LanePart{
		Lane: l.lanes[lane].Lane, Next: x.next, Issued: x.next, Frontier: x.frontier,
		Skipped: x.AppendSkipped(nil, skipped), Unconfirmed: x.AppendUnconfirmed(nil, unsure),
		Heads: x.AppendHeads(nil, now),
	}
}

// LaneParts returns the parts of all lines except the ordinary one.
func (l *Lines) LaneParts(now Time, skipped, unsure int) (all []LanePart) {
	for lane := 1; lane <= MaxLanes; lane++ {
		if l.all[lane] == nil { // a later lane may exist, after a rollback of the record
			if !slices.ContainsFunc(l.all[lane:], func(x *Line) bool { return x != nil }) {
				break
			}
			l.all[lane] = NewLine(firstOf(lane))
		}
		all = append(all, l.lanePart(lane, now, skipped, unsure))
	}
	return all
}

// RestoreLines rebuilds the ordinary line and the lanes. Fields of r that belong to no single line
// apply to all. grace returns the grace of a line.
func RestoreLines(
	r Restored, lanes []LanePart, grace func(lane int) func(distance uint64) time.Duration,
) (*Lines, error) {
	l := &Lines{}
	r.Grace = grace(0)
	var err error
	if l.all[0], err = RestoreLine(r); err != nil {
		return nil, err
	}
	if len(lanes) > MaxLanes {
		return nil, fmt.Errorf("slot: restore line: %d lanes: the record is damaged; restore it", len(lanes))
	}
	for i := range lanes {
		p, lane := &lanes[i], i+1
		if err := p.check(lane); err != nil {
			return nil, err
		}
		r.Next, r.Issued, r.Frontier = p.Next, p.Issued, p.Frontier
		r.Skipped, r.Unconfirmed, r.Draws, r.Grace = p.Skipped, p.Unconfirmed, nil, grace(lane)
		if l.all[lane], err = RestoreLine(r); err != nil {
			return nil, err
		}
		l.lanes[lane].Lane = p.Lane
	}
	l.weigh()
	return l, nil
}

// check returns an error if numbers belong to another line.
func (p *LanePart) check(lane int) error {
	ok := p.Frontier >= firstOf(lane) && p.Next < firstOf(lane+1) && p.Share >= 0 && p.Share < 100
	for _, run := range p.Skipped {
		ok = ok && run.First >= firstOf(lane)
	}
	if !ok {
		return fmt.Errorf("slot: restore line: lane %d has numbers of another lane: "+
			"the record is damaged; restore it", lane)
	}
	return nil
}

func cloneLanes(all []LanePart) []LanePart {
	all = slices.Clone(all)
	for i := range all {
		p := &all[i]
		p.Skipped, p.Unconfirmed = slices.Clone(p.Skipped), slices.Clone(p.Unconfirmed)
		p.Heads = slices.Clone(p.Heads)
	}
	return all
}

// lanesInOrder reports whether the runs of all lanes can be written.
func lanesInOrder(all []LanePart) bool {
	return !slices.ContainsFunc(all, func(p LanePart) bool { return !inOrder(p.Skipped, p.Frontier) })
}

func appendLanes(b []byte, all []LanePart) []byte {
	b = codec.AppendUint(b, uint64(len(all)))
	for i := range all {
		p := &all[i]
		b = appendName(b, p.Name)
		b = codec.AppendUint(b, uint64(p.Share), p.Next, p.Issued, p.Frontier)
		b = codec.AppendText(b, AppendRuns(nil, p.Frontier, p.Skipped))
		b = appendRunList(b, p.Unconfirmed)
		b = codec.AppendText(b, p.Heads)
	}
	return b
}

func (d *decoder) lanes() (all []LanePart) {
	for range d.Count(MaxLanes) {
		p := LanePart{Lane: Lane{Name: d.text()}}
		p.Share = int(min(d.Uint(), 100))
		p.Next, p.Issued, p.Frontier = d.Uint(), d.Uint(), d.Uint()
		var err error
		if p.Skipped, err = ParseRuns(d.bytes(maxSkipped), p.Frontier); err != nil {
			d.Fail()
		}
		p.Unconfirmed, p.Heads = d.runs(), d.bytes(headPlaces)
		all = append(all, p)
	}
	return all
}
