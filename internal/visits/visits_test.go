package visits

import (
	"testing"
	"time"

	"github.com/headgate/headgate/slot"
)

// No host for ten minutes, with two of three store nodes down: counter time stands still, the
// worker's reckoning runs on. A download that ends meanwhile is not reported as seen in the
// future of the next host: its slot would be held for the outage and a session more.
func TestNobodyIsSeenInTheFuture(t *testing.T) {
	now := slot.Tau(time.Hour)
	v := New(func() (lo, hi slot.Tau) { return now, now }, func() time.Duration { return time.Minute })
	rules := &Rules{Session: time.Minute, Longest: time.Minute, Grid: 1}
	v.Enter(Stay{ID: 1, End: now.Add(time.Minute)}) // a download
	v.Enter(Stay{ID: 2, End: now.Add(time.Minute)}) // and one that goes on
	now = now.Add(30 * time.Second)
	host := now // its last counter time
	now = now.Add(10 * time.Minute)
	v.Leave(1)
	now = host.Add(time.Second) // the worker hears of the next host
	told := 0
	v.Report(now, rules, func(it slot.Item) bool {
		told++
		if it.At > now {
			t.Errorf("stay %d was seen at %v, %v from now", it.ID, it.At, it.At.Sub(now))
		}
		return true
	})
	if told != 2 {
		t.Errorf("%d stays renewed, want 2", told)
	}
}

func TestAllWhoAreInFlightAreRenewedHoweverMany(t *testing.T) {
	v := New(func() (lo, hi slot.Tau) { return 1, 1 }, nil)
	rules := &Rules{Session: time.Minute, Longest: time.Minute, Grid: 1}
	const n = 30_000
	for i := range n {
		v.Enter(Stay{ID: slot.StayID(i + 1), End: slot.Tau(time.Minute)})
	}
	seen := map[slot.StayID]bool{}
	for round := range 3 {
		k := 0
		v.Report(slot.Tau(time.Duration(round+1)*time.Second), rules, func(it slot.Item) bool {
			seen[it.ID] = true
			k++
			return k < 20_000
		})
	}
	if len(seen) < n {
		t.Errorf("%d of %d were never renewed", n-len(seen), n)
	}
}
