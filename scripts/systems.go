//go:build ignore

// Systems checks the types of all packages, tests included, as other systems than this one build
// them: those of its arguments, as windows/amd64. Unlike go vet it reads what they import from its
// source, without the bodies of functions: to compile all that for each system takes minutes.
package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A source is a package as go list describes it.
type source struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	DepOnly         bool
	Module          *struct{ GoVersion string }
}

// A system is what has been read for it.
type system struct {
	os, arch string
	files    *token.FileSet
	read     map[string]*types.Package
}

func main() {
	code := 0
	for _, name := range os.Args[1:] {
		goos, arch, _ := strings.Cut(name, "/")
		s := &system{goos, arch, token.NewFileSet(), map[string]*types.Package{"unsafe": types.Unsafe}}
		if err := s.check(); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			code = 1
		}
	}
	os.Exit(code)
}

// check reads the packages in the order in which go list gives them: each after its imports.
func (s *system) check() error {
	list := exec.Command("go", "list", "-deps", "-test",
		"-json=ImportPath,Dir,GoFiles,ImportMap,DepOnly,Module", "./...")
	list.Env = append(os.Environ(), "GOOS="+s.os, "GOARCH="+s.arch, "CGO_ENABLED=0")
	list.Stderr = os.Stderr
	out, err := list.StdoutPipe()
	if err == nil {
		err = list.Start()
	}
	var wrong []string
	for in := json.NewDecoder(out); err == nil; {
		var p source
		if err = in.Decode(&p); err == nil && p.ImportPath != "unsafe" && !strings.HasSuffix(p.ImportPath, ".test") {
			wrong = append(wrong, s.source(&p)...)
		}
	}
	if err == io.EOF {
		err = list.Wait()
	}
	slices.Sort(wrong)
	wrong = slices.Compact(wrong) // a package is read again for its tests
	if err == nil && len(wrong) > 0 {
		err = fmt.Errorf("%d errors\n%s", len(wrong), strings.Join(wrong, "\n"))
	}
	return err
}

// source reads one package, and says what is wrong with it if it is one of ours.
func (s *system) source(p *source) (wrong []string) {
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(s.files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil && !p.DepOnly {
			wrong = append(wrong, err.Error())
		}
		files = append(files, f)
	}
	cfg := types.Config{
		Importer:         imports{s, p.ImportMap},
		Sizes:            types.SizesFor("gc", s.arch),
		IgnoreFuncBodies: p.DepOnly,
		Error: func(err error) {
			if !p.DepOnly {
				wrong = append(wrong, err.Error())
			}
		},
	}
	if p.Module != nil && p.Module.GoVersion != "" {
		cfg.GoVersion = "go" + p.Module.GoVersion
	}
	s.read[p.ImportPath], _ = cfg.Check(p.ImportPath, s.files, files, nil)
	return wrong
}

// imports finds what one package imports.
type imports struct {
	*system
	as map[string]string
}

func (i imports) Import(path string) (*types.Package, error) {
	if other := i.as[path]; other != "" {
		path = other
	}
	if p := i.read[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%s was not read", path)
}
