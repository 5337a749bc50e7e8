//go:build !cluster

package cluster

import (
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// besides are the scenarios that are played with NATS servers beside, too.
func besides() map[string]func(t *testing.T) {
	return map[string]func(t *testing.T){
		"TestLimits": testLimits, "TestLostAnswers": testLostAnswers, "TestSkew": testSkew,
		"TestRollingRestart": func(t *testing.T) { roll(t, usual()) },
	}
}

// TestBeside plays scenarios with the records in NATS servers of the operator's own.
func TestBeside(t *testing.T) {
	*beside = true
	defer func() { *beside = false }()
	for _, name := range slices.Sorted(maps.Keys(besides())) {
		t.Run(name, func(t *testing.T) { play(t, besides()[name]) })
	}
}

// withoutTwin are rows of docs/faults.md that only real processes play, and why.
func withoutTwin() map[string]string {
	return map[string]string{
		"TestClocksApart": "wall clocks are not of the world: the standard library's is patched",
	}
}

// TestEachRowHasATwin: each scenario of docs/faults.md is played in virtual time.
func TestEachRowHasATwin(t *testing.T) {
	page, err := os.ReadFile("../../docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := virtualTests(t)
	rows := regexp.MustCompile("(?m)^\\| `(Test\\w+)( -own-nats)?` ").FindAllStringSubmatch(string(page), -1)
	if len(rows) < 40 {
		t.Errorf("%d rows: this test does not know the tables any more", len(rows))
	}
	for _, row := range rows {
		name, own := row[1], row[2] != ""
		_, besideToo := besides()[name]
		switch {
		case withoutTwin()[name] != "" && tests[name]:
			t.Errorf("%s has a twin, and is said to have none", name)
		case withoutTwin()[name] != "":
		case !tests[name]:
			t.Errorf("%s is not played in virtual time", name)
		case own && !besideToo:
			t.Errorf("%s is not played with NATS servers beside", name)
		}
	}
}

// virtualTests are the tests of this folder that are built without a tag.
func virtualTests(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if tagged(f) {
			continue
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(fn.Name.Name, "Test") {
				all[fn.Name.Name] = true
			}
		}
	}
	return all
}

// tagged reports whether a file is built with the tag cluster alone.
func tagged(f *ast.File) bool {
	for _, group := range f.Comments {
		for _, c := range group.List {
			if x, err := constraint.Parse(c.Text); err == nil {
				return !x.Eval(func(string) bool { return false })
			}
		}
	}
	return false
}
