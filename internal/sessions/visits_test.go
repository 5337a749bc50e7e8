package sessions

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// There is no host for ten minutes, because two of three store nodes are down. Counter time stands
// still, while the worker's estimate runs on. A download that ends meanwhile must not be reported
// as seen in the future of the next host. Otherwise its slot would be held for the outage plus a
// session.
func TestNobodyIsSeenInTheFuture(t *testing.T) {
	now := slot.Time(time.Hour)
	v := New(func() (lo, hi slot.Time) { return now, now }, func() time.Duration { return time.Minute })
	rules := &Rules{Session: time.Minute, Longest: time.Minute, Grid: 1}
	v.Enter(&Session{ID: 1, End: now.Add(time.Minute)}) // a download
	v.Enter(&Session{ID: 2, End: now.Add(time.Minute)}) // and one that continues
	now = now.Add(30 * time.Second)
	host := now // its last counter time
	now = now.Add(10 * time.Minute)
	v.Leave(1)
	now = host.Add(time.Second) // the worker receives from the next host
	told := 0
	v.Report(now, rules, func(it slot.Item) bool {
		told++
		if it.At > now {
			t.Errorf("stay %d was seen at %v, %v from now", it.ID, it.At, it.At.Sub(now))
		}
		return true
	})
	if told != 2 {
		t.Errorf("%d stays renewed, want 2", told)
	}
}

func TestAllWhoAreInFlightAreRenewedHoweverMany(t *testing.T) {
	v := New(func() (lo, hi slot.Time) { return 1, 1 }, nil)
	rules := &Rules{Session: time.Minute, Longest: time.Minute, Grid: 1}
	const n = 30_000
	for i := range n {
		v.Enter(&Session{ID: slot.SessionID(i + 1), End: slot.Time(time.Minute)})
	}
	seen := map[slot.SessionID]bool{}
	for round := range 3 {
		k := 0
		v.Report(slot.Time(time.Duration(round+1)*time.Second), rules, func(it slot.Item) bool {
			seen[it.ID] = true
			k++
			return k < 20_000
		})
	}
	if len(seen) < n {
		t.Errorf("%d of %d were never renewed", n-len(seen), n)
	}
}

// Sharing of passes is counted in bounded memory, and a visitor who does not share a pass costs no
// memory for each request.
func TestNetworksOfAPassAreBounded(t *testing.T) {
	v := New(func() (lo, hi slot.Time) { return 1, 1 }, nil)
	y := Session{ID: 7, End: slot.Time(time.Hour), Sharing: Sharing{Networks: 3, Action: Mark}}
	enter := func(addr, agent string) Entry {
		y.Source = v.Source(netip.MustParseAddr(addr), agent)
		_, _, how := v.Enter(&y)
		return how
	}
	for i := range 1000 {
		if how := enter(fmt.Sprintf("10.%d.%d.1", i/200, i%200), fmt.Sprint(i)); how != In {
			t.Fatal(i, how)
		}
		networks, agents := v.Shown(7)
		if want := min(i+1, MaxSeen+1); networks > want || agents > want || i > 50 && networks != want {
			t.Fatalf("%d networks and %d agents after %d", networks, agents, i+1)
		}
	}
	if n := v.Shared.Load(); n != 1 {
		t.Errorf("%d visits are shared", n)
	}
	if n := testing.AllocsPerRun(100, func() { enter("192.0.2.7", "one") }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	y.ID = 8
	for _, addr := range []string{"192.0.2.1", "192.0.2.200", "::ffff:192.0.2.3", "2001:db8:1::1",
		"2001:db8:1:ff::2"} {
		enter(addr, "one")
	}
	if networks, agents := v.Shown(8); networks != 2 || agents != 1 {
		t.Errorf("%d networks and %d agents, want 2 and 1", networks, agents)
	}
}

// TestAForeignNetworkIsNotTakenForAnother: a pass that is shared is used in as many networks as are
// allowed, and a network whose hash happens to equal another's is as rare as promised. With 16 bits,
// nine of these networks would be let in.
func TestAForeignNetworkIsNotTakenForAnother(t *testing.T) {
	v := New(func() (lo, hi slot.Time) { return 1, 1 }, nil)
	y := Session{ID: 7, End: slot.Time(time.Hour), Sharing: Sharing{Networks: 3, Action: Wait}}
	in := 0
	for i := range 200_000 {
		y.Source = v.Source(netip.AddrFrom4([4]byte{byte(1 + i>>16), byte(i >> 8), byte(i), 7}), "")
		if _, _, how := v.Enter(&y); how == In {
			in++
		}
	}
	if in < 3 || in > 4 { // two equal hashes happen once in 100 million runs
		t.Errorf("%d of 200,000 networks are in, want 3", in)
	}
}

// When the pass of a ticket comes back, this worker reports it to the counter once, also when
// sessions are fixed and nothing else of the session needs a report.
func TestAPassThatComesBackIsReportedOnce(t *testing.T) {
	for _, fixed := range []bool{false, true} {
		now := slot.Time(time.Hour)
		v := New(func() (lo, hi slot.Time) { return now, now }, func() time.Duration { return time.Minute })
		rules := &Rules{Session: time.Minute, Longest: time.Minute, Grid: 1, Fixed: fixed}
		told := func() (n int) {
			v.Report(now, rules, func(it slot.Item) bool {
				if it.Returned() {
					n++
				}
				return true
			})
			return n
		}
		y := Session{ID: 7, End: now.Add(time.Minute), Claimed: true}
		for _, y.New = range []bool{true, true} { // claimed, and claimed again
			v.Enter(&y)
			v.Leave(7)
			if n := told(); n != 0 {
				t.Fatalf("fixed %v: reported before the pass has come back", fixed)
			}
		}
		y.New = false
		for i := range 3 {
			now = now.Add(time.Second)
			v.Enter(&y)
			v.Leave(7)
			if n := told(); n != max(0, 1-i) {
				t.Errorf("fixed %v: reported %d times by request %d", fixed, n, i)
			}
		}
	}
}

// TestABriefStayIsRenewedOnceItIsAnswered: for a session that is no longer than a probation, a slow
// request body holds the slot only for short times, so that the record contains when it comes back.
// After an answer it is a session like any other.
func TestABriefStayIsRenewedOnceItIsAnswered(t *testing.T) {
	const session = 6 * time.Second
	now := slot.Time(time.Hour)
	v := New(func() (lo, hi slot.Time) { return now, now }, func() time.Duration { return session })
	rules := &Rules{Session: session, Longest: session, Grid: 1}
	v.Enter(&Session{ID: 1, End: now.Add(session), Brief: true, New: true})
	renewed := func() (end slot.Time) {
		v.Report(now, rules, func(it slot.Item) bool { end = it.At.Add(session); return true })
		return end
	}
	now = now.Add(time.Second)
	if end := renewed(); end != 0 {
		t.Errorf("renewed to %v from now", end.Sub(now))
	}
	now = now.Add(session - 2*time.Second)
	if end := renewed(); end != now.Add(HoldFixed) {
		t.Errorf("held for %v, want %v", end.Sub(now), HoldFixed)
	}
	v.Answered(1)
	if end := renewed(); end != now.Add(session) {
		t.Errorf("answered, and renewed to %v from now, want %v", end.Sub(now), session)
	}
}
