package house

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
)

// Goroutines requires that something waits for every goroutine. A file that starts one must be on
// the list, and the list names what waits for it.
func Goroutines(t *Tree, waiters map[string]string) []Fault {
	var faults []Fault
	used := map[string]bool{}
	t.code(func(f *File) {
		ast.Inspect(f.AST, func(n ast.Node) bool {
			_, plain := n.(*ast.GoStmt)
			if _, name := callee(n); !plain && name != "Go" {
				return true
			}
			if _, ok := waiters[f.Path]; ok {
				used[f.Path] = true
				return true
			}
			faults = append(faults, t.fault(f, n.Pos(), "starts a goroutine: say in "+
				"internal/house/exceptions_test.go who waits for it"))
			return true
		})
	})
	for _, path := range slices.Sorted(maps.Keys(waiters)) {
		if !used[path] {
			faults = append(faults, Fault{Path: "internal/house/exceptions_test.go",
				Text: path + " starts no goroutine anymore: take it out"})
		}
	}
	return faults
}

// Sleeps finds time.Sleep in tests, outside the bubbles of testing/synctest and tests/virtual. A
// test that sleeps is slow when it passes, and wrong on a busy machine. A call whose name contains
// bubble creates one. A function whose comment contains bubble is called only in bubbles, and so
// are the helpers in a file of bubble tests.
func Sleeps(t *Tree) []Fault {
	var faults []Fault
	for _, f := range t.Go {
		if !f.Test && !match([]string{"tests/..."}, f.Dir) {
			continue
		}
		for _, decl := range f.AST.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if ok && calledInBubble(f, fn) {
				continue
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				pkg, name := callee(n)
				if pkg == "synctest" || pkg == "virtual" || strings.Contains(strings.ToLower(name), "bubble") {
					return false
				}
				if pkg != "time" || name != "Sleep" {
					return true
				}
				faults = append(faults, t.fault(f, n.Pos(), "time.Sleep outside a bubble: "+
					"use testing/synctest, or wait for the event"))
				return true
			})
		}
	}
	return faults
}

func calledInBubble(f *File, fn *ast.FuncDecl) bool {
	if strings.Contains(strings.ToLower(fn.Doc.Text()), "bubble") {
		return true
	}
	helper := !slices.ContainsFunc([]string{"Test", "Benchmark", "Fuzz", "Example"},
		func(prefix string) bool { return strings.HasPrefix(fn.Name.Name, prefix) })
	return helper && slices.ContainsFunc(f.AST.Imports, func(s *ast.ImportSpec) bool {
		return s.Path.Value == `"testing/synctest"` ||
			strings.HasSuffix(s.Path.Value, `/tests/virtual"`)
	})
}
