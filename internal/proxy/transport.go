package proxy

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/http1"
)

// A transport sends requests to the origin and blocks until the answer's headers arrive: plain
// HTTP/1.1 by package http1, everything else by net/http.
type transport interface {
	http.RoundTripper
	CloseIdleConnections()
}

// Of each transport, a request of the origin uses one.
type transports struct {
	direct  *http1.Transport // nil: all requests go the other way
	general *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (t *transports) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.direct != nil && http1.Carries(r) {
		return t.direct.RoundTrip(r)
	}
	return t.general.RoundTrip(r)
}

// CloseIdleConnections implements transport.
func (t *transports) CloseIdleConnections() {
	if t.direct != nil {
		t.direct.CloseIdleConnections()
	}
	t.general.CloseIdleConnections()
}

const connectTimeout = 5 * time.Second

// A dialFunc opens a connection to the origin.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

func dialer(cfg *Config) dialFunc {
	if cfg.Dial != nil {
		return cfg.Dial
	}
	d := &net.Dialer{Timeout: connectTimeout}
	return d.DialContext
}

func newTransport(cfg *Config, dial dialFunc) transport {
	// HTTP/1.1 only: upgrades need it, and one origin needs few connections.
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	// All connections go to one host. net/http would keep only 2 of them idle, and dial for nearly
	// every request of a busy site: 118 µs instead of 40 µs each.
	const idle = 512
	t := &http.Transport{
		Proxy:                  nil, // HTTP_PROXY of the environment must not apply
		DialContext:            dial,
		Protocols:              protocols,
		TLSHandshakeTimeout:    connectTimeout,
		ResponseHeaderTimeout:  cmp.Or(cfg.ResponseHeaderTimeout, 60*time.Second),
		ExpectContinueTimeout:  time.Second, // net/http's default
		IdleConnTimeout:        60 * time.Second,
		MaxIdleConns:           idle,
		MaxIdleConnsPerHost:    idle,
		MaxResponseHeaderBytes: 1 << 20,
		DisableCompression:     true, // pass the client's Accept-Encoding unchanged
	}
	if cfg.TLS != nil {
		t.TLSClientConfig = cfg.TLS.Clone()
	}
	all := &transports{general: t}
	if cfg.Dial == nil { // connections that a caller opens may be of any kind
		addr := dialAddr(cfg.Origin)
		all.direct = http1.New(http1.Config{
			Dial:          func(ctx context.Context) (net.Conn, error) { return dial(ctx, "tcp", addr) },
			AnswerTimeout: t.ResponseHeaderTimeout,
			IdleTimeout:   t.IdleConnTimeout,
			MaxIdle:       idle,
			MaxHeader:     t.MaxResponseHeaderBytes,
		})
	}
	return all
}

// bufferSize is the same as ReverseProxy's own.
const bufferSize = 32 << 10

// buffers is a httputil.BufferPool. It pools pointers to arrays, because converting a slice to an
// interface allocates.
type buffers struct{ pool sync.Pool }

func newBuffers() *buffers {
	b := new(buffers)
	b.pool.New = func() any { return new([bufferSize]byte) }
	return b
}

func (b *buffers) Get() []byte    { return b.pool.Get().(*[bufferSize]byte)[:] }
func (b *buffers) Put(buf []byte) { b.pool.Put((*[bufferSize]byte)(buf)) }
