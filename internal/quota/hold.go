package quota

import (
	"context"
	"errors"
	"hash/maphash"
	"time"

	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/limit"
)

// sayEach is the minimum interval of reports about the use of held units. Chosen: all units of a
// report count from the last use, so the rate in a window of a second is at most a hundredth below
// the limit, at the cost of 100 messages.
const sayEach = 10 * time.Millisecond

// A Hold is a number of units of a key that are taken but not yet reported as used. They count
// against the limit until then, and afterwards as used at that moment. A caller that cannot know
// when another system counts a call, between its departure and its answer, holds the cost of the
// call for that time.
//
// If the process dies, its held units count as used some seconds later. The same happens while the
// host of the key is unreachable for that long; the units then count once more when they are
// reported as used. So too much may be counted, but never too little. The zero Hold holds nothing.
// The caller must guard a Hold.
type Hold struct {
	keys *Keys
	key  string
	n    int64
	all  int64  // units at the beginning
	id   uint64 // of a call in progress
	lent bool   // lent to at, or counted by a host
	at   hold
	kept *LeaseRenewer // renews a call in progress until its end
}

// A hold refers to the units that a Hold has in a share.
type hold struct {
	share *share
	id    uint64
}

// IsLocal reports whether only this process counts the key; the count ends with the process.
func (h *Hold) IsLocal() bool { return h.keys != nil && !h.lent }

// Left returns the number of units held.
func (h *Hold) Left() int64 { return h.n }

// Waiters describes the callers in this process that wait for units of a key. Processes take turns.
type Waiters struct {
	Weight int64 // of all waiting callers, at least 1
	More   int64 // units wanted in addition to the present request
	Spread bool  // spread over the window instead of all at once

	// Momentary reports that no caller waits: the units are held during another request and then
	// used or returned at once.
	Momentary bool
}

// Lent reports whether a host lends the units that calls need, so that some may already be held
// here.
func (k *Keys) Lent(d *Definition) bool { return k.lane != nil && d.Lends }

// Hold takes n units of a key, all or none, for later use. For Concurrency they are a call in
// progress, which Use or Return ends. Paced units count as used at once.
func (k *Keys) Hold(
	ctx context.Context, d *Definition, key string, n int64, t Waiters,
) (h Hold, v Result, err error) {
	h = Hold{keys: k, key: key, lent: k.lane != nil}
	if n == 0 || !d.Lends {
		v.Exceeded, err = k.Take(ctx, d, key, n, &v.Decision)
		if h.id = v.ID; h.id&countedHere != 0 {
			h.lent = false
		}
		if h.id != 0 {
			h.n = n
			h.keep(d.Rules.Lease())
		}
		return h, v, err
	}
	here := func(x *Definition) (limit.Decision, error) {
		p, hash, now := k.at(x, key)
		defer p.mu.Unlock()
		return p.table.Hold(now, hash, key, n)
	}
	if k.lane == nil {
		v.Decision, err = here(d)
	} else {
		if !t.Momentary {
			t.Weight = max(1, t.Weight)
		}
		k.lane.under(d)
		a := k.lane.take(ctx, key, call{cost: n, turn: t})
		v.Decision, err, h.at = a.Decision, a.err, a.at
		if errors.Is(err, ErrUnreachable) {
			h.lent = false
			v.Decision, err = k.decideAlone(d, here)
		}
	}
	if errors.Is(err, limittable.ErrCost) {
		err = ErrCost
	}
	if err != nil {
		return Hold{}, v, err
	}
	if v.Allowed && (h.lent || d.Policy == PolicyLocal || k.lane == nil) {
		h.n, h.all = n, n
	}
	k.note(d, key, &v, true)
	return h, v, nil
}

// Lapsed reports whether the host has counted what is held as used, because it was out of reach for
// some seconds.
func (h *Hold) Lapsed() bool {
	s := h.at.share
	if s == nil {
		return false
	}
	s.part.mu.Lock()
	defer s.part.mu.Unlock()
	s.lapse(s.lane.desk.boot())
	return s.holding != h.at.id
}

// Use reports that n of the held units were used, now at the latest. It does not block.
func (h *Hold) Use(n int64) { h.end(n, true) }

// Return returns n of the held units unused. It does not block.
func (h *Hold) Return(n int64) { h.end(n, false) }

// end gives back or uses up n units, wherever they were taken: at the host, from lent units, or
// here.
func (h *Hold) end(n int64, used bool) {
	if n = min(n, h.n); n <= 0 {
		return
	}
	h.n -= n
	if !used && n == h.all { // as if it had never happened
		h.keys.unpass(h.key)
	}
	switch k := h.keys; {
	case h.id != 0:
		if h.n == 0 {
			h.kept.Stop()
			k.endCall(h)
		}
	case h.lent:
		if !h.at.end(n, used) && used {
			k.lane.say(request{kind: kindBook, key: h.key, n: n}, sayFor)
		}
	default:
		hash := maphash.String(k.seed, h.key)
		p := &k.parts[hash>>56]
		p.mu.Lock()
		if used {
			p.table.Use(k.now(p.def), hash, h.key, n)
			k.own.spend(p.def, h.key, n)
		} else {
			p.table.Return(hash, n)
		}
		p.mu.Unlock()
	}
}

// endCall ends a call in progress. Its lease may have expired before.
func (k *Keys) endCall(h *Hold) {
	if h.lent {
		k.lane.say(request{kind: kindSettle, key: h.key, id: h.id}, sayFor)
		return
	}
	hash := maphash.String(k.seed, h.key)
	p := &k.parts[hash>>56]
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.table.Settle(k.now(p.def), hash, h.id&^countedHere, 0)
}

// end ends the hold of n units. It reports false if they were no longer held, because the loan had
// been given up as used.
func (h hold) end(n int64, used bool) bool {
	s := h.share
	if s == nil {
		return false
	}
	s.part.mu.Lock()
	defer s.part.mu.Unlock()
	now := s.lane.desk.boot()
	if s.lapse(now); s.holding != h.id {
		return false
	}
	if s.held -= n; used {
		s.used, s.usedAt, s.lastUse = s.used+n, now, now
		if now-s.saidAt >= sayEach {
			s.send()
		}
	} else if s.held < s.saidHeld { // the host recalls no units that are reported as held
		s.send()
	}
	s.list()
	return true
}
