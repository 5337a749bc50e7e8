package counter

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/adaptive"
	"github.com/headgate/headgate/internal/signals"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
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
	auto := status.AutoLimit{Mode: autoOn, Min: 5, Max: 60, Start: 12}
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
	set(status.AutoLimit{Mode: autoEvent}, 40)
	is("an event's number", 0) // the configuration has it
	c.await("nothing is found any more", 3*signals.Every, func() bool { return one().State(0, 0).Auto == nil })
	auto.Mode = autoFrozen
	set(auto, 30)
	is("frozen after an event", 15)

	set(status.AutoLimit{Mode: "number"}, 40)
	is("an operator's number", 0)
	set(auto, 30)
	is("a number that is frozen", 40)
	old = slices.IndexFunc(all, func(n *node) bool { return n.seat.host.Load() != nil })
	all[old].stop()
	all = slices.Delete(all, old, old+1)
	one()
	is("the next host holds it", 40)
	if format(t, one()) < 9 {
		t.Error("what was learned is lost")
	}

	set(status.AutoLimit{}, 33)
	c.await("a record that earlier versions can read", 3*signals.Every, func() bool {
		return format(t, one()) < 9
	})
	set(auto, 30)
	is("a number of the file that is frozen", 33)
}

// format returns the format of the host's record.
func format(t *testing.T, host *Counter) byte {
	t.Helper()
	host.mu.Lock()
	defer host.mu.Unlock()
	b, err := host.pool.Record().AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b[0]
}

// Limits that were found are no configuration: a node that did not hear of them takes over with its own
// number, also with a lower one, and with what an operator has set meanwhile.
func TestFoundLimitsAreNoConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &store.Memory{}
		auto := status.AutoLimit{Mode: autoOn, Min: 5, Max: 5000, Start: 12}
		next := byte('a')
		open := func(after uint64, active int64, a status.AutoLimit) *Counter {
			t.Helper()
			next++
			return laned(t, string(next), disk, func(c *Config) {
				c.After, c.Active.N, c.Auto = after, active, a
			})
		}
		c := open(0, 12, auto)
		_, _, rev := c.limits()
		for _, found := range []int64{1730, 150} {
			for _, own := range []status.AutoLimit{{}, {Mode: autoShadow, Min: 50, Max: 5000}} {
				c.putLimits(t.Context(), found, 60)
				if active, _, now := c.limits(); active.N != found || now != rev {
					t.Fatalf("%d, want %d; the revision was %d and is %d", active.N, found, rev, now)
				}
				if c = open(rev+1, 200, own); c.cfg.Active.N != 200 {
					t.Errorf("%d were found, and %d are in force after a takeover with 200", found, c.cfg.Active.N)
				}
				s := c.cfg.Settings
				s.Active.N = 100
				if err := c.Reconfigure(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				if c = open(rev+1, 200, own); c.cfg.Active.N != 100 {
					t.Errorf("an operator has set 100, and %d are in force after a takeover", c.cfg.Active.N)
				}
				c = open(0, 12, auto)
				_, _, rev = c.limits()
			}
		}
	})
}

// Below Anywhere the limits are those that Anywhere has found, whatever the mode is, and a takeover goes
// on with them: what was learned is at Anywhere. What the room learned before it had data centers does not
// count.
func TestLimitsBelowAnywhereAreThoseOfAnywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &store.Memory{}
		var learned adaptive.State
		learned.SetLimits(55, 60)
		alone, _ := learned.MarshalBinary()
		for i, mode := range []string{autoOn, autoFrozen, autoFrozen, autoOn} {
			cfg := brokenConfig("shop", disk, brokenSites("lhr", disk, "sjc"), time.Now(), time.Minute)
			cfg.Host, cfg.Active.N = string(rune('a'+i)), 12
			cfg.Auto = status.AutoLimit{Mode: mode, Min: 5, Max: 60, Start: 12}
			c, err := Open(t.Context(), cfg, nil)
			if err != nil {
				t.Fatal(err)
			}
			if want := int64(12 + 10*i); c.cfg.Active.N != want {
				t.Errorf("%s: %d after a takeover, want %d", mode, c.cfg.Active.N, want)
			}
			c.mu.Lock()
			if i == 0 {
				c.pool.SetFound(alone)
			}
			x, _ := c.upSync(c.cfg.Boot())
			name := slot.WriteName{Life: 1, Epoch: 1, Writes: uint64(i + 1)}
			c.upHeard(slot.Answer{Name: name, Loan: x.Loan, Seq: x.Seq, Term: time.Minute,
				Time: slot.Time(i + 1)}, c.cfg.Boot())
			c.mu.Unlock()
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- c.rounds(ctx) }()
			c.putLimits(t.Context(), int64(22+10*i), 60)
			if want := int64(22 + 10*i); c.cfg.Active.N != want {
				t.Errorf("%s: %d, and Anywhere has found %d", mode, c.cfg.Active.N, want)
			}
			stop()
			<-done
		}
	})
}
