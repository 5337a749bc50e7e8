package proxy

import (
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"

	"github.com/headgate/headgate/internal/wire"
)

// What belongs to headgate and stops here, in the canonical spelling that a
// header map has, so that plain map operations do.
const (
	pollHeader      = "Headgate-Poll"
	commandHeader   = "Headgate-Command"
	cfCommandHeader = "Cf-Waiting-Room-Command"
)

// rewrite turns the client's request into the origin's. ReverseProxy has removed
// the hop-by-hop headers and the client's Forwarded and X-Forwarded-* before.
func (p *Proxy) rewrite(pr *httputil.ProxyRequest) {
	pr.SetURL(p.origin)
	if !p.originHost {
		pr.Out.Host = pr.In.Host
	}
	// ReverseProxy drops and reorders a query with ";" or a stray "%", which
	// breaks signed addresses. Nothing is decided here by the query, so that the
	// two sides may read it differently.
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery
	delete(pr.Out.Header, pollHeader)
	if !wire.OpensWebSocket(pr.In) {
		delete(pr.Out.Header, "Connection") // ReverseProxy sets it for an upgrade alone
		wire.DropUpgrade(pr.Out.Header)
	}
	trusted := p.isTrusted(pr.In)
	dropClaims(pr.Out.Header, trusted)
	for name := range pr.Out.Trailer { // some origins read trailers as headers
		if wire.Owned(name) || wire.OverridesURL(name) {
			delete(pr.Out.Trailer, name)
		}
	}
	stripCookies(pr.Out.Header, p.prefix)
	forwarded(pr, trusted)
	if pr.Out.Body != nil {
		pr.Out.Body = &upload{ReadCloser: pr.Out.Body}
	}
}

// isTrusted reports whether the peer of r is one of the proxies whose headers are believed.
func (p *Proxy) isTrusted(r *http.Request) bool {
	if len(p.trusted) == 0 {
		return false
	}
	addr, ok := peerAddr(r.RemoteAddr)
	return ok && contains(p.trusted, addr)
}

// dropClaims removes other spellings of the headers that headgate owns, and what anybody but a
// trusted proxy says about where the request comes from and what it asked for.
func dropClaims(h http.Header, trusted bool) {
	for name := range h {
		claim := !trusted && (strings.HasPrefix(name, "X-Forwarded-") || name == "X-Real-Ip" ||
			wire.OverridesURL(name))
		if claim || wire.AliasOfOwned(name) {
			delete(h, name)
		}
	}
}

// forwarded tells the origin who asks. From a trusted peer the story so far is
// kept and the peer added; from anyone else it begins here.
func forwarded(pr *httputil.ProxyRequest, trusted bool) {
	in, out := pr.In.Header, pr.Out.Header
	// One array for three one-element values: one allocation instead of three.
	vals := &[3]string{1: "http", 2: pr.In.Host}
	if pr.In.TLS != nil {
		vals[1] = "https"
	}
	out["X-Forwarded-Proto"] = vals[1:2:2]
	out["X-Forwarded-Host"] = vals[2:3:3]

	peer, _, err := net.SplitHostPort(pr.In.RemoteAddr)
	if err != nil {
		return // a Unix socket: there is no address to tell
	}
	peer, _, _ = strings.Cut(peer, "%")
	vals[0] = peer
	out["X-Forwarded-For"] = vals[0:1:1]
	if !trusted {
		return
	}
	if prior := in["X-Forwarded-For"]; len(prior) > 0 {
		vals[0] = strings.Join(prior, ", ") + ", " + peer
	}
	if prior := in["X-Forwarded-Proto"]; len(prior) > 0 {
		vals[1] = prior[0]
	}
	if prior := in["X-Forwarded-Host"]; len(prior) > 0 {
		vals[2] = prior[0]
	}
	// Forwarded (RFC 7239) is carried on only where it is in use already.
	if prior := in["Forwarded"]; len(prior) > 0 {
		if strings.Contains(peer, ":") {
			peer = `"[` + peer + `]"`
		}
		out["Forwarded"] = []string{strings.Join(prior, ", ") + ", for=" + peer}
	}
}

// sessionCookie begins the names of the dashboard's session cookie. Cookies ignore ports: a
// browser that has signed in to the dashboard sends it to every room of the same host name.
const sessionCookie = "headgate-session"

// stripCookies removes the cookies whose name begins with prefix, unless that is "", and the
// dashboard's. A request without one costs two searches and no allocation.
func stripCookies(h http.Header, prefix string) {
	lines := h["Cookie"]
	kept := lines[:0]
	for _, line := range lines {
		if prefix != "" && strings.Contains(line, prefix) || strings.Contains(line, sessionCookie) {
			if line = withoutCookies(line, prefix); line == "" {
				continue
			}
		}
		kept = append(kept, line)
	}
	switch {
	case len(lines) == 0:
	case len(kept) == 0:
		delete(h, "Cookie")
	default:
		h["Cookie"] = kept
	}
}

func withoutCookies(line, prefix string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(line, ";") {
		part = strings.Trim(part, " \t")
		name := strings.TrimPrefix(part, "__Host-")
		if part == "" || prefix != "" && strings.HasPrefix(name, prefix) ||
			strings.HasPrefix(name, sessionCookie) {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("; ")
		}
		b.WriteString(part)
	}
	return b.String()
}

// errNotAsked is an origin's 101 that would become a tunnel past headgate.
var errNotAsked = errors.New("the origin switches to another protocol, and was asked for no WebSocket")

// modify sees the origin's answer before ReverseProxy passes it on.
func (p *Proxy) modify(res *http.Response) error {
	if res.StatusCode == http.StatusSwitchingProtocols && !wire.OpensWebSocket(res.Request) {
		return errNotAsked
	}
	var err error
	if p.onResponse != nil {
		err = p.onResponse(res)
	}
	if !p.keepCommands {
		dropCommands(res.Header)
	}
	dropCommands(res.Trailer)
	return err
}

// dropCommands removes what the origin says to headgate, not to the visitor.
func dropCommands(h http.Header) {
	delete(h, commandHeader)
	delete(h, cfCommandHeader)
}
