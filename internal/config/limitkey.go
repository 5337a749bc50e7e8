package config

import (
	"fmt"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/suggest"
)

// A KeyPart is one property of a request that distinguishes callers.
type KeyPart struct {
	// Kind is one of the kinds below.
	Kind string

	// Name is the name of the header, in canonical form, or of the cookie.
	Name string

	// Prefix4 and Prefix6 are how many bits of an address count: 1 to 32, default 32, and 1 to 128,
	// default 64, which is what one caller usually has (RFC 7421 §1).
	Prefix4, Prefix6 int
}

// The kinds of key parts.
const (
	KeyAddress = "client_address" // of the visitor, resolved through trusted proxies
	KeyHeader  = "header"
	KeyCookie  = "cookie"
	KeyPath    = "path"
	KeyMethod  = "method"
	KeyHost    = "host"
	KeySession = "session" // the room's session; without one the visitor's address
)

// maxKeyParts bounds the number of parts of a key. Chosen.
const maxKeyParts = 16

// String returns the part in the notation of the file.
func (p KeyPart) String() string {
	switch p.Kind {
	case KeyAddress:
		return fmt.Sprintf("%s/%d/%d", p.Kind, p.Prefix4, p.Prefix6)
	case KeyHeader, KeyCookie:
		return p.Kind + ":" + p.Name
	}
	return p.Kind
}

// readKey reads the parts of a key. Duplicates are dropped.
func readKey(dst *[]KeyPart) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		if n.Kind == yaml.SequenceNode && len(n.Content) > maxKeyParts {
			d.fault(key, n, wrong("name what tells callers apart, and no more",
				"has %d parts, more than %d", len(n.Content), maxKeyParts))
			return
		}
		if n.Kind != yaml.SequenceNode {
			d.fault(key, n, wrong(`write a list, such as ["header:x-client"]`,
				"is %s, not a list", kind(n)))
			return
		}
		for key, item := range d.items(key, n) {
			if item.Kind == yaml.MappingNode { // YAML reads "header: x-client", with a space, as a group
				d.fault(key, item, wrong(`put it in quotes, without a space: "header:x-client"`,
					"is a group of keys, not a part of a key"))
				continue
			}
			var p KeyPart
			if d.scalar(key, item, raw(&p, cleanKeyPart)) && !slices.Contains(*dst, p) {
				*dst = append(*dst, p)
			}
		}
	}
}

// cleanKeyPart parses client_address, client_address/24, client_address/24/64, header:NAME,
// cookie:NAME, path, method, host or session.
func cleanKeyPart(s string) (KeyPart, *mistake) {
	kinds := []string{KeyAddress, KeyHeader, KeyCookie, KeyPath, KeyMethod, KeyHost, KeySession}
	end := strings.IndexAny(s, ":/")
	if end < 0 {
		end = len(s)
	}
	what, rest := s[:end], s[end:]
	named := what == KeyHeader || what == KeyCookie
	switch {
	case !slices.Contains(kinds, what):
		hint := "write client_address, header:NAME, cookie:NAME, path, method, host or session"
		if near := suggest.Nearest(what, kinds); near != "" {
			hint = "did you mean " + clip(near+rest) + "?"
		}
		if what == "visit" {
			hint = "write session, the new name of visit"
		}
		return KeyPart{}, wrong(hint, "%s is no part of a key", quote(s))
	case what == KeyAddress:
		return cleanKeyAddress(s, rest)
	case named && (rest == "" || rest[0] != ':' || rest == ":"):
		example := "header:x-client"
		if what == KeyCookie {
			example = "cookie:session"
		}
		return KeyPart{}, wrong("write "+what+":NAME, such as "+example,
			"%s does not say which %s", quote(s), what)
	case named:
		return cleanKeyName(what, rest[1:])
	case rest != "":
		return KeyPart{}, wrong("write "+what+" alone", "%s says more than %s", quote(s), what)
	}
	return KeyPart{Kind: what}, nil
}

func cleanKeyName(what, name string) (KeyPart, *mistake) {
	if what == KeyCookie {
		if !isToken(name) {
			return KeyPart{}, wrong("write the cookie's name alone, such as cookie:session",
				"%s is not the name of a cookie", quote(name))
		}
		return KeyPart{Kind: what, Name: name}, nil
	}
	name, m := cleanHeaderName(name)
	if m != nil {
		return KeyPart{}, m
	}
	return KeyPart{Kind: what, Name: name}, nil
}

// cleanKeyAddress parses the prefix lengths after client_address, such as /24/64.
func cleanKeyAddress(s, prefixes string) (KeyPart, *mistake) {
	p := KeyPart{Kind: KeyAddress, Prefix4: 32, Prefix6: 64}
	if prefixes == "" {
		return p, nil
	}
	const hint = "write client_address/24 or client_address/24/64: 1 to 32 bits of IPv4, 1 to 128 of IPv6"
	bits := strings.Split(prefixes[1:], "/")
	if prefixes[0] != '/' || len(bits) > 2 {
		return p, wrong(hint, "%s is no part of a key", quote(s))
	}
	for i, of := range []struct {
		name string
		dst  *int
		most int
	}{{"IPv4", &p.Prefix4, 32}, {"IPv6", &p.Prefix6, 128}}[:len(bits)] {
		n, err := strconv.Atoi(bits[i])
		if err != nil || !allDigits(bits[i]) || n < 1 || n > of.most {
			return p, wrong(hint, "%s is not a prefix of %s", quote(bits[i]), of.name)
		}
		*of.dst = n
	}
	return p, nil
}

// cleanHeaderName converts the name of a header to its canonical form.
func cleanHeaderName(s string) (string, *mistake) {
	if !isToken(s) {
		return "", wrong("write the header's name alone, such as x-client",
			"%s is not the name of a header", quote(s))
	}
	if s = textproto.CanonicalMIMEHeaderKey(s); s == "Host" {
		return "", wrong("name another header; a part of a key can be host", "Host is not among the headers")
	}
	return s, nil
}

// isToken reports whether s is a token of RFC 9110 §5.6.2 of up to 256 bytes (chosen).
func isToken(s string) bool {
	return s != "" && len(s) <= 256 && !strings.ContainsFunc(s, func(r rune) bool {
		return !isWordRune(r) && !strings.ContainsRune("!#$%&'*+.^`|~", r)
	})
}
