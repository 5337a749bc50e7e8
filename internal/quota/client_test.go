package quota

import (
	"fmt"
	"regexp"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/virtual"

	"github.com/headgate/headgate/limit"
)

// hoard makes a process call a key so often that units are lent in advance, and returns how many it
// holds.
func (g *group) hoard(r *rig, name, key string) int64 {
	g.t.Helper()
	lane := r.Limit(name)
	for began := time.Now(); time.Since(began) < 5*time.Second; {
		if d, err := lane.Take(g.t.Context(), key, 1); err != nil || !d.Allowed {
			g.t.Fatalf("%+v, %v", d, err)
		}
		if n := lane.holds(key); n >= 40 {
			return n
		}
		wait(time.Millisecond)
	}
	g.t.Fatal("it is lent nothing ahead")
	return 0
}

// If the process that holds units in advance can be reached, another process gets them within 100
// ms.
func TestRecallOfWhatIsHeldAhead(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testRecallOfWhatIsHeldAhead)
}

func testRecallOfWhatIsHeldAhead(t *testing.T) {
	g := newGroup(t)
	g.define("api", limit.Rule{Algorithm: limit.SlidingLog, Amount: 400, Window: time.Hour})
	a := g.launch("a", launch{})
	v, w := g.launch("v", launch{worker: true}), g.launch("w", launch{worker: true})
	g.spreadOf(a)
	g.await("the workers know", func() bool { return v.Ready() && w.Ready() })
	all := func(r *rig, key string, left int64) (took time.Duration, d limit.Decision) {
		t.Helper()
		began := time.Now()
		d, err := r.Limit("api").Take(t.Context(), key, left)
		if err != nil {
			t.Fatal(err)
		}
		return time.Since(began), d
	}
	for i := range 5 {
		key := fmt.Sprint("client-", i)
		g.hoard(v, "api", key)
		p, err := w.Limit("api").Peek(t.Context(), key, 0)
		if err != nil {
			t.Fatal(err)
		}
		held := v.Limit("api").holds(key)
		took, d := all(w, key, p.Remaining+held)
		if most := 100 * time.Millisecond; !d.Allowed || took > most {
			t.Errorf("of %d held elsewhere: %+v after %s, want all within %s", held, d, took, most)
		}
		t.Log("recalled", held, "in", took)
	}
	held := g.hoard(v, "api", "deaf")
	v.all.shut() // it receives nothing
	p, err := w.Limit("api").Peek(t.Context(), "deaf", 0)
	if err != nil {
		t.Fatal(err)
	}
	took, d := all(w, "deaf", p.Remaining+held)
	if d.Allowed || took < recallWait/2 || took > recallWait+300*time.Millisecond {
		t.Errorf("of what a deaf one holds: %+v after %s, want a refusal after %s", d, took, recallWait)
	}
	v.all.flow()
}

// Keys that are called once leave nothing in the Client and no loan at the host. A stopped Client
// leaves no goroutine.
func TestKeysCalledOnceAreForgotten(t *testing.T) { virtual.Test(t, testKeysCalledOnceAreForgotten) }

func testKeysCalledOnceAreForgotten(t *testing.T) {
	keys := 100_000
	if testing.Short() {
		keys = 10_000
	}
	g := newGroup(t)
	g.define("api", limit.Rule{Algorithm: limit.SlidingLog, Amount: 10, Window: 30 * time.Second})
	a, w := g.launch("a", launch{}), g.launch("w", launch{worker: true})
	g.spreadOf(a)
	g.await("the worker knows", w.Ready)
	began := time.Now()
	var wg sync.WaitGroup
	for from := range 64 {
		wg.Go(func() {
			for i := from; i < keys; i += 64 {
				d, err := w.Limit("api").Take(t.Context(), fmt.Sprint("key-", i), 1)
				if err != nil || !d.Allowed {
					t.Errorf("key-%d: %+v, %v", i, d, err)
					return
				}
			}
		})
	}
	wg.Wait()
	t.Log(keys, "keys in", time.Since(began))
	done := time.Now()
	lent := func() (n int64) {
		l := a.host.ledger
		for i := range keys {
			key := fmt.Sprint("key-", i)
			s := &l.shards[shardOf("api", key)]
			s.mu.Lock()
			n += s.tables["api"].Lent(l.hash(key))
			s.mu.Unlock()
		}
		return n
	}
	g.await("nothing is held", func() bool { return w.held.Load() == 0 })
	if took := time.Since(done); took > 2*time.Second {
		t.Errorf("held for %s, want at most 2 s", took)
	}
	if n := lent(); n != 0 {
		t.Errorf("%d are lent still", n)
	}
	w.mu.Lock()
	if n := w.queued + len(w.late) + len(w.open); n > 0 || cap(w.open) > 4*keys {
		t.Errorf("%d errands are left", n)
	}
	w.mu.Unlock()
	w.stop()
	a.stop()
	g.await("no goroutine of theirs is left", func() bool {
		b := make([]byte, 1<<20)
		b = b[:runtime.Stack(b, true)]
		return !regexp.MustCompile(`quota\.\(\*(Desk|Host|Node|near|link|ledger)\)`).Match(b)
	})
}

// A Client that stops returns lent units, but not held ones, because they may be on their way.
func TestWhatIsHeldIsNotGivenBackAtTheEnd(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testWhatIsHeldIsNotGivenBackAtTheEnd)
}

func testWhatIsHeldIsNotGivenBackAtTheEnd(t *testing.T) {
	g := newGroup(t)
	g.define("api", limit.Rule{Algorithm: limit.SlidingLog, Amount: 10, Window: time.Hour})
	a, w := g.launch("a", launch{}), g.launch("w", launch{worker: true})
	g.spreadOf(a)
	g.await("the worker knows", w.Ready)
	var keys Keys
	keys.Init(w.Limit("api"), Usage{})
	_, v, err := keys.Hold(t.Context(), g.rules("api"), "k", 4, Waiters{Weight: 1})
	if err != nil || !v.Allowed {
		t.Fatalf("%+v %v", v, err)
	}
	w.giveBack()
	if d, err := a.Limit("api").Peek(t.Context(), "k", 1); err != nil || d.Remaining != 6 {
		t.Errorf("%+v %v, want 6: 4 are held", d, err)
	}
}
