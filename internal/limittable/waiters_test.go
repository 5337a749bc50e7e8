package limittable

import (
	"testing"
	"time"

	"github.com/headgate/headgate/limit"
)

// When a limit is raised, waiting borrowers proceed at the new pace at once.
func TestAPaceIsThatOfTheRulesInForce(t *testing.T) {
	var table Table
	now := Time(1e18)
	borrow := func(who uint64, amount int64) bool {
		t.Helper()
		rules, err := Compile(limit.Rule{Algorithm: limit.SlidingLog, Amount: amount, Window: time.Hour}, nil)
		if err != nil {
			t.Fatal(err)
		}
		table.SetRules(now, rules, 10)
		return table.Borrow(now, now, 7, "k",
			&Report{Borrower: who, Loan: 1, Need: 1, Least: 1, Weight: 1, Spread: true}).Allowed
	}
	passed := 0
	for range 10 {
		if borrow(1, 10) {
			passed++
		}
	}
	if passed == 0 || passed == 10 {
		t.Fatalf("%d of 10 passed at once", passed)
	}
	now += 1e9
	if borrow(2, 10) {
		t.Error("one more passed a second later")
	}
	now += 2e9
	if !borrow(2, 3600) {
		t.Error("the limit was raised, and somebody waits still")
	}
}
