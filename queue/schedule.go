package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// scheduleHeader is the header that the target gets the name of the schedule in. Jobs are stored with it as
// well; nobody else can put a job with it.
const scheduleHeader = "Headgate-Schedule"

// A Schedule puts a job at certain times. The job of a time has the key NAME/TIME, such as
// nightly/2026-11-29T02:00:00Z. Whatever is killed, a time has one job with one ID: see [timetable].
type Schedule struct {
	Name string // 1 to 64 of A-Z a-z 0-9 _ and -

	// Rule is how people write its times, such as "0 3 * * * Europe/Berlin". It has at most MaxRule bytes. A
	// schedule whose Rule changes begins at that moment; times before are not made up for.
	Rule string

	// Next returns the first of its times after another one, in whole milliseconds, or the zero time if there
	// is none. It must be pure, and take less than a microsecond or so.
	Next func(after time.Time) time.Time

	Missed Missed // default MissedOnce
	Job    Job    // without Key and At
}

// Missed says what happens to times that have passed without a job for more than a minute, because
// no node hosted the queue, it was full, or its disk refused writes.
type Missed string

// The choices for missed times.
const (
	MissedOnce Missed = "once" // one job for all of them, that of the newest
	MissedSkip Missed = "skip" // no job
	MissedAll  Missed = "all"  // a job for each of the newest 100
)

// Bounds of schedules. Chosen: a takeover takes 14 s at most (docs/queues.md), an outage that nobody needs
// to know of less than a minute.
const (
	MaxSchedules  = 100
	MaxRule       = 400
	missedAfter   = time.Minute
	mostMadeUp    = 100
	roomOfTimes   = 100       // jobs beyond MaxWaiting
	mostSteps     = 1_000_000 // of Next in one look: two years of minutes
	keptSchedules = 1000      // with those that are not in the configuration any more
	lookAtTimes   = time.Second
)

// checkSchedules checks the schedules of a configuration, and fills in defaults.
func checkSchedules(all []Schedule) error {
	if len(all) > MaxSchedules {
		return fmt.Errorf("%d schedules, and %d are the most", len(all), MaxSchedules)
	}
	var errs []error
	names := map[string]bool{}
	for i := range all {
		s := &all[i]
		s.Missed = cmp.Or(s.Missed, MissedOnce)
		err := s.Job.check(time.Now())
		switch {
		case err != nil:
		case !queueName.MatchString(s.Name):
			err = errors.New("a name is 1 to 64 of A-Z a-z 0-9 _ and -")
		case names[s.Name]:
			err = errors.New("two have this name")
		case s.Rule == "" || len(s.Rule) > MaxRule || s.Next == nil:
			err = fmt.Errorf("a Rule of at most %d bytes and Next are needed", MaxRule)
		case s.Job.Key != "" || !s.Job.At.IsZero():
			err = fmt.Errorf("%w: its key and its time are those of the schedule", ErrJob)
		case len(s.Job.Headers) > MaxHeaders-2:
			err = fmt.Errorf("%w: %d headers, and %d are the most in a schedule", ErrJob, len(s.Job.Headers),
				MaxHeaders-2)
		case !slices.Contains([]Missed{MissedOnce, MissedSkip, MissedAll}, s.Missed):
			err = fmt.Errorf("missed is %.64q, want once, skip or all", s.Missed)
		}
		if names[s.Name] = true; err != nil {
			errs = append(errs, fmt.Errorf("schedule %.64q: %w", s.Name, err))
		}
	}
	return errors.Join(errs...)
}

// A timetable is what the host knows of a schedule. It makes sure that each time has one job.
//
// Several hosts may put the job of a time: one was killed, cut off or stopped before it knew whether its
// write succeeded, or wakes up. All of these jobs are in the log of jobs, and the first one counts, for all
// hosts alike. The others are finished as they are read, like jobs whose key is known. So:
//
//   - upTo and job are in the notes before the chunk of that job is deleted (host.sweep), and a later job
//     with a time up to upTo is one too many. No window of keys, purge or clock has a part in it.
//   - Jobs up to job were decided before: those that were too many have notes, since these stand before
//     the note about job, and a chunk stays in the index, and with it in the notes, until it is deleted.
//   - Times only grow. A clock that is set back waits until it shows a later time than upTo.
type timetable struct {
	rule string // "": it is not in the configuration
	upTo int64  // milliseconds: its times up to this one are decided
	last int64  // milliseconds: of these, the last one with a job
	job  ref    // of that time

	coming comingTime // the last one that was found
}

// A comingTime is the first time of a schedule after a time for which all is decided. It is kept because a
// line such as "0 0 29 2 *" is looked through day by day.
type comingTime struct {
	of   *Schedule
	upTo int64
	at   time.Time
}

// note returns what the next host must know.
func (t *timetable) note(name string) note {
	return note{kind: noteSchedule, text: name + " " + t.rule, at: t.upTo, since: t.last,
		ref: t.job}
}

// timetables are those of all schedules by name, and the names of those that have changed.
type timetables struct {
	schedules map[string]*timetable
	fired     []string
}

func newTimetables() timetables { return timetables{schedules: map[string]*timetable{}} }

// restore takes over what an earlier host has noted.
func (x *timetables) restore(n *note) {
	name, rule, _ := strings.Cut(n.text, " ")
	x.schedules[name] = &timetable{rule: rule, upTo: n.at, last: n.since, job: n.ref}
}

// fires decides about a job of a schedule as it is read from the log. It reports false if it is one too many.
func (x *timetables) fires(h *head, r ref) bool {
	name := string(h.schedule)
	t := x.schedules[name]
	if t == nil { // put by a host that has another configuration
		t = &timetable{}
		x.schedules[name] = t
	}
	if h.at <= t.upTo {
		return r <= t.job
	}
	t.upTo, t.last, t.job = h.at, h.at, r
	x.fired = append(x.fired, name)
	return true
}

// decided returns notes about a chunk that was just read: about its jobs that are duplicates, and then about
// schedules whose jobs it has.
func (x *timetables) decided(seq uint64, duplicates []int) (notes []note) {
	if len(duplicates) > 0 { // the first job may be forgotten before the next start
		notes = append(notes, note{kind: noteDone, ref: refOf(seq, 0), done: duplicates})
	}
	for _, name := range x.fired {
		notes = append(notes, x.schedules[name].note(name))
	}
	x.fired = x.fired[:0]
	return notes
}

// configure begins new schedules and ends those that are gone. It returns notes about them.
func (x *timetables) configure(all []Schedule, now int64) (notes []note) {
	known := make(map[string]bool, len(all))
	for i := range all {
		s := &all[i]
		known[s.Name] = true
		t := x.schedules[s.Name]
		if t == nil {
			t = &timetable{}
			x.schedules[s.Name] = t
		}
		if t.rule != s.Rule {
			t.rule, t.upTo = s.Rule, max(t.upTo, now)
			notes = append(notes, t.note(s.Name))
		}
	}
	for name, t := range x.schedules {
		if !known[name] && t.rule != "" {
			t.rule, t.coming = "", comingTime{}
			notes = append(notes, t.note(name))
		}
	}
	if len(x.schedules) > keptSchedules {
		names := slices.SortedFunc(maps.Keys(x.schedules), func(a, b string) int {
			return cmp.Compare(x.schedules[a].upTo, x.schedules[b].upTo)
		})
		for _, name := range names {
			if !known[name] && len(x.schedules) > keptSchedules {
				delete(x.schedules, name)
			}
		}
	}
	return notes
}

// A dueTimes is what a schedule has to do at some time.
type dueTimes struct {
	put    []time.Time // ascending
	missed int         // these have no job
	passed time.Time   // the newest of them; all are before put
	next   time.Time   // zero: never
}

// due returns which of the times after upTo have come.
func (s *Schedule) due(upTo, now time.Time) (d dueTimes) {
	var late []time.Time
	pass := func(times []time.Time) {
		if n := len(times); n > 0 {
			d.missed, d.passed = d.missed+n, times[n-1]
		}
	}
	keep := func(times []time.Time) []time.Time { // half of them is as good, and rare
		if n := len(times); n > 2*mostMadeUp {
			pass(times[:n-mostMadeUp])
			times = append(times[:0], times[n-mostMadeUp:]...)
		}
		return times
	}
	for last := upTo; ; last = d.next {
		if d.next = s.Next(last).Truncate(time.Millisecond); !d.next.After(last) {
			d.next = time.Time{} // never, or not a valid Next
			break
		}
		if d.missed+len(late) > mostSteps {
			pass(late[:len(late)-1]) // the next look makes up for the newest ones
			d.next = now
			return d
		}
		if d.next.After(now) {
			break
		}
		if now.Sub(d.next) > missedAfter {
			late = keep(append(late, d.next))
		} else {
			d.put = append(d.put, d.next)
		}
	}
	made := 0 // of late
	switch {
	case s.Missed == MissedAll:
		made = min(len(late), max(0, mostMadeUp-len(d.put)))
	case s.Missed == MissedOnce && len(d.put) == 0:
		made = min(len(late), 1) // a job that is on time does the work of those before
	}
	pass(late[:len(late)-made])
	d.put = append(late[len(late)-made:], d.put...)
	if n := len(d.put) - mostMadeUp; n > 0 { // of a Next with many times a minute
		pass(d.put[:n])
		d.put = d.put[n:]
	}
	return d
}

// job returns the job of a time.
func (s *Schedule) job(at time.Time) Job {
	j := s.Job
	j.Key, j.At, j.Schedule = s.Name+"/"+at.UTC().Format(time.RFC3339Nano), at, s.Name
	return j
}

// fire puts the jobs of schedules as long as this process is the host.
func (h *host) fire(ctx context.Context) error {
	for {
		next, err := h.fireDue(ctx)
		if ctx.Err() != nil {
			return nil
		}
		why := ""
		if err != nil {
			why, next = err.Error(), time.Now().Add(lookAtTimes)
		}
		h.mu.Lock()
		said := why != "" && why != h.fireErr
		h.fireErr = why
		h.mu.Unlock()
		if said {
			h.q.cfg.Log.Warn("the jobs of schedules could not be put: they are tried again", "queue",
				h.q.cfg.Name, "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		// The clock may be set, or the configuration may change.
		case <-time.After(max(time.Millisecond, min(lookAtTimes, time.Until(next)))):
		}
	}
}

// fireDue puts the jobs of all schedules whose time has come. It returns when to look again, at the latest.
func (h *host) fireDue(ctx context.Context) (next time.Time, err error) {
	set, now := h.q.set.Load(), time.Now()
	next = now.Add(lookAtTimes)
	// The times of jobs that are not read yet seem to have none: they would be missed, or before the begin of
	// a schedule that changes.
	if err := h.reaches(ctx, h.fired); err != nil {
		return next, fmt.Errorf("jobs that were put before are not read yet: %w", err)
	}
	h.mu.Lock()
	if notes := h.index.timetables.configure(set.Schedules, now.UnixMilli()); len(notes) > 0 {
		h.queueNotes(notes, nil)
	}
	h.mu.Unlock()
	if !h.holds() { // what it put would be one too many, most likely
		return next, nil
	}
	var jobs []Job
	for i := range set.Schedules {
		s := &set.Schedules[i]
		d := h.due(s, now)
		if d.missed > 0 {
			h.pass(s.Name, &d)
		}
		for _, at := range d.put {
			jobs = append(jobs, s.job(at))
		}
		if !d.next.IsZero() && d.next.Before(next) {
			next = d.next
		}
	}
	if len(jobs) == 0 {
		return next, nil
	}
	slices.SortStableFunc(jobs, func(a, b Job) int { return a.At.Compare(b.At) })
	fit := h.fitting(jobs, set.MaxWaiting)
	if fit == 0 {
		return next, h.q.hasRoom(1)
	}
	if fit < len(jobs) {
		jobs, next = jobs[:fit], now // looks on at once
	}
	receipts, all := make([]Receipt, len(jobs)), make([]int, len(jobs))
	for i := range all {
		all[i] = i
	}
	if err := h.q.write(ctx, jobs, all, receipts); err != nil {
		return next, err
	}
	last, _ := parseRef(receipts[len(receipts)-1].ID)
	h.fired = last.chunk()
	return next, h.reaches(ctx, h.fired) // now upTo says so
}

// due returns which times of a schedule have come.
func (h *host) due(s *Schedule, now time.Time) dueTimes {
	h.mu.Lock()
	t := h.index.schedules[s.Name]
	upTo, c := t.upTo, t.coming
	h.mu.Unlock()
	if c.of == s && c.upTo == upTo && c.at.After(now) {
		return dueTimes{next: c.at}
	}
	d := s.due(time.UnixMilli(upTo), now)
	if len(d.put)+d.missed == 0 {
		h.mu.Lock()
		t.coming = comingTime{s, upTo, d.next}
		h.mu.Unlock()
	}
	return d
}

// fitting returns how many of the jobs are put at once: as many as there is room for, because a queue that
// never has room for all of them would get none; and about a chunk, because made up ones may be many. They
// have room beyond that of producers, which may keep a queue full without a pause.
func (h *host) fitting(jobs []Job, most int) (n int) {
	h.mu.Lock()
	room := most + roomOfTimes - h.index.left
	h.mu.Unlock()
	for size := 0; n < min(len(jobs), room, mostMadeUp); n++ {
		if size += len(jobs[n].Body); n > 0 && size > chunkBytes {
			break
		}
	}
	return n
}

// pass gives times up.
func (h *host) pass(name string, d *dueTimes) {
	h.mu.Lock()
	t := h.index.schedules[name]
	if at := d.passed.UnixMilli(); at > t.upTo {
		t.upTo = at
		h.queueNotes([]note{t.note(name)}, nil)
	}
	h.mu.Unlock()
	h.q.totals.missed.Add(int64(d.missed))
	h.q.cfg.Log.Warn("times of a schedule have passed without a job", "queue", h.q.cfg.Name, "schedule", name,
		"times", d.missed, "until", d.passed.UTC())
}

// A ScheduleStatus is where a schedule is.
type ScheduleStatus struct {
	Name   string    `json:"name"`
	Rule   string    `json:"rule"`
	Missed Missed    `json:"missed"`
	Next   time.Time `json:"next_at,omitzero"`
	Last   time.Time `json:"last_at,omitzero"` // the last time with a job
	LastID string    `json:"last_id,omitempty"`
	Reason string    `json:"why,omitempty"` // why it puts no jobs, "" if all is well
}

// Schedules returns the schedules of the queue, in the order of the configuration of the host. It requests
// them from the node that hosts the queue, and returns ErrNoHost if there is no host now.
func (q *Queue) Schedules(ctx context.Context) ([]ScheduleStatus, error) {
	r, err := q.do(ctx, command{Op: opSchedules})
	return r.Schedules, err
}

// schedules returns what was noted about schedules.
func (h *host) schedules(ctx context.Context) ([]ScheduleStatus, error) {
	set := h.q.set.Load()
	all, known := make([]ScheduleStatus, len(set.Schedules)), make([]timetable, len(set.Schedules))
	why := ""
	err := h.see(ctx, func() {
		why = h.fireErr
		for i := range set.Schedules {
			if t := h.index.schedules[set.Schedules[i].Name]; t != nil {
				known[i] = *t
			}
		}
	})
	for i := range all {
		s, t := &set.Schedules[i], &known[i]
		all[i] = ScheduleStatus{Name: s.Name, Rule: s.Rule, Missed: s.Missed, Reason: why}
		if t.rule != s.Rule {
			continue
		}
		upTo := time.UnixMilli(t.upTo)
		if all[i].Next = s.Next(upTo).UTC(); time.Until(upTo) > missedAfter && why == "" {
			all[i].Reason = "a clock was ahead, and its times until then are over: give it another name to begin now"
		}
		if t.last > 0 {
			all[i].Last, all[i].LastID = time.UnixMilli(t.last).UTC(), t.job.String()
		}
	}
	return all, err
}
