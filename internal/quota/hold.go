package quota

import (
	"context"
	"errors"
	"hash/maphash"
	"time"

	"github.com/headgate/headgate/limit"
)

// sayEach is how soon after the last time it is said again what was used of what is held.
// Chosen: all of it counts as of the last, so the rate of a window of a second is a hundredth
// below the limit at most, for 100 messages.
const sayEach = 10 * time.Millisecond

// A Held is units of a key that were taken and are not said to be used: they count against
// the limit until then, and from then on as used at that moment. Whoever cannot know when
// another counts a call, between its departure and its answer, holds what it costs for so
// long. What a process holds that dies counts as used some seconds later. When the host of
// the key is out of reach for as long it does so too, and once more when it is said to be
// used: more is counted then, and never less. The zero Held is nothing. Its caller guards it.
type Hold struct {
	keys *Keys
	key  string
	n    int64
	all  int64  // of it when it was taken
	id   uint64 // of a call under way
	lent bool   // by at, or by a host that has counted it
	at   hold
	kept *LeaseRenewer // of a call under way: until its end
}

// hold is where what is held lies at a desk.
type hold struct {
	share *share
	id    uint64
}

// Here reports whether the key is counted by this process alone, and forgotten with it.
func (h *Hold) IsLocal() bool { return h.keys != nil && !h.lent }

// Left is how much is held.
func (h *Hold) Left() int64 { return h.n }

// A Turn says who waits in this process for some of a key. Processes take turns.
type Waiters struct {
	Weight int64 // of all who wait, 1 at least
	More   int64 // they would have so much more than is asked for now
	Spread bool  // they go one after the other over the window, not at once

	// Moment says that nobody waits: it is held while others are asked, and then used or
	// returned at once.
	Momentary bool
}

// Lent reports whether what calls need is lent by a host, and may be held here already.
func (k *Keys) Lent(d *Definition) bool { return k.lane != nil && d.Lends }

// Hold takes n of a key, all or nothing, to be used. Of Concurrency it is a call under way,
// whose end Use or Return is. What is paced is used at once.
func (k *Keys) Hold(
	ctx context.Context, d *Definition, key string, n int64, t Waiters,
) (h Hold, v Result, err error) {
	h = Hold{keys: k, key: key, lent: k.lane != nil}
	if n == 0 || !d.Lends {
		v.Shadowed, err = k.Take(ctx, d, key, n, &v.Decision)
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
	if errors.Is(err, limit.ErrCost) {
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

// Use says that n of what is held were used now at the latest. It does not block.
func (h *Hold) Use(n int64) { h.end(n, true) }

// Return gives n of what is held back: they were not used. It does not block.
func (h *Hold) Return(n int64) { h.end(n, false) }

func (h *Hold) end(n int64, used bool) {
	if n = min(n, h.n); n <= 0 {
		return
	}
	h.n -= n
	if !used && n == h.all { // as if it had never been
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
		} else {
			p.table.Return(hash, n)
		}
		p.mu.Unlock()
	}
}

// endCall ends a call under way. Its lease may have ended before.
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

// end ends that n are held, and reports whether they were: what was lent may have been given
// up for used before.
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
	} else if s.held < s.saidHeld { // the host asks nobody for what is said to be held
		s.send()
	}
	s.list()
	return true
}
