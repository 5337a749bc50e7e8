package quota

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/internal/usage"
	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/tests/virtual"
)

// record makes a process record the usage of keys.
func (g *group) record(r *rig) *usage.Keeper {
	k := usage.NewKeeper(usage.Config{Store: r.store, Log: slog.New(slog.DiscardHandler),
		OpenLog: func(ctx context.Context, name string, most int64) (usage.Log, error) {
			return store.OpenLog(ctx, store.LogConfig{Conn: r.conn, Name: name, MaxBytes: most})
		}})
	if r.host != nil {
		done := make(chan struct{})
		go func() {
			defer close(done)
			NewUsage(&Shared{near: r.Node}).RecordUsage(r.ctx, k)
		}()
		g.t.Cleanup(func() { r.quit(); <-done })
	}
	return k
}

// A spender counts what calls have used, by what they were told.
type spender struct {
	g    *group
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup
	mu   sync.Mutex
	used map[string]int64
}

func (g *group) spend(keys []string, rs ...*rig) *spender {
	s := &spender{g: g, used: map[string]int64{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	for _, r := range rs {
		s.wg.Go(func() {
			tick := time.NewTicker(7 * time.Millisecond)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-s.ctx.Done():
					return
				case <-tick.C:
				}
				if key := keys[rand.IntN(len(keys))]; i%2 == 0 {
					s.settled(r, key)
				} else {
					s.lent(r, key)
				}
			}
		})
	}
	g.t.Cleanup(s.end)
	return s
}

func (s *spender) end() { s.stop(); s.wg.Wait() }

func (s *spender) add(key string, n int64) {
	s.mu.Lock()
	s.used[key] += n
	s.mu.Unlock()
}

// settled reserves an estimate and settles another cost.
func (s *spender) settled(r *rig, key string) {
	d, err := r.Limit("tokens").Reserve(r.ctx, key, 100, time.Minute)
	if err != nil || !d.Allowed {
		return
	}
	cost := rand.Int64N(300)
	_, err = r.Limit("tokens").Settle(r.ctx, key, d.ID, cost)
	if err != nil && !errors.Is(err, ErrUnreachable) { // then it is told until somebody hears it
		s.g.t.Errorf("%s: %v", key, err)
	}
	s.add(key, cost)
}

// lent takes one unit, from those that the process was lent.
func (s *spender) lent(r *rig, key string) {
	if d, err := r.Limit("tokens").Take(r.ctx, key, 1); err == nil && d.Allowed {
		s.add(key, 1)
	}
}

// TestUsageSurvivesKills kills the host of a key again and again, at any moment of writing: what the callers
// of the others were told is what is recorded, to the unit.
func TestUsageSurvivesKills(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testUsageSurvivesKills)
}

func testUsageSurvivesKills(t *testing.T) {
	wait(57 * time.Minute) // an hour ends while nodes die
	g := newGroup(t)
	g.define("tokens", limit.Rule{Algorithm: limit.SlidingWindow, Amount: 1_000_000_000, Window: time.Minute})
	g.limits["tokens"].Usage = true
	w := g.launch("w", launch{worker: true})
	rs := map[string]*rig{}
	for _, name := range []string{"a", "b", "c"} {
		rs[name] = g.launch(name, launch{})
		g.record(rs[name])
	}
	live := func() (all []*rig) {
		for _, name := range []string{"a", "b", "c"} {
			all = append(all, rs[name])
		}
		return all
	}
	g.spreadOf(live()...)
	g.await("the worker knows", w.Ready)
	keys := keysOf(20)
	s := g.spend(keys, w)
	for round := range 4 {
		wait(time.Duration(500+rand.IntN(4000)) * time.Millisecond)
		// A host whose standby has no copy yet takes with it what is not written: that is recorded as lost.
		g.await("each shard has a standby with a copy", func() bool {
			copies := 0
			for _, r := range live() {
				_, n := r.ShardCounts()
				copies += n
			}
			return copies == Shards
		})
		victim := []string{"a", "b", "c"}[rand.IntN(3)]
		t.Log("round", round, "kills", victim)
		rs[victim].kill()
		wait(20 * time.Second)
		rs[victim] = g.launch(victim, launch{})
		g.record(rs[victim])
		g.spreadOf(live()...)
	}
	s.end()
	wait(3 * time.Minute) // until settlements are told that met a takeover
	k, next := g.record(w), usage.Hour.Of(time.Now())+1
	for slot := range Shards { // as their hosts do when the hour and the day are over
		if err := k.Close(t.Context(), usage.Hour, []int{slot}, next); err != nil {
			t.Fatal(err)
		}
		if err := k.Close(t.Context(), usage.Day, []int{slot}, next); err != nil {
			t.Fatal(err)
		}
	}
	got, sums := map[string]int64{}, map[string]int64{}
	read := func(per usage.Per) {
		clear(got)
		clear(sums)
		_, err := k.Read(t.Context(), &usage.Query{Limit: "tokens", Per: per}, func(r *usage.Row) error {
			if got[r.Key] += r.N; r.Kind != usage.Used {
				delete(got, r.Key)
				sums[r.Kind] += r.N
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	read(usage.Hour)
	if !maps.Equal(got, s.used) || len(sums) > 0 {
		for _, key := range keys {
			if got[key] != s.used[key] {
				t.Errorf("%s: recorded %d, used %d", key, got[key], s.used[key])
			}
		}
		t.Errorf("%v besides keys, want nothing", sums)
	}
	if read(usage.Day); !maps.Equal(got, s.used) {
		t.Errorf("by day %v, want %v", got, s.used)
	}
}

// TestUsageOfAHeldLoanIsASum kills a borrower: what it held is not recorded for the key, but as unreported.
func TestUsageOfAHeldLoanIsASum(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testUsageOfAHeldLoanIsASum)
}

func testUsageOfAHeldLoanIsASum(t *testing.T) {
	wait(59 * time.Minute)
	g := newGroup(t)
	g.define("tokens", limit.Rule{Algorithm: limit.SlidingWindow, Amount: 1000, Window: time.Minute})
	g.limits["tokens"].Usage = true
	a, w := g.launch("a", launch{only: true}), g.launch("w", launch{worker: true})
	k := g.record(a)
	g.spreadOf(a)
	g.await("the worker knows", w.Ready)
	h := w.Limit("tokens").take(t.Context(), "bob", call{cost: 40, turn: Waiters{Weight: 1}})
	if h.err != nil || !h.Allowed {
		t.Fatalf("%+v", h)
	}
	wait(time.Second)
	w.kill()
	wait(2 * time.Minute)
	var all []string
	_, err := k.Read(t.Context(), &usage.Query{Limit: "tokens"}, func(r *usage.Row) error {
		all = append(all, fmt.Sprint(r.Kind, r.Key, r.N))
		return nil
	})
	if err != nil || len(all) != 1 || all[0] != "unreported40" {
		t.Errorf("%v %v, want 40 units unreported", all, err)
	}
}

// TestUsageOfAProcessThatIsAlone takes, gives back more than was taken, and settles, without a host.
func TestUsageOfAProcessThatIsAlone(t *testing.T) {
	rule := limit.Rule{Algorithm: limit.SlidingLog, Amount: 1000, Window: time.Hour}
	rules, err := limittable.Compile(rule, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &Definition{Name: "api", Rules: rules, MaxKeys: 100, Lends: true, Usage: true}
	u := NewUsage(nil)
	var k Keys
	k.Init(nil, u)
	want := int64(0)
	for _, n := range []int64{5, 700, -3, 400, -2000, 9} { // 400 is refused, and only 702 can be given back
		var v limit.Decision
		if _, err := k.Take(t.Context(), d, "~plan:pro|bob", n, &v); err != nil {
			t.Fatal(err)
		}
		switch {
		case n == -2000:
			want = 0
		case v.Allowed:
			want += n
		}
	}
	v, err := k.Reserve(t.Context(), d, "bob", 100, time.Minute)
	if err == nil {
		err = k.Settle(t.Context(), d, "bob", v.ID, 42)
	}
	if err != nil {
		t.Fatal(err)
	}
	h, _, err := k.Hold(t.Context(), d, "bob", 8, Waiters{})
	if err != nil {
		t.Fatal(err)
	}
	h.Use(6)
	h.Return(2)
	tally := &u.own.slots[UsageSlot("api", "bob")%ownSlots].tally
	if _, ok := tally.Cut(nil); !ok {
		t.Fatal("nothing is recorded for the key without its plan")
	}
	keeper := usage.NewKeeper(usage.Config{Store: &store.Memory{}, Log: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(t.Context())
	stop() // it writes once more
	keeper.Flush(ctx, u.own, 0)
	got := int64(0)
	err = keeper.ReadOpen(t.Context(), &usage.Query{Limit: "api"}, func(r *usage.Row) error {
		if r.Key == "bob" {
			got += r.N
		}
		return nil
	})
	if want += 42 + 6; err != nil || got != want {
		t.Errorf("%d units are recorded, want %d (%v)", got, want, err)
	}
}

// TestAKillOfAProcessThatIsAlone: with keys in all slots, what was used before the last seconds is written.
// What is not written is lost by a kill.
func TestAKillOfAProcessThatIsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		u, d := NewUsage(nil), &Definition{Name: "api", Usage: true}
		u.own.boot = func() time.Duration { return 0 } // nothing is held
		st := &store.Memory{}
		k := usage.NewKeeper(usage.Config{Store: st, Log: slog.New(slog.DiscardHandler)})
		var wg sync.WaitGroup
		wg.Go(func() { k.Flush(ctx, u.own, 0) })
		used := []int64{0} // by second
		for second := range 30 {
			for i := range 1000 {
				u.own.spend(d, fmt.Sprint("key-", i), 1)
				wait(time.Millisecond)
			}
			used = append(used, int64(second+1)*1000)
			got := int64(0)
			err := k.ReadOpen(t.Context(), &usage.Query{Limit: "api"}, func(r *usage.Row) error {
				got += r.N
				return nil
			})
			if want := used[max(0, second-3)]; err != nil || got < want { // 4 s ago
				t.Errorf("after %d s %d units are written, want %d (%v)", second+1, got, want, err)
			}
		}
		stop()
		wg.Wait()
	})
}
