package wire

import (
	"maps"
	"net/http"
	"strings"
)

// upgradeHeaders request another protocol from the next hop on this connection.
var upgradeHeaders = [...]string{"Upgrade", "Http2-Settings"}

// OpensWebSocket reports whether r is the handshake of a WebSocket (RFC 6455 §4.1). Any other
// upgrade, such as h2c, opens a tunnel: requests inside it are neither counted nor read.
func OpensWebSocket(r *http.Request) bool {
	return r.Method == http.MethodGet && len(r.Header["Upgrade"]) == 1 &&
		strings.EqualFold(r.Header["Upgrade"][0], "websocket") &&
		r.Header.Get("Sec-Websocket-Key") != "" && hasToken(r.Header["Connection"], "upgrade")
}

// WithoutUpgrade returns r, or a copy of r that requests no other protocol.
func WithoutUpgrade(r *http.Request) *http.Request {
	if r.Header["Upgrade"] == nil && r.Header["Http2-Settings"] == nil {
		return r
	}
	next := *r
	next.Header = maps.Clone(r.Header)
	DropUpgrade(next.Header)
	return &next
}

// DropUpgrade removes from h the headers that request another protocol.
func DropUpgrade(h http.Header) {
	for _, name := range upgradeHeaders {
		delete(h, name)
	}
}

func hasToken(lines []string, want string) bool {
	for _, line := range lines {
		for part := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.Trim(part, " \t"), want) {
				return true
			}
		}
	}
	return false
}

// owned are the names that headgate sets, removes or uses in decisions, besides claims. Names that
// end with a dash are prefixes. The two headers of the message length are included, because a server
// that accepts an alias of one of them would see another request than headgate did.
var owned = [...]string{"headgate-", "cf-waiting-room-", "http2-settings", "content-length",
	"transfer-encoding", "x-original-url", "x-rewrite-url", "x-original-uri",
	"x-original-method", "x-http-method-override", "x-http-method", "x-method-override"}

// What a CDN in front has found out about the visitor, by Cloudflare's names.
const (
	CountryHeader = "Cf-Ipcountry"
	ScoreHeader   = "Cf-Bot-Score"
)

// findings are the names of these headers.
var findings = [...]string{"cf-ipcountry", "cf-bot-score"}

// DropFindings removes, in any spelling, what only a CDN in front may tell about the visitor.
func DropFindings(h http.Header) {
	for name := range h {
		if IsFinding(name) {
			delete(h, name)
		}
	}
}

// IsFinding reports whether a header of that name, in any spelling, is what only a CDN in front may tell.
func IsFinding(name string) bool { return spells(name, findings[:]) }

// claims are the names by which proxies and CDNs tell the address of the client and the host that it
// asked for. Frameworks believe them: chi's RealIP reads True-Client-IP first.
var claims = [...]string{"x-forwarded-", "x-forwarded", "forwarded", "x-real-ip", "cf-connecting-ip",
	"cf-connecting-ipv6", "true-client-ip", "x-client-ip", "client-ip", "x-cluster-client-ip",
	"fastly-client-ip", "fly-client-ip", "x-azure-clientip", "x-appengine-user-ip",
	"x-envoy-external-address", "x-original-forwarded-for", "x-original-host", "x-host",
	"x-http-host-override", findings[0], findings[1]}

// ClaimsClient reports whether a header of that name, in any spelling, claims the address of the
// client, what is known of it, or the host that it asked for.
func ClaimsClient(name string) bool { return spells(name, claims[:]) }

// AliasOfOwned reports whether name is another spelling of a header that headgate owns. CGI, WSGI
// and Rack read X_Forwarded_For and X.Forwarded.For as X-Forwarded-For. It does not allocate.
func AliasOfOwned(name string) bool {
	for i := range len(name) {
		if !plain(name[i]) {
			return Owned(name)
		}
	}
	return false
}

// Owned reports whether name is a header that headgate owns, or another spelling of one.
func Owned(name string) bool { return spells(name, owned[:]) || ClaimsClient(name) }

// SameName reports whether name is a header's name, or another spelling of it that an origin may
// read as the same.
func SameName(name, header string) bool {
	if len(name) != len(header) {
		return false
	}
	for i := range len(name) {
		if foldName(name[i]) != foldName(header[i]) {
			return false
		}
	}
	return true
}

// heads are the names that only a header may have: those of the message's length and its content,
// and those that headgate changes in an answer. A proxy that merges the trailers of an answer into
// its header would undo the change (RFC 9110 §6.5.1).
var heads = [...]string{"set-cookie", "cache-control", "pragma", "expires", "vary", "age", "host", "connection",
	"keep-alive", "proxy-connection", "te", "trailer", "upgrade", "content-encoding", "content-range",
	"content-type", "proxy-authenticate", "www-authenticate"}

// DropHeads removes from the trailers of an answer what only its header may contain. prefix is put
// before the names in h.
func DropHeads(h http.Header, prefix string) {
	for name := range h {
		bare, ok := strings.CutPrefix(name, prefix)
		if ok && (Owned(bare) || spells(bare, heads[:]) || beforeCacheControl(bare)) {
			delete(h, name)
		}
	}
}

// spells reports whether name is one of the names, or another spelling of one.
func spells(name string, names []string) bool {
	for _, own := range names {
		if len(name) < len(own) || own[len(own)-1] != '-' && len(name) != len(own) {
			continue
		}
		i := 0
		for i < len(own) && foldName(name[i]) == own[i] {
			i++
		}
		if i == len(own) {
			return true
		}
	}
	return false
}

func plain(c byte) bool {
	return c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// foldName returns c in lower case, and a dash for everything that is neither a letter nor a digit.
func foldName(c byte) byte {
	switch {
	case 'A' <= c && c <= 'Z':
		return c + 'a' - 'A'
	case plain(c):
		return c
	}
	return '-'
}
