package headgate

import (
	"sync"
	"time"

	"github.com/headgate/headgate/slot"
)

// visits remembers the stays this worker has seen: who is in flight, who must
// be renewed, which later ends the counter has confirmed. One entry a stay
// inside, forgotten when its end has passed.
type visits [visitShards]visitShard

const visitShards = 64

type visitShard struct {
	mu   sync.Mutex
	stay map[slot.StayID]*visit
	gone map[slot.StayID]slot.Tau // left early: refused until the pass ends
}

// visit is one stay as this worker knows it. Guarded by its shard.
type visit struct {
	end     slot.Tau // confirmed: a pass may say this
	entry   slot.Tau // confirmed end of the slot, beyond end while in flight past a fixed end
	hard    slot.Tau
	seen    slot.Tau
	open    int // requests in flight
	dirty   bool
	revoked bool
	probe   bool // the cookie has not come back: not renewed
}

// stay is a stay as a pass tells of it.
type stay struct {
	id        slot.StayID
	end, hard slot.Tau
	probe     bool // given to a request without a cookie that opens no page
}

func (v *visits) init() {
	for i := range v {
		v[i].stay = map[slot.StayID]*visit{}
		v[i].gone = map[slot.StayID]slot.Tau{}
	}
}

func (v *visits) shard(id slot.StayID) *visitShard {
	return &v[uint64(id)*0x9E3779B97F4A7C15>>58]
}

// enter notes a request of a stay that begins at lo. It returns the latest
// confirmed end; ok is false if the stay is over: it left early, or its end is
// before hi.
func (v *visits) enter(y stay, lo, hi slot.Tau) (last slot.Tau, ok bool) {
	id, end := y.id, y.end
	s := v.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.stay[id]
	switch {
	case x == nil:
		if _, left := s.gone[id]; left || hi >= end {
			return end, false
		}
		x = &visit{end: end, entry: end, hard: y.hard, probe: y.probe}
		s.stay[id] = x
	case x.revoked:
		return end, false
	case end > x.end: // another worker has learnt of a later one
		x.end, x.entry = end, max(end, x.entry)
	}
	if hi >= x.end {
		return x.end, false
	}
	x.open++
	x.probe = x.probe && y.probe
	x.seen, x.dirty = max(x.seen, lo), true
	return x.end, true
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
func (v *visits) leave(id slot.StayID, lo slot.Tau) (from slot.Tau, left bool) {
	s := v.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.stay[id]
	if x == nil {
		return 0, false
	}
	x.open--
	x.seen, x.dirty = max(x.seen, lo), true
	if x.open > 0 || !x.revoked {
		return 0, false
	}
	delete(s.stay, id)
	s.gone[id] = x.entry
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

// report gives what the counter must hear by lo to note, until note returns
// false, and forgets the stays whose end has passed.
func (v *visits) report(lo slot.Tau, cfg *RoomConfig, note func(slot.Item) bool) {
	for i := range v {
		if !v[i].report(lo, cfg, note) {
			return
		}
	}
}

func (s *visitShard) report(lo slot.Tau, cfg *RoomConfig, note func(slot.Item) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, end := range s.gone {
		if end.Add(time.Minute) < lo { // a pass may be a moment longer than its slot
			delete(s.gone, id)
		}
	}
	more := true
	for id, x := range s.stay {
		if x.open > 0 {
			x.seen, x.dirty = max(x.seen, lo), true
		}
		switch {
		case !more:
			return false
		case x.open == 0 && !x.dirty && x.entry.Add(time.Minute) < lo:
			delete(s.stay, id)
		case !x.dirty || x.revoked && x.open == 0:
		case cfg.FixedSession || x.probe:
			if x.open > 0 && x.entry < lo.Add(holdFixed) {
				at := lo.Add(holdFixed - cfg.SessionDuration)
				more = note(slot.Item{Op: slot.Renew, ID: id, From: x.entry, At: at, Hard: x.hard})
			}
			x.dirty = false
		default:
			x.dirty = false
			if x.seen.Add(cfg.SessionDuration) > x.end {
				more = note(slot.Item{Op: slot.Renew, ID: id, From: x.entry, At: x.seen, Hard: x.hard})
			}
		}
	}
	return more
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
		s.gone[g.ID] = g.End
		if x := s.stay[g.ID]; x != nil {
			x.revoked = true
		}
		s.mu.Unlock()
	}
}
