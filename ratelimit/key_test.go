package ratelimit

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

func TestRequestKey(t *testing.T) {
	header := KeyPart{Kind: KeyHeader, Name: "X-Client"}
	address := KeyPart{Kind: KeyClientAddress}
	method, host, path := KeyPart{Kind: KeyMethod}, KeyPart{Kind: KeyHost}, KeyPart{Kind: KeyPath}
	cookie := KeyPart{Kind: KeyCookie, Name: "sid"}
	long := strings.Repeat("x", MaxKey+1)
	sum := sha256.Sum256([]byte(long))
	hashed := "~sha256:" + hex.EncodeToString(sum[:])
	set := func(values ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header["X-Client"] = values }
	}
	cookies := func(line string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Cookie", line) }
	}
	from := func(addr string) func(*http.Request) {
		return func(r *http.Request) { r.RemoteAddr = addr }
	}
	tests := []struct {
		name  string
		parts []KeyPart
		with  func(*http.Request)
		want  string
	}{
		{"one key for all", nil, nil, ""},
		{"a header", []KeyPart{header}, set("bob"), "bob"},
		{"its name in any case", []KeyPart{{Kind: KeyHeader, Name: "x-client"}}, set("bob"), "bob"},
		{"signs of others in it", []KeyPart{header}, set("a|b%25"), "a|b%25"},
		{"empty is not missing", []KeyPart{header}, set(""), ""},
		{"missing", []KeyPart{header}, nil, "~"},
		{"not to be forged", []KeyPart{header}, set("~"), "~~"},
		{"nor by two", []KeyPart{header}, set("~~"), "~~~"},
		{"several values share one key", []KeyPart{header}, set("a", "b"), "~several"},
		{"also other ones", []KeyPart{header}, set("c", "a", "a"), "~several"},
		{"not to be forged either", []KeyPart{header}, set("~several"), "~~several"},
		{"one value several times", []KeyPart{header}, set("a", "a"), "a"},
		{"as long as may be", []KeyPart{header}, set(long[1:]), long[1:]},
		{"too long", []KeyPart{header}, set(long), hashed},
		{"a hash cannot be forged", []KeyPart{header}, set(hashed), "~" + hashed},
		{"the header Host", []KeyPart{{Kind: KeyHeader, Name: "host"}}, nil, "example.com"},
		{"address", []KeyPart{address}, nil, "192.0.2.1"},
		{"address, IPv6", []KeyPart{address}, from("[2001:db8:1:2:3::4]:1"), "2001:db8:1:2::/64"},
		{"address, IPv4 in IPv6", []KeyPart{address}, from("[::ffff:192.0.2.9]:1"), "192.0.2.9"},
		{"address, with a zone", []KeyPart{{Kind: KeyClientAddress, Prefix6: 128}},
			from("[fe80::1%eth0]:1"), "fe80::1"},
		{"address, prefixes", []KeyPart{{Kind: KeyClientAddress, Prefix4: 24}}, nil, "192.0.2.0/24"},
		{"address, impossible prefix", []KeyPart{{Kind: KeyClientAddress, Prefix4: 99}}, nil, "192.0.2.1"},
		{"address, none", []KeyPart{address}, from("@"), "~"},
		{"cookie", []KeyPart{cookie}, cookies("xsid=0; sid=1"), "1"},
		{"cookie, several values", []KeyPart{cookie}, cookies("sid=1; sid=2"), "~several"},
		{"cookie, several times", []KeyPart{cookie}, cookies("sid=1; a=b; sid=1"), "1"},
		{"cookie, none", []KeyPart{cookie}, cookies("xsid=0"), "~"},
		{"path", []KeyPart{path}, func(r *http.Request) { r.URL.Path = "/a//b/./../c/" }, "/a/c/"},
		{"method", []KeyPart{method}, nil, "GET"},
		{"host", []KeyPart{host}, func(r *http.Request) { r.Host = "Shop.Example.:8080" }, "shop.example"},
		{"host, IPv6", []KeyPart{host}, func(r *http.Request) { r.Host = "[::1]" }, "::1"},
		{"host, IPv6 and a port", []KeyPart{host}, func(r *http.Request) { r.Host = "[::1]:80" }, "::1"},
		{"host, none", []KeyPart{host}, func(r *http.Request) { r.Host = "" }, "~"},
		{"several", []KeyPart{header, address, method}, set("bob"), "bob|192.0.2.1|GET"},
		{"several, one missing", []KeyPart{header, method}, nil, "~|GET"},
		{"several, a sign in one", []KeyPart{header, method}, set("bob|GET%7c"), "bob%7cGET%257c|GET"},
		{"unknown kind", []KeyPart{{Kind: "planet"}}, nil, "~"},
	}
	for _, tt := range tests {
		r := httptest.NewRequest("GET", "/", nil)
		if tt.with != nil {
			tt.with(r)
		}
		if got := RequestKey(tt.parts, r, nil); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	r := httptest.NewRequest("GET", "/", nil)
	set(strings.Repeat("|", MaxKey))(r)
	if got := RequestKey([]KeyPart{header, method}, r, nil); len(got) != len(hashed) {
		t.Errorf("a long one of several: %q", got)
	}
	addr := func(*http.Request) netip.Addr { return netip.MustParseAddr("::ffff:203.0.113.7") }
	if got := RequestKey([]KeyPart{address}, r, addr); got != "203.0.113.7" {
		t.Errorf("by trusted proxies: %q", got)
	}
}

func TestRequestKeyOfAHeaderNeedsNoMemory(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-Client", "bob")
	parts := []KeyPart{{Kind: KeyHeader, Name: "X-Client"}}
	if n := testing.AllocsPerRun(100, func() { RequestKey(parts, r, nil) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Requests that differ in a part never have the same key.
func FuzzRequestKey(f *testing.F) {
	f.Add("a", "b", "a|b", "")
	f.Add("~", "", "~|", "~")
	f.Add("a%7c", "b", "a|", "b")
	f.Add(strings.Repeat("a", MaxKey), "b", "~sha256:", "")
	parts := []KeyPart{{Kind: KeyHeader, Name: "X-A"}, {Kind: KeyHeader, Name: "X-B"}}
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		key := func(n int, a, b string) string {
			h := http.Header{}
			if a != "" { // here an empty value stands for none
				h["X-A"] = []string{a}
			}
			if b != "" {
				h["X-B"] = []string{b}
			}
			k := RequestKey(parts[:n], &http.Request{Header: h}, nil)
			if len(k) > MaxKey {
				t.Fatalf("%d bytes", len(k))
			}
			return k
		}
		if same := key(2, a, b) == key(2, c, d); same != (a == c && b == d) {
			t.Errorf("%q %q and %q %q: same %v", a, b, c, d, same)
		}
		if same := key(1, a, "") == key(1, c, ""); same != (a == c) {
			t.Errorf("%q and %q: same %v", a, c, same)
		}
	})
}
