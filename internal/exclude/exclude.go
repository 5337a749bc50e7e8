// Package exclude says which requests pass by a room without being counted, and how many places one
// network may draw.
//
// # The promise
//
// A Set decides on one reading of a path; package paths has all of them.
//
// # Concurrency and cost
//
// A Set never changes. A Joins has one lock and at most 100,000 entries. Neither allocates.
//
// # What it does not do
//
// It does not know who a visitor is but by the address it is handed.
package exclude

import (
	"crypto/subtle"
	"net/http"
	"net/netip"
	"strings"

	"github.com/headgate/headgate/internal/paths"
)

// Requests names requests that pass and are not counted: probes, payment
// webhooks, preflights. The zero value is the defaults: OPTIONS, HEAD,
// /robots.txt, /favicon.ico and /.well-known/.
type Requests struct {
	NoDefaults bool     // else also /robots.txt, /favicon.ico and /.well-known/
	Paths      []string // ending with / or *: a prefix
	Methods    []string
	CIDRs      []netip.Prefix
	Headers    []string // "Name", or "Name: value"

	Upgrade     bool // WebSockets may open as well
	MaxInFlight int  // at the same time; 0 is 1,000, and of one address 100
	MaxPerAddr  int  // an IPv4 address, or 64 bits of an IPv6 address
}

// The defaults of Requests. Chosen: a page and its files are 10 to 30 requests, and 1,000 in flight
// that take 100 ms each are 10,000 a second.
const (
	MaxInFlight = 1000
	MaxPerAddr  = 100
)

// A Set is Requests, ready to be asked.
type Set struct {
	exact    map[string]bool
	prefixes []string
	methods  map[string]bool
	cidrs    []netip.Prefix
	headers  [][2]string
	anyCase  bool
}

// New readies x. anyCase says that /Pay and /pay are one.
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

// Match reports whether a request passes by. at is a reading of its path; addr is asked for its address
// only where that matters.
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
	for _, h := range e.headers { // a value is a secret that lets a request pass: see ConstantTimeCompare
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
