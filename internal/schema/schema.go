// Package schema is the JSON Schema of headgate.yaml, draft 2020-12. Package config builds it out of
// the readers of its keys, so the two cannot differ; this package adds what people read: a description
// of each key, from the tables of the documentation.
//
// A schema knows less than headgate check. It knows keys, types, ranges and fixed words. It does not know
// which keys fit together.
package schema

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// A Schema describes a value. The zero Schema describes any value.
type Schema struct {
	Draft       string `json:"$schema,omitempty"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`

	Type    any    `json:"type,omitempty"` // a name, or several
	Default any    `json:"default,omitempty"`
	Enum    []any  `json:"enum,omitempty"`
	Pattern string `json:"pattern,omitempty"`
	Minimum *int64 `json:"minimum,omitempty"`
	Maximum *int64 `json:"maximum,omitempty"`

	Properties map[string]*Schema `json:"properties,omitempty"`
	Required   []string           `json:"required,omitempty"`
	Additional any                `json:"additionalProperties,omitempty"` // false, or the Schema of other keys

	Items *Schema   `json:"items,omitempty"`
	AnyOf []*Schema `json:"anyOf,omitempty"`

	note string // what Pattern means, for the description
}

// draft is the version of JSON Schema.
const draft = "https://json-schema.org/draft/2020-12/schema"

// File is the name of a schema beside the configuration, and Line the line of a configuration that makes
// editors use it.
const (
	File = "headgate.schema.json"
	Line = "# yaml-language-server: $schema=" + File
)

// Text describes a text that matches a regular expression; "" is any text. note explains the expression.
func Text(pattern, note string) *Schema { return &Schema{Type: "string", Pattern: pattern, note: note} }

// Whole describes a whole number from least to most.
func Whole(least, most int64) *Schema {
	return &Schema{Type: "integer", Minimum: &least, Maximum: &most}
}

// OneOf describes a value that is one of several.
func OneOf[T any](values ...T) *Schema {
	s := &Schema{}
	for _, v := range values {
		s.Enum = append(s.Enum, v)
	}
	return s
}

// Any describes a value that one of several schemas describes.
func Any(forms ...*Schema) *Schema {
	if len(forms) == 1 {
		return forms[0]
	}
	s := &Schema{}
	for _, f := range forms {
		switch {
		case len(f.AnyOf) > 0:
			s.AnyOf = append(s.AnyOf, f.AnyOf...)
		default:
			s.AnyOf = append(s.AnyOf, f)
		}
		if f.Default != nil {
			s.Default, f.Default = f.Default, nil
		}
	}
	return s
}

// Object describes a group of keys, and no key yet.
func Object() *Schema {
	return &Schema{Type: "object", Properties: map[string]*Schema{}, Additional: false}
}

// WithDefault returns a copy of s with a default, unless v is a zero value that is not a bool.
func (s *Schema) WithDefault(v any) *Schema {
	c := *s
	if _, isBool := v.(bool); isBool || !reflect.ValueOf(v).IsZero() {
		c.Default = v
	}
	return &c
}

// descriptions has a line for each key: its path, a tab, and what the documentation says about it. The test
// of this package writes the file.
//
//go:embed descriptions.txt
var descriptions string

// Describe makes the schema of a whole file: it adds the descriptions of the keys.
func Describe(s *Schema) *Schema {
	s.Draft, s.Title = draft, "headgate.yaml"
	s.Description = "The configuration of headgate. headgate check finds more mistakes than this schema."
	found := map[string]string{}
	for line := range strings.Lines(descriptions) {
		path, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		found[path] = text
	}
	s.Walk(func(path string, key *Schema) {
		text := found[path]
		if note := key.meaning(); note != "" {
			text = strings.TrimPrefix(strings.TrimSuffix(text, ".")+". "+note, ". ")
		}
		key.Description = text
	})
	return s
}

// meaning returns what patterns mean that an editor cannot explain.
func (s *Schema) meaning() string {
	note := s.note
	for _, f := range s.AnyOf {
		if f.note != "" {
			note = f.note
		}
	}
	return note
}

// Walk calls visit for each key below s, with its path such as rooms[].origin. Its order is that of the
// paths. A * stands for any key.
func (s *Schema) Walk(visit func(path string, key *Schema)) { s.walk("", visit) }

func (s *Schema) walk(path string, visit func(string, *Schema)) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		at := strings.TrimPrefix(path+"."+name, ".")
		visit(at, s.Properties[name])
		s.Properties[name].walk(at, visit)
	}
	if other, ok := s.Additional.(*Schema); ok {
		other.walk(path+".*", visit)
	}
	if s.Items != nil {
		s.Items.walk(path+"[]", visit)
	}
	for _, f := range s.AnyOf {
		f.walk(path, visit)
	}
}

// Write writes the schema as indented JSON.
func (s *Schema) Write(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(s); err != nil {
		return fmt.Errorf("write the schema: %w", err)
	}
	return nil
}
