package quota

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/limit"
)

// Hosts that stop at the same moment hand shards to each other that nobody takes up any more. What
// their keys have used is kept all the same, or counts as used, for one window and not for ever.
func TestHostsThatStopTogether(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	g.define("api", limit.Rule{Algorithm: limit.SlidingLog, Amount: 10, Window: time.Minute})
	names := []string{"a", "b", "c"}
	launch := func() (rs []*rig) {
		for _, name := range names {
			rs = append(rs, g.launch(name, launch{lease: 2 * time.Second}))
		}
		g.spreadOf(rs...)
		return rs
	}
	const keys = 256
	rs := launch()
	for i := range keys {
		_, err := rs[0].Lane("api").Take(t.Context(), fmt.Sprint("client-", i), int64(1+i%10))
		if err != nil {
			t.Fatal(err)
		}
	}
	for life := range 2 {
		var wg sync.WaitGroup
		for _, r := range rs {
			wg.Go(r.stop)
		}
		wg.Wait()
		rs = launch()
		lost := 0
		for i := range keys {
			g.left(rs[0], "api", fmt.Sprint("client-", i)) // it is told
			d, err := rs[0].Lane("api").Peek(t.Context(), fmt.Sprint("client-", i), 1)
			if err != nil {
				t.Fatal(err)
			}
			switch want := int64(10 - (1 + i%10)); {
			case d.Reset > 2*time.Minute:
				t.Fatalf("life %d: key %d is whole again in %v", life, i, d.Reset)
			case d.Remaining > want:
				t.Fatalf("life %d: key %d has %d left, want %d", life, i, d.Remaining, want)
			case d.Remaining < want:
				lost++
			}
		}
		t.Log("life", life, "count as used:", lost)
	}
}
