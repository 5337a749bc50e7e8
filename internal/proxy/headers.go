package proxy

import (
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/wire"
)

// Headers of headgate that must not pass, in canonical spelling, so that plain map operations work.
const (
	pollHeader      = "Headgate-Poll"
	solutionHeader  = "Headgate-Solution"
	commandHeader   = "Headgate-Command"
	cfCommandHeader = "Cf-Waiting-Room-Command"
)

// ownHeaders are the headers that only headgate sets (packages holders and ratelimit), and that have
// been removed from what clients send.
var ownHeaders = [...]string{"Headgate-Holder", "Headgate-Plan", "Headgate-Exceeded"}

// dropClaims removes other spellings of the headers that headgate owns. From peers that are not
// trusted, it also removes what they claim about the client and the original request, and the
// vouched headers, in each spelling that an origin may read as the same name.
func dropClaims(h http.Header, trusted bool, vouched []string) {
	for name := range h {
		if !trusted && (wire.ClaimsClient(name) || wire.OverridesURL(name)) || wire.AliasOfOwned(name) {
			delete(h, name)
		}
		for _, own := range vouched {
			if wire.SameName(name, own) && (!trusted || name != own) {
				delete(h, name)
			}
		}
	}
}

// forwarded tells the origin the address of the client. The headers of a trusted peer are extended
// by the peer's address; those of other peers are replaced.
func forwarded(pr *httputil.ProxyRequest, trusted bool) {
	in, out := pr.In.Header, pr.Out.Header
	for _, name := range ownHeaders { // a client may list them in Connection
		if v := in[name]; v != nil {
			out[name] = v
		}
	}
	// One array for three one-element values: one allocation instead of three.
	vals := &[3]string{1: "http", 2: pr.In.Host}
	if pr.In.TLS != nil {
		vals[1] = "https"
	}
	out["X-Forwarded-Proto"] = vals[1:2:2]
	out["X-Forwarded-Host"] = vals[2:3:3]

	peer, _, err := net.SplitHostPort(pr.In.RemoteAddr)
	if err != nil {
		return // a Unix socket has no address
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
	// Forwarded (RFC 7239) is extended only if a proxy in front already uses it.
	if prior := in["Forwarded"]; len(prior) > 0 {
		if strings.Contains(peer, ":") {
			peer = `"[` + peer + `]"`
		}
		out["Forwarded"] = []string{strings.Join(prior, ", ") + ", for=" + peer}
	}
}

// sessionCookie is the prefix of the names of the dashboard's session cookie. Cookies ignore ports:
// a browser that has signed in to the dashboard sends it to every room of the same host name.
const sessionCookie = "headgate-session"

// stripCookies removes the dashboard's cookies and those whose name begins with prefix, unless that
// is "". A request without one costs two searches and no allocation. The lines themselves are not
// changed, because they are shared with the client's request.
func stripCookies(h http.Header, prefix string) {
	lines := h["Cookie"]
	strip := func(line string) bool {
		return prefix != "" && strings.Contains(line, prefix) || strings.Contains(line, sessionCookie)
	}
	if !slices.ContainsFunc(lines, strip) {
		return
	}
	var kept []string
	for _, line := range lines {
		if strip(line) {
			if line = withoutCookies(line, prefix); line == "" {
				continue
			}
		}
		kept = append(kept, line)
	}
	if len(kept) == 0 {
		delete(h, "Cookie")
	} else {
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

// moveCommands gives the commands of a 101 to the handler around the proxy. It reads them at Hijack,
// and ReverseProxy adds the origin's headers only after that.
func moveCommands(to, from http.Header) {
	for _, name := range [...]string{commandHeader, cfCommandHeader} {
		if values := from[name]; len(values) > 0 {
			to[name] = values
		}
		delete(from, name)
	}
}

// dropCommands removes the headers that the origin sends for headgate, not for the visitor.
func dropCommands(h http.Header) {
	delete(h, commandHeader)
	delete(h, cfCommandHeader)
}
