// Package exclude decides which requests bypass a room without being counted, and limits how many
// newcomers one network may send.
//
// # Guarantees
//
// A Set decides on one reading of a path; package paths returns all of them.
//
// # Concurrency and cost
//
// A Set never changes. A Joins has one lock and at most 100,000 entries. Neither allocates.
//
// # Limitations
//
// The package identifies a visitor only by the address that it is given.
package exclude

import (
	"crypto/subtle"
	"net/http"
	"net/netip"
	"strings"

	"github.com/headgate/headgate/internal/paths"
)

// Requests selects requests that pass without being counted: probes, payment webhooks, preflights.
// The zero value is the defaults: OPTIONS, HEAD, /robots.txt, /favicon.ico and /.well-known/.
type Requests struct {
	NoDefaults bool     // if false, also /robots.txt, /favicon.ico and /.well-known/
	Paths      []string // a path that ends with / or * is a prefix
	Methods    []string
	CIDRs      []netip.Prefix
	Headers    []string // "Name", or "Name: value"

	Upgrade     bool // these requests may also open a WebSocket
	MaxInFlight int  // at the same time; 0 is 1,000, or 100 of one address
	MaxPerAddr  int  // an IPv4 address, or 64 bits of an IPv6 address
}

// Defaults of Requests. Chosen: a page and its files are 10 to 30 requests, and 1,000 in flight
// that take 100 ms each are 10,000 a second.
const (
	MaxInFlight = 1000
	MaxPerAddr  = 100
)

// A Set is a compiled Requests.
type Set struct {
	exact    map[string]bool
	prefixes []string
	methods  map[string]bool
	cidrs    []netip.Prefix
	headers  [][2]string
	anyCase  bool
}

// New compiles x. anyCase says that /Pay and /pay are the same.
func New(x Requests, anyCase bool) Set {
	e := Set{exact: map[string]bool{}, methods: map[string]bool{}, cidrs: x.CIDRs, anyCase: anyCase}
	all, methods := x.Paths, x.Methods
	if !x.NoDefaults {
		all = append([]string{"/robots.txt", "/favicon.ico", "/.well-known/"}, all...)
	}
	for _, p := range all {
		if anyCase {
			p = paths.Fold(p)
		}
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

// Match reports whether a request bypasses the room. at is a reading of its path. addr is called
// only where the address matters.
func (e *Set) Match(r *http.Request, at string, addr func(*http.Request) netip.Addr) bool {
	if e.anyCase {
		at = paths.Fold(at)
	}
	if e.methods[r.Method] || e.exact[at] {
		return true
	}
	for _, p := range e.prefixes {
		if strings.HasPrefix(at, p) {
			return true
		}
	}
	for _, h := range e.headers { // the value is a secret that lets a request pass: see ConstantTimeCompare
		got := r.Header.Get(h[0])
		if got != "" && (h[1] == "" || subtle.ConstantTimeCompare([]byte(got), []byte(h[1])) == 1) {
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
