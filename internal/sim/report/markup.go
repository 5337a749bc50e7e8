package report

import (
	"fmt"
	"html"
	"strings"
	"unicode/utf8"
)

// A markup is a page being written. Names of files, columns and data centres, and the
// command line, come from outside: only what stands in the code becomes markup, all else
// is escaped. html/template would do it too, but it calls methods by name, so the linker
// keeps all there are: 6 MB, measured.
type markup struct{ out strings.Builder }

// A constant is a format of the code: the compiler takes no variable string for one.
type constant string

// put writes a format, with words for each %s: in text or in an attribute with quotes.
func (m *markup) put(format constant, words ...string) {
	escaped := make([]any, len(words))
	for i, w := range words {
		escaped[i] = escape(w)
	}
	fmt.Fprintf(&m.out, string(format), escaped...)
}

// with writes words and what stands around them, or nothing where there are no words.
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

// row writes another one; its first cell says what it is about.
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

// escape makes words harmless. What XML cannot say, such as a bell in the name of a
// file, becomes U+FFFD.
func escape(words string) string {
	return html.EscapeString(strings.Map(func(c rune) rune {
		if c < ' ' && c != '\t' && c != '\n' || c == 0xfffe || c == 0xffff {
			return utf8.RuneError
		}
		return c
	}, words))
}
