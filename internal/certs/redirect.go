package certs

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/headgate/headgate/internal/paths"
)

// ChallengePath is where issuers ask for the proof of a domain (RFC 8555 §8.3).
const ChallengePath = "/.well-known/acme-challenge/"

// A Redirect sends visitors who came by http to https.
type Redirect struct {
	// Ready tells whether https works for a host; where it does not, nobody is
	// sent there.
	Ready func(host string) bool

	// Listen and Plain are the ports of the https and the http listener.
	Listen, Plain string
}

// Target is where a request is sent, "" when it stays. ok is false when nothing
// sane was asked for. The host is the one that was asked for, whoever it is: a
// browser that follows is where it wanted to go, and nobody can be sent to a
// host of somebody else's choosing.
func (t *Redirect) Target(r *http.Request) (to string, ok bool) {
	host, port, ok := paths.SplitHost(r.Host)
	if !ok || r.URL.Opaque != "" || !strings.HasPrefix(r.URL.Path, "/") {
		return "", false
	}
	if !t.Ready(strings.ToLower(strings.TrimSuffix(host, "."))) {
		return "", true
	}
	secure := t.Listen
	// Who names no port came to port 80. If that is not where we listen, then
	// something in front maps ports, and it maps 443 as well.
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

// plain escapes what a request target may hold and a URL does not: no browser sends a
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

// Answer sends the visitor to the target. 308 keeps the method and the body.
func (t *Redirect) Answer(w http.ResponseWriter, to string) {
	h := w.Header()
	h.Set("Location", to)
	h.Set("Cache-Control", "no-store") // a mistake must not stay in browsers
	h.Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusPermanentRedirect)
}
