// Package callkey derives from a request the key by which a limit counts it.
package callkey

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/netip"
	"strings"

	"github.com/headgate/headgate/internal/paths"
)

// Max is the maximum length of a key in bytes. Chosen.
const Max = 1024

// A Part is one property of a request that becomes part of its key.
type Part struct {
	Kind string // one of the kinds below
	Name string // of the header or the cookie

	// Prefix4 and Prefix6 are the number of bits of an address that count, default 32 and 64: a
	// subscriber has at least a /64 (RFC 7421 §1).
	Prefix4, Prefix6 int

	AnyCase bool // of a path: /Login and /login are the same
}

// Kinds of parts.
const (
	ClientAddress = "client_address"
	Header        = "header"
	Cookie        = "cookie"
	Path          = "path" // decoded and cleaned
	Method        = "method"
	Host          = "host"    // lower case, without the port
	Session       = "session" // session in the room that the request went through; otherwise the client's address
)

// missingKey replaces a part that a request does not have. A ~ at the start of a value is doubled,
// so that no value is mistaken for it.
const missingKey = "~"

// severalKey replaces a part that a request has with different values. No single value can have
// this form.
const severalKey = "~several"

// hashedKey is the prefix of a key that was too long. No value of a request can begin this way.
const hashedKey = "~sha256:"

// A Call is a request, with the properties that are not in its headers.
type Call struct {
	*http.Request
	Addr   func(*http.Request) netip.Addr // returns the client's address
	Answer http.ResponseWriter            // knows the session, or unwraps to a writer that does; may be nil
}

// Of implements headgate.RequestKey.
func Of(parts []Part, r Call) string {
	switch len(parts) {
	case 0:
		return ""
	case 1:
		return bounded(partOf(&parts[0], &r))
	}
	var b strings.Builder
	for i := range parts {
		if i > 0 {
			b.WriteByte('|')
		}
		v := partOf(&parts[i], &r)
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
	if len(key) <= Max {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return hashedKey + hex.EncodeToString(sum[:])
}

// partOf returns the value of a part, or missingKey.
func partOf(p *Part, r *Call) string {
	switch p.Kind {
	case ClientAddress:
		return addressKey(p, r.Addr(r.Request))
	case Header:
		return headerKey(r.Request, p.Name)
	case Cookie:
		return cookieKey(r.CookiesNamed(p.Name))
	case Path:
		at := paths.Clean(r.URL)
		if p.AnyCase {
			at = paths.Fold(at)
		}
		return marked(at)
	case Method:
		return marked(strings.ToUpper(r.Method)) // some origins ignore its case
	case Host:
		return hostKey(r.Request)
	case Session:
		if v := sessionOf(r.Answer); v != "" {
			return v
		}
		return addressKey(p, r.Addr(r.Request))
	}
	return missingKey
}

// sessionOf returns the id of the session of the request that w answers, or "" if it belongs to none.
func sessionOf(w http.ResponseWriter) string {
	for {
		switch x := w.(type) {
		case interface{ SessionName() string }:
			return x.SessionName()
		case interface{ Unwrap() http.ResponseWriter }:
			w = x.Unwrap()
		default:
			return ""
		}
	}
}

// marked doubles a mark at the start of a value.
func marked(v string) string {
	if strings.HasPrefix(v, missingKey) {
		return missingKey + v
	}
	return v
}

func addressKey(p *Part, a netip.Addr) string {
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

// headerKey returns the value of a header. A request stores Host separately from its headers.
func headerKey(r *http.Request, name string) string {
	vs, ok := r.Header[name]
	if !ok {
		// Most names are in canonical form, which needs no allocation.
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

// cookieKey returns the value of the cookies of one name.
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
	host := paths.Hostname(r.Host)
	if host == "" {
		return missingKey
	}
	return marked(strings.ToLower(host))
}
