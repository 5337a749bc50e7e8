package pages

import (
	"strings"
	"time"
	"unicode/utf8"
)

// appendHTML appends s as HTML text or as a quoted attribute value. Bytes that are not
// UTF-8 and characters that HTML forbids become U+FFFD.
func appendHTML(dst []byte, s string) []byte {
	start := 0
	for i := 0; i < len(s); {
		if isPlain(s[i]) {
			i++
			continue
		}
		c, size := utf8.DecodeRuneInString(s[i:])
		var to string
		switch {
		case c == '&':
			to = "&amp;"
		case c == '<':
			to = "&lt;"
		case c == '>':
			to = "&gt;"
		case c == '"':
			to = "&#34;"
		case c == '\'':
			to = "&#39;"
		case c == '\r':
			to = "&#13;"
		case c == utf8.RuneError && size == 1, c < ' ' && c != '\n' && c != '\t', c == 0x7f:
			to = "\ufffd"
		default:
			i += size
			continue
		}
		dst = append(append(dst, s[start:i]...), to...)
		i += size
		start = i
	}
	return append(dst, s[start:]...)
}

// appendJSON appends s as a JSON string that is safe inside a script element: no <, >
// or & is left to end the element or to open a comment.
func appendJSON(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		if isPlain(s[i]) {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		c, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case c == utf8.RuneError && size == 1:
			dst = append(dst, "\ufffd"...)
		case c == '"' || c == '\\':
			dst = append(dst, '\\', byte(c))
		case c < ' ' || c == '<' || c == '>' || c == '&' || c == 0x7f:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, s[i:i+size]...)
		}
		i += size
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}

// isPlain reports whether a byte needs no escape in HTML and in JSON. Nearly all bytes are plain.
func isPlain(c byte) bool {
	return c >= ' ' && c < 0x7f &&
		c != '&' && c != '<' && c != '>' && c != '"' && c != '\'' && c != '\\'
}

// appendFilled appends text and replaces each {key} by what with appends. It escapes text, which is
// the package's own, but not the output of with.
func appendFilled(dst []byte, text string, with func(dst []byte, key byte) []byte) []byte {
	for {
		i := strings.IndexByte(text, '{')
		if i < 0 || i+2 >= len(text) {
			return appendHTML(dst, text)
		}
		dst = appendHTML(dst, text[:i])
		dst = with(dst, text[i+1])
		text = text[i+3:]
	}
}

// wholeSeconds rounds d up to whole seconds, and to at least 2 s. A page without JavaScript must
// not reload in a tight loop.
func wholeSeconds(d time.Duration) int64 { return max(2, ceilDiv(int64(d), int64(time.Second))) }

func ceilDiv(a, b int64) int64 {
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}
