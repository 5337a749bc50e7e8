package world

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/virtual"
)

// TestNodesBecomeACluster: three nodes run in a bubble, find a host, and end in order.
func TestNodesBecomeACluster(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		w := New(t, Config{Seed: 1, Servers: []string{"n1", "n2", "n3"}})
		for _, name := range []string{"n1", "n2", "n3"} {
			w.Add(name, "rooms:\n  - {name: shop, origin: \"http://127.0.0.1:9000\", "+
				"total_active_users: 2, new_users_per_minute: 60}\n")
		}
		defer w.Close()
		l, err := w.Net.Listen(Outside, "127.0.0.1:9000")
		if err != nil {
			t.Fatal(err)
		}
		origin := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "hello")
		})}
		go origin.Serve(l)
		defer origin.Close()
		for _, n := range w.Nodes() {
			n.Start()
		}
		for _, n := range w.Nodes() {
			n.Ready()
		}
		t.Logf("ready after %v", w.Clock())
		for range 3 {
			resp, err := w.client.Get("http://" + w.Node("n1").Public + "/")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			t.Log(resp.StatusCode)
		}
		w.Rest(10 * time.Second)
	})
}

// A node that is cut off from the store still stops: nothing that waits for the store then delays
// the end by more than a few seconds.
func TestANodeThatIsCutOffStops(t *testing.T) {
	const most = 10 * time.Second // one second of drain_delay, and a write that fails
	for _, silent := range []bool{false, true} {
		for _, after := range []time.Duration{2 * time.Second, 8 * time.Second, 24 * time.Second} {
			t.Run(fmt.Sprintf("silent %v, after %v", silent, after), func(t *testing.T) {
				virtual.Test(t, func(t *testing.T) {
					w := New(t, Config{Seed: 1, Servers: []string{"n1", "n2", "n3"}})
					defer w.Close()
					var text strings.Builder
					text.WriteString("limits:\n  - {name: calls, algorithm: fixed_window, amount: 9, window: 1s, " +
						"key: [\"header:X-Key\"]}\nrooms:\n")
					for i := range 4 {
						text.WriteString(fmt.Sprintf("  - {name: r%d, path: /r%d, origin: \"http://127.0.0.1:9000\", "+
							"total_active_users: 2, new_users_per_minute: 60, limits: [calls]}\n", i, i))
					}
					for _, name := range []string{"n1", "n2", "n3"} {
						w.Add(name, text.String()).Start()
					}
					for _, n := range w.Nodes() {
						n.Ready()
					}
					w.Rest(5 * time.Second)
					w.Cut("n2", silent, "n1", "n3")
					w.Rest(after)
					time.AfterFunc(10*time.Minute, w.Heal)
					from := w.Clock()
					w.Node("n2").Stop()
					if took := w.Clock() - from; took > most {
						t.Errorf("n2 stopped within %v, want %v at most\n%s", took, most, w.Node("n2").Log())
					}
				})
			})
		}
	}
}

// A frozen node reaches no other one until it wakes, whatever is healed meanwhile; and what is cut
// stays cut when a node wakes.
func TestHealingAndWakingAreApart(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		w := New(t, Config{Seed: 1, Servers: []string{"n1", "n2", "n3"}})
		defer w.Close()
		store := w.Store("n1")
		for _, name := range []string{"n1", "n2"} {
			w.Add(name, "")
			store.Start(name)
		}
		w.Add("n3", "")
		store.Stop("n3", false)
		n1 := w.Node("n1")
		leads := func(when string, want bool) {
			t.Helper()
			w.Rest(time.Minute)
			if got := store.Leader(); got != "" != want {
				t.Errorf("%s: %q leads", when, got)
			}
		}
		leads("two of three", true)
		n1.Freeze()
		w.Cut("n2", true, "n1", "n3")
		w.Heal()
		leads("n1 is frozen", false)
		w.Cut("n2", true, "n1", "n3")
		n1.Wake()
		leads("n2 is cut off", false)
		w.Heal()
		leads("all is well", true)
		n1.Freeze()
		n1.Crash()
		store.Start("n1")
		leads("n1 was killed in its sleep, and begins again", true)
	})
}
