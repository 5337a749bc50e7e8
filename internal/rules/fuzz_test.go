package rules

import (
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzCompile: no text makes the compiler panic; an error points into the text; what compiles
// can be asked, and means the same in parentheses and the opposite behind not.
func FuzzCompile(f *testing.F) {
	b, err := os.ReadFile("testdata/errors.txt")
	if err != nil {
		f.Fatal(err)
	}
	for part := range strings.SplitSeq(string(b), "\n---\n") {
		expression, _, _ := strings.Cut(part, "\n→\n")
		f.Add(expression)
	}
	for seed := range uint64(30) {
		f.Add(newOracle(seed).expression(3).text)
	}
	env := Env{Lists: lists(f)}
	requests := []Request{filters, newOracle(1).request, newOracle(2).request, newOracle(3).request}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Compile(text, env)
		if err != nil {
			checkError(t, text, err)
			return
		}
		inner, errInner := Compile("("+text+"\n)", env)
		not, errNot := Compile("not ("+text+"\n)", env)
		for _, r := range requests {
			got := e.Match(r)
			if errInner == nil && inner.Match(r) != got {
				t.Errorf("another value in parentheses: %q", text)
			}
			if errNot == nil && not.Match(r) == got {
				t.Errorf("the same value behind not: %q", text)
			}
		}
		long := utf8.RuneCountInString(text) > maxLength-10
		if errInner != nil && !long && !strings.Contains(errInner.Error(), "nested") {
			t.Errorf("%q compiles, but not in parentheses: %v", text, errInner)
		}
	})
}

func checkError(t *testing.T, text string, err error) {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("%q: %T", text, err)
	}
	all := strings.Split(strings.ToValidUTF8(text, "?"), "\n")
	if e.Line < 1 || e.Line > len(all) || e.Column < 1 || e.Length < 1 || e.Problem == "" {
		t.Fatalf("%q: %+v", text, e)
	}
	line := strings.TrimSuffix(all[e.Line-1], "\r")
	if e.Source != line || e.Column > utf8.RuneCountInString(line)+2 {
		t.Fatalf("%q: %+v", text, e)
	}
	said := err.Error()
	if !utf8.ValidString(said) || utf8.RuneCountInString(said) > 1000+len(e.Problem)+len(e.Hint) {
		t.Fatalf("%q: an error of %d bytes: %v", text, len(said), err)
	}
}

// FuzzRequest: no request makes the evaluator panic, however odd it is.
func FuzzRequest(f *testing.F) {
	f.Add("/a?b=c&=&&d", "a=b; ;=;c", "x:1", "bot", "/a/../b")
	f.Add("*", "", "[::1]:80", "", "")
	f.Add("/", "99", "x", "GB", "/")
	f.Add("http://u@h:1/%2e%2e/;x", "\x00\xff", ".", "\xff", "/\x00\xff\\")
	env := Env{Lists: lists(f), Crawlers: newCrawlers(f, nil)}
	var all []*Expression
	for name, s := range fields {
		asked := map[kind]string{
			isText:    `F matches "^a*$" or lower(F) wildcard "*a*b" or len(F) > 3`,
			isArray:   `any(F[*] == "a") or all(starts_with(F[*], "a")) or len(F) == 2`,
			isMap:     `any(F["a"][*] == "a") or F["host"][0] == "a" or len(F["a"]) == 2`,
			isAddress: "F == 192.0.2.1", isBool: "F", isInt: "F < 30 or F in {1..29}",
		}[s.kind]
		all = append(all, must(f, strings.ReplaceAll(asked, "F", name), env))
	}
	f.Fuzz(func(t *testing.T, uri, cookie, host, agent, path string) {
		r := ask("GET http://x/", "User-Agent: "+agent, "Cookie: "+cookie, "X-Forwarded-For: "+cookie,
			"Cf-Ipcountry: "+agent, "Cf-Bot-Score: "+cookie)
		u, err := url.ParseRequestURI(uri)
		if err != nil {
			return
		}
		r.URL, r.Host, r.Path = u, host, path
		for _, e := range all {
			e.Match(r)
		}
		in := input{Request: r}
		encoded := in.encoded()
		if back, err := url.PathUnescape(encoded); err != nil || back != path {
			t.Errorf("%q is encoded as %q, which is %q", path, encoded, back)
		}
		odd := func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`"<>\^{}|?#[]`, c) }
		if strings.ContainsFunc(encoded, odd) {
			t.Errorf("%q is encoded as %q", path, encoded)
		}
	})
}

func must(t testing.TB, expression string, env Env) *Expression {
	t.Helper()
	e, err := Compile(expression, env)
	if err != nil {
		t.Fatal(err)
	}
	return e
}
