package proxy

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestClientAddr(t *testing.T) {
	trusted := prefixes("10.0.0.0/8", "fd00::/8", "fe80::/10")
	for _, tt := range []struct {
		name, remote string
		xff          []string
		want         string // "" is the zero Addr
	}{
		{"direct", "203.0.113.9:4711", nil, "203.0.113.9"},
		{"direct and forged", "203.0.113.9:4711", []string{"1.1.1.1"}, "203.0.113.9"},
		{"mapped peer", "[::ffff:203.0.113.9]:1", nil, "203.0.113.9"},
		{"mapped trusted peer", "[::ffff:10.0.0.1]:1", []string{"1.1.1.1"}, "1.1.1.1"},
		{"zone", "[fe80::1%eth0]:1", nil, "fe80::1"},
		{"one proxy", "10.0.0.1:1", []string{"1.1.1.1"}, "1.1.1.1"},
		{"forged before the proxy", "10.0.0.1:1", []string{"6.6.6.6, 1.1.1.1"}, "1.1.1.1"},
		{"forged as trusted", "10.0.0.1:1", []string{"10.9.9.9, 1.1.1.1"}, "1.1.1.1"},
		{"chain", "10.0.0.1:1", []string{"1.1.1.1, 10.0.0.3,10.0.0.2"}, "1.1.1.1"},
		{"lines", "10.0.0.1:1", []string{"6.6.6.6", "1.1.1.1", "10.0.0.2 , 10.0.0.3"}, "1.1.1.1"},
		{"all trusted", "10.0.0.1:1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"garbage", "10.0.0.1:1", []string{"1.1.1.1, unknown, 10.0.0.2"}, "10.0.0.2"},
		{"only garbage", "10.0.0.1:1", []string{"<script>"}, "10.0.0.1"},
		{"empty", "10.0.0.1:1", []string{""}, "10.0.0.1"},
		{"empty entry", "10.0.0.1:1", []string{"1.1.1.1,,10.0.0.2"}, "10.0.0.2"},
		{"ports", "10.0.0.1:1", []string{"1.1.1.1:99, [fd00::7]:80"}, "1.1.1.1"},
		{"brackets", "10.0.0.1:1", []string{"[2001:db8::1], 10.0.0.2"}, "2001:db8::1"},
		{"mapped entry", "10.0.0.1:1", []string{"1.1.1.1, ::ffff:10.0.0.2"}, "1.1.1.1"},
		{"no port", "10.0.0.1", []string{"1.1.1.1"}, "1.1.1.1"},
		{"Unix socket", "@", []string{"1.1.1.1"}, ""},
		{
			"too many hops", "10.0.0.1:1",
			[]string{"1.1.1.1" + strings.Repeat(", 10.0.0.2", maxHops)}, "10.0.0.2",
		},
		{
			"as many as may be", "10.0.0.1:1",
			[]string{"1.1.1.1" + strings.Repeat(", 10.0.0.2", maxHops-1)}, "1.1.1.1",
		},
		{
			"hidden by padding", "10.0.0.1:1",
			[]string{"x" + strings.Repeat(" ", maxHop) + "1.1.1.1"}, "10.0.0.1",
		},
		{
			"padded", "10.0.0.1:1",
			[]string{"1.1.1.1" + strings.Repeat(" ", 1<<20)}, "10.0.0.1",
		},
	} {
		r := &http.Request{RemoteAddr: tt.remote, Header: http.Header{"X-Forwarded-For": tt.xff}}
		var want netip.Addr
		if tt.want != "" {
			want = netip.MustParseAddr(tt.want)
		}
		if got := ClientAddr(r, trusted); got != want {
			t.Errorf("%s: %v, want %v", tt.name, got, want)
		}
	}
}

// slowClientAddr is ClientAddr, implemented by splitting everything first.
func slowClientAddr(remote, xff string, trusted []netip.Prefix) netip.Addr {
	isTrusted := func(a netip.Addr) bool {
		for _, p := range trusted {
			if p.Contains(a) {
				return true
			}
		}
		return false
	}
	addr, ok := peerAddr(remote)
	if !ok || !isTrusted(addr) {
		return addr
	}
	var hops []string
	for line := range strings.SplitSeq(xff, "\n") {
		hops = append(hops, strings.Split(line, ",")...)
	}
	for n := 0; n < maxHops && n < len(hops); n++ {
		raw := hops[len(hops)-1-n]
		// An entry counts together with its comma; the first has none.
		hop, ok := parseHop(strings.Trim(raw, " \t"))
		if !ok || len(raw) > maxHop-1 && len(raw) != maxHop {
			return addr
		}
		if addr = hop; !isTrusted(addr) {
			return addr
		}
	}
	return addr
}

func FuzzClientAddr(f *testing.F) {
	for _, xff := range []string{
		"", "1.1.1.1", "1.1.1.1, 10.0.0.1", "1.1.1.1\n10.0.0.1,10.0.0.2", ",", "\n", "::1%x, [::1]:80",
		"1.1.1.1" + strings.Repeat(",10.0.0.1", 20), "::ffff:10.0.0.1", "[1.1.1.1]", "1.1.1.1:999999",
	} {
		f.Add("10.0.0.1:80", xff)
		f.Add("[fe80::1%lo]:80", xff)
	}
	trusted := prefixes("10.0.0.0/8", "::/16", "fe80::/10")
	f.Fuzz(func(t *testing.T, remote, xff string) {
		for raw := range strings.SplitSeq(strings.ReplaceAll(xff, "\n", ","), ",") {
			if len(raw) == maxHop {
				return // the one length at which the oracle would have to count the comma
			}
		}
		r := &http.Request{RemoteAddr: remote, Header: http.Header{}}
		r.Header["X-Forwarded-For"] = strings.Split(xff, "\n")
		got := ClientAddr(r, trusted)
		if want := slowClientAddr(remote, xff, trusted); got != want {
			t.Fatalf("%q %q: %v, want %v", remote, xff, got, want)
		}
		if got.Is4In6() || got.Zone() != "" {
			t.Fatalf("%v is not plain", got)
		}
	})
}

func BenchmarkClientAddr(b *testing.B) {
	trusted := prefixes("10.0.0.0/8", "fd00::/8")
	for name, xff := range map[string]string{
		"direct":    "",
		"proxied":   "1.1.1.1, 10.0.0.3, 10.0.0.2",
		"1MBSpaces": strings.Repeat(" ", 1<<20),
		"1MBHops":   strings.Repeat("10.0.0.2,", 1<<20/9) + "10.0.0.2",
	} {
		b.Run(name, func(b *testing.B) {
			r := &http.Request{RemoteAddr: "10.0.0.1:80", Header: http.Header{}}
			if xff != "" {
				r.Header.Set("X-Forwarded-For", xff)
			}
			b.ReportAllocs()
			for b.Loop() {
				ClientAddr(r, trusted)
			}
		})
	}
}
