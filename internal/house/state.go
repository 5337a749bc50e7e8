package house

import (
	"go/ast"
	"go/token"
	"strings"
)

// Inits finds init functions: what runs before main hides from its reader.
func Inits(t *Tree) []Fault {
	var faults []Fault
	for _, f := range t.Go {
		for _, decl := range f.AST.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				faults = append(faults, t.fault(f, fn.Pos(), "init(): do it where it is called for"))
			}
		}
	}
	return faults
}

// State finds variables of packages that hold state. Errors, embedded files,
// what is compiled once, interface assertions, and tables that nothing writes
// are constants in all but name.
func State(t *Tree, excused map[string]string) []Fault {
	var faults []Fault
	written := t.written()
	used := map[string]bool{}
	t.code(func(f *File) {
		for _, decl := range f.AST.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.VAR {
				continue
			}
			for _, spec := range gen.Specs {
				s := spec.(*ast.ValueSpec)
				for i, name := range s.Names {
					key := variable(f, name.Name)
					if _, ok := excused[key]; ok {
						used[key] = true
						continue
					}
					if written[key] || !embedded(gen.Doc) && !constantInAllButName(s, i) {
						faults = append(faults, t.fault(f, name.Pos(), "variable %s of the package: "+
							"put it in a struct that New makes", name.Name))
					}
				}
			}
		}
	})
	return append(faults, unused("State", excused, used)...)
}

func constantInAllButName(s *ast.ValueSpec, i int) bool {
	if s.Names[i].Name == "_" {
		return true
	}
	if typ, ok := s.Type.(*ast.SelectorExpr); ok && typ.Sel.Name == "FS" { // embed.FS
		return true
	}
	if i >= len(s.Values) {
		return embedded(s.Doc)
	}
	switch v := s.Values[i].(type) {
	case *ast.CompositeLit: // a table, unless something writes it
		return !locking(v.Type)
	case *ast.UnaryExpr:
		lit, ok := v.X.(*ast.CompositeLit)
		return ok && strings.HasPrefix(strings.ToLower(s.Names[i].Name), "err") && lit != nil
	case *ast.CallExpr:
		switch pkg, name := callee(v); pkg + "." + name {
		case "errors.New", "fmt.Errorf", "regexp.MustCompile", "template.Must",
			"strings.NewReplacer", "netip.MustParsePrefix", "netip.MustParseAddr":
			return true
		}
	}
	return false
}

// locking reports whether a type is of package sync or atomic: those are there
// to be changed.
func locking(typ ast.Expr) bool {
	sel, ok := typ.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := sel.X.(*ast.Ident)
	return ok && (pkg.Name == "sync" || pkg.Name == "atomic")
}

// embedded reports whether go:embed fills the variable in.
func embedded(doc *ast.CommentGroup) bool {
	if doc == nil {
		return false
	}
	for _, c := range doc.List {
		if strings.HasPrefix(c.Text, "//go:embed") {
			return true
		}
	}
	return false
}

// variable names a variable of a package: slot.x, or just x at the root.
func variable(f *File, name string) string {
	if f.Dir == "." {
		return name
	}
	return f.Dir + "." + name
}

// written are the variables that some statement of their own package
// assigns to, or takes the address of. A local variable of the same name is
// taken for the package's: give one of them another name.
func (t *Tree) written() map[string]bool {
	names := map[string]bool{}
	for _, f := range t.Go {
		note := func(e ast.Expr) {
			if name := root(e); name != "" {
				names[variable(f, name)] = true
			}
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				if n.Tok == token.DEFINE {
					break
				}
				for _, e := range n.Lhs {
					note(e)
				}
			case *ast.IncDecStmt:
				note(n.X)
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					note(n.X)
				}
			case *ast.CallExpr:
				if _, name := callee(n); (name == "delete" || name == "clear") && len(n.Args) > 0 {
					note(n.Args[0])
				}
			}
			return true
		})
	}
	return names
}

// root is the variable at the bottom of an expression such as a[i] or *a. A
// field's variable is left out: x.f = y is mostly a method's receiver.
func root(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.IndexExpr:
		return root(e.X)
	case *ast.StarExpr:
		return root(e.X)
	case *ast.ParenExpr:
		return root(e.X)
	}
	return ""
}

// unused finds exceptions that excuse nothing any more.
func unused(rule string, excused map[string]string, used map[string]bool) []Fault {
	var faults []Fault
	for _, key := range sortedKeys(excused) {
		if !used[key] {
			faults = append(faults, Fault{Path: "internal/house/exceptions.go",
				Text: rule + ": " + key + " needs no exception any more: take it out"})
		}
	}
	return faults
}
