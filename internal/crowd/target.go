package crowd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"
)

// ErrForeign means that the target is not on this machine, and the caller has not declared that the
// site is its own.
var ErrForeign = errors.New("the target is not on this machine")

// parseTarget parses the URL. Unless foreign is set, it rejects a host with an address other than
// loopback.
func parseTarget(ctx context.Context, raw string, foreign bool) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, &ConfigError{fmt.Errorf("url: %q: must have the form http://HOST:PORT/PATH", raw)}
	}
	if u.Path == "" {
		u.Path = "/"
	}
	if foreign {
		return u, nil
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return nil, fmt.Errorf("url: is the host this machine? %w", err)
	}
	for _, a := range addrs {
		if !a.Unmap().IsLoopback() {
			return nil, &ConfigError{fmt.Errorf("url: %s is %s: %w", u.Hostname(), a, ErrForeign)}
		}
	}
	return u, nil
}

// newTransport returns the transport that all visitors share. It ignores the proxy of the
// environment, which would lead the crowd off this machine.
func newTransport(maxConns int, foreign bool) *http.Transport {
	d := &net.Dialer{Timeout: 10 * time.Second}
	if !foreign {
		d.Control = loopbackOnly
	}
	return &http.Transport{
		DialContext:         d.DialContext,
		MaxConnsPerHost:     maxConns,
		MaxIdleConns:        maxConns,
		MaxIdleConnsPerHost: maxConns,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
		WriteBufferSize:     2 << 10, // a request is a few hundred bytes
		ReadBufferSize:      4 << 10,
	}
}

// loopbackOnly rejects a connection to an address other than loopback. A name may resolve to
// loopback when it is checked and to another address when the connection is made.
func loopbackOnly(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("read address: %w", err)
	}
	if !ap.Addr().Unmap().IsLoopback() {
		return ErrForeign
	}
	return nil
}
