package quota

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/limit"
)

func logOf(amount int64) limit.Rule {
	return limit.Rule{Algorithm: limit.SlidingLog, Amount: amount, Window: time.Minute}
}

// A large call that is denied, or can never pass, does not cause the denial of small calls in the
// same message or later ones.
func TestALargeCallRefusesNoSmallOne(t *testing.T) {
	for _, large := range []int64{1000, 60} {
		t.Run(fmt.Sprint(large), func(t *testing.T) {
			inHeldWorld(t, logOf(100), 20*time.Millisecond, func(h *heldWorld) {
				pause(h.ctx, time.Second)
				l := h.desks[1].Limit("db")
				h.keys[1].lane.under(h.def)
				take := func(cost int64) bool {
					d, err := l.Take(h.ctx, "", cost)
					if err != nil {
						t.Error(err)
					}
					return d.Allowed
				}
				if !take(50) {
					t.Fatal("50 of 100 are refused")
				}
				pause(h.ctx, 3*time.Second)
				var wg sync.WaitGroup
				wg.Go(func() { take(2) }) // a message is in flight: the next two go together
				pause(h.ctx, time.Millisecond)
				wg.Go(func() {
					if take(large) {
						t.Errorf("%d of 48 pass", large)
					}
				})
				pause(h.ctx, time.Millisecond)
				wg.Go(func() {
					if !take(1) {
						t.Error("1 of 48 is refused with the large one")
					}
				})
				wg.Wait()
				if !take(1) {
					t.Error("1 of 47 is refused after the large one")
				}
			})
		})
	}
}

// Units that a Client itself holds in advance are available to a call that needs more than that.
func TestWhatADeskHoldsItselfCounts(t *testing.T) {
	inHeldWorld(t, logOf(100), 20*time.Millisecond, func(h *heldWorld) {
		pause(h.ctx, time.Second)
		l := h.desks[1].Limit("db")
		h.keys[1].lane.under(h.def)
		for range 45 { // often enough that some are held in advance
			if d, err := l.Take(h.ctx, "", 1); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			pause(h.ctx, 8*time.Millisecond)
		}
		pause(h.ctx, 600*time.Millisecond)
		own, free := l.holds(""), h.remaining()
		if own < 2 || free < 2 {
			t.Fatalf("%d are held and %d are free: this proves nothing", own, free)
		}
		if d, err := l.Take(h.ctx, "", own+free); err != nil || !d.Allowed {
			t.Errorf("%d of %d held here and %d free: %+v, %v", own+free, own, free, d, err)
		}
	})
}

// Units that were reported as held and then returned are recalled for a caller that needs them.
func TestWhatWasHeldAndReturnedIsAskedBack(t *testing.T) {
	inHeldWorld(t, logOf(100), 2*time.Millisecond, func(h *heldWorld) {
		pause(h.ctx, time.Second)
		h.turn = Waiters{Momentary: true}
		x, _ := h.hold(1, 60) // the next message says that 60 are held
		if d, err := h.desks[1].Limit("db").Take(h.ctx, "", 1); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		pause(h.ctx, 100*time.Millisecond)
		x.Return(60)
		pause(h.ctx, 100*time.Millisecond)
		if d, err := h.desks[2].Limit("db").Take(h.ctx, "", 50); err != nil || !d.Allowed {
			t.Errorf("50 of 99 are refused elsewhere: %+v, %v", d, err)
		}
	})
}

// A caller that leaves during its request leaves no call in progress.
func TestWhoGoesAwayLeavesNoCall(t *testing.T) {
	calls := limit.Rule{Algorithm: limit.Concurrency, Amount: 3, Lease: time.Minute}
	inHeldWorld(t, calls, 20*time.Millisecond, func(h *heldWorld) {
		h.def.Lends, h.def.Calls = false, true
		pause(h.ctx, time.Second)
		for range 3 {
			ctx, stop := context.WithTimeout(h.ctx, 10*time.Millisecond)
			var v limit.Decision
			if _, err := h.keys[1].Take(ctx, h.def, "", 1, &v); err == nil {
				t.Errorf("answered: %+v", v)
			}
			stop()
		}
		pause(h.ctx, time.Second)
		if p, err := h.keys[1].Peek(h.ctx, h.def, "", 1); err != nil || p.Remaining != 3 {
			t.Errorf("%d of 3 are free, %v", p.Remaining, err)
		}
	})
}

// The written blocks of a shard and the record of what is written stay equal: a key that was away
// for a while gets a new block.
func TestABlockIsWrittenAnewForAKeyThatWasForgotten(t *testing.T) {
	rules, err := limittable.Compile(limit.Rule{Algorithm: limit.SlidingLog, Amount: 160,
		Window: time.Hour}, nil)
	if err != nil {
		t.Fatal(err)
	}
	def := &Definition{Name: "hour", Rules: rules, MaxKeys: 100_000, Lends: true}
	now := time.Hour
	open := func(by basis) *ledger {
		l := newLedger(func() time.Duration { return now }, func(string) *Definition { return def },
			func(uint64, []place) {})
		l.lease.Store(1 << 62)
		l.host(3, by)
		return l
	}
	var stored []byte
	take := func(l *ledger, key string, n int64) bool {
		r, _ := l.do(&request{kind: kindTake, shard: 3, limit: "hour", key: key, n: n}, &waiting{})
		if s := &l.shards[3]; s.blocks.asked > s.blocks.done { // as writeBlock does
			stored, s.blocks.done = s.appendBlocks(nil), s.blocks.asked
		}
		return r.Allowed
	}
	l := open(basis{known: true})
	if !take(l, "away", 100) {
		t.Fatal("100 of 160 are refused")
	}
	now += 2 * time.Hour
	for i := range 6 { // meanwhile it is forgotten, and a block is written without it
		take(l, fmt.Sprint("other-", i), 1)
	}
	now += time.Minute
	if !take(l, "away", 100) {
		t.Fatal("100 of 160 are refused in another hour")
	}
	heir := open(basis{written: stored}) // host and standby have died
	now += 20 * time.Second
	passed := 100
	for take(heir, "away", 1) {
		passed++
	}
	if passed > 160 {
		t.Errorf("%d calls pass in an hour, want 160 at most", passed)
	}
}

// Of the calls that arrive together for keys without a place of their own, as many pass as there
// are units left.
func TestAFullTableTakesSomeOfMany(t *testing.T) {
	rules, err := limittable.Compile(logOf(10), nil)
	if err != nil {
		t.Fatal(err)
	}
	def := &Definition{Name: "db", Rules: rules, MaxKeys: 1, Lends: true}
	l := newLedger(func() time.Duration { return time.Hour }, func(string) *Definition { return def },
		func(uint64, []place) {})
	l.lease.Store(1 << 62)
	l.host(3, basis{known: true})
	borrow := func(key string, loan uint64, need int64) int64 {
		q := &request{kind: kindBorrow, shard: 3, limit: "db", key: key}
		q.Report = limittable.Report{Borrower: 1, Loan: loan, Need: need, Least: 1}
		return l.decide(t.Context(), []*request{q})[0].given
	}
	borrow("first", 1, 1)
	borrow("second", 1, 1)
	for i, want := range []int64{6, 4, 0} {
		if got := borrow("late", uint64(2+i), 6); got != want {
			t.Errorf("of six calls %d pass, want %d", got, want)
		}
	}
}
