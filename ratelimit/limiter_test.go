package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/limit"
)

var _ Checker = (*Limiter)(nil)

func newLimiter(t testing.TB, limits ...Limit) *Limiter {
	t.Helper()
	l, err := New(Config{Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func perMinute(name string, n int64) Limit {
	return Limit{Name: name,
		Rule: limit.Rule{Algorithm: limit.SlidingLog, Amount: n, Window: time.Minute}}
}

// Many concurrent calls with many keys: each key gets exactly its amount.
func TestALimitIsExactUnderManyCallers(t *testing.T) {
	l := newLimiter(t, perMinute("api", 100))
	var passed [7]atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 2000 {
				v, err := l.Allow(t.Context(), Check{Limit: "api", Key: fmt.Sprint("client ", i%7), Cost: 1})
				if err != nil {
					t.Error(err)
				}
				if v.Allowed {
					passed[i%7].Add(1)
				}
			}
		})
	}
	all.Wait()
	for i := range passed {
		if n := passed[i].Load(); n != 100 {
			t.Errorf("client %d: %d calls passed, want 100", i, n)
		}
	}
	if n, err := l.Totals("api"); err != nil || n.Passed != 700 || n.Refused != 16000-700 || n.Keys != 7 {
		t.Errorf("%+v %v", n, err)
	}
}

// Of several limits, all take or none does: a call that the daily limit rejects uses nothing of the
// others, also under concurrent calls.
func TestAllOrNothing(t *testing.T) {
	l := newLimiter(t, perMinute("organization", 50), perMinute("key", 20), perMinute("route", 1000))
	var passed atomic.Int64
	var all sync.WaitGroup
	for who := range 4 {
		all.Go(func() {
			for range 100 {
				vs, err := l.AllowAll(t.Context(), []Check{
					{Limit: "organization", Key: "acme", Cost: 1}, {Limit: "key", Key: fmt.Sprint(who), Cost: 1}, {Limit: "route", Key: "/v1", Cost: 1}}, true)
				if err != nil {
					t.Error(err)
				}
				if vs[0].Allowed && vs[1].Allowed && vs[2].Allowed {
					passed.Add(1)
				}
			}
		})
	}
	all.Wait()
	n := passed.Load()
	for name, key := range map[string]string{"organization": "acme", "route": "/v1"} {
		v, err := l.Peek(t.Context(), Check{Limit: name, Key: key, Cost: 0})
		if err != nil || v.Amount-v.Remaining != n {
			t.Errorf("%s: %d used for %d calls that passed all (%v)", name, v.Amount-v.Remaining, n, err)
		}
	}
	if n != 50 {
		t.Errorf("%d passed, want the 50 of the organization", n)
	}
	vs, err := l.AllowAll(t.Context(), []Check{{Limit: "organization", Key: "other", Cost: 50}, {Limit: "key", Key: "x", Cost: 21}}, true)
	if err != nil || !vs[0].Allowed || vs[1].Allowed {
		t.Errorf("%+v %v", vs, err)
	}
	if v, _ := l.Explain("organization", "other"); v.Remaining != 50 {
		t.Errorf("%d remain after a call that another limit refused", v.Remaining)
	}
	vs, err = l.AllowAll(t.Context(), []Check{{Limit: "key", Key: "y", Cost: 20}, {Limit: "key", Key: "y", Cost: 1}}, true)
	if err != nil || vs[0].Allowed && vs[1].Allowed {
		t.Errorf("21 of 20 in two asks: %+v %v", vs, err)
	}
	if v, _ := l.Explain("key", "y"); v.Remaining != 20 {
		t.Errorf("%d remain of 20 after all were refused", v.Remaining)
	}
}

// A lease among several limits lasts as long as alone, and what was given back to the others is not
// counted.
func TestAllOrNothingWithCallsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, perMinute("api", 100), Limit{Name: "calls",
			Rule: limit.Rule{Algorithm: limit.Concurrency, Amount: 2, Lease: time.Hour}})
		asks := []Check{{Limit: "api", Key: "k", Cost: 1}, {Limit: "calls", Key: "k", Cost: 1}, {Limit: "api", Key: "given", Cost: -1}}
		var ids []uint64
		for range 3 {
			vs, err := l.AllowAll(t.Context(), asks, true)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, vs[1].ID)
		}
		if ids[0] == 0 || ids[1] == 0 || ids[2] != 0 {
			t.Fatalf("calls %v, want two", ids)
		}
		time.Sleep(30 * time.Minute)
		if v, _ := l.Explain("calls", "k"); v.Allowed || v.Remaining != 0 {
			t.Errorf("half an hour into a lease of an hour: %+v", v)
		}
		if err := l.Settle(t.Context(), Check{Limit: "calls", Key: "k", Cost: 0}, ids[0]); err != nil {
			t.Error(err)
		}
		if v, _ := l.Explain("calls", "k"); !v.Allowed || v.Remaining != 1 {
			t.Errorf("one has ended: %+v", v)
		}
		if n, _ := l.Totals("api"); n.Passed != 2 {
			t.Errorf("%d passed, want 2", n.Passed)
		}
	})
}

// Shadow mode rejects nothing, reports what would have been rejected, and builds no debt.
func TestShadowModeRefusesNobody(t *testing.T) {
	cfg := perMinute("api", 3)
	cfg.Shadow = true
	l := newLimiter(t, cfg)
	exceeded := 0
	for range 10 {
		v, err := l.Allow(t.Context(), Check{Limit: "api", Key: "k", Cost: 1})
		if err != nil || !v.Allowed {
			t.Fatalf("%+v %v", v, err)
		}
		if v.Exceeded {
			exceeded++
		}
	}
	if exceeded != 7 {
		t.Errorf("%d would have been refused, want 7", exceeded)
	}
	v, err := l.Reserve(t.Context(), Check{Limit: "api", Key: "long", Cost: 2}, time.Minute)
	if err = errors.Join(err, l.Settle(t.Context(), Check{Limit: "api", Key: "long", Cost: 1000}, v.ID)); err != nil {
		t.Fatal(err)
	}
	cfg.Shadow = false
	if err := l.SetLimit(cfg); err != nil {
		t.Fatal(err)
	}
	if all, _, err := l.Keys("api", "", 10); err != nil || len(all) != 2 || all[0].Used+all[1].Used != 6 {
		t.Errorf("after shadow mode: %+v %v, want two keys that have used the 3 that they may", all, err)
	}
	if v, _ := l.Explain("api", "k"); v.Allowed || v.Remaining != 0 || v.Retry > time.Minute {
		t.Errorf("after shadow mode: %+v, want the 3 that passed to be used and no more", v)
	}
}

// Limits change while they are in use.
func TestLimitsChangeAtRunTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, perMinute("api", 10))
		take := func(n int) (passed int) {
			for range n {
				if v, err := l.Allow(t.Context(), Check{Limit: "api", Key: "k", Cost: 1}); err == nil && v.Allowed {
					passed++
				}
			}
			return passed
		}
		if n := take(7); n != 7 {
			t.Fatal(n)
		}
		cfg := perMinute("api", 15)
		cfg.Overrides = map[string]int64{"big": 1000}
		if err := l.SetLimit(cfg); err != nil {
			t.Fatal(err)
		}
		if n := take(20); n != 8 {
			t.Errorf("%d more pass, want 8: 15 in all", n)
		}
		if v, err := l.Allow(t.Context(), Check{Limit: "api", Key: "big", Cost: 1000}); err != nil || !v.Allowed {
			t.Errorf("a key with an amount of its own: %+v %v", v, err)
		}
		time.Sleep(time.Minute)
		if n := take(20); n != 15 {
			t.Errorf("%d pass a minute later, want 15", n)
		}
		if err := l.Remove("api"); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Allow(t.Context(), Check{Limit: "api", Key: "k", Cost: 1}); !errors.Is(err, ErrNoLimit) {
			t.Errorf("a limit that was removed: %v", err)
		}
	})
}

func TestKeysAreListedResetAndExplained(t *testing.T) {
	l := newLimiter(t, perMinute("api", 10))
	for i := range 1000 {
		if _, err := l.Allow(t.Context(), Check{Limit: "api", Key: fmt.Sprint("client ", i), Cost: int64(i%10 + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]int64{}
	for from := ""; ; {
		uses, next, err := l.Keys("api", from, 100)
		if err != nil || len(uses) > 100 {
			t.Fatal(len(uses), err)
		}
		for _, u := range uses {
			if seen[u.Key] != 0 {
				t.Errorf("%q is told twice", u.Key)
			}
			seen[u.Key] = u.Used
		}
		if from = next; from == "" {
			break
		}
	}
	if len(seen) != 1000 || seen["client 13"] != 4 {
		t.Errorf("%d keys are told; client 13 used %d, want 4", len(seen), seen["client 13"])
	}
	if err := l.Reset("api", "client 9"); err != nil {
		t.Fatal(err)
	}
	if v, _ := l.Explain("api", "client 9"); v.Remaining != 10 || !v.Allowed {
		t.Errorf("after a reset: %+v", v)
	}
	if v, _ := l.Explain("api", "client 19"); v.Remaining != 0 || v.Retry <= 59*time.Second {
		t.Errorf("who has used all: %+v", v)
	}
	for _, count := range []int{0, -1} {
		if _, _, err := l.Keys("api", "", count); !errors.Is(err, ErrKey) {
			t.Errorf("%d keys at once: %v", count, err)
		}
	}
	for _, from := range []string{"x", "1", "-1.0", "256.0", "0.-1", "0.99999999999999999999"} {
		if _, _, err := l.Keys("api", from, 10); !errors.Is(err, ErrKey) {
			t.Errorf("from %q: %v", from, err)
		}
	}
}

func TestBadAsks(t *testing.T) {
	l := newLimiter(t, perMinute("api", 10), callsAtOnce("calls", 5))
	for _, of := range []struct {
		ask  Check
		want error
	}{
		{Check{Limit: "none", Key: "k", Cost: 1}, ErrNoLimit}, {Check{Limit: "api", Key: strings.Repeat("k", MaxKey+1), Cost: 1}, ErrKey},
		{Check{Limit: "api", Key: "k", Cost: 1 << 60}, ErrCost}, {Check{Limit: "api", Key: "k", Cost: -1 << 63}, ErrCost},
		{Check{Limit: "calls", Key: "k", Cost: -1}, ErrCost},
	} {
		for _, f := range []func(context.Context, Check) (Result, error){l.Allow, l.Peek} {
			if _, err := f(t.Context(), of.ask); !errors.Is(err, of.want) {
				t.Errorf("%.40v: %v, want %v", of.ask, err, of.want)
			}
		}
	}
	if err := l.Settle(context.Background(), Check{Limit: "api", Key: "k", Cost: 1}, 77); !errors.Is(err, ErrNoReservation) {
		t.Error(err)
	}
	for _, c := range []Limit{
		{}, {Name: "a b"}, perMinute("", 1), perMinute("x", -1),
		{Name: "x", Rule: limit.Rule{Algorithm: limit.SlidingLog, Amount: 1}},
		{Name: "x", Rule: perMinute("", 1).Rule, MaxKeys: -1},
		{Name: "x", Rule: perMinute("", 1).Rule, Unit: "apples"},
		{Name: "x", Rule: perMinute("", 1).Rule, Overrides: map[string]int64{"k": -1}},
	} {
		if _, err := New(Config{Limits: []Limit{c}}); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
	twice := Config{Limits: []Limit{perMinute("a", 1), perMinute("a", 2)}}
	if _, err := New(twice); err == nil {
		t.Error("two limits of one name")
	}
}

func callsAtOnce(name string, n int64) Limit {
	return Limit{Name: name,
		Rule: limit.Rule{Algorithm: limit.Concurrency, Amount: n, Lease: time.Hour}}
}

// The end of an earlier call, from before a limit was removed and created again or from before a
// restart, does not end a current call.
func TestAnEndOfBeforeEndsNoCallOfNow(t *testing.T) {
	l, ask := newLimiter(t, callsAtOnce("a", 1)), Check{Limit: "a", Key: "k", Cost: 1}
	old, err := l.Allow(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	l.Remove("a")
	l.SetLimit(callsAtOnce("a", 1))
	for _, l := range []*Limiter{l, newLimiter(t, callsAtOnce("a", 1))} {
		if v, err := l.Allow(t.Context(), ask); err != nil || !v.Allowed {
			t.Fatalf("%+v %v", v, err)
		}
		if err := l.Settle(t.Context(), ask, old.ID); !errors.Is(err, ErrNoReservation) {
			t.Errorf("settled: %v", err)
		}
		if v, _ := l.Explain("a", "k"); v.Allowed {
			t.Error("two are under way, of 1 at once")
		}
	}
}

// Impossible checks are found before anything is taken.
func TestNothingIsTakenBeforeAnError(t *testing.T) {
	for _, bad := range []Check{{Limit: "calls", Key: "k", Cost: -1}, {Limit: "b", Key: "k", Cost: -limit.MaxAmount - 1}, {Limit: "b", Key: "k", Cost: 1 << 62},
		{Limit: "none", Key: "k", Cost: 1}} {
		for _, all := range []bool{true, false} {
			l := newLimiter(t, perMinute("a", 5), perMinute("b", 5), callsAtOnce("calls", 5))
			_, err := l.AllowAll(t.Context(), []Check{{Limit: "a", Key: "k", Cost: 5}, bad}, all)
			if v, _ := l.Peek(t.Context(), Check{Limit: "a", Key: "k", Cost: 5}); !v.Allowed ||
				!errors.Is(err, ErrCost) && bad.Limit != "none" {
				t.Errorf("%+v, all %v: %v, and %d remain of 5", bad, all, err, v.Remaining)
			}
		}
	}
}

// The same limit and key twice: what each check alone could take may be too much for both.
func TestTheSameTwiceIsLookedAtAsOne(t *testing.T) {
	l := newLimiter(t, perMinute("a", 2))
	twice := func(a, b int64) []Result {
		vs, err := l.AllowAll(t.Context(), []Check{{Limit: "a", Key: "k", Cost: a}, {Limit: "a", Key: "k", Cost: b}}, true)
		if err != nil {
			t.Fatal(err)
		}
		return vs
	}
	for i, v := range twice(2, 1) {
		if v.Allowed || v.Retry >= 0 {
			t.Errorf("%d: 3 of 2 are to pass in %v", i, v.Retry)
		}
	}
	if vs := twice(limit.MaxAmount, limit.MaxAmount); vs[0].Retry >= 0 {
		t.Errorf("%+v", vs)
	}
	for i, v := range twice(1, 1) {
		if !v.Allowed {
			t.Errorf("%d: %+v", i, v)
		}
	}
	for i, v := range twice(1, 1) {
		if v.Allowed || v.Retry <= 59*time.Second {
			t.Errorf("%d: used up, and to pass in %v", i, v.Retry)
		}
	}
}

// One check gives back and another of the same limit and key takes: the sum is used, and never more
// than the limit allows.
func TestTakenAndGivenBackAtOnceIsTheSum(t *testing.T) {
	rules := map[string]limit.Rule{
		"log":    {Algorithm: limit.SlidingLog, Amount: 10, Window: time.Minute},
		"window": {Algorithm: limit.SlidingWindow, Amount: 10, Window: time.Minute},
		"fixed":  {Algorithm: limit.FixedWindow, Amount: 10, Window: time.Hour, Align: limit.FirstHit},
		"bucket": {Algorithm: limit.TokenBucket, Amount: 10, Window: 1000 * time.Hour},
	}
	for name, rule := range rules {
		for _, tt := range []struct {
			before int64
			costs  []int64
			passes bool
			used   int64
		}{
			{0, []int64{3, -3}, true, 0},
			{0, []int64{-3, 3}, true, 0},
			{4, []int64{3, -3}, true, 4},
			{4, []int64{5, -2}, true, 7},
			{4, []int64{2, -5}, true, 1},
			{4, []int64{2, -9, 1}, true, 0},
			{0, []int64{1, -2}, true, 0},
			{10, []int64{3, -3}, true, 10},
			{9, []int64{4, -3}, true, 10},
			{9, []int64{5, -3}, false, 9},
			{9, []int64{-3, 3, 2}, false, 9},
			{0, []int64{11, -1}, true, 10},
			{0, []int64{-1, 12}, false, 0},
			{3, []int64{limit.MaxAmount, 1, -limit.MaxAmount}, true, 4},
			{3, []int64{-limit.MaxAmount, -limit.MaxAmount}, true, 0},
		} {
			l := newLimiter(t, Limit{Name: "a", Rule: rule}, perMinute("other", 5))
			l.Allow(t.Context(), Check{Limit: "a", Key: "k", Cost: tt.before})
			asks := []Check{{Limit: "other", Key: "k", Cost: 1}}
			for _, cost := range tt.costs {
				asks = append(asks, Check{Limit: "a", Key: "k", Cost: cost})
			}
			vs, err := l.AllowAll(t.Context(), asks, true)
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range vs[1:] {
				if v.Allowed != tt.passes || v.Remaining != 10-tt.used || v.ID != 0 {
					t.Errorf("%s: %+v, ask %d: %+v", name, tt, i, v)
				}
			}
			if v, _ := l.Peek(t.Context(), Check{Limit: "a", Key: "k", Cost: 0}); v.Amount-v.Remaining != tt.used {
				t.Errorf("%s: %+v: %d are used", name, tt, v.Amount-v.Remaining)
			}
			if v, _ := l.Peek(t.Context(), Check{Limit: "other", Key: "k", Cost: 0}); (v.Remaining == 4) != tt.passes {
				t.Errorf("%s: %+v: %d remain of the other", name, tt, v.Remaining)
			}
		}
	}
}

// Two calls in progress of one key are two, each with an end of its own, or none.
func TestTheSameTwiceOfCallsUnderWay(t *testing.T) {
	l := newLimiter(t, callsAtOnce("calls", 3))
	asks := []Check{{Limit: "calls", Key: "k", Cost: 1}, {Limit: "calls", Key: "k", Cost: 1}}
	vs, err := l.AllowAll(t.Context(), asks, true)
	if err != nil || vs[0].ID == 0 || vs[1].ID == 0 || vs[0].ID == vs[1].ID {
		t.Fatalf("%+v %v", vs, err)
	}
	if vs, err = l.AllowAll(t.Context(), asks, true); err != nil || vs[0].Allowed || vs[1].Allowed {
		t.Errorf("four of three: %+v %v", vs, err)
	}
	if v, _ := l.Peek(t.Context(), Check{Limit: "calls", Key: "k", Cost: 1}); v.Remaining != 1 {
		t.Errorf("%d of 3 remain, want 1", v.Remaining)
	}
}

// What is undone has no ID in the result, and is not counted. What cannot be given back is left as
// it is.
func TestUndoneCallsAreNotNamed(t *testing.T) {
	l := newLimiter(t, callsAtOnce("c", 5), perMinute("a", 5))
	asks := []Check{{Limit: "c", Key: "k", Cost: 1}, {Limit: "a", Key: "k", Cost: 2}}
	for _, removed := range []bool{false, true} {
		c, _ := l.Allow(t.Context(), asks[0])
		a, _ := l.Reserve(t.Context(), asks[1], allAtOnce)
		vs := []Result{c, a}
		if removed {
			l.Remove("a")
			l.SetLimit(perMinute("a", 5))
		}
		l.undo(t.Context(), asks, vs)
		if !removed && (vs[0].ID+vs[1].ID != 0 || vs[0].Remaining != 5 || vs[1].Remaining != 5) {
			t.Errorf("nothing was taken: %+v", vs)
		}
		for _, name := range []string{"a", "c"} {
			if n, err := l.Totals(name); err != nil || n.Passed != 0 {
				t.Errorf("%s: %d passed %v", name, n.Passed, err)
			}
		}
	}
}

// A usage of 5 MB does not become 5,000,000 requests.
func TestAnotherUnitForgetsWhatWasUsed(t *testing.T) {
	c := Limit{Name: "a", Unit: ResponseBytes,
		Rule: limit.Rule{Algorithm: limit.TokenBucket, Amount: 10_000_000, Window: time.Minute}}
	l := newLimiter(t, c)
	l.Allow(t.Context(), Check{Limit: "a", Key: "k", Cost: 5_000_000})
	c.Unit, c.Amount = Requests, 100
	if err := l.SetLimit(c); err != nil {
		t.Fatal(err)
	}
	if v, err := l.Explain("a", "k"); err != nil || v.Remaining != 100 {
		t.Errorf("%+v %v", v, err)
	}
}

// Keys beyond MaxKeys share the amount of one key, and none do before.
func TestKeysDoNotShareBeforeMaxKeys(t *testing.T) {
	for _, most := range []int{10, 1000, 10_000, 100_000} {
		c := perMinute("a", 1)
		c.MaxKeys = most
		l, refused := newLimiter(t, c), 0
		for i := range most {
			if v, _ := l.Allow(t.Context(), Check{Limit: "a", Key: fmt.Sprint(i), Cost: 1}); !v.Allowed {
				refused++
			}
		}
		if refused > 0 {
			t.Errorf("%d of %d keys had their first call refused, with room for all", refused, most)
		}
	}
}

// Concurrent changes of one limit are all made, and none creates a limit that was removed.
func TestUpdatesLoseNoChange(t *testing.T) {
	l := newLimiter(t, perMinute("a", 1))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				err := l.Update("a", func(c *Limit) error {
					runtime.Gosched() // whoever may come in between does
					c.Amount++
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	refusal := errors.New("no")
	for want, change := range map[error]func(c *Limit) error{
		refusal: func(c *Limit) error { c.Amount = 0; return refusal },
		nil:     func(c *Limit) error { c.Name = "b"; return nil }, // the name stays
	} {
		if err := l.Update("a", change); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	if err := l.Update("a", func(c *Limit) error { c.Amount = -1; return nil }); err == nil {
		t.Error("an impossible change is made")
	}
	if cs := l.Limits(); len(cs) != 1 || cs[0].Amount != 801 {
		t.Errorf("%+v", cs)
	}
	l.Remove("a")
	err := l.Update("a", func(*Limit) error { t.Error("called"); return nil })
	if !errors.Is(err, ErrNoLimit) || len(l.Limits()) != 0 {
		t.Errorf("%v, %d limits", err, len(l.Limits()))
	}
}

func BenchmarkAllow(b *testing.B) {
	l := newLimiter(b, Limit{Name: "api", Rule: limit.Rule{Algorithm: limit.TokenBucket, Amount: 100,
		Window: time.Second}})
	var keys [1 << 16]string
	for i := range keys {
		keys[i] = fmt.Sprint("client ", i)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if _, err := l.Allow(b.Context(), Check{Limit: "api", Key: keys[i&(1<<16-1)], Cost: 1}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A key of 1 kB takes as much memory as one of 64 bytes, because clients choose their keys.
func TestKeysOf1kBTakeTheMemoryOf64Bytes(t *testing.T) {
	const keys = 50_000
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what pools held
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	each := func(length int) float64 {
		l := newLimiter(t, perMinute("api", 10))
		before, tail := heap(), strings.Repeat("k", length-24)
		for i := range keys {
			a := Check{Limit: "api", Key: fmt.Sprintf("%024d", i) + tail, Cost: 1}
			if v, err := l.Allow(t.Context(), a); err != nil || v.Remaining != 9 {
				t.Fatalf("%d: %+v, %v", i, v, err)
			}
		}
		if totals, err := l.Totals("api"); err != nil || totals.Keys != keys {
			t.Fatalf("%d keys, %v", totals.Keys, err)
		}
		n := float64(heap()-before) / keys
		runtime.KeepAlive(l)
		return n
	}
	short, long := each(64), each(MaxKey)
	t.Logf("%.0f bytes for a key of 64, %.0f for one of %d", short, long, MaxKey)
	if long > short*1.2 {
		t.Errorf("%.0f bytes for a key of %d, want those of one of 64: %.0f", long, MaxKey, short)
	}
}

// A long key is found under its full name and under the name that lists show. A client that sends
// the latter is not counted as that key.
func TestLongKeysAreFound(t *testing.T) {
	full := strings.Repeat("tenant/", 100)
	c := perMinute("api", 10)
	c.Overrides = map[string]int64{full: 3}
	l := newLimiter(t, c)
	take := func(key string) Result {
		t.Helper()
		v, err := l.Allow(t.Context(), Check{Limit: "api", Key: key, Cost: 1})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := take(full); v.Amount != 3 || v.Remaining != 2 {
		t.Fatalf("%+v, want the key's own amount", v)
	}
	uses, _, err := l.Keys("api", "", 10)
	if err != nil || len(uses) != 1 || len(uses[0].Key) > 64 || !strings.HasPrefix(uses[0].Key, full[:32]) {
		t.Fatalf("%+v, %v", uses, err)
	}
	shown := uses[0].Key
	for _, key := range []string{full, shown} {
		if v, err := l.Explain("api", key); err != nil || v.Remaining != 2 {
			t.Errorf("%.20s…: %+v, %v", key, v, err)
		}
	}
	if v := take(shown); v.Amount != 10 || v.Remaining != 9 { // a client sends it
		t.Errorf("%+v, want a key of its own", v)
	}
	if err := l.Reset("api", shown); err != nil {
		t.Error(err)
	}
	if v := take(full); v.Remaining != 2 {
		t.Errorf("%+v after a reset", v)
	}
	v, err := l.Reserve(t.Context(), Check{Limit: "api", Key: full, Cost: 2}, time.Minute)
	if err != nil || l.Settle(t.Context(), Check{Limit: "api", Key: full, Cost: 1}, v.ID) != nil || take(full).Remaining != 0 {
		t.Errorf("%+v, %v: reserved and settled", v, err)
	}
	c.Overrides = map[string]int64{full: 3, shown: 4}
	if err := l.SetLimit(c); err == nil || !strings.Contains(err.Error(), "keep one of them") {
		t.Errorf("two amounts for one key: %v", err)
	}
	c.Overrides = map[string]int64{shown: 4}
	if err := l.SetLimit(c); err != nil || take(full).Amount != 4 {
		t.Errorf("the amount of a key as it is shown: %v", err)
	}
}
