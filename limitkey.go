package headgate

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// A KeyPart is one thing of a request by which those who share a limit are told apart.
type KeyPart struct {
	Kind string // one of the kinds below
	Name string // of the header or the cookie

	// Prefix4 and Prefix6 are how many bits of an address count, default 32 and 64: a
	// subscriber has at least a /64 (RFC 7421 §1).
	Prefix4, Prefix6 int
}

// The kinds of key parts.
const (
	KeyClientAddress = "client_address"
	KeyHeader        = "header"
	KeyCookie        = "cookie"
	KeyPath          = "path" // without //, /./ and /../
	KeyMethod        = "method"
	KeyHost          = "host" // lower case, without the port
)

// missingKey is what a part is that a request does not have. A value that begins with it
// has it twice, so that none can be taken for it.
const missingKey = "~"

// severalKey is what a part is that a request has in different values. No value can be so.
const severalKey = "~several"

// hashedKey begins a key that was too long. No value of a request can begin so.
const hashedKey = "~sha256:"

// RequestKey is whose use of a limit a request counts for. No parts are one key for all: "".
//
// A single part is the value as it is; several are joined by |, with | and % written %7c and
// %25 in them, so that no value can be taken for two. A part that is missing is ~, and ~ in
// front of a value is doubled. What is longer than MaxKey becomes ~sha256: and its hash.
// A header or a cookie that came several times with different values is ~several, whatever
// they are: origins take the first, or the last, and who adds others would be somebody else.
//
// addr gives the client's address; nil is that of the connection.
func RequestKey(parts []KeyPart, r *http.Request, addr func(*http.Request) netip.Addr) string {
	if addr == nil {
		addr = remoteAddr
	}
	switch len(parts) {
	case 0:
		return ""
	case 1:
		return bounded(partOf(&parts[0], r, addr))
	}
	var b strings.Builder
	for i := range parts {
		if i > 0 {
			b.WriteByte('|')
		}
		v := partOf(&parts[i], r, addr)
		if !strings.ContainsAny(v, "|%") {
			b.WriteString(v)
			continue
		}
		for j := range len(v) {
			switch v[j] {
			case '|':
				b.WriteString("%7c")
			case '%':
				b.WriteString("%25")
			default:
				b.WriteByte(v[j])
			}
		}
	}
	return bounded(b.String())
}

func bounded(key string) string {
	if len(key) <= MaxKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return hashedKey + hex.EncodeToString(sum[:])
}

// partOf is the value of a part, or missingKey.
func partOf(p *KeyPart, r *http.Request, addr func(*http.Request) netip.Addr) string {
	switch p.Kind {
	case KeyClientAddress:
		return addressKey(p, addr(r))
	case KeyHeader:
		return headerKey(r, p.Name)
	case KeyCookie:
		return cookieKey(r.CookiesNamed(p.Name))
	case KeyPath:
		return marked(cleanPath(r.URL.Path))
	case KeyMethod:
		return marked(r.Method)
	case KeyHost:
		return hostKey(r)
	}
	return missingKey
}

// marked doubles a mark in front of a value.
func marked(v string) string {
	if strings.HasPrefix(v, missingKey) {
		return missingKey + v
	}
	return v
}

func addressKey(p *KeyPart, a netip.Addr) string {
	a = a.Unmap().WithZone("")
	bits, most := p.Prefix4, 32
	if a.Is6() {
		if bits, most = p.Prefix6, 128; bits == 0 {
			bits = 64
		}
	}
	if bits == 0 || bits > most {
		bits = most
	}
	prefix, err := a.Prefix(bits)
	switch {
	case err != nil || !a.IsValid():
		return missingKey
	case bits == most:
		return a.String()
	}
	return prefix.String()
}

// headerKey is the value of a header. A request keeps Host apart from its headers.
func headerKey(r *http.Request, name string) string {
	vs, ok := r.Header[name]
	if !ok {
		// Most are written in canonical form, which needs no memory.
		name = http.CanonicalHeaderKey(name)
		vs = r.Header[name]
	}
	switch {
	case name == "Host":
		return hostKey(r)
	case len(vs) == 0:
		return missingKey
	}
	for _, v := range vs[1:] {
		if v != vs[0] {
			return severalKey
		}
	}
	return marked(vs[0])
}

// cookieKey is the value of cookies of one name.
func cookieKey(cs []*http.Cookie) string {
	if len(cs) == 0 {
		return missingKey
	}
	for _, c := range cs[1:] {
		if c.Value != cs[0].Value {
			return severalKey
		}
	}
	return marked(cs[0].Value)
}

func hostKey(r *http.Request) string {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), ".")
	if host == "" {
		return missingKey
	}
	return marked(strings.ToLower(host))
}
