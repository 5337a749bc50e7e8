package house

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
)

// PackageComments wants exactly one package comment in each package.
func PackageComments(t *Tree) []Fault {
	var faults []Fault
	dirs := map[string][]*File{}
	code := map[string]bool{}
	for _, f := range t.Go {
		dirs[f.Dir] = append(dirs[f.Dir], f)
		code[f.Dir] = code[f.Dir] || !f.Test
	}
	for _, dir := range sortedKeys(dirs) {
		var told []*File
		for _, f := range dirs[dir] {
			// A folder of nothing but tests tells its story in one of them.
			if text := f.AST.Doc.Text(); text != "" && f.Test != code[dir] {
				told = append(told, f)
				if want := "Package " + f.AST.Name.Name + " "; f.AST.Name.Name != "main" &&
					!f.Test && !strings.HasPrefix(text, want) {
					faults = append(faults, t.fault(f, f.AST.Doc.Pos(), "begin with %q", want))
				}
			}
		}
		switch {
		case len(told) == 0:
			faults = append(faults, Fault{Path: dir, Text: "no package comment: say what the " +
				"package is, its promise, concurrency, cost and what it does not do"})
		case len(told) > 1:
			faults = append(faults, t.fault(told[1], told[1].AST.Doc.Pos(),
				"a second package comment; the other is in %s", told[0].Path))
		}
	}
	return faults
}

// Documented wants a comment on every exported name of the packages users see.
func Documented(t *Tree) []Fault {
	var faults []Fault
	t.code(func(f *File) {
		if !match(strings.Fields(". slot limit embedded headgatetest"), f.Dir) {
			return
		}
		for _, decl := range f.AST.Decls {
			for _, name := range undocumented(decl) {
				faults = append(faults, t.fault(f, name.Pos(), "%s has no comment", name.Name))
			}
		}
	})
	return faults
}

func undocumented(decl ast.Decl) []*ast.Ident {
	var bare []*ast.Ident
	note := func(name *ast.Ident, docs ...*ast.CommentGroup) {
		told := slices.ContainsFunc(docs, func(d *ast.CommentGroup) bool { return d.Text() != "" })
		if name.IsExported() && !told {
			bare = append(bare, name)
		}
	}
	switch d := decl.(type) {
	case *ast.FuncDecl:
		// The methods of well-known interfaces need no words of their own.
		known := strings.Fields("String Error Unwrap Is Len Less Swap Close Read Write ServeHTTP")
		if d.Recv == nil || receiverExported(d) && !slices.Contains(known, d.Name.Name) {
			note(d.Name, d.Doc)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				note(s.Name, d.Doc, s.Doc)
			case *ast.ValueSpec:
				for _, name := range s.Names {
					note(name, d.Doc, s.Doc, s.Comment)
				}
			}
		}
	}
	return bare
}

func receiverExported(d *ast.FuncDecl) bool {
	typ := d.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.IndexListExpr:
			typ = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return false
		}
	}
}

// Unfinished finds marks of work left for later: an issue is the place for it.
func Unfinished(t *Tree) []Fault {
	var faults []Fault
	mark := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`)
	for _, f := range t.Go {
		for _, group := range f.AST.Comments {
			for _, c := range group.List {
				if m := mark.FindString(c.Text); m != "" {
					faults = append(faults,
						t.fault(f, c.Pos(), "%s: finish it or open an issue", m))
				}
			}
		}
	}
	return faults
}

// Names bans the names that say nothing.
func Names(t *Tree) []Fault {
	var faults []Fault
	empty := regexp.MustCompile(
		`^(utils?|commons?|helpers?|managers?|impl|info|data|models?|pkg|src|misc)$`)
	for name := range t.Files {
		base := strings.TrimSuffix(strings.TrimSuffix(path.Base(name), ".go"), "_test")
		if empty.MatchString(base) && !strings.Contains(name, "testdata/") {
			faults = append(faults,
				Fault{Path: name, Text: "name it after what it holds, not " + base})
		}
	}
	slices.SortFunc(faults, func(a, b Fault) int { return strings.Compare(a.Path, b.Path) })
	return faults
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
