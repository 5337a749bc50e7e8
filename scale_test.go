package headgate

import (
	"testing"
	"time"

	"github.com/headgate/headgate/slot"
)

// No host for ten minutes, with two of three store nodes down: counter time stands still, the
// worker's reckoning runs on. A download that ends meanwhile is not reported as seen in the
// future of the next host: its slot would be held for the outage and a session more.
func TestNobodyIsSeenInTheFuture(t *testing.T) {
	var v visits
	now := slot.Tau(time.Hour)
	v.init(func() (lo, hi slot.Tau) { return now, now })
	v.session = func() time.Duration { return time.Minute }
	rules := &stayRules{session: time.Minute}
	v.enter(stay{id: 1, end: now.Add(time.Minute)}) // a download
	v.enter(stay{id: 2, end: now.Add(time.Minute)}) // and one that goes on
	now = now.Add(30 * time.Second)
	host := now // its last counter time
	now = now.Add(10 * time.Minute)
	v.leave(1)
	now = host.Add(time.Second) // the worker hears of the next host
	told := 0
	v.report(now, rules, func(it slot.Item) bool {
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
