package paths

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// of returns the readings of a request target as a server parses it.
func of(t testing.TB, target string) Readings {
	t.Helper()
	u, err := url.ParseRequestURI(target)
	if err != nil {
		t.Fatal(err)
	}
	Keep(u)
	return Of(u)
}

func all(p *Readings) (all []string) {
	for i := range p.Len() {
		all = append(all, p.At(i))
	}
	return all
}

func TestReadings(t *testing.T) {
	for _, x := range []struct{ target, clean, all string }{ // in all, _ stands for a space
		{"/", "/", "/"},
		{"/a/b.html?x=..%2f", "/a/b.html", "/a/b.html"},
		{"/a/", "/a/", "/a/"},
		{"/.well-known/x", "/.well-known/x", "/.well-known/x"},
		{"/...", "/", "/ /..."},
		{"/a.", "/a", "/a /a."},
		{"/a.%20/b%20.", "/a/b", "/a._/b_ /a._/b_. /a/b"},
		{"/a/..%20/b", "/b", "/a/.._/b /a/../b /b"},
		{"/caf%C3%A9", "/café", "/café"},
		{"/caf\xc3\xa9", "/café", "/café"},
		{"/a%20b%22", `/a b"`, `/a_b"`},
		{"/(a)", "/(a)", "/(a)"},
		{"/a,b", "/a,b", "/a,b"},
		{"/a%2Cb", "/a,b", "/a%2Cb /a,b"},
		{"/%61", "/a", "/%61 /a"},
		{"/a%2fb", "/a/b", "/a%2fb /a/b"},
		{"//a", "/a", "//a /a /"},
		{"//h/a", "/h/a", "//h/a /h/a /a"},
		{"///h/a", "/h/a", "///h/a /h/a /a"},
		{"////h/a", "/h/a", "////h/a //h/a /h/a /a"},
		{"/a//h/b", "/a/h/b", "/a//h/b /a/h/b"},
		{"/./a", "/a", "/./a /a"},
		{"/a;v=1/b", "/a/b", "/a /a/b /a;v=1/b"},
		{`/a\b`, "/a/b", `/a/b /a\b`},
		{"/a%252fb", "/a/b", "/a%2fb /a/b"},
		{"/a%3fb", "/a", "/a /a?b"},
		{"/a/..%2fb", "/b", "/a/..%2fb /a/../b /b"},
		{"/a/%2e%2e/b", "/b", "/a/%2e%2e/b /a/../b /b"},
		{"/a/..;x/b", "/b", "/a/.. /a/../b /a/..;x/b / /b"},
		{"/a/.", "/a/", "/a /a/ /a/."},
		{"/a//../b", "/b", "/a//../b /a/../b /a/b /b"},
	} {
		p := of(t, x.target)
		want := strings.Fields(x.all)
		for i := range want {
			want[i] = strings.ReplaceAll(want[i], "_", " ")
		}
		slices.Sort(want)
		if got := all(&p); !slices.Equal(got, want) || p.Clean() != x.clean || p.Malformed() ||
			p.Excessive() {
			t.Errorf("%s: %q, clean %q, malformed %v, excessive %v; want %q", x.target, got, p.Clean(),
				p.Malformed(), p.Excessive(), want)
		}
	}
}

func TestMalformedAndExcessive(t *testing.T) {
	for _, target := range []string{
		"http:opaque", "http:http://shop.example/tickets", "*", "http://shop.example",
		"/a%00", "/a%0d%0aX:%20y", "/a%0A", "/%7f", "/a%09b", "/%1f", "/a%250a", "/a%25252500",
		"/a%00%2f..", "/x;%00/y",
	} {
		if p := of(t, target); !p.Malformed() {
			t.Errorf("%s: %q", target, all(&p))
		}
	}
	for _, target := range []string{
		"/..", "/../a", "/a/../../b", "/%2e%2e/a", "/a/..%2f..%2fb", `/..\a`, "/..;/a", "/a/%252e%252e/../..",
		"/%" + strings.Repeat("25", 200) + "2e", "/" + strings.Repeat("a;b//%2f%252f", 2000),
	} {
		p := of(t, target)
		if !p.Excessive() || p.Malformed() {
			t.Errorf("%.40s: %v %v", target, p.Excessive(), p.Malformed())
		}
		again := of(t, p.Spelling())
		if again.Len() != 1 || again.At(0) != p.Clean() || again.Excessive() {
			t.Errorf("%.40s: its clean spelling %q has the readings %q", target, p.Spelling(), all(&again))
		}
	}
}

func TestHosts(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "shop.example": "shop.example",
		"shop.example:8080": "shop.example", "shop.example:": "shop.example",
		"shop.example.": "shop.example", "shop.example.:443": "shop.example", "Shop.Example": "Shop.Example",
		"192.0.2.1:80": "192.0.2.1", "[2001:db8::1]:80": "2001:db8::1", "[2001:db8::1]": "2001:db8::1",
		"2001:db8::1": "2001:db8::1", "::1": "::1",
		"[": "[", "]": "]", ":": "", ":80": "", ".": "", "[]": "", "[]:": "", "a.example..": "a.example",
	} {
		if got := Hostname(in); got != want {
			t.Errorf("Hostname(%q) = %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]string{
		"": "", "shop.example": "shop.example", "shop.example.": "shop.example", "a_b.example": "a_b.example",
		"shop.example.:443": "shop.example:443", "Shop.Example:80": "Shop.Example:80",
		"shop.example:": "shop.example:",
		"[::1]:80":      "[::1]:80", "127.0.0.1": "127.0.0.1", "localhost.": "localhost",
	} {
		if got, ok := SentHost(in); !ok || got != want {
			t.Errorf("SentHost(%q) = %q, %v, want %q", in, got, ok, want)
		}
	}
	for _, in := range []string{
		"a.example..", "a..example", ".a.example", ".", "..", "a b", "a@b", "user:x@a", "a:80:80", "a:b",
		"a:999999", "::1", "[::1", "[::1%eth0]", "[a.example]", "[127.0.0.1]", "a%2eexample", "a/b", "a\\b",
		"a,b", "a\tb", "ä.example", "a;b", ":80", strings.Repeat("a", 300),
	} {
		if got, ok := SentHost(in); ok {
			t.Errorf("SentHost(%q) = %q, want none", in, got)
		}
	}
}

func TestRefuse(t *testing.T) {
	for _, x := range []struct{ method, target, to string }{
		{"GET", "/checkout/..%2frobots.txt", "/robots.txt"},
		{"HEAD", "//evil.example/x", "/evil.example/x"},
		{"GET", `/\evil.example`, "/evil.example"},
		{"GET", "/%5cevil.example?a=%2f&b=//", "/evil.example?a=%2f&b=//"},
		{"GET", "/;//evil.example", "/evil.example"},
		{"GET", "/%2f%2fevil.example", "/evil.example"},
		{"GET", "/..//evil.example#x", "/evil.example"},
		{"GET", "/a//%25?q\"\xff", "/a/%25?q\"%FF"},
		{"POST", "/a//b", ""},
		{"OPTIONS", "/a//b", ""},
	} {
		r := httptest.NewRequest(x.method, "/", nil)
		u, err := url.ParseRequestURI(x.target)
		if err != nil {
			t.Fatal(err)
		}
		r.URL = u
		w := httptest.NewRecorder()
		p := Of(u)
		p.Refuse(w, r)
		code := http.StatusPermanentRedirect
		if x.to == "" {
			code = http.StatusBadRequest
		}
		if w.Code != code || w.Header().Get("Location") != x.to ||
			w.Header().Get("Cache-Control") != "no-store" || len(w.Header()["Set-Cookie"]) > 0 {
			t.Errorf("%s %s: %d %v, want %d to %s", x.method, x.target, w.Code, w.Header(), code, x.to)
		}
	}
}

func TestPlainPathsCostNothing(t *testing.T) {
	for _, target := range []string{"/shop/a.html", "/caf%C3%A9/%20x", "/.headgate/served"} {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			t.Fatal(err)
		}
		n := testing.AllocsPerRun(100, func() {
			Keep(u)
			if p := Of(u); p.Len() != 1 || p.At(0) != Clean(u) {
				t.Fatal(p)
			}
		})
		if n > 0 {
			t.Errorf("%s: %v allocations", target, n)
		}
	}
}

// TestKeep checks that bytes that are allowed in a path are sent unchanged.
func TestKeep(t *testing.T) {
	for target, want := range map[string]string{
		"/a%2fb\\c": "/a%2fb%5Cc", "/a%2Fb|\xc3\xa4": "/a%2Fb%7C%C3%A4", "/%7e[x]": "/%7e[x]",
		"/a%2fb": "/a%2fb", "//a/./%2e;x": "//a/./%2e;x", "/a b": "/a%20b", "/a#b%2f": "/a%23b%2f",
	} {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			t.Fatal(err)
		}
		if Keep(u); u.EscapedPath() != want {
			t.Errorf("%q is sent as %q, want %q", target, u.EscapedPath(), want)
		}
	}
}
