// Package cors answers the CORS preflights of a room, and lets pages of other origins read the
// answers that headgate itself sends.
//
// # The promise
//
// A preflight that is not allowed completely gets no Access-Control header at all. Browsers allow
// GET, HEAD and POST even if Access-Control-Allow-Methods does not list them, so the list is
// effective only if a rejected preflight allows nothing. Answers of the origin are never changed.
//
// # Concurrency and cost
//
// A Policy never changes. It reads at most 100 requested header names.
//
// # What it does not do
//
// It rejects no request: only browsers enforce CORS. New does not check Rules: package config does
// for a file, [Rules.Fill] for a program.
package cors

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Any, as an entry in a list of Rules, allows everything.
const Any = "*"

// DefaultMaxAge is how long browsers cache the answer to a preflight without a max age (Fetch
// standard, CORS-preflight fetch).
const DefaultMaxAge = 5 * time.Second

// mostHeaders bounds the header names that a preflight may request: browsers send each name once.
// Chosen.
const mostHeaders = 100

// DefaultMethods returns the methods that forms and links of any page can use too.
func DefaultMethods() []string { return []string{"GET", "HEAD", "POST"} }

// Rules configure which pages of other origins may send which requests.
type Rules struct {
	// Origins are scheme://host, in lower case, with the port unless it is the scheme's default. A
	// host that begins with "*." matches any host below that domain. Any matches all origins.
	Origins []string

	Methods     []string      // in capitals, or Any
	Headers     []string      // in canonical form; Any does not include Authorization
	MaxAge      time.Duration // how long browsers may cache the answer to a preflight
	Credentials bool          // requests may contain cookies; not with Any
}

// A Policy is the compiled form of Rules. A nil Policy does nothing.
type Policy struct {
	rules            Rules
	below            []below
	methods, headers string // as sent in headers
}

// below matches every host below a domain.
type below struct{ scheme, rest string }

// Fill returns a copy of the rules of a program with defaults for zero fields. Its error reports
// rules that cannot work, or that would allow more than they appear to.
func (r *Rules) Fill() (*Rules, error) {
	if r == nil {
		return nil, nil
	}
	c := *r
	if len(c.Methods) == 0 {
		c.Methods = DefaultMethods()
	}
	c.MaxAge = cmp.Or(c.MaxAge, DefaultMaxAge)
	c.Headers = nil
	for _, name := range r.Headers {
		c.Headers = append(c.Headers, http.CanonicalHeaderKey(name))
	}
	if len(c.Origins) == 0 {
		return nil, errors.New("cors has no origin: add one, such as https://app.example, or leave cors out")
	}
	for _, o := range c.Origins {
		if o != Any && !isOrigin(o) {
			return nil, fmt.Errorf("cors: %q is not an origin: write scheme and host in lower case, such as "+
				"https://app.example or https://*.shop.example", o)
		}
	}
	for _, list := range [][]string{c.Origins, c.Methods, c.Headers} {
		if c.Credentials && slices.Contains(list, Any) {
			return nil, errors.New("cors: * cannot be allowed together with credentials: browsers refuse that")
		}
		for _, s := range list { // the values are sent in headers
			if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == ',' || r >= 0x7f }) {
				return nil, fmt.Errorf("cors: %q is no name", s)
			}
		}
	}
	return &c, nil
}

// isOrigin reports whether s is an origin in the form of [Rules].
func isOrigin(s string) bool {
	u, err := url.Parse(strings.Replace(s, "://*.", "://", 1))
	if err != nil || u.Hostname() == "" || strings.Contains(u.Host, "*") ||
		strings.Contains(s, "*") && !strings.Contains(u.Hostname(), ".") { // many owners
		return false
	}
	port := u.Port()
	return u.Scheme+"://"+u.Host == strings.Replace(s, "://*.", "://", 1) && s == strings.ToLower(s) &&
		!strings.HasSuffix(u.Host, ":") &&
		(u.Scheme != "https" || port != "443") && (u.Scheme != "http" || port != "80")
}

// New compiles the rules; it returns nil for nil.
func New(r *Rules) *Policy {
	if r == nil {
		return nil
	}
	p := &Policy{rules: *r, methods: strings.Join(r.Methods, ", "), headers: strings.Join(r.Headers, ", ")}
	for _, o := range r.Origins {
		if scheme, rest, ok := strings.Cut(o, "*."); ok {
			p.below = append(p.below, below{scheme, "." + rest})
		}
	}
	return p
}

// ServeHTTP answers a preflight. Access-Control-Allow-Private-Network is never sent.
func (p *Policy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers")
	if p.allows(r.Header) && p.allowOrigin(h, r) {
		h.Set("Access-Control-Allow-Methods", p.methods)
		if p.headers != "" && r.Header["Access-Control-Request-Headers"] != nil {
			h.Set("Access-Control-Allow-Headers", p.headers)
		}
		h.Set("Access-Control-Max-Age", strconv.FormatInt(int64(p.rules.MaxAge/time.Second), 10))
	}
	w.WriteHeader(http.StatusNoContent)
}

// allows reports whether the requested method and headers are allowed. Proxies may split a list
// into several lines, and browsers write names in lower case.
func (p *Policy) allows(h http.Header) bool {
	asked, methods, names := h["Access-Control-Request-Method"], p.rules.Methods, p.rules.Headers
	if len(asked) != 1 || !slices.Contains(methods, asked[0]) && !slices.Contains(methods, Any) {
		return false
	}
	every, n := slices.Contains(names, Any), 0
	for _, line := range h["Access-Control-Request-Headers"] {
		for name := range strings.SplitSeq(line, ",") {
			name = http.CanonicalHeaderKey(strings.Trim(name, " \t"))
			if n++; n > mostHeaders ||
				name != "" && !slices.Contains(names, name) && (!every || name == "Authorization") {
				return false
			}
		}
	}
	return true
}

// exposed lists the headers of headgate's own answers that scripts need and otherwise could not
// read.
const exposed = "Headgate-State, RateLimit, RateLimit-Limit, RateLimit-Policy, RateLimit-Remaining, " +
	"RateLimit-Reset, Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, X-Request-Id"

// Share allows the page that sent r to read an answer of headgate's own.
func (p *Policy) Share(h http.Header, r *http.Request) {
	if p == nil {
		return
	}
	h.Add("Vary", "Origin")
	if p.allowOrigin(h, r) {
		h.Set("Access-Control-Expose-Headers", exposed)
	}
}

// Before allows pages to read the answers of next, unless the request reaches Origin.
func (p *Policy) Before(next http.Handler) http.Handler {
	if p == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.Share(w.Header(), r)
		next.ServeHTTP(w, r)
	})
}

// Origin removes the headers that Before has set: next is the origin, which decides itself who may
// read.
func (p *Policy) Origin(next http.Handler) http.Handler {
	if p == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		delete(h, "Access-Control-Allow-Origin")
		delete(h, "Access-Control-Allow-Credentials")
		delete(h, "Access-Control-Expose-Headers")
		if i := slices.Index(h["Vary"], "Origin"); i >= 0 {
			h["Vary"] = slices.Delete(h["Vary"], i, i+1)
		}
		next.ServeHTTP(w, r)
	})
}

// allowOrigin sets the headers that allow a page to read an answer to r, if its origin is allowed,
// and reports whether it is.
func (p *Policy) allowOrigin(h http.Header, r *http.Request) bool {
	from := r.Header["Origin"]
	switch {
	case len(from) != 1:
		return false
	case slices.Contains(p.rules.Origins, Any):
		h.Set("Access-Control-Allow-Origin", Any)
		return true
	case !p.knows(from[0]):
		return false
	}
	h.Set("Access-Control-Allow-Origin", from[0])
	if p.rules.Credentials {
		h.Set("Access-Control-Allow-Credentials", "true")
	}
	return true
}

func (p *Policy) knows(origin string) bool {
	origin = strings.ToLower(origin)
	if strings.HasPrefix(origin, "https://") {
		origin = strings.TrimSuffix(origin, ":443")
	} else if strings.HasPrefix(origin, "http://") {
		origin = strings.TrimSuffix(origin, ":80")
	}
	if slices.Contains(p.rules.Origins, origin) {
		return !strings.Contains(origin, "*")
	}
	return slices.ContainsFunc(p.below, func(b below) bool {
		name, scheme := strings.CutPrefix(origin, b.scheme)
		name, rest := strings.CutSuffix(name, b.rest)
		return scheme && rest && name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
	})
}
