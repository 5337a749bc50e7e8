package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/headgate/headgate/internal/signals"
)

// Config configures the origin and the connections to it. Only Origin is required. A duration
// of 0 is the default.
type Config struct {
	// Origin is http://host[:port][/path] or https://. Its path is put before the path of each
	// request.
	Origin *url.URL

	// TLS is used for an https origin, for example with a private CA.
	TLS *tls.Config

	// Trusted are the proxies in front of headgate whose X-Forwarded-For, -Proto, -Host and
	// Forwarded are passed on. Those of other peers are replaced.
	Trusted []netip.Prefix

	// Vouched are the headers that only Trusted may send, in canonical form.
	Vouched []string

	// StripCookiePrefix is the prefix of cookies that are not sent to the origin. Empty strips
	// none.
	StripCookiePrefix string

	// KeepCommands leaves the origin's commands in the header of its answer, so that the handler
	// around the proxy can execute and remove them.
	KeepCommands bool

	// Dial opens the connections to the origin. Nil: TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	ResponseHeaderTimeout time.Duration // 60 s, from the end of the request's body
	ProbeEvery            time.Duration // 1 s ± 25 % between probes while the origin is down

	// OnResponse is called with each answer of the origin before it is passed on, and may change
	// it. It is also called for 101, but not for other 1xx answers. The context of res.Request
	// derives from that of ServeHTTP's request. An error becomes a 502.
	OnResponse func(res *http.Response) error

	// OnError answers r, the client's own request, when the origin has not. err is an *Error. It is
	// not called for a client that is gone. Nil answers with a line of plain text.
	OnError func(w http.ResponseWriter, r *http.Request, err error)

	// OnAnswer receives how long each request has waited for the headers of the origin's answer,
	// and its status: 0 if there was none, StatusClientGone if the client did not wait for it. It
	// must not block. Nil measures nothing.
	OnAnswer func(status int, took time.Duration)

	// Meter measures the requests of sessions. Nil: nothing is measured.
	Meter *signals.Meter

	// Around wraps the transport of the requests to the origin. It may change their headers,
	// because each request is a copy. Nil: none.
	Around func(next http.RoundTripper) http.RoundTripper

	// Watch makes Run connect to an origin that is up, too: another proxy forwards to it. Until such a
	// connection has succeeded once, a failed one says nothing.
	Watch bool

	// OnHealth is called by Run when the origin goes down and when it is up again: one call at a
	// time, in order. A change that is reversed before its call is left out.
	OnHealth func(up bool)

	// Log receives connections that broke in the middle, at debug level. Nil: no log.
	Log *slog.Logger
}

// check returns all faults of a configuration at once.
func (c *Config) check() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf(format, args...))
	}
	switch u := c.Origin; {
	case u == nil:
		fault("origin: missing; give the address of the site, such as http://127.0.0.1:3000")
	case u.Scheme != "http" && u.Scheme != "https":
		fault("origin: scheme %q is not http or https; write http://host:port", u.Scheme)
	case u.Hostname() == "":
		fault("origin: no host in %q; write http://host:port", u.Redacted())
	case u.User != nil:
		fault("origin: a name and password would not be sent; take them out of the address")
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		fault("origin: %q has more than a host and a path; cut it before the ? or #", u)
	}
	for _, t := range c.Trusted {
		if !t.IsValid() || t.Addr().Is4In6() {
			fault("trusted: prefix %q is not usable; write 10.0.0.0/8 or 2001:db8::/32", t)
		}
	}
	return errors.Join(faults...)
}
