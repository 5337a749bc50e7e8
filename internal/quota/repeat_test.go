package quota

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/limit"
)

// A forgetful is a Transport that loses some answers: the host has decided, and the Client does not hear
// it. Or it hears that the host has lost the key after it decided.
type forgetful struct {
	Transport
	lose atomic.Int64 // number of answers to lose
	left bool         // the host answers that the key has moved
}

var errLost = errors.New("the answer is lost")

func (f *forgetful) Request(ctx context.Context, name string, msg []byte) ([]byte, error) {
	b, err := f.Transport.Request(ctx, name, msg)
	if f.lose.Add(-1) < 0 {
		return b, err
	}
	if !f.left {
		return nil, errLost
	}
	rs, err := parseReplies(b)
	for i := range rs {
		rs[i] = movedAfter(&rs[i])
	}
	return appendReplies(nil, rs), err
}

// A reservation whose answer is lost is taken once, and one whose caller left is given back. So are calls in
// progress.
func TestALostAnswerTakesNothingTwice(t *testing.T) {
	t.Run("lost", func(t *testing.T) { testALostAnswer(t, false) })
	t.Run("moved", func(t *testing.T) { testALostAnswer(t, true) })
}

func testALostAnswer(t *testing.T, left bool) {
	for name, r := range map[string]limit.Rule{
		"log":   {Algorithm: limit.SlidingLog, Amount: 10, Window: time.Minute},
		"fixed": {Algorithm: limit.FixedWindow, Amount: 10, Window: time.Minute, Align: limit.FirstHit},
		"calls": {Algorithm: limit.Concurrency, Amount: 10, Lease: 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inHeldWorld(t, r, time.Millisecond, func(h *heldWorld) {
				h.def.Calls = r.Algorithm == limit.Concurrency
				h.def.Lends = !h.def.Calls
				way := &forgetful{Transport: h.desks[1].way, left: left}
				h.desks[1].way = way
				lane := h.desks[1].Limit("db")
				lane.under(h.def)
				take := func(ctx context.Context) (limit.Decision, error) {
					if h.def.Calls {
						return lane.TakeAtHost(ctx, "", 3)
					}
					return lane.Reserve(ctx, "", 3, time.Hour)
				}
				way.lose.Store(4)
				d, err := take(h.ctx)
				if err != nil || !d.Allowed || d.ID == 0 || d.Remaining != 7 {
					t.Errorf("%+v, %v: want 7 of 10 left", d, err)
				}
				if n := h.remaining(); n != 7 {
					t.Errorf("%d of 10 left, want 7: 3 were taken, and four answers were lost", n)
				}
				way.lose.Store(1)
				if _, err := lane.Settle(h.ctx, "", d.ID, 0); err != nil {
					t.Errorf("settled, and its answer is lost: %v", err)
				}
				if n := h.remaining(); n != 10 {
					t.Errorf("%d of 10 left when the reservation has ended", n)
				}
				way.lose.Store(4)
				ctx, leave := context.WithTimeout(h.ctx, 30*time.Millisecond)
				defer leave()
				if d, err = take(ctx); err == nil {
					t.Fatalf("%+v, though all answers were lost", d)
				}
				pause(h.ctx, time.Second)
				if n := h.remaining(); n != 10 {
					t.Errorf("%d of 10 left: the caller has left without an answer", n)
				}
			})
		})
	}
}

// A standby that takes over recognizes a reservation whose answer was lost.
func TestAStandbyRecognizesARepeat(t *testing.T) {
	b := newBench(t, limit.Rule{Algorithm: limit.SlidingLog, Amount: 10, Window: time.Minute})
	one, _ := b.host("one")
	two, _ := b.host("two")
	b.own(one, two.self)
	b.copied(one, two)
	i := shardOf("api", "k")
	ask := func(h *Host) reply {
		t.Helper()
		h.ledger.lease.Store(int64(b.boot() + leaseTerm))
		name := &request{kind: kindSettle, shard: i, limit: "api", n: naming, id: 1<<62 | 5}
		q := &request{kind: kindReserve, shard: i, limit: "api", key: "k", n: 4, ttl: time.Hour}
		r := h.ledger.decide(t.Context(), []*request{name, q})
		if len(r) != 2 {
			t.Fatal("not decided")
		}
		return r[1]
	}
	if r := ask(one); !r.Allowed || r.Remaining != 6 || r.ID != 1<<62|5 {
		t.Errorf("first: %+v", r)
	}
	if r := ask(one); !r.Allowed || r.Remaining != 6 {
		t.Errorf("again: %+v", r)
	}
	if !two.ledger.take(int(i)) {
		t.Fatal("it is no standby")
	}
	two.ledger.host(int(i), basis{})
	if r := ask(two); !r.Allowed || r.Remaining != 6 || r.ID != 1<<62|5 {
		t.Errorf("after the takeover: %+v", r)
	}
}

// The costs that have a meaning between nodes are none of callers: nothing is settled, and nobody hears that
// it was.
func TestACallerSettlesNoNegativeCost(t *testing.T) {
	r := limit.Rule{Algorithm: limit.Concurrency, Amount: 10, Lease: 10 * time.Minute}
	inHeldWorld(t, r, time.Millisecond, func(h *heldWorld) {
		h.def.Calls, h.def.Lends = true, false
		d, err := h.desks[1].Limit("db").TakeAtHost(h.ctx, "", 3)
		if err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		for _, cost := range []int64{naming, renewal, limit.MaxAmount + 1} {
			if err := h.keys[1].Settle(h.ctx, h.def, "", d.ID, cost); !errors.Is(err, limittable.ErrCost) {
				t.Errorf("%d: %v", cost, err)
			}
		}
		if n := h.remaining(); n != 7 {
			t.Errorf("%d of 10 left, want 7", n)
		}
		if err := h.keys[1].Settle(h.ctx, h.def, "", d.ID, 0); err != nil || h.remaining() != 10 {
			t.Error(err)
		}
	})
}
