package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/token"
	"strings"
	"unicode/utf8"
)

// The sizes of style: what is reported and what fails. They were read off the
// codebases people like to read: what sets those apart is a tail without monsters.
const (
	softFile, hardFile = 400, 700
	softTest, hardTest = 700, 1000
	hardFunc           = 100
	softLine, hardLine = 100, 110
	rootFiles          = 25
	rootLines          = 5100
	tabColumns         = 4
	longString         = 40 // a literal this long may push its line over the edge
)

// longReason in the first comment of a file excuses its length.
const longReason = "This file is long because"

// FileSizes holds the length of files; soft is for reports, hard for failures.
func FileSizes(t *Tree) (hard, soft []Fault) {
	files, lines := 0, 0
	for _, f := range t.Go {
		n := bytes.Count(f.Src, []byte("\n"))
		if f.Dir == "." && !f.Test {
			files, lines = files+1, lines+n
		}
		if len(f.AST.Comments) > 0 && strings.Contains(f.AST.Comments[0].Text(), longReason) {
			continue
		}
		softMax, hardMax := softFile, hardFile
		if f.Test {
			softMax, hardMax = softTest, hardTest
		}
		fault := Fault{Path: f.Path, Text: fmt.Sprintf("%d lines (aim under %d, at most %d): "+
			"look for a second noun", n, softMax, hardMax)}
		switch {
		case n > hardMax:
			hard = append(hard, fault)
		case n > softMax:
			soft = append(soft, fault)
		}
	}
	if files > rootFiles || lines > rootLines {
		hard = append(hard, Fault{Path: ".", Text: fmt.Sprintf("the root package has %d files and "+
			"%d lines (at most %d and %d): move a face into its own package",
			files, lines, rootFiles, rootLines)})
	}
	return hard, soft
}

// FunctionSizes holds the length of functions. A test that is a list of subtests
// is as long as what stands outside them, and each subtest counts by itself.
func FunctionSizes(t *Tree) []Fault {
	var faults []Fault
	for _, f := range t.Go {
		for _, decl := range f.AST.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			n := t.length(fn)
			if f.Test {
				for _, sub := range subtests(fn) {
					n -= t.length(sub)
					if l := t.length(sub); l > hardFunc {
						faults = append(faults, t.fault(f, sub.Pos(), "a subtest of %s has %d lines, "+
							"at most %d", fn.Name.Name, l, hardFunc))
					}
				}
			}
			if n > hardFunc {
				faults = append(faults, t.fault(f, fn.Pos(), "%s has %d lines, at most %d",
					fn.Name.Name, n, hardFunc))
			}
		}
	}
	return faults
}

// length is the number of lines of a node.
func (t *Tree) length(n ast.Node) int {
	return t.line(n.End()) - t.line(n.Pos()) + 1
}

// subtests are the outermost function literals that are handed to a call along
// with a name: t.Run("in order", func…).
func subtests(fn *ast.FuncDecl) []*ast.FuncLit {
	var subs []*ast.FuncLit
	ast.Inspect(fn, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) < 2 {
			return true
		}
		lit, ok := call.Args[len(call.Args)-1].(*ast.FuncLit)
		if ok {
			subs = append(subs, lit)
		}
		return !ok
	})
	return subs
}

// LineSizes holds the width of lines. An address or a long literal excuses.
func LineSizes(t *Tree) (hard, soft []Fault) {
	for _, f := range t.Go {
		literals := t.longLiterals(f)
		number := 0
		for line := range bytes.Lines(f.Src) {
			number++
			line = bytes.TrimRight(line, "\r\n")
			width := utf8.RuneCount(line) + (tabColumns-1)*bytes.Count(line, []byte("\t"))
			if width <= softLine || literals[number] || bytes.Contains(line, []byte("://")) {
				continue
			}
			fault := Fault{f.Path, number, fmt.Sprintf("%d columns (aim for %d, at most %d)",
				width, softLine, hardLine)}
			if width > hardLine {
				hard = append(hard, fault)
			} else {
				soft = append(soft, fault)
			}
		}
	}
	return hard, soft
}

// longLiterals are the lines that hold a long string.
func (t *Tree) longLiterals(f *File) map[int]bool {
	lines := map[int]bool{}
	ast.Inspect(f.AST, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING || len(lit.Value) < longString {
			return true
		}
		for l := range t.length(lit) {
			lines[t.line(lit.Pos())+l] = true
		}
		return true
	})
	return lines
}

// Format wants every Go file as gofmt writes it.
func Format(t *Tree) []Fault {
	var faults []Fault
	for _, f := range t.Go {
		want, err := format.Source(f.Src)
		if err != nil || !bytes.Equal(want, f.Src) {
			faults = append(faults, Fault{Path: f.Path, Text: "not formatted: run gofmt -w"})
		}
	}
	return faults
}
