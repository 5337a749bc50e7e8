package quota

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/limit"
)

// A caller that waits for a write of a shard's blocks is released when the shard is left or hosted
// again, or when the caller itself has given up. A caller that kept waiting would reduce the number
// of answers that a host can give at a time.
func TestNobodyWaitsForBlocksOfAShardThatWasLeft(t *testing.T) {
	rules, err := limittable.Compile(limit.Rule{Algorithm: limit.SlidingLog, Amount: 9, Window: time.Hour},
		nil)
	if err != nil {
		t.Fatal(err)
	}
	def := &Definition{Name: "hour", Rules: rules, MaxKeys: 100, Lends: true}
	for name, end := range map[string]func(*ledger){
		"left":          func(l *ledger) { l.leave(3) },
		"hosted anew":   func(l *ledger) { l.host(3, basis{known: true}) },
		"left, hosted":  func(l *ledger) { l.leave(3); l.host(3, basis{known: true}) },
		"written never": func(*ledger) { <-time.After(askTry) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				l := newLedger(func() time.Duration { return time.Since(began) },
					func(string) *Definition { return def }, func(uint64, []place) {})
				l.lease.Store(1 << 62)
				l.host(3, basis{known: true})
				q := &request{kind: kindBorrow, shard: 3, limit: "hour", key: "key"}
				q.Report = limittable.Report{Borrower: 1, Loan: 1, Need: 2, Least: 1, Want: 1}
				answer := make(chan []byte, 1)
				go func() { answer <- l.answer(t.Context(), appendRequests(nil, 1, []*request{q})) }()
				synctest.Wait()
				select {
				case <-answer:
					t.Fatal("answered before the block is written")
				default:
				}
				end(l)
				synctest.Wait()
				select {
				case b := <-answer:
					if b == nil {
						return // the caller has given up
					}
					if rs, err := parseReplies(b); err != nil || len(rs) != 1 || rs[0].status != moved ||
						!rs[0].Allowed {
						t.Errorf("%+v, %v: want that another hosts it, and may have performed it", rs, err)
					}
				default:
					t.Fatal("waits still")
				}
			})
		})
	}
}

// Calls that arrive together are denied only if no other borrower holds the units that they need.
// Calls that do not fit next to the others must retry too, and the holders receive a recall.
func TestSomeOfManyCallsWaitForWhatOthersHold(t *testing.T) {
	rules, err := limittable.Compile(limit.Rule{Algorithm: limit.SlidingLog, Amount: 10,
		Window: time.Minute}, nil)
	if err != nil {
		t.Fatal(err)
	}
	def := &Definition{Name: "minute", Rules: rules, MaxKeys: 100, Lends: true}
	asked := map[uint64]int{}
	l := newLedger(func() time.Duration { return time.Hour }, func(string) *Definition { return def },
		func(who uint64, ps []place) { asked[who] += len(ps) })
	l.lease.Store(1 << 62)
	l.host(3, basis{known: true})
	ask := func(r limittable.Report) reply {
		q := &request{kind: kindBorrow, shard: 3, limit: "minute", key: "key", Report: r}
		return l.decide(t.Context(), []*request{q})[0]
	}
	if r := ask(limittable.Report{Borrower: 1, Loan: 1, Want: 6}); r.given != 6 {
		t.Fatalf("the first holds %d, want 6", r.given)
	}
	if r := ask(limittable.Report{Borrower: 2, Loan: 1, Need: 6, Least: 1}); r.given != 4 ||
		r.status != again ||
		asked[1] != 1 {
		t.Errorf("six calls: %+v, and %v are asked; want four to pass, two to wait", r, asked)
	}
	ask(limittable.Report{Borrower: 1, Loan: 1, Used: 3, Back: 3, Close: true})
	r := ask(limittable.Report{Borrower: 2, Loan: 1, Used: 4, Need: 2, Least: 1})
	if r.given != 6 || r.status == again {
		t.Errorf("the two: %+v, want them to pass", r)
	}
	r = ask(limittable.Report{Borrower: 2, Loan: 1, Used: 6, Need: 2, Least: 1})
	if r.given != 7 || r.status == again {
		t.Errorf("two more: %+v, want one to pass and one to be refused", r)
	}
}
