package report

import (
	"fmt"
	"html"
	"strings"
	"unicode/utf8"
)

// A markup is a page that is being written. Names of files, columns and data centers, and the
// command line, come from outside. Only constants of the code become markup; everything else is
// escaped. html/template would do it too, but it calls methods by name, so the linker must keep all
// of them: 6 MB, measured.
type markup struct{ out strings.Builder }

// A constant is a format in the code. The compiler accepts no string variable for it.
type constant string

// put writes a format, with words for each %s in text or in a quoted attribute.
func (m *markup) put(format constant, words ...string) {
	escaped := make([]any, len(words))
	for i, w := range words {
		escaped[i] = escape(w)
	}
	fmt.Fprintf(&m.out, string(format), escaped...)
}

// with writes a format with words, or nothing if words is empty.
func (m *markup) with(format constant, words string) {
	if words != "" {
		m.put(format, words)
	}
}

// heads writes the first row of a table.
func (m *markup) heads(names []string) {
	m.put("<thead><tr>")
	for _, n := range names {
		m.put(`<th scope="col">%s</th>`, n)
	}
	m.put("</tr></thead>\n")
}

// row writes a row; its first cell is its heading.
func (m *markup) row(cells []string) {
	m.put("<tr>")
	for i, c := range cells {
		if i == 0 {
			m.put(`<th scope="row">%s</th>`, c)
		} else {
			m.put("<td>%s</td>", c)
		}
	}
	m.put("</tr>\n")
}

// escape escapes words. Characters that XML does not allow, such as a bell in a file name, become
// U+FFFD.
func escape(words string) string {
	return html.EscapeString(strings.Map(func(c rune) rune {
		if c < ' ' && c != '\t' && c != '\n' || c == 0xfffe || c == 0xffff {
			return utf8.RuneError
		}
		return c
	}, words))
}
