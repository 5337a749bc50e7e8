package edges

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/virtual"
	worlds "github.com/headgate/headgate/tests/world"
)

// threeNodes starts three nodes of a room for one visitor, with more keys at the
// second, and returns a connector for each.
func threeNodes(t *testing.T, second string) (w *worlds.World, at map[string]*connector) {
	t.Helper()
	names := []string{"n1", "n2", "n3"}
	w, at = worlds.New(t, worlds.Config{Seed: 1, Servers: names}), map[string]*connector{}
	client := outside(w)
	t.Cleanup(func() { client.CloseIdleConnections(); w.Close() })
	for i, name := range names {
		at[name] = &connector{t, fmt.Sprintf("127.0.0.1:910%d", i+1), client}
		more := ""
		if name == "n2" {
			more = second
		}
		w.Add(name, "decide: {listen: \""+at[name].addr+"\"}\ntrusted_proxies: [127.0.0.1]\nrooms:\n"+
			"  - {name: shop, host: shop.example, origin: \"http://127.0.0.1:9\", checkout: {pass: true}, "+
			"total_active_users: 1, new_users_per_minute: 600, session_duration: 10m"+more+"}\n").Start()
	}
	for _, n := range w.Nodes() {
		n.Ready()
	}
	return w, at
}

// TestNodesKnowEachOthersLeases: a session ends at another node than the one that its connector asks,
// also after that node has died.
func TestNodesKnowEachOthersLeases(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		w, at := threeNodes(t, "")
		c, other := at["n3"], at["n1"]
		w.Rest(12 * time.Second) // the leases that a process before these may have given are over
		for _, dies := range []bool{false, true} {
			var a, b kept
			if !other.settles(&b) {
				t.Fatal("a newcomer does not get in")
			}
			other.post(fmt.Sprintf(`{"ends": [{"room": "shop", "token": %q, "as": "complete"}]}`, b.pass))
			w.Rest(4 * time.Second)
			b = kept{}
			if !c.settles(&a) || other.enters(&b) {
				t.Fatal("a room for one does not let exactly one in")
			}
			began := time.Now()
			if dies {
				w.Node("n3").Crash()
			}
			if _, got := other.post(fmt.Sprintf(`{"ends": [{"room": "shop", "token": %q, "as": "complete"}]}`,
				a.pass)); len(got.Ends) != 1 || !got.Ends[0].Ended {
				t.Fatalf("n3 is dead: %v: the session has not ended: %+v", dies, got)
			}
			for !other.enters(&b) && time.Since(began) < time.Minute {
				time.Sleep(50 * time.Millisecond)
			}
			if took := time.Since(began); took < 2*time.Second || took > 10*time.Second && !dies {
				t.Errorf("n3 is dead: %v: the slot is the next visitor's after %v", dies, took)
			}
			other.post(fmt.Sprintf(`{"ends": [{"room": "shop", "token": %q, "as": "complete"}]}`, b.pass))
			w.Rest(4 * time.Second)
		}
	})
}

// TestALeaseOfAnotherNodeIsHeld: the batches of a connector reach another node than its questions, which
// has never given a lease: its file is a newer one, by which connectors ask each time. The session ends
// at a third node. The slot is not the next visitor's before the leases of those batches are over.
func TestALeaseOfAnotherNodeIsHeld(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		w, at := threeNodes(t, ", exclude: {paths: [/ping]}")
		if _, got := at["n2"].post(`{}`); got.Lease != 0 {
			t.Error("a node that has just started knows of all that has ended")
		}
		var a, b kept
		if !at["n3"].settles(&a) || at["n1"].enters(&b) {
			t.Fatal("a room for one does not let exactly one in")
		}
		w.Rest(12 * time.Second) // what n3 has given is over
		var until time.Time      // of the lease of the visitor inside, who is silent
		batch := func() {
			sent := time.Now()
			if _, got := at["n2"].post(`{}`); len(got.Gone) > 0 {
				until = sent
			} else if got.Lease > 0 {
				until = sent.Add(time.Duration(got.Lease * float64(time.Second)))
			}
		}
		if batch(); until.IsZero() {
			t.Fatal("no lease")
		}
		at["n1"].post(fmt.Sprintf(`{"ends": [{"room": "shop", "token": %q, "as": "complete"}]}`, a.pass))
		ended := time.Now()
		for !at["n1"].enters(&b) && time.Since(ended) < time.Minute {
			time.Sleep(50 * time.Millisecond)
		}
		if time.Now().Before(until) {
			t.Errorf("the next visitor is in %v before the lease of the one before is over", time.Until(until))
		}
		if batch(); until.After(time.Now()) {
			t.Error("n2 does not know that the session has ended")
		}
	})
}
