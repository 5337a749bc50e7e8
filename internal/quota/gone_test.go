package quota

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/virtual"

	"github.com/headgate/headgate/limit"
)

// A removed limit leaves nothing behind: no requests are sent about its held units, and a thousand
// limits that come and go use no memory.
func TestALimitThatIsGoneLeavesNothing(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testALimitThatIsGoneLeavesNothing)
}

func testALimitThatIsGoneLeavesNothing(t *testing.T) {
	g := newGroup(t)
	g.define("api", limit.Rule{Algorithm: limit.SlidingLog, Amount: 400, Window: time.Hour})
	a, w := g.start("a", true), g.start("w", false)
	g.spread(a)
	g.await("the worker knows", w.Ready)
	lane := w.Limit("api")
	for i := 0; lane.holds("key-0") == 0; i++ { // lent in advance
		if d, err := lane.Take(t.Context(), fmt.Sprint("key-", i%3), 1); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	g.mu.Lock()
	delete(g.limits, "api")
	g.mu.Unlock()
	g.await("nothing is held, and nothing asked", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.held.Load() == 0 && w.queued+len(w.late)+len(w.open) == 0
	})
	if d, err := w.Limit("api").Peek(t.Context(), "key-0", 1); err == nil {
		t.Errorf("it is gone, and answers %+v", d)
	}
	g.define("api", limit.Rule{Algorithm: limit.SlidingLog, Amount: 5, Window: time.Hour})
	if got, errs := g.burst("api", "key-0", 4, w); errs == 0 && got != 5 {
		t.Errorf("made anew, %d calls passed, want 5", got)
	}
	for i := range 1000 {
		w.Limit(fmt.Sprint("made-", i))
	}
	g.await("lanes that nobody has are forgotten", func() bool {
		runtime.GC()
		w.Limit("one more")
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.known) < 10
	})
	if w.Limit("api") != lane {
		t.Error("a limit has two lanes")
	}
}

// A block whose write is lost is written again while its caller waits.
func TestABlockWhoseWriteIsLostIsWrittenAgain(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testABlockWhoseWriteIsLostIsWrittenAgain)
}

func testABlockWhoseWriteIsLostIsWrittenAgain(t *testing.T) {
	g := newGroup(t)
	g.define("day", limit.Rule{Algorithm: limit.SlidingLog, Amount: 160, Window: 24 * time.Hour})
	a := g.launch("a", launch{})
	g.spreadOf(a)
	lane := a.Limit("day")
	lane.slow.Store(true)
	for i := range 5 {
		a.store.lost.Store(1)
		began := time.Now()
		d, err := lane.Take(t.Context(), fmt.Sprint("key-", i), 1)
		if took := time.Since(began); took < blockTry || took > patience {
			t.Errorf("after %v, want some more than %v", took, blockTry)
		} else if err != nil || !d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
	}
}
