package rules

import (
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/paths"
	"github.com/headgate/headgate/internal/wire"
)

// A Request is the request that a rule is evaluated for.
type Request struct {
	*http.Request
	// Path is one reading of the path, decoded: see package paths. The caller evaluates the rules
	// for each reading.
	Path string
	// From is the address of the visitor, as reported by the trusted proxies.
	From netip.Addr
	// Secure reports whether the visitor used https.
	Secure bool
}

// An input is a Request while rules are evaluated.
type input struct {
	Request
	element string // the current array element
	path    string // encoded; computed at first use
	uri     string // the same
}

// field returns the text of a field. A missing one is empty.
func (in *input) field(f field) string {
	switch f {
	case fieldHost:
		return hostname(in.Host)
	case fieldMethod:
		return in.Method
	case fieldVersion:
		if in.ProtoMajor > 1 {
			return strings.TrimSuffix(in.Proto, ".0") // HTTP/2
		}
		return in.Proto
	case fieldURI:
		return in.fullPath()
	case fieldPath:
		return in.encoded()
	case fieldExtension:
		return extension(in.encoded())
	case fieldQuery:
		return in.URL.RawQuery
	case fieldFullURI:
		scheme := "http://"
		if in.Secure {
			scheme = "https://"
		}
		return scheme + hostname(in.Host) + in.fullPath()
	case fieldRawURI:
		return withQuery(in.URL.EscapedPath(), in.URL.RawQuery)
	case fieldRawPath:
		return in.URL.EscapedPath()
	case fieldUserAgent:
		return strings.Join(in.Header["User-Agent"], ", ")
	case fieldReferer:
		return strings.Join(in.Header["Referer"], ", ")
	case fieldCookie:
		return strings.Join(in.Header["Cookie"], "; ")
	default: // fieldForwardedFor
		return strings.Join(in.Header["X-Forwarded-For"], ", ")
	}
}

// upstream returns the value of a header that a CDN in front sets, if there is one. The caller of Match
// has removed the header from the requests of all others. A CDN sets one line.
func (in *input) upstream(header string) string {
	if lines := in.Header[header]; len(lines) == 1 {
		return lines[0]
	}
	return ""
}

// country returns the country of the visitor, as a CDN in front tells it: two characters, such as T1 for
// Tor. It is missing without a CDN.
func (in *input) country() (code string, ok bool) {
	code = in.upstream(wire.CountryHeader)
	for i := range len(code) {
		if c := code[i]; (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			return "", false
		}
	}
	return code, len(code) == len("XX")
}

// mostScore is more than any score of Cloudflare's, which go from 1 to 99.
const mostScore = 100

// score returns how sure a CDN in front is that the visitor is a person.
func (in *input) score() (n int64, ok bool) {
	u, err := strconv.ParseUint(in.upstream(wire.ScoreHeader), 10, 8)
	return int64(u), err == nil && u <= mostScore
}

func (in *input) bool(n *node) bool {
	if n.field == fieldTLS {
		return in.Secure
	}
	return n.crawlers.Verified(in.address(), in.field(fieldUserAgent))
}

// hostname returns a host in lower case, without its port and trailing dot. An IPv6 address keeps
// its brackets, as in a URL.
func hostname(host string) string {
	name := lower(paths.Hostname(host))
	if strings.Contains(name, ":") {
		return "[" + name + "]"
	}
	return name
}

func withQuery(path, query string) string {
	if query == "" {
		return path
	}
	return path + "?" + query
}

func (in *input) fullPath() string {
	if in.uri == "" {
		in.uri = withQuery(in.encoded(), in.URL.RawQuery)
	}
	return in.uri
}

// encoded returns the path with percent-encoding exactly where RFC 3986 requires it, so that each
// path has one spelling.
func (in *input) encoded() string {
	if in.path == "" {
		in.path = encode(in.Path)
	}
	return in.path
}

func encode(path string) string {
	const hex = "0123456789ABCDEF"
	bare := 0
	for bare < len(path) && inPath(path[bare]) {
		bare++
	}
	if bare == len(path) {
		return path
	}
	b := append(make([]byte, 0, len(path)+16), path[:bare]...)
	for _, c := range []byte(path[bare:]) {
		if inPath(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(b)
}

// inPath reports whether c is a pchar of RFC 3986 or a slash.
func inPath(c byte) bool {
	return c >= 'a' && c <= 'z' || c == '/' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		strings.IndexByte("-._~!$&'()*+,;=:@", c) >= 0
}

// extension returns the text after the last dot of the last path segment, in lower case. A leading
// dot does not count.
func extension(path string) string {
	path = path[strings.LastIndexByte(path, '/')+1:]
	i := strings.LastIndexByte(path, '.')
	if i <= 0 {
		return ""
	}
	return lower(path[i+1:])
}

// A search goes through an array.
type search struct {
	body *node // search until body is want; nil:
	want bool
	stop int // search until this index
}

// scan goes through the array of src and keeps the last element it looked at. found reports whether
// the search ended before the array did; count is the number of elements seen. scan never builds
// the array, because a header may have thousands of elements.
func (in *input) scan(src *node, s search) (found bool, count int) {
	switch src.field {
	case fieldHeaders, fieldHeaderNames, fieldHeaderValues:
		return in.scanHeaders(src, s)
	case fieldCookies:
		for _, line := range in.Header["Cookie"] {
			if in.scanPairs(line, ';', src, s, &count) {
				return true, count
			}
		}
		return false, count
	default:
		return in.scanPairs(in.URL.RawQuery, '&', src, s, &count), count
	}
}

// at processes one element.
func (in *input) at(element string, s search, count *int) bool {
	in.element = element
	*count++
	if s.body == nil {
		return *count-1 == s.stop
	}
	return in.truth(s.body) == s.want
}

// scanHeaders goes through the lines of one header, or of all headers. Go stores Host separately.
func (in *input) scanHeaders(src *node, s search) (found bool, count int) {
	if src.field == fieldHeaders {
		if src.text == "host" {
			return in.Host != "" && in.at(in.Host, s, &count), count
		}
		for _, value := range in.Header[src.header] {
			if in.at(value, s, &count) {
				return true, count
			}
		}
		return false, count
	}
	names, host := src.field == fieldHeaderNames, in.Host
	if names {
		host = "host"
	}
	if in.Host != "" && in.at(host, s, &count) {
		return true, count
	}
	for name, values := range in.Header {
		for _, value := range values {
			if names {
				value = lower(name)
			}
			if in.at(value, s, &count) {
				return true, count
			}
		}
	}
	return false, count
}

// scanPairs goes through name=value pairs: the names, the values, or the values of one name.
func (in *input) scanPairs(line string, sep byte, src *node, s search, count *int) bool {
	for line != "" {
		var pair string
		if i := strings.IndexByte(line, sep); i >= 0 {
			pair, line = line[:i], line[i+1:]
		} else {
			pair, line = line, ""
		}
		if pair = strings.Trim(pair, " "); pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		switch {
		case src.field == fieldArgNames:
			value = name
		case src.field != fieldArgValues && name != src.text:
			continue
		}
		if in.at(value, s, count) {
			return true
		}
	}
	return false
}
