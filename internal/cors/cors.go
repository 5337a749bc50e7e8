// Package cors answers the CORS preflights of a room, and lets pages of other origins read the
// answers that headgate gives itself.
//
// # The promise
//
// A preflight that is not allowed in every part gets no Access-Control header: browsers do not ask
// for GET, HEAD and POST in Access-Control-Allow-Methods, so the list holds only if a refused
// preflight allows nothing. Answers of the origin are never touched.
//
// # Concurrency and cost
//
// A Policy never changes. It reads at most 100 requested header names.
//
// # What it does not do
//
// It refuses no request: only browsers obey CORS. New does not check Rules: package config does for
// a file, [Rules.Fill] for a program.
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

// Any in a list of Rules stands for all.
const Any = "*"

// DefaultMaxAge is how long browsers keep the answer to a preflight that names no time (Fetch
// standard, CORS-preflight fetch).
const DefaultMaxAge = 5 * time.Second

// mostHeaders bounds the names that a preflight may ask for: browsers send each once. Chosen.
const mostHeaders = 100

// DefaultMethods are those that forms and links of any page can send too.
func DefaultMethods() []string { return []string{"GET", "HEAD", "POST"} }

// Rules say which pages of other origins may send which requests.
type Rules struct {
	// Origins are scheme://host, in lower case, with a port that is not the default one of the
	// scheme. A host that begins with "*." is any host below the rest. Any is all origins.
	Origins []string

	Methods     []string      // in capitals, or Any
	Headers     []string      // in canonical form; Any is all but Authorization
	MaxAge      time.Duration // for so long browsers need not ask again
	Credentials bool          // requests may carry cookies; not with Any
}

// A Policy is Rules, ready to be asked. A nil Policy does nothing.
type Policy struct {
	rules            Rules
	below            []below
	methods, headers string // as they are sent
}

// below is every host below a domain.
type below struct{ scheme, rest string }

// Fill returns a copy of the rules of a program with the defaults of zero fields, or an error about
// what could not work, or would allow more than is written.
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
		for _, s := range list { // they are written into headers
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
		strings.Contains(s, "*") && !strings.Contains(u.Hostname(), ".") { // *.com is of different owners
		return false
	}
	port := u.Port()
	return u.Scheme+"://"+u.Host == strings.Replace(s, "://*.", "://", 1) && s == strings.ToLower(s) &&
		!strings.HasSuffix(u.Host, ":") &&
		(u.Scheme != "https" || port != "443") && (u.Scheme != "http" || port != "80")
}

// New readies the rules; nil for nil.
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

// allows reports whether the requested method and headers are allowed. Proxies may split a list into
// lines, and browsers write names in lower case.
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

// exposed are the headers of headgate's own answers that scripts need and could not read otherwise.
const exposed = "Headgate-State, RateLimit, RateLimit-Limit, RateLimit-Policy, RateLimit-Remaining, " +
	"RateLimit-Reset, Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, X-Request-Id"

// Share lets the page that sent r read an answer of headgate's own.
func (p *Policy) Share(h http.Header, r *http.Request) {
	if p == nil {
		return
	}
	h.Add("Vary", "Origin")
	if p.allowOrigin(h, r) {
		h.Set("Access-Control-Expose-Headers", exposed)
	}
}

// Before shares what next answers, unless the request reaches Origin.
func (p *Policy) Before(next http.Handler) http.Handler {
	if p == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.Share(w.Header(), r)
		next.ServeHTTP(w, r)
	})
}

// Origin takes back what Before has set: next is the origin, and says itself who may read.
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

// allowOrigin sets who may read an answer to r, if that is anybody.
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
