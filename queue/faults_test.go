package queue

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/ratelimit"
	"github.com/headgate/headgate/tests/virtual"
)

// replayed returns what a host knows that reads these notes.
func replayed(notes ...note) *replay {
	old := newReplay()
	old.history = newHistory(10_000, time.Hour)
	for i := range notes {
		old.note(&notes[i])
	}
	return old
}

// A job that was under way at a purge and waits again is not lost when its host is killed while it sums up
// its notes: some of the new ones are on disk, and all of the old ones.
func TestAKillWhileNotesAreSummedUpLosesNoJob(t *testing.T) {
	of := refOf(5, 0)
	notes := []note{{kind: notePurge, ref: refOf(10, 0)}, {kind: noteTry, ref: of, attempt: 1}}
	x := newIndex(nil, 0)
	x.add(5, time.Unix(1, 0), [][]byte{appendJob(nil, &Job{Cost: 1})}, replayed(notes...))
	for n, summed := 0, x.restate(10); n <= len(summed); n++ {
		written, err := parseNotes(encodeNotes(summed[:n]))
		if err != nil {
			t.Fatal(err)
		}
		if old := replayed(append(notes[:2:2], written...)...); old.gone(of) || old.purged != 10 {
			t.Errorf("after %d of %d notes: gone %v, purged up to %d", n, len(summed), old.gone(of),
				old.purged)
		}
	}
}

// What was told of a job with a long history stays true when its host is killed while it sums up its notes.
func TestAKillWhileNotesAreSummedUpTakesNoStateBack(t *testing.T) {
	of := refOf(5, 0)
	var notes []note
	for i := range 120 {
		notes = append(notes, note{kind: noteEvent, ref: of, event: eventBusy, when: int64(i), tried: 1})
	}
	notes = append(notes, note{kind: noteEvent, ref: of, event: eventDelivered, when: 120, tried: 1})
	x := newIndex(nil, 0)
	x.history = replayed(notes...).history
	summed := x.restate(0)[1:]
	for n := range summed {
		old := replayed(append(notes[:len(notes):len(notes)], summed[:n]...)...)
		for e := range old.history.of(of, 120) {
			if e.kind != eventDelivered {
				t.Fatalf("after %d of %d notes the newest event is %q", n, len(summed), e.kind)
			}
			break
		}
		if old.history.len() != 121 {
			t.Fatalf("after %d of %d notes %d events are known, want 121", n, len(summed), old.history.len())
		}
	}
}

// A host that finds a write of its own whose answer was lost knows when it began it, not when it found it:
// another node may host the queue since.
func TestAnOldWriteIsNoSignOfLife(t *testing.T) {
	t.Parallel()
	virtual.Test(t, func(t *testing.T) {
		link := &virtual.Link{}
		b := newBench(t, func(c *Config) { c.Node = "n1" })
		b.hosts()
		b.stop() // this one has no link
		link.To = b.engine
		conn, err := nats.Connect("", nats.InProcessServer(link), nats.MaxReconnects(-1),
			nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0), nats.ReconnectBufSize(-1))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		was := b.change
		b.change = func(c *Config) { was(c); c.NATS = conn }
		b.q, b.stop = b.open("n1")
		b.hosts()
		h := b.q.lead.Load()
		time.Sleep(beat / 2)
		link.SetCut(true)
		time.Sleep(2 * beat) // a beat is being written
		other, err := store.OpenLog(t.Context(), store.LogConfig{Conn: b.engine.Conn(), Name: "orders_notes"})
		if err != nil {
			t.Fatal(err)
		}
		size, err := other.Size(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		seq := size.Last
		for _, n := range []note{{kind: noteBeat}, {kind: noteBegin, text: "n2"}} {
			if seq, err = other.Append(t.Context(), encodeNotes([]note{n}), seq); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(writeWait)
		link.SetCut(false)
		for b.q.lead.Load() == h {
			if h.holds() {
				t.Fatal("it believes that it hosts the queue, and n2 does")
			}
			time.Sleep(time.Millisecond)
		}
	})
}

// A purge does not change how many keys are remembered.
func TestAPurgeKeepsTheBoundOfKeys(t *testing.T) {
	x := newIndex(nil, time.Hour)
	x.keys.most = 2 * maxKeys
	x.purge()
	if x.keys.most != 2*maxKeys {
		t.Errorf("%d keys, want %d", x.keys.most, 2*maxKeys)
	}
}

// A full is a throttle of a target that always becomes overloaded before the job goes.
type full struct{ Throttle }

func (full) Pass(now time.Time, n int) (ok bool, at time.Time) { return n == 0, now.Add(time.Second) }

// A job that holds capacity and is canceled before it goes, or whose queue is paused, gives it back: others
// use the limit.
func TestACanceledJobHoldsNoCapacity(t *testing.T) {
	t.Parallel()
	virtual.Test(t, func(t *testing.T) {
		l, err := ratelimit.New(ratelimit.Config{Limits: []ratelimit.Limit{{Name: "db",
			Rule: limit.Rule{Algorithm: limit.Concurrency, Amount: 1}}}})
		if err != nil {
			t.Fatal(err)
		}
		b := newBench(t, func(c *Config) {
			c.Capacity, c.Uses, c.Throttle = NewCapacity(l), []LimitUse{{Limit: "db"}}, full{}
		}).hosts()
		free := func() bool {
			held, v, err := l.Hold(t.Context(), ratelimit.Check{Limit: "db", Cost: 1}, ratelimit.Waiters{})
			if err != nil {
				t.Fatal(err)
			}
			if v.Allowed {
				held.Return(1)
			}
			return v.Allowed
		}
		r := b.put(Job{})
		until(t, "held", func() bool { return !free() })
		if err := b.q.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		until(t, "free while it is paused", free)
		if err := b.q.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		until(t, "held again", func() bool { return !free() })
		if _, err := b.q.Cancel(t.Context(), JobName{ID: r[0].ID}); err != nil {
			t.Fatal(err)
		}
		until(t, "free after the cancellation", free)
	})
}

// Jobs that are put and canceled while nothing is sent need no memory.
func TestCanceledJobsNeedNoMemory(t *testing.T) {
	x := newIndex(nil, 0)
	h := &host{index: x, q: &Queue{}}
	h.q.set.Store(&Config{})
	job := func(tenant string) [][]byte { return [][]byte{appendJob(nil, &Job{Cost: 1, Tenant: tenant})} }
	seq := uint64(0)
	put := func(tenant string) ref {
		seq++
		x.add(seq, time.Unix(1, 0), job(tenant), nil)
		return refOf(seq, 0)
	}
	first, last := put("stays"), put("stays")
	for i := range 200_000 {
		h.strike(put("stays"), &JobStatus{}, nil)
		h.strike(put(fmt.Sprint("leaves ", i)), &JobStatus{}, nil)
		now := put("stays") // one that waits is always at the end
		h.strike(last, &JobStatus{}, nil)
		last = now
		x.drop(x.gone(time.Unix(2, 0), 100))
	}
	if runs := cap(x.tenants["stays"].lanes[0].runs); x.lined > 200_000 || runs > 400_000 ||
		len(x.tenants) > 200_000 || len(x.ids) != len(x.tenants) {
		t.Errorf("2 jobs need %d entries in %d runs, %d tenants", x.lined, runs, len(x.tenants))
	}
	if at, ok := x.placeOf(last); !ok || x.ids[at.tenant].ahead(at) < 1 {
		t.Errorf("the last one is at %+v %v", at, ok)
	}
	for _, want := range []ref{first, last} {
		got, of, _ := x.peek()
		for of != nil && of.name != "stays" {
			got, of, _ = x.peek()
		}
		if got != want {
			t.Fatalf("%v goes, want %v", got, want)
		}
		x.take(of, 1, 0)
		x.finish(got)
	}
}

// A job that has ended cannot be changed, and the error says so when its chunk is deleted, too.
func TestAnEndedJobIsNotChanged(t *testing.T) {
	t.Parallel()
	virtual.Test(t, func(t *testing.T) {
		b := newBench(t, nil).hosts()
		r := b.put(Job{})
		until(t, "delivered and deleted", func() bool {
			s := b.status()
			return s.Totals.Delivered == 1 && s.Bytes == 0
		})
		time.Sleep(2 * sweepEvery)
		b.q.cache = chunkCache{}
		nine := 9
		_, err := b.q.Change(t.Context(), JobName{ID: r[0].ID}, JobChange{Priority: &nine})
		if !errors.Is(err, ErrEnded) {
			t.Errorf("%v, want %v", err, ErrEnded)
		}
	})
}

// A cancellation whose answer is lost is not certain: the host may have received it.
func TestALostAnswerIsNotCertain(t *testing.T) {
	t.Parallel()
	virtual.Test(t, func(t *testing.T) {
		b := newBench(t, func(c *Config) {
			c.HostRank = func(string) (int, bool) { return 0, false } // never the host
		})
		b.stop()
		b.stop = func() {}
		q, stop := b.open("n1")
		defer stop()
		_, err := q.Cancel(t.Context(), JobName{ID: "1-0"})
		if !errors.Is(err, ErrNoHost) || errors.Is(err, ErrUnsure) {
			t.Errorf("without a host: %v", err)
		}
		deaf, err := q.bus.Serve(q.hostName(), func(context.Context, []byte) []byte { return nil })
		if err != nil {
			t.Fatal(err)
		}
		defer deaf()
		_, err = q.Cancel(t.Context(), JobName{ID: "1-0"})
		if !errors.Is(err, ErrUnsure) || errors.Is(err, ErrNoHost) {
			t.Errorf("without an answer: %v", err)
		}
		if _, err := q.Job(t.Context(), JobName{ID: "1-0"}, 0); !errors.Is(err, ErrNoHost) {
			t.Errorf("a look without an answer: %v", err)
		}
	})
}
