package quota

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/virtual"

	"github.com/headgate/headgate/limit"
)

// Hosts that stop at the same moment hand shards to each other that nobody hosts any more. The
// usage of their keys is stored all the same, or counts as fully used for one window and not
// forever.
func TestHostsThatStopTogether(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testHostsThatStopTogether)
}

func testHostsThatStopTogether(t *testing.T) {
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
	var used [keys]string
	for i := range used {
		for try := 0; ; try++ { // a busy machine may delay an answer: then use another key
			used[i] = fmt.Sprintf("client-%d-%d", try, i)
			_, err := rs[0].Limit("api").Take(t.Context(), used[i], int64(1+i%10))
			if err == nil {
				break
			} else if try > 10 || !errors.Is(err, ErrUnreachable) {
				t.Fatal(err)
			}
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
			g.left(rs[0], "api", used[i]) // it is reported
			var d limit.Decision
			g.await("a look at "+used[i], func() (ok bool) {
				var err error
				d, err = rs[0].Limit("api").Peek(t.Context(), used[i], 1)
				return err == nil
			})
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
