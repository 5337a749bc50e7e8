package ratelimit

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/netip"
	"strings"

	"github.com/headgate/headgate/internal/paths"
	"github.com/headgate/headgate/internal/wire"
)

// MaxKey is the maximum length of a key in bytes. Chosen.
const MaxKey = 1024

// A KeyPart is one property of a request that becomes part of its key.
type KeyPart struct {
	Kind string // one of the kinds below
	Name string // of the header or the cookie

	// Prefix4 and Prefix6 are the number of bits of an address that count, default 32 and 64: a
	// subscriber has at least a /64 (RFC 7421 §1).
	Prefix4, Prefix6 int

	AnyCase bool // of a path: /Login and /login are the same
}

// Kinds of key parts.
const (
	KeyClientAddress = "client_address"
	KeyHeader        = "header"
	KeyCookie        = "cookie"
	KeyPath          = "path" // decoded and cleaned: without ;x, //, /./ and /../
	KeyMethod        = "method"
	KeyHost          = "host" // lower case, without the port
	// KeySession is the Session.ID of the session, if a Room is in front of Middleware. A request
	// that belongs to no session is counted by the client's address.
	KeySession = "session"
	// KeyPerson is the person whose session it is, if the Room has an Identity. The same person has a key
	// of its own in each room. A request of nobody whom the room knows is counted as by KeySession.
	KeyPerson = "person"
	// KeyHolder is the header Headgate-Holder, which nobody but a handler in front of Middleware may set: it
	// has verified the key of the caller. A request without it is counted by the client's address.
	KeyHolder = "holder"
)

// missingKey replaces a part that a request does not have. A ~ at the start of a value is doubled,
// so that no value is mistaken for it.
const missingKey = "~"

// severalKey replaces a part that a request has with different values. No single value can have
// this form.
const severalKey = "~several"

// hashedKey is the prefix of a key that was too long. No value of a request can begin this way.
const hashedKey = "~sha256:"

// RequestKey returns the key under which a limit counts a request. Without parts the key is "", the
// same for all requests.
//
// A single part is the value as it is. Several parts are joined by |, and | and % within them are
// written as %7c and %25, so that different values never give the same key. A missing part is ~,
// and a ~ at the start of a value is doubled. A key longer than MaxKey becomes ~sha256: and its
// hash. A header or a cookie that occurs several times with different values is ~several, whatever
// the values are: some origins use the first value and others the last, so a client that adds
// values could otherwise choose the key under which it is counted.
//
// addr returns the client's address; nil uses the address of the connection.
func RequestKey(parts []KeyPart, r *http.Request, addr func(*http.Request) netip.Addr) string {
	if addr == nil {
		addr = wire.RemoteAddr
	}
	return keyOf(parts, keySource{Request: r, Addr: addr})
}

// A keySource is a request, with the properties that are not in its headers.
type keySource struct {
	*http.Request
	Addr   func(*http.Request) netip.Addr // returns the client's address
	Answer http.ResponseWriter            // knows the session, or unwraps to a writer that does; may be nil
}

// keyOf returns the key of a request, as RequestKey does.
func keyOf(parts []KeyPart, r keySource) string {
	switch len(parts) {
	case 0:
		return ""
	case 1:
		return boundedKey(partOf(&parts[0], &r))
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
	return boundedKey(b.String())
}

func boundedKey(key string) string {
	if len(key) <= MaxKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return hashedKey + hex.EncodeToString(sum[:])
}

// partOf returns the value of a part, or missingKey.
func partOf(p *KeyPart, r *keySource) string {
	switch p.Kind {
	case KeyClientAddress:
		return addressKey(p, r.Addr(r.Request))
	case KeyHeader:
		return headerKey(r.Request, p.Name)
	case KeyCookie:
		return cookieKey(r.CookiesNamed(p.Name))
	case KeyPath:
		at := paths.Clean(r.URL)
		if p.AnyCase {
			at = paths.Fold(at)
		}
		return marked(at)
	case KeyMethod:
		return marked(strings.ToUpper(r.Method)) // some origins ignore its case
	case KeyHost:
		return hostKey(r.Request)
	case KeyHolder:
		if v := headerKey(r.Request, "Headgate-Holder"); v != missingKey {
			return v
		}
		return addressKey(p, r.Addr(r.Request))
	case KeySession, KeyPerson:
		if v := sessionOf(r.Answer, p.Kind == KeyPerson); v != "" {
			return v
		}
		return addressKey(p, r.Addr(r.Request))
	}
	return missingKey
}

// sessionOf returns the id of the session of the request that w answers, or "" if it belongs to none. With
// person it returns the name of the session's person, if there is one.
func sessionOf(w http.ResponseWriter, person bool) string {
	for {
		switch x := w.(type) {
		case interface{ SessionName() string }:
			if of, ok := x.(interface{ PersonName() string }); ok && person && of.PersonName() != "" {
				return of.PersonName()
			}
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
