package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// A Tree is the repository as the rules see it: every text file, and every parsed Go file. Paths
// are relative to the root, with slashes.
type Tree struct {
	Text  map[string][]byte // every text file, including Go files
	Go    []*File           // by path
	Files map[string]bool   // every file and folder, including binary files
	Set   *token.FileSet
}

// A File is one Go file.
type File struct {
	Path string
	Dir  string // "." at the root
	Test bool
	Src  []byte
	AST  *ast.File
}

// A Fault is one place where a rule is broken.
type Fault struct {
	Path string
	Line int // 0: the file as a whole
	Text string
}

func (f Fault) String() string {
	if f.Line == 0 {
		return f.Path + ": " + f.Text
	}
	return fmt.Sprintf("%s:%d: %s", f.Path, f.Line, f.Text)
}

// maxText limits what is read as text: lock files and pages are far smaller.
const maxText = 4 << 20

// Read reads a tree. It skips folders of tools, fetched packages and built binaries. A Go file that
// does not parse is an error.
func Read(fsys fs.FS) (*Tree, error) {
	t := &Tree{Text: map[string][]byte{}, Files: map[string]bool{}, Set: token.NewFileSet()}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && skipped(d.Name()) {
			return fs.SkipDir
		}
		t.Files[name] = true
		if info, err := d.Info(); err != nil || !d.Type().IsRegular() || info.Size() > maxText {
			return err
		}
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		if bytes.IndexByte(src, 0) >= 0 { // an image or a font
			return nil
		}
		t.Text[name] = src
		if path.Ext(name) != ".go" || strings.Contains(name, "testdata/") {
			return nil
		}
		return t.parse(name, src)
	})
	return t, err
}

// skipped reports whether a folder holds tools, fetched packages or build output.
func skipped(folder string) bool {
	return slices.Contains(strings.Fields(".git node_modules bin coverage headgate-data"), folder)
}

func (t *Tree) parse(name string, src []byte) error {
	const mode = parser.ParseComments | parser.SkipObjectResolution
	parsed, err := parser.ParseFile(t.Set, name, src, mode)
	if err != nil {
		return fmt.Errorf("parse %s: %w", name, err)
	}
	t.Go = append(t.Go, &File{
		Path: name, Dir: path.Dir(name), Test: strings.HasSuffix(name, "_test.go"),
		Src: src, AST: parsed,
	})
	return nil
}

// line returns the line of a node.
func (t *Tree) line(p token.Pos) int { return t.Set.Position(p).Line }

// fault reports a rule broken at p.
func (t *Tree) fault(f *File, p token.Pos, format string, args ...any) Fault {
	return Fault{f.Path, t.line(p), fmt.Sprintf(format, args...)}
}

// code calls yield for every Go file that is not a test.
func (t *Tree) code(yield func(*File)) {
	for _, f := range t.Go {
		if !f.Test {
			yield(f)
		}
	}
}

// texts returns the text files whose name match accepts, in order.
func (t *Tree) texts(match func(string) bool) []string {
	var names []string
	for name := range t.Text {
		if match(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// lineAt returns the line of a byte offset in a text file.
func lineAt(src []byte, off int) int { return 1 + bytes.Count(src[:off], []byte("\n")) }

// callee splits a call such as time.Sleep(d) into "time" and "Sleep".
func callee(n ast.Node) (pkg, name string) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return "", ""
	}
	switch fun := call.Fun.(type) {
	case *ast.SelectorExpr:
		if x, ok := fun.X.(*ast.Ident); ok {
			return x.Name, fun.Sel.Name
		}
		return "", fun.Sel.Name
	case *ast.Ident:
		return "", fun.Name
	}
	return "", ""
}

// match reports whether one of the patterns is dir, or ends in "/..." and is above it.
func match(patterns []string, dir string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		base, below := strings.CutSuffix(p, "/...")
		return base == dir || below && strings.HasPrefix(dir, base+"/")
	})
}
