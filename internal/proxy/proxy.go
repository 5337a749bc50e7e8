// Package proxy forwards the requests of admitted visitors to the origin.
//
// It does what net/http's ReverseProxy does, and what a gate needs: it detects from answers and
// failures whether the origin is up, a visitor's session can be ended in the middle of a request,
// and nothing that belongs to headgate itself (its cookies, its poll header, its commands) passes
// to the other side. WebSockets are left to ReverseProxy; FuzzForward compares the two.
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
// It costs less than a bare ReverseProxy with net/http's transport; BenchmarkPair compares them. A
// copy that fails panics with http.ErrAbortHandler, which is meant for the http.Server and is not
// recovered here.
//
// It does not balance between origins, cache, compress or use HTTP/2 to the origin, and it does not
// read the path: the caller has chosen the origin of each request.
package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"time"

	"github.com/headgate/headgate/internal/signals"
	"github.com/headgate/headgate/internal/wire"
)

// A Proxy forwards requests to one origin. Its Run should be running.
type Proxy struct {
	origin  *url.URL
	trusted []netip.Prefix
	prefix  string
	vouched []string // headers

	keepCommands bool

	onResponse func(*http.Response) error
	onError    func(http.ResponseWriter, *http.Request, error)

	meter *signals.Meter // nil: nothing is measured

	health    *health
	transport transport
	carrier   http.RoundTripper // the transport, and what watches and wraps it
	buffers   *buffers
	reverse   *httputil.ReverseProxy // of requests that open a WebSocket
	log       *slog.Logger           // nil: no log
}

// New checks cfg and returns its Proxy. It opens no connection and starts nothing. Its error names
// every fault of cfg.
func New(cfg Config) (*Proxy, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	origin := *cfg.Origin
	p := &Proxy{
		origin:  &origin,
		trusted: append([]netip.Prefix(nil), cfg.Trusted...),
		prefix:  cfg.StripCookiePrefix,
		vouched: cfg.Vouched,

		keepCommands: cfg.KeepCommands,

		onResponse: cfg.OnResponse,
		onError:    cfg.OnError,
		meter:      cfg.Meter,

		buffers: newBuffers(),
		log:     cfg.Log,
	}
	if p.onError == nil {
		p.onError = plainError
	}
	p.health = newHealth(cfg.OnHealth, cmp.Or(cfg.ProbeEvery, time.Second))
	plain := dialer(&cfg)
	dial := p.health.watchDial(plain)
	p.transport = newTransport(&cfg, dial)
	p.health.probe = prober(&origin, dial, p.transport, p.health.hosts)
	if addr := dialAddr(&origin); cfg.Watch {
		p.health.connect = func(ctx context.Context) error {
			conn, err := plain(ctx, "tcp", addr)
			if err != nil {
				return err
			}
			return conn.Close()
		}
	}
	around := http.RoundTripper(p.transport)
	if cfg.Around != nil {
		around = cfg.Around(around)
	}
	p.carrier = &watched{next: around, health: p.health, answered: cfg.OnAnswer}
	p.reverse = &httputil.ReverseProxy{
		Rewrite:        p.rewrite,
		Transport:      p.carrier,
		ErrorLog:       log.New(io.Discard, "", 0),
		BufferPool:     p.buffers,
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
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &upload{r.Body, &a.flight}
	}
	p.measure(a)
	if wire.OpensWebSocket(r) {
		if p.keepCommands {
			r = r.WithContext(context.WithValue(r.Context(), answerKey{}, a))
		}
		p.reverse.ServeHTTP(a, r)
	} else {
		p.forward(a, r)
	}
	if a.cutShort() && r.Context().Value(http.ServerContextKey) != nil {
		// The session ended while the answer did: the rest in the server's buffer cannot be
		// written, and the answer must not look complete.
		panic(http.ErrAbortHandler)
	}
	// modify has removed their announcement, so pass has added them to the header with net/http's
	// prefix, which the server reads when the handler returns.
	wire.DropHeads(a.Header(), http.TrailerPrefix)
}

// measure begins to measure a request of a session, and one that holds slots of limits whose amount is
// found.
func (p *Proxy) measure(a *answer) {
	m, calls := p.meter, signals.CallsOf(a.r.Context())
	if m != nil && !wire.InSession(a.ResponseWriter) {
		m = nil
	}
	if m != nil || calls != nil {
		a.flight.Begin(m, calls, networkOf(ClientAddr(a.r, p.trusted)))
	}
}

// rewrite makes the origin's request from the client's. Its hop-by-hop headers have been removed,
// and the client's Forwarded and X-Forwarded-*.
func (p *Proxy) rewrite(pr *httputil.ProxyRequest) {
	pr.SetURL(p.origin)
	pr.Out.Host = pr.In.Host
	// ReverseProxy drops and reorders a query with ";" or a stray "%", which breaks signed URLs. No
	// decision here depends on the query, so it does no harm if headgate and the origin parse it
	// differently.
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery
	delete(pr.Out.Header, pollHeader)
	delete(pr.Out.Header, solutionHeader)
	if !wire.OpensWebSocket(pr.In) {
		delete(pr.Out.Header, "Connection") // ReverseProxy sets it only for an upgrade
		wire.DropUpgrade(pr.Out.Header)
	}
	trusted := p.isTrusted(pr.In)
	dropClaims(pr.Out.Header, trusted, p.vouched)
	pr.Out.Trailer = nil // some origins read trailers as headers, and ReverseProxy only announces them
	stripCookies(pr.Out.Header, p.prefix)
	forwarded(pr, trusted)
}

// isTrusted reports whether the peer of r is one of the trusted proxies.
func (p *Proxy) isTrusted(r *http.Request) bool {
	if len(p.trusted) == 0 {
		return false
	}
	addr, ok := peerAddr(r.RemoteAddr)
	return ok && contains(p.trusted, addr)
}

// errNotAsked reports an unrequested 101 of the origin, which would open a tunnel past headgate.
var errNotAsked = errors.New("the origin switches to another protocol, and was asked for no WebSocket")

// modify changes the origin's answer before it is passed on.
func (p *Proxy) modify(res *http.Response) error {
	if res.StatusCode == http.StatusSwitchingProtocols && !wire.OpensWebSocket(res.Request) {
		return errNotAsked
	}
	var err error
	if p.onResponse != nil {
		err = p.onResponse(res)
	}
	a, ok := res.Request.Context().Value(answerKey{}).(*answer)
	if ok && res.StatusCode == http.StatusSwitchingProtocols {
		moveCommands(a.Header(), res.Header)
	}
	if !p.keepCommands {
		dropCommands(res.Header)
	}
	wire.DropHeads(res.Trailer, "")
	return err
}

// answerKey is the context key of the answer to a request for a WebSocket.
type answerKey struct{}

// fail answers a request that failed. w is an *answer; unless it was hijacked, only 1xx answers
// have been written to it.
func (p *Proxy) fail(w http.ResponseWriter, _ *http.Request, err error) {
	a := w.(*answer)
	if a.hijacked() {
		return // a WebSocket failed while it opened: there is no writer left
	}
	e := judge(a.r.Context(), err)
	a.lost(e)
	if e == nil {
		a.ResponseWriter.WriteHeader(StatusClientGone)
		return
	}
	// Without the watch of the answer: after the end of a session its page must still be sent.
	p.onError(a.ResponseWriter, a.r, e)
}

// Run probes the origin while it is down and when a connection has broken before an answer, calls
// OnHealth, and returns the error of ctx when ctx ends. Without Run, broken connections do not mark
// the origin down, and only an answered request marks it up again.
func (p *Proxy) Run(ctx context.Context) error { return p.health.run(ctx) }

// CloseIdleConnections closes the kept connections to the origin that no request uses now. A Proxy
// that is replaced needs no other cleanup.
func (p *Proxy) CloseIdleConnections() { p.transport.CloseIdleConnections() }
