package wire

import (
	"net/http"
	"slices"
	"strings"
)

// MakePrivate keeps shared caches from storing an answer that sets a visitor's cookie: a cached
// Set-Cookie would give one session to everybody. Browsers may store the answer as before.
func MakePrivate(h http.Header) {
	for name := range h {
		if beforeCacheControl(name) {
			delete(h, name)
		}
	}
	if _, stores := h["Expires"]; stores { // an HTTP/1.0 cache reads nothing else
		h["Expires"] = []string{"0"}
	}
	kept := directives(h["Cache-Control"])
	if !slices.ContainsFunc(kept, func(d string) bool { return directive(d) == "no-store" }) {
		kept = append([]string{"private"}, slices.DeleteFunc(kept, func(d string) bool {
			name := directive(d)
			return name == "public" || name == "s-maxage" || name == "private" || name == "proxy-revalidate"
		})...)
	}
	h["Cache-Control"] = []string{strings.Join(kept, ", ")}
	for _, name := range directives(h["Vary"]) {
		if name == "*" || strings.EqualFold(name, "Cookie") {
			return
		}
	}
	h["Vary"] = append(slices.Clip(h["Vary"]), "Cookie")
}

// beforeCacheControl reports whether some cache obeys a header, in any spelling, before
// Cache-Control: those for one kind of cache (RFC 9213), their predecessors, and that of nginx.
func beforeCacheControl(name string) bool {
	const targeted = "-cache-control"
	at := max(0, len(name)-len(targeted))
	return spells(name[at:], []string{targeted}) ||
		spells(name, []string{"surrogate-control", "edge-control", "x-accel-expires"})
}

// directives returns the members of a list. A quoted string in it may contain a comma.
func directives(lines []string) (all []string) {
	for _, line := range lines {
		from, quoted := 0, false
		for i := 0; i <= len(line); i++ {
			switch {
			case i == len(line) || line[i] == ',' && !quoted:
				if d := strings.Trim(line[from:i], " \t"); d != "" {
					all = append(all, d)
				}
				from = i + 1
			case line[i] == '\\' && quoted:
				i++
			case line[i] == '"':
				quoted = !quoted
			}
		}
	}
	return all
}

// directive returns the name of a member, in lower case.
func directive(d string) string {
	name, _, _ := strings.Cut(d, "=")
	return strings.ToLower(strings.TrimSpace(name))
}
