package paths

import (
	"net"
	"net/netip"
	"strings"
)

// Hostname returns the host without its port, the brackets of an IPv6 address and the dots that
// end a name in DNS. It keeps the case of letters.
func Hostname(host string) string {
	i := strings.LastIndexByte(host, ':')
	if i >= 0 && (strings.IndexByte(host, ':') == i || strings.HasSuffix(host[:i], "]")) {
		host = host[:i]
	}
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		return host[1 : len(host)-1]
	}
	return strings.TrimRight(host, ".")
}

// SplitHost splits a Host header into a name or an address, and a port, "" if there is none. ok is
// false for a value that another parser could read differently: as two names, a user name, or
// another URL.
func SplitHost(s string) (host, port string, ok bool) {
	host = s
	bracketed := strings.HasPrefix(s, "[")
	// Nearly all hosts are names without a port. Both parsers would allocate an error for them.
	if bracketed || strings.IndexByte(s, ':') >= 0 || strings.Trim(s, "0123456789.") == "" {
		if h, p, err := net.SplitHostPort(s); err == nil {
			host, port = h, p
			if strings.Trim(port, "0123456789") != "" || len(port) > 5 {
				return "", "", false
			}
		} else if bracketed && strings.HasSuffix(s, "]") {
			host = s[1 : len(s)-1]
		}
		if ip, err := netip.ParseAddr(host); err == nil || bracketed {
			return host, port, err == nil && ip.Zone() == "" && ip.Is6() == bracketed
		}
	}
	if len(strings.TrimSuffix(host, ".")) > 253 || !isName(strings.TrimSuffix(host, ".")) {
		return "", "", false
	}
	return host, port, true
}

// isName reports whether host consists of labels with single dots between them.
func isName(host string) bool {
	label := 0
	for i := range len(host) {
		switch c := host[i]; {
		case c == '.' && label > 0:
			label = 0
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_':
			label++
		default:
			return false
		}
	}
	return label > 0
}

// SentHost returns the host as it is sent to the origin: without the dot at the end of its name,
// because some servers treat a name with the dot as another one. ok is false for a malformed host.
// The empty host of HTTP/1.0 is valid.
func SentHost(host string) (sent string, ok bool) {
	if host == "" {
		return "", true
	}
	name, port, ok := SplitHost(host)
	if !ok || !strings.HasSuffix(name, ".") {
		return host, ok
	}
	if name = strings.TrimSuffix(name, "."); strings.HasSuffix(host, ":"+port) {
		name += ":" + port
	}
	return name, true
}
