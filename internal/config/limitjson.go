package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// ParseLimit parses one limit from a JSON object. It has the fields of the file, and plans, and
// rejects what the file would reject. name is the name of the limit; the object may leave the name out but
// must not contain another. The error joins one *Fault for each mistake, with the key and the
// position in the text.
func ParseLimit(name string, text []byte) (*Limit, error) {
	d := newDecoder("", homeOf)
	d.amends = true
	l := defaultLimit()
	if n := d.object(text); n != nil {
		called(n, name)
		d.mapping("", n, append(limitFields(&l), field{name: "plans", read: readLimitPlans(&l.Plans)}))
		if l.Name != name && d.good("name") {
			d.clash(wrong("leave it out, or write "+quote(name), "%s is another name than %s", quote(l.Name),
				quote(name)), "name")
		}
		l.cross(d, "")
		if d.Count() == 0 {
			l.settle(&Config{}, d, "")
			l.checkLimitPlans(d)
		}
	}
	if err := d.Err(); err != nil {
		return nil, err
	}
	return &l, nil
}

// called adds the name to an object that has none.
func called(n *yaml.Node, name string) {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == "name" {
			return
		}
	}
	n.Content = append([]*yaml.Node{jsonText("name"), jsonText(name)}, n.Content...)
}

func jsonText(s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
}

// object parses a JSON object. It returns nil after a fault.
func (d *decoder) object(text []byte) *yaml.Node {
	if len(text) > maxFile {
		d.faultAt("", spot{}, wrong("send the limit alone", "the limit is larger than 1 MB"))
		return nil
	}
	const hint = `send one JSON object, such as {"algorithm": "sliding_log", "amount": 100, "window": "60s"}`
	if !utf8.Valid(text) {
		d.faultAt("", spot{}, wrong(hint, "the limit is not UTF-8 text"))
		return nil
	}
	r := newJSONReader(text)
	var whole json.RawMessage
	err := json.Unmarshal(text, &whole) // it checks everything that JSON forbids
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		r.stand(max(0, int(e.Offset)-1))
	}
	var n *yaml.Node
	if err == nil {
		n, err = r.value(0)
	}
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		d.faultAt("", spot{}, wrong(hint, "the limit is empty"))
	case err != nil:
		d.faultAt("", spot{line: r.line, column: r.column},
			wrong(hint, "the limit is not valid JSON: %v", err))
	case n.Kind != yaml.MappingNode:
		d.faultAt("", spot{line: n.Line, column: n.Column},
			wrong(hint, "the limit is %s, not an object", kind(n)))
	default:
		return n
	}
	return nil
}

// A jsonReader turns JSON into YAML nodes, so that one decoder reads both. The YAML library would
// accept nearly all JSON, but not all escapes and no long keys.
type jsonReader struct {
	text []byte
	dec  *json.Decoder

	at, line, column int // the position of the last token
}

func newJSONReader(text []byte) *jsonReader {
	r := &jsonReader{text: text, dec: json.NewDecoder(bytes.NewReader(text)), line: 1, column: 1}
	r.dec.UseNumber()
	return r
}

// stand moves the position forward to an offset.
func (r *jsonReader) stand(at int) {
	for ; r.at < at; r.at++ {
		switch {
		case r.text[r.at] == '\n':
			r.line, r.column = r.line+1, 1
		case utf8.RuneStart(r.text[r.at]):
			r.column++
		}
	}
}

// token reads one token and records its position.
func (r *jsonReader) token() (json.Token, error) {
	at := int(r.dec.InputOffset())
	for at < len(r.text) && strings.IndexByte(" \t\r\n,:", r.text[at]) >= 0 {
		at++
	}
	r.stand(at)
	return r.dec.Token()
}

// value reads a value at a depth of nesting.
func (r *jsonReader) value(depth int) (*yaml.Node, error) {
	t, err := r.token()
	if err != nil {
		return nil, err
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: r.line, Column: r.column}
	switch t := t.(type) {
	case string:
		n.Tag, n.Value = "!!str", t
	case json.Number:
		n.Tag, n.Value = "!!int", t.String()
		if strings.ContainsAny(n.Value, ".eE") {
			n.Tag = "!!float"
		}
	case bool:
		n.Tag, n.Value = "!!bool", "false"
		if t {
			n.Value = "true"
		}
	case nil:
		n.Tag, n.Value = "!!null", "null"
	case json.Delim:
		if depth == maxDepth {
			return nil, errors.New("it is nested too deep")
		}
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
		if t == '[' {
			n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		}
		for r.dec.More() {
			inner, err := r.value(depth + 1) // in an object: a key, then its value
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, inner)
		}
		_, err = r.token()
	}
	return n, err
}
