package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/tests/virtual"
)

// everyMinute has a time at each full minute.
func everyMinute(after time.Time) time.Time { return after.Truncate(time.Minute).Add(time.Minute) }

func schedule(name string, missed Missed) Schedule {
	return Schedule{Name: name, Rule: "* * * * *", Next: everyMinute, Missed: missed, Job: Job{Body: []byte("{}")}}
}

func TestDue(t *testing.T) {
	begin := time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC)
	minutes := func(from, to int) (all []string) {
		for m := from; m <= to; m++ {
			all = append(all, begin.Add(time.Duration(m)*time.Minute).Format("15:04"))
		}
		return all
	}
	for _, c := range []struct {
		missed Missed
		now    time.Duration // after upTo, which is begin
		put    []string
		gone   int
		passed int // minutes
		next   time.Duration
	}{
		{MissedOnce, 59 * time.Second, nil, 0, 0, time.Minute},
		{MissedOnce, time.Minute, minutes(1, 1), 0, 0, 2 * time.Minute},
		{MissedSkip, 2 * time.Minute, minutes(1, 2), 0, 0, 3 * time.Minute},
		{MissedSkip, 2*time.Minute + time.Second, minutes(2, 2), 1, 1, 3 * time.Minute},
		{MissedOnce, 9*time.Minute + time.Second, minutes(9, 9), 8, 8, 10 * time.Minute},
		{MissedAll, 9*time.Minute + time.Second, minutes(1, 9), 0, 0, 10 * time.Minute},
		{MissedAll, 500 * time.Minute, minutes(401, 500), 400, 400, 501 * time.Minute},
		{MissedSkip, -time.Hour, nil, 0, 0, time.Minute}, // the clock was set back
	} {
		s := schedule("m", c.missed)
		d := s.due(begin, begin.Add(c.now))
		var put []string
		for _, at := range d.put {
			put = append(put, at.Format("15:04"))
		}
		passed := begin.Add(time.Duration(c.passed) * time.Minute)
		if fmt.Sprint(put) != fmt.Sprint(c.put) || d.missed != c.gone || !d.next.Equal(begin.Add(c.next)) ||
			c.gone > 0 && !d.passed.Equal(passed) {
			t.Errorf("%s after %v: puts %v, %d missed up to %v, next %v; want %+v", c.missed, c.now, put, d.missed,
				d.passed, d.next, c)
		}
	}
	hourly := Schedule{Missed: MissedOnce, Next: func(after time.Time) time.Time {
		return after.Truncate(time.Hour).Add(time.Hour)
	}}
	for missed, want := range map[Missed]int{MissedOnce: 1, MissedSkip: 0, MissedAll: 5} {
		hourly.Missed = missed
		d := hourly.due(begin, begin.Add(5*time.Hour+time.Minute+1))
		if len(d.put) != want || d.missed != 5-want {
			t.Errorf("%s: %d of 5 hours are put, want %d; %d missed", missed, len(d.put), want, d.missed)
		}
	}
	// An outage of many years ends, and so does a Next that does not work.
	s := schedule("m", MissedOnce)
	now := begin.AddDate(40, 0, 0)
	if d := s.due(begin, now); d.missed < mostSteps || d.next.After(now) {
		t.Errorf("%d minutes in 40 years, next %v", d.missed, d.next)
	}
	now = begin.AddDate(5, 0, 0) // three looks
	for missed, want := range map[Missed]int{MissedOnce: 1, MissedSkip: 0, MissedAll: mostMadeUp} {
		s := schedule("m", missed)
		put, gone := 0, 0
		for upTo := begin; ; {
			d := s.due(upTo, now)
			if put, gone = put+len(d.put), gone+d.missed; d.next.After(now) {
				break
			}
			if upTo = d.passed; len(d.put) > 0 {
				upTo = d.put[len(d.put)-1]
			}
		}
		minutes := int(now.Sub(begin) / time.Minute)
		if missed != MissedAll { // the last two are on time
			want += 2 - want
		}
		if put != want || put+gone != minutes {
			t.Errorf("%s: %d of %d minutes have a job, want %d; %d have none", missed, put, minutes, want, gone)
		}
	}
	s.Next = func(after time.Time) time.Time { return after }
	if d := s.due(begin, begin.Add(time.Hour)); !d.next.IsZero() || len(d.put) > 0 {
		t.Errorf("a Next that stands still: %+v", d)
	}
}

func TestScheduleIsChecked(t *testing.T) {
	good := schedule("a", "")
	if err := checkSchedules([]Schedule{good}); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Schedule){
		"a name is":   func(s *Schedule) { s.Name = "a/b" },
		"Next":        func(s *Schedule) { s.Next = nil },
		"Rule":        func(s *Schedule) { s.Rule = strings.Repeat("x", MaxRule+1) },
		"its key":     func(s *Schedule) { s.Job.Key = "k" },
		"its time":    func(s *Schedule) { s.Job.At = time.Unix(1, 0) },
		"missed":      func(s *Schedule) { s.Missed = "twice" },
		"priority":    func(s *Schedule) { s.Job.Priority = 10 },
		"only the":    func(s *Schedule) { s.Job.Schedule = "b" },
		"of the end":  nil,
		"the end of ": func(s *Schedule) { s.Job.Headers = map[string]string{"A": "\n"} },
	} {
		if change == nil {
			continue
		}
		s := good
		change(&s)
		if err := checkSchedules([]Schedule{s}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := checkSchedules([]Schedule{good, good}); err == nil {
		t.Error("two schedules have one name")
	}
	if err := checkSchedules(make([]Schedule, MaxSchedules+1)); err == nil {
		t.Error("too many schedules")
	}
}

// A clerk plays hosts of a queue one after the other, with the real index and notes.
type clerk struct {
	r     *rand.Rand
	jobs  map[uint64][][]byte
	last  uint64
	notes [][]note // on disk
	x     *index
	said  [][]note // not on disk yet
	ids   map[string]map[ref]bool
	put   map[string]bool
}

// takeOver begins with what is on disk.
func (c *clerk) takeOver() {
	old := newReplay()
	for _, entry := range c.notes {
		all, err := parseNotes(encodeNotes(entry))
		if err != nil {
			panic(err)
		}
		for i := range all {
			old.note(&all[i])
		}
	}
	c.x, c.said = newIndex(nil, time.Second), nil
	c.x.timetables = old.timetables
	for _, seq := range slices.Sorted(maps.Keys(c.jobs)) {
		c.read(seq, old)
	}
}

// read does what host.follow does with a chunk.
func (c *clerk) read(seq uint64, old *replay) {
	if old != nil && seq > old.newest {
		old = nil
	}
	duplicates := c.x.add(seq, time.UnixMilli(int64(seq)), c.jobs[seq], old)
	if notes := c.x.decided(seq, duplicates); len(notes) > 0 {
		c.said = append(c.said, notes)
	}
}

// write writes some of the notes that were not written.
func (c *clerk) write(n int) { c.notes, c.said = append(c.notes, c.said[:n]...), c.said[n:] }

// deliver lets the target see jobs that wait, and finishes some.
func (c *clerk) deliver() {
	for _, seq := range slices.Sorted(maps.Keys(c.jobs)) {
		for i, b := range c.jobs[seq] {
			h, _, _, _ := parseHead(b)
			if ch := c.x.chunks[seq]; ch == nil || ch.done(i) {
				continue
			}
			key, r := string(h.key), refOf(seq, i)
			if c.ids[key] == nil {
				c.ids[key] = map[ref]bool{}
			}
			if c.ids[key][r] = true; c.r.IntN(2) == 0 {
				c.x.finish(r)
				c.said = append(c.said, []note{{kind: noteDone, ref: r, done: []int{i}}})
			}
		}
	}
}

// TestEachTimeHasOneJob plays hosts that die at any moment, puts that arrive late or again and again, purges,
// sums of notes and deletions, in any order: whatever is delivered for one time has one ID.
func TestEachTimeHasOneJob(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	times, twice := 0, 0
	for run := range 150 {
		c := &clerk{r: rand.New(rand.NewPCG(seed, uint64(run))), jobs: map[uint64][][]byte{},
			ids: map[string]map[ref]bool{}, put: map[string]bool{}}
		c.takeOver()
		c.said = append(c.said, c.x.timetables.configure([]Schedule{schedule("m", "")}, 0))
		c.write(1)
		for range 200 {
			up := time.UnixMilli(c.x.schedules["m"].upTo)
			switch c.r.IntN(9) {
			case 0, 1, 2: // a time comes, or was put by hosts before
				var chunk [][]byte
				at := everyMinute(up.Add(-time.Duration(c.r.IntN(4)) * time.Minute))
				for len(chunk) < 1+c.r.IntN(3) {
					s := schedule("m", "")
					j := s.job(at)
					j.Cost, c.put[j.Key] = 1, at.UnixMilli() > 0
					chunk = append(chunk, appendJob(nil, &j))
					if c.r.IntN(3) > 0 {
						at = everyMinute(at)
					}
				}
				c.last++
				c.jobs[c.last] = chunk
				c.read(c.last, nil)
			case 3:
				c.deliver()
			case 4:
				c.write(c.r.IntN(len(c.said) + 1))
			case 5, 6:
				c.takeOver()
			case 7:
				c.write(len(c.said)) // as host.see does
				first, others := c.x.gone(time.UnixMilli(int64(c.last)+int64(c.r.IntN(5000))), 100)
				for seq := range c.jobs {
					if seq < first {
						delete(c.jobs, seq)
					}
				}
				n := c.r.IntN(len(others) + 1) // the others could not be deleted
				for _, seq := range others[:n] {
					delete(c.jobs, seq)
				}
				c.x.drop(first, others[:n])
			case 8:
				c.write(len(c.said))
				var sum [][]note
				for part := range slices.Chunk(c.x.restate(0), 1+c.r.IntN(5)) {
					sum = append(sum, part)
				}
				if n := c.r.IntN(len(sum) + 1); n < len(sum) { // killed before the end
					c.notes = append(c.notes, sum[:n]...)
					c.takeOver()
				} else {
					c.notes = sum
				}
			}
		}
		c.write(len(c.said))
		c.deliver()
		for key, ids := range c.ids {
			if times++; len(ids) > 1 {
				t.Fatalf("run %d: %s has the jobs %v", run, key, slices.Sorted(maps.Keys(ids)))
			}
		}
		for key, is := range c.put {
			if is && c.ids[key] == nil {
				t.Fatalf("run %d: %s has no job", run, key)
			}
		}
		twice += int(c.x.duplicates)
	}
	if times < 1000 || twice < 100 { // some 5,000 and 700
		t.Errorf("%d times and %d jobs too many: too few to say anything", times, twice)
	}
}

// A schedule that changes begins when it changes, and not before what it has done: the clock may have been
// set back.
func TestAChangedScheduleBeginsNow(t *testing.T) {
	x := newIndex(nil, 0)
	s := schedule("m", "")
	now := time.Unix(1_000_000, 0).UnixMilli()
	for _, c := range []struct {
		rule string
		now  int64
		want int64
	}{{"a", now, now}, {"a", now + 1e6, now}, {"b", now + 2e6, now + 2e6}, {"c", now, now + 2e6}, {"", now + 3e6, now + 2e6},
		{"c", now + 4e6, now + 4e6}} {
		all := []Schedule{s}
		if all[0].Rule = c.rule; c.rule == "" {
			all = nil
		}
		x.timetables.configure(all, c.now)
		if got := x.schedules["m"].upTo; got != c.want {
			t.Errorf("%+v: begins at %d", c, got)
		}
	}
	for i := range 2 * keptSchedules {
		s.Name = fmt.Sprint("s", i)
		x.timetables.configure([]Schedule{s}, now+int64(i))
	}
	if n := len(x.schedules); n != keptSchedules || x.schedules[s.Name] == nil {
		t.Errorf("%d schedules are known", n)
	}
}

// A watch records which jobs a target gets for each time.
type watch struct {
	mu  sync.Mutex
	ids map[string]map[string]bool
	bad []string
}

func (w *watch) Deliver(_ context.Context, j *Job) Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ids[j.Key] == nil {
		w.ids[j.Key] = map[string]bool{}
	}
	w.ids[j.Key][j.ID] = true
	if want := j.Schedule + "/" + j.At.UTC().Format(time.RFC3339); j.Key != want || time.Now().Before(j.At) {
		w.bad = append(w.bad, fmt.Sprintf("%+v at %v", j, time.Now()))
	}
	return Outcome{}
}

// minutes is how many times have arrived, each with one job.
func (w *watch) minutes(t *testing.T, name string) int {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.bad) > 0 {
		t.Fatal(w.bad)
	}
	n := 0
	for key, ids := range w.ids {
		if len(ids) != 1 {
			t.Errorf("%s has the jobs %v", key, slices.Collect(maps.Keys(ids)))
		}
		if strings.HasPrefix(key, name+"/") {
			n++
		}
	}
	return n
}

func newScheduled(t *testing.T, all ...Schedule) (*bench, *watch) {
	t.Helper()
	w := &watch{ids: map[string]map[string]bool{}}
	b := newBench(t, func(c *Config) {
		// No window of keys: one job a time does not depend on it.
		c.Schedules, c.KeyWindow, c.Handler = slices.Clone(all), -1, w
	}).hosts()
	return b, w
}

// Each minute has one job, also when hosts end and begin, and when former hosts put it again.
func TestEachMinuteIsPutOnce(t *testing.T) {
	t.Parallel()
	virtual.Test(t, func(t *testing.T) {
		b, w := newScheduled(t, schedule("m", ""))
		time.Sleep(time.Until(everyMinute(time.Now())) - time.Second)
		for m := 1; m <= 5; m++ {
			time.Sleep(2 * time.Second)
			until(t, "delivered", func() bool { return w.minutes(t, "m") == m })
			s := schedule("m", "")
			late := s.job(time.Now().Truncate(time.Minute)) // of a host that was cut off
			late.Cost = 1
			r := []Receipt{{}, {}}
			if err := b.q.write(t.Context(), []Job{late, late}, []int{0, 1}, r); err != nil {
				t.Fatal(err)
			}
			if m%2 == 0 {
				b.end()
				b.start()
				b.hosts()
			}
			time.Sleep(58 * time.Second)
		}
		until(t, "all told", func() bool {
			s := b.status()
			return s.Depth == 0 && s.Bytes == 0
		})
		until(t, "told", func() bool {
			all, err := b.q.Schedules(t.Context())
			return err == nil && len(all) == 1 && all[0].Next.Equal(everyMinute(time.Now())) &&
				all[0].LastID != "" && all[0].Next.Sub(all[0].Last) == time.Minute
		})
		if n := w.minutes(t, "m"); n < 5 {
			t.Errorf("%d minutes, want 5", n)
		}
	})
}

// After an outage the choice of the schedule holds. One that is new, or changes, makes up for nothing.
func TestMissedTimes(t *testing.T) {
	t.Parallel()
	virtual.Test(t, func(t *testing.T) {
		all := []Schedule{schedule("once", MissedOnce), schedule("skip", MissedSkip), schedule("all", MissedAll)}
		hourly := func(after time.Time) time.Time { return after.Truncate(time.Hour).Add(time.Hour) }
		for i := range all {
			all[i].Rule, all[i].Next = "@hourly", hourly
		}
		b, w := newScheduled(t, all...)
		until(t, "begun", func() bool { s, err := b.q.Schedules(t.Context()); return err == nil && !s[0].Next.IsZero() })
		time.Sleep(2 * time.Second)
		b.end()
		time.Sleep(time.Until(hourly(time.Now())) + 4*time.Hour + 30*time.Minute)
		was := b.change
		b.change = func(c *Config) {
			was(c)
			c.Schedules = append(c.Schedules, schedule("new", MissedAll))
			c.Schedules[3].Next = hourly
		}
		b.start()
		b.hosts()
		time.Sleep(10 * time.Second)
		for name, want := range map[string]int{"once": 1, "skip": 0, "all": 5, "new": 0} {
			if n := w.minutes(t, name); n != want {
				t.Errorf("%s: %d of 5 times have a job, want %d", name, n, want)
			}
		}
		if s := b.status(); s.Totals.Fired != 6 || s.Totals.Missed != 4+5 {
			t.Errorf("%d times with a job and %d without", s.Totals.Fired, s.Totals.Missed)
		}
		// With another rule the past does not count, and without a schedule nothing happens.
		set := *b.q.set.Load()
		set.Schedules = []Schedule{schedule("all", MissedAll)}
		if err := b.q.Reconfigure(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(everyMinute(time.Now())) + 2*time.Minute + time.Second)
		if n := w.minutes(t, "all"); n != 5+3 {
			t.Errorf("%d times with a job, want 8", n)
		}
		set.Schedules = nil
		if err := b.q.Reconfigure(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if n := w.minutes(t, "all"); n != 5+3 {
			t.Errorf("%d times with a job after the schedule was removed, want 8", n)
		}
	})
}

// Producers that keep a queue full do not keep its schedules out. When more jobs of theirs wait than have
// room beyond, the job of the newest time comes as soon as there is room, and the queue says why before.
func TestAScheduleWaitsForRoom(t *testing.T) {
	t.Parallel()
	virtual.Test(t, func(t *testing.T) {
		b, w := newScheduled(t, schedule("m", ""))
		set := *b.q.set.Load()
		set.MaxWaiting = 1
		if err := b.q.Reconfigure(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		if err := b.q.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.put(Job{Key: "/0001-01-01T00:00:00Z"})
		time.Sleep(10*time.Minute + 30*time.Second) // between two times
		if s := b.status(); s.Depth != 11 {
			t.Errorf("%d jobs are in a full queue after ten minutes, want one for each beside one", s.Depth)
		}
		if _, err := b.q.Put(t.Context(), many(1)); !errors.Is(err, ErrFull) {
			t.Errorf("a producer puts into a full queue: %v", err)
		}
		time.Sleep(10 * time.Hour)
		if s := b.status(); s.Depth != 1+roomOfTimes {
			t.Errorf("%d jobs are in a full queue", s.Depth)
		}
		all, err := b.q.Schedules(t.Context())
		if err != nil || !strings.Contains(all[0].Reason, ErrFull.Error()) {
			t.Errorf("%+v %v", all, err)
		}
		if err := b.q.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		until(t, "put", func() bool { return w.minutes(t, "m") > 0 })
		time.Sleep(5 * time.Second)
		if n := w.minutes(t, "m"); n > roomOfTimes+3 {
			t.Errorf("%d jobs for what was missed, want those of the last minute beside %d", n, roomOfTimes)
		}
	})
}

// Nobody can put a job in the name of a schedule, or take its key before.
func TestATimeIsNotTakenByOthers(t *testing.T) {
	t.Parallel()
	virtual.Test(t, func(t *testing.T) {
		b, w := newScheduled(t, schedule("m", ""))
		set := *b.q.set.Load()
		set.KeyWindow = time.Hour
		if err := b.q.Reconfigure(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		at := everyMinute(time.Now())
		s := schedule("m", "")
		if _, err := b.q.Put(t.Context(), []Job{s.job(at)}); !errors.Is(err, ErrJob) {
			t.Errorf("a job of a schedule was put: %v", err)
		}
		if _, err := ParseJob([]byte(`{"schedule": "m"}`)); !errors.Is(err, ErrJob) {
			t.Errorf("a job of a schedule was parsed: %v", err)
		}
		if _, err := ParseJob([]byte(`{"headers": {"headgate-schedule": "m"}}`)); !errors.Is(err, ErrJob) {
			t.Errorf("a job of a schedule was parsed: %v", err)
		}
		if err := b.q.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.put(Job{Key: "m/" + at.UTC().Format(time.RFC3339)})
		time.Sleep(time.Until(at) + time.Second)
		if n := b.status().Depth; n != 2 {
			t.Errorf("%d jobs wait, want that of the schedule and that with its key", n)
		}
		_ = w
	})
}

// A queue that never has room for all jobs of a moment takes what it has room for, the oldest first.
func TestMoreTimesThanRoom(t *testing.T) {
	t.Parallel()
	virtual.Test(t, func(t *testing.T) {
		b, w := newScheduled(t, schedule("a", MissedAll), schedule("b", ""), schedule("c", ""))
		set := *b.q.set.Load()
		set.MaxWaiting = 2
		if err := b.q.Reconfigure(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		for _, name := range []string{"a", "b", "c"} {
			if n := w.minutes(t, name); n < 9 {
				t.Errorf("%s: %d of 10 times have a job", name, n)
			}
		}
		h := b.q.lead.Load()
		large := slices.Repeat([]Job{{Body: make([]byte, chunkBytes/4)}}, MaxSchedules*mostMadeUp)
		if n := h.fitting(large, len(large)); n != 4 {
			t.Errorf("%d jobs of a quarter of a chunk are put at once", n)
		}
		if n := h.fitting(make([]Job, 3), 2-roomOfTimes); n != 2 {
			t.Errorf("%d jobs have the room of 2", n)
		}
		if n := h.fitting(make([]Job, len(large)), len(large)); n != mostMadeUp {
			t.Errorf("%d small jobs are put at once", n)
		}
	})
}

// A look costs nothing while no time comes: the next time of a line such as "0 0 29 2 *" is searched day by
// day.
func TestTheNextTimeIsSearchedOnce(t *testing.T) {
	t.Parallel()
	virtual.Test(t, func(t *testing.T) {
		var searched atomic.Int64
		s := schedule("m", "")
		s.Next = func(after time.Time) time.Time {
			searched.Add(1)
			return after.Truncate(time.Hour).Add(1000 * time.Hour)
		}
		b, _ := newScheduled(t, s)
		until(t, "begun", func() bool { return searched.Load() > 0 })
		time.Sleep(time.Second)
		was := searched.Load()
		time.Sleep(10 * time.Minute)
		if n := searched.Load() - was; n > 0 {
			t.Errorf("searched %d times in ten minutes without one", n)
		}
		// Another function under the same name and rule counts at once.
		set := *b.q.set.Load()
		set.Schedules = []Schedule{schedule("m", "")}
		if err := b.q.Reconfigure(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if n := b.status().Totals.Fired; n < 1 {
			t.Error("the function from before the reload still counts")
		}
	})
}

// A schedule that stands still because a clock was ahead says so.
func TestAScheduleSaysThatAClockWasAhead(t *testing.T) {
	t.Parallel()
	virtual.Test(t, func(t *testing.T) {
		b, _ := newScheduled(t, schedule("m", ""))
		why := func() string {
			all, err := b.q.Schedules(t.Context())
			if err != nil || all[0].Next.IsZero() {
				return "not begun"
			}
			return all[0].Reason
		}
		until(t, "all is well", func() bool { return why() == "" })
		h := b.q.lead.Load()
		h.mu.Lock()
		h.index.schedules["m"].upTo += int64(time.Hour / time.Millisecond)
		h.mu.Unlock()
		if got := why(); !strings.Contains(got, "a clock was ahead") {
			t.Errorf("it says %q", got)
		}
		time.Sleep(time.Hour)
		until(t, "all is well again", func() bool { return why() == "" })
	})
}

// What is noted of a schedule is read as it was, whatever its rule is: with another one it would begin anew.
func TestARuleIsNotedAsItIs(t *testing.T) {
	for _, rule := range []string{"", "r", " r", "r ", " ", "a  b"} {
		was := timetable{rule: rule, upTo: 1, last: 1, job: refOf(1, 2)}
		notes, err := parseNotes(encodeNotes([]note{was.note("m")}))
		if err != nil {
			t.Fatal(err)
		}
		x := newTimetables()
		x.restore(&notes[0])
		if got := x.schedules["m"]; got == nil || *got != was {
			t.Errorf("%q is read as %+v", rule, got)
		}
	}
}

// A job that was stored is not given up because the host has not read it yet: not by a reload that changes
// the rule, and not as missed.
func TestAStoredJobIsReadFirst(t *testing.T) {
	t.Parallel()
	virtual.Test(t, func(t *testing.T) {
		b := newBench(t, nil).hosts()
		s := schedule("m", MissedSkip)
		set := *b.q.set.Load()
		set.Schedules = []Schedule{s}
		q := &Queue{cfg: b.q.cfg, jobs: b.q.jobs, puts: b.q.puts, ended: b.q.ended}
		q.set.Store(&set)
		h := &host{q: q, index: newIndex(nil, 0), left: make(chan struct{})} // reads nothing by itself
		if _, err := h.fireDue(t.Context()); err != nil {
			t.Fatal(err)
		}
		at := everyMinute(time.Now())
		time.Sleep(time.Until(at))
		if _, err := h.fireDue(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v, want that the job is not read", err)
		}
		time.Sleep(2 * missedAfter)
		changed := set
		changed.Schedules = []Schedule{s}
		changed.Schedules[0].Rule = "1 * * * *"
		for _, set := range []*Config{&set, &changed} {
			q.set.Store(set)
			if _, err := h.fireDue(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, want that the job is not read", err)
			}
		}
		if _, err := b.q.jobs.ReadAll(t.Context(), func(e store.Entry) error {
			jobs, err := parseChunk(e.Data)
			h.mu.Lock()
			defer h.mu.Unlock()
			h.index.add(e.Seq, e.At, jobs, nil)
			h.readLocked(e.Seq)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if got := h.index.schedules["m"]; got.last != at.UnixMilli() {
			t.Errorf("the time of the job is %v, want %v", time.UnixMilli(got.last), at)
		}
		if _, err := h.fireDue(t.Context()); err != nil || h.index.schedules["m"].rule != "1 * * * *" {
			t.Errorf("%v, and the rule is %q", err, h.index.schedules["m"].rule)
		}
	})
}
