package rules

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

// maxProgram is the maximum number of steps of a regexp. RE2 takes at most this many steps for each
// byte of a text. With headers of 64 KB the measured worst case is half a second. Chosen.
const maxProgram = 1000

// compilePattern compiles a regexp whose cost is bounded.
func compilePattern(text string) (re *regexp.Regexp, problem string) {
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	}
	if n := steps(tree); n > maxProgram { // checked before compiling, which could use up the memory
		return nil, fmt.Sprintf("a regexp of more than %d steps", maxProgram)
	}
	if re, err = regexp.Compile(text); err != nil {
		return nil, strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	}
	return re, ""
}

// steps estimates the length of a regexp's program, or returns more than maxProgram.
func steps(re *syntax.Regexp) int {
	n := 1
	if re.Op == syntax.OpLiteral {
		n = len(re.Rune)
	}
	for _, sub := range re.Sub {
		n = min(n+steps(sub), maxProgram+1)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Max, re.Min+1, 1)
	}
	return min(n, maxProgram+1)
}

// A wildcard is a text with stars, each of which matches any text.
type wildcard struct {
	parts []string // the texts between the stars
	fold  bool     // ignore case; parts are then in lower case
}

// compileWildcard reads stars and the escapes \* and \\.
func compileWildcard(text string, fold bool) (w *wildcard, problem string) {
	w = &wildcard{fold: fold}
	var part strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && i+1 < len(text) && (text[i+1] == '*' || text[i+1] == '\\'):
			i++
			part.WriteByte(text[i])
		case c == '\\':
			return nil, `a \ that escapes nothing`
		case c == '*' && strings.HasPrefix(text[i+1:], "*"):
			return nil, "two stars side by side"
		case c == '*':
			w.parts = append(w.parts, part.String())
			part.Reset()
		default:
			part.WriteByte(c)
		}
	}
	w.parts = append(w.parts, part.String())
	if fold {
		for i := range w.parts {
			w.parts[i] = lower(w.parts[i])
		}
	}
	return w, ""
}

// match reports whether the wildcard matches all of text. Taking the first occurrence of each part
// is always as good as a later one, so there is no backtracking.
func (w *wildcard) match(text string) bool {
	if w.fold {
		text = lower(text)
	}
	last := len(w.parts) - 1
	if last == 0 {
		return text == w.parts[0]
	}
	text, ok := strings.CutPrefix(text, w.parts[0])
	if !ok {
		return false
	}
	for _, part := range w.parts[1:last] {
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text = text[i+len(part):]
	}
	return strings.HasSuffix(text, w.parts[last])
}
