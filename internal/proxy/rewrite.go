package proxy

import (
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
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
	if p.prefix != "" {
		stripCookies(pr.Out.Header, p.prefix)
	}
	p.forwarded(pr)
	if pr.Out.Body != nil {
		pr.Out.Body = &upload{ReadCloser: pr.Out.Body}
	}
}

// forwarded tells the origin who asks. From a trusted peer the story so far is
// kept and the peer added; from anyone else it begins here.
func (p *Proxy) forwarded(pr *httputil.ProxyRequest) {
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
	if len(p.trusted) == 0 {
		return
	}
	if addr, ok := peerAddr(pr.In.RemoteAddr); !ok || !contains(p.trusted, addr) {
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

// stripCookies removes the cookies whose name begins with prefix. A request
// without one costs a search and no allocation.
func stripCookies(h http.Header, prefix string) {
	lines := h["Cookie"]
	kept := lines[:0]
	for _, line := range lines {
		if strings.Contains(line, prefix) {
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
		if part == "" || strings.HasPrefix(strings.TrimPrefix(part, "__Host-"), prefix) {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("; ")
		}
		b.WriteString(part)
	}
	return b.String()
}

// modify sees the origin's answer before ReverseProxy passes it on.
func (p *Proxy) modify(res *http.Response) error {
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
