package slot

import (
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/codec"
)

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
