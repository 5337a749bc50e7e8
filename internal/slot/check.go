package slot

import (
	"fmt"
	"time"
)

// Bounds of what a borrower says. Chosen: more slots than a limit may have, more visits than
// there will be, and clocks that no honest machine is off by.
const (
	mostCounted = 1 << 56 // a million a second for 2,000 years
	farAhead    = time.Hour
	mostEpochs  = 1 << 40 // that a record was rolled back by: 2^24 takeovers at least
)

// Check refuses a Sync that no honest borrower sends. A negative Need, for instance, would be
// granted: the borrower would hold fewer slots than none, and others would get them. A
// caller must check each Sync of another process before it is Put.
func (x *Sync) Check() error {
	bad := x.Need < 0 || x.Want < 0 || x.Need > mostSaid || x.Want > mostSaid ||
		x.Loan == 0 || x.Loan == presumedLoan
	counts := append([]int64{x.Granted, x.Opened, x.Traffic, x.Idle}, x.Returned[:]...)
	for _, n := range counts {
		bad = bad || n < 0 || n > mostCounted
	}
	if bad {
		return fmt.Errorf("%w: a Sync with impossible numbers", ErrMessage)
	}
	return nil
}

// Ahead reports whether a Sync has seen a record so much later than ours that no rollback
// explains it. Its epoch would become ours, and in the end there would be none left.
func (x *Sync) Ahead(now WriteName) bool {
	return x.Seen.Newer(now) && x.Seen.Epoch > now.Epoch && x.Seen.Epoch-now.Epoch > mostEpochs
}

// Clamp brings times that no honest borrower says back into reach, so that an entry of a
// lie ends with the longest stay of now. longest is that of the limit of users at once.
func (x *Sync) Clamp(now Time, longest time.Duration) {
	soon := now.Add(farAhead)
	last := soon.Add(longest)
	for i := range x.Items {
		it := &x.Items[i]
		it.At, it.Use = min(it.At, soon), min(it.Use, soon)
		it.End = min(it.End, last)
		if it.Op != Answered {
			it.From = min(it.From, last)
		}
	}
}
