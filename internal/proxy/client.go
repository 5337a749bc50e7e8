package proxy

import (
	"encoding/binary"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

const (
	// maxHops is how many proxies ClientAddr looks behind. Chosen: real chains
	// have two or three.
	maxHops = 16

	// maxHop is the longest entry of X-Forwarded-For that is parsed. Chosen: an IPv6 address with
	// zone, port and brackets is about 64 bytes.
	maxHop = 128
)

// ClientAddr returns the address of the client of r, without zone and with IPv4-mapped addresses as
// IPv4. It is the address of the peer, r.RemoteAddr, unless that is trusted. For a trusted peer,
// X-Forwarded-For is read from the right, past trusted addresses, to the first that is not trusted.
// A malformed entry, or more than 16 entries, stops this at the last valid address. The zero Addr
// is a peer without an address, such as a Unix socket. The cost does not depend on the length of
// the header.
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

// LastForwarded returns the last address of X-Forwarded-For. Not ok: there is none.
func LastForwarded(h http.Header) (addr netip.Addr, ok bool) {
	lines := h["X-Forwarded-For"]
	if len(lines) > 0 {
		addr, _, _, ok = lastHop(lines[len(lines)-1])
	}
	return addr, ok
}

// lastHop splits the last entry off a list. more reports whether there is a comma, and so another
// entry, before it. Only the last bytes are searched, because an attacker may send a megabyte
// without a comma.
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

// parseHop parses an address as proxies write it: bare, with a port, or in brackets.
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

// peerAddr parses RemoteAddr as net/http writes it.
func peerAddr(remote string) (netip.Addr, bool) {
	if ap, err := netip.ParseAddrPort(remote); err == nil {
		return plain(ap.Addr()), true
	}
	a, err := netip.ParseAddr(remote)
	return plain(a), err == nil
}

func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

func contains(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// networkOf returns a number of the network of a client: 24 bits of its IPv4 address, or 48 bits of
// its IPv6 address, which is what one customer can have.
func networkOf(a netip.Addr) uint64 {
	b := a.As16()
	if a.Is4() {
		return uint64(binary.BigEndian.Uint32(b[12:]) >> 8)
	}
	return binary.BigEndian.Uint64(b[:8]) >> 16
}
