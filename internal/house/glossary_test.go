package house

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"strings"
)

const glossaryPage = "docs/glossary.md"

// Glossary checks that no exported name uses a word that docs/glossary.md replaces: the words of
// the last column of its table. SameSite is the name of a cookie attribute (RFC 6265bis).
func Glossary(t *Tree) []Fault {
	instead := map[string]string{}
	for line := range strings.Lines(string(t.Text[glossaryPage])) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.TrimSpace(cells[1]) == "word" { // the head of the table
			continue
		}
		for word := range strings.FieldsSeq(strings.ReplaceAll(cells[3], ",", " ")) {
			instead[word] = strings.TrimSpace(cells[1])
		}
	}
	words := regexp.MustCompile(`[A-Z][a-z]+`)
	var faults []Fault
	check := func(name *ast.Ident) {
		if !name.IsExported() {
			return
		}
		for _, word := range words.FindAllString(strings.ReplaceAll(name.Name, "SameSite", ""), -1) {
			word = strings.ToLower(word)
			good, bad := instead[word]
			if !bad {
				good, bad = instead[strings.TrimSuffix(word, "s")]
			}
			if bad {
				at := t.Set.Position(name.Pos())
				faults = append(faults, Fault{at.Filename, at.Line,
					fmt.Sprintf("%s: write %s, the word of %s", name.Name, good, path.Base(glossaryPage))})
			}
		}
	}
	t.code(func(f *File) {
		ast.Inspect(f.AST, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				check(n.Name)
				return false // names inside a function are its own
			case *ast.TypeSpec:
				check(n.Name)
			case *ast.ValueSpec:
				for _, name := range n.Names {
					check(name)
				}
			case *ast.Field:
				for _, name := range n.Names {
					check(name)
				}
			}
			return true
		})
	})
	return faults
}
