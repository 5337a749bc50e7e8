// Package exclude says which requests pass by a room without being counted, how a path and a host
// read however they are spelled, and how many places one network may draw.
//
// # The promise
//
// No spelling of a path walks around a room, into an exclusion or past a rule, and none of a host
// around a room: all of them ask [Clean] and [Hostname] and nothing else.
//
// # Concurrency and cost
//
// A Set never changes. A Joins has one lock and at most 100,000 entries. Neither allocates for
// a path that is written as it should be.
//
// # What it does not do
//
// It does not know who a visitor is but by the address it is handed.
package exclude

import (
	"net/http"
	"net/netip"
	"path"
	"strings"
)

// Requests names requests that pass and are not counted.
type Requests struct {
	NoDefaults bool     // else also OPTIONS, HEAD, /robots.txt, /favicon.ico and /.well-known/
	Paths      []string // ending with / or *: a prefix
	Methods    []string
	CIDRs      []netip.Prefix
	Headers    []string // "Name", or "Name: value"
}

// A Set is Requests, ready to be asked.
type Set struct {
	exact    map[string]bool
	prefixes []string
	methods  map[string]bool
	cidrs    []netip.Prefix
	headers  [][2]string
}

// New readies x.
func New(x Requests) Set {
	e := Set{exact: map[string]bool{}, methods: map[string]bool{}, cidrs: x.CIDRs}
	paths, methods := x.Paths, x.Methods
	if !x.NoDefaults {
		paths = append([]string{"/robots.txt", "/favicon.ico", "/.well-known/"}, paths...)
		methods = append([]string{http.MethodOptions, http.MethodHead}, methods...)
	}
	for _, p := range paths {
		switch {
		case strings.HasSuffix(p, "*"):
			e.prefixes = append(e.prefixes, strings.TrimSuffix(p, "*"))
		case strings.HasSuffix(p, "/"):
			e.prefixes = append(e.prefixes, p)
		default:
			e.exact[p] = true
		}
	}
	for _, m := range methods {
		e.methods[strings.ToUpper(m)] = true
	}
	for _, h := range x.Headers {
		name, value, _ := strings.Cut(h, ":")
		e.headers = append(e.headers, [2]string{
			http.CanonicalHeaderKey(strings.TrimSpace(name)), strings.TrimSpace(value),
		})
	}
	return e
}

// Match reports whether a request passes by. at is its clean path; addr is asked for its address
// only where that matters.
func (e *Set) Match(r *http.Request, at string, addr func(*http.Request) netip.Addr) bool {
	if e.methods[r.Method] || e.exact[at] {
		return true
	}
	for _, p := range e.prefixes {
		if strings.HasPrefix(at, p) {
			return true
		}
	}
	for _, h := range e.headers {
		if got := r.Header.Get(h[0]); got != "" && (h[1] == "" || got == h[1]) {
			return true
		}
	}
	if len(e.cidrs) > 0 {
		a := addr(r)
		for _, p := range e.cidrs {
			if p.Contains(a) {
				return true
			}
		}
	}
	return false
}

// Hostname is who a Host names: without its port, the brackets of an IPv6 address and the dot that
// ends a name in DNS. The cases of its letters are left.
func Hostname(host string) string {
	i := strings.LastIndexByte(host, ':')
	if i >= 0 && (strings.IndexByte(host, ':') == i || strings.HasSuffix(host[:i], "]")) {
		host = host[:i]
	}
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		return host[1 : len(host)-1]
	}
	return strings.TrimSuffix(host, ".")
}

// Clean is the path as an origin may read it: without //, /./ and /../, so
// that no spelling of a path walks around a room or into an exclusion.
func Clean(p string) string {
	if strings.ContainsAny(p, `\;`) { // some origins read \ as / and drop what follows a ;
		parts := strings.Split(strings.ReplaceAll(p, `\`, "/"), "/")
		for i := range parts {
			parts[i], _, _ = strings.Cut(parts[i], ";")
		}
		p = strings.Join(parts, "/")
	}
	if !strings.Contains(p, "//") && !strings.Contains(p, "/.") {
		return p
	}
	c := path.Clean("/" + p)
	if strings.HasSuffix(p, "/") && c != "/" {
		c += "/"
	}
	return c
}
