package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A DeadJob is a job that is not tried any more.
type DeadJob struct {
	ID       string    `json:"id"`
	Key      string    `json:"key"`
	Tenant   string    `json:"tenant"`
	Attempts int       `json:"attempts"`
	DiedAt   time.Time `json:"died_at"`
	Status   int       `json:"status,omitempty"` // HTTP status of the last answer
	Reason   string    `json:"why"`
}

// A DeadFilter says which dead jobs are meant. A zero field means all.
type DeadFilter struct {
	IDs    []string  `json:"ids,omitempty"`
	Tenant *string   `json:"tenant,omitempty"` // "": jobs without a tenant
	Status int       `json:"status,omitempty"` // HTTP status of the last answer
	Since  time.Time `json:"since,omitzero"`   // died then or later
	Before time.Time `json:"before,omitzero"`  // died before
	Most   int       `json:"most,omitempty"`   // at most so many, those that died first
}

// check returns an error if no job can be meant.
func (f *DeadFilter) check() error {
	switch {
	case f.Status < 0 || f.Status > 999 || f.Most < 0:
		return fmt.Errorf("%w: a status is 1 to 999, and a number of jobs not below 0", ErrJob)
	case f.Tenant != nil:
		return checkTenant(*f.Tenant)
	}
	return nil
}

// has reports whether a dead job is meant, whatever its ID.
func (f *DeadFilter) has(d *deadJob) bool {
	return (f.Tenant == nil || *f.Tenant == d.tenant) && (f.Status == 0 || f.Status == int(d.code)) &&
		(f.Since.IsZero() || d.at >= f.Since.UnixMilli()) &&
		(f.Before.IsZero() || d.at < f.Before.UnixMilli())
}

// deadOf returns the dead jobs of a filter, in the order of their put.
func (x *index) deadOf(f *DeadFilter) (which []ref) {
	add := func(r ref) {
		if d, dead := x.dead[r]; dead && f.has(&d) {
			which = append(which, r)
		}
	}
	for _, id := range f.IDs {
		if r, ok := parseRef(id); ok {
			add(r)
		}
	}
	if len(f.IDs) == 0 {
		for r := range x.dead {
			add(r)
		}
	}
	slices.Sort(which)
	which = slices.Compact(which)
	if f.Most == 0 || len(which) <= f.Most {
		return which
	}
	type died struct {
		at int64
		ref
	}
	all := make([]died, len(which)) // each comparison by the map would take three times as long
	for i, r := range which {
		all[i] = died{x.dead[r].at, r}
	}
	slices.SortFunc(all, func(a, b died) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.ref, b.ref))
	})
	which = which[:0]
	for i := range all[:f.Most] {
		which = append(which, all[i].ref)
	}
	slices.Sort(which)
	return which
}

// ErrPlace is returned by [Queue.Dead] for an invalid place in the list of dead jobs.
var ErrPlace = errors.New("not a place at which a list of dead jobs continues")

// deadShown is the largest number of dead jobs in one answer: each one is read from the log.
// Chosen.
const deadShown = 1000

// Dead returns up to count dead jobs of a filter, at most 1000, most recent death first. To get the first
// page, pass "" as after; to get the following page, pass the value of next that the call before
// returned. next is "" if no more jobs follow. Jobs that die between two calls come before the
// current page, so no job is returned twice.
//
// Dead reads only the jobs that it returns. It also compares the times of all dead jobs, whose
// number is bounded: that takes one or two milliseconds. The error wraps ErrPlace if after is
// invalid.
func (q *Queue) Dead(
	ctx context.Context, which DeadFilter, after string, count int,
) (jobs []DeadJob, next string, err error) {
	if _, err := parseDeath(after); err != nil {
		return nil, "", err
	}
	if err := which.check(); err != nil {
		return nil, "", err
	}
	r, err := q.do(ctx, command{Op: opDead, Dead: which, After: after, Count: count})
	return r.Dead, r.Next, err
}

// A death says which job died, and when.
type death struct {
	ref ref
	deadJob
}

// laterFirst compares two deaths: the later death comes first. Within one millisecond the job that
// was put later comes first.
func laterFirst(a, b death) int {
	return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(b.ref, a.ref))
}

// String returns the place of the death in the list, as a value of after for Dead.
func (e *death) String() string { return e.ref.String() + "@" + strconv.FormatInt(e.at, 10) }

// parseDeath parses a place. It returns nil for "".
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

// lastDead returns up to count dead jobs of a filter that follow a place, most recent death first. count is
// at least 1.
func (x *index) lastDead(of *DeadFilter, after *death, count int) (list []death) {
	cut := func() {
		slices.SortFunc(list, laterFirst)
		list = list[:min(count, len(list))]
	}
	full := false // then a death before the oldest of the first count is not among them
	all := maps.All(x.dead)
	if len(of.IDs) > 0 || of.Most > 0 {
		all = x.some(of)
	}
	for r, d := range all {
		e := death{r, d}
		if !of.has(&d) || after != nil && laterFirst(e, *after) <= 0 ||
			full && laterFirst(e, list[count-1]) > 0 {
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

// some returns the dead jobs of a filter.
func (x *index) some(of *DeadFilter) iter.Seq2[ref, deadJob] {
	return func(yield func(ref, deadJob) bool) {
		for _, r := range x.deadOf(of) {
			if !yield(r, x.dead[r]) {
				return
			}
		}
	}
}

// listDead returns a page of dead jobs, the latest death first, with what the log of jobs has of
// them.
func (h *host) listDead(
	ctx context.Context, of *DeadFilter, after string, count int,
) (r result, err error) {
	place, err := parseDeath(after)
	if err != nil {
		return r, err
	}
	count = max(0, min(count, deadShown))
	h.mu.Lock()
	list := h.index.lastDead(of, place, count+1) // one more, to see whether others follow
	h.mu.Unlock()
	switch {
	case count == 0:
		list = nil
	case len(list) > count:
		list = list[:count]
		r.Next = list[count-1].String()
	}
	// Read in the order of the log: the jobs of a chunk died at different times, and a chunk may be
	// large.
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
				Attempts: e.attempt, DiedAt: time.UnixMilli(e.at).UTC(), Status: int(e.code), Reason: e.why})
		}
	}
	return r, nil
}
