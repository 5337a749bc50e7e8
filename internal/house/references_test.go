package house

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"strings"
)

// A reference is a way to name something in the repository. It captures the name. have reports
// whether that name exists; it also receives the page or file of the reference.
type reference struct {
	kind    string
	pattern *regexp.Regexp
	have    func(from string, name []string) bool
}

// References requires that everything named by pages and comments exists: decision records,
// sections of pages, files, tests, and exported names of packages in backquotes.
func References(t *Tree) []Fault {
	var faults []Fault
	all := t.references()
	look := func(name string, first int, src string) {
		for _, r := range all {
			for _, at := range r.pattern.FindAllStringSubmatchIndex(src, -1) {
				var found []string
				for i := 2; i < len(at); i += 2 {
					found = append(found, src[at[i]:at[i+1]])
				}
				if !r.have(name, found) {
					line := first + strings.Count(src[:at[0]], "\n")
					faults = append(faults, Fault{name, line, "no " + r.kind + " " + strings.Join(found, " ")})
				}
			}
		}
	}
	for _, name := range t.texts(markdown) {
		if name != "docs/design.md" && name != "CHANGELOG.md" { // future and past names
			look(name, 1, string(prose(t.Text[name])))
		}
	}
	for _, f := range t.Go {
		if strings.HasPrefix(f.Path, "internal/house/") {
			continue // its bad trees
		}
		for _, group := range f.AST.Comments {
			for _, c := range group.List {
				look(f.Path, t.line(c.Pos()), c.Text)
			}
		}
	}
	return faults
}

func (t *Tree) references() []reference {
	tests, names := t.declared()
	return []reference{
		{"decision record", regexp.MustCompile(`\bADRs? (\d+)`), func(_ string, m []string) bool {
			prefix := fmt.Sprintf("docs/adr/%04s-", m[0])
			return len(t.texts(func(name string) bool { return strings.HasPrefix(name, prefix) })) == 1
		}},
		{"section", regexp.MustCompile(`([\w-]+\.md)\)?,? §(\d+(?:\.\d+)?)`), func(_ string, m []string) bool {
			heading := regexp.MustCompile(`(?m)^#+ ` + regexp.QuoteMeta(m[1]) + `[. ]`)
			return heading.Match(t.Text["docs/"+m[0]])
		}},
		{"file", regexp.MustCompile(`(?:^|[\s(\x60])((?:[a-z][\w-]*/)+[\w-]+\.(?:go|md|yaml|txtar|js))\b`),
			func(from string, m []string) bool {
				folder, _, _ := strings.Cut(m[0], "/")
				ours := t.Files[folder] || t.Files["internal/"+folder] || t.Files["docs/"+folder]
				return !ours || t.Files[m[0]] || t.Files[path.Join(path.Dir(from), m[0])] ||
					t.Files[path.Join("internal", m[0])] || t.Files[path.Join("docs", m[0])]
			}},
		{"test", regexp.MustCompile(`\b((?:Test|Fuzz|Benchmark)[A-Z]\w+)`), func(_ string, m []string) bool {
			return strings.Contains(tests, "\n"+m[0]) // -run accepts a prefix
		}},
		{"declaration", regexp.MustCompile("`([a-z]+)\\.([A-Z]\\w*[a-z]\\w*)"), func(_ string, m []string) bool {
			return names[m[0]] == nil || names[m[0]][m[1]]
		}},
	}
}

// declared returns the functions of all tests, each after a line feed, and the exported names at
// the top level of each package.
func (t *Tree) declared() (tests string, names map[string]map[string]bool) {
	names = map[string]map[string]bool{}
	var all strings.Builder
	for _, f := range t.Go {
		in := names[f.AST.Name.Name]
		if in == nil && !f.Test {
			in = map[string]bool{}
			names[f.AST.Name.Name] = in
		}
		for _, d := range f.AST.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if f.Test {
					all.WriteString("\n" + d.Name.Name)
				} else {
					in[d.Name.Name] = true
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						if !f.Test {
							in[s.Name.Name] = true
						}
					case *ast.ValueSpec:
						for _, n := range s.Names {
							if !f.Test {
								in[n.Name] = true
							}
						}
					}
				}
			}
		}
	}
	return all.String(), names
}
