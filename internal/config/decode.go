package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/schema"
	"github.com/headgate/headgate/internal/suggest"
)

// A decoder walks the nodes of a file, or the flags, and collects all mistakes.
type decoder struct {
	Reader
	flags  bool // all keys are flags; there is no file
	amends bool // the keys of a running room or limit, without a group in front

	spots map[string]spot // the position of each key's value
	bad   map[string]bool // keys with invalid values

	homeOf func(key string) string // returns the group that a misplaced key belongs to, or ""

	// forms collects what a reader accepts. Not nil: nothing is read. The readers are called with examples
	// of all kinds of values, and those that take a value or a group of keys describe it instead.
	forms *[]*schema.Schema
}

// Schema returns the JSON Schema of a file, out of the readers that parse it.
func Schema() *schema.Schema {
	c := defaultConfig()
	return schema.Describe(formOf(configFields(&c)))
}

// anyKey is the key of the groups that readers are called with to describe themselves. It is a valid name
// of everything.
const anyKey = "any"

// accepted returns the schema of what a reader accepts.
func accepted(read func(*decoder, string, *yaml.Node)) *schema.Schema {
	value := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str"}
	inner := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{jsonText(anyKey), value}}
	var forms []*schema.Schema
	for _, n := range []*yaml.Node{
		value, {Kind: yaml.MappingNode, Content: []*yaml.Node{jsonText(anyKey), inner}},
		{Kind: yaml.SequenceNode, Content: []*yaml.Node{value}},
	} {
		d := newDecoder("", func(string) string { return "" })
		d.forms = &forms
		read(d, "", n)
	}
	return schema.Any(forms...)
}

// formOf returns the schema of a group of keys.
func formOf(fields []field) *schema.Schema {
	form := schema.Object()
	for _, f := range fields {
		if f.name == anyKey {
			form.Additional = accepted(f.read)
			continue
		}
		form.Properties[f.name] = accepted(f.read)
		if f.example != "" && f.without == nil {
			form.Required = append(form.Required, f.name)
		}
	}
	return form
}

// A spot is the position of a value.
type spot struct {
	line, column int
	flag         bool
}

func newDecoder(file string, homeOf func(key string) string) *decoder {
	return &decoder{spots: map[string]spot{}, bad: map[string]bool{}, homeOf: homeOf, Reader: Reader{
		File: file, MostBytes: maxFile, MostValues: maxValues, MostLevels: maxDepth,
		Large: "keep only the configuration in this file",
		Empty: "begin with rooms: and one room; headgate help check shows one",
		Two:   "keep one, without a line --- after it",
		Deep:  "a configuration needs no more than 8 levels",
		Wide:  "write out what aliases repeat, or split the configuration",
	}}
}

// mapping reads a group of keys. Unknown keys, duplicate keys and missing keys are faults.
func (d *decoder) mapping(key string, n *yaml.Node, fields []field) {
	if d.forms != nil {
		if n.Kind == yaml.MappingNode {
			*d.forms = append(*d.forms, formOf(fields))
		}
		return
	}
	d.note(key, n)
	if n.Kind != yaml.MappingNode {
		hint := "write keys and values, such as " + sample(fields)
		if key == "" && n.Kind == yaml.SequenceNode {
			hint = "write rooms: above the list"
		}
		d.fault(key, n, wrong(hint, "is %s, not a group of keys", kind(n)))
		return
	}
	seen := map[string]int{}
	meant := map[string]bool{} // the known keys that misspelled ones stand for
	for i := 0; i+1 < len(n.Content) && !d.Stopped; i += 2 {
		k, v := d.Resolve(n.Content[i]), d.Resolve(n.Content[i+1])
		full := under(key, k.Value)
		if k.Kind != yaml.ScalarNode || k.Tag == "!!merge" {
			d.fault(key, k, wrong("write each key out", "has a key that is not a word"))
			continue
		}
		at := slices.IndexFunc(fields, func(f field) bool { return f.name == k.Value })
		line, twice := seen[k.Value]
		switch {
		case at < 0:
			near, hint := suggestKeys(k.Value, d.homeOf(k.Value), fields)
			meant[near], d.bad[under(key, near)] = true, true
			d.fault(full, k, wrong(hint, "there is no such key"))
			continue
		case twice:
			d.fault(full, k, wrong("keep one of the two", "is already set on line %d", line))
			continue
		}
		seen[k.Value] = k.Line
		d.read(fields[at], full, v)
	}
	for _, f := range fields {
		if _, ok := seen[f.name]; !ok && !meant[f.name] && !d.Stopped {
			d.missing(f, key, n)
		}
	}
}

// read passes a value to its field, unless it is empty or has a tag.
func (d *decoder) read(f field, key string, v *yaml.Node) {
	if d.forms != nil { // the reader has a key that it does not know: all keys have this value
		*d.forms = append(*d.forms, &schema.Schema{Type: "object", Additional: accepted(f.read)})
		return
	}
	d.note(key, v)
	switch {
	case v.Tag == "!!null":
		d.fault(key, v, wrong("give it a value, or take the line out", "has no value"))
	case v.Style&yaml.TaggedStyle != 0:
		d.fault(key, v, wrong("take the tag out", "has the tag %s", quote(v.Tag)))
	default:
		f.read(d, key, v)
	}
}

func (d *decoder) missing(f field, key string, n *yaml.Node) {
	if f.example == "" || f.without != nil && f.without() {
		return
	}
	full := under(key, f.name)
	hint := "add " + f.name + ": " + f.example
	switch {
	case d.flags:
		hint = "add " + flagName(full) + " " + f.example
	case key == "" && !d.amends:
		hint = "add " + f.name + ":, and below it a room that begins with " + f.example
	}
	d.fault(full, n, wrong(hint, "is missing"))
}

// suggestKeys returns the key that a misspelled one probably stands for, or "", and a hint. Home is the
// group that the word belongs to, or "".
func suggestKeys(word, home string, fields []field) (meant, hint string) {
	if word == "disable_session_renewal" { // Cloudflare's key, with the opposite meaning
		return "session_renewal", "write session_renewal: false"
	}
	near := suggest.Nearest(word, names(fields))
	switch {
	case near != "" && home != "":
		return near, "did you mean " + near + "? " + word + " belongs " + home
	case near != "":
		return near, "did you mean " + near + "?"
	case home != "":
		return "", word + " belongs " + home
	}
	return "", "the keys here are " + strings.Join(names(fields), ", ")
}

// items iterates over a list. It yields each item with its key, such as rooms[0].
func (d *decoder) items(key string, n *yaml.Node) iter.Seq2[string, *yaml.Node] {
	return func(yield func(string, *yaml.Node) bool) {
		if d.forms != nil && n.Kind == yaml.SequenceNode {
			item := accepted(func(inner *decoder, _ string, n *yaml.Node) {
				outer := d.forms
				d.forms = inner.forms
				yield(key+"[0]", n)
				d.forms = outer
			})
			*d.forms = append(*d.forms, &schema.Schema{Type: "array", Items: item})
			return
		}
		if n.Kind != yaml.SequenceNode {
			d.fault(key, n, wrong("begin each entry with a dash on a line of its own",
				"is %s, not a list", kind(n)))
			return
		}
		for i, item := range n.Content {
			item = d.Resolve(item)
			if d.Stopped || !yield(key+"["+strconv.Itoa(i)+"]", item) {
				return
			}
		}
	}
}

// scalar reads a single value and reports whether it is valid.
func (d *decoder) scalar(key string, n *yaml.Node, read scalar) bool {
	if d.forms != nil {
		if n.Kind == yaml.ScalarNode {
			*d.forms = append(*d.forms, read.form)
		}
		return false
	}
	d.note(key, n)
	m := wrong("give it one value", "is %s, not a single value", kind(n))
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		m = wrong("give it a value, or take the line out", "has no value")
	case n.Kind == yaml.ScalarNode:
		m = read.read(n)
	}
	if m != nil {
		d.fault(key, n, m)
	}
	return m == nil
}

// override reads the values of flags into the fields of the group key.
func (d *decoder) override(fields []field, key string, over []flagValue) {
	for _, v := range over {
		for _, f := range fields {
			if f.name != v.key {
				continue
			}
			full := under(key, f.name)
			d.spots[full] = spot{flag: true}
			f.read(d, full, &yaml.Node{Kind: yaml.ScalarNode, Tag: flagTag, Value: v.text})
		}
	}
}

// note records the position of a key's value.
func (d *decoder) note(key string, n *yaml.Node) {
	if n.Tag != flagTag || d.amends {
		d.spots[key] = spot{line: n.Line, column: n.Column}
	}
}

// fault records a mistake at a node.
func (d *decoder) fault(key string, n *yaml.Node, m *mistake) {
	at := spot{line: n.Line, column: n.Column, flag: n.Tag == flagTag || d.flags}
	d.faultAt(key, at, m)
}

func (d *decoder) faultAt(key string, at spot, m *mistake) {
	d.bad[key] = true
	d.Add(d.place(key, at, m))
}

// place makes the Fault of a mistake. A flag is named by its own name.
func (d *decoder) place(key string, at spot, m *mistake) *Fault {
	f := &Fault{File: d.File, Line: at.line, Column: at.column, Key: key,
		Problem: m.problem, Hint: m.hint}
	if at.flag && !d.amends {
		f.File, f.Line, f.Column, f.Key = "", 0, 0, flagName(key)
	}
	return f
}

// under joins the name of a group and a key in it.
func under(group, key string) string {
	if !plainKey(key) {
		key = quote(key)
	}
	if group == "" {
		return key
	}
	return group + "." + key
}

// plainKey reports whether a key can be shown without quotes.
func plainKey(key string) bool {
	return key != "" && len(key) <= 64 &&
		!strings.ContainsFunc(key, func(r rune) bool { return !isWordRune(r) })
}

// sample returns an example line of a group.
func sample(fields []field) string {
	for _, f := range fields {
		if f.example != "" && !strings.HasPrefix(f.example, "-") {
			return f.name + ": " + f.example
		}
	}
	return fields[0].name + ": …"
}

// A field connects a key to the function that reads its value.
type field struct {
	name string
	read func(d *decoder, key string, n *yaml.Node)

	// example is a valid value of a required key, for the hint; "" makes the key optional.
	example string

	without func() bool // reports when a required key may be missing; nil: never
}

// one makes the field of a single value.
func one(name string, read scalar) field {
	return field{name: name, read: func(d *decoder, key string, n *yaml.Node) {
		d.scalar(key, n, read)
	}}
}

// required makes the field of a single required value, with an example for the hint.
func required(name, example string, read scalar) field {
	f := one(name, read)
	f.example = example
	return f
}

// list makes the field of a list of single values, with a schema that knows more of them if there is one.
// Duplicates are dropped.
func list[T comparable](
	name string, dst *[]T, clean func(string) (T, *mistake), form ...*schema.Schema,
) field {
	return field{name: name, read: func(d *decoder, key string, n *yaml.Node) {
		all := []T{}
		for key, item := range d.items(key, n) {
			var v T
			read := raw(&v, clean)
			if len(form) > 0 {
				read = read.as(form[0])
			}
			if d.scalar(key, item, read) && !slices.Contains(all, v) {
				all = append(all, v)
			}
		}
		*dst = all
	}}
}

// group makes the field of a group of keys.
func group(name string, fields []field) field {
	return field{name: name, read: func(d *decoder, key string, n *yaml.Node) {
		d.mapping(key, n, fields)
	}}
}

func names(fields []field) []string {
	all := make([]string, len(fields))
	for i, f := range fields {
		all[i] = f.name
	}
	return all
}

// maxFile is the size of the largest file that is read. Chosen: 1,000 rooms with all keys written
// out are about half of it.
const maxFile = 1 << 20

// good reports whether all of the keys have valid values.
func (d *decoder) good(keys ...string) bool {
	return !slices.ContainsFunc(keys, func(k string) bool { return d.bad[k] })
}

// blame picks, from several keys that do not fit together, the one that is written in the file, and
// returns it with its position.
func (d *decoder) blame(keys ...string) (string, spot) {
	for _, k := range keys {
		if at, ok := d.spots[k]; ok {
			return k, at
		}
	}
	return keys[0], spot{flag: d.flags}
}

// clash records that keys do not fit together.
func (d *decoder) clash(m *mistake, keys ...string) {
	key, at := d.blame(keys...)
	d.faultAt(key, at, m)
}

// beside resolves a path relative to the folder of the configuration file.
func (d *decoder) beside(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(d.File), path)
}

func (c *Config) warn(d *decoder, m *mistake, keys ...string) {
	key, at := d.blame(keys...)
	c.Warnings = append(c.Warnings, *d.place(key, at, m))
}

func readFileName(dst *string) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		var name string
		if d.scalar(key, n, text(&name, cleanFileName)) {
			*dst = d.beside(name)
		}
	}
}

// A Fault is one mistake in a file or in flags, or one warning.
type Fault struct {
	File    string `json:"file"`   // "" for a flag
	Line    int    `json:"line"`   // from 1; 0 when the fault has no line
	Column  int    `json:"column"` // from 1; 0 when the fault has no column
	Key     string `json:"key"`    // rooms[0].origin or --origin; "" for the whole file
	Problem string `json:"problem"`
	Hint    string `json:"hint"` // what to do about it

	cause error // why the file could not be read
}

// Error returns file:line:column: key: problem, without the parts that are not known. The hint is
// not included.
func (f *Fault) Error() string {
	var b strings.Builder
	if f.File != "" {
		b.WriteString(f.File)
		if f.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", f.Line, f.Column)
		}
		b.WriteString(": ")
	}
	if f.Key != "" {
		b.WriteString(f.Key + ": ")
	}
	b.WriteString(f.Problem)
	return b.String()
}

// Unwrap returns the reason why a file could not be read, or nil.
func (f *Fault) Unwrap() error { return f.cause }

// Faults returns the faults that err consists of, in their order. It returns nil when err is not
// made of faults.
func Faults(err error) []*Fault {
	if f, ok := err.(*Fault); ok { //nolint:errorlint // it takes the tree of err apart itself
		return []*Fault{f}
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	var all []*Fault
	for _, e := range joined.Unwrap() {
		all = append(all, Faults(e)...)
	}
	return all
}

// Print writes err for people: a line for each fault, and what to do.
func Print(w io.Writer, err error) {
	faults := Faults(err)
	PrintFaults(w, faults)
	if faults != nil {
		return
	}
	fmt.Fprintf(w, "headgate: %v\n", err)
	if do := hint.Of(err); do != "" {
		fmt.Fprintf(w, "hint: %s\n", do)
	}
}

// PrintFaults writes a line for each fault, and what to do.
func PrintFaults(w io.Writer, faults []*Fault) {
	for _, f := range faults {
		fmt.Fprintf(w, "headgate: %v\nhint: %s\n", f, f.Hint)
	}
}

// joinFaults joins the faults into one error, in the order of the file. It returns nil if there are
// none.
func joinFaults(faults []*Fault) error {
	slices.SortStableFunc(faults, byPlace)
	errs := make([]error, len(faults))
	for i, f := range faults {
		errs[i] = f
	}
	return errors.Join(errs...)
}

// byPlace compares two faults by position. Flags have no position: they keep their order and come
// before the file.
func byPlace(a, b *Fault) int {
	return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
}

// A mistake describes what is wrong with one value, before its position is known.
type mistake struct{ problem, hint string }

// wrong makes a mistake. The hint comes first because it takes no arguments.
func wrong(hint, format string, args ...any) *mistake {
	return &mistake{problem: fmt.Sprintf(format, args...), hint: hint}
}

func quote(s string) string { return hint.Quote(s) }
