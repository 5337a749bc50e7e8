package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// A Reader reads one YAML file strictly, and collects what is wrong with it: the configuration, and
// the rules for Envoy that it names. Its caller walks the nodes.
type Reader struct {
	File                              string
	MostBytes, MostValues, MostLevels int
	Large, Empty, Two, Deep, Wide     string // what to do about such a file

	Found   []*Fault
	Stopped bool // MostValues is reached: later faults are not the file's

	values int // nodes visited; aliased nodes count each time
	more   int // faults that are not kept
}

const (
	maxFaults = 50   // chosen: nobody corrects more at one time
	mostKept  = 1000 // faults kept, of which the first ones are shown. Chosen
)

// Add records a fault.
func (r *Reader) Add(f *Fault) {
	switch {
	case r.Stopped:
	case len(r.Found) == mostKept:
		r.more++
	default:
		r.Found = append(r.Found, f)
	}
}

// Count returns the number of faults so far, including those that are not kept.
func (r *Reader) Count() int { return len(r.Found) + r.more }

// Err joins the faults in the order of the file, at most maxFaults of them. It returns nil if there
// are none.
func (r *Reader) Err() error {
	slices.SortStableFunc(r.Found, byPlace)
	if more := len(r.Found) - maxFaults; more > 0 {
		at := r.Found[maxFaults]
		r.Found = append(r.Found[:maxFaults], &Fault{File: r.File, Line: at.Line, Column: at.Column,
			Problem: fmt.Sprintf("and %d more faults from here on", more+r.more), Hint: "mend these first"})
	}
	return joinFaults(r.Found)
}

// Load parses the text and returns the root node. It returns nil after a fault.
func (r *Reader) Load(text []byte) *yaml.Node {
	none := func(line, column int, hint, format string, args ...any) *yaml.Node {
		r.Add(&Fault{File: r.File, Line: line, Column: column, Hint: hint,
			Problem: fmt.Sprintf(format, args...)})
		return nil
	}
	if len(text) > r.MostBytes {
		return none(0, 0, r.Large, "is larger than %d MB", r.MostBytes>>20)
	}
	if m, at := checkBytes(text); m != nil {
		return none(at.line, at.column, m.hint, "%s", m.problem)
	}
	loader, err := yaml.NewLoader(bytes.NewReader(text),
		yaml.WithUniqueKeys(false), // mapping reports duplicates with both positions
		yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(r.MostLevels))))
	if err != nil {
		return none(0, 0, "report this as a bug", "cannot be parsed: %v", err)
	}
	var doc, second yaml.Node
	err = loader.Load(&doc)
	if err == nil {
		if err = loader.Load(&second); err == nil {
			return none(second.Line, max(second.Column, 1), r.Two, "has more than one document")
		}
	}
	if !errors.Is(err, io.EOF) {
		m, at := r.syntax(err, text)
		return none(at.line, at.column, m.hint, "%s", m.problem)
	}
	if len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" {
		return none(0, 0, r.Empty, "is empty")
	}
	return r.Resolve(doc.Content[0])
}

// checkBytes finds bytes that the YAML library rejects without a position.
func checkBytes(b []byte) (*mistake, spot) {
	at := spot{line: 1, column: 1}
	for i, size := 0, 0; i < len(b); i += size {
		var r rune
		r, size = utf8.DecodeRune(b[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return wrong("save the file as UTF-8 text", "is not UTF-8 text"), at
		case r < ' ' && r != '\t' && r != '\n' && r != '\r', r == 0x7f:
			return wrong("take it out", "has the control character %q", r), at
		}
		at.column++
		if r == '\n' {
			at.line, at.column = at.line+1, 1
		}
	}
	return nil, at
}

// syntax turns an error of the YAML library into a mistake.
func (r *Reader) syntax(err error, b []byte) (*mistake, spot) {
	e, ok := errors.AsType[*yaml.LoadError](err)
	if !ok {
		return wrong("check the file with any YAML tool", "is not valid YAML: %v", err), spot{}
	}
	at := spot{line: e.Mark.Line, column: e.Mark.Column}
	problem := "is not valid YAML: " + e.Message
	if e.ContextMsg != "" && e.ContextMark.Line > 0 && e.ContextMark != e.Mark {
		problem += fmt.Sprintf(", %s that begins at %d:%d",
			e.ContextMsg, e.ContextMark.Line, e.ContextMark.Column)
	}
	hint := "check colons, quotes and indentation here and in the line above"
	lines := bytes.Split(b, []byte("\n"))
	switch {
	case strings.Contains(e.Message, "max depth"):
		at.column = max(at.column, 1)
		return wrong(r.Deep, "is nested more than %d levels deep", r.MostLevels), at
	case strings.Contains(e.Message, "unknown anchor"):
		hint = "put a value that begins with * in quotes"
	case at.line > 0 && at.line <= len(lines) && indentedByTab(lines[at.line-1]):
		hint = "indent with spaces, not with tabs"
	case strings.Contains(e.Message, "cannot start any token"):
		hint = "put a value that begins with a special sign in quotes"
	case strings.Contains(e.Message, "mapping values are not allowed"):
		hint = "check the indentation, or put a value with a colon in quotes"
	}
	return &mistake{problem: problem, hint: hint}, at
}

func indentedByTab(line []byte) bool {
	indent := line[:len(line)-len(bytes.TrimLeft(line, " \t"))]
	return bytes.ContainsRune(indent, '\t')
}

// Resolve follows an alias to its value and counts the node.
func (r *Reader) Resolve(n *yaml.Node) *yaml.Node {
	if r.values++; r.values > r.MostValues && !r.Stopped {
		r.Found = r.Found[:min(len(r.Found), mostKept-1)]
		r.Add(&Fault{File: r.File, Line: n.Line, Column: n.Column, Hint: r.Wide,
			Problem: fmt.Sprintf("has more than %d values", r.MostValues)})
		r.Stopped = true
	}
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
