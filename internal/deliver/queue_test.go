package deliver

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/queue"
)

// A queue, its deliveries and an overloaded target: one 503 with Retry-After stops all deliveries,
// no job loses an attempt, and each job arrives.
func TestAnOverrunTargetStopsItsQueue(t *testing.T) {
	const jobs, atOnce = 60, 4
	var mu sync.Mutex
	var refused, taken []time.Time
	got := map[string]int{}
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if len(taken) == 10 && len(refused) < atOnce && (len(refused) == 0 ||
			time.Since(refused[0]) < time.Second) {
			refused = append(refused, time.Now())
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		taken = append(taken, time.Now())
		got[r.Header.Get("Idempotency-Key")]++
		if n := r.Header.Get("Headgate-Attempt"); n != "1" {
			t.Errorf("attempt %s: one that was refused is none", n)
		}
	})
	engine, err := embedded.Open(t.Context(), embedded.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	q, err := queue.Open(t.Context(), queue.Config{Name: "orders", NATS: engine.Conn(),
		Handler: open(t, Target{URL: s.URL, Secrets: []string{secret("s")}}), Concurrency: atOnce,
		Throttle: throttle(t, Pace{Amount: 1000}), MaxAttempts: 1, MinBackoff: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() {
		if err := q.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	var all []queue.Job
	for i := range jobs {
		all = append(all, queue.Job{Key: fmt.Sprint("key ", i), Body: []byte("x")})
	}
	if _, err := q.Put(ctx, all); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for done := false; !done; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("not all was delivered within 30 s")
		}
		st, err := q.Status(ctx)
		done = err == nil && st.Totals.Delivered == jobs && st.Depth == 0 && st.Dead == 0
	}
	mu.Lock()
	defer mu.Unlock()
	if len(refused) == 0 || len(refused) > atOnce || len(taken) != jobs || len(got) != jobs {
		t.Fatalf("%d refused, %d taken, %d keys", len(refused), len(taken), len(got))
	}
	for _, at := range taken[10+atOnce:] { // except those in flight
		if pause := at.Sub(refused[0]); pause < time.Second {
			t.Errorf("a job arrived %v after the target had asked for 1 s", pause)
			break
		}
	}
}
