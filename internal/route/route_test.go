package route

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestMatch(t *testing.T) {
	for _, x := range []struct {
		folder, path string
		anyCase      bool
		at           string // "" is not in the folder
	}{
		{"/", "/", false, "/"},
		{"/", "/a/b", false, "/"},
		{"/shop", "/shop", false, "/shop"},
		{"/shop", "/shop/", false, "/shop"},
		{"/shop", "/shop/a", false, "/shop"},
		{"/shop", "/shopping", false, ""},
		{"/shop", "/Shop", false, ""},
		{"/shop", "/Shop/x", true, "/Shop"},
		{"/Straße", "/STRASSE", true, ""},
		{"/k", "/\u212a", true, "/\u212a"},
		{"/*/buy", "/a/buy/1", false, "/a/buy"},
		{"/*/buy", "/buy", false, ""},
		{"/*/buy", "/a/b/buy", false, ""},
		{"/*/buy", "//buy", false, ""},
		{"/sale*", "/sale", false, "/sale"},
		{"/sale*", "/sale-2026/x", false, "/sale-2026"},
		{"/sale*", "/SALE-2026/x", true, "/SALE-2026"},
		{"/sale*", "/presale", false, ""},
		{"/*/buy", "/.headgate/buy", false, ""},
		{"/a*b*c", "/abbcbc", false, "/abbcbc"},
		{"/a*b*c", "/abbcb", false, ""},
		{"/*ä*", "/xäy", false, "/xäy"},
		{"/x*", "/x\xff\xfe", false, "/x\xff\xfe"},
	} {
		s := New([]Route{{Path: x.folder}}, x.anyCase)
		_, in := s.Match("any.example", x.path)
		if in != (x.at != "") {
			t.Errorf("%s in %s: %v", x.path, x.folder, in)
		}
		if got, err := url.PathUnescape(s.At("any.example", x.path).Path); in && (got != x.at || err != nil) {
			t.Errorf("%s is at %s, want %s", x.path, got, x.at)
		}
	}
}

// The route that names more of the path applies.
func TestSpecific(t *testing.T) {
	order := []Route{{"", "/"}, {"a.example", "/"}, {"", "/s*"}, {"a.example", "/s*"}, {"", "/*hop"},
		{"", "/shop"}, {"a.example", "/shop"}, {"", "/shop/*"}, {"", "/shop/x*"}, {"", "/shop/x"}}
	last := -1
	for _, r := range order {
		n, ok := New([]Route{r}, false).Match("a.example", "/shop/x")
		if !ok || n <= last {
			t.Errorf("%v: %d after %d", r, n, last)
		}
		last = n
	}
}

func TestRoutes(t *testing.T) {
	s := New([]Route{{"a.example", "/shop/tea"}, {"b.example", "/shop"}, {"b.example", "/shop/*/x"}}, false)
	for _, x := range []struct{ host, path, at string }{
		{"a.example", "/shop/tea/1", "/shop/tea"}, {"A.example:443", "/shop/tea", "/shop/tea"},
		{"b.example:80", "/shop/tea", "/shop"}, {"b.example", "/shop/1/x/y", "/shop/1/x"},
		{"c.example", "/shop", "/shop/tea"}, // not in the room
	} {
		if got := s.At(x.host, x.path); got.Path != x.at || got.Leave != x.at+"/.headgate/leave" {
			t.Errorf("%s%s is at %+v", x.host, x.path, got)
		}
	}
	if _, ok := s.Match("a.example", "/shop"); ok {
		t.Error("a folder of another host is the room's")
	}
	if at := New([]Route{{"", "/"}}, false).At("", "/x"); at.Own != "/.headgate/" || at.Path != "/" {
		t.Error(at)
	}
}

func TestCookiePath(t *testing.T) {
	for _, x := range []struct {
		folders string
		anyCase bool
		want    string
	}{
		{"/", false, "/"}, {"/shop", false, "/shop"}, {"/shop", true, "/"}, {"/1/shop", true, "/1"},
		{"/shop/*/buy", false, "/shop"}, {"/s*", false, "/"}, {"/shop/a /shop/b", false, "/shop"},
		{"/shop /shopping", false, "/"}, {"/shop /shop/a", false, "/shop"}, {"/a /", false, "/"},
	} {
		var all []Route
		for f := range strings.FieldsSeq(x.folders) {
			all = append(all, Route{Path: f})
		}
		if got := New(all, x.anyCase).CookiePath(); got != x.want {
			t.Errorf("%s: %s, want %s", x.folders, got, x.want)
		}
	}
}

func TestSame(t *testing.T) {
	if !Same(Route{"a", "/x"}, Route{"A", "/x/"}, false) || Same(Route{"a", "/x"}, Route{"a", "/X"}, false) ||
		!Same(Route{"a", "/x"}, Route{"a", "/X"}, true) || Same(Route{"a", "/x"}, Route{"", "/x"}, true) {
		t.Error("routes are the same that are not, or the other way round")
	}
}

func TestAllocations(t *testing.T) {
	s := New([]Route{{"a.example", "/shop"}}, false)
	n := testing.AllocsPerRun(100, func() {
		if _, ok := s.Match("a.example", "/shop/x"); !ok || s.At("a.example:1", "/shop/x").Path != "/shop" {
			t.Fatal("not there")
		}
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzFits compares the patterns with regular expressions.
func FuzzFits(f *testing.F) {
	f.Add("a*b", "axxb", false)
	f.Add("*a*", "A", true)
	f.Add("**", "", false)
	f.Add("a*a*a", "aa", false)
	f.Fuzz(func(t *testing.T, pattern, part string, anyCase bool) {
		if len(pattern) > 50 || !utf8.ValidString(pattern) || !utf8.ValidString(part) {
			return
		}
		for _, r := range pattern + part {
			if anyCase && r > 127 { // regular expressions fold these letters differently
				return
			}
		}
		re := "(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$"
		if anyCase {
			re = "(?i)" + re
		}
		want := regexp.MustCompile(re).MatchString(part)
		if got := fits(pattern, part, anyCase); got != want {
			t.Errorf("fits(%q, %q, %v) = %v", pattern, part, anyCase, got)
		}
	})
}

// Addresses of headgate are on this host, whatever a star matches: browsers read a backslash as a slash.
func TestAddressesOfAFolderWithAStar(t *testing.T) {
	s := New([]Route{{"", "/*/buy"}}, false)
	for path, want := range map[string]string{
		`/\evil.com/buy/x`: "/%5Cevil.com/buy", "/a%b/buy": "/a%25b/buy", "/tea/buy": "/tea/buy", "/é?/buy": "/%C3%A9%3F/buy",
	} {
		m := s.At("x", path)
		got := []string{m.Path, m.OwnURL, m.Served, m.Leave, m.ConfirmPath, m.Move}
		own := want + "/.headgate/"
		all := []string{want, own, own + "served", own + "leave", own + "here.gif", own + "move"}
		if !slices.Equal(got, all) {
			t.Errorf("%s: %q, want %q", path, got, all)
		}
	}
}
