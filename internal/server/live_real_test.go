//go:build real

package server

import (
	"testing"
	"time"
)

// A lower limit sends nobody away. It is in force once enough have left, and
// nobody comes in before.
func TestLoweringALimitDrainsByItself(t *testing.T) {
	p := run(t, "rooms:\n  - {name: shop, origin: ORIGIN, total_active_users: 4, "+
		"new_users_per_minute: 100, session_duration: 2s}\n")
	var inside []string
	for range 4 {
		r := get(t, p.visitors+"/", "")
		if r.StatusCode != 200 {
			t.Fatalf("%d", r.StatusCode)
		}
		inside = append(inside, r.cookie)
	}
	waits := get(t, p.visitors+"/", "").cookie
	p.change("shop", map[string]string{"total_active_users": "2"})
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	visit := func(cookies []string) {
		for i, c := range cookies {
			r := get(t, p.visitors+"/", c)
			if r.StatusCode != 200 {
				t.Fatal("somebody inside was sent away")
			}
			cookies[i] = r.cookie
		}
	}
	for range 12 { // 3 s: all four keep coming
		<-tick.C
		visit(inside)
		if get(t, p.visitors+"/", waits).StatusCode == 200 {
			t.Fatal("let in above the new limit")
		}
	}
	if st := p.status("shop"); st.ActiveUsers != 4 || st.TotalActiveUsers != 2 {
		t.Errorf("%d of %d, want 4 of 2", st.ActiveUsers, st.TotalActiveUsers)
	}
	inside = inside[:2] // two go: the limit is reached, and nobody may follow
	for range 14 {
		<-tick.C
		visit(inside)
		if get(t, p.visitors+"/", waits).StatusCode == 200 {
			t.Fatal("let in as a third")
		}
	}
	if n := p.status("shop").ActiveUsers; n != 2 {
		t.Errorf("%d inside, want 2", n)
	}
	inside = inside[:1] // one more goes: now one comes in, and one only
	eventually(t, "let in", func() bool {
		visit(inside)
		r := get(t, p.visitors+"/", waits)
		return r.StatusCode == 200
	})
	if n := p.status("shop").ActiveUsers; n > 2 {
		t.Errorf("%d inside, want 2", n)
	}
}
