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

// A tag is one {{tag}} of a template.
type tag struct {
	kind byte // 0: a variable; else # ^ / { & or a kind that is not allowed
	name string
	line int
}

func newTag(text string, line int) tag {
	text = strings.TrimSpace(text)
	t := tag{name: text, line: line}
	if text != "" && strings.IndexByte("!#^/><$={&", text[0]) >= 0 {
		t.kind, t.name = text[0], strings.TrimSpace(text[1:])
	}
	return t
}

// escape makes a value safe as text, in a quoted attribute, and in a string of a script. In a
// script the escapes are not decoded, and the value can end neither the string nor the script.
func escape(s string) string {
	return scriptEscaper.Replace(string(appendHTML(nil, s)))
}

var scriptEscaper = strings.NewReplacer(`\`, "&#92;", "`", "&#96;", "\n", "&#10;",
	"\u2028", "&#8232;", "\u2029", "&#8233;")

// maxOutput limits a page in bytes. Chosen: what a machine can send to everyone in the line.
const maxOutput = 2 << 20

// A bounded is a buffer with a maximum size.
type bounded struct {
	dst  []byte
	left int
}

var errTooLarge = fmt.Errorf("with its values, it has more than %d bytes", maxOutput)

func (b *bounded) Write(p []byte) (int, error) {
	if len(p) > b.left {
		return 0, errTooLarge
	}
	b.dst, b.left = append(b.dst, p...), b.left-len(p)
	return len(p), nil
}
