package rules

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

// maxProgram is how many steps a regexp may have. RE2 takes at most this many steps for each
// byte of a text; with headers of 64 KB that was measured to be half a second at worst. Chosen.
const maxProgram = 1000

// compilePattern compiles a regexp that cannot blow up.
func compilePattern(text string) (re *regexp.Regexp, problem string) {
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	}
	if n := steps(tree); n > maxProgram { // before it is compiled: that is what would blow up
		return nil, fmt.Sprintf("a regexp of more than %d steps", maxProgram)
	}
	if re, err = regexp.Compile(text); err != nil {
		return nil, strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	}
	return re, ""
}

// steps is about how long the program of a regexp is, or more than maxProgram.
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

// A wildcard is a text with stars, each of which stands for any text.
type wildcard struct {
	parts []string // what is between the stars
	fold  bool     // upper and lower case are the same; the parts are in lower case
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

// match reports whether all of text is as the wildcard says. The first place of each part is
// as good as any later one, so nothing is tried twice.
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
