package rules

import (
	"fmt"
	"regexp/syntax"
	"strings"
	"testing"
	"time"
)

// shapes are expressions as they are written, and how often each may allocate.
func shapes() map[string]struct {
	expression string
	allocates  float64
} {
	return map[string]struct {
		expression string
		allocates  float64
	}{
		"path":     {`starts_with(http.request.uri.path, "/pay/")`, 0},
		"assets":   {`http.request.uri.path.extension in {"js" "css" "png" "svg" "woff2"}`, 0},
		"address":  {`ip.src in {192.0.3.0/24 198.51.100.0/24 2001:db8::/32}`, 0},
		"list":     {`ip.src in $office_network`, 0},
		"several":  {`(http.host == "a" or http.request.uri.query contains "x" or not ssl) and ssl`, 0},
		"header":   {`http.request.headers["x-key"][0] == "k"`, 0},
		"any":      {`any(http.request.uri.args["b"][*] in {"x" "y"})`, 0},
		"cookie":   {`http.request.cookies["member"][0] == "0"`, 0},
		"wildcard": {`http.request.uri.path strict wildcard "/shop/*/edit"`, 0},
		"matches":  {`http.request.uri.path matches "^/articles/200[7-8]/$"`, 0},
		"lower":    {`lower(http.user_agent) contains "bot"`, 1},
		"uri":      {`http.request.full_uri == "https://shop.example/"`, 2},
		"crawler":  {`headgate.verified_crawler`, 0},
	}
}

func usual() Request {
	r := ask("GET https://shop.example/shop/shoes?a=1&b=2&c=3", "User-Agent: "+firefox, "Accept: text/html",
		"Cookie: session=0123456789abcdef0123456789abcdef; theme=dark; member=1",
		"Accept-Language: de,en;q=0.5",
		"Accept-Encoding: gzip", "X-Key: other")
	r.From = addr("192.0.2.200")
	return r
}

// TestAllocations holds the budgets of shapes, and that a whole Set costs no more.
func TestAllocations(t *testing.T) {
	env, r := Env{Lists: lists(t), Crawlers: newCrawlers(t, nil)}, usual()
	var all []Rule
	sum := 0.0
	for name, s := range shapes() {
		e := must(t, s.expression, env)
		if e.Match(r) {
			t.Errorf("%s matches: the whole of it is not asked", name)
		}
		if got := testing.AllocsPerRun(100, func() { e.Match(r) }); got > s.allocates {
			t.Errorf("%s allocates %v times, more than %v", name, got, s.allocates)
		}
		all, sum = append(all, Rule{Action: Bypass, Expression: s.expression}), sum+s.allocates
	}
	set, err := New(all, env)
	if err != nil {
		t.Fatal(err)
	}
	if got := testing.AllocsPerRun(100, func() { set.Match(r) }); got > sum {
		t.Errorf("a set allocates %v times, more than %v", got, sum)
	}
}

// BenchmarkWorstPattern asks about the longest regexp and the longest header.
func BenchmarkWorstPattern(b *testing.B) {
	e := must(b, `http.cookie matches "(a|b?a){60}(a|b?a){60}x"`, Env{})
	r := ask("GET http://x/", "Cookie: "+strings.Repeat("a", 64<<10))
	for b.Loop() {
		if e.Match(r) {
			b.Fatal("matches")
		}
	}
}

// TestSteps compares what is reckoned of a regexp with the program that Go makes of it: it must
// not be reckoned much shorter, or the bound would bound nothing.
func TestSteps(t *testing.T) {
	for _, text := range []string{
		`^/articles/200[7-8]/$`, `(a|b?a){60}(a|b?a){60}x`, `a{900}`, `(abc){0,300}`, `(a+b*){40,}`,
		`(?i)(shop|cart|checkout)`, `[a-z]{3,9}(\.[a-z]{2,5}){1,3}`, `\pL{100}`, `((a?){20}b){20}`,
	} {
		tree, err := syntax.Parse(text, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		reckoned := steps(tree)
		program, err := syntax.Compile(tree.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		if n := len(program.Inst); reckoned*3+5 < n {
			t.Errorf("%s: reckoned to have %d steps, and has %d", text, reckoned, n)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	env, r := Env{Lists: lists(b), Crawlers: newCrawlers(b, nil)}, usual()
	for name, s := range shapes() {
		e := must(b, s.expression, env)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				e.Match(r)
			}
		})
	}
}

// BenchmarkSet asks 10 and 200 rules, none of which matches.
func BenchmarkSet(b *testing.B) {
	for _, n := range []int{10, 200} {
		var all []Rule
		for i := range n {
			all = append(all, Rule{Action: Bypass, Expression: fmt.Sprintf(
				`starts_with(http.request.uri.path, "/a%d/") or ip.src in {198.51.%d.0/24}`, i, i)})
		}
		s, err := New(all, Env{})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			r := usual()
			for b.Loop() {
				s.Match(r)
			}
		})
	}
}

// BenchmarkList looks an address up in a list of 100,000.
func BenchmarkList(b *testing.B) {
	var items []string
	for i := range maxList {
		items = append(items, fmt.Sprintf("10.%d.%d.%d/31", i>>14, i>>6&255, i&63*4))
	}
	l, err := NewAddressList(items)
	if err != nil {
		b.Fatal(err)
	}
	e, r := must(b, "ip.src in $all", Env{Lists: map[string]*List{"all": l}}), usual()
	r.From = addr("10.3.7.2")
	b.ReportAllocs()
	for b.Loop() {
		e.Match(r)
	}
}

func BenchmarkVerified(b *testing.B) {
	c := newCrawlers(b, nil)
	who := claim{addr("66.249.66.1"), 0}
	c.verified.put(who, time.Now().Add(verifiedFor))
	b.ReportAllocs()
	for b.Loop() {
		if !c.Verified(who.from, googlebot) {
			b.Fatal("not verified")
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile(shapes()["several"].expression, Env{}); err != nil {
			b.Fatal(err)
		}
	}
}
