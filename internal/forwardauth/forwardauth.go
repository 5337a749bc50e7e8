// Package forwardauth answers proxies that ask by HTTP whether a request may pass, and then forward
// the request themselves. It reads the visitor's request from the headers of the question, has the
// rooms decide about it, and turns their answer into one that the proxy understands.
//
// # The promise
//
// Only a request that a room lets in is answered with 2xx, except on /connect, and only such an
// answer has AdmittedHeader. Only trusted proxies may ask. The decision is made about the bytes that
// the proxy names, read in the same way as a request line.
//
// # The wires
//
//	/forward   X-Forwarded-Method, -Proto, -Host, -Uri, -For (Traefik, Caddy); answers are relayed
//	/original  X-Original-Method and X-Original-URL or -URI (nginx, ingress-nginx): 401, not relayed
//	/envoy     the path, method and host of the question itself (Envoy's ext_authz over HTTP): it
//	           takes only 200 for leave to pass, and relays no 5xx
//	/connect   as /forward, for connectors (docs/connectors.md): they read AdmittedHeader, so that
//	           answers to visitors keep their status, and they send the body of a form
//	/batch     questions of connectors about requests that the visitor's pass has let in: batch.go
//	/forward/revoke, /original/revoke
//	           as the wires above: the origin has answered the request with Headgate-Command: revoke
//
// Each wire reads its own headers and drops those of the others, so that a visitor's own header
// that the proxy does not overwrite decides nothing.
//
// # What it does not do
//
// It sees no bodies, and does not know how long an answer takes: docs/edges.md has a table.
package forwardauth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/wire"
)

// Headers of answers.
const (
	// AdmittedHeader is in each answer that lets a request pass. Its value is AdmittedSession, or
	// AdmittedUncounted for a request of no session, such as an excluded path.
	AdmittedHeader    = "Headgate-Admitted"
	AdmittedSession   = "session"
	AdmittedUncounted = "uncounted"

	// AdmittedBare lets a preflight pass a connector, without cookies, Authorization and body, and
	// without the body of the answer.
	AdmittedBare = "bare"

	// LocalHeader names the folder in which a connector may let requests of the session in by
	// itself, until its signed pass expires. Without it the connector asks about each request.
	LocalHeader = "Headgate-Local"
)

// PassHeader is the header of a request to the origin that has the signed pass. Each answer that
// lets a request pass has it too, empty if there is no pass: the proxy copies it into the request,
// over what the visitor may have sent.
const PassHeader = "Headgate-Pass"

// A Handler answers questions. It may be used by many goroutines at once.
type Handler struct {
	// Trusts reports whether a peer is a trusted proxy.
	Trusts func(r *http.Request) bool

	// Relay decides about requests of proxies that relay answers, Check about those of others. They
	// receive the visitor's request.
	Relay, Check http.Handler

	// Connect decides about requests of connectors, and Renew about requests that a pass has let in
	// there: it admits nobody.
	Connect, Renew http.Handler

	// Revoke ends the session of a visitor's request, as the origin's command does, and then answers
	// with 204. Any other status says that the request belongs to no session.
	Revoke http.Handler

	// End ends a session at the request of a connector. refusal is empty, or says why it did not.
	End func(ctx context.Context, e End) (ended bool, refusal string)

	// Leases lets a connector go on for Lease with the sessions that it knows, except the ended ones.
	// If ok is false, it has to ask about each.
	Leases func() (ended []string, ok bool)

	// Keys serves the public keys of signed passes.
	Keys http.Handler
}

// A form is how a proxy describes the visitor's request.
type form struct {
	target   func(r *http.Request) (method, host, proto, uri string, err error)
	relays   bool // the proxy relays what lets nobody in
	envoy    bool // Envoy asks
	connects bool // a connector asks: it reads AdmittedHeader, and not the status
	revokes  bool // the origin has ended the session
}

var forms = []struct {
	path string
	form
}{
	{"/forward", form{target: forwarded, relays: true}},
	{"/forward/revoke", form{target: forwarded, revokes: true}},
	{"/original", form{target: original}},
	{"/original/revoke", form{target: original, revokes: true}},
	{"/envoy", form{target: itself, relays: true, envoy: true}},
	{"/connect", form{target: forwarded, relays: true, connects: true}},
}

// forStrangers is what peers read that are not trusted.
const forStrangers = "Only proxies in trusted_proxies may ask here. Add the address of the proxy to trusted_proxies."

// ServeHTTP implements http.Handler. It changes r into the visitor's request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.Trusts(r) {
		say(w, http.StatusForbidden, forStrangers)
		return
	}
	for _, f := range forms {
		rest, ok := strings.CutPrefix(r.URL.Path, f.path)
		if !ok || rest != "" && (rest[0] != '/' || f.path != "/envoy") {
			continue
		}
		misleading := f.misleading(r.Header)
		if err := f.become(r); err != nil {
			say(w, http.StatusBadRequest, "headgate cannot decide: "+err.Error()+".")
			return
		}
		if f.revokes {
			h.revoke(w, r)
			return
		}
		next := h.Check
		switch {
		case f.connects:
			next = h.Connect
		case f.relays:
			next = h.Relay
		}
		judge(&verdict{ResponseWriter: w, form: f.form, asked: r, misleading: misleading}, next)
		return
	}
	switch r.URL.Path {
	case "/batch":
		h.serveBatch(w, r)
	case "/jwks.json":
		h.Keys.ServeHTTP(w, r)
	default:
		say(w, http.StatusNotFound,
			"Ask /forward, /original or /envoy, or /connect and /batch: see docs/edges.md and docs/connectors.md.")
	}
}

// revoke relays the origin's command, and says whether it has ended a session.
func (h *Handler) revoke(w http.ResponseWriter, r *http.Request) {
	a := &headers{h: http.Header{}}
	if h.Revoke.ServeHTTP(a, r); a.code != http.StatusNoContent {
		say(w, http.StatusNotFound, "The request belongs to no session.")
		return
	}
	w.Header()["Cache-Control"] = noStore
	w.WriteHeader(http.StatusNoContent)
}

func judge(v *verdict, next http.Handler) {
	next.ServeHTTP(v, v.asked)
	if !v.done {
		v.WriteHeader(http.StatusOK)
	}
}

func say(w http.ResponseWriter, code int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	io.WriteString(w, text+"\n")
}

// Claims are headers by which a visitor's request could mean another one for the origin, or claim to be
// somebody else's, besides those of package wire.
var Claims = []string{"x-forwarded-uri", "x-forwarded-method", "x-original-host", "x-host",
	"x-http-host-override", "forwarded", "http2-settings",
	// What only headgate says in front of an origin.
	"headgate-holder", "headgate-plan", "headgate-exceeded"}

// misleading returns the headers that Envoy is to remove from a request that may pass: those that
// could mean another request for the origin, in any spelling.
func (f *form) misleading(h http.Header) []string {
	if !f.envoy {
		return nil
	}
	all := slices.Clone(Claims)
	for name := range h {
		if wire.OverridesURL(name) || wire.OverridesMethod(name) || wire.AliasOfOwned(name) {
			all = append(all, name)
		}
	}
	return all
}

// become turns a question into the visitor's request.
func (f *form) become(r *http.Request) error {
	method, host, proto, uri, err := f.target(r)
	if err != nil {
		return err
	}
	u, err := Target(uri)
	if err != nil {
		return err
	}
	r.Method, r.Host, r.URL, r.RequestURI = method, host, u, uri
	if !f.connects {
		r.Body, r.ContentLength, r.TransferEncoding = http.NoBody, 0, nil
	}
	for name := range r.Header {
		if wire.OverridesURL(name) || name == "X-Original-Method" || name == "X-Forwarded-Method" ||
			name == "X-Forwarded-Host" || name == "X-Forwarded-Uri" {
			delete(r.Header, name)
		}
	}
	if r.Header["X-Forwarded-Proto"] = []string{proto}; proto == "" {
		delete(r.Header, "X-Forwarded-Proto")
	}
	return nil
}

// Target parses the visitor's target as net/http parses that of a request line.
func Target(uri string) (*url.URL, error) {
	u, err := url.ParseRequestURI(uri)
	control := func(c rune) bool { return c <= ' ' || c == 0x7f }
	if err != nil || uri[0] != '/' || strings.ContainsFunc(uri, control) {
		return nil, fmt.Errorf("the visitor's target %.80q is no path", uri)
	}
	return u, nil
}

var errMissing = errors.New("headers of the visitor's request are missing, or sent twice")

// one returns the only value of a header.
func one(h http.Header, name string) (string, error) {
	if v := h[name]; len(v) == 1 && v[0] != "" {
		return v[0], nil
	}
	return "", fmt.Errorf("%w: %s", errMissing, name)
}

func forwarded(r *http.Request) (method, host, proto, uri string, err error) {
	method, e1 := one(r.Header, "X-Forwarded-Method")
	host, e2 := one(r.Header, "X-Forwarded-Host")
	proto, e3 := one(r.Header, "X-Forwarded-Proto")
	uri, e4 := one(r.Header, "X-Forwarded-Uri")
	return method, host, proto, uri, errors.Join(e1, e2, e3, e4)
}

// original reads the headers of ingress-nginx, X-Original-URL with scheme and host, or those of
// docs/edges.md: X-Original-URI, and Host. A question with both is not answered: one of them may be the
// visitor's.
func original(r *http.Request) (method, host, proto, uri string, err error) {
	method, err = one(r.Header, "X-Original-Method")
	if err == nil && r.Header["X-Original-Uri"] != nil && r.Header["X-Original-Url"] != nil {
		err = errMissing
	}
	if err != nil {
		return
	}
	if uri, err = one(r.Header, "X-Original-Uri"); err == nil {
		proto, err = one(r.Header, "X-Forwarded-Proto")
		return method, r.Host, proto, uri, err
	}
	whole, err := one(r.Header, "X-Original-Url")
	if err != nil {
		return
	}
	proto, rest, ok := strings.Cut(whole, "://")
	slash := strings.IndexByte(rest, '/')
	if !ok || slash <= 0 {
		return method, "", "", "", fmt.Errorf("X-Original-URL %.80q is not scheme://host/path", whole)
	}
	return method, rest[:slash], proto, rest[slash:], nil
}

// itself reads the question of Envoy: the visitor's method and host, and its target after /envoy.
func itself(r *http.Request) (method, host, proto, uri string, err error) {
	proto, err = one(r.Header, "X-Forwarded-Proto")
	return r.Method, r.Host, proto, strings.TrimPrefix(r.RequestURI, "/envoy"), err
}

// Lets reports whether an answer with the header h lets r pass. The proxy would forward the upgrade
// of a request of no session, and the tunnel would carry requests that no room sees.
func Lets(h http.Header, r *http.Request) bool {
	in := h[AdmittedHeader]
	return len(in) == 1 && (in[0] == AdmittedSession || len(r.Header["Upgrade"]) == 0)
}

// A verdict turns the answer of a room into the answer to a proxy.
type verdict struct {
	http.ResponseWriter
	form
	asked      *http.Request
	misleading []string // headers of the question that the origin must not get from Envoy
	done       bool
	mute       bool // no body
}

// Unwrap lets http.ResponseController find the connection.
func (v *verdict) Unwrap() http.ResponseWriter { return v.ResponseWriter }

// WriteHeader sends the headers. Only Admitted may send 2xx: a page of a room with
// queueing_status_code 200 becomes 503.
func (v *verdict) WriteHeader(code int) {
	if v.done || code < 200 {
		return
	}
	v.done = true
	h := v.Header()
	// A proxy that relays nothing carries one cookie over: rooms that overlap may set two.
	switch in := Lets(h, v.asked) && (v.relays || len(h["Set-Cookie"]) < 2); {
	case in:
		v.mute = true
		if v.envoy {
			code = http.StatusOK
			v.letEnvoy(h)
		}
	case !v.relays:
		for name := range h {
			delete(h, name)
		}
		h["Cache-Control"], v.mute, code = []string{"no-store"}, true, http.StatusUnauthorized
		h["Content-Length"] = []string{"0"}
	case code < 300 && (!v.connects || len(h[AdmittedHeader]) > 0):
		delete(h, AdmittedHeader)
		code = http.StatusServiceUnavailable
	}
	if v.envoy && code >= 500 {
		code = http.StatusTooManyRequests // Envoy would answer with status_on_error, without the page
	}
	v.ResponseWriter.WriteHeader(code)
}

// letEnvoy changes the headers of an answer that lets a request pass. Envoy copies them into the request, or
// into the origin's answer.
func (v *verdict) letEnvoy(h http.Header) {
	h["Content-Length"] = []string{"0"}
	if len(h["Set-Cookie"]) == 0 {
		delete(h, "Cache-Control")
	}
	if h.Get(PassHeader) == "" {
		delete(h, PassHeader)
		v.misleading = append(v.misleading, PassHeader)
	}
	h["X-Envoy-Auth-Headers-To-Remove"] = []string{strings.Join(v.misleading, ",")}
}

// Write sends a part of the body.
func (v *verdict) Write(p []byte) (int, error) {
	if !v.done {
		v.WriteHeader(http.StatusOK)
	}
	if v.mute {
		return len(p), nil
	}
	return v.ResponseWriter.Write(p)
}

// FlushError sends the headers. Without it, a flush would reach the writer below and send 200.
func (v *verdict) FlushError() error {
	if !v.done {
		v.WriteHeader(http.StatusOK)
	}
	return nil
}

// Admitted answers the question about a request that a room lets in. It takes the place of the
// origin. local returns the value of LocalHeader, "" for none; it is nil for proxies.
func Admitted(local func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, in := w.Header(), wire.InSession(w)
		switch {
		case in:
			h[AdmittedHeader] = session
		case local != nil && wire.IsPreflight(r):
			h[AdmittedHeader] = bare
		default:
			h[AdmittedHeader] = uncounted
		}
		if h[PassHeader] = none; len(r.Header[PassHeader]) > 0 {
			h[PassHeader] = r.Header[PassHeader]
			if in && local != nil {
				if folder := local(r); folder != "" {
					h[LocalHeader] = []string{folder}
				}
			}
		}
		h["Cache-Control"] = noStore
		w.WriteHeader(http.StatusNoContent)
	})
}

// Shared header values, never changed.
var (
	session   = []string{AdmittedSession}
	uncounted = []string{AdmittedUncounted}
	bare      = []string{AdmittedBare}
	noStore   = []string{"no-store"}
	none      = []string{""}
)
