package pages

import (
	"fmt"
	"strings"
)

// A piece is a part of a template: text, and the tag after it (mustache(5)).
type piece struct {
	text   string
	kind   byte // of a tag; 0 a value, '!' no output
	name   string
	inside []piece // of a section
}

// compile splits a template that check has accepted into pieces.
func compile(source string) []piece {
	all, _ := compileUntilEnd(source)
	return all
}

// compileUntilEnd stops after the tag that ends the section, and returns the rest of the source.
func compileUntilEnd(source string) (all []piece, rest string) {
	for {
		before, inner, found := strings.Cut(source, "{{")
		if !found {
			return append(all, piece{text: source, kind: '!'}), ""
		}
		end := "}}"
		if strings.HasPrefix(inner, "{") {
			end = "}}}"
		}
		text, after, _ := strings.Cut(inner, end)
		t := newTag(text, 0)
		if t.kind != 0 && strings.IndexByte("#^/!", t.kind) >= 0 {
			before, after = alone(before, after)
		}
		p := piece{text: before, kind: t.kind, name: t.name}
		switch t.kind {
		case '/':
			p.kind = '!'
			return append(all, p), after
		case '#', '^':
			p.inside, after = compileUntilEnd(after)
		}
		all, source = append(all, p), after
	}
}

// alone removes a line that contains only a tag.
func alone(before, after string) (string, string) {
	const blank = " \t"
	left, right := strings.TrimRight(before, blank), strings.TrimLeft(after, blank)
	right = strings.TrimPrefix(right, "\r")
	if strings.HasSuffix(left, "\n") && strings.HasPrefix(right, "\n") {
		return left, right[1:]
	}
	return before, after
}

// write writes pieces with values, which are texts, numbers and bools.
func write(out *bounded, pieces []piece, values map[string]any) error {
	for i := range pieces {
		p := &pieces[i]
		if _, err := out.Write([]byte(p.text)); err != nil {
			return err
		}
		var err error
		switch p.kind {
		case '!':
		case '#', '^':
			if holds(values[p.name]) == (p.kind == '#') {
				err = write(out, p.inside, values)
			}
		case '{', '&':
			_, err = fmt.Fprint(out, values[p.name])
		default:
			_, err = out.Write([]byte(escape(fmt.Sprint(values[p.name]))))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// holds reports whether a section with this value is shown.
func holds(v any) bool { return v != nil && v != false && v != "" && v != int64(0) && v != 0 }
