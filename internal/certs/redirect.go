package certs

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/headgate/headgate/internal/paths"
)

// ChallengePath is the path prefix of http-01 challenges (RFC 8555 §8.3).
const ChallengePath = "/.well-known/acme-challenge/"

// A Redirect redirects http requests to https.
type Redirect struct {
	// Ready reports whether https works for a host. If not, requests are not redirected.
	Ready func(host string) bool

	// Listen and Plain are the ports of the https and the http listener.
	Listen, Plain string
}

// Target returns the URL to redirect a request to, or "" for no redirect. ok is false for an
// invalid request. The target host is the requested one. That cannot be abused, because a browser
// sends only the host that it wanted to visit.
func (t *Redirect) Target(r *http.Request) (to string, ok bool) {
	host, port, ok := paths.SplitHost(r.Host)
	if !ok || r.URL.Opaque != "" || !strings.HasPrefix(r.URL.Path, "/") {
		return "", false
	}
	if !t.Ready(strings.ToLower(strings.TrimSuffix(host, "."))) {
		return "", true
	}
	secure := t.Listen
	// A request without a port came to port 80. If headgate does not listen there, a proxy maps the
	// ports, and then it maps 443 as well.
	if port == "" && t.Plain != "80" {
		secure = "443"
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if secure != "443" {
		host += ":" + secure
	}
	return "https://" + host + plain(r.URL.RequestURI()), true
}

// plain escapes characters that are valid in a request target but not in a URL. Browsers send no
// fragment, so a # is part of the query.
func plain(path string) string {
	var b strings.Builder
	for i := range len(path) {
		if c := path[i]; c <= ' ' || c >= 0x7f || c == '#' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// Answer redirects the visitor to the target. Status 308 keeps the method and the body.
func (t *Redirect) Answer(w http.ResponseWriter, to string) {
	h := w.Header()
	h.Set("Location", to)
	h.Set("Cache-Control", "no-store") // browsers must not keep a wrong redirect
	h.Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusPermanentRedirect)
}
