package signals

import (
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/adaptive"
)

// of returns a report of a node over five seconds.
func of(node string, inFlight float64, failed uint64) *Report {
	x := &Report{From: node, Length: Every, InFlight: inFlight}
	r := adaptive.Route{Class: "GET /", Answered: 100, Failed: failed}
	r.Latency.Add(time.Second, 100)
	x.Routes = append(x.Routes, r, adaptive.Route{Class: "GET /" + node, Answered: 1})
	return x
}

// Nodes add up, and the intervals of one node are averaged.
func TestNodesAddUp(t *testing.T) {
	var c Collector
	if x, n := c.Take(); n != 0 || x.Length != 0 || c.Complete() {
		t.Errorf("%d senders in an empty collector, %+v", n, x)
	}
	c.Put(of("a", 4, 0))
	c.Put(of("b", 10, 2))
	c.Put(of("a", 8, 1))
	x, n := c.Take()
	if r := route(x, "GET /"); n != 2 || x.InFlight != 6+10 || x.Length != 2*Every || r.Answered != 300 ||
		r.Failed != 3 || r.Latency.Total() != 300 {
		t.Errorf("%d senders, %v under way in %v, %+v", n, x.InFlight, x.Length, r)
	}
	if c.Complete() {
		t.Error("all have reported since, although none has")
	}
}

// A node that is silent does not count as one without requests, and what failed there long ago does
// not fail again. At last it is forgotten.
func TestASilentNodeIsNotZero(t *testing.T) {
	var c Collector
	c.Put(of("a", 4, 0))
	c.Put(of("b", 10, 2))
	c.Take()
	for k := range mostMissed + 2 {
		c.Put(of("a", 4, 0))
		if all := k > mostMissed; c.Complete() != all {
			t.Errorf("after %d intervals: complete %v", k, c.Complete())
		}
		x, n := c.Take()
		r := route(x, "GET /")
		want := [4]int{2, 14, 200, 100} // the times of an interval with failures are left out
		if k >= mostMissed {
			want = [4]int{1, 4, 100, 100}
		}
		got := [4]int{n, int(x.InFlight), int(r.Answered), int(r.Latency.Total())}
		if got != want || r.Failed != 0 {
			t.Errorf("after %d silent intervals: %v, want %v; %d failed", k+1, got, want, r.Failed)
		}
		if silent := route(x, "GET /b").Answered > 0; silent != (k < mostMissed) {
			t.Errorf("after %d silent intervals: the requests of b are there: %v", k+1, silent)
		}
	}
	c.Put(of("b", 10, 2)) // it is back
	c.Put(of("a", 4, 0))
	if x, n := c.Take(); n != 2 || route(x, "GET /").Failed != 2 {
		t.Errorf("%d senders, %+v", n, x)
	}
}

// Made up senders with made up routes fill little, and those of a small cluster keep all of their routes.
func TestRoutesAreBounded(t *testing.T) {
	var c Collector
	for _, n := range []int{32, 256} {
		for range 2 { // for what was taken last, too
			for k := range n {
				x := &Report{From: strconv.Itoa(k), Length: Every}
				for r := range adaptive.MaxRoutes {
					x.Routes = append(x.Routes, adaptive.Route{Class: strconv.Itoa(r), Answered: 1})
				}
				c.Put(x)
			}
			c.Take()
		}
		routes, answered := 0, 0
		for _, s := range c.of {
			if cap(s.last.Routes) > 2*adaptive.MaxRoutes {
				t.Fatalf("there is room for %d routes", cap(s.last.Routes))
			}
			routes += len(s.last.Routes) // a kilobyte each
			for i := range s.last.Routes {
				answered += int(s.last.Routes[i].Answered)
			}
		}
		if n == 32 && routes != 32*adaptive.MaxRoutes || routes > 5*mostRoutes ||
			answered != n*adaptive.MaxRoutes {
			t.Errorf("%d senders: %d routes are kept, of %d answers", n, routes, answered)
		}
	}
}

// A known sender finds room among those that nobody knows, and no known one makes room.
func TestKnownSendersFindRoom(t *testing.T) {
	var c Collector
	known := map[string]bool{"0": true, "known": true, "more": true}
	for k := range mostSenders {
		c.Put(&Report{From: strconv.Itoa(k), Length: Every})
	}
	put := func(from string) bool {
		c.MakeRoom(from, func() map[string]bool { return known })
		return c.Put(&Report{From: from, Length: Every})
	}
	if put("made up") || !put("known") || !put("known") || !put("0") || c.of["0"] == nil ||
		len(c.of) != mostSenders {
		t.Errorf("%d senders are kept, the known one: %v", len(c.of), c.of["known"] != nil)
	}
	for k := range mostSenders {
		known[strconv.Itoa(k)] = true
	}
	if put("more") {
		t.Error("a known sender makes room")
	}
}

// A worker that makes up names fills no memory.
func TestSendersAreBounded(t *testing.T) {
	var c Collector
	for k := range 2 * mostSenders {
		if ok := c.Put(&Report{From: strconv.Itoa(k), Length: Every}); ok != (k < mostSenders) {
			t.Fatalf("sender %d: %v", k, ok)
		}
	}
	if !c.Put(&Report{From: "7", Length: Every}) {
		t.Error("a known sender is refused")
	}
	for range mostMissed + 2 {
		c.Take()
	}
	if len(c.of) != 0 {
		t.Errorf("%d are kept for ever", len(c.of))
	}
}
