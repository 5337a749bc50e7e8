package proxy

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// A transport sends requests to the origin and blocks until the answer's headers arrive. It is
// net/http's Transport. It is an interface because a RoundTripper without goroutines of its own per
// connection saved a third of the CPU in a measurement, and would still need net/http's for
// upgrades.
type transport interface {
	http.RoundTripper
	CloseIdleConnections()
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

func newTransport(cfg *Config, dial dialFunc) *http.Transport {
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
	return t
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
