package quota

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/limit"
)

// A held call of a concurrency limit counts as long as it is held, and for one more lease if its
// holder is unreachable.
func TestACallThatIsHeldIsRenewed(t *testing.T) {
	r := limit.Rule{Algorithm: limit.Concurrency, Amount: 3, Lease: 9 * time.Second}
	inHeldWorld(t, r, 2*time.Millisecond, func(h *heldWorld) {
		h.def.Lends, h.def.Calls = false, true
		held, v := h.hold(1, 2)
		lost, w := h.hold(2, 1)
		if !v.Allowed || !w.Allowed {
			t.Fatal(v, w)
		}
		pause(h.ctx, time.Minute)
		if n := h.remaining(); n != 0 {
			t.Errorf("%d left of 3 while 3 are under way", n)
		}
		h.sever(2, true)
		pause(h.ctx, 5*time.Second)
		if n := h.remaining(); n != 0 {
			t.Errorf("%d left of 3 before a lease is over", n)
		}
		pause(h.ctx, 5*time.Second)
		if n := h.remaining(); n != 1 {
			t.Errorf("%d left of 3, want that of who is out of reach", n)
		}
		held.Use(1)
		pause(h.ctx, time.Minute)
		if n := h.remaining(); n != 1 {
			t.Errorf("%d left of 3: a call is under way until all of it has ended", n)
		}
		held.Return(1)
		lost.Use(1)
		if !held.kept.over || !lost.kept.over {
			t.Error("what has ended is still renewed")
		}
		pause(h.ctx, time.Second)
		if n := h.remaining(); n != 3 {
			t.Errorf("%d left of 3 when all have ended", n)
		}
	})
}

// A process that counts by itself, because its host is unreachable, also renews by itself.
func TestACallThatIsCountedHereIsRenewed(t *testing.T) {
	r := limit.Rule{Algorithm: limit.Concurrency, Amount: 2 * idealDesks, Lease: 9 * time.Second}
	inHeldWorld(t, r, 2*time.Millisecond, func(h *heldWorld) {
		h.def.Lends, h.def.Calls, h.def.Policy = false, true, PolicyLocal
		h.def.Divide = func(among int) (*limittable.Rules, error) { return limittable.Divide(r, nil, among) }
		h.sever(1, true)
		held, v := h.hold(1, 2)
		if !v.Allowed || !held.IsLocal() {
			t.Fatalf("%+v", v)
		}
		pause(h.ctx, time.Minute)
		if _, v := h.hold(1, 1); v.Allowed {
			t.Error("a third of two passes a minute later")
		}
		if err := h.keys[1].Renew(h.ctx, h.def, "", held.id); err != nil {
			t.Error(err)
		}
		held.Use(2)
		if err := h.keys[1].Renew(h.ctx, h.def, "", held.id); !errors.Is(err, limittable.ErrSettled) {
			t.Errorf("renewed what has ended: %v", err)
		}
		if _, v := h.hold(1, 2); !v.Allowed {
			t.Errorf("both have ended, and %+v", v)
		}
	})
}

// A standby knows that a call was renewed. Otherwise it would allow one call too many after a
// takeover.
func TestAStandbyRenewsToo(t *testing.T) {
	b := newBench(t, limit.Rule{Algorithm: limit.Concurrency, Amount: 3, Lease: 10 * time.Second})
	b.rules.Lends, b.rules.Calls = false, true
	one, _ := b.host("one")
	two, _ := b.host("two")
	b.own(one, two.self)
	b.copied(one, two)
	ask := func(q request) reply {
		t.Helper()
		q.shard, q.limit, q.key = shardOf("api", "k"), "api", "k"
		one.ledger.lease.Store(int64(b.boot() + leaseTerm))
		r := one.ledger.decide(t.Context(), []*request{&q})
		if r == nil {
			t.Fatal("not decided")
		}
		return r[0]
	}
	left := func(want int64) {
		t.Helper()
		for _, h := range []*Host{one, two} {
			s := &h.ledger.shards[shardOf("api", "k")]
			s.mu.Lock()
			at := s.now(b.boot())
			if s.role != hosts {
				at = s.heardNow(b.boot())
			}
			d := s.tables["api"].Peek(at, h.ledger.hash("k"), "k", 0)
			s.mu.Unlock()
			if d.Remaining != want {
				t.Errorf("%s: %d left, want %d", h.self, d.Remaining, want)
			}
		}
	}
	later := func(d time.Duration) { b.clock.Add(int64(d)) }
	took := ask(request{kind: kindTake, n: 2})
	later(9 * time.Second)
	if r := ask(request{kind: kindSettle, id: took.ID, n: renewal}); r.status != decided || r.Remaining != 1 {
		t.Errorf("renewed: %+v", r)
	}
	left(1)
	later(9 * time.Second)
	left(1)
	if r := ask(request{kind: kindSettle, id: took.ID, n: renewal}); r.status != decided {
		t.Errorf("renewed once more: %+v", r)
	}
	ask(request{kind: kindSettle, id: took.ID})
	left(3)
	took = ask(request{kind: kindTake, n: 1})
	later(11 * time.Second)
	if r := ask(request{kind: kindSettle, id: took.ID, n: renewal}); r.status != noHold {
		t.Errorf("renewed when its lease was over: %+v", r)
	}
	left(3)
}
