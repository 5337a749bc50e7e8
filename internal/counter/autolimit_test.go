package counter

import (
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/signals"
	"github.com/headgate/headgate/status"
	"github.com/headgate/headgate/tests/virtual"
)

// Limits that are found are those of the record: they survive the host, whatever the next one begins with,
// and settings change their bounds alone.
func TestFoundLimitsAreTheRecords(t *testing.T) { virtual.Test(t, testFoundLimits) }

func testFoundLimits(t *testing.T) {
	c := newCluster(t)
	all := []*node{c.start("n1"), c.start("n2"), c.start("n3")}
	set := func(a status.AutoLimit, active int64) {
		t.Helper()
		s := c.settings()
		s.Auto, s.Active.N = a, active
		host := slices.IndexFunc(all, func(n *node) bool { return n.seat.host.Load() != nil })
		for k := range all { // the host first: the others wait for it
			if err := all[(host+k)%len(all)].seat.Reconfigure(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
	}
	is := func(what string, active int64) {
		t.Helper()
		c.await(what, 2*signals.Every, func() bool {
			return !slices.ContainsFunc(all, func(n *node) bool { return n.seat.State(0, 0).Limits.Active != active })
		})
	}
	one := func() *Counter {
		t.Helper()
		c.await("a host", 10*time.Second, func() bool { return len(c.hosts(all...)) == 1 })
		at := slices.IndexFunc(all, func(n *node) bool { return n.seat.host.Load() != nil })
		return all[at].seat.host.Load()
	}
	one()
	auto := status.AutoLimit{Mode: autoOn, Min: 5, Max: 50, Start: 12}
	set(auto, 12)
	c.await("the state everywhere", 3*signals.Every, func() bool {
		return !slices.ContainsFunc(all, func(n *node) bool { return n.seat.State(0, 0).Auto == nil })
	})
	is("it begins at start", 12)

	host := one()
	host.mu.Lock()
	if len(host.pool.Record().Found) == 0 {
		t.Error("nothing is in the record")
	}
	host.mu.Unlock()
	auto.Mode, auto.Start = autoFrozen, 30
	set(auto, 30)
	is("frozen", 12)
	old := slices.IndexFunc(all, func(n *node) bool { return n.seat.host.Load() != nil })
	all[old].stop()
	all = slices.Delete(all, old, old+1)
	one()
	is("the next host goes on with it", 12)
	auto.Min = 15
	set(auto, 30)
	is("bounds are kept", 15)
	auto.Mode = autoShadow
	set(auto, 30)
	is("in shadow, the limit is the file's", 30)
	set(status.AutoLimit{}, 40)
	is("a number", 0) // the configuration has it
	c.await("nothing is found any more", 3*signals.Every, func() bool { return one().State(0, 0).Auto == nil })
}
