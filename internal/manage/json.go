package manage

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"unicode/utf8"
)

// maxDepth bounds how deep a body may be nested. Chosen: a room needs 4.
const maxDepth = 16

// An object is a JSON object with its members in order.
type object struct {
	names   []string
	members map[string]any
}

// parse parses a body: *object, []any, string, json.Number, bool or nil. encoding/json alone would
// accept duplicate names, where the last counts, and text after the value.
func parse(body []byte) (any, error) {
	const hint = "send one JSON value, as UTF-8"
	if !utf8.Valid(body) {
		return nil, one("", CodeJSON, hint, "the body is not UTF-8 text")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	v, err := value(d, "", 0)
	if f, ok := errors.AsType[Faults](err); ok {
		return nil, f
	}
	if err != nil {
		return nil, one("", CodeJSON, hint, "the body is not valid JSON")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, one("", CodeJSON, hint, "something follows the JSON value")
	}
	return v, nil
}

// value reads one JSON value. It reads tokens, because json.Unmarshal would hide duplicate names
// and the order of members.
func value(d *json.Decoder, at string, depth int) (any, error) {
	if depth > maxDepth {
		return nil, one(at, CodeJSON, "use at most 4 levels", "is nested too deeply")
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		o := &object{members: map[string]any{}}
		for d.More() {
			t, err := d.Token()
			if err != nil {
				return nil, err
			}
			name, _ := t.(string)
			if _, twice := o.members[name]; twice {
				return nil, one(below(at, name), CodeJSON, "remove one of the two", "occurs twice")
			}
			if o.members[name], err = value(d, below(at, name), depth+1); err != nil {
				return nil, err
			}
			o.names = append(o.names, name)
		}
		_, err := d.Token()
		return o, err
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := value(d, item(at, len(list)), depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.Token()
		return list, err
	}
	return t, nil
}

// kind describes what kind of value a JSON value is.
func kind(v any) string {
	switch v.(type) {
	case *object:
		return "an object"
	case []any:
		return "a list"
	case string:
		return "text"
	case json.Number:
		return "a number"
	case bool:
		return "true or false"
	}
	return "null"
}
