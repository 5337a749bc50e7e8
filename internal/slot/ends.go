package slot

import (
	"slices"

	"github.com/headgate/headgate/internal/codec"
)

// Ends counts the sessions of one limit by their end, in counter time. Ends lie on the limit's
// grid, so there are only a few hundred distinct ones for any number of sessions. The zero value is
// empty.
type Ends struct {
	at []EndCount // ascending by End, N > 0
	n  int64
}

// EndCount means that N sessions end at End.
type EndCount struct {
	End Time
	N   int64
}

// Len returns the number of sessions.
func (e *Ends) Len() int64 { return e.n }

// All returns the counts ordered by end. The caller must not change the result.
func (e *Ends) All() []EndCount { return e.at }

// Clone returns a deep copy.
func (e *Ends) Clone() Ends { return Ends{at: slices.Clone(e.at), n: e.n} }

func (e *Ends) find(t Time) (int, bool) {
	// New ends are nearly always the latest: look there first.
	if k := len(e.at); k == 0 || t > e.at[k-1].End {
		return k, false
	} else if t == e.at[k-1].End {
		return k - 1, true
	}
	return slices.BinarySearchFunc(e.at, t, func(c EndCount, t Time) int {
		switch {
		case c.End < t:
			return -1
		case c.End > t:
			return 1
		}
		return 0
	})
}

// Add adds n sessions that end at t.
func (e *Ends) Add(t Time, n int64) {
	i, ok := e.find(t)
	if !ok {
		e.at = slices.Insert(e.at, i, EndCount{End: t})
	}
	e.at[i].N += n
	e.n += n
}

// Remove removes one session that ends at t and reports whether there was one.
func (e *Ends) Remove(t Time) bool {
	i, ok := e.find(t)
	if !ok {
		return false
	}
	e.n--
	if e.at[i].N--; e.at[i].N == 0 {
		e.at = slices.Delete(e.at, i, i+1)
	}
	return true
}

// last returns the latest end, or 0 if there is none.
func (e *Ends) last() Time {
	if k := len(e.at); k > 0 {
		return e.at[k-1].End
	}
	return 0
}

// Free drops every session with an end ≤ t and calls freed for each bucket.
func (e *Ends) Free(t Time, freed func(EndCount)) {
	k := 0
	for ; k < len(e.at) && e.at[k].End <= t; k++ {
		e.n -= e.at[k].N
		freed(e.at[k])
	}
	e.at = slices.Delete(e.at, 0, k)
}

// After returns how many sessions end later than t.
func (e *Ends) After(t Time) (n int64) {
	for i := len(e.at) - 1; i >= 0 && e.at[i].End > t; i-- {
		n += e.at[i].N
	}
	return n
}

// Until returns how many sessions end at or before t.
func (e *Ends) Until(t Time) (n int64) {
	for _, c := range e.at {
		if c.End > t {
			break
		}
		n += c.N
	}
	return n
}

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
