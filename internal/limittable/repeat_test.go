package limittable

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/limit"
)

// A reservation with an ID that was taken a moment ago takes nothing, under each algorithm, also in a full
// table.
func TestARepeatTakesNothing(t *testing.T) {
	const start = Time(1_700_000_000_000_000_000)
	for _, r := range rules(rand.New(rand.NewPCG(3, 1))) {
		r.Amount, r.Window = 20, time.Hour
		if r.Algorithm.HasBurst() {
			r.Burst = 20
		}
		table := newTable(t, r, nil, 1)
		table.Take(start, 1, "a key that fills the table", 1)
		for i, key := range []string{"a key that fills the table", "one of the rest"} {
			now, hash, id := start, uint64(i+1), ChosenID(uint64(i))
			ttl := time.Hour
			if r.Algorithm == limit.Concurrency {
				ttl = 0
			}
			first, taken, err := table.Repeatable(now, hash, key, 3, ttl, id)
			if err != nil || !first.Allowed || taken || first.ID != id {
				t.Fatalf("%s: %+v, %v, %v", name(r), first, taken, err)
			}
			table.Repeatable(now+1, hash, key, 1, ttl, ChosenID(uint64(i+10)<<2)) // another call between them
			left := table.Peek(now+Time(time.Second), hash, key, 0).Remaining
			again, taken, err := table.Repeatable(now+Time(time.Second), hash, key, 3, ttl, id)
			if err != nil || !again.Allowed || !taken || again.ID != id || again.Remaining != left {
				t.Errorf("%s: %+v, %v, %v, want %d left", name(r), again, taken, err, left)
			}
			if r.Paced && again.Wait < first.Wait-time.Second {
				t.Errorf("%s: the repeat waits for %s, the first call for %s", name(r), again.Wait, first.Wait)
			}
			if err := table.Settle(now+Time(time.Second), hash, id, 3); err != nil {
				t.Errorf("%s: %v", name(r), err)
			}
			if err := table.Settle(now+Time(time.Second), hash, id, 3); !errors.Is(err, ErrSettled) {
				t.Errorf("%s: settled twice: %v", name(r), err)
			}
		}
		for _, id := range []uint64{0, 1, 1<<62 - 1} { // of a table
			if _, _, err := table.Repeatable(start, 1, "k", 1, time.Hour, id); !errors.Is(err, ErrCost) {
				t.Errorf("%s: ID %d: %v", name(r), id, err)
			}
		}
	}
}
