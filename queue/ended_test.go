package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/tests/virtual"
)

// An ear is what OnEnd gets.
type ear struct {
	mu   sync.Mutex
	got  []Ended
	fail error
}

func (e *ear) onEnd(_ context.Context, some []Ended) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fail != nil {
		return e.fail
	}
	e.got = append(e.got, some...)
	return nil
}

func (e *ear) fails(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fail = err
}

// texts returns what it has got, in order, and forgets it.
func (e *ear) texts() (all []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range e.got {
		text := fmt.Sprintf("%s %s/%s/%s %s %d %d", x.State, x.Key, x.OrderKey, x.Tenant, x.Queue, x.Attempts, x.Status)
		if x.Reason != "" {
			text += " " + x.Reason
		}
		all = append(all, text)
	}
	e.got = nil
	return all
}

// has waits until it has got these, and nothing else.
func (e *ear) has(t *testing.T, want ...string) {
	t.Helper()
	time.Sleep(5 * time.Second)
	if got := e.texts(); !slices.Equal(got, want) {
		t.Errorf("OnEnd has got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// OnEnd gets each way in which a job ends, with what its receiver needs to know it again.
func TestAnEndIsPassedOn(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAnEndIsPassedOn)
}

func testAnEndIsPassedOn(t *testing.T) {
	e := &ear{}
	b := newBench(t, func(c *Config) { c.OnEnd, c.MaxAttempts, c.Outcomes = e.onEnd, 2, -1 }).hosts()
	b.target.answers(func(j *Job) Outcome {
		switch string(j.Body) {
		case "fails":
			return Outcome{Err: errors.New("no"), Retry: true, Status: 500}
		case "refused":
			return Outcome{Err: errors.New("never"), Status: 400}
		}
		return Outcome{Status: 201}
	})
	b.put(Job{Key: "k", OrderKey: "o", Tenant: "t", Body: []byte("good")})
	e.has(t, "delivered k/o/t orders 1 201")
	id := b.put(Job{Key: "l", Body: []byte("fails")})
	e.has(t, "dead l// orders 2 500 no")
	b.put(Job{OrderKey: "p", Body: []byte("refused")})
	e.has(t, "dead /p/ orders 1 400 never")
	if n, err := b.q.Redrive(t.Context(), DeadFilter{IDs: []string{id[0].ID}}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	e.has(t, "dead l// orders 2 500 no")
	old := Job{Key: "old", Tenant: "u", MaxAge: time.Minute}
	later := Job{Key: "later", OrderKey: "o", Tenant: "t", At: time.Now().Add(time.Hour)}
	if err := b.q.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.put(old, later, Job{Key: "behind", OrderKey: "o", Tenant: "t"}, Job{Key: "purged"})
	time.Sleep(2 * time.Minute)
	for _, key := range []string{"behind", "later"} {
		if _, err := b.q.Cancel(t.Context(), NameJob(key)); err != nil {
			t.Fatal(key, err)
		}
	}
	e.has(t, "canceled behind/o/t orders 0 0", "canceled later/o/t orders 0 0")
	if err := b.q.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.has(t, "dead old//u orders 0 0 too old", "delivered purged// orders 1 201")
	if err := b.q.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.put(many(1000)...)
	until(t, "known", func() bool { return b.status().Depth == 1000 })
	if n, err := b.q.Purge(t.Context()); n != 1000 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := b.q.PurgeDead(t.Context(), DeadFilter{}); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	e.has(t)
	if s := b.status(); s.Ended != 0 || s.Totals.Ended != 8 || s.Totals.EndsLost != 0 {
		t.Errorf("%+v", s)
	}
}

// When no end waits, the sum of the notes has only what versions without OnEnd know: they can host the queue
// again. Ends after such a sum are passed on by the next host.
func TestASumWithoutEnds(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testASumWithoutEnds)
}

func testASumWithoutEnds(t *testing.T) {
	e := &ear{}
	b := newBench(t, func(c *Config) { c.OnEnd = e.onEnd }).hosts()
	b.put(many(10)...)
	until(t, "passed on", func() bool { return b.status().Totals.Ended == 10 })
	e.texts()
	for range restateAt + 50 { // each one in its own entry
		if err := b.q.SetRate(t.Context(), 1000); err != nil {
			t.Fatal(err)
		}
	}
	kinds, entries := map[byte]bool{}, 0
	if _, err := b.q.notes.ReadAll(t.Context(), func(x store.Entry) error {
		notes, err := parseNotes(x.Data)
		for i := range notes {
			kinds[notes[i].kind] = true
		}
		entries++
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if kinds[noteEnded] || kinds[notePassed] {
		t.Errorf("%d entries have the kinds %q", entries, slices.Collect(maps.Keys(kinds)))
	}
	b.restart()
	e.fails(errors.New("no"))
	b.put(Job{Key: "a"}, Job{Key: "b"})
	until(t, "they wait", func() bool { return b.status().Ended == 2 })
	b.restart()
	e.fails(nil)
	time.Sleep(5 * time.Second)
	got := e.texts()
	if slices.Sort(got); !slices.Equal(got, []string{"delivered a// orders 1 0", "delivered b// orders 1 0"}) {
		t.Errorf("OnEnd has got %q", got)
	}
}

// No log has an entry 0, so that no job has such an ID.
func TestAnIDThatIsNone(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.OnEnd = (&ear{}).onEnd }).hosts()
	name := NameJob("0-0")
	if _, err := b.q.Cancel(t.Context(), name); !errors.Is(err, ErrNoJob) {
		t.Errorf("canceled: %v", err)
	}
	priority := 1
	if _, err := b.q.Change(t.Context(), name, JobChange{Priority: &priority}); !errors.Is(err, ErrNoJob) {
		t.Errorf("changed: %v", err)
	}
}

// While OnEnd fails, jobs go on. It gets all ends in order afterwards, by the next host too, and none of them
// again after that.
func TestAnEndWaitsForItsReceiver(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAnEndWaitsForItsReceiver)
}

func testAnEndWaitsForItsReceiver(t *testing.T) {
	e := &ear{fail: errors.New("it is full")}
	b := newBench(t, func(c *Config) { c.OnEnd, c.Concurrency = e.onEnd, 1 }).hosts()
	const n = 3000
	for i := range n / 100 {
		jobs := many(100)
		for k := range jobs {
			jobs[k].Key = fmt.Sprint(i*100 + k)
		}
		b.put(jobs...)
	}
	until(t, "all delivered", func() bool { return b.target.count() == n })
	until(t, "forgotten", func() bool { return b.status().Depth == 0 })
	time.Sleep(time.Hour)
	if s := b.status(); s.Ended != n || s.EndsError != "it is full" {
		t.Errorf("%d wait: %q", s.Ended, s.EndsError)
	}
	b.restart()
	if s := b.status(); s.Ended != n {
		t.Errorf("%d wait after a restart", s.Ended)
	}
	time.Sleep(time.Minute)
	e.fails(nil)
	until(t, "all passed on", func() bool { return b.status().Ended == 0 })
	b.restart()
	time.Sleep(time.Minute)
	got := e.texts()
	for i, text := range got {
		if want := fmt.Sprintf("delivered %d// orders 1 0", i); text != want {
			t.Fatalf("end %d is %s, want %s", i, text, want)
		}
	}
	if len(got) != n {
		t.Errorf("OnEnd has got %d ends of %d", len(got), n)
	}
	b.put(Job{Key: "next"})
	e.has(t, "delivered next// orders 1 0")
}

// Without OnEnd what waits for it is forgotten, and Ends chooses.
func TestEndsAreChosen(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testEndsAreChosen)
}

func testEndsAreChosen(t *testing.T) {
	e := &ear{}
	var set Config
	b := newBench(t, func(c *Config) {
		c.OnEnd, c.Ends = e.onEnd, []string{StateCanceled, StateDead}
		set = *c
	}).hosts()
	b.target.answers(func(j *Job) Outcome {
		if len(j.Body) > 0 {
			return Outcome{Err: errors.New("no")}
		}
		return Outcome{}
	})
	b.put(Job{Key: "good"}, Job{Key: "bad", Body: []byte("bad")})
	e.has(t, "dead bad// orders 1 0 no")
	e.fails(errors.New("no"))
	b.put(Job{Key: "worse", Body: []byte("bad")})
	until(t, "it waits", func() bool { return b.status().Ended == 1 })
	set.OnEnd = nil
	if err := b.q.Reconfigure(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	until(t, "it is forgotten", func() bool { return b.status().Ended == 0 })
	e.fails(nil)
	set.OnEnd, set.Ends = e.onEnd, []string{"done"}
	if err := b.q.Reconfigure(t.Context(), set); err == nil {
		t.Error("an unknown state is accepted")
	}
	set.Ends = nil
	if err := b.q.Reconfigure(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	b.put(Job{Key: "better"})
	e.has(t, "delivered better// orders 1 0")
}

// A worker acknowledges, gives up, or lets its lease end, also at the next host.
func TestAnEndOfAClaimIsPassedOn(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAnEndOfAClaimIsPassedOn)
}

func testAnEndOfAClaimIsPassedOn(t *testing.T) {
	e := &ear{}
	b := newBench(t, func(c *Config) { pulled(c); c.OnEnd, c.MaxAttempts = e.onEnd, 1 }).hosts()
	b.put(Job{Key: "a", OrderKey: "o", Tenant: "t"}, Job{Key: "b", OrderKey: "p", Tenant: "t"}, Job{Key: "c", Tenant: "t"})
	var jobs []Claimed
	for len(jobs) < 3 {
		jobs = append(jobs, b.claim(Want{Max: 3})...)
	}
	receipt := map[string]string{}
	for _, j := range jobs {
		receipt[j.Key] = j.Receipt
	}
	settled(t, "ok")(b.q.Nack(t.Context(), Nack{Dead: true, Reason: "no"}, receipt["b"]))
	b.restart()
	settled(t, "ok")(b.q.Ack(t.Context(), receipt["a"]))
	e.has(t, "dead b/p/t orders 1 0 no", "delivered a/o/t orders 1 0")
	time.Sleep(time.Minute)
	e.has(t, "dead c//t orders 1 0 the lease ended before the worker answered")
}

// More ends than may wait: the oldest are forgotten and counted, and the next host forgets the same ones.
func TestEndsAreBounded(t *testing.T) {
	t.Parallel()
	var live, again endings
	lost := 0
	for i := range uint64(MaxEnded + 5) {
		x := &ending{number: i + 1}
		if live.add(x) {
			lost++
		}
		again.add(x)
		again.add(x) // read twice
	}
	if lost != 5 || len(live.all) != MaxEnded || live.all[0].number != 6 || len(again.all) != MaxEnded ||
		again.all[0].number != 6 {
		t.Errorf("%d lost, %d wait from %d on, %d at the next host", lost, len(live.all), live.all[0].number,
			len(again.all))
	}
}
