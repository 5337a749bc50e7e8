package rules

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// A scanner reads the words of an expression. The syntax of a literal depends on what it is
// compared with, so the parser requests the kind it expects.
type scanner struct {
	src string
	at  int
}

func (s *scanner) space() {
	for s.at < len(s.src) && strings.IndexByte(" \t\r\n", s.src[s.at]) >= 0 {
		s.at++
	}
}

func (s *scanner) rest() string { return s.src[s.at:] }

// symbol reads t if it is next, and reports whether it was.
func (s *scanner) symbol(t string) bool {
	s.space()
	if !strings.HasPrefix(s.rest(), t) {
		return false
	}
	s.at += len(t)
	return true
}

// word reads w if it is next as a whole word, and reports whether it was.
func (s *scanner) word(w string) bool {
	s.space()
	if name(s.rest()) != w {
		return false
	}
	s.at += len(w)
	return true
}

// name returns the name at the beginning of text: letters, digits, _ and dots, with no digit first.
func name(text string) string {
	n := 0
	for n < len(text) {
		c := text[n]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (n == 0 || c != '.' && (c < '0' || c > '9')) {
			break
		}
		n++
	}
	return text[:n]
}

// bare returns the text up to the next space, bracket, quote or operator: a number or an address.
func bare(text string) string {
	if n := strings.IndexAny(text, " \t\r\n(){}[]\",;&|^!<>=~$#"); n >= 0 {
		return text[:n]
	}
	return text
}

// sight returns what an error points at: a name, a bare literal, or one character.
func (s *scanner) sight() string {
	s.space()
	rest := s.rest()
	if n := name(rest); n != "" {
		return n
	}
	if n := bare(rest); n != "" && (n[0] >= '0' && n[0] <= '9' || n[0] == ':') {
		return n
	}
	_, n := utf8.DecodeRuneInString(rest)
	return rest[:n]
}

// quotes reports whether text begins with a quoted literal.
func quotes(text string) bool {
	after, raw := strings.CutPrefix(text, "r")
	return strings.HasPrefix(text, `"`) ||
		raw && (strings.HasPrefix(after, `"`) || strings.HasPrefix(after, "#"))
}

// quoted reads a literal in quotes. In a regexp literal the escapes are left to the regexp, for
// which \" is a quote, and a quote within brackets does not end the literal.
func (s *scanner) quoted(regexp bool) (string, error) {
	s.space()
	switch {
	case strings.HasPrefix(s.rest(), "r"):
		return s.raw()
	case regexp:
		return s.quotedPattern()
	}
	from := s.at
	var b strings.Builder
	for s.at++; s.at < len(s.src); s.at++ {
		switch c := s.src[s.at]; c {
		case '"':
			s.at++
			return b.String(), nil
		case '\\':
			c, err := s.escape()
			if err != nil {
				return "", err
			}
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	return "", s.unended(from)
}

// escape reads an escape and leaves at at its last byte.
func (s *scanner) escape() (byte, error) {
	rest := s.rest()
	digits, base := "", 0
	switch {
	case len(rest) < 2:
		s.at = len(s.src) // no quote can follow
		return 0, nil
	case rest[1] == '"' || rest[1] == '\\':
		s.at++
		return rest[1], nil
	case rest[1] == 'x' && len(rest) >= 4:
		digits, base = rest[2:4], 16
		s.at += 3
	case rest[1] >= '0' && rest[1] <= '7' && len(rest) >= 4:
		digits, base = rest[1:4], 8
		s.at += 3
	}
	n, err := strconv.ParseUint(digits, base, 8)
	if err != nil || base == 0 {
		from := len(s.src) - len(rest)
		_, n := utf8.DecodeRuneInString(rest[1:])
		return 0, fault(s.src, from, from+1+n, "unknown escape",
			`the escapes are \", \\, \x2F and \057; in r"…" nothing is one`)
	}
	return byte(n), nil
}

// maxHashes is the maximum number of # around a raw literal, as in Cloudflare's language.
const maxHashes = 255

func (s *scanner) raw() (string, error) {
	from, hashes := s.at, 0
	for s.at++; s.at < len(s.src) && s.src[s.at] == '#'; s.at++ {
		hashes++
	}
	if hashes > maxHashes {
		return "", fault(s.src, from, s.at, "too many #", "255 is the most")
	}
	if !strings.HasPrefix(s.rest(), `"`) {
		return "", fault(s.src, from, s.at, `no " after r#`,
			`write r"…", or r#"…"# if there is a " in it`)
	}
	text, after, ok := strings.Cut(s.rest()[1:], `"`+strings.Repeat("#", hashes))
	if !ok {
		return "", s.unended(from)
	}
	s.at = len(s.src) - len(after)
	return text, nil
}

// quotedPattern reads a regular expression in quotes. A quote within a character class does not end
// it.
func (s *scanner) quotedPattern() (string, error) {
	from, class := s.at, false
	var b strings.Builder
	for s.at++; s.at < len(s.src); s.at++ {
		c := s.src[s.at]
		switch {
		case c == '\\' && s.at+1 < len(s.src):
			b.WriteByte(c)
			s.at++
			c = s.src[s.at]
		case c == '"' && !class:
			s.at++
			return b.String(), nil
		case c == '[':
			class = true
		case c == ']':
			class = false
		}
		b.WriteByte(c)
	}
	return "", s.unended(from)
}

func (s *scanner) unended(from int) error {
	return fault(s.src, from, from+1, "no quote ends this text", `text stands in "…"`)
}
