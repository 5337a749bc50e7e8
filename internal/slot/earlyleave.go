package slot

import (
	"slices"

	"github.com/headgate/headgate/internal/codec"
)

// An EarlyLeave is a session that ended before its time. A pass for it no longer admits.
type EarlyLeave struct {
	ID  SessionID
	End Time // when the pass would have expired
}

// goneLog remembers early leaves until their passes expire, and how much of the log was sent to
// each loan.
type goneLog struct {
	log  []EarlyLeave
	base int64 // index of log[0]
	told map[LoanID]toldMark
	ends map[SessionID]Time
}

type toldMark struct {
	seq        Seq
	next, sure int64
}

// maxGone bounds the log. Chosen: 4 MB at 40 B each. mostLeft bounds how many of the latest entries
// the record keeps: 24 KB. Chosen. The limit: if more visitors than this leave early within a
// session and then all processes are lost, somebody who copied the pass of an older entry can use
// it again.
const (
	maxGone  = 100_000
	mostLeft = 4096
)

func (g *goneLog) add(x EarlyLeave) {
	if g.ends == nil {
		g.ends = map[SessionID]Time{}
	}
	if len(g.log) >= maxGone {
		g.drop()
	}
	g.log = append(g.log, x)
	g.ends[x.ID] = x.End
}

// drop forgets the oldest entries. It does not change them in place, because a record may share
// them.
func (g *goneLog) drop() {
	delete(g.ends, g.log[0].ID)
	g.log, g.base = g.log[1:], g.base+1
}

func (g *goneLog) expire(now Time) {
	for len(g.log) > 0 && g.log[0].End < now {
		g.drop()
	}
}

// latest returns the entries that a record keeps. So a new host knows which visitors left, even if
// all processes that received the entries are lost.
func (g *goneLog) latest(now Time) []EarlyLeave {
	g.expire(now)
	return slices.Clip(g.log[max(0, len(g.log)-mostLeft):])
}

func (g *goneLog) has(id SessionID) bool { _, ok := g.ends[id]; return ok }

// tell returns the entries that loan has not received yet. A new sequence number proves that the
// previous answer arrived.
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
		last = EarlyLeave{ID: last.ID + SessionID(d.Int()), End: last.End + Time(d.Int())}
		all = append(all, last)
	}
	return all
}
