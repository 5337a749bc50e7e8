package paths

import (
	"path"
	"strings"
)

// steps are the transformations that origins apply to a path. Each returns its argument if it
// changes nothing.
//
// decode: all but Express. decodeKeepingSlash: nginx and Apache with AllowEncodedSlashes NoDecode.
// backslash: IIS, WHATWG URL. cutParams: Tomcat, Jetty, Spring. cutTail: RFC 2396 parsers that know
// parameters of the last part only. cutQuery: any program that parses a decoded path again. merge:
// nginx, Werkzeug, Go's ServeMux. mergeFirst: Python's http.server. dots, trimDots: all that
// resolve dots, as RFC 3986 or as path.Clean does. trimEnds: file names of Windows. cutAuthority:
// Go's url.Parse, Python's urlsplit and PHP's parse_url of a request target. cutHost: new URL(target,
// base) of Node.js and browsers.
var steps = [...]func(string) string{
	decode, decodeKeepingSlash, backslash, cutParams, cutTail, cutQuery, merge, mergeFirst, dots, trimDots,
	trimEnds, cutAuthority, cutHost,
}

func decode(s string) string { return unescape(s, func(byte) bool { return false }) }

func decodeKeepingSlash(s string) string {
	return unescape(s, func(c byte) bool { return c == '/' })
}

// needless reports whether c can be written in a path without encoding. Its encoded form may be a
// different path to an origin that does not decode.
func needless(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		strings.IndexByte("/-._~!$&'()*+,;=:@", c) >= 0
}

// unescape decodes each %HH once, except for bytes for which keep returns true. Any other % stays.
func unescape(s string, keep func(byte) bool) string {
	i := strings.IndexByte(s, '%')
	if i < 0 {
		return s
	}
	b := append(make([]byte, 0, len(s)), s[:i]...)
	for ; i < len(s); i++ {
		if c, ok := escaped(s[i:]); ok && !keep(c) {
			b = append(b, c)
			i += 2
		} else {
			b = append(b, s[i])
		}
	}
	return string(b)
}

// decodeAll decodes until nothing is left to decode, in one pass. A decoded byte may complete
// another %HH, and each byte is removed at most once.
func decodeAll(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := range len(s) {
		b = append(b, s[i])
		for len(b) >= 3 {
			c, ok := escaped(string(b[len(b)-3:]))
			if !ok {
				break
			}
			b = append(b[:len(b)-3], c)
		}
	}
	return string(b)
}

// escaped returns the byte of the %HH at the beginning of s.
func escaped(s string) (c byte, ok bool) {
	if len(s) < 3 || s[0] != '%' {
		return 0, false
	}
	hi, lo := hex(s[1]), hex(s[2])
	return hi<<4 | lo, hi < 16 && lo < 16
}

func hex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10
	}
	return 16
}

// encode encodes a decoded path for a request line.
func encode(s string) string { return encodeExcept(s, "") }

// encodeOther encodes the bytes that are not allowed in an encoded path.
func encodeOther(s string) string { return encodeExcept(s, "%[]") }

func encodeExcept(s, except string) string {
	const digits = "0123456789ABCDEF"
	b := make([]byte, 0, len(s)+16)
	for i := range len(s) {
		if c := s[i]; needless(c) || strings.IndexByte(except, c) >= 0 {
			b = append(b, c)
		} else {
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return string(b)
}

func backslash(s string) string { return strings.ReplaceAll(s, `\`, "/") }

// cutParams removes ;x from each part.
func cutParams(s string) string {
	if !strings.Contains(s, ";") {
		return s
	}
	parts := strings.Split(s, "/")
	for i := range parts {
		parts[i], _, _ = strings.Cut(parts[i], ";")
	}
	return strings.Join(parts, "/")
}

func cutTail(s string) string {
	s, _, _ = strings.Cut(s, ";")
	return s
}

func cutQuery(s string) string {
	if i := strings.IndexAny(s, "?#"); i >= 0 {
		return s[:i]
	}
	return s
}

// merge replaces several slashes in a row by one.
func merge(s string) string {
	if !strings.Contains(s, "//") {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := range len(s) {
		if s[i] != '/' || i == 0 || s[i-1] != '/' {
			b = append(b, s[i])
		}
	}
	return string(b)
}

// mergeFirst replaces several slashes at the beginning by one.
func mergeFirst(s string) string {
	if !strings.HasPrefix(s, "//") {
		return s
	}
	return "/" + strings.TrimLeft(s, "/")
}

// cutAuthority reads //host/path as a reference to another host, as RFC 3986, section 4.2, does.
func cutAuthority(s string) string {
	if !strings.HasPrefix(s, "//") {
		return s
	}
	_, rest, _ := strings.Cut(s[2:], "/")
	return "/" + rest
}

// cutHost does the same as WHATWG URLs, which ignore further slashes before the host.
func cutHost(s string) string {
	if !strings.HasPrefix(s, "//") {
		return s
	}
	return cutAuthority("/" + mergeFirst(s))
}

// dots resolves . and .. as RFC 3986, section 5.2.4, does: .. removes one part, also an empty one.
func dots(s string) string {
	if !hasDots(s) {
		return s
	}
	parts := strings.Split(strings.TrimPrefix(s, "/"), "/")
	kept := parts[:0]
	for i, part := range parts {
		last := i == len(parts)-1
		switch {
		case part == "..":
			kept = kept[:max(0, len(kept)-1)]
			fallthrough
		case part == ".":
			if last {
				kept = append(kept, "")
			}
		default:
			kept = append(kept, part)
		}
	}
	return "/" + strings.Join(kept, "/")
}

// trimDots resolves dots as [path.Clean] does, which leaves no slash after a . at the end.
func trimDots(s string) string {
	if i := strings.LastIndexByte(s, '/'); s[i+1:] == "." || s[i+1:] == ".." {
		return path.Clean("/" + s)
	}
	return s
}

// trimEnds removes the dots and spaces at the end of each part, except from . and .. themselves.
func trimEnds(s string) string {
	if !strings.ContainsAny(s, ". ") {
		return s
	}
	parts := strings.Split(s, "/")
	for i, part := range parts {
		if name := strings.TrimRight(part, " "); name == "." || name == ".." {
			parts[i] = name
		} else {
			parts[i] = strings.TrimRight(part, ". ")
		}
	}
	return strings.Join(parts, "/")
}

func hasDots(s string) bool {
	for i := range len(s) {
		if s[i] == '/' && i+1 < len(s) && s[i+1] == '.' && special(s[i+1:]) {
			return true
		}
	}
	return false
}

// climbs reports whether a path leads above the root. If the origin has a path of its own, such a
// path would leave it.
func climbs(s string) bool {
	if !strings.Contains(s, "..") {
		return false
	}
	depth := 0
	for part := range strings.SplitSeq(strings.TrimPrefix(s, "/"), "/") {
		switch part {
		case "", ".": // some servers count an empty part, which makes the path deeper
		case "..":
			if depth--; depth < 0 {
				return true
			}
		default:
			depth++
		}
	}
	return false
}

// special reports whether the part at the beginning of rest is empty, "." or "..".
func special(rest string) bool {
	part, _, more := strings.Cut(rest, "/")
	return part == "" && more || part == "." || part == ".."
}
