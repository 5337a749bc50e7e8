package exclude

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestClean(t *testing.T) {
	for path, want := range map[string]string{
		"/": "/", "/a": "/a", "/a/": "/a/", "//a": "/a", "/a/../b": "/b", "/a/..": "/", "/a;v=1/b": "/a/b",
		`/a\..\b`: "/b", "/./a/": "/a/", "/..": "/", "/a/..;/b": "/b", "/a.b": "/a.b", "/...": "/...",
	} {
		if got := Clean(path); got != want {
			t.Errorf("Clean(%q) = %q, want %q", path, got, want)
		}
	}
}

// TestCleanOnce: a clean path is as clean as it gets, whatever it was made of.
func TestHostname(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "shop.example": "shop.example",
		"shop.example:8080": "shop.example", "shop.example:": "shop.example",
		"shop.example.": "shop.example", "shop.example.:443": "shop.example", "Shop.Example": "Shop.Example",
		"192.0.2.1:80": "192.0.2.1", "[2001:db8::1]:80": "2001:db8::1", "[2001:db8::1]": "2001:db8::1",
		"2001:db8::1": "2001:db8::1", "::1": "::1",
		"[": "[", "]": "]", ":": "", ":80": "", ".": "", "[]": "", "[]:": "",
	} {
		if got := Hostname(in); got != want {
			t.Errorf("Hostname(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestCleanOnce(t *testing.T) {
	parts := []string{"/", "..", ".", ";", `\`, "a", "shop", "%2f", "//"}
	for range 20_000 {
		var b strings.Builder
		b.WriteByte('/')
		for range rand.IntN(9) {
			b.WriteString(parts[rand.IntN(len(parts))])
		}
		got := Clean(b.String())
		if again := Clean(got); again != got || strings.Contains(got, "//") ||
			strings.Contains(got+"/", "/../") || strings.Contains(got+"/", "/./") {
			t.Fatalf("Clean(%q) = %q, and of that %q", b.String(), got, again)
		}
	}
}

func TestAsking(t *testing.T) {
	path := "/shop/a"
	if n := testing.AllocsPerRun(100, func() { path = Clean(path) }); n > 0 {
		t.Errorf("%v allocations for a path that is clean", n)
	}
}

func TestJoinsForgetsAWindow(t *testing.T) {
	j := NewJoins(JoinLimit{Amount: 2})
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.77")
	for i, x := range []struct {
		from netip.Addr
		at   time.Duration
		want bool
	}{{a, 0, true}, {b, time.Second, true}, {a, 2 * time.Second, false}, {a, time.Minute, true}} {
		if got := j.Allow(x.from, x.at); got != x.want {
			t.Errorf("%d: %v, want %v", i, got, x.want)
		}
	}
}
