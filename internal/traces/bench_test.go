package traces

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/headgate/headgate/tests/tracestest"
)

// BenchmarkRequest is a request past what records it and on to a transport: off, of which nothing
// is recorded, one of a hundred, and all. No socket is in it.
func BenchmarkRequest(b *testing.B) {
	answer := &http.Response{StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1}
	wire := roundTrip(func(*http.Request) (*http.Response, error) { return answer, nil })
	run := func(b *testing.B, t *Tracer) {
		rt := t.Transport(wire)
		h := t.Request("shop", t.Inside(func(http.ResponseWriter) string { return "active" },
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				rt.RoundTrip(r)
				w.WriteHeader(200)
			})))
		r := httptest.NewRequest("GET", "/in", nil)
		w := &nowhere{header: http.Header{}}
		b.ReportAllocs()
		for b.Loop() {
			h.ServeHTTP(w, r)
		}
	}
	b.Run("off", func(b *testing.B) { run(b, nil) })
	for _, sample := range []float64{0, 0.01, 1} {
		b.Run(fmt.Sprint("sample=", sample), func(b *testing.B) {
			run(b, record(b, Config{Sample: sample, Paths: true},
				&tracestest.Collector{Instead: swallow}).Tracer)
		})
	}
}

// swallow is a collector that costs as little as one can.
func swallow(_ http.ResponseWriter, r *http.Request) bool {
	io.Copy(io.Discard, r.Body)
	return true
}

type nowhere struct{ header http.Header }

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n *nowhere) WriteHeader(int)             {}

// BenchmarkProxied is the same between two sockets: a client, a reverse proxy and an origin.
func BenchmarkProxied(b *testing.B) {
	o := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write(make([]byte, 1024))
	}))
	b.Cleanup(o.Close)
	to, err := url.Parse(o.URL)
	if err != nil {
		b.Fatal(err)
	}
	run := func(b *testing.B, t *Tracer) {
		p := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
			Transport: t.Transport(http.DefaultTransport)}
		front := httptest.NewServer(t.Request("shop", t.Inside(
			func(http.ResponseWriter) string { return "active" }, p)))
		defer front.Close()
		b.ReportAllocs()
		for b.Loop() {
			res, err := front.Client().Get(front.URL)
			if err != nil {
				b.Fatal(err)
			}
			io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
	}
	b.Run("off", func(b *testing.B) { run(b, nil) })
	for _, sample := range []float64{0, 0.01, 1} {
		b.Run(fmt.Sprint("sample=", sample), func(b *testing.B) {
			run(b, record(b, Config{Sample: sample, Paths: true},
				&tracestest.Collector{Instead: swallow}).Tracer)
		})
	}
}
