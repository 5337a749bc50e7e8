// Package sessions remembers the sessions that one worker has seen: which have requests in flight,
// which must be renewed, which later ends the counter has confirmed, which have ended early, and
// from how many networks a pass is used.
//
// # The promise
//
// No renewal is lost. A request that enters before a report has passed its shard is in that report.
// A request that enters after it has read a later time than the report covers.
//
// # Concurrency and cost
//
// Many goroutines may use a Set at once. Each of its 64 shards has a lock, and no lock is held
// while anything waits. A session takes one entry, which is removed a minute after the session's
// end.
//
// # Limits of the package
//
// It sends nothing: the caller of Report passes a function that takes the items.
package sessions

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/histogram"
	"github.com/headgate/headgate/internal/slot"
)

// HoldFixed is how far ahead a slot is held for a session that has requests in flight past its
// fixed end.
const HoldFixed = 3 * time.Second

// Rules define how long a session lasts. They never change.
type Rules struct {
	Session  time.Duration
	Longest  time.Duration // longest that a renewal may request: the counter's session length
	Grid     slot.Time     // of ends
	Fixed    bool
	Changing bool // another session length is about to be in force
}

// Claims returns the longest duration of a claimed session, or 0 for a session without a hard end:
// the counter then uses the longest session, and rounds this value down to its grid.
func Claims(session, longest, hardEnd time.Duration) time.Duration {
	if longest == session {
		return hardEnd
	}
	session += longest / 100
	if hardEnd > 0 {
		session = min(session, hardEnd)
	}
	return session
}

// Hard returns the hard end that makes a renewal at a sighting request last and not Longest.
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

// A Set holds the sessions that a worker has seen.
type Set struct {
	// now returns bounds on the counter's time. It is read while a shard is locked. So a request
	// that enters before a report has passed the shard is in that report, and one that enters after
	// it has read a later time than the report covers.
	now     func() (lo, hi slot.Time)
	session func() time.Duration // no earlier pass may end later than this after it was seen
	next    int                  // the shard where the next report begins
	shards  [shards]shard
	seed    maphash.Seed

	// Ended is called when a session ends early. It may be nil.
	Ended func(slot.SessionID)

	// Shared counts the sessions that were seen in more networks than Sharing allows. Refused
	// counts their requests that were rejected for that reason.
	Shared, Refused atomic.Int64

	// Inside and Silent count sessions that began here and are over. Inside is the time from the
	// first request to the last byte. Silent is the longest time without a request.
	Inside, Silent histogram.Histogram
}

const shards = 64

type shard struct {
	mu    sync.Mutex
	stay  map[slot.SessionID]*visit
	dirty []slot.SessionID             // for the next report to check
	gone  map[slot.SessionID]slot.Time // ended early: rejected until the pass expires
}

// visit is one session as this worker knows it. Its shard's lock guards it.
type visit struct {
	end     slot.Time // confirmed: a pass may contain it
	entry   slot.Time // confirmed end of the slot, later than end while in flight past a fixed end
	hard    slot.Time
	seen    slot.Time // last sighting
	came    slot.Time // when it began; 0: it did not begin here
	silent  time.Duration
	open    int  // requests in flight
	dirty   bool // it is in its shard's list
	revoked bool
	probe   bool // the cookie has not come back: it is not renewed
	brief   bool // not renewed before the origin answers

	last     Source
	networks few[uint32]
	agents   few[uint16]
	shared   bool // counted in Shared
	answered bool
	returned returned
}

// returned is whether the pass of a ticket has come back. The counter must receive this once.
type returned uint8

const (
	notReturned returned = iota
	isReturned           // to be reported
	isReported
)

// A Session is a session as described by a pass.
type Session struct {
	ID        slot.SessionID
	End, Hard slot.Time
	Probe     bool // issued to a request without a cookie that opens no page
	// Brief means that the cookie has not come back and that the session is no longer than a
	// probation. It is renewed once the origin answers. A slow request body does not renew it,
	// because other visitors should not have to wait for that.
	Brief   bool
	New     bool // a first request: it has a ticket or nothing, but no pass
	Claimed bool // perhaps by a ticket
	Source  Source
	Sharing Sharing
}

// An Entry is the result of Enter for a request.
type Entry uint8

// The results of Enter.
const (
	Over   Entry = iota // the session is over
	In                  // the request belongs to the session
	Beyond              // it comes from one network too many
)

// New makes an empty set. now returns bounds on the counter's time. session returns the longest
// time from a sighting to the end in a pass.
func New(now func() (lo, hi slot.Time), session func() time.Duration) *Set {
	v := &Set{now: now, session: session, seed: maphash.MakeSeed()}
	for i := range v.shards {
		v.shards[i].stay = map[slot.SessionID]*visit{}
		v.shards[i].gone = map[slot.SessionID]slot.Time{}
	}
	return v
}

func (v *Set) shard(id slot.SessionID) *shard {
	return &v.shards[uint64(id)*0x9E3779B97F4A7C15>>58]
}

// touch records a sighting at lo.
func (s *shard) touch(id slot.SessionID, x *visit, lo slot.Time) {
	x.seen = lo // may be earlier on a later host, whose time stood still
	if !x.dirty {
		x.dirty = true
		s.dirty = append(s.dirty, id)
	}
}

// Enter records that a request of a session begins now. It returns the latest confirmed end and
// when the visitor was seen. The result is Over if the session ended early or its end has passed.
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
	case y.End > x.end: // another worker has learned of a later end
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

// Learn records a later end that the counter has confirmed.
func (v *Set) Learn(id slot.SessionID, end slot.Time) {
	s := v.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.stay[id]; x != nil {
		x.end, x.entry = max(x.end, end), max(x.entry, end)
	}
}

// Answered records that the origin answers the first request of a session. It reports whether this
// is the first answer here: a claim may be repeated, but the session is still one new user.
func (v *Set) Answered(id slot.SessionID) (first bool) {
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

// Leave records the last byte of a request. left is true if the session was revoked and has no more
// requests in flight; from is then the end of its slot.
func (v *Set) Leave(id slot.SessionID) (from slot.Time, left bool) {
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

// forget removes a session that is over, and counts its duration. Its shard is locked. Only the
// worker that admitted the visitor counts the session, as far as it has seen it, because no other
// worker knows when it began.
func (v *Set) forget(s *shard, id slot.SessionID, x *visit) {
	delete(s.stay, id)
	if x.came > 0 && (!x.probe || x.revoked) {
		v.Inside.Add(x.seen.Sub(x.came))
		v.Silent.Add(x.silent)
	}
}

// Revoke ends a session when its last request is done. New requests are rejected from now on.
func (v *Set) Revoke(id slot.SessionID) {
	s := v.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.stay[id]; x != nil {
		x.revoked = true
		v.noteEnd(id)
	}
}

// RevokeUnanswered is Revoke for a session whose first request has no answer yet, so that nobody
// has its cookie. It returns false and changes nothing for other sessions.
func (v *Set) RevokeUnanswered(id slot.SessionID) bool {
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

// Peek returns the confirmed end of a session, 0 if none is known here, and whether it has ended
// early.
func (v *Set) Peek(id slot.SessionID) (end slot.Time, gone bool) {
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

// End ends a session at once. If it has requests in flight here, it ends when they are done, and
// left is false. End returns the end of the session's slot, or from if that is later.
func (v *Set) End(id slot.SessionID, from slot.Time) (last slot.Time, left bool) {
	s := v.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	v.noteEnd(id)
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

func (v *Set) noteEnd(id slot.SessionID) {
	if v.Ended != nil {
		v.Ended(id)
	}
}

// Any reports whether the set holds any session.
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

// Report calls note with each item that the counter needs by lo, until note returns false. It
// reports whether that was all. The next report continues from there.
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
		if x.open > 0 { // check it again next time
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

// renewal returns the item that the counter needs for a session that was seen. ok is false if it
// needs none.
func (x *visit) renewal(id slot.SessionID, lo slot.Time, rules *Rules) (it slot.Item, ok bool) {
	it = slot.Item{Op: slot.Renew, ID: id, From: x.entry, At: x.seen, Hard: x.hard}
	if x.revoked && x.open == 0 {
		return it, false
	}
	if x.returned == isReturned {
		x.returned, it.Use, ok = isReported, max(1, x.seen), true
	}
	if rules.Fixed || x.probe || x.brief && !x.answered { // its slot is held in flight, but not renewed
		it.At = lo.Add(HoldFixed - rules.Longest)
		return it, ok || x.open > 0 && x.entry < lo.Add(HoldFixed)
	}
	it.Hard = rules.Hard(x.seen, rules.Session, x.hard)
	return it, ok || x.seen.Add(rules.Session) > x.end
}

// Sweep removes sessions whose end has passed. A pass may expire slightly later than its slot, so
// sessions are kept a minute longer.
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

// Confirmed processes the later ends and early leaves in an answer. With fixed, the slot of a
// session may be held longer, but its pass never is.
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
		if _, known := s.gone[g.ID]; !known {
			v.noteEnd(g.ID)
		}
		s.gone[g.ID] = max(s.gone[g.ID], g.End)
		if x := s.stay[g.ID]; x != nil {
			x.revoked = true
		}
		s.mu.Unlock()
	}
}

// Source returns where a request comes from. A network is a /24 of IPv4 or a /48 of IPv6: the
// addresses of one connection or one location.
func (v *Set) Source(a netip.Addr, agent string) (f Source) {
	if a = a.Unmap(); a.Is4() {
		b := a.As4()
		f.network = short[uint32](maphash.Bytes(v.seed, b[:3]))
	} else if a.Is6() {
		b := a.As16()
		f.network = short[uint32](maphash.Bytes(v.seed, b[:6]))
	}
	f.agent = short[uint16](maphash.String(v.seed, agent))
	return f
}

// note records where a request of a session comes from. If the network is one too many, it returns
// false and records nothing.
func (v *Set) note(x *visit, y *Session) bool {
	if x.last == y.Source { // nearly always the case
		return true
	}
	if n := y.Source.network; n != 0 && !x.networks.has(n) {
		over := y.Sharing.Networks > 0 && int(x.networks.n) >= y.Sharing.Networks
		if over && !x.shared {
			x.shared = true
			v.Shared.Add(1)
		}
		if over && y.Sharing.Action != Mark {
			v.Refused.Add(1)
			return false
		}
		x.networks.add(n)
	}
	if a := y.Source.agent; a != 0 && !x.agents.has(a) {
		x.agents.add(a)
	}
	x.last = y.Source
	return true
}

// Allows reports whether a request of a session may come from its source. It records nothing.
func (v *Set) Allows(y *Session) bool {
	s := v.shard(y.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	x, n := s.stay[y.ID], y.Source.network
	return x == nil || n == 0 || y.Sharing.Action == Mark || x.networks.has(n) ||
		int(x.networks.n) < y.Sharing.Networks
}

// Shown returns how many networks and user agents a session has been seen with. Each is at most
// MaxSeen + 1, which means more than MaxSeen. Both are 0 if the session is not known here.
func (v *Set) Shown(id slot.SessionID) (networks, agents int) {
	s := v.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.stay[id]; x != nil {
		return int(x.networks.n), int(x.agents.n)
	}
	return 0, 0
}
