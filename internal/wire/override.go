package wire

import (
	"maps"
	"net/http"
)

// Headers that make frameworks see another request than the one that headgate decided on. Symfony,
// Zend and the rewriting modules of IIS take the URL from the first three, and gunicorn removes
// SCRIPT_NAME from the path. Rails and Express take the method from the others.
var (
	urlOverrides = [...]string{"x-original-url", "x-rewrite-url", "x-original-uri", "script-name",
		"path-info"}
	methodOverrides = [...]string{"x-http-method-override", "x-http-method", "x-method-override",
		"x-original-method"}
)

// OverridesURL reports whether an origin may take its URL from a header of that name, in any spelling.
func OverridesURL(name string) bool { return spells(name, urlOverrides[:]) }

// OverridesMethod reports whether an origin may take the method from a header of that name, in any
// spelling.
func OverridesMethod(name string) bool { return spells(name, methodOverrides[:]) }

// WithoutOverrides returns r, or a copy of r without the headers that override the URL or the
// method. It is for a request that passes because of its own URL or method.
func WithoutOverrides(r *http.Request) *http.Request {
	next := r
	for name := range r.Header {
		if !OverridesURL(name) && !OverridesMethod(name) {
			continue
		}
		if next == r {
			next = new(*r)
			next.Header = maps.Clone(r.Header)
		}
		delete(next.Header, name)
	}
	return next
}
