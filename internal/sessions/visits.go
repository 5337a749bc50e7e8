// Package sessions remembers the stays that one worker has seen: who is in flight, who must be
// renewed, which later ends the counter has confirmed, who has left, and from how many networks
// a pass is used.
//
// # The promise
//
// Who enters before a report has passed is in that report, and who enters after it has read a
// later time than the report speaks for: no renewal is forgotten.
//
// # Concurrency and cost
//
// A Set may be used by many goroutines at once; 64 shards have a lock each, and none is held
// while anything waits. One entry a stay inside, forgotten a minute after its end.
//
// # What it does not do
//
// It sends nothing: a report is handed what to note.
package sessions

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/histogram"
	"github.com/headgate/headgate/internal/slot"
)

// HoldFixed is how far ahead the slot of a stay is held that is in flight past its fixed end.
const HoldFixed = 3 * time.Second

// Rules are how long a stay lasts. They are never changed.
type Rules struct {
	Session  time.Duration
	Longest  time.Duration // that a renewal may ask for: what the counter takes a session for
	Grid     slot.Time     // of ends
	Fixed    bool
	Changing bool // another session is about to be in force
}

// Hard is the hard end with which a renewal at a sighting asks for last and not for Longest.
func (r *Rules) Hard(at slot.Time, last time.Duration, hard slot.Time) slot.Time {
	if last >= r.Longest {
		return hard
	}
	end := (at.Add(last) + r.Grid - 1) / r.Grid * r.Grid
	if hard > 0 {
		end = min(end, hard)
	}
	return end
}

// A Set is the stays that a worker has seen.
type Set struct {
	// now brackets the counter's time. It is read with a shard locked: whoever
	// enters before a report has passed the shard is in that report, whoever
	// enters after it has read a later time than the report speaks for.
	now     func() (lo, hi slot.Time)
	session func() time.Duration // no pass of before may end later than this after it was seen
	next    int                  // shard at which the next report begins
	shards  [shards]shard
	seed    maphash.Seed

	// Shared counts the visits that were seen in more networks than Sharing allows, Refused their
	// requests that were not let through for it.
	Shared, Refused atomic.Int64

	// Of the stays that began here and are over: from the first request to the last byte, and
	// the longest that a visitor was silent in between.
	Inside, Silent histogram.Histogram
}

const shards = 64

type shard struct {
	mu    sync.Mutex
	stay  map[slot.StayID]*visit
	dirty []slot.StayID             // to be looked at by the next report
	gone  map[slot.StayID]slot.Time // left early: refused until the pass ends
}

// visit is one stay as this worker knows it. Guarded by its shard.
type visit struct {
	end     slot.Time // confirmed: a pass may say this
	entry   slot.Time // Confirmed end of the slot, beyond end while in flight past a fixed end
	hard    slot.Time
	seen    slot.Time // last sighting
	came    slot.Time // when it began; 0: it did not begin here
	silent  time.Duration
	open    int  // requests in flight
	dirty   bool // in its shard's list
	revoked bool
	probe   bool // the cookie has not come back: not renewed
	brief   bool // not renewed before it is answered

	last             Source
	networks, agents few
	shared           bool // counted in Shared
	answered         bool
	returned         returned
}

// returned is whether the pass of a ticket has come back, which the counter must hear once.
type returned uint8

const (
	notReturned returned = iota
	isReturned           // to be reported
	isReported
)

// A Stay is a stay as a pass tells of it.
type Session struct {
	ID        slot.StayID
	End, Hard slot.Time
	Probe     bool // given to a request without a cookie that opens no page
	// Brief: the cookie has not come back, and the session is no longer than a probation. It is renewed
	// once the origin answers; a slow body that nobody else would wait for does not renew it.
	Brief   bool
	New     bool // a first request: it has no pass, but a ticket or nothing
	Claimed bool // by a ticket, perhaps
	Source  Source
	Sharing Sharing
}

// Entered is how a request of a stay fares.
type Entry uint8

// The ways.
const (
	Over   Entry = iota // the stay is over
	In                  // the request is one of the stay
	Beyond              // it comes from one network too many
)

// New makes an empty set. now brackets the counter's time; session is the longest that a pass
// may say of a stay after it was seen.
func New(now func() (lo, hi slot.Time), session func() time.Duration) *Set {
	v := &Set{now: now, session: session, seed: maphash.MakeSeed()}
	for i := range v.shards {
		v.shards[i].stay = map[slot.StayID]*visit{}
		v.shards[i].gone = map[slot.StayID]slot.Time{}
	}
	return v
}

func (v *Set) shard(id slot.StayID) *shard {
	return &v.shards[uint64(id)*0x9E3779B97F4A7C15>>58]
}

// touch notes a sighting at lo.
func (s *shard) touch(id slot.StayID, x *visit, lo slot.Time) {
	x.seen = lo // of a later host it may be less: its time stood still
	if !x.dirty {
		x.dirty = true
		s.dirty = append(s.dirty, id)
	}
}

// Enter notes a request of a stay that begins now. It returns the latest
// Confirmed end and when the visitor was seen. A stay is over if it left early, or
// its end has passed.
func (v *Set) Enter(y *Session) (last, seen slot.Time, how Entry) {
	s := v.shard(y.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	lo, hi := v.now()
	x := s.stay[y.ID]
	switch {
	case x == nil:
		if _, left := s.gone[y.ID]; left || hi >= y.End {
			return y.End, 0, Over
		}
		x = &visit{end: y.End, entry: y.End, hard: y.Hard, probe: y.Probe, brief: y.Brief}
		if y.New {
			x.came, x.seen = lo, lo
		}
		s.stay[y.ID] = x
	case x.revoked:
		return y.End, 0, Over
	case y.End > x.end: // another worker has learnt of a later one
		x.end, x.entry = y.End, max(y.End, x.entry)
	}
	if hi >= x.end {
		return x.end, 0, Over
	}
	if !v.note(x, y) {
		return x.end, 0, Beyond
	}
	if !y.New && y.Claimed && x.returned == notReturned {
		x.returned = isReturned
	}
	if x.came > 0 && x.open == 0 {
		x.silent = max(x.silent, lo.Sub(x.seen))
	}
	x.open++
	x.probe, x.brief = x.probe && y.Probe, x.brief && y.Brief
	s.touch(y.ID, x, lo)
	return x.end, x.seen, In
}

// Learn notes a later end that the counter has confirmed.
func (v *Set) Learn(id slot.StayID, end slot.Time) {
	s := v.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.stay[id]; x != nil {
		x.end, x.entry = max(x.end, end), max(x.entry, end)
	}
}

// Answered notes that the origin answers the first request of a stay, and reports whether it is the
// first that is answered here: a claim may be repeated, and the stay is one new user all the same.
func (v *Set) Answered(id slot.StayID) (first bool) {
	s := v.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.stay[id]
	if x == nil || x.answered {
		return x == nil
	}
	x.answered = true
	return true
}

// Leave notes the last byte of a request. left is true if the stay was revoked
// and nothing of it is in flight any more; from is then the end of its slot.
func (v *Set) Leave(id slot.StayID) (from slot.Time, left bool) {
	s := v.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.stay[id]
	if x == nil {
		return 0, false
	}
	x.open--
	lo, _ := v.now()
	s.touch(id, x, lo)
	if x.open > 0 || !x.revoked {
		return 0, false
	}
	v.forget(s, id, x)
	s.gone[id] = max(x.entry, x.seen.Add(v.session()))
	return x.entry, true
}

// forget lets a stay go that is over, and counts how long it was. Its shard is locked. Who let a
// visitor in counts the stay, as far as it has seen it: nobody else knows when it began.
func (v *Set) forget(s *shard, id slot.StayID, x *visit) {
	delete(s.stay, id)
	if x.came > 0 && (!x.probe || x.revoked) {
		v.Inside.Add(x.seen.Sub(x.came))
		v.Silent.Add(x.silent)
	}
}

// Revoke ends a stay when its last request is done; new ones are refused now.
func (v *Set) Revoke(id slot.StayID) {
	s := v.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.stay[id]; x != nil {
		x.revoked = true
	}
}

// RevokeUnanswered is Revoke of a stay whose first request has no answer yet, so that nobody has its
// cookie. It reports whether that is so.
func (v *Set) RevokeUnanswered(id slot.StayID) bool {
	s := v.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.stay[id]
	if x == nil || x.answered {
		return false
	}
	x.revoked = true
	return true
}

// Look tells the confirmed end of a stay, 0 if none is known here, and whether it has left.
func (v *Set) Peek(id slot.StayID) (end slot.Time, gone bool) {
	s := v.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, gone = s.gone[id]; gone {
		return 0, true
	}
	if x := s.stay[id]; x != nil {
		return x.end, x.revoked
	}
	return 0, false
}

// End ends a stay at once, unless requests of it are in flight here: then when they are done, and
// left is false. It returns the end of its slot, from if that is later.
func (v *Set) End(id slot.StayID, from slot.Time) (last slot.Time, left bool) {
	s := v.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	until := from
	if x := s.stay[id]; x != nil {
		if x.open > 0 {
			x.revoked = true
			return x.entry, false
		}
		from = max(from, x.entry)
		until = max(from, x.seen.Add(v.session()))
		v.forget(s, id, x)
	}
	s.gone[id] = max(s.gone[id], until)
	return from, true
}

// Any reports whether any stay is remembered.
func (v *Set) Any() bool {
	for i := range v.shards {
		s := &v.shards[i]
		s.mu.Lock()
		n := len(s.stay)
		s.mu.Unlock()
		if n > 0 {
			return true
		}
	}
	return false
}

// Report gives what the counter must hear by lo to note, until note returns
// false, and reports whether that was all; the next report goes on from there.
func (v *Set) Report(lo slot.Time, rules *Rules, note func(slot.Item) bool) (all bool) {
	for range shards {
		if !v.shards[v.next].report(lo, rules, note) {
			return false
		}
		v.next = (v.next + 1) % shards
	}
	return true
}

func (s *shard) report(lo slot.Time, rules *Rules, note func(slot.Item) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	more, keep := true, s.dirty[:0]
	for i, id := range s.dirty {
		x := s.stay[id]
		if x == nil {
			continue
		}
		if !more {
			keep = append(keep, s.dirty[i:]...)
			break
		}
		if x.open > 0 { // look again next time
			x.seen = lo
			keep = append(keep, id)
		} else {
			x.seen, x.dirty = min(x.seen, lo), false // not in the future of a later host
		}
		if it, ok := x.renewal(id, lo, rules); ok {
			more = note(it)
		}
	}
	clear(s.dirty[len(keep):])
	s.dirty = keep
	return more
}

// renewal is what the counter must hear of a stay that was seen, if anything.
func (x *visit) renewal(id slot.StayID, lo slot.Time, rules *Rules) (it slot.Item, ok bool) {
	it = slot.Item{Op: slot.Renew, ID: id, From: x.entry, At: x.seen, Hard: x.hard}
	if x.revoked && x.open == 0 {
		return it, false
	}
	if x.returned == isReturned {
		x.returned, it.Use, ok = isReported, max(1, x.seen), true
	}
	if rules.Fixed || x.probe || x.brief && !x.answered { // held in flight, not renewed
		it.At = lo.Add(HoldFixed - rules.Longest)
		return it, ok || x.open > 0 && x.entry < lo.Add(HoldFixed)
	}
	it.Hard = rules.Hard(x.seen, rules.Session, x.hard)
	return it, ok || x.seen.Add(rules.Session) > x.end
}

// Sweep forgets stays whose end has passed. A pass may say a moment more than
// its slot, so they are kept a minute longer.
func (v *Set) Sweep(lo slot.Time) {
	for i := range v.shards {
		s := &v.shards[i]
		s.mu.Lock()
		for id, x := range s.stay {
			if x.open == 0 && !x.dirty && x.entry.Add(time.Minute) < lo {
				v.forget(s, id, x)
			}
		}
		for id, end := range s.gone {
			if end.Add(time.Minute) < lo {
				delete(s.gone, id)
			}
		}
		s.mu.Unlock()
	}
}

// Confirmed takes in what an answer says of stays: later ends, and who left. A
// fixed session's slot may be held longer, its pass never is.
func (v *Set) Confirmed(a *slot.Answer, fixed bool) {
	for _, r := range a.Results {
		if r.End > 0 {
			s := v.shard(r.ID)
			s.mu.Lock()
			if x := s.stay[r.ID]; x != nil {
				x.entry = max(x.entry, r.End)
				if !fixed && !x.probe {
					x.end = max(x.end, r.End)
				}
			}
			s.mu.Unlock()
		}
	}
	for _, g := range a.Gone {
		s := v.shard(g.ID)
		s.mu.Lock()
		s.gone[g.ID] = max(s.gone[g.ID], g.End)
		if x := s.stay[g.ID]; x != nil {
			x.revoked = true
		}
		s.mu.Unlock()
	}
}
