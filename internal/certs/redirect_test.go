package certs

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func ready(string) bool { return true }

func TestTheRedirectGoesWhereTheVisitorWanted(t *testing.T) {
	for _, c := range []struct {
		listen, plain, host, path, want string
	}{
		{"443", "80", "shop.example", "/a/b?c=d&e", "https://shop.example/a/b?c=d&e"},
		{"8443", "8080", "shop.example:8080", "/", "https://shop.example:8443/"},
		{"8443", "80", "shop.example", "/", "https://shop.example:8443/"},
		{"443", "8080", "shop.example:8080", "/", "https://shop.example/"},
		// Something maps 80 to 8080, and so 443 to 8443.
		{"8443", "8080", "shop.example", "/", "https://shop.example/"},
		{"8443", "80", "[2001:db8::1]:80", "/", "https://[2001:db8::1]:8443/"},
		{"443", "80", "[2001:db8::1]", "/", "https://[2001:db8::1]/"},
		{"443", "80", "192.0.2.1", "/", "https://192.0.2.1/"},
		{"443", "80", "shop.example", "//evil.example/x", "https://shop.example//evil.example/x"},
		{"443", "80", "shop.example", "/%0d%0aX:%20y", "https://shop.example/%0d%0aX:%20y"},
		{"443", "80", "shop.example", `/\evil.example`, `https://shop.example/%5Cevil.example`},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		u, err := url.ParseRequestURI(c.path)
		if err != nil {
			t.Fatal(err)
		}
		r.Host, r.URL = c.host, u
		got, ok := (&Redirect{Ready: ready, Listen: c.listen, Plain: c.plain}).Target(r)
		if got != c.want || !ok {
			t.Errorf("%s%s: %q, want %q", c.host, c.path, got, c.want)
		}
	}
}

func TestHostsThatAreNone(t *testing.T) {
	for _, host := range []string{"", "a b", "user@evil.example", "evil.example/",
		"x\r\nSet-Cookie: a=b", "evil.example?", "evil.example#", "a:b:c", "[::1", "[::1]x", "::1",
		"[a.example]", "[1.2.3.4]:80", "[fe80::1%25eth0]", "x:80x", "x:123456",
		`evil.example\`, "é.example", "a%2f", strings.Repeat("a", 254)} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = host
		if to, ok := (&Redirect{Ready: ready, Listen: "443", Plain: "80"}).Target(r); ok {
			t.Errorf("%q is sent to %q", host, to)
		}
	}
	for _, u := range []*url.URL{{Path: "*"}, {Opaque: "evil.example:443"}, {}} {
		r := &http.Request{Host: "shop.example", URL: u}
		if to, ok := (&Redirect{Ready: ready, Listen: "443", Plain: "80"}).Target(r); ok {
			t.Errorf("%v is sent to %q", u, to)
		}
	}
}

// Whatever is asked, a redirect goes to the host that was asked for.
func FuzzRedirect(f *testing.F) {
	f.Add("shop.example:8080", "/a?b")
	f.Add("[::1]", "//x")
	f.Add("a@b", "/")
	f.Add("0", "/?#%")
	f.Fuzz(func(t *testing.T, host, path string) {
		u, err := url.ParseRequestURI(path)
		if err != nil {
			return
		}
		to, ok := (&Redirect{Ready: ready, Listen: "8443", Plain: "80"}).Target(&http.Request{
			Host: host, URL: u})
		if !ok {
			return
		}
		got, err := url.Parse(to)
		if err != nil {
			t.Fatalf("%q %q: %q: %v", host, path, to, err)
		}
		asked := &url.URL{Host: host}
		if got.Scheme != "https" || got.User != nil || got.Port() != "8443" ||
			!strings.EqualFold(got.Hostname(), asked.Hostname()) || strings.ContainsAny(to, "\r\n \t") {
			t.Errorf("%q %q: %q", host, path, to)
		}
	})
}
