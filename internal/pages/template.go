package pages

import (
	"errors"
	"fmt"
	"strings"
)

// A value is a function that appends one escaped value of x.
type value[T any] func(dst []byte, x *T) []byte

// A segment is fixed text and the value after it; the last segment has no value.
type segment[T any] struct {
	text  string
	value value[T]
}

// A template is a page as a list of segments, in output order.
type template[T any] []segment[T]

// parse splits source at its {{marks}}. A mark "v:name" is replaced by the value of that name. Any
// other mark is replaced by a fixed text, which may contain marks itself.
func parse[T any](
	source string, fixed map[string]string, values map[string]value[T],
) (template[T], error) {
	var (
		out  template[T]
		text strings.Builder
		errs []error
		walk func(string, int)
	)
	walk = func(source string, depth int) {
		for {
			before, rest, found := strings.Cut(source, "{{")
			text.WriteString(before)
			if !found {
				return
			}
			mark, after, closed := strings.Cut(rest, "}}")
			if !closed {
				errs = append(errs, fmt.Errorf("mark %.20q is not closed by }}", rest))
				return
			}
			source = after
			if name, ok := strings.CutPrefix(mark, "v:"); ok {
				if values[name] == nil {
					errs = append(errs, fmt.Errorf("there is no value %q", name))
				}
				out = append(out, segment[T]{text.String(), values[name]})
				text.Reset()
				continue
			}
			body, ok := fixed[mark]
			switch {
			case !ok:
				errs = append(errs, fmt.Errorf("there is no text %q", mark))
			case mark == "scene" && depth == 0:
				walk(body, depth+1)
			default:
				text.WriteString(body)
			}
		}
	}
	walk(source, 0)
	return append(out, segment[T]{text: text.String()}), errors.Join(errs...)
}

func (t template[T]) append(dst []byte, x *T) []byte {
	for i := range t {
		dst = append(dst, t[i].text...)
		if t[i].value != nil {
			dst = t[i].value(dst, x)
		}
	}
	return dst
}

// squeezeCSS removes comments, line ends and unneeded spaces. It supports only what page.css uses:
// no strings, and comments that fill their lines.
func squeezeCSS(source string) string {
	text := strings.Join(codeLines(source, "/*"), " ")
	text = dropSpaces(text, func(before, after byte) bool {
		return strings.IndexByte("{};,:", before) >= 0 || strings.IndexByte("{};,", after) >= 0
	})
	return strings.ReplaceAll(text, ";}", "}")
}

// squeezeJS removes comments and the spaces beside punctuation. It keeps everything in quotes, and
// line ends where a statement may end without a semicolon. It supports only what the scripts here
// use: comments that fill their lines, no text over several lines, no empty statement, no regular
// expression with spaces or quotes.
func squeezeJS(source string) string {
	text := strings.Join(codeLines(source, "//"), "\n")
	text = strings.NewReplacer(";\n}", "}", "\n}", "}", ";\n", ";", "{\n", "{", ",\n", ",").Replace(text)
	return dropSpaces(text, func(before, after byte) bool {
		same := before == after && (before == '+' || before == '-')
		return !same && !(inWord(before) && inWord(after))
	})
}

// codeLines returns the lines of source, trimmed, without empty lines and comments.
func codeLines(source, comment string) []string {
	var out []string
	for line := range strings.Lines(source) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, comment) {
			out = append(out, line)
		}
	}
	return out
}

// dropSpaces removes each single space outside quotes if useless is true for its neighbors.
func dropSpaces(text string, useless func(before, after byte) bool) string {
	out := make([]byte, 0, len(text))
	quote := byte(0)
	for i := range len(text) {
		c := text[i]
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"' || c == '`':
			quote = c
		case c == ' ' && i > 0 && i+1 < len(text) && useless(text[i-1], text[i+1]):
			continue
		}
		out = append(out, c)
	}
	return string(out)
}

func inWord(c byte) bool {
	return c == '_' || c == '$' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}
