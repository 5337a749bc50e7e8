package house

import (
	"strings"
	"testing"
	"testing/fstest"
)

// bad is a tree that breaks a rule, and what its one fault says.
type bad struct {
	name  string
	rule  string
	files map[string]string
	want  string // a part of the fault; "" is for none
}

// ok is a package comment and a clause, so that a snippet needs neither.
const ok = "// Package x is here.\npackage x\n"

// TestRulesFail breaks every rule once.
func TestRulesFail(t *testing.T) {
	cases := append(shapeCases(), append(waitingCases(), append(pageCases(), alertCases()...)...)...)
	broken := map[string]bool{}
	for _, c := range cases {
		t.Run(c.rule+"/"+c.name, func(t *testing.T) {
			faults := find(t, c.rule)(tree(t, c.files))
			if c.want == "" {
				for _, f := range faults {
					t.Errorf("found %v, want no fault", f)
				}
				return
			}
			broken[c.rule] = true
			if len(faults) != 1 || !strings.Contains(faults[0].String(), c.want) {
				t.Errorf("found %v, want one fault that says %q", faults, c.want)
			}
		})
	}
	for _, r := range rules() {
		if !broken[r.name] {
			t.Errorf("no bad tree breaks the rule %q", r.name)
		}
	}
}

// find is a rule by its name; nobody waits for a goroutine.
func find(t *testing.T, name string) func(*Tree) []Fault {
	if name == "goroutines" {
		return func(t *Tree) []Fault { return Goroutines(t, nil) }
	}
	for _, r := range rules() {
		if r.name == name {
			return r.check
		}
	}
	t.Fatalf("no rule %q", name)
	return nil
}

func tree(t *testing.T, files map[string]string) *Tree {
	t.Helper()
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	read, err := Read(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

func one(name, text string) map[string]string { return map[string]string{name: text} }

func shapeCases() []bad {
	return []bad{
		{"folder", "names", one("internal/util/a.txt", ""), "not util"},
		{"file", "names", one("slot/helpers_test.go", ok), "not helpers"},
		{"files", "root size", files("", ".go", rootFiles+1), "the root package has 15 files"},
		{"lines", "root size", one("a.go", ok+strings.Repeat("\n", rootLines)), "3902 lines"},
		{"tests", "root size", one("a_test.go", ok+strings.Repeat("\n", rootLines)), ""},
		{"many", "package size", files("a/", ".go", packageFiles+1), "25 code files"},
		{"many tests", "package size", files("", "_test.go", packageFiles+1), "25 test files"},
		{"both", "package size", files("a/", ".go", packageFiles), ""},
		{"elsewhere", "root size", one("slot/a.go", ok+strings.Repeat("\n", rootLines)), ""},
		{"left out", "names", one("tests/node_modules/util.txt", ""), ""},
		{"word", "glossary", worded("func StayOf() {}"), "StayOf: write session"},
		{"plural", "glossary", worded("type T struct { Stays int }"), "Stays: write session"},
		{"attribute", "glossary", worded("const SameSite = 1"), ""},
		{"private", "glossary", worded("func stayOf() {}"), ""},
	}
}

// worded has a glossary, and code with a name.
func worded(code string) map[string]string {
	return map[string]string{"a.go": ok + code + "\n",
		glossaryPage: "| session | a time inside | stay |\n| data center | a cluster | site |\n"}
}

func files(before, after string, n int) map[string]string {
	files := map[string]string{}
	for i := range n {
		files[before+string(rune('a'+i))+after] = "package x\n"
	}
	return files
}

func waitingCases() []bad {
	return []bad{
		{"go", "goroutines", one("a.go", ok+"func f() { go f() }\n"), "who waits"},
		{"wg.Go", "goroutines", one("a.go", ok+"func f() { wg.Go(f) }\n"), "who waits"},
		{"go in a test", "goroutines", one("a_test.go", ok+"func f() { go f() }\n"), ""},
		{"sleep", "sleeps", one("a_test.go", ok+"func f() { time.Sleep(1) }\n"), "outside a bubble"},
		{"bubble", "sleeps", one("a_test.go", ok+"func TestA() {\n"+
			"\tsynctest.Test(t, func() { time.Sleep(1) })\n}\n"), ""},
		{"bubble with engines", "sleeps", one("a_test.go", ok+"func TestA() {\n"+
			"\tvirtual.Test(t, func() { time.Sleep(1) })\n}\n"), ""},
		{"helper of bubbles with engines", "sleeps", one("a_test.go",
			ok+"import \"github.com/headgate/headgate/tests/virtual\"\n"+"func f() { time.Sleep(1) }\n"), ""},
		{"token", "secrets", one("a.go", ok+"func f() bool { return sent == x.Token }\n"), "ConstantTimeCompare"},
		{"password in a case", "secrets", one("a.go", ok+"func f() { switch password {\ncase a:\n} }\n"), "hmac.Equal"},
		{"signature as bytes", "secrets", one("a.go", ok+"func f() bool { return bytes.Equal([]byte(got), "+
			"wantMac) }\n"), "compares a secret"},
		{"empty secret", "secrets", one("a.go", ok+"func f() bool { return secret == \"\" || len(secret) != n }\n"), ""},
		{"token of Go", "secrets", one("a.go", ok+"func f() bool { return x.Tok == token.EQL }\n"), ""},
		{"beside a bubble", "sleeps", one("a_test.go", ok+"import \"testing/synctest\"\n"+
			"func TestA() { time.Sleep(1) }\n"), "outside a bubble"},
		{"helper", "sleeps", one("a_test.go", ok+"import \"testing/synctest\"\n"+
			"func f() { time.Sleep(1) }\n"), ""},
		{"called in a bubble", "sleeps", one("a_test.go", ok+"// f runs in a bubble.\n"+
			"func f() { time.Sleep(1) }\n"), ""},
	}
}

func pageCases() []bad {
	page := "| `--origin` | `headgate_called` | `rooms[].name` |\n"
	key := func(k string) string { return ok + "func f() { one(\"" + k + "\", text(&a)) }\n" }
	sections := "\n## Status\n\n## Context\n\n## Decision\n\n## Consequences\n\n" +
		"## What we gave up\n\n## How we would notice it was wrong\n"
	return []bad{
		{"no such test", "complaints", map[string]string{complaintsPage: "| complaint | tests |\n" +
			"|---|---|\n| slow | `it is fast` |\n"}, "there is no test it is fast"},
		{"no test", "complaints", map[string]string{complaintsPage: "| slow | soon |\n"}, "names no test"},
		{"no row", "complaints", map[string]string{complaintsPage: "| slow | `TestFast` |\n",
			"complaints_test.go": ok + "func TestFast(t T) {\n\tbubble(t, \"lost\", nil)\n}\n"},
			"names lost"},
		{"all well", "complaints", map[string]string{complaintsPage: "| slow | `TestFast`, `lost` |\n",
			"complaints_test.go": ok + "func TestFast(t T) {\n\tbubble(t, \"lost\", nil)\n}\n"}, ""},
		{"no file", "links", one("README.md", "see [it](docs/gone.md)"), "no file docs/gone.md"},
		{"no heading", "links", one("README.md", "# A b\n[it](#a-c)"), "no heading #a-c"},
		{"heading", "links", one("README.md", "# A `b`, c\n[it](#a-b-c) [out](https://example.com)"), ""},
		{"code", "links", one("README.md", "```\n[it](gone.md)\n```\n"), ""},
		{"comment", "pages named", one("a.go", "// see docs/gone.md\n"+ok), "no page docs/gone.md"},
		{"none", "changelog", one("CHANGELOG.md", "# Changelog\n"), "Unreleased"},
		{"there", "changelog", one("CHANGELOG.md", "## [Unreleased]\n"), ""},
		{"no target", "targets", map[string]string{"Makefile": "run:\n", "README.md": "`make rum`"},
			"no target rum"},
		{"a tag is cloned", "pinned", one("Makefile", "a:\n\tgit -C x clone -b v1 https://example.com\n"),
			"git clone takes"},
		{"a version is run", "pinned", one("Makefile", "a:\n\t$(GO)\n\tgo run example.com/x@latest\n"),
			"not pinned by a checksum"},
		{"a tag for a commit", "pinned", one("Makefile", "X_COMMIT := v1.2.3\n"), "40 hexadecimal"},
		{"part of a commit", "pinned", one("Makefile", "X_COMMIT := a2efdc5\n"), "40 hexadecimal"},
		{"a commit", "pinned", one("Makefile",
			"X_COMMIT := a2efdc5786ae9726d56928dbfe91933bd92404ca\n\tgit fetch u $(X_COMMIT)\n"), ""},
		{"gap", "decisions", one("docs/adr/0002-a.md", "# 0002 A\n"+sections), "expected number 0001"},
		{"half", "decisions", one("docs/adr/0001-a.md", "# 0001 A\n"+
			strings.Replace(sections, "## Context\n", "", 1)), "no section Context"},
		{"decision", "references", one("a.go", ok+"// ADR 7 says so.\n"), "no decision record 7"},
		{"section", "references", map[string]string{"docs/a.md": "# A\n\n## 1. B\n",
			"a.go": ok + "// docs/a.md §1 and docs/a.md §2\n"}, "no section a.md 2"},
		{"file", "references", map[string]string{"docs/c.md": "# C\n", "a.go": ok + "// See docs/b.yaml.\n"},
			"no file docs/b.yaml"},
		{"test", "references", map[string]string{"a_test.go": ok + "func TestAll() {}\n",
			"docs/a.md": "`-run TestAl`, `TestBoth`\n"}, "no test TestBoth"},
		{"declaration", "references", map[string]string{"a.go": ok + "type An int\n",
			"docs/a.md": "`x.An`, `x.Be`, `time.Be`\n"}, "no declaration x Be"},
		{"no table", "metrics", one("a.go", ok+"const a = \"headgate_called 1\"\n"),
			"metric headgate_called"},
		{"no code", "metrics", one(metricPage, page), "no code has"},
		{"no metric", "metrics", map[string]string{"a.go": ok +
			"type A struct{ B int `json:\"headgate_b\"` }\n"}, ""},
		{"both", "metrics", map[string]string{metricPage: page,
			"a.go": ok + "const a = `# HELP headgate_called x`\n"}, ""},
		{"no page", "flags", one("cmd/x/a.go", ok+"import \"flag\"\n"+
			"func f(s *flag.FlagSet) { s.StringVar(&a, \"origin\", \"\", \"x\") }\n"), "flag --origin"},
		{"page", "flags", map[string]string{commandPage: page, "cmd/x/a.go": ok + "import \"flag\"\n" +
			"func f(s *flag.FlagSet) { s.String(\"origin\", \"\", \"x\") }\n"}, ""},
		{"help", "flags", one("cmd/x/a.go", ok+"const help = `\n  --origin URL  x\n`\n"), "flag --origin"},
		{"no group", "keys", one("internal/config/a.go", ok+"func f() { g(field{name: \"rooms\"}) }\n"),
			"key rooms"},
		{"no key", "keys", map[string]string{keyPage: page, "internal/config/a.go": key("host")},
			"key host"},
		{"key", "keys",
			map[string]string{keyPage: page, "internal/config/a.go": key("name")}, ""},
	}
}

func TestWaitersAreNeeded(t *testing.T) {
	waiters := map[string]string{"a.go": "nobody"}
	faults := Goroutines(tree(t, one("a.go", ok)), waiters)
	if len(faults) != 1 || !strings.Contains(faults[0].Text, "a.go starts no goroutine") {
		t.Errorf("found %v, want the idle exception", faults)
	}
	starts := tree(t, one("a.go", ok+"func f() { go f() }\n"))
	if faults := Goroutines(starts, waiters); len(faults) != 0 {
		t.Errorf("found %v, want the exception to hold", faults)
	}
}

func TestReadRefusesBrokenGo(t *testing.T) {
	fsys := fstest.MapFS{"a.go": &fstest.MapFile{Data: []byte("package")}}
	if _, err := Read(fsys); err == nil || !strings.Contains(err.Error(), "a.go") {
		t.Errorf("Read: %v, want an error that names a.go", err)
	}
}
