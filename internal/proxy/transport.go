package proxy

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// A transport carries requests to the origin and blocks until the answer's
// headers are there. It is net/http's Transport; it is an interface because a
// RoundTripper without goroutines of its own per connection was measured to save
// a third of the CPU, and would still need net/http's for upgrades.
type transport interface {
	http.RoundTripper
	CloseIdleConnections()
}

// A dialFunc opens a connection to the origin.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

func dialer(cfg *Config) dialFunc {
	if cfg.Dial != nil {
		return cfg.Dial
	}
	d := &net.Dialer{Timeout: limit(cfg.DialTimeout, 5*time.Second)}
	return d.DialContext
}

func newTransport(cfg *Config, dial dialFunc) *http.Transport {
	// HTTP/1.1 only: an upgrade needs it, and one origin's connections are few.
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	// All connections go to one host. net/http would keep 2 of them idle, and
	// dial for nearly every request of a busy site: 118 µs instead of 40 each.
	idle := cmp.Or(cfg.MaxIdleConns, 512)
	t := &http.Transport{
		Proxy:                  nil, // the environment's HTTP_PROXY is not the way to the origin
		DialContext:            dial,
		Protocols:              protocols,
		TLSHandshakeTimeout:    limit(cfg.DialTimeout, 5*time.Second),
		ResponseHeaderTimeout:  limit(cfg.ResponseHeaderTimeout, 60*time.Second),
		ExpectContinueTimeout:  time.Second, // net/http's default
		IdleConnTimeout:        limit(cfg.IdleTimeout, 60*time.Second),
		MaxIdleConns:           idle,
		MaxIdleConnsPerHost:    idle,
		MaxResponseHeaderBytes: cmp.Or(cfg.MaxResponseHeaderBytes, 1<<20),
		DisableCompression:     true, // the client's Accept-Encoding passes, or none
	}
	if cfg.TLS != nil {
		t.TLSClientConfig = cfg.TLS.Clone()
	}
	return t
}

// bufferSize is ReverseProxy's own.
const bufferSize = 32 << 10

// buffers is a httputil.BufferPool. It pools pointers to arrays, because a slice
// in an interface is an allocation.
type buffers struct{ pool sync.Pool }

func newBuffers() *buffers {
	b := new(buffers)
	b.pool.New = func() any { return new([bufferSize]byte) }
	return b
}

func (b *buffers) Get() []byte    { return b.pool.Get().(*[bufferSize]byte)[:] }
func (b *buffers) Put(buf []byte) { b.pool.Put((*[bufferSize]byte)(buf)) }
