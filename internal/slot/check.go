package slot

import (
	"fmt"
	"time"
)

// Bounds on what a borrower reports. Chosen: more slots than a limit may have, more sessions than
// there will be, and clock errors larger than any on a working machine.
const (
	mostCounted = 1 << 56 // a million a second for 2,000 years
	farAhead    = time.Hour
	mostEpochs  = 1 << 40 // most epochs that a rollback loses: at least 2^24 takeovers
)

// Check returns an error for a Sync that no correct borrower sends. For example, a pool would grant
// a negative Need: the borrower would hold less than zero slots, and others would get them. Callers
// must check each Sync of another process before they call Receive.
func (x *Sync) Check() error {
	bad := x.Need < 0 || x.Want < 0 || x.Need > mostSaid || x.Want > mostSaid ||
		x.Loan == 0 || x.Loan == presumedLoan
	counts := append([]int64{x.Granted, x.Opened, x.Traffic, x.Idle}, x.Returned[:]...)
	for _, n := range counts {
		bad = bad || n < 0 || n > mostCounted
	}
	if bad {
		return fmt.Errorf("%w: a Sync with numbers out of range", ErrMessage)
	}
	return nil
}

// Ahead reports whether a Sync names a write so much later than now that no rollback of the record
// explains it. The pool must not adopt such an epoch: repeated, it would use up all epochs.
func (x *Sync) Ahead(now WriteName) bool {
	return x.Seen.Newer(now) && x.Seen.Epoch > now.Epoch && x.Seen.Epoch-now.Epoch > mostEpochs
}

// Clamp limits times that no correct borrower sends. So an entry from a false report ends no later
// than the longest session that begins now. longest is that of the AtOnce limit.
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
