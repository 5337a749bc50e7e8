package house

import (
	"go/ast"
	"go/token"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Metrics wants every metric of the code in the table of docs/operations.md,
// and every metric of the table in the code.
func Metrics(t *Tree) []Fault {
	metric := regexp.MustCompile(`\bheadgate_[a-z0-9_]*[a-z0-9]`)
	page := cells(t.Text[Operations])
	var faults []Fault
	have := map[string]bool{}
	t.literals(func(f *File, lit *ast.BasicLit, text string) {
		for _, name := range metric.FindAllString(text, -1) {
			name = series(name)
			if !have[name] && !slices.Contains(page, name) {
				faults = append(faults, t.fault(f, lit.Pos(), "metric %s is not in %s", name, Operations))
			}
			have[name] = true
		}
	})
	for _, cell := range page {
		if name := metric.FindString(cell); name == cell && name != "" && !have[name] {
			faults = append(faults, Fault{Path: Operations, Text: "no code has the metric " + name})
		}
	}
	return faults
}

// series strips what a histogram adds to its name.
func series(name string) string {
	for _, part := range []string{"_bucket", "_sum"} {
		name = strings.TrimSuffix(name, part)
	}
	return name
}

// literals calls yield for each string in code that is part of the product.
func (t *Tree) literals(yield func(f *File, lit *ast.BasicLit, text string)) {
	t.code(func(f *File) {
		if match([]string{"internal/house/...", "tests/..."}, f.Dir) {
			return
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil {
					yield(f, lit, text)
				}
			}
			return true
		})
	})
}

// Flags wants every flag of internal/config and of the commands in
// docs/operations.md, written --name.
func Flags(t *Tree) []Fault {
	var faults []Fault
	page := string(t.Text[Operations])
	kinds := strings.Fields("Bool Duration Float64 Int Int64 String Uint Uint64 Func BoolFunc")
	t.code(func(f *File) {
		if !importsFlag(f) {
			return
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			_, kind := callee(n)
			kind, toVar := strings.CutSuffix(kind, "Var")
			if !slices.Contains(kinds, kind) && !(toVar && (kind == "" || kind == "Text")) {
				return true
			}
			args := n.(*ast.CallExpr).Args
			if toVar && len(args) > 0 {
				args = args[1:]
			}
			if len(args) < 2 {
				return true
			}
			lit, ok := args[0].(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			name, _ := strconv.Unquote(lit.Value)
			if !regexp.MustCompile("--" + regexp.QuoteMeta(name) + `\b`).MatchString(page) {
				faults = append(faults, t.fault(f, lit.Pos(), "flag --%s is not in %s", name, Operations))
			}
			return true
		})
	})
	return faults
}

func importsFlag(f *File) bool {
	return slices.ContainsFunc(f.AST.Imports, func(s *ast.ImportSpec) bool {
		return s.Path.Value == `"flag"`
	})
}

// Keys wants every configuration key, found as a yaml tag of a struct of
// internal/config, in docs/operations.md.
func Keys(t *Tree) []Fault {
	var faults []Fault
	page := cells(t.Text[Operations])
	t.code(func(f *File) {
		if f.Dir != "internal/config" {
			return
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			field, ok := n.(*ast.Field)
			if !ok || field.Tag == nil {
				return true
			}
			tag, _ := strconv.Unquote(field.Tag.Value)
			key, _, _ := strings.Cut(reflect.StructTag(tag).Get("yaml"), ",")
			if key != "" && key != "-" && !slices.Contains(page, key) {
				faults = append(faults, t.fault(f, field.Pos(), "key %s is not in %s", key, Operations))
			}
			return true
		})
	})
	return faults
}

// cells are the words in backquotes in a page's tables. Of a path such as
// rooms[].name or a metric with labels the plain words are cells too.
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
