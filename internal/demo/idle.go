package demo

import "time"

// An idle is how long nobody new was let in although somebody waited and a slot was
// free and due, by what the shop and the visitors saw. Its caller guards it.
type idle struct {
	Now     time.Duration
	Longest time.Duration
	Served  time.Duration // the longest while somebody asked and enough nodes were up
	Calm    time.Duration // for so long nobody was killed and enough nodes were up

	could, served, calm time.Time // since when; zero: it is not so
}

// A line is what may keep somebody from being let in.
type line struct {
	waits   bool // somebody has a ticket
	asks    bool // and asks on time, and the room hears it
	quorate bool // enough nodes are up
}

// see takes in how it stands now.
func (i *idle) see(now time.Time, r *report, l Limits, in line) {
	free := r.Here < l.AtOnce && r.LastMinute < l.PerMinute
	i.could = later(since(i.could, now, free && in.waits), r.Last)
	i.served = later(since(i.served, now, free && in.asks && in.quorate), r.Last)
	i.calm = since(i.calm, now, in.quorate)
	i.Now, i.Calm = lasted(i.could, now), lasted(i.calm, now)
	i.Longest, i.Served = max(i.Longest, i.Now), max(i.Served, lasted(i.served, now))
}

// interrupted begins anew what nodes are held to: one of them was killed.
func (i *idle) interrupted() { i.served, i.calm, i.Calm = time.Time{}, time.Time{}, 0 }

// since is when something began that still is; zero if it is no more.
func since(t, now time.Time, still bool) time.Time {
	switch {
	case !still:
		return time.Time{}
	case t.IsZero():
		return now
	}
	return t
}

// later is the later of two, or zero if t is.
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
