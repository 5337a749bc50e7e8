package pages

import (
	"fmt"
	"strings"
)

// A piece of a template is text, and the tag behind it (mustache(5)).
type piece struct {
	text   string
	kind   byte // of a tag; 0 is a value, '!' nothing
	name   string
	inside []piece // of a section
}

// compile makes pieces of a template that check has found right.
func compile(source string) []piece {
	all, _ := compileUntilEnd(source)
	return all
}

// compileUntilEnd stops behind the tag that ends the section, and gives what is after it.
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

// alone takes the line away on which nothing but a tag stands.
func alone(before, after string) (string, string) {
	const blank = " \t"
	left, right := strings.TrimRight(before, blank), strings.TrimLeft(after, blank)
	right = strings.TrimPrefix(right, "\r")
	if strings.HasSuffix(left, "\n") && strings.HasPrefix(right, "\n") {
		return left, right[1:]
	}
	return before, after
}

// write writes pieces with values: text, numbers, and what is true or false.
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

// holds tells whether the section of a value stands.
func holds(v any) bool { return v != nil && v != false && v != "" && v != int64(0) && v != 0 }
