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
			return !slices.ContainsFunc(all, func(n *node) bool {
				return n.seat.State(0, 0).Limits.Active != active
			})
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

	// As after an event with numbers of its own: they are not what was found.
	auto.Mode = autoFrozen
	set(auto, 30)
	is("frozen after an event", 15)
}

// A node whose file has a lower number, or a lower max, takes over a record with limits that were found.
func TestFoundLimitsAreNoConfiguration(t *testing.T) {
	for _, x := range []struct {
		what                string
		own                 Settings
		active, fresh       int64
		wantActive, wantNew int64
	}{
		{"a number", limitsOfN(200, 60), 1730, 90, 200, 60},
		{"it was lowered live", limitsOfN(200, 60), 150, 30, 150, 30},
		{"a lower max", limitsOfN(5, 60), 1730, 60, 500, 60},
		{"shadow", limitsOfN(50, 60), 1730, 60, 50, 60},
	} {
		switch x.what {
		case "a lower max":
			x.own.Auto = status.AutoLimit{Mode: autoOn, Min: 5, Max: 500}
		case "shadow":
			x.own.Auto = status.AutoLimit{Mode: autoShadow, Min: 50, Max: 5000}
		}
		s := limitsOfN(x.active, x.fresh)
		within := s.within(&x.own)
		if s.Active.N != x.wantActive || s.New.N != x.wantNew || within != (x.active == x.wantActive) {
			t.Errorf("%s: %d and %d, %v", x.what, s.Active.N, s.New.N, within)
		}
	}
}

func limitsOfN(active, fresh int64) (s Settings) {
	s.Active.N, s.New.N = active, fresh
	return s
}
