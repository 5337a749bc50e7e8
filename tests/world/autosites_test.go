package world

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/virtual"
)

// The home finds the limit from what all data centers measure, all of them together keep it, and when the
// home was killed, it goes on with what it has learned.
func TestDataCentersFindOneLimit(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		w := New(t, Config{Seed: 25, Servers: []string{"sjc", "lhr"}, Datacenters: true})
		for _, name := range []string{"sjc", "lhr"} {
			w.Add(name, fmt.Sprintf("trusted_proxies: [127.0.0.0/8]\nrooms:\n  - {name: shop, origin: "+
				"\"http://127.0.0.1:9000\", total_active_users: {auto: true, min: %d, max: 60}, "+
				"new_users_per_minute: 600, session_duration: 20s, origin_target: {p95: 1s}}\n", autoMin))
		}
		defer w.Close()
		defer serveAuto(w)()
		for _, n := range w.Nodes() {
			n.Start()
		}
		for _, n := range w.Nodes() {
			n.Ready()
		}
		home, other := w.Node("sjc"), w.Node("lhr")

		var mu sync.Mutex
		seen := map[int]time.Duration{}
		defer autoCrowd(w, 90, func(visitor int) {
			mu.Lock()
			defer mu.Unlock()
			seen[visitor] = w.Clock()
		})()
		most := int64(autoMin) // that was in force
		// A session ends 20 s after its last request.
		inside := func() (n int64) {
			mu.Lock()
			defer mu.Unlock()
			for _, at := range seen {
				if w.Clock()-at < 19*time.Second {
					n++
				}
			}
			return n
		}
		rest := func(d time.Duration) {
			for end := w.Clock() + d; w.Clock() < end; w.Rest(500 * time.Millisecond) {
				n := inside() // before the limit is asked for, which may rise meanwhile
				if x, ok := autoOf(w, home); ok {
					most = max(most, x.Limit)
				}
				if n > most {
					t.Errorf("at %v: %d inside, the limit was never above %d", w.Clock(), n, most)
				}
			}
		}
		var before autoRoom
		for began := w.Clock(); before.Limit < 2*autoMin; rest(10 * time.Second) {
			before, _ = autoOf(w, home)
			if w.Clock()-began > 10*time.Minute {
				t.Fatalf("the limit does not rise: %+v, %+v", before, before.Auto)
			}
		}
		if before.Auto.Senders != 2 || inside() < autoMin {
			t.Errorf("signals of %d data centers, %d inside", before.Auto.Senders, inside())
		}
		same := func() {
			t.Helper()
			for began := w.Clock(); ; rest(time.Second) {
				at, ok := autoOf(w, home)
				far, ok2 := autoOf(w, other)
				if ok && ok2 && at.Auto != nil && far.Auto != nil && at.Limit == far.Limit {
					return
				}
				if w.Clock()-began > time.Minute {
					t.Fatalf("the limits of the two are %+v and %+v", at, far)
				}
			}
		}
		same()
		before, _ = autoOf(w, home)
		most = max(most, before.Limit)
		home.Crash()
		rest(45 * time.Second)
		home.Start()
		home.Ready()
		rest(time.Second)
		if after, ok := autoOf(w, home); !ok || after.Limit < before.Limit*2/3 {
			t.Errorf("the limit was %d, and the home goes on with %+v, %+v", before.Limit, after, after.Auto)
		}
		rest(time.Minute)
		same()
		if after, _ := autoOf(w, home); after.Limit < before.Limit*2/3 || after.Auto.Senders != 2 {
			t.Errorf("the limit was %d, and goes on with %+v, %+v", before.Limit, after, after.Auto)
		}
	})
}
