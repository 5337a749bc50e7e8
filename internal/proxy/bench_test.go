//go:build unix

package proxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/signals"
)

// bare returns the ReverseProxy that a Proxy is compared with: net/http's transport with
// the same settings, the same buffers, and a minimal rewrite.
func bare(p *Proxy) *httputil.ReverseProxy {
	carrier := http.RoundTripper(p.transport)
	if all, ok := carrier.(*transports); ok {
		carrier = all.general
	}
	return &httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(p.origin)
			pr.SetXForwarded()
			pr.Out.Host = pr.In.Host
		},
		Transport:  carrier,
		BufferPool: newBuffers(),
	}
}

func benchProxy(b *testing.B) *Proxy {
	b.Helper()
	body := strings.Repeat("x", 1024)
	p, err := New(Config{
		StripCookiePrefix: "__cfwaitingroom",
		Origin: newOrigin(b, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1024")
			io.WriteString(w, body)
		}),
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.CloseIdleConnections)
	return p
}

// load is a client with kept connections.
type load struct {
	url    string
	client *http.Client
}

func newLoad(b *testing.B, h http.Handler) *load {
	srv := httptest.NewServer(h)
	tr := &http.Transport{MaxIdleConnsPerHost: 16}
	b.Cleanup(func() { tr.CloseIdleConnections(); srv.Close() })
	return &load{url: srv.URL, client: &http.Client{Transport: tr}}
}

func (l *load) one(b *testing.B) {
	r, err := http.NewRequest("GET", l.url+"/shop/cart?id=7", nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Cookie", "session=abcdef; theme=dark")
	r.Header.Set("Accept", "text/html")
	res, err := l.client.Do(r)
	if err != nil {
		b.Error(err)
		return
	}
	io.Copy(io.Discard, res.Body)
	res.Body.Close()
}

// block sends n requests over 16 connections and returns the CPU time of each, including the client
// and the origin.
func (l *load) block(b *testing.B, n int) time.Duration {
	before := cpu(b)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range n / 16 {
				l.one(b)
			}
		})
	}
	wg.Wait()
	return (cpu(b) - before) / time.Duration(n)
}

func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkProxy(b *testing.B) {
	l := newLoad(b, benchProxy(b))
	b.ReportAllocs()
	for b.Loop() {
		l.one(b)
	}
}

func BenchmarkBareReverseProxy(b *testing.B) {
	l := newLoad(b, bare(benchProxy(b)))
	b.ReportAllocs()
	for b.Loop() {
		l.one(b)
	}
}

// BenchmarkPair measures both in turns, so that other load on the machine affects both, and reports
// the median of the quotients; the budget is 0.90. The origin and the client cost the same on both
// sides; a third load measures that cost, and it is subtracted.
func BenchmarkPair(b *testing.B) {
	p := benchProxy(b)
	ours, theirs := newLoad(b, p), newLoad(b, bare(p))
	direct := &load{url: p.origin.String(), client: theirs.client}
	const n = 1600
	for _, l := range []*load{ours, theirs, direct} {
		l.block(b, n)
	}
	var quotients, diffs []float64
	for b.Loop() {
		o, t, d := ours.block(b, n), theirs.block(b, n), direct.block(b, n)
		quotients = append(quotients, float64(o-d)/float64(t-d))
		diffs = append(diffs, float64(o-t))
	}
	b.ReportMetric(median(quotients), "cpu/bare")
	b.ReportMetric(median(diffs), "ns-more/req")
	b.ReportMetric(0, "ns/op")
}

func median(f []float64) float64 {
	slices.Sort(f)
	return f[len(f)/2]
}

// BenchmarkHandler works without the network: the difference is what a Proxy adds.
func BenchmarkHandler(b *testing.B) {
	p := benchProxy(b)
	p.transport = instant{}
	p.carrier = &watched{next: p.transport, health: p.health}
	metered := *p
	metered.meter = signals.NewMeter()
	for name, h := range map[string]http.Handler{"proxy": p, "bare": bare(p), "metered": &metered} {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest("GET", "/shop/cart?id=7", nil).WithContext(b.Context())
			r.Header.Set("Cookie", "session=abcdef; theme=dark")
			w := &silentWriter{h: make(http.Header)}
			visitor := inside{w}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.h)
				h.ServeHTTP(visitor, r)
			}
		})
	}
}

// What a Proxy adds to a bare ReverseProxy is the answer, the array of forwarded values (which
// saves two allocations) and the watch of the context.
func TestAllocationBudget(t *testing.T) {
	p, err := New(Config{Origin: parseURL(t, "http://127.0.0.1:1"), StripCookiePrefix: "__gate"})
	if err != nil {
		t.Fatal(err)
	}
	p.transport = instant{}
	p.carrier = &watched{next: p.transport, health: p.health}
	r := httptest.NewRequest("GET", "/", nil).WithContext(t.Context())
	w := &silentWriter{h: make(http.Header)}
	count := func(h http.Handler) float64 {
		return testing.AllocsPerRun(200, func() {
			clear(w.h)
			h.ServeHTTP(w, r)
		})
	}
	if ours, theirs := count(p), count(bare(p)); ours > theirs+4 {
		t.Errorf("%v allocations a request, a bare ReverseProxy has %v", ours, theirs)
	}
}
