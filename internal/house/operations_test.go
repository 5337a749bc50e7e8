package house

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Metrics requires that every metric of the code is in the table of docs/metrics.md, and every
// metric of the table in the code.
func Metrics(t *Tree) []Fault {
	metric := regexp.MustCompile(`\bheadgate_[a-z0-9_]*[a-z0-9]`)
	page := cells(t.Text[metricPage])
	var faults []Fault
	have := map[string]bool{}
	t.literals(func(f *File, lit *ast.BasicLit, text string) {
		for _, name := range metric.FindAllString(text, -1) {
			name = series(name)
			if !have[name] && !slices.Contains(page, name) {
				faults = append(faults,
					t.fault(f, lit.Pos(), "metric %s is not in %s", name, metricPage))
			}
			have[name] = true
		}
	})
	for _, cell := range page {
		if name := metric.FindString(cell); name == cell && name != "" && !have[name] {
			faults = append(faults, Fault{Path: metricPage, Text: "no code has the metric " + name})
		}
	}
	return faults
}

// series removes the suffix that a histogram adds to its name.
func series(name string) string {
	for _, part := range []string{"_bucket", "_sum"} {
		name = strings.TrimSuffix(name, part)
	}
	return name
}

// literals calls yield for each string in product code, except field tags.
func (t *Tree) literals(yield func(f *File, lit *ast.BasicLit, text string)) {
	t.code(func(f *File) {
		if match([]string{"internal/house/...", "tests/..."}, f.Dir) {
			return
		}
		tags := map[*ast.BasicLit]bool{}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if field, ok := n.(*ast.Field); ok {
				tags[field.Tag] = true
			}
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && !tags[lit] {
				if text, err := strconv.Unquote(lit.Value); err == nil {
					yield(f, lit, text)
				}
			}
			return true
		})
	})
}

// Flags requires that every flag is in docs/cli.md, written --name: flags defined by a
// command, and flags listed in its help text.
func Flags(t *Tree) []Fault {
	var faults []Fault
	page := string(t.Text[commandPage])
	told := regexp.MustCompile(`(?m)^\s+--([a-z][a-z-]*)`)
	note := func(f *File, n ast.Node, name string) {
		if !regexp.MustCompile("--" + regexp.QuoteMeta(name) + `\b`).MatchString(page) {
			faults = append(faults, t.fault(f, n.Pos(), "flag --%s is not in %s", name, commandPage))
		}
	}
	t.code(func(f *File) {
		if !importsFlag(f) || match([]string{"examples/..."}, f.Dir) {
			return // an example documents its flags on its own page
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if name := flagName(n); name != "" {
				note(f, n, name)
			}
			return true
		})
	})
	t.literals(func(f *File, lit *ast.BasicLit, text string) {
		if match([]string{"cmd/..."}, f.Dir) {
			for _, m := range told.FindAllStringSubmatch(text, -1) {
				note(f, lit, m[1])
			}
		}
	})
	return faults
}

func importsFlag(f *File) bool {
	return slices.ContainsFunc(f.AST.Imports, func(s *ast.ImportSpec) bool {
		return s.Path.Value == `"flag"`
	})
}

// flagName returns the name in a call such as flags.String("name", …) or flags.StringVar(&v,
// "name", …).
func flagName(n ast.Node) string {
	_, kind := callee(n)
	kind, toVar := strings.CutSuffix(kind, "Var")
	kinds := strings.Fields("Bool Duration Float64 Int Int64 String Uint Uint64 Func BoolFunc")
	if !slices.Contains(kinds, kind) && !(toVar && (kind == "" || kind == "Text")) {
		return ""
	}
	args := n.(*ast.CallExpr).Args
	if toVar && len(args) > 0 {
		args = args[1:]
	}
	if len(args) < 2 {
		return ""
	}
	return literal(args[0])
}

// literal returns the value of a plain string, else "".
func literal(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	text, _ := strconv.Unquote(lit.Value)
	return text
}

// Keys requires that every configuration key is in docs/configuration.md, or on the page of its
// subject. The keys are the names in the field tables of internal/config.
func Keys(t *Tree) []Fault {
	var faults []Fault
	page := cells(t.Text[keyPage])
	for _, other := range []string{"identity", "cluster", "service"} { // keys of one subject are on its page
		page = append(page, cells(t.Text["docs/"+other+".md"])...)
	}
	t.code(func(f *File) {
		if f.Dir != "internal/config" {
			return
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if key := fieldKey(n); key != "" && !slices.Contains(page, key) {
				faults = append(faults, t.fault(f, n.Pos(), "key %s is not in %s", key, keyPage))
			}
			return true
		})
	})
	return faults
}

// fieldKey returns the key in one("key", …) and similar calls, or in a literal field{name: "key"}
// of internal/config.
func fieldKey(n ast.Node) string {
	switch n := n.(type) {
	case *ast.CallExpr:
		_, name := callee(n)
		if slices.Contains(strings.Fields("one required list group"), name) && len(n.Args) > 1 {
			return literal(n.Args[0])
		}
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && key.Name == "name" {
			return literal(n.Value)
		}
	}
	return ""
}

// cells returns the words in backquotes in a page's tables. For a path such as rooms[].name, or a
// metric with labels, it also returns the plain words.
func cells(page []byte) []string {
	var words []string
	quoted := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		for _, m := range quoted.FindAllStringSubmatch(line, -1) {
			name, _, _ := strings.Cut(m[1], "{")
			words = append(words, name)
			words = append(words, strings.FieldsFunc(name, func(r rune) bool {
				return r == '.' || r == '[' || r == ']'
			})...)
		}
	}
	slices.Sort(words)
	return slices.Compact(words)
}
