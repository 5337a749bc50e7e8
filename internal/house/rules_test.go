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
	cases := append(shapeCases(), append(directionCases(), append(pageCases(), alertCases()...)...)...)
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

// find is a rule by its name, with an empty list of exceptions.
func find(t *testing.T, name string) func(*Tree) []Fault {
	switch name {
	case "state":
		return func(t *Tree) []Fault { return State(t, nil) }
	case "goroutines":
		return func(t *Tree) []Fault { return Goroutines(t, nil) }
	case "sleeps":
		return func(t *Tree) []Fault { return Sleeps(t, nil) }
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
	long := strings.Repeat("var _ = 1\n", 10)
	wide := "var a, b int // " + strings.Repeat("x", hardLine) + "\n"
	return []bad{
		{"none", "package comments", one("a/a.go", "package a\n"), "a: no package comment"},
		{"two", "package comments", map[string]string{"a/a.go": "// Package a is.\npackage a\n",
			"a/b.go": "// Package a is too.\npackage a\n"}, "a second package comment"},
		{"wrong name", "package comments", one("a/a.go", "// This is a.\npackage a\n"), "begin with"},
		{"only in a test", "package comments", map[string]string{"a/a.go": "package a\n",
			"a/a_test.go": "// Package a is tested.\npackage a\n"}, "no package comment"},
		{"tests alone", "package comments",
			one("a/a_test.go", "// Package a_test tests.\npackage a_test\n"), ""},
		{"function", "documented", one("slot/a.go", ok+"func Lend() {}\n"), "Lend has no comment"},
		{"inner", "documented", one("internal/x/a.go", ok+"func Lend() {}\n"), ""},
		{"group", "documented", one("a.go", ok+"// Kinds.\nconst (\n\tA = 1\n\tB = 2\n)\n"), ""},
		{"known method", "documented",
			one("a.go", ok+"// T is.\ntype T int\nfunc (t *T) String() string { return \"\" }\n"), ""},
		{"mark", "unfinished", one("a.go", ok+"// TO"+"DO: more\n"), "open an issue"},
		{"folder", "names", one("internal/util/a.txt", ""), "not util"},
		{"file", "names", one("slot/helpers_test.go", ok), "not helpers"},
		{"code", "file sizes", one("slot/a.go", ok+strings.Repeat(long, 80)), "look for a second noun"},
		{"test", "file sizes", one("slot/a_test.go", ok+strings.Repeat(long, 80)), ""},
		{"excused", "file sizes", one("slot/a.go", "// "+longReason+" it is a table.\n\n"+ok+
			strings.Repeat(long, 80)), ""},
		{"root", "file sizes", roots(rootFiles + 1), "the root package has 26 files"},
		{"function", "function sizes", one("a.go", ok+"func f() {\n"+
			strings.Repeat("\t_ = 1\n", hardFunc)+"}\n"), "f has 102 lines"},
		{"list of subtests", "function sizes", one("a_test.go", ok+"func TestA() {\n"+
			strings.Repeat("\tt.Run(\"a\", func() {\n"+strings.Repeat("\t\tf()\n", 60)+
				"\t})\n", 3)+"}\n"), ""},
		{"subtest", "function sizes", one("a_test.go", ok+"func TestA() {\n\tt.Run(\"a\", func() {\n"+
			strings.Repeat("\t\tf()\n", hardFunc)+"\t})\n}\n"), "a subtest of TestA"},
		{"wide", "line sizes", one("a.go", ok+wide), "columns"},
		{"tabs", "line sizes", one("a.go", ok+"//"+strings.Repeat("\t", 28)+"\n"), "114 columns"},
		{"address", "line sizes", one("a.go", ok+"// https://example.com/"+wide), ""},
		{"literal", "line sizes", one("a.go", ok+"var s = `"+strings.Repeat("x", 120)+"`\n"), ""},
		{"spaces", "format", one("a.go", ok+"var  a int\n"), "run gofmt"},
		{"init", "inits", one("a.go", ok+"func init() {}\n"), "init()"},
		{"method", "inits", one("a.go", ok+"func (t T) init() {}\n"), ""},
		{"word", "words", one("a.txt", "see /wo"+"rk/main"), "belongs to a workplace"},
		{"part of a word", "words", one("a.txt", "see net/wo"+"rk/main and frame-wo"+"rk/main"), ""},
		{"left out", "words", one("tests/node_modules/a.txt", "/wo"+"rk/main"), ""},
	}
}

func roots(n int) map[string]string {
	files := map[string]string{}
	for i := range n {
		files[string(rune('a'+i))+".go"] = "package x\n"
	}
	return files
}

func directionCases() []bad {
	imports := func(dir, target string) map[string]string {
		return one(dir+"/a.go", ok+"import _ \""+target+"\"\n")
	}
	return []bad{
		{"slot takes a module", "imports", imports("slot", "golang.org/x/sys/unix"), "stands alone"},
		{"slot takes ours", "imports", imports("slot", Module+"/internal/ticket"), "stands alone"},
		{"slot takes a lock", "imports", imports("slot", "sync"), "its caller guards"},
		{"join takes ours", "imports", imports("internal/join", Module+"/internal/config"), "read to judge"},
		{"store takes join", "imports", imports("internal/store", Module+"/internal/join"), "run one way"},
		{"ticket takes the net", "imports", imports("internal/ticket", "net"), "no I/O"},
		{"ticket takes addresses", "imports", imports("internal/ticket", "net/netip"), ""},
		{"state takes root", "imports", imports("internal/counter", Module), "one way"},
		{"root takes a page", "imports", one("a.go", ok+"import _ \""+Module+"/internal/pages\"\n"+
			"import _ \"github.com/nats-io/nats.go\"\n"), "root declares"},
		{"root takes cmp", "imports",
			one("a_test.go", ok+"import _ \"github.com/google/go-cmp/cmp\"\n"), ""},
		{"code takes testing", "imports", imports("internal/proxy", "testing"), "only tests need"},
		{"code takes cmp", "imports", imports("internal/proxy", "github.com/google/go-cmp/cmp"),
			"only tests need"},
		{"cmd is taken", "imports", imports("internal/server", Module+"/cmd/headgate"), "wired"},
		{"server takes the engine", "imports",
			imports("internal/server", "github.com/nats-io/nats-server/v2/server"), "10 MB"},
		{"embedded takes the engine", "imports",
			imports("embedded", "github.com/nats-io/nats-server/v2/server"), ""},
		{"proxy takes nats", "imports", imports("internal/proxy", "github.com/nats-io/nats.go"),
			"only the store"},
		{"server takes yaml", "imports", imports("internal/server", "go.yaml.in/yaml/v4"),
			"only internal/config"},
		{"server takes flags", "imports", imports("internal/server", "flag"), "read flags"},
		{"a simulation takes NATS", "imports",
			imports("internal/sim/lending", Module+"/internal/store"), "the arithmetic and the counter"},
		{"a simulation takes the counter", "imports",
			imports("internal/sim/lending", Module+"/internal/counter"), ""},
		{"a simulation takes the report", "imports",
			imports("internal/sim/plan", Module+"/internal/sim/report"), "one way"},
		{"a report takes the counter", "imports",
			imports("internal/sim/report", Module+"/internal/counter"), "what simulations came to"},
		{"a server simulates", "imports", imports("internal/server", Module+"/internal/sim"),
			"only the commands simulate"},
		{"api takes grpc", "imports", imports("internal/api", "google.golang.org/grpc"), "Envoy"},
		{"now", "clocks", one("slot/a.go", ok+"func f() { time.Now() }\n"), "takes the time"},
		{"now in a test", "clocks", one("slot/a_test.go", ok+"func f() { time.Now() }\n"), ""},
		{"environment", "environment", one("a.go", ok+"func f() { os.Getenv(\"A\") }\n"), "os.Getenv"},
		{"counter", "state", one("a.go", ok+"var n int\n"), "variable n"},
		{"cache", "state", one("a.go", ok+"var m = make(map[string]int)\n"), "variable m"},
		{"table written", "state", one("a.go", ok+"var m = map[string]int{}\n"+
			"func f() { m[\"a\"] = 1 }\n"), "variable m"},
		{"table read", "state", one("a.go", ok+"var m = map[string]int{}\n"+
			"func f() int { return m[\"a\"] }\n"), ""},
		{"pool", "state", one("a.go", ok+"var p = sync.Pool{}\n"), "variable p"},
		{"constants", "state", one("a.go", ok+"var ErrFull = errors.New(\"full\")\nvar files embed.FS\n"+
			"var _ I = (*T)(nil)\nvar re = regexp.MustCompile(`a`)\n//go:embed a.js\nvar script []byte\n"), ""},
		{"go", "goroutines", one("a.go", ok+"func f() { go f() }\n"), "who waits"},
		{"wg.Go", "goroutines", one("a.go", ok+"func f() { wg.Go(f) }\n"), "who waits"},
		{"go in a test", "goroutines", one("a_test.go", ok+"func f() { go f() }\n"), ""},
		{"sleep", "sleeps", one("a_test.go", ok+"func f() { time.Sleep(1) }\n"), "outside a bubble"},
		{"bubble", "sleeps", one("a_test.go", ok+"func TestA() {\n"+
			"\tsynctest.Test(t, func() { time.Sleep(1) })\n}\n"), ""},
		{"beside a bubble", "sleeps", one("a_test.go", ok+"import \"testing/synctest\"\n"+
			"func TestA() { time.Sleep(1) }\n"), "outside a bubble"},
		{"helper", "sleeps", one("a_test.go", ok+"import \"testing/synctest\"\n"+
			"func f() { time.Sleep(1) }\n"), ""},
		{"called in a bubble", "sleeps", one("a_test.go", ok+"// f runs in a bubble.\n"+
			"func f() { time.Sleep(1) }\n"), ""},
		{"skip", "skips", one("a_test.go", ok+"func f() { t.Skip() }\n"), "a silent one"},
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
		{"no table", "metrics", one("a.go", ok+"const a = \"headgate_called 1\"\n"),
			"metric headgate_called"},
		{"no code", "metrics", one(Operations, page), "no code has"},
		{"no metric", "metrics", map[string]string{"a.go": ok +
			"type A struct{ B int `json:\"headgate_b\"` }\n"}, ""},
		{"both", "metrics", map[string]string{Operations: page,
			"a.go": ok + "const a = `# HELP headgate_called x`\n"}, ""},
		{"no page", "flags", one("cmd/x/a.go", ok+"import \"flag\"\n"+
			"func f(s *flag.FlagSet) { s.StringVar(&a, \"origin\", \"\", \"x\") }\n"), "flag --origin"},
		{"page", "flags", map[string]string{Operations: page, "cmd/x/a.go": ok + "import \"flag\"\n" +
			"func f(s *flag.FlagSet) { s.String(\"origin\", \"\", \"x\") }\n"}, ""},
		{"help", "flags", one("cmd/x/a.go", ok+"const help = `\n  --origin URL  x\n`\n"), "flag --origin"},
		{"no group", "keys", one("internal/config/a.go", ok+"func f() { g(field{name: \"rooms\"}) }\n"),
			"key rooms"},
		{"no key", "keys", map[string]string{Operations: page, "internal/config/a.go": key("host")},
			"key host"},
		{"key", "keys",
			map[string]string{Operations: page, "internal/config/a.go": key("name")}, ""},
	}
}

func TestExceptionsAreUsed(t *testing.T) {
	clean := tree(t, one("a.go", ok))
	excused := map[string]string{"a.go": "nobody"}
	for name, faults := range map[string][]Fault{
		"state": State(clean, excused), "goroutines": Goroutines(clean, excused),
		"sleeps": Sleeps(clean, excused),
	} {
		if len(faults) != 1 || !strings.Contains(faults[0].Text, "needs no exception") {
			t.Errorf("%s: found %v, want the idle exception", name, faults)
		}
	}
	starts := tree(t, one("a.go", ok+"func f() { go f() }\n"))
	if faults := Goroutines(starts, excused); len(faults) != 0 {
		t.Errorf("found %v, want the exception to hold", faults)
	}
}

func TestReadRefusesBrokenGo(t *testing.T) {
	fsys := fstest.MapFS{"a.go": &fstest.MapFile{Data: []byte("package")}}
	if _, err := Read(fsys); err == nil || !strings.Contains(err.Error(), "a.go") {
		t.Errorf("Read: %v, want an error that names a.go", err)
	}
}
