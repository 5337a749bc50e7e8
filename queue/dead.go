package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A DeadJob is one that nobody tries any more.
type DeadJob struct {
	ID       string    `json:"id"`
	Key      string    `json:"key"`
	Tenant   string    `json:"tenant"`
	Attempts int       `json:"attempts"`
	DiedAt   time.Time `json:"died_at"`
	Reason   string    `json:"why"`
}

// ErrPlace: a list of dead jobs does not go on there.
var ErrPlace = errors.New("not the place where a list of dead jobs goes on")

// deadShown bounds the dead jobs that are told at once: each is read from the log. Chosen.
const deadShown = 1000

// Dead are up to count dead jobs, 1000 at most, who died last first: behind the place after,
// which an answer before has told as next, or "" for the first. next is "" when no more follow.
// Who dies meanwhile stands before that place, so none is told twice. It reads no more jobs than
// it tells, and looks at the times of all that are dead, which Config bounds: a millisecond or two.
// The error wraps ErrPlace if after is no such place.
func (q *Queue) Dead(ctx context.Context, after string, count int) (jobs []DeadJob, next string, err error) {
	if _, err := parseDeath(after); err != nil {
		return nil, "", err
	}
	r, err := q.do(ctx, command{Op: opDead, After: after, Count: count})
	return r.Dead, r.Next, err
}

// A death says which job died when.
type death struct {
	ref ref
	deadJob
}

// laterFirst compares two deaths: who died later comes first, and of one millisecond who was put
// later.
func laterFirst(a, b death) int {
	return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(b.ref, a.ref))
}

// String is the place in a list behind which the next ones stand.
func (e *death) String() string { return e.ref.String() + "@" + strconv.FormatInt(e.at, 10) }

// parseDeath reads a place, nil for none.
func parseDeath(place string) (*death, error) {
	if place == "" {
		return nil, nil
	}
	id, at, _ := strings.Cut(place, "@")
	var e death
	var err error
	var ok bool
	e.ref, ok = parseRef(id)
	if e.at, err = strconv.ParseInt(at, 10, 64); err != nil || !ok {
		return nil, fmt.Errorf("%w: %.64q", ErrPlace, place)
	}
	return &e, nil
}

// lastDead are up to count dead jobs, 1 or more, behind a place, who died last first.
func (x *index) lastDead(after *death, count int) (list []death) {
	cut := func() {
		slices.SortFunc(list, laterFirst)
		list = list[:min(count, len(list))]
	}
	full := false // then who died before the last of the first count is not among them
	for r, d := range x.dead {
		e := death{r, d}
		if after != nil && laterFirst(e, *after) <= 0 || full && laterFirst(e, list[count-1]) > 0 {
			continue
		}
		if list = append(list, e); len(list) == 2*count {
			cut()
			full = true
		}
	}
	cut()
	return list
}

func (h *host) listDead(ctx context.Context, after string, count int) (r result, err error) {
	place, err := parseDeath(after)
	if err != nil {
		return r, err
	}
	count = max(0, min(count, deadShown))
	h.mu.Lock()
	list := h.index.lastDead(place, count+1) // one more: do others follow?
	h.mu.Unlock()
	switch {
	case count == 0:
		list = nil
	case len(list) > count:
		list = list[:count]
		r.Next = list[count-1].String()
	}
	// They are read in the order of the log: jobs of a chunk died at different times, and a chunk
	// may be large.
	read := map[ref]*flight{}
	for _, e := range slices.SortedFunc(slices.Values(list), func(a, b death) int {
		return cmp.Compare(a.ref, b.ref)
	}) {
		if read[e.ref], err = (&dispatcher{host: h}).load(ctx, e.ref); err != nil {
			return result{}, err
		}
	}
	r.Dead = []DeadJob{}
	for _, e := range list {
		if f := read[e.ref]; f != nil {
			r.Dead = append(r.Dead, DeadJob{ID: e.ref.String(), Key: f.job.Key, Tenant: f.job.Tenant,
				Attempts: e.attempt, DiedAt: time.UnixMilli(e.at).UTC(), Reason: e.why})
		}
	}
	return r, nil
}
