// Package proxy forwards the requests of admitted visitors to the origin.
//
// It is net/http's ReverseProxy with what a gate needs around it: it detects from answers and
// failures whether the origin is up, a visitor's session can be ended in the middle of a request,
// and nothing that belongs to headgate itself (its cookies, its poll header, its commands) passes
// to the other side.
//
// Promises. Bodies stream both ways and are never held in memory as a whole. WebSockets,
// server-sent events, trailers of answers and 1xx answers pass. Trailers of requests do not pass,
// and those of answers only without what headgate changes in a header. Upgrades to any other
// protocol are rejected, because headgate could not check what passes inside. The client's
// X-Forwarded-*, Forwarded, X-Real-IP and other claims of its address are passed on only from a
// trusted peer, and no other spelling of these headers passes. A request is repeated only where
// net/http does so: an idempotent request without a body, on a kept connection that turned out to be
// closed. When a context with a deadline ends a request, its connections on both sides end too,
// also hijacked ones and those whose client has stopped reading.
//
// A Proxy may be used by many goroutines at once. ServeHTTP takes no lock that requests share.
// Compared with ReverseProxy it costs one small allocation and the watch of the context;
// BenchmarkProxy measures both. A copy that fails panics with http.ErrAbortHandler, which is meant
// for the http.Server and is not recovered here.
//
// It does not balance between origins, cache, compress or use HTTP/2 to the origin, and it does not
// read the path: the caller has chosen the origin of each request.
package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"time"

	"github.com/headgate/headgate/internal/wire"
)

// Config configures the origin and the connections to it. Only Origin is required. For every
// duration 0 is the default and a negative value is no limit.
type Config struct {
	// Origin is http://host[:port][/path] or https://. Its path is put before the path of each
	// request.
	Origin *url.URL

	// OriginHost sends the host of Origin as the Host header; otherwise the client's Host is sent.
	OriginHost bool

	// TLS is used for an https origin, for example with a private CA.
	TLS *tls.Config

	// Trusted are the proxies in front of headgate whose X-Forwarded-For, -Proto, -Host and
	// Forwarded are passed on. Those of other peers are replaced.
	Trusted []netip.Prefix

	// StripCookiePrefix is the prefix of cookies that are not sent to the origin. Empty strips
	// none.
	StripCookiePrefix string

	// KeepCommands leaves the origin's commands in the header of its answer, so that the handler
	// around the proxy can execute and remove them.
	KeepCommands bool

	// Dial opens the connections to the origin. Nil: TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	DialTimeout           time.Duration // 5 s
	ResponseHeaderTimeout time.Duration // 60 s, from the end of the request's body
	IdleTimeout           time.Duration // 60 s until an unused connection is closed
	ProbeEvery            time.Duration // 1 s ± 25 % between probes while the origin is down

	MaxIdleConns           int   // 512 connections kept for reuse
	MaxResponseHeaderBytes int64 // 1 MiB

	// FlushInterval is ReverseProxy's. Answers of unknown length and
	// server-sent events are flushed at once whatever it is; 0 lets answers of
	// known length gather up to net/http's 4 KiB, which saves a system call and a
	// goroutine for each of them; -1 flushes those at once as well.
	FlushInterval time.Duration

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

	// Around wraps the transport of the requests to the origin. It may change their headers,
	// because each request is a copy. Nil: none.
	Around func(next http.RoundTripper) http.RoundTripper

	// OnHealth is called by Run when the origin goes down and when it is up again: one call at a
	// time, in order. A change that is reversed before its call is left out.
	OnHealth func(up bool)

	// Log receives connections that broke in the middle, at debug level. Nil: no log.
	Log *slog.Logger
}

// A Proxy forwards requests to one origin. Its Run should be running.
type Proxy struct {
	origin     *url.URL
	originHost bool
	trusted    []netip.Prefix
	prefix     string

	keepCommands bool

	onResponse func(*http.Response) error
	onError    func(http.ResponseWriter, *http.Request, error)

	health    *health
	transport transport
	reverse   *httputil.ReverseProxy
}

// New checks cfg and returns its Proxy. It opens no connection and starts nothing. Its error names
// every fault of cfg.
func New(cfg Config) (*Proxy, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	origin := *cfg.Origin
	p := &Proxy{
		origin:     &origin,
		originHost: cfg.OriginHost,
		trusted:    append([]netip.Prefix(nil), cfg.Trusted...),
		prefix:     cfg.StripCookiePrefix,

		keepCommands: cfg.KeepCommands,

		onResponse: cfg.OnResponse,
		onError:    cfg.OnError,
	}
	if p.onError == nil {
		p.onError = plainError
	}
	p.health = newHealth(cfg.OnHealth, limit(cfg.ProbeEvery, time.Second))
	dial := p.health.watchDial(dialer(&cfg))
	p.transport = newTransport(&cfg, dial)
	p.health.probe = prober(&origin, dial, p.transport, p.health.hosts)
	carrier := http.RoundTripper(p.transport)
	if cfg.Around != nil {
		carrier = cfg.Around(carrier)
	}
	p.reverse = &httputil.ReverseProxy{
		Rewrite:        p.rewrite,
		Transport:      &watched{next: carrier, health: p.health, answered: cfg.OnAnswer},
		FlushInterval:  cfg.FlushInterval,
		ErrorLog:       log.New(io.Discard, "", 0),
		BufferPool:     newBuffers(),
		ModifyResponse: p.modify,
		ErrorHandler:   p.fail,
	}
	if cfg.Log != nil {
		p.reverse.ErrorLog = slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug)
	}
	return p, nil
}

// ServeHTTP forwards r and streams the answer to w. To end it from outside, give r a
// context with a deadline; to end it earlier, cancel that with ErrEnded. A cancel without a cause counts
// as a client that is gone.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := &answer{ResponseWriter: w, r: r}
	defer a.release()
	a.keep()
	p.reverse.ServeHTTP(a, r)
	if a.cutShort() && r.Context().Value(http.ServerContextKey) != nil {
		// The session ended while the answer did: the rest in the server's buffer cannot be
		// written, and the answer must not look complete.
		panic(http.ErrAbortHandler)
	}
	// modify has removed their announcement, so ReverseProxy has added them to the header with
	// net/http's prefix, which the server reads when the handler returns.
	wire.DropHeads(a.Header(), http.TrailerPrefix)
}

// CloseIdleConnections closes the kept connections to the origin that no request uses now. A Proxy
// that is replaced needs no other cleanup.
func (p *Proxy) CloseIdleConnections() { p.transport.CloseIdleConnections() }

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
	if c.MaxIdleConns < 0 {
		fault("max idle conns: %d is negative; 0 is the default of 512", c.MaxIdleConns)
	}
	if c.MaxResponseHeaderBytes < 0 {
		fault("max response header bytes: %d is negative; 0 is the default of 1 MiB",
			c.MaxResponseHeaderBytes)
	}
	return errors.Join(faults...)
}

// limit returns the default for 0 and converts "no limit", negative in a Config, to the 0 of net
// and net/http.
func limit(d, standard time.Duration) time.Duration {
	switch {
	case d < 0:
		return 0
	case d == 0:
		return standard
	}
	return d
}
