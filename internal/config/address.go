package config

import (
	"net"
	"net/netip"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/schema"
)

// reservedPath is the path, on every host, under which headgate serves its own pages.
const reservedPath = "/.headgate"

// address reads an address to listen on.
func address(dst *string) scalar { return raw(dst, cleanListen).as(schema.Text(":[0-9]{1,5}$", "")) }

// httpURL reads the URL of a web server.
func httpURL(dst **url.URL) scalar {
	return raw(dst, cleanOrigin).as(schema.Text("^[Hh][Tt][Tt][Pp][Ss]?://", ""))
}

// absolute describes a path that begins with a slash.
func absolute() *schema.Schema { return schema.Text("^/", "") }

// cleanListen checks an address to listen on.
func cleanListen(s string) (string, *mistake) {
	const hint = "write host:port, such as :8080 or 127.0.0.1:8080"
	switch {
	case allDigits(s):
		return "", wrong("write :"+s, "%s is not an address", quote(s))
	case strings.Contains(s, "://"):
		return "", wrong("leave the scheme out: "+hint[len("write "):],
			"%s is a URL, not an address", quote(s))
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", wrong(hint, "%s is not an address", quote(s))
	}
	if m := checkPort(port, 0); m != nil {
		return "", m
	}
	if _, err := netip.ParseAddr(host); host == "" || err == nil {
		return s, nil
	}
	if !isHostName(host) {
		return "", wrong(hint, "%s is not an address", quote(s))
	}
	return s, nil
}

func checkPort(port string, least int) *mistake {
	if n, err := strconv.Atoi(port); err != nil || !allDigits(port) || n < least || n > 65535 {
		return wrong("write a port from "+strconv.Itoa(least)+" to 65535",
			"%s is not a port", quote(port))
	}
	return nil
}

// cleanHost normalizes a host to the form in which requests are compared with it: lower case, no
// port, no brackets, no dot at the end.
func cleanHost(s string) (string, *mistake) {
	const hint = "write a host name alone, such as shop.example.com"
	switch {
	case s == "":
		return "", wrong("leave the key out to match any host", "is empty")
	case strings.Contains(s, "://"):
		return "", wrong(hint, "%s is a URL, not a host name", quote(s))
	case strings.Contains(s, "*"):
		return "", wrong("leave host out to match any host, or write one room for each host",
			"%s has a wildcard", quote(s))
	case strings.Contains(s, "/"):
		return "", wrong(hint+", and the folder under path", "%s has a path", quote(s))
	}
	host, port, err := net.SplitHostPort(s)
	switch {
	case err != nil:
		host = strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")
	case port != "":
		if m := checkPort(port, 1); m != nil {
			return "", m
		}
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Zone() == "" {
		return ip.String(), nil
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	for _, r := range host {
		if r > 127 {
			return "", wrong("write its ASCII form, which begins with xn--",
				"%s is not ASCII", quote(s))
		}
	}
	if !isHostName(host) {
		return "", wrong(hint, "%s is not a host name", quote(s))
	}
	return host, nil
}

// CleanHost returns a host in the form in which requests are compared with it. It returns a text
// that is not a valid host unchanged.
func CleanHost(s string) string {
	if host, wrong := cleanHost(s); wrong == nil {
		return host
	}
	return s
}

// isHostName reports whether a name consists of letters, digits, - and _ in labels of at most 63
// characters. The underscore is not valid in a host name, but service names use it.
func isHostName(s string) bool {
	if s == "" || len(s) > 253 || allDigits(s[strings.LastIndexByte(s, '.')+1:]) {
		return false // a name that ends in digits is a mistyped IPv4 address
	}
	for part := range strings.SplitSeq(s, ".") {
		if part == "" || len(part) > 63 || part[0] == '-' || part[len(part)-1] == '-' {
			return false
		}
		if strings.ContainsFunc(part, func(r rune) bool { return !isWordRune(r) }) {
			return false
		}
	}
	return true
}

// cleanPath checks the path prefix of a room and drops a slash at its end.
func cleanPath(s string) (string, *mistake) {
	if m := checkMatchedPath(s); m != nil {
		return "", m
	}
	s = "/" + strings.Trim(s, "/")
	switch {
	case strings.HasSuffix(s, "/*"):
		return "", wrong("leave the star out: a room covers all below its path",
			"%s ends with a star for all below it", quote(s))
	case strings.Contains(s, "**"), strings.Count(s, "*") > mostStars:
		return "", wrong("a star is any characters but a slash, as in /*/checkout",
			"%s has two stars in a row, or more than %d", quote(s), mostStars)
	}
	if s == reservedPath || strings.HasPrefix(s, reservedPath+"/") {
		return "", wrong("choose another path", "%s is kept for headgate itself", quote(s))
	}
	return s, nil
}

// cleanExcludedPath accepts what [cleanPath] accepts, and also a star at the end.
func cleanExcludedPath(s string) (string, *mistake) {
	if m := checkMatchedPath(s); m != nil {
		return "", m
	}
	if i := strings.Index(s, "*"); i >= 0 && i < len(s)-1 {
		return "", wrong("end the path with the star: "+s[:i+1],
			"%s has a star before its end", quote(s))
	}
	return s, nil
}

// checkMatchedPath accepts what checkPath accepts, except for a part that ends with a dot. Requests
// are also read without such dots (package paths), so they would never belong to that path alone.
func checkMatchedPath(s string) *mistake {
	for part := range strings.SplitSeq(s, "/") {
		if part != "." && part != ".." && strings.HasSuffix(part, ".") {
			return wrong("leave the dot out: paths are compared without dots at the end of their parts",
				"%s has a part that ends with a dot", quote(s))
		}
	}
	return checkPath(s)
}

// checkPath accepts only what is valid both in a URL path and in the Path attribute of a cookie.
// Paths are compared decoded and cleaned, so a path with dots, double slashes or %-escapes would
// never match.
func checkPath(s string) *mistake {
	const hint = "write a plain path, such as / or /checkout"
	switch {
	case s == "":
		return wrong(hint, "is empty")
	case strings.Contains(s, "://"):
		return wrong(hint, "%s is a URL, not a path", quote(s))
	case s[0] != '/':
		return wrong("write /"+clip(s), "%s does not begin with /", quote(s))
	case len(s) > 1024:
		return wrong(hint, "is longer than 1024 bytes")
	case strings.ContainsAny(s, "?#"):
		return wrong("leave out what follows the path", "%s has a query or a fragment", quote(s))
	case strings.Contains(s, "%"):
		return wrong("write the path decoded", "%s has a %%-escape", quote(s))
	case strings.Contains(s, "//"):
		return wrong(hint, "%s has an empty part", quote(s))
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == "." || part == ".." {
			return wrong(hint, "%s has a part %s", quote(s), part)
		}
	}
	for _, r := range s {
		if !isWordRune(r) && !strings.ContainsRune("/.~!$&'()*+,=:@", r) {
			return wrong(hint, "%s contains %q", quote(s), r)
		}
	}
	return nil
}

// cleanOrigin checks the URL of a room's origin.
func cleanOrigin(s string) (*url.URL, *mistake) {
	const hint = "write scheme, host and port, such as http://127.0.0.1:3000"
	shown := quote(s)
	if strings.Contains(s, "@") {
		shown = "the value" // it may hold a password
	}
	if s == "" {
		return nil, wrong(hint, "is empty")
	}
	if !strings.Contains(s, "://") {
		if _, m := cleanHost(s); m == nil {
			return nil, wrong("write http://"+s, "%s has no scheme", shown)
		}
		return nil, wrong(hint, "%s is not a URL", shown)
	}
	u, err := url.Parse(s)
	if err != nil {
		return nil, wrong(hint, "%s is not a URL", shown)
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, wrong("write http:// or https://", "the scheme %s is not one of a web server",
			quote(u.Scheme))
	case u.User != nil:
		return nil, wrong("take them out, and let the origin trust headgate's address",
			"has a user name or password")
	case u.Hostname() == "":
		return nil, wrong(hint, "%s has no host", shown)
	case strings.ContainsAny(s, "?#"):
		return nil, wrong("leave out what follows the path", "%s has a query or a fragment", quote(s))
	}
	if u.Port() != "" || strings.HasSuffix(u.Host, ":") {
		if m := checkPort(u.Port(), 1); m != nil {
			return nil, m
		}
	}
	host := u.Hostname()
	if _, err := netip.ParseAddr(host); err != nil && !isHostName(strings.TrimSuffix(host, ".")) {
		return nil, wrong(hint, "%s is not a host name", quote(host))
	}
	if u.Path != "" && u.Path != "/" {
		if m := checkPath(u.EscapedPath()); m != nil {
			return nil, m
		}
	}
	return u, nil
}

// cleanPrefix parses a network. A single address becomes a network of one address.
func cleanPrefix(s string) (netip.Prefix, *mistake) {
	const hint = "write a network or an address, such as 10.0.0.0/8 or 192.0.2.7"
	if !strings.Contains(s, "/") {
		ip, err := netip.ParseAddr(s)
		if err != nil || ip.Zone() != "" {
			return netip.Prefix{}, wrong(hint, "%s is not a network", quote(s))
		}
		ip = ip.Unmap()
		return netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, wrong(hint, "%s is not a network", quote(s))
	}
	// A prefix such as ::ffff:10.0.0.0/104 would never match, because addresses are unmapped to
	// IPv4 before they are compared.
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, wrong(hint, "%s mixes IPv4 and IPv6", quote(s))
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if p != p.Masked() {
		return netip.Prefix{}, wrong("write "+p.Masked().String()+", or the address alone",
			"%s has bits set outside its %d-bit network", quote(s), p.Bits())
	}
	return p, nil
}

func cleanMethod(s string) (string, *mistake) {
	switch {
	case s == "" || strings.ContainsFunc(s, func(r rune) bool { return !isWordRune(r) }):
		return "", wrong("write a method, such as OPTIONS", "%s is not a method", quote(s))
	case s != strings.ToUpper(s):
		return "", wrong("write "+strings.ToUpper(s), "%s is not in capitals", quote(s))
	}
	return s, nil
}

// cleanHeader normalizes a header to "Name" or "Name: value".
func cleanHeader(s string) (string, *mistake) {
	const hint = `write "Name" or "Name: value", such as "X-Probe: 1"`
	name, value, hasValue := strings.Cut(s, ":")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	if name == "" || strings.ContainsFunc(name, func(r rune) bool {
		return !isWordRune(r) && !strings.ContainsRune("!#$%&'*+.^`|~", r)
	}) {
		return "", wrong(hint, "%s is not the name of a header", quote(name))
	}
	name = textproto.CanonicalMIMEHeaderKey(name)
	if !hasValue {
		return name, nil
	}
	if value == "" {
		return "", wrong("write the name alone to match any value", "%s has no value", quote(s))
	}
	if _, m := plainText(value, 1000, ""); m != nil {
		return "", m
	}
	if name == "Host" {
		return "", wrong("use the host key of a room", "%s is not among the headers", quote(s))
	}
	return name + ": " + value, nil
}

// collide reports whether a process that listens on one of two addresses could not also open the
// other.
func collide(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" {
		return false
	}
	return anyAddress(hostA) || anyAddress(hostB) || hostA == hostB ||
		loopback(hostA) && loopback(hostB) && (hostA == "localhost" || hostB == "localhost")
}

func anyAddress(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
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
