package demo

import "time"

// An idle measures how long nobody new was admitted although somebody waited and a slot was free
// and due. It uses only what the shop and the visitors saw. The caller must hold its lock.
type idle struct {
	Now     time.Duration
	Longest time.Duration
	Served  time.Duration // the longest while somebody polled and enough nodes were up
	Calm    time.Duration // for this long nobody was killed and enough nodes were up

	could, served, calm time.Time // since when; zero: not now
}

// A line is the state that decides whether somebody could be admitted.
type line struct {
	waits   bool // somebody has a ticket
	asks    bool // and polls on time, and the room receives it
	quorate bool // enough nodes are up
}

// see takes in the present state.
func (i *idle) see(now time.Time, r *report, l Limits, in line) {
	free := r.Here < l.AtOnce && r.LastMinute < l.PerMinute
	i.could = later(since(i.could, now, free && in.waits), r.Last)
	i.served = later(since(i.served, now, free && in.asks && in.quorate), r.Last)
	i.calm = since(i.calm, now, in.quorate)
	i.Now, i.Calm = lasted(i.could, now), lasted(i.calm, now)
	i.Longest, i.Served = max(i.Longest, i.Now), max(i.Served, lasted(i.served, now))
}

// interrupted restarts the measurements that a kill makes void.
func (i *idle) interrupted() { i.served, i.calm, i.Calm = time.Time{}, time.Time{}, 0 }

// since returns the start of a state that still holds, or zero if it no longer holds.
func since(t, now time.Time, still bool) time.Time {
	switch {
	case !still:
		return time.Time{}
	case t.IsZero():
		return now
	}
	return t
}

// later returns the later of two times, or zero if t is zero.
func later(t, other time.Time) time.Time {
	if !t.IsZero() && other.After(t) {
		return other
	}
	return t
}

func lasted(t, now time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return now.Sub(t)
}
