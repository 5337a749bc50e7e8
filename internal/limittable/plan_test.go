package limittable

import (
	"testing"
	"time"

	"github.com/headgate/headgate/limit"
)

// Keys beyond the maximum are counted together with the least amount of all plans, also where the burst
// of each plan is the same.
func TestTheRestHasTheLeastAmount(t *testing.T) {
	rule := limit.Rule{Algorithm: limit.TokenBucket, Amount: 600, Burst: 1, Window: time.Minute}
	for range 20 { // the order of a map is random
		table := newTable(t, rule, map[string]int64{PlanKey("small"): 6, PlanKey("plus"): 60, PlanKey("pro"): 900}, 1)
		table.Take(0, hashOf("first"), "first", 1)
		passed, key := 0, PlanKey("small")+"bob"
		for now := Time(0); now < Time(time.Minute); now += Time(time.Second / 10) {
			table.Take(now, hashOf("first"), "first", 1) // its place stays taken
			d, err := table.Take(now, hashOf(key), key, 1)
			if err != nil || !d.Shared {
				t.Fatalf("%+v %v", d, err)
			}
			if d.Allowed {
				passed++
			}
		}
		if passed != 6 {
			t.Fatalf("%d calls of the plan passed in a minute, want 6", passed)
		}
	}
}

// A key that was counted with the rest, and then gets a place, begins with what the rest has used: also
// when it would be as good as new under the amount of callers without a plan.
func TestAKeyOfAPlanLeavesTheRest(t *testing.T) {
	rule := limit.Rule{Algorithm: limit.TokenBucket, Amount: 60, Window: time.Minute}
	table := newTable(t, rule, map[string]int64{PlanKey("small"): 6}, 1)
	table.Take(0, hashOf("first"), "first", 1)
	key := PlanKey("small") + "bob"
	passes := func(now Time) (n int64) {
		for {
			d, err := table.Take(now, hashOf(key), key, 1)
			if err != nil {
				t.Fatal(err)
			}
			if d.Shared != (now == 0) {
				t.Fatalf("at %v: %+v", now, d)
			}
			if !d.Allowed {
				return n
			}
			n++
		}
	}
	if n := passes(0); n != 6 {
		t.Errorf("%d passed with the rest, want 6", n)
	}
	table.Reset(hashOf("first"))
	if n := passes(Time(10 * time.Second)); n != 1 {
		t.Errorf("%d passed 10 s later, want the one that has come back", n)
	}
}
