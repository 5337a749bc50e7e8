package quota

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/virtual"

	"github.com/headgate/headgate/limit"
)

// Host and standby are lost with everything in memory. The usage of keys of long windows was
// written in advance, so no caller gets units twice, and keys with little usage continue.
func TestLongWindowsSurviveTheLossOfAll(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testLongWindowsSurviveTheLossOfAll)
}

func testLongWindowsSurviveTheLossOfAll(t *testing.T) {
	g := newGroup(t)
	g.define("day", limit.Rule{Algorithm: limit.SlidingLog, Amount: 160, Window: 24 * time.Hour})
	g.define("calendar", limit.Rule{Algorithm: limit.FixedWindow, Amount: 160, Align: limit.Year})
	a, b := g.start("a", true), g.start("b", true)
	g.spread(a, b)
	passed := map[string]int64{}
	call := func(m *member, limitName, key string, n int) {
		for range n {
			d, err := m.Limit(limitName).Take(t.Context(), key, 1)
			if err != nil {
				t.Fatalf("%s %s: %v", limitName, key, err)
			}
			if d.Allowed {
				passed[limitName+key]++
			}
		}
	}
	for i := range 20 {
		key := fmt.Sprint("client-", i)
		call(a, "day", key, 20*i/2)
		call(b, "calendar", key, 20*i/2)
	}
	a.kill()
	b.kill()
	c := g.start("c", true)
	g.spread(c)
	for i := range 20 {
		key := fmt.Sprint("client-", i)
		for _, l := range []string{"day", "calendar"} {
			before := passed[l+key]
			call(c, l, key, 200)
			switch all, more := passed[l+key], passed[l+key]-before; {
			case all > 160:
				t.Errorf("%s %s: %d passed, want 160 at most", l, key, all)
			case more < 160-2*before-11: // a block, plus what the dead process held in advance
				t.Errorf("%s %s: %d had passed, and %d more, of 160", l, key, before, more)
			}
		}
	}
}
