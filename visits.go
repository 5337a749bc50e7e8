package headgate

import (
	"sync"
	"time"

	"github.com/headgate/headgate/slot"
)

// visits remembers the stays this worker has seen: who is in flight, who must
// be renewed, which later ends the counter has confirmed. One entry a stay
// inside, forgotten when its end has passed.
type visits struct {
	// now brackets the counter's time. It is read with a shard locked: whoever
	// enters before a report has passed the shard is in that report, whoever
	// enters after it has read a later time than the report speaks for.
	now     func() (lo, hi slot.Tau)
	session func() time.Duration
	next    int // shard at which the next report begins
	shards  [visitShards]visitShard
}

const visitShards = 64

type visitShard struct {
	mu    sync.Mutex
	stay  map[slot.StayID]*visit
	dirty []slot.StayID            // to be looked at by the next report
	gone  map[slot.StayID]slot.Tau // left early: refused until the pass ends
}

// visit is one stay as this worker knows it. Guarded by its shard.
type visit struct {
	end     slot.Tau // confirmed: a pass may say this
	entry   slot.Tau // confirmed end of the slot, beyond end while in flight past a fixed end
	hard    slot.Tau
	seen    slot.Tau // last sighting
	open    int      // requests in flight
	dirty   bool     // in its shard's list
	revoked bool
	probe   bool // the cookie has not come back: not renewed
}

// stay is a stay as a pass tells of it.
type stay struct {
	id        slot.StayID
	end, hard slot.Tau
	probe     bool // given to a request without a cookie that opens no page
}

func (v *visits) init(now func() (lo, hi slot.Tau)) {
	v.now = now
	for i := range v.shards {
		v.shards[i].stay = map[slot.StayID]*visit{}
		v.shards[i].gone = map[slot.StayID]slot.Tau{}
	}
}

func (v *visits) shard(id slot.StayID) *visitShard {
	return &v.shards[uint64(id)*0x9E3779B97F4A7C15>>58]
}

// touch notes a sighting at lo.
func (s *visitShard) touch(id slot.StayID, x *visit, lo slot.Tau) {
	x.seen = lo // of a later host it may be less: its time stood still
	if !x.dirty {
		x.dirty = true
		s.dirty = append(s.dirty, id)
	}
}

// enter notes a request of a stay that begins now. It returns the latest
// confirmed end and when the visitor was seen; ok is false if the stay is over:
// it left early, or its end has passed.
func (v *visits) enter(y stay) (last, seen slot.Tau, ok bool) {
	s := v.shard(y.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	lo, hi := v.now()
	x := s.stay[y.id]
	switch {
	case x == nil:
		if _, left := s.gone[y.id]; left || hi >= y.end {
			return y.end, 0, false
		}
		x = &visit{end: y.end, entry: y.end, hard: y.hard, probe: y.probe}
		s.stay[y.id] = x
	case x.revoked:
		return y.end, 0, false
	case y.end > x.end: // another worker has learnt of a later one
		x.end, x.entry = y.end, max(y.end, x.entry)
	}
	if hi >= x.end {
		return x.end, 0, false
	}
	x.open++
	x.probe = x.probe && y.probe
	s.touch(y.id, x, lo)
	return x.end, x.seen, true
}

// learn notes a later end that the counter has confirmed.
func (v *visits) learn(id slot.StayID, end slot.Tau) {
	s := v.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.stay[id]; x != nil {
		x.end, x.entry = max(x.end, end), max(x.entry, end)
	}
}

// leave notes the last byte of a request. left is true if the stay was revoked
// and nothing of it is in flight any more; from is then the end of its slot.
func (v *visits) leave(id slot.StayID) (from slot.Tau, left bool) {
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
	delete(s.stay, id)
	s.gone[id] = max(x.entry, x.seen.Add(v.session()))
	return x.entry, true
}

// revoke ends a stay when its last request is done; new ones are refused now.
func (v *visits) revoke(id slot.StayID) {
	s := v.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.stay[id]; x != nil {
		x.revoked = true
	}
}

// any reports whether any stay is remembered.
func (v *visits) any() bool {
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

// report gives what the counter must hear by lo to note, until note returns
// false, and reports whether that was all; the next report goes on from there.
func (v *visits) report(lo slot.Tau, rules *stayRules, note func(slot.Item) bool) (all bool) {
	for range visitShards {
		if !v.shards[v.next].report(lo, rules, note) {
			return false
		}
		v.next = (v.next + 1) % visitShards
	}
	return true
}

func (s *visitShard) report(lo slot.Tau, rules *stayRules, note func(slot.Item) bool) bool {
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
func (x *visit) renewal(id slot.StayID, lo slot.Tau, rules *stayRules) (it slot.Item, ok bool) {
	it = slot.Item{Op: slot.Renew, ID: id, From: x.entry, At: x.seen, Hard: x.hard}
	switch {
	case x.revoked && x.open == 0:
		return it, false
	case rules.fixed || x.probe: // held in flight, not renewed
		it.At = lo.Add(holdFixed - rules.session)
		return it, x.open > 0 && x.entry < lo.Add(holdFixed)
	}
	return it, x.seen.Add(rules.session) > x.end
}

// sweep forgets stays whose end has passed. A pass may say a moment more than
// its slot, so they are kept a minute longer.
func (v *visits) sweep(lo slot.Tau) {
	for i := range v.shards {
		s := &v.shards[i]
		s.mu.Lock()
		for id, x := range s.stay {
			if x.open == 0 && !x.dirty && x.entry.Add(time.Minute) < lo {
				delete(s.stay, id)
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

// confirmed takes in what an answer says of stays: later ends, and who left. A
// fixed session's slot may be held longer, its pass never is.
func (v *visits) confirmed(a *slot.Answer, fixed bool) {
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
