package house

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"unicode"
)

// Secrets finds comparisons of secrets that take longer the more of a guess is right. A secret is
// what is named so. Comparisons with a literal, such as "", tell nothing.
func Secrets(t *Tree) []Fault {
	var faults []Fault
	t.code(func(f *File) {
		bad := func(p token.Pos, all ...ast.Expr) {
			if slices.ContainsFunc(all, isSecret) && !slices.ContainsFunc(all, isPublic) {
				faults = append(faults, t.fault(f, p, "compares a secret: use subtle.ConstantTimeCompare, "+
					"hmac.Equal or compare hashes"))
			}
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if n.Op == token.EQL || n.Op == token.NEQ {
					bad(n.Pos(), n.X, n.Y)
				}
			case *ast.SwitchStmt:
				if n.Tag != nil && isSecret(n.Tag) {
					bad(n.Pos(), n.Tag)
				}
			case *ast.CallExpr:
				pkg, name := callee(n)
				compares := slices.Contains(strings.Fields("Equal EqualFold Compare Contains Index HasPrefix"), name)
				if compares && slices.Contains(strings.Fields("bytes strings slices reflect"), pkg) {
					bad(n.Pos(), n.Args...)
				}
			}
			return true
		})
	})
	return faults
}

// isSecret reports whether an expression is named as a secret is. A hash of one is none: who guesses
// cannot choose it byte by byte.
func isSecret(e ast.Expr) bool {
	name := ""
	switch x := e.(type) {
	case *ast.Ident:
		if ast.IsExported(x.Name) { // a constant: package state holds no secret
			return false
		}
		name = x.Name
	case *ast.SelectorExpr:
		name = x.Sel.Name
	case *ast.CallExpr: // string(secret)
		if id, ok := x.Fun.(*ast.Ident); ok && id.Name == "len" {
			return false
		}
		return slices.ContainsFunc(x.Args, isSecret)
	case *ast.IndexExpr:
		return isSecret(x.X)
	case *ast.SliceExpr:
		return isSecret(x.X)
	case *ast.StarExpr:
		return isSecret(x.X)
	case *ast.ParenExpr:
		return isSecret(x.X)
	}
	last := strings.LastIndexFunc(name, unicode.IsUpper)
	word := strings.TrimSuffix(strings.ToLower(name[max(0, last):]), "s")
	return slices.Contains(strings.Fields("secret password token signature mac hmac sealed"), word)
}

// isPublic reports whether an expression is a literal, nil, or a constant of another package, such
// as token.STRING.
func isPublic(e ast.Expr) bool {
	switch x := e.(type) {
	case *ast.BasicLit:
		return true
	case *ast.Ident:
		return x.Name == "nil"
	case *ast.SelectorExpr:
		return strings.ToUpper(x.Sel.Name) == x.Sel.Name
	case *ast.CallExpr: // []byte("…")
		return len(x.Args) == 1 && isPublic(x.Args[0])
	}
	return false
}
