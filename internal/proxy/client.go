package proxy

import (
	"net/http"
	"net/netip"
	"strings"
)

const (
	// maxHops is how many proxies ClientAddr looks behind. Chosen: real chains
	// have two or three.
	maxHops = 16

	// maxHop is the longest entry of X-Forwarded-For that is looked at. Chosen:
	// an IPv6 address with zone, port and brackets is about 64 bytes.
	maxHop = 128
)

// ClientAddr is the address of the client of r, without zone and with IPv4 as
// IPv4. It is that of the peer, r.RemoteAddr, unless that is trusted; then
// X-Forwarded-For is walked from the right, past trusted addresses, to the first
// that is not. A malformed entry, or more than 16 of them, ends the walk at the
// last good address. The zero Addr is a peer without an address, such as a Unix
// socket. It costs the same however long the header is.
func ClientAddr(r *http.Request, trusted []netip.Prefix) netip.Addr {
	addr, ok := peerAddr(r.RemoteAddr)
	if !ok || !contains(trusted, addr) {
		return addr
	}
	lines := r.Header["X-Forwarded-For"]
	hops := 0
	for i := len(lines) - 1; i >= 0; i-- {
		rest, more := lines[i], true
		for more {
			var hop netip.Addr
			if hop, rest, more, ok = lastHop(rest); !ok || hops == maxHops {
				return addr
			}
			addr = hop
			hops++
			if !contains(trusted, addr) {
				return addr
			}
		}
	}
	return addr
}

// lastHop takes the last entry off a list. more says whether a comma, and so an
// entry, stands before it. Only the last bytes are searched, because the enemy is
// a megabyte without a comma.
func lastHop(list string) (hop netip.Addr, rest string, more, ok bool) {
	from := max(0, len(list)-maxHop)
	comma := strings.LastIndexByte(list[from:], ',')
	if comma < 0 && from > 0 {
		return netip.Addr{}, "", false, false
	}
	hop, ok = parseHop(strings.Trim(list[from+comma+1:], " \t"))
	if comma < 0 {
		return hop, "", false, ok
	}
	return hop, list[:from+comma], true, ok
}

// parseHop reads an address as proxies write it: bare, with a port, in brackets.
func parseHop(s string) (netip.Addr, bool) {
	if a, err := netip.ParseAddr(s); err == nil {
		return plain(a), true
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return plain(ap.Addr()), true
	}
	if in, ok := strings.CutPrefix(s, "["); ok {
		if in, ok = strings.CutSuffix(in, "]"); ok {
			a, err := netip.ParseAddr(in)
			return plain(a), err == nil && a.Is6()
		}
	}
	return netip.Addr{}, false
}

// peerAddr reads RemoteAddr as net/http writes it.
func peerAddr(remote string) (netip.Addr, bool) {
	if ap, err := netip.ParseAddrPort(remote); err == nil {
		return plain(ap.Addr()), true
	}
	a, err := netip.ParseAddr(remote)
	return plain(a), err == nil
}

func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

func contains(prefixes []netip.Prefix, a netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
