package quota

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/virtual"

	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/limit"
)

// left returns what a key has left, as soon as a host answers.
func (g *group) left(r *rig, name, key string) (n int64) {
	g.t.Helper()
	g.await("it is told what "+name+" has left", func() bool {
		d, err := r.Limit(name).Peek(g.t.Context(), key, 1)
		n = d.Remaining
		return err == nil
	})
	return n
}

// A single host stops and starts again: the usage of its keys is known exactly, and nobody waits
// for a lease. The stored copy is read once.
func TestRestartOfALoneHostForgetsNothing(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testRestartOfALoneHostForgetsNothing)
}

func testRestartOfALoneHostForgetsNothing(t *testing.T) {
	g := newGroup(t)
	g.define("api", limit.Rule{Algorithm: limit.SlidingLog, Amount: 10, Window: time.Minute})
	g.define("day", limit.Rule{Algorithm: limit.FixedWindow, Amount: 100, Window: 24 * time.Hour,
		Align: limit.FirstHit})
	g.define("hot", limit.Rule{Algorithm: limit.SlidingLog, Amount: 1000, Window: time.Minute})
	g.define("calls", limit.Rule{Algorithm: limit.Concurrency, Amount: 3, Lease: time.Minute})
	r := g.launch("a", launch{only: true})
	g.spreadOf(r)
	names := make([]string, 800) // more than fits into one record
	for i := range names {
		for try := 0; ; try++ { // a busy machine may delay an answer: then use another key
			names[i] = fmt.Sprintf("client-%d-%0900d", try, i)
			d, err := r.Limit("api").Take(t.Context(), names[i], int64(i%11))
			if try < 10 && errors.Is(err, ErrUnreachable) {
				continue
			}
			if err != nil || !d.Allowed && i%11 > 0 {
				t.Fatalf("%d: %+v %v", i, d, err)
			}
			break
		}
	}
	if _, err := r.Limit("day").Take(t.Context(), "k", 7); err != nil {
		t.Fatal(err)
	}
	for range 200 { // some are held in advance when it stops
		if _, err := r.Limit("hot").Take(t.Context(), "k", 1); err != nil && !errors.Is(err, ErrUnreachable) {
			t.Fatal(err)
		}
	}
	under, err := r.Limit("calls").TakeAtHost(t.Context(), "k", 1)
	if err != nil {
		t.Fatal(err)
	}
	for life := range 2 {
		r.stop()
		began := time.Now()
		r = g.launch("a", launch{only: true})
		g.spreadOf(r)
		t.Logf("it hosts again after %v", time.Since(began))
		for i, name := range names {
			want := int64(10 - i%11)
			if n := g.left(r, "api", name); n != want {
				t.Fatalf("life %d: key %d has %d left, want %d", life, i, n, want)
			}
		}
		for name, want := range map[string]int64{"day": 93, "hot": 800, "calls": 2} {
			if n := g.left(r, name, "k"); n != want {
				t.Errorf("life %d: %s has %d left, want %d", life, name, n, want)
			}
		}
	}
	if _, err := r.Limit("calls").Settle(t.Context(), "k", under.ID, 0); err != nil {
		t.Errorf("a call that was under way ends: %v", err)
	}
	g.await("what was read is gone", func() bool {
		b, _, err := r.store.Load(t.Context(), "limits.kept.a.1")
		return err == nil && len(b) == 0
	})
}

// A single host is killed: its next life hosts at once, because the old one is dead. Unknown usage
// counts as used, even if an older life has stored a copy.
func TestKilledLoneHostIsBackAtOnce(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testKilledLoneHostIsBackAtOnce)
}

func testKilledLoneHostIsBackAtOnce(t *testing.T) {
	g := newGroup(t)
	g.define("api", limit.Rule{Algorithm: limit.SlidingLog, Amount: 10, Window: 3 * time.Second})
	r := g.launch("a", launch{only: true})
	g.spreadOf(r)
	r.stop()
	r = g.launch("a", launch{only: true})
	g.spreadOf(r)
	if d, err := r.Limit("api").Take(t.Context(), "k", 4); err != nil || !d.Allowed {
		t.Fatalf("%+v %v", d, err)
	}
	r.kill()
	began := time.Now()
	r = g.launch("a", launch{only: true})
	g.spreadOf(r)
	if took := time.Since(began); took > leaseTerm/2 {
		t.Errorf("it hosts after %v, as if the old life could still", took)
	}
	if n := g.left(r, "api", "k"); n != 0 {
		t.Errorf("%d left of what nobody knows", n)
	}
	g.await("a window later all is free", func() bool {
		return g.left(r, "api", "k") == 10
	})
}

// However many shards are lost at once, there is one log message, with their number.
func TestWhatIsLostIsSaidOnce(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testWhatIsLostIsSaidOnce)
}

func testWhatIsLostIsSaidOnce(t *testing.T) {
	g := newGroup(t)
	r := g.launch("a", launch{only: true})
	g.spreadOf(r)
	r.kill()
	var said bytes.Buffer
	r = g.launch("a", launch{only: true, log: slog.New(slog.NewTextHandler(&said, nil))})
	g.spreadOf(r)
	r.stop()
	lost := 0
	for line := range strings.Lines(said.String()) {
		if strings.Contains(line, "what keys have used is lost") {
			if lost++; !strings.Contains(line, "level=WARN") || !strings.Contains(line, "shards=256 of=256") {
				t.Error(line)
			}
		}
	}
	if lost != 1 {
		t.Errorf("said %d times, want once", lost)
	}
}

// A stored copy that cannot be read completely is lost, as if it had not been stored.
func TestADamagedCopyThatWasKeptIsNone(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testADamagedCopyThatWasKeptIsNone)
}

func testADamagedCopyThatWasKeptIsNone(t *testing.T) {
	g := newGroup(t)
	g.define("api", limit.Rule{Algorithm: limit.SlidingLog, Amount: 10, Window: time.Minute})
	r := g.launch("a", launch{only: true})
	g.spreadOf(r)
	if d, err := r.Limit("api").Take(t.Context(), "k", 4); err != nil || !d.Allowed {
		t.Fatalf("%+v %v", d, err)
	}
	r.stop()
	s, err := store.OpenNATS(t.Context(), store.NATSConfig{Conn: g.connect()})
	if err != nil {
		t.Fatal(err)
	}
	b, rev, err := s.Load(t.Context(), "limits.kept.a.1")
	if err == nil {
		_, err = s.CompareAndSwap(t.Context(), "limits.kept.a.1", rev, b[:20])
	}
	if err != nil {
		t.Fatal(err)
	}
	r = g.launch("a", launch{only: true})
	g.spreadOf(r)
	if n := g.left(r, "api", "k"); n != 0 {
		t.Errorf("%d left of what nobody knows", n)
	}
}

// A limit in shadow mode builds up no debt, wherever its keys are counted.
func TestShadowModeBuildsNoDebtAtTheHost(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testShadowModeBuildsNoDebtAtTheHost)
}

func testShadowModeBuildsNoDebtAtTheHost(t *testing.T) {
	g := newGroup(t)
	g.define("api", limit.Rule{Algorithm: limit.SlidingWindow, Amount: 10, Window: time.Hour})
	g.rules("api").Lenient = true
	r := g.launch("a", launch{only: true})
	g.spreadOf(r)
	d, err := r.Limit("api").Reserve(t.Context(), "k", 2, time.Minute)
	if err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	if _, err := r.Limit("api").Settle(t.Context(), "k", d.ID, 1000); err != nil {
		t.Fatal(err)
	}
	told := 0
	for at := (usesAt{0, 0, 10}); at.shard < Shards; {
		all, shard, from, err := r.Limit("api").desk.uses(t.Context(), "api", at)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range all {
			if told++; u.Used != 10 {
				t.Errorf("%+v: want 10 to be used of 10", u)
			}
		}
		at.shard, at.from = shard, from
	}
	if told != 1 {
		t.Errorf("%d keys, want 1", told)
	}
}
