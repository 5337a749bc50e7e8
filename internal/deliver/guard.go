package deliver

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
)

// A localError says that a host name stands for an address of this machine or of its cloud.
type localError struct {
	host string
	addr netip.Addr
}

func (e *localError) Error() string {
	return fmt.Sprintf("the target's host %.100q resolves to %v, an address of this machine or of its cloud: "+
		"write the address itself into the url if it is meant", e.host, e.addr)
}

// guard returns the check of each address to which the dialer is about to connect. An address that
// the url itself names is the operator's choice, and so is localhost. A host name belongs to whoever
// answers for it in DNS, who may answer with an address of this machine at any time: the check is
// made when the name has been resolved, for each connection, so that no later answer gets around
// it. Private networks are not refused: names of a cluster's services resolve to them.
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

// isLocal reports whether an address is this machine, its link or everybody on it, or a service that
// clouds answer to their machines alone, with their credentials among others.
func isLocal(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	if addr.IsLoopback() || addr.IsUnspecified() || addr.IsLinkLocalUnicast() || addr.IsMulticast() {
		return true
	}
	if addr.Is6() { // an address of IPv4 in one of IPv6
		b := addr.As16()
		switch {
		case nat64().Contains(addr), compatible().Contains(addr):
			return isLocal(netip.AddrFrom4([4]byte(b[12:])))
		case b[0] == 0x20 && b[1] == 0x02: // 6to4, RFC 3056
			return isLocal(netip.AddrFrom4([4]byte(b[2:6])))
		}
	}
	for _, p := range reserved() {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

func nat64() netip.Prefix      { return netip.MustParsePrefix("64:ff9b::/96") } // RFC 6052
func compatible() netip.Prefix { return netip.MustParsePrefix("::/96") }        // RFC 4291 §2.5.5.1

// reserved are this network (RFC 1122 §3.2.1.3: Linux connects to itself) and all its machines, and
// the services for machines of Amazon by IPv6, Alibaba, Oracle and Azure; those of others are
// link-local.
func reserved() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("255.255.255.255/32"),
		netip.MustParsePrefix("fd00:ec2::/32"), netip.MustParsePrefix("100.100.100.200/32"),
		netip.MustParsePrefix("192.0.0.192/32"), netip.MustParsePrefix("168.63.129.16/32"),
	}
}

// dialer connects to a target's host.
func (t Target) dialer(host string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if t.Dial != nil {
		return t.Dial
	}
	d := &net.Dialer{Timeout: dialTimeout, Control: guard(host), Resolver: t.Resolver}
	return d.DialContext
}
