package slot

import "slices"

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

// At returns how many sessions end at t.
func (e *Ends) At(t Time) int64 {
	if i, ok := e.find(t); ok {
		return e.at[i].N
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
