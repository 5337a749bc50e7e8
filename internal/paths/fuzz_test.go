package paths

import (
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"
)

// oracles returns functions that read the path of a request line as routers do. Each follows the
// router's source and is independent of the code under test. tests/origins compares them with the
// real routers.
func oracles() map[string]func(sent string) string {
	unescape := func(s string) string {
		out, err := url.PathUnescape(s)
		if err != nil {
			return s
		}
		return out
	}
	clean := func(s string) string {
		c := path.Clean("/" + s)
		if c != "/" && strings.HasSuffix(s, "/") {
			c += "/"
		}
		return c
	}
	merged := func(s string) string {
		for strings.Contains(s, "//") {
			s = strings.ReplaceAll(s, "//", "/")
		}
		return s
	}
	withoutParameters := func(s string) string {
		var parts []string
		for part := range strings.SplitSeq(s, "/") {
			name, _, _ := strings.Cut(part, ";")
			parts = append(parts, name)
		}
		return strings.Join(parts, "/")
	}
	return map[string]func(string) string{
		// net/http.ServeMux cleans the escaped path and unescapes each part, so an encoded slash
		// stays in its part.
		"Go's ServeMux": func(s string) string {
			parts := strings.Split(clean(s), "/")
			for i := range parts {
				parts[i] = strings.ReplaceAll(unescape(parts[i]), "/", "%2F")
			}
			return strings.Join(parts, "/")
		},
		// path-to-regexp matches the path as received.
		"Express": func(s string) string { return s },
		// serve-static decodes and normalizes.
		"serve-static": func(s string) string { return clean(unescape(s)) },
		// WSGI servers decode PATH_INFO; Werkzeug merges slashes.
		"WSGI": unescape,
		// http.server merges slashes at the beginning, before a WSGI server decodes.
		"Python's http.server": func(s string) string { return unescape("/" + strings.TrimLeft(s, "/")) },
		"Werkzeug":             func(s string) string { return merged(unescape(s)) },
		// php_cli_server_client_read_request decodes, then merges slashes and resolves dots.
		"PHP": func(s string) string { return clean(unescape(s)) },
		// Tomcat's CoyoteAdapter removes parameters before it decodes, then normalizes.
		"Tomcat": func(s string) string { return clean(unescape(withoutParameters(s))) },
		// Others remove them afterwards.
		"Spring": func(s string) string { return clean(withoutParameters(unescape(s))) },
		"IIS":    func(s string) string { return clean(strings.ReplaceAll(unescape(s), `\`, "/")) },
		// Windows removes dots and spaces at the end of file names.
		"Windows": func(s string) string {
			var parts []string
			for part := range strings.SplitSeq(unescape(s), "/") {
				name := strings.TrimRight(part, " ")
				if name != "." && name != ".." {
					name = strings.TrimRight(name, " .")
				}
				parts = append(parts, name)
			}
			return clean(strings.Join(parts, "/"))
		},
		// A target that begins with // is a reference to another host.
		"urlsplit": func(s string) string {
			if rest, ok := strings.CutPrefix(s, "//"); ok {
				_, s, _ = strings.Cut(rest, "/")
				s = "/" + s
			}
			return unescape(s)
		},
		"new URL": func(s string) string {
			if s = strings.ReplaceAll(s, `\`, "/"); strings.HasPrefix(s, "//") {
				_, s, _ = strings.Cut(strings.TrimLeft(s, "/"), "/")
				s = "/" + s
			}
			return clean(unescape(s))
		},
		"decoding twice": func(s string) string { return clean(unescape(unescape(s))) },
	}
}

// FuzzReadings compares the readings with the routers of origins: for any request line, the path
// that a router sees must be among the readings.
func FuzzReadings(f *testing.F) {
	for _, s := range []string{
		"/", "/a/../b", "/a/..%2fb", "/a%2f%2e%2e;x/b", `/a\..\b`, "//a//../b/.", "/%252e%252e/a",
		"/a;b/..;c/d;", "/%", "/a%3fb%23c", "/a%5c..%5cb", "http://h//x/..", "/..%252f..", "/%c3%a9[x]|",
		"/%25%32%66", "/a./b%20/c.%20.", "/a/..%20/b", "/a/.../b", "/%E2%88%95..", "/a/%2e%2e%2f/%2f",
		"//h/a", "///h//a", `/\h/a%2f..`, "//h", "/%2f/h/a/",
	} {
		f.Add(s)
	}
	routers := oracles()
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return // net/http answers 400
		}
		Keep(u)
		sent, p := u.EscapedPath(), Of(u)
		if sent == "" || sent[0] != '/' || u.Opaque != "" || u.Scheme != "" && u.Host == "" {
			if !p.Malformed() {
				t.Fatalf("%q is no path", target)
			}
			return
		}
		if once, err := url.PathUnescape(sent); err == nil && !p.Malformed() {
			for _, c := range []byte(once) {
				if c < ' ' || c == 0x7f {
					t.Errorf("%q has a control character", target)
				}
			}
		}
		if p.Malformed() {
			return
		}
		checkClean(t, &p)
		if p.Excessive() {
			return // rejected in any case
		}
		for name, router := range routers {
			got := upperHex(written(router(sent)))
			if !slices.ContainsFunc(all(&p), func(s string) bool { return upperHex(s) == got }) {
				t.Errorf("%s reads %q as %q, which is not among %q", name, sent, got, all(&p))
			}
		}
	})
}

// written returns a path with its needless encodings removed, as rules and rooms name it.
func written(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if i+2 < len(s) && s[i] == '%' {
			c, err := url.PathUnescape(s[i : i+3])
			if err == nil && !strings.ContainsAny(c, "/-._~!$&'()*+,;=:@") && !isAlphanumeric(c[0]) {
				b.WriteString(c)
				i += 2
				continue
			}
			if err == nil { // %2f and %2F are the same
				b.WriteString(strings.ToUpper(s[i : i+3]))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// upperHex writes each %HH in capitals: RFC 3986, section 6.2.2.1.
func upperHex(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if _, err := url.PathUnescape(s[i : i+3]); s[i] == '%' && err == nil {
			copy(b[i:], strings.ToUpper(s[i:i+3]))
			i += 2
		}
	}
	return string(b)
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// checkClean checks that the clean spelling is a path on this host with one reading, so that a
// redirect to it is not followed by another.
func checkClean(t *testing.T, p *Readings) {
	t.Helper()
	to := p.Spelling()
	if to == "" || to[0] != '/' || strings.HasPrefix(to, "//") || strings.Contains(to, `\`) {
		t.Fatalf("%q leads to another host", to)
	}
	u, err := url.ParseRequestURI(to)
	if err != nil {
		t.Fatal(err)
	}
	again := Of(u)
	if again.Malformed() || again.Excessive() || again.Len() != 1 || again.At(0) != p.Clean() ||
		again.Spelling() != to || Clean(u) != p.Clean() {
		t.Fatalf("the clean spelling %q has the readings %q", to, all(&again))
	}
}
