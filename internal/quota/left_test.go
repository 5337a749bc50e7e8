package quota

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/limit"
)

// What waits for a write of a shard's blocks is answered when the shard is left, hosted anew, or
// nobody waits for the answer any more: each that waited on would be one answer less that a host can
// give at a time.
func TestNobodyWaitsForBlocksOfAShardThatWasLeft(t *testing.T) {
	rules, err := limit.Compile(limit.Rule{Algorithm: limit.SlidingLog, Amount: 9, Window: time.Hour}, nil)
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
				q.Report = limit.Report{Who: 1, Loan: 1, Need: 2, Least: 1, Want: 1}
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
						return // who asks has given up
					}
					if rs, err := parseReplies(b); err != nil || len(rs) != 1 || rs[0].status != moved {
						t.Errorf("%+v, %v: want that another hosts it", rs, err)
					}
				default:
					t.Fatal("waits still")
				}
			})
		})
	}
}
