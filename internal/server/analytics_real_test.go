//go:build real

package server

import (
	"slices"
	"testing"
)

// What three nodes have counted is one figure, whichever is asked; a node that is gone is named.
func TestAnalyticsOfAllNodes(t *testing.T) {
	t.Parallel()
	all := nodes(t, "rooms:\n  - {name: shop, origin: ORIGIN, total_active_users: 6, "+
		"new_users_per_minute: 6}\n", "n1", "n2", "n3")
	inside, waiting, joined := 0.0, 0.0, 0.0
	for i := range 12 {
		status, _, _ := see(t, all[i%3], "x", "")
		if status == 200 {
			inside++
		} else {
			waiting++
		}
	}
	for _, p := range all { // who joins and is called at once is inside; one may have no number yet
		joined += float64(p.s.set.Load().find("shop").room.Status().Totals.Joined)
	}
	if joined < waiting-2 || joined > 12 {
		t.Errorf("%v wait, and %v have joined", waiting, joined)
	}
	for i, p := range all {
		var got past
		eventually(t, "all nodes and the host are heard", func() bool { // by who has just begun
			got = p.past("room=shop")
			return got.Total["requests"] == inside && got.Total["totalActiveUsersConfig"] != 0.0
		})
		for name, want := range map[string]float64{"admitted": inside, "requests": inside, "polls": waiting,
			"joined": joined, "totalActiveUsersConfig": 6} {
			if got.Total[name] != want {
				t.Errorf("n%d: %s is %v, want %v", i+1, name, got.Total[name], want)
			}
		}
		if len(got.Missing) != 0 {
			t.Errorf("n%d: %v do not answer", i+1, got.Missing)
		}
		eventually(t, "the host seen", func() bool {
			n, _ := p.past("room=shop").Total["totalQueuedUsersMax"].(float64)
			return n == waiting || (joined != waiting || inside < 6) && n > 0 && n <= joined
		})
	}
	all[2].stop()
	eventually(t, "n3 missing", func() bool {
		m := all[0].past("room=shop").Missing
		return len(m) == 0 || slices.Equal(m, []string{"n3"}) // while it is known at all
	})
}
