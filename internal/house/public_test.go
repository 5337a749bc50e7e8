package house

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/headgate/headgate"

// goList returns the lines that go list prints.
func goList(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	cmd.Dir, cmd.Stderr = "../..", os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// TestTheBinaryHasNoTemplates: they call methods by name, so the linker keeps every exported method
// of the program. That was 6 MB.
func TestTheBinaryHasNoTemplates(t *testing.T) {
	all := goList(t, "-deps", "-tags", "grpcnotrace", "./cmd/headgate")
	if !slices.Contains(all, "net/http") {
		t.Fatalf("%d packages and no net/http", len(all))
	}
	for _, pkg := range []string{"text/template", "html/template"} {
		if slices.Contains(all, pkg) {
			t.Errorf("the binary has %s: go mod why %s", pkg, pkg)
		}
	}
}

// TestPublicPackagesShowNoInternalTypes checks every package that users can import: they can
// neither name the types of internal packages nor read about them.
func TestPublicPackagesShowNoInternalTypes(t *testing.T) {
	public := slices.DeleteFunc(goList(t, "-f", `{{if ne .Name "main"}}{{.ImportPath}}{{end}}`, "./..."),
		func(path string) bool {
			top, _, _ := strings.Cut(strings.TrimPrefix(path, module+"/"), "/")
			return slices.Contains([]string{"internal", "tests", "examples"}, top)
		})
	exports := map[string]string{}
	for _, pair := range goList(t, append([]string{"-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}"},
		public...)...) {
		path, file, _ := strings.Cut(pair, "=")
		exports[path] = file
	}
	if len(public) < 7 {
		t.Fatalf("found the public packages %v, want 7 at least", public)
	}
	gc := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	for _, path := range public {
		pkg, err := gc.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, leak := range leaks(pkg) {
			t.Error(leak)
		}
	}
}

// TestLeaksAreFound has a package that shows an internal type in every way.
func TestLeaksAreFound(t *testing.T) {
	set := token.NewFileSet()
	check := func(path, src string, from types.Importer) *types.Package {
		t.Helper()
		f, err := parser.ParseFile(set, path, src, 0)
		if err != nil {
			t.Fatal(err)
		}
		pkg, err := (&types.Config{Importer: from}).Check(path, set, []*ast.File{f}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return pkg
	}
	inside := check(module+"/internal/in", "package in\ntype T struct{}\nfunc (T) M() T { panic(0) }\n", nil)
	from := importFunc(func(string) (*types.Package, error) { return inside, nil })
	head := "package p\nimport \"" + module + "/internal/in\"\n"
	for src, want := range map[string]int{
		"func F() in.T { panic(0) }":                 1,
		"var V map[string]*in.T":                     1,
		"type A = in.T":                              1,
		"type S struct { F []in.T; G func(in.T) }":   2,
		"type S struct { in.T }":                     1,
		"type S struct{}; func (S) M(in.T) {}":       1,
		"type I interface { M() <-chan in.T }":       1,
		"type S struct { N struct { F in.T } }":      1,
		"type G[P any] struct{ F P }; var V G[in.T]": 1,
		"type t = in.T; type S struct { t; f in.T }": 0, // for this module only
		"type S struct{}; func (S) m(in.T) {}":       0,
		"func f() in.T { panic(0) }":                 0,
	} {
		if got := leaks(check(module+"/p", head+src+"\nvar _ in.T\n", from)); len(got) != want {
			t.Errorf("%s: found %q, want %d", src, got, want)
		}
	}
}

type importFunc func(path string) (*types.Package, error)

func (f importFunc) Import(path string) (*types.Package, error) { return f(path) }

// leaks returns where the exported declarations of a package mention a type of an internal package.
// What an embedded unexported field promotes does not count: it is for this module.
func leaks(pkg *types.Package) (found []string) {
	var where string
	var walk func(types.Type)
	tuple := func(t *types.Tuple) {
		for v := range t.Variables() {
			walk(v.Type())
		}
	}
	walk = func(t types.Type) {
		switch t := t.(type) {
		case *types.Named:
			if p := t.Obj().Pkg(); p != nil && strings.Contains(p.Path(), "/internal/") {
				found = append(found, where+": "+t.String())
			}
			for arg := range t.TypeArgs().Types() {
				walk(arg)
			}
		case *types.Alias:
			walk(t.Rhs())
		case interface{ Elem() types.Type }: // a pointer, a slice, an array, a channel or a map
			walk(t.Elem())
			if m, ok := t.(*types.Map); ok {
				walk(m.Key())
			}
		case *types.Signature:
			tuple(t.Params())
			tuple(t.Results())
		case *types.Struct:
			for f := range t.Fields() {
				if f.Exported() {
					walk(f.Type())
				}
			}
		case *types.Interface:
			for m := range t.ExplicitMethods() {
				walk(m.Type())
			}
			for e := range t.EmbeddedTypes() {
				walk(e)
			}
		}
	}
	for _, name := range pkg.Scope().Names() {
		object := pkg.Scope().Lookup(name)
		if !object.Exported() {
			continue
		}
		where = pkg.Path() + "." + name
		named, ok := object.Type().(*types.Named)
		if _, isType := object.(*types.TypeName); !isType || !ok {
			walk(object.Type())
			continue
		}
		walk(named.Underlying())
		for m := range named.Methods() {
			if where = pkg.Path() + "." + name + "." + m.Name(); m.Exported() {
				walk(m.Type())
			}
		}
	}
	return found
}
