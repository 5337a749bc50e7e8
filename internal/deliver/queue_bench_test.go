package deliver_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"

	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/internal/deliver"
	"github.com/headgate/headgate/queue"
)

// BenchmarkQueue delivers jobs of a queue over HTTP to a target on this machine, which takes about
// half of the CPU.
func BenchmarkQueue(b *testing.B) {
	seen := make(chan struct{}, 1024)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		seen <- struct{}{}
	}))
	defer server.Close()
	h, err := deliver.Open(deliver.Target{URL: server.URL})
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	engine, err := embedded.Open(b.Context(), embedded.Config{Dir: filepath.Join(b.TempDir(), "engine")})
	if err != nil {
		b.Fatal(err)
	}
	defer engine.Close()
	q, err := queue.Open(b.Context(), queue.Config{Name: "orders", NATS: engine.Conn(), Handler: h})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { q.Run(ctx) })
	jobs := make([]queue.Job, b.N)
	for i := range jobs {
		jobs[i].Body = make([]byte, 250)
	}
	b.ReportAllocs()
	b.ResetTimer()
	if _, err := q.Put(b.Context(), jobs); err != nil {
		b.Fatal(err)
	}
	for range b.N {
		<-seen
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
