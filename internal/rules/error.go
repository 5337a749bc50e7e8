package rules

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// An Error describes what is wrong with an expression, and its position.
type Error struct {
	Line, Column int    // of the first character, from 1
	Length       int    // characters, at least 1
	Problem      string // what is wrong
	Hint         string // what to do, or ""
	Source       string // the line, without its end
}

// wide is how many characters of a long line are shown on each side of a fault. Chosen: it fits 100
// columns.
const wide = 45

// Error returns the position and the problem, the line, carets below it, and the hint.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d:%d: %s\n", e.Line, e.Column, e.Problem)
	line, at := []rune(e.Source), e.Column-1
	from, to := max(0, at-wide), min(len(line), at+wide)
	before, after := "", ""
	if from > 0 {
		before = "…"
	}
	if to < len(line) {
		after = "…"
	}
	fmt.Fprintf(&b, "  %s%s%s\n  ", before, string(line[from:to]), after)
	if before != "" {
		b.WriteByte(' ')
	}
	for _, r := range line[from:min(at, len(line))] {
		if r != '\t' { // a tab is kept: it is as wide here as above
			r = ' '
		}
		b.WriteRune(r)
	}
	b.WriteString(strings.Repeat("^", max(1, min(e.Length, to-at))))
	if e.Hint != "" {
		b.WriteString("\nhint: " + e.Hint)
	}
	return b.String()
}

// fault returns an Error about src[from:to].
func fault(src string, from, to int, problem, hint string) *Error {
	begin := strings.LastIndexByte(src[:from], '\n') + 1
	line, _, _ := strings.Cut(src[begin:], "\n")
	line = strings.TrimSuffix(line, "\r")
	to = min(to, begin+len(line))
	return &Error{
		Line:    1 + strings.Count(src[:from], "\n"),
		Column:  1 + utf8.RuneCountInString(src[begin:from]),
		Length:  max(1, utf8.RuneCountInString(src[from:max(from, to)])),
		Problem: problem, Hint: hint, Source: line,
	}
}
