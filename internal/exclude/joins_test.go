package exclude

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// TestOneNetworkIsOverItsLimit checks that a network stays above the limit while it sends too many,
// that rejected newcomers count too, and that the next wider network may send twice as many.
func TestOneNetworkIsOverItsLimit(t *testing.T) {
	j := NewJoins(JoinLimit{Amount: 4})
	over := func(from string, at time.Duration) bool {
		yes, _ := j.Over(netip.MustParseAddr(from), at)
		return yes
	}
	for i, x := range []struct {
		from string
		at   time.Duration
		want bool
	}{
		{"192.0.2.1", 0, false}, {"192.0.2.1", 0, false}, {"192.0.2.1", 0, false}, {"192.0.2.1", 0, false},
		{"192.0.2.1", time.Second, true},        // the fifth of a /32
		{"192.0.2.2", time.Second, false},       // the sixth of its /24
		{"192.0.2.3", time.Second, false},       // the seventh
		{"192.0.2.4", time.Second, false},       // the eighth
		{"192.0.2.5", time.Second, true},        // the ninth
		{"192.0.3.1", time.Second, false},       // another /24
		{"192.0.2.1", time.Minute, true},        // five of the previous window still count
		{"192.0.2.1", 110 * time.Second, false}, // a sixth of those, and one of this window
		{"192.0.2.1", 5 * time.Minute, false},
		{"2001:db8::1", 5 * time.Minute, false}, {"2001:db8::2", 5 * time.Minute, false},
		{"2001:db8::3", 5 * time.Minute, false}, {"2001:db8::4", 5 * time.Minute, false},
		{"2001:db8::5", 5 * time.Minute, true},       // one /64
		{"2001:db8:0:1::1", 5 * time.Minute, false},  // another /64 of the /48
		{"::ffff:192.0.2.1", 5 * time.Minute, false}, // an IPv4 address
	} {
		if got := over(x.from, x.at); got != x.want {
			t.Errorf("%d: %s at %v: %v", i, x.from, x.at, got)
		}
	}
	for range 100 {
		if over("127.0.0.1", 6*time.Minute) || over("::1", 6*time.Minute) {
			t.Fatal("the machine itself is limited")
		}
	}
}

// TestAFloodOfNetworksIsBounded checks that too many networks begin a new window, and that the
// counts of the previous window still count.
func TestAFloodOfNetworksIsBounded(t *testing.T) {
	j := NewJoins(JoinLimit{Amount: 4})
	loud := netip.MustParseAddr("198.51.100.1")
	for range 100 {
		j.Over(loud, 0)
	}
	for i := range 3 * maxNetworks {
		j.Over(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 0)
		if i == maxNetworks {
			if over, _ := j.Over(loud, 0); !over {
				t.Error("a flood of others has washed the count of a network away")
			}
		}
		if len(j.now) > maxNetworks+1 || len(j.before) > maxNetworks+1 {
			t.Fatalf("%d and %d networks are kept", len(j.now), len(j.before))
		}
	}
}

// TestOneAddressForAllIsTold checks that this is reported once in a row of windows.
func TestOneAddressForAllIsTold(t *testing.T) {
	j := NewJoins(JoinLimit{Amount: 60})
	told := 0
	send := func(from string, n int, at time.Duration) {
		for range n {
			if _, alone := j.Over(netip.MustParseAddr(from), at); alone {
				told++
			}
		}
	}
	for minute := range 3 {
		send("127.0.0.1", 99, time.Duration(minute)*time.Minute)
		send("192.0.2.9", 1, time.Duration(minute)*time.Minute)
	}
	if told != 1 || !j.Lone(3*time.Minute) {
		t.Errorf("told %d times, lone %v", told, j.Lone(3*time.Minute))
	}
	for i := range 100 {
		send(fmt.Sprintf("192.0.2.%d", i), 1, 4*time.Minute)
	}
	if j.Lone(5 * time.Minute) {
		t.Error("many addresses are one")
	}
}

// TestANetworkHasOneNumber checks that all addresses of a network have one number, at each node.
func TestANetworkHasOneNumber(t *testing.T) {
	j := NewJoins(JoinLimit{Amount: 60, PrefixV4: 24, DrawWeight: 10})
	of := func(a string) uint32 { return j.Network(netip.MustParseAddr(a), 7) }
	if of("192.0.2.1") != of("::ffff:192.0.2.200") || of("2001:db8::1") != of("2001:db8::2:3:4:5") {
		t.Error("addresses of one network have two numbers")
	}
	if of("192.0.2.1") == of("192.0.3.1") || of("2001:db8::1") == of("2001:db8:0:1::1") || of("192.0.2.1") == 0 {
		t.Error("two networks have one number, or none")
	}
	if j.Network(netip.MustParseAddr("192.0.2.1"), 8) == of("192.0.2.1") {
		t.Error("a network has the same number in two lines")
	}
	if of("127.0.0.1") != 0 || NewJoins(JoinLimit{Amount: 60}).Network(netip.MustParseAddr("192.0.2.1"), 7) != 0 ||
		NewJoins(JoinLimit{DrawWeight: 10}).Network(netip.MustParseAddr("192.0.2.1"), 7) != 0 {
		t.Error("a network has a weight where there is none")
	}
}
