package wire

import (
	"net/http"
	"slices"
	"strings"
)

// MakePrivate keeps shared caches from storing an answer that sets a visitor's cookie: a cached
// Set-Cookie would give one session to everybody. Browsers may store the answer as before.
func MakePrivate(h http.Header) {
	// CDNs obey these before Cache-Control (RFC 9213 and its predecessors).
	for _, name := range [...]string{"Cdn-Cache-Control", "Cloudflare-Cdn-Cache-Control",
		"Vercel-Cdn-Cache-Control", "Netlify-Cdn-Cache-Control", "Surrogate-Control", "Edge-Control"} {
		delete(h, name)
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
