package deliver

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
)

// A localError reports that a host name resolves to an address of this machine or of its cloud.
type localError struct {
	host string
	addr netip.Addr
}

func (e *localError) Error() string {
	return fmt.Sprintf("the target's host %.100q resolves to %v, an address of this machine or of its cloud: "+
		"write the address itself into the url if it is meant", e.host, e.addr)
}

// guard returns a function that checks each address before the dialer connects to it. The operator
// chooses an address in the URL, and localhost, so these are allowed. A host name is controlled by
// its DNS servers, which may return an address of this machine at any time (DNS rebinding). The
// check therefore runs after the name is resolved, for each connection, so that no later DNS answer
// can bypass it. Private networks are allowed, because names of a cluster's services resolve to
// them.
func guard(host string) func(network, address string, _ syscall.RawConn) error {
	_, err := netip.ParseAddr(host)
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if err == nil || name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return nil
	}
	return func(_, address string, _ syscall.RawConn) error {
		peer, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("the target's host %.100q: %w", host, err)
		}
		if isLocal(peer.Addr()) {
			return &localError{host, peer.Addr()}
		}
		return nil
	}
}

// isLocal reports whether an address is this machine, its local link or a broadcast or multicast
// address, or a service that a cloud offers only to its machines, such as the one with their
// credentials.
func isLocal(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	if addr.IsLoopback() || addr.IsUnspecified() || addr.IsLinkLocalUnicast() || addr.IsMulticast() {
		return true
	}
	if addr.Is6() { // an IPv4 address inside an IPv6 address
		b := addr.As16()
		switch {
		case nat64().Contains(addr), compatible().Contains(addr):
			return isLocal(netip.AddrFrom4([4]byte(b[12:])))
		case b[0] == 0x20 && b[1] == 0x02: // 6to4, RFC 3056
			return isLocal(netip.AddrFrom4([4]byte(b[2:6])))
		}
	}
	return slices.ContainsFunc(reserved(), func(p netip.Prefix) bool { return p.Contains(addr) })
}

func nat64() netip.Prefix      { return netip.MustParsePrefix("64:ff9b::/96") } // RFC 6052
func compatible() netip.Prefix { return netip.MustParsePrefix("::/96") }        // RFC 4291 §2.5.5.1

// reserved returns the addresses of "this network" (RFC 1122 §3.2.1.3: Linux connects to itself),
// the broadcast and multicast addresses, and the machine-only services of Amazon over IPv6,
// Alibaba, Oracle and Azure. The services of other clouds are link-local.
func reserved() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("255.255.255.255/32"),
		netip.MustParsePrefix("fd00:ec2::/32"), netip.MustParsePrefix("100.100.100.200/32"),
		netip.MustParsePrefix("192.0.0.192/32"), netip.MustParsePrefix("168.63.129.16/32"),
	}
}

// dialer returns the function that connects to the host of a target.
func (t Target) dialer(host string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if t.Dial != nil {
		return t.Dial
	}
	d := &net.Dialer{Timeout: dialTimeout, Control: guard(host), Resolver: t.Resolver}
	return d.DialContext
}
