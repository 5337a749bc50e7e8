package slot

import (
	"slices"

	"github.com/headgate/headgate/internal/codec"
)

// Gone is a stay that left early; a pass for it admits no more.
type EarlyLeave struct {
	ID  StayID
	End Time // until when the pass would have said yes
}

// goneLog remembers who left early until their passes end, and which loan has
// been told how much of it.
type goneLog struct {
	log  []EarlyLeave
	base int64 // index of log[0]
	told map[LoanID]toldMark
	ends map[StayID]Time
}

type toldMark struct {
	seq        Seq
	next, sure int64
}

// maxGone bounds the log; chosen: at 40 B each 4 MB. mostLeft bounds what of it is in the
// record, the latest: 24 KB. Chosen: whoever copies a pass of an earlier one, of more than that
// within a session, and brings it after all processes were lost, is inside once more.
const (
	maxGone  = 100_000
	mostLeft = 4096
)

func (g *goneLog) add(x EarlyLeave) {
	if g.ends == nil {
		g.ends = map[StayID]Time{}
	}
	if len(g.log) >= maxGone {
		g.drop()
	}
	g.log = append(g.log, x)
	g.ends[x.ID] = x.End
}

// drop forgets the oldest. What is in a record is never changed in place.
func (g *goneLog) drop() {
	delete(g.ends, g.log[0].ID)
	g.log, g.base = g.log[1:], g.base+1
}

func (g *goneLog) expire(now Time) {
	for len(g.log) > 0 && g.log[0].End < now {
		g.drop()
	}
}

// latest is what a record keeps: whoever takes over knows who has left, though all processes
// that were told are lost.
func (g *goneLog) latest(now Time) []EarlyLeave {
	g.expire(now)
	return slices.Clip(g.log[max(0, len(g.log)-mostLeft):])
}

func (g *goneLog) has(id StayID) bool { _, ok := g.ends[id]; return ok }

// tell returns what loan has not been told. A new number proves that the
// answer before it arrived.
func (g *goneLog) tell(loan LoanID, seq Seq, now Time) []EarlyLeave {
	g.expire(now)
	if g.told == nil {
		g.told = map[LoanID]toldMark{}
	}
	m := g.told[loan]
	if m.seq != seq {
		m.seq, m.sure = seq, m.next
	}
	m.next = g.base + int64(len(g.log))
	g.told[loan] = m
	return slices.Clone(g.log[min(int64(len(g.log)), max(0, m.sure-g.base)):])
}

func appendLeft(b []byte, all []EarlyLeave) []byte {
	b = codec.AppendUint(b, uint64(len(all)))
	last := EarlyLeave{}
	for _, x := range all {
		b = codec.AppendInt(b, int64(x.ID-last.ID), int64(x.End-last.End))
		last = x
	}
	return b
}

func (d *decoder) left() (all []EarlyLeave) {
	last := EarlyLeave{}
	for range d.Count(mostLeft) {
		last = EarlyLeave{ID: last.ID + StayID(d.Int()), End: last.End + Time(d.Int())}
		all = append(all, last)
	}
	return all
}
