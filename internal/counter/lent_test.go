package counter

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/status"
)

// Loans are listed by worker, the largest first. The list has what a failed worker may still use,
// and not what has certainly ended.
func TestWhatIsLentIsToldByWorker(t *testing.T) {
	r := &slot.Record{Time: 100, Loans: []slot.Loan{
		{ID: 1, Borrower: "n1", Granted: 9, Opened: 4, Returned: slot.PerLimit{2, 5}},
		{ID: 2, Borrower: "n2", Granted: 7},
		{ID: 3, Borrower: "n1", Granted: 8, Over: 50, Back: [slot.MaxLimits]slot.Time{200, 90}},
		{ID: 4, Borrower: "n3", Granted: 8, Over: 50, Back: [slot.MaxLimits]slot.Time{90, 90}},
		{ID: 5, Borrower: "n1", Granted: 1},
		{ID: 6, Borrower: "idle"},
	}}
	want := &status.Lent{Workers: []status.Worker{
		{Name: "n1", Held: 8, Gone: true}, {Name: "n2", Held: 7, New: 7}, {Name: "n1", Held: 4, New: 1},
		{Name: "idle"},
	}}
	if diff := cmp.Diff(want, workersOf(r)); diff != "" {
		t.Error(diff)
	}
	for i := range 100 {
		x := slot.Loan{ID: slot.LoanID(i + 10), Borrower: fmt.Sprint("w", i), Granted: 1}
		r.Loans = append(r.Loans, x)
	}
	if got := workersOf(r); len(got.Workers) != mostWorkers || got.More != 104-mostWorkers ||
		got.Workers[0].Name != "n1" {
		t.Errorf("%d workers and %d more", len(got.Workers), got.More)
	}
}
